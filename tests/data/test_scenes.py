"""Generated scenes, and captioned images of a folder."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from seq2seq_lab.data.captions import ImageFolder
from seq2seq_lab.data.scenes import CANVAS, COLORS, NOISE, Scenes, mask, relation
from seq2seq_lab.errors import UserError


def scenes(**settings: Any) -> Scenes:
    return Scenes(**{"train": 40, "validation": 5, "test": 5, "max_shapes": 3, "seed": 1} | settings)


def test_the_region_of_a_color_shows_that_color() -> None:
    pairs = scenes().load().train
    assert pairs.regions is not None
    seen = 0
    for image, caption, regions in zip(pairs.images, pairs.captions, pairs.regions, strict=True):
        words = caption.split()
        for number, (left, top, right, bottom) in regions.items():
            assert 0 <= left < right <= CANVAS
            assert 0 <= top < bottom <= CANVAS
            if words[number] in COLORS:
                difference = (
                    image[:, top:bottom, left:right].astype(int)
                    - np.array(COLORS[words[number]])[:, None, None]
                )
                shown = (abs(difference) <= NOISE).all(0)
                assert shown.mean() > 0.3
                seen += 1
    assert seen > 40


def test_scenes_are_a_function_of_the_seed_and_not_of_other_splits() -> None:
    first, again, other = scenes().load(), scenes(train=3).load(), scenes(seed=2).load()
    assert np.array_equal(first.validation.images, again.validation.images)
    assert first.train.captions[:3] == again.train.captions
    assert not np.array_equal(first.validation.images, other.validation.images)


def test_relations() -> None:
    above = (10, 2, 16, 8)
    assert relation(above, (10, 12, 16, 18)) == ("below",)
    assert relation(above, (20, 4, 26, 10)) == ("right", "of")
    assert relation(above, (1, 4, 7, 10)) == ("left", "of")


def test_the_shapes_differ() -> None:
    masks = [mask(shape, 12) for shape in ("circle", "square", "triangle", "cross")]
    assert len({one.tobytes() for one in masks}) == 4
    assert masks[1].all()


@pytest.mark.parametrize("setting", [{"train": 0}, {"max_shapes": 5}])
def test_values_out_of_range_are_refused(setting: dict[str, int]) -> None:
    with pytest.raises(UserError, match=f"dataset.{next(iter(setting))}"):
        scenes(**setting)


def write_folder(folder: Path, lines: list[str]) -> ImageFolder:
    for number, color in enumerate(("red", "blue", "lime")):
        Image.new("RGB", (20, 10 + number), color).save(folder / f"{number}.png")
    (folder / "captions.tsv").write_text("\n".join(lines) + "\n", "utf-8")
    return ImageFolder(path=str(folder), encoding=None, size=8, language="en")


LINES = ["train\t0.png\ta  red image", "train\t0.png\tred", "validation\t1.png\tblue", "test\t2.png\tgreen"]


def test_a_folder_of_images(tmp_path: Path) -> None:
    corpus = write_folder(tmp_path, LINES).load()
    assert corpus.train.captions == ["a red image", "red"]
    assert corpus.train.names == ["0.png", "0.png"]
    assert (corpus.train.images.shape, [*corpus.train.image_N]) == ((1, 3, 8, 8), [0, 0])
    assert corpus.train.images[0, :, 4, 4].tolist() == [255, 0, 0]
    assert corpus.tests["test"].images[0, :, 0, 0].tolist() == [0, 255, 0]


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ([*LINES, "train\t0.png"], "line 5"),
        ([*LINES, "dev\t0.png\tx"], "line 5"),
        ([*LINES, "train\t0.png\t\u200b"], "line 5: the sentence is empty"),
        ([*LINES, "train\t0.png\ta\rb"], "line 5: .*carriage return"),
        ([*LINES, "train\t9.png\tx"], "9.png"),
        ([*LINES, "train\tcaptions.tsv\tx"], "captions.tsv"),
        (LINES[:3], "test"),
    ],
)
def test_a_bad_folder_is_refused(lines: list[str], named: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=named):
        write_folder(tmp_path, lines).load()


def test_a_folder_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write_folder(tmp_path, LINES)
    assert len(ImageFolder(path="~", encoding=None, size=8, language="en").load().train.captions) == 2


def test_a_folder_without_captions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"captions\.tsv"):
        ImageFolder(path=str(tmp_path), encoding=None, size=8, language="en").load()
