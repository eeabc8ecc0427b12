"""Files with captions in Karpathy's JSON, and precomputed features in files of NumPy: read, and refused when damaged."""

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from seq2seq_lab.data.captions import FeatureFolder, ImageFolder, read_features, rgb, write_image
from seq2seq_lab.errors import UserError


def entry(file: str, split: str, *captions: Any, **others: Any) -> dict[str, Any]:
    """An image of Karpathy's JSON."""
    sentences = [{"raw": raw, "tokens": ["x"], "imgid": 0, "sentid": 0} for raw in captions]
    return {"filename": file, "split": split, "sentences": sentences, "imgid": 0, "sentids": [0]} | others


IMAGES = [
    entry("0.png", "train", "A red\nimage .", "Red !"),
    entry("1.png", "restval", "Blue ."),
    entry("1.png", "val", "Cafe\u0301 ."),
    entry("2.png", "test", "Green .", filepath="deep"),
]


def write_json(folder: Path, images: Any) -> ImageFolder:
    (folder / "deep").mkdir(exist_ok=True)
    for file, color in {"0.png": "red", "1.png": "blue", "deep/2.png": "lime"}.items():
        Image.new("RGB", (10, 10), color).save(folder / file)
    document = images if isinstance(images, str) else json.dumps({"images": images, "dataset": "flickr8k"})
    (folder / "dataset.json").write_text(document, "utf-8")
    return ImageFolder(path=str(folder), captions="dataset.json", encoding=None, size=8, language="en")


@pytest.mark.parametrize("compressed", [False, True])
def test_the_json_has_captions_and_official_splits(compressed: bool, tmp_path: Path) -> None:
    folder = write_json(tmp_path, IMAGES)
    if compressed:
        content = gzip.compress((tmp_path / "dataset.json").read_bytes())
        (tmp_path / "dataset.json.gz").write_bytes(content)
        folder = replace(folder, captions="dataset.json.gz")
    corpus = folder.load()
    assert corpus.train.captions == ["A red image .", "Red !", "Blue ."]
    assert [*corpus.train.image_N] == [0, 0, 1]
    assert corpus.validation.captions == ["Caf\u00e9 ."]
    assert corpus.tests["test"].names == ["deep/2.png"]
    assert (corpus.counts["composed_lines"], corpus.counts["leaked_images"]) == (1, 1)


def test_an_image_has_one_name_and_is_found_again_by_its_content(tmp_path: Path) -> None:
    rows = [
        *(entry("./0.png", "train", "Red ."), entry("0.png", "train", "Light .", filepath="deep/..")),
        *(entry("1.png", "val", "Blue ."), entry("../deep/2.png", "test", "Green .", filepath="deep")),
    ]
    corpus = write_json(tmp_path, rows).load()
    assert (len(corpus.train.images), len({*corpus.train.names})) == (1, 1)
    assert corpus.train.captions == ["Red .", "Light ."]
    assert corpus.counts["leaked_images"] == 0
    corpus = write_json(tmp_path, [*rows, entry("0.png", "test", "Again .")]).load()
    assert corpus.counts["leaked_images"] == 1
    assert "0.png" in corpus.tests["test"].names  # not the path in training
    folder = write_json(tmp_path, [*rows, entry("copy.png", "test", "Again .")])
    (tmp_path / "copy.png").write_bytes((tmp_path / "0.png").read_bytes())
    assert folder.load().counts["leaked_images"] == 1


@pytest.mark.parametrize(
    ("images", "named"),
    [
        ('{"images": [{"filename"', "dataset.json line 1: not JSON"),
        ('{"images": [1]}', "filename=''"),
        ([*IMAGES, entry("0.png", "dev", "x")], "element 5: split='dev'"),
        ([*IMAGES, entry("0.png", ["train"], "x")], r"element 5: split=\['train'\]"),  # type: ignore[arg-type]
        ([*IMAGES, {"split": "train"}], "element 5: filename=''"),
        ([*IMAGES, entry("0.png", "train", filepath=3)], "element 5: filename"),
        ([*IMAGES, entry("0.png", "train")], r"element 5: sentences=\[\]"),
        ([*IMAGES, entry("0.png", "train", "x", 5)], "element 5 sentence 2: raw: 5 is not text"),
        ([*IMAGES, entry("0.png", "train", " ")], "element 5 sentence 1: raw: the sentence is empty"),
        ([*IMAGES, entry("0.png", "train", "x", sentences=["x"])], "element 5 sentence 1: raw: None"),
        ([*IMAGES, entry("9.png", "train", "x")], r"element 5: .*9\.png is not a file.*dataset\.path="),
        (IMAGES[:3], "no caption of the split test"),
    ],
)
def test_damaged_json_is_refused(images: Any, named: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=named):
        write_json(tmp_path, images).load()


