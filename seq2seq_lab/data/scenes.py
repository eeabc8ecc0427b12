"""Scenes of colored shapes with captions, drawn by the program. The region of each content word is known."""

from dataclasses import dataclass
from random import Random
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt

from seq2seq_lab.config.type_checks import AtMost, Count
from seq2seq_lab.data.captions import Box, CaptionCorpus, CaptionedImages
from seq2seq_lab.data.licences import GENERATED
from seq2seq_lab.data.text import SPLITS

CANVAS = 32  # pixels
SIZES = {"small": 7, "large": 12}  # pixels
COLORS = {
    "red": (220, 40, 40),
    "green": (40, 170, 60),
    "blue": (50, 80, 220),
    "yellow": (240, 210, 40),
    "purple": (150, 60, 170),
    "white": (250, 250, 250),
}
SHAPES = ("circle", "square", "triangle", "cross")
BACKGROUND = 40
NOISE = 12  # the greatest deviation of a value of a pixel
ATTEMPTS = 100  # to place a shape beside the others


@dataclass(frozen=True, slots=True)
class Thing:
    """A shape on the canvas."""

    size: str
    color: str
    shape: str
    box: Box

    @property
    def words(self) -> tuple[str, str, str]:
        """The words that describe it."""
        return self.size, self.color, self.shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenes:
    """Images of one to `max_shapes` shapes of different size, color and form, with a caption that the image determines.

    The caption names the shapes from the top to the bottom of the image, and says where each one is relative to the one
    before it, for example "a large red circle , right of it a small blue cross". The words for size, color and form have
    the shape's bounding box as region; the other words have none.

    Args:
        train: the number of images of the training split, and of validation and test.
        max_shapes: the greatest number of shapes of an image, at most 4.
        seed: random seed of the data; it does not depend on the `seed` of the run.
    """

    licence: ClassVar[str] = GENERATED
    train: Count
    validation: Count
    test: Count
    max_shapes: Annotated[Count, AtMost(4)]
    seed: int

    def load(self) -> CaptionCorpus:
        """Draw the images."""
        splits = [self._split(name, index) for index, name in enumerate(SPLITS)]
        return CaptionCorpus("en", splits[0], splits[1], {"test": splits[2]})

    def _split(self, name: str, index: int) -> CaptionedImages:
        # A generator per split, so that the size of one split does not change the others.
        random, count = Random(f"{self.seed} {index}"), getattr(self, name)
        noise = np.random.default_rng((self.seed, index))
        images = np.empty((count, 3, CANVAS, CANVAS), np.uint8)
        captions, regions = [], []
        for i in range(count):
            things = place(random, random.randint(1, self.max_shapes))
            images[i] = draw(things, noise)
            caption, region = describe(things)
            captions.append(caption)
            regions.append(region)
        return CaptionedImages(
            images, captions, [f"{name} {i}" for i in range(count)], np.arange(count), regions
        )


def place(random: Random, count: int) -> list[Thing]:
    """Return shapes that do not touch, from the top to the bottom of the canvas."""
    things: list[Thing] = []
    for _ in range(ATTEMPTS):
        size = random.choice([*SIZES])
        side = SIZES[size]
        left, top = random.randint(1, CANVAS - side - 1), random.randint(1, CANVAS - side - 1)
        box = (left, top, left + side, top + side)
        color, shape = random.choice([*COLORS]), random.choice(SHAPES)
        # Tops that differ order the shapes, and words that differ make the caption clear.
        distinct = all(top != one.box[1] and (size, color, shape) != one.words for one in things)
        if distinct and not any(touch(box, one.box) for one in things):
            things.append(Thing(size, color, shape, box))
        if len(things) == count:
            break
    return sorted(things, key=lambda thing: thing.box[1])


def touch(one: Box, other: Box) -> bool:
    """Return whether two boxes overlap or have less than a pixel between them."""
    return one[0] <= other[2] and other[0] <= one[2] and one[1] <= other[3] and other[1] <= one[3]


def draw(things: list[Thing], noise: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Return the image of shapes on a dark background with noise: RGB values of shape 3HW."""
    image = np.full((3, CANVAS, CANVAS), BACKGROUND, np.int16)
    for thing in things:
        left, top, right, bottom = thing.box
        inside = mask(thing.shape, right - left)
        image[:, top:bottom, left:right][:, inside] = np.array(COLORS[thing.color])[:, None]
    image += noise.integers(-NOISE, NOISE + 1, image.shape, dtype=np.int16)
    return image.clip(0, 255).astype(np.uint8)


def mask(shape: str, side: int) -> npt.NDArray[np.bool_]:
    """Return the pixels of a shape in a square of `side` pixels."""
    row, column = np.mgrid[:side, :side]
    center = (side - 1) / 2
    if shape == "circle":
        inside = (row - center) ** 2 + (column - center) ** 2 <= (side / 2) ** 2
    elif shape == "triangle":
        inside = abs(column - center) <= (row + 1) / 2
    elif shape == "cross":
        inside = (abs(row - center) <= side / 6) | (abs(column - center) <= side / 6)
    else:
        inside = np.ones((side, side), bool)
    return np.asarray(inside, np.bool_)


def describe(things: list[Thing]) -> tuple[str, dict[int, Box]]:
    """Return the caption of shapes, and the region of each content word by the index of the word."""
    words: list[str] = []
    regions: dict[int, Box] = {}
    for index, thing in enumerate(things):
        if index:
            words += [",", *relation(things[index - 1].box, thing.box), "it"]
        words.append("a")
        for word in thing.words:
            regions[len(words)] = thing.box
            words.append(word)
    return " ".join(words), regions


def relation(before: Box, after: Box) -> tuple[str, ...]:
    """Return where a box is relative to one whose top is higher."""
    across = (after[0] + after[2] - before[0] - before[2]) / 2
    down = (after[1] + after[3] - before[1] - before[3]) / 2
    if down >= abs(across):
        return ("below",)
    return ("right", "of") if across > 0 else ("left", "of")
