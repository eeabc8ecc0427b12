"""Generated scenes, and captioned images of a folder."""

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms

from seq2seq_lab.data.captions import ImageFolder, read_image
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


def write_folder(folder: Path, lines: list[str]) -> ImageFolder:
    for number, color in enumerate(("red", "blue", "lime")):
        Image.new("RGB", (20, 10 + number), color).save(folder / f"{number}.png")
    (folder / "captions.tsv").write_text("\n".join(lines) + "\n", "utf-8")
    return ImageFolder(path=str(folder), captions="captions.tsv", encoding=None, size=8, language="en")


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
        ([*LINES, ""], "line 5: the line is empty"),
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
    assert (
        len(
            ImageFolder(path="~", captions="captions.tsv", encoding=None, size=8, language="en")
            .load()
            .train.captions
        )
        == 2
    )


def test_a_folder_without_captions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"captions\.tsv"):
        ImageFolder(path=str(tmp_path), captions="captions.tsv", encoding=None, size=8, language="en").load()


def pixel(folder: Path, image: Image.Image, name: str = "one.png", **options: Any) -> list[int]:
    """The color at the top left of a file."""
    image.save(folder / name, **options)
    return read_image(folder / name, 8, 8)[:, 0, 0].tolist()


def test_an_image_is_upright(tmp_path: Path) -> None:
    photo = Image.new("RGB", (16, 16), "red")
    photo.paste("blue", (0, 8, 16, 16))
    exif = photo.getexif()
    exif[0x0112] = 3  # turned by 180 degrees
    red, _, blue = pixel(tmp_path, photo, "photo.jpg", exif=exif, quality=95)
    assert blue > 200 > 50 > red


@pytest.mark.parametrize(
    ("mode", "color", "shown"),
    [
        ("1", 1, 255),
        ("L", 70, 70),
        ("LA", (0, 0), 255),
        ("RGBA", (0, 0, 0, 0), 255),
        ("RGBA", (0, 0, 0, 255), 0),
        ("I;16", 256 * 70, 70),
    ],
)
def test_every_mode_is_as_a_viewer_shows_it(tmp_path: Path, mode: str, color: Any, shown: int) -> None:
    assert pixel(tmp_path, Image.new(mode, (16, 16), color)) == [shown] * 3


def test_a_transparent_color_of_a_palette_is_white(tmp_path: Path) -> None:
    image = Image.new("P", (16, 16), 0)
    image.putpalette([10, 20, 30] * 256)
    assert pixel(tmp_path, image, "a.gif") == [10, 20, 30]
    assert pixel(tmp_path, image, "b.gif", transparency=0) == [255] * 3
    assert pixel(tmp_path, Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "c.tif") == [255, 0, 0]


def test_colors_are_those_of_the_profile(tmp_path: Path) -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    # Red and blue are exchanged.
    other = profile.replace(b"rXYZ", b"xXYZ").replace(b"bXYZ", b"rXYZ").replace(b"xXYZ", b"bXYZ")
    red = Image.new("RGB", (16, 16), (250, 10, 20))
    assert pixel(tmp_path, red, icc_profile=profile) == [250, 10, 20]
    for image in (red, red.convert("RGBA"), red.convert("P")):
        shown = pixel(tmp_path, image, icc_profile=other)
        assert shown[0] < 40 < 200 < shown[2], image.mode
    clear = Image.new("RGBA", (16, 16), (250, 10, 20, 0))
    assert pixel(tmp_path, clear, icc_profile=other) == [255] * 3
    for ignored in (other[:200], b"profile"):
        assert pixel(tmp_path, red, icc_profile=ignored) == [250, 10, 20]
    assert pixel(tmp_path, Image.new("L", (16, 16), 7), icc_profile=other) == [7] * 3


def tiff(bits: int, photometric: int, values: bytes) -> bytes:
    """A TIFF of two equal rows of two gray pixels."""
    data = 2 * values
    tags = [
        (256, 2),
        (257, 2),
        (258, bits),
        (259, 1),
        (262, photometric),
        (273, 8),
        (278, 2),
        (279, len(data)),
    ]
    entries = b"".join(struct.pack("<HHIHH", tag, 3, 1, value, 0) for tag, value in tags)
    start = struct.pack("<I", 8 + len(data))
    return b"II*\0" + start + data + struct.pack("<H", len(tags)) + entries + bytes(4)


@pytest.mark.parametrize(
    ("bits", "photometric", "values", "shown"),
    [
        (12, 1, b"\x80\x08\x00", 0x80),  # two values of 12 bits, 0x800
        (16, 1, b"\x00\x80" * 2, 0x80),
        (16, 0, b"\x00\xf0" * 2, 0x0F),  # 0 is white
        (8, 0, b"\xf0" * 2, 0x0F),
    ],
)
def test_gray_values_of_every_depth(
    tmp_path: Path, bits: int, photometric: int, values: bytes, shown: int
) -> None:
    (tmp_path / "x.tif").write_bytes(tiff(bits, photometric, values))
    assert read_image(tmp_path / "x.tif", 8, 8)[:, 0, 0].tolist() == [shown] * 3


@pytest.mark.parametrize(("transparent", "shown"), [(0x4000, 255), (0x4001, 0x40)])
def test_a_transparent_value_of_16_bits_is_white(tmp_path: Path, transparent: int, shown: int) -> None:
    image = Image.new("I;16", (16, 16), 0x4000)
    assert pixel(tmp_path, image, transparency=transparent) == [shown] * 3


@pytest.mark.parametrize(("largest", "value"), [(65535, 0x8080), (4095, 0x808)])
def test_a_pgm_of_more_than_8_bits_is_scaled(tmp_path: Path, largest: int, value: int) -> None:
    (tmp_path / "x.pgm").write_bytes(b"P5\n2 2\n%d\n" % largest + struct.pack(">H", value) * 4)
    assert read_image(tmp_path / "x.pgm", 8, 8)[:, 0, 0].tolist() == [0x80] * 3


@pytest.mark.parametrize("kind", ["pipe", "folder", "nothing"])
def test_what_is_not_an_image_file_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.png"
    {"pipe": os.mkfifo, "folder": os.mkdir, "nothing": str}[kind](path)
    with pytest.raises(UserError, match=rf"{path} is not a file"):
        read_image(path, 8, 8)


def test_images_that_cannot_be_shown_are_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, mode in enumerate(("F", "I")):
        with pytest.raises(UserError, match=rf"{number}\.tif .*mode '{mode}'"):
            pixel(tmp_path, Image.new(mode, (16, 16)), f"{number}.tif")
    content = (tmp_path / "0.tif").read_bytes()
    for name, damaged in (("cut.tif", content[:90]), ("text.png", b"no image"), ("empty.png", b"")):
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(UserError, match=name):
            read_image(tmp_path / name, 8, 8)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 200)
    assert pixel(tmp_path, Image.new("L", (16, 16), 5)) == [5] * 3
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(UserError, match=r"one\.png .*decompression bomb"):
        pixel(tmp_path, Image.new("L", (16, 16), 5))


def test_an_image_with_several_captions_is_in_memory_once(tmp_path: Path) -> None:
    lines = [f"train\t{number % 3}.png\tcaption {number}" for number in range(30)]
    train = write_folder(tmp_path, [*lines, *LINES[2:]]).load().train
    assert train.images.shape == (3, 3, 8, 8)
    assert [*train.image_N] == [number % 3 for number in range(30)]
    first = train.first(4)
    assert first.images.base is train.images or first.images is train.images
    assert len(first) == 4