def features(count: int = 6, size: int = 3, kind: Any = np.float32) -> Any:
    return np.arange(count * size).reshape(count, size).astype(kind)


def write_features(folder: Path, grid: list[int] | None, **arrays: Any) -> FeatureFolder:
    """A folder with the features `a`, `b` and `c`, of three splits."""
    for name, array in ({"a": features(), "b": features(), "c": features()} | arrays).items():
        np.save(folder / f"{name}.npy", array)
    lines = ["train\ta.jpg\tone", "validation\tb.npy\ttwo", "test\tc.jpg\tthree"]
    (folder / "captions.tsv").write_text("\n".join(lines) + "\n", "utf-8")
    return FeatureFolder(path=str(folder), captions="captions.tsv", encoding=None, grid=grid, language="en")


@pytest.mark.parametrize("features", [False, True])
def test_a_missing_file_is_named_with_its_line_before_any_is_read(features: bool, tmp_path: Path) -> None:
    (tmp_path / "captions.tsv").write_text("train\t0.png\ta\ntest\t1.png\tb\nvalidation\t0.png\tc\n")
    file = "1.npy" if features else "1.png"
    (tmp_path / f"0{Path(file).suffix}").write_text("not read")
    settings: Any = {"path": str(tmp_path), "captions": "captions.tsv", "encoding": None, "language": "en"}
    folder = FeatureFolder(**settings, grid=None) if features else ImageFolder(**settings, size=8)
    with pytest.raises(UserError, match=rf"captions\.tsv line 2: .*{file} is not a file.*dataset\.path="):
        folder.load()


def test_features_are_read_row_by_row(tmp_path: Path) -> None:
    corpus = write_features(tmp_path, [2, 3]).load()
    assert corpus.train.images.shape == (1, 3, 2, 3)
    assert corpus.train.images.dtype == np.float32
    np.testing.assert_array_equal(corpus.train.images[0, :, 1, 0], features()[3])
    assert (corpus.train.names, corpus.validation.names) == (["a.jpg"], ["b.npy"])


@pytest.mark.parametrize(
    ("written", "read"), [(np.float16, np.float16), (np.float64, np.float32), (">f4", np.float32)]
)
def test_a_square_number_of_positions_needs_no_grid(written: Any, read: Any, tmp_path: Path) -> None:
    arrays = {name: features(9, kind=written) for name in "abc"}
    images = write_features(tmp_path, None, **arrays).load().train.images
    assert (images.shape, images.dtype) == ((1, 3, 3, 3), read)


BROKEN = features()
BROKEN[4, 1] = np.nan


@pytest.mark.parametrize(
    ("grid", "array", "named"),
    [
        (None, features(), r"a\.npy have L=6 .*dataset\.grid"),
        ([2, 2], features(), r"a\.npy have L=6 .*grid of 2 × 2 has 4"),
        ([6, 1], BROKEN, r"a\.npy contain nan at position 4, feature 1"),
        ([6, 1], features(kind=np.int64), r"a\.npy .*int64"),
        ([6, 1], features()[None], r"a\.npy .*\(1, 6, 3\)"),
        ([6, 1], features()[:, :0], r"a\.npy .*\(6, 0\)|a\.npy cannot be read"),
        ([6, 1], np.array([[1.0, None]] * 6), r"a\.npy cannot be read"),
    ],
)
def test_unusable_features_are_refused(grid: Any, array: Any, named: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=named):
        write_features(tmp_path, grid, a=array).load()


def test_features_of_another_size_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"b\.npy have L=6 and D=4, and others L=6 and D=3"):
        write_features(tmp_path, [2, 3], b=features(size=4)).load()


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"text", b"half"])
def test_a_damaged_file_of_features_is_named(content: bytes, tmp_path: Path) -> None:
    write_features(tmp_path, [2, 3])
    whole = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(whole[:-7] if content == b"half" else content)
    with pytest.raises(UserError, match=r"a\.npy cannot be read"):
        read_features(tmp_path / "a.npy", [2, 3])
    with pytest.raises(UserError, match=r"z\.npy are not a file"):
        read_features(tmp_path / "z.npy", [2, 3])


def test_a_grid_of_three_numbers_is_refused() -> None:
    with pytest.raises(UserError, match=re.escape("dataset.grid=[1, 2, 3]")):
        FeatureFolder(path=".", captions="x", encoding=None, grid=[1, 2, 3], language="en")


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    image_DYX = features(6, 4).T.reshape(4, 2, 3)
    path = write_image(tmp_path / "one", image_DYX)
    np.testing.assert_array_equal(read_features(path, [2, 3]), image_DYX)
    assert rgb(image_DYX).shape == (2, 3, 3)
    assert rgb(image_DYX)[1, 2].tolist() == [255, 255, 255]
