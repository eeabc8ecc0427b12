"""Images with captions: what a data set for captioning returns, and captioned images of a folder."""

import base64
import io
import struct
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import numpy.typing as npt

from seq2seq_lab.config.type_checks import Within
from seq2seq_lab.data.local_files import check_encoding, read_lines
from seq2seq_lab.data.progress import progress
from seq2seq_lab.data.text import SPLITS, find_problem, new_counts
from seq2seq_lab.errors import UserError

if TYPE_CHECKING:
    from PIL import Image

_BITS, _PHOTOMETRIC, _WHITE_IS_ZERO = 258, 262, 0  # tags of TIFF, and a value of the second one
Box = tuple[int, int, int, int]  # left, top, right, bottom in pixels; the last two are outside


@dataclass(frozen=True, slots=True)
class CaptionedImages:
    """The N pairs of an image and a caption of one split.

    Attributes:
        images: the I different images, RGB, uint8, of shape I3HW.
        captions: one per pair; words are separated by spaces.
        names: the name of the image of each pair; captions of one image have one name.
        image_N: the index in `images` of the image of each pair.
        regions: for each pair the region of each word that names something in the image, by the index of the word; None if
            the data set has no regions.
    """

    images: npt.NDArray[np.uint8]
    captions: Sequence[str]
    names: Sequence[str]
    image_N: npt.NDArray[np.int64]
    regions: Sequence[Mapping[int, Box]] | None = None

    def __post_init__(self) -> None:
        assert len(self.image_N) == len(self.captions) == len(self.names)
        assert self.regions is None or len(self.regions) == len(self.captions)

    def __len__(self) -> int:
        return len(self.captions)

    def first(self, count: int) -> "CaptionedImages":
        """Return the first pairs."""
        regions = None if self.regions is None else self.regions[:count]
        return CaptionedImages(
            self.images, self.captions[:count], self.names[:count], self.image_N[:count], regions
        )


@dataclass(frozen=True, slots=True)
class CaptionCorpus:
    """Captioned images in splits.

    Attributes:
        language: the code of the captions' language.
        counts: numbers of special examples, by name.
    """

    language: str
    train: CaptionedImages
    validation: CaptionedImages
    tests: Mapping[str, CaptionedImages]
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def splits(self) -> Mapping[str, CaptionedImages]:
        """The splits by name."""
        return {"train": self.train, "validation": self.validation, **self.tests}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFolder:
    """Images of a folder, with captions in `captions.tsv`.

    Each line of `captions.tsv` has three columns separated by tabs, without a header: the split (`train`, `validation` or
    `test`), the file of the image relative to the folder, and a caption. An image may have several captions.

    Args:
        path: the folder.
        encoding: of captions.tsv; see `read_lines`.
        size: width and height in pixels that the images are resized to; the shorter side is cropped to first.
        language: the code of the captions' language.

    Raises:
        UserError: the encoding does not exist.
    """

    path: str
    encoding: str | None
    size: Annotated[int, Within(8)]
    language: str

    def __post_init__(self) -> None:
        check_encoding(self.encoding)

    def load(self) -> CaptionCorpus:
        """Read the captions and images.

        Raises:
            UserError: a file is missing or cannot be read, or Pillow is not installed.
        """
        folder = Path(self.path).expanduser()
        table = folder / "captions.tsv"
        if not table.is_file():
            raise UserError(
                f"dataset.path={self.path}: {table} not found. Give a folder with images and captions.tsv."
            )
        rows, names = [], ", ".join(SPLITS)
        for line_number, (line, problem) in enumerate(
            read_lines(table, new_counts(), encoding=self.encoding), start=1
        ):
            row = line.split("\t")
            form = "" if len(row) == 3 and row[0] in SPLITS else f"{line!r} is not of this form"
            if reason := problem or form or find_problem(row[2]):
                raise UserError(
                    f"{table} line {line_number}: {reason}. Write three columns separated by tabs: {names}; the file of the "
                    f"image; a caption."
                )
            rows.append(row)

        def split(name: str) -> CaptionedImages:
            chosen = [row for row in rows if row[0] == name]
            if not chosen:
                raise UserError(
                    f"dataset.path={self.path}: captions.tsv has no line of the split {name}. Add some."
                )
            names = [row[1] for row in chosen]
            indices = {file: index for index, file in enumerate(dict.fromkeys(names))}
            images = np.empty((len(indices), 3, self.size, self.size), np.uint8)
            for file, index in progress(indices.items(), f"Reading images of {name}", len(indices)):
                images[index] = read_image(folder / file, self.size, self.size)
            image_N = np.array([indices[file] for file in names])
            return CaptionedImages(images, [" ".join(row[2].split()) for row in chosen], names, image_N)

        return CaptionCorpus(self.language, split("train"), split("validation"), {"test": split("test")})


def read_image(path: Path, height: int, width: int) -> npt.NDArray[np.uint8]:
    """Return an image as RGB values of shape 3HW, cropped at its center to the shape of `height` and `width` and resized.

    Raises:
        UserError: the file cannot be read, or Pillow is not installed.
    """
    if not path.is_file():
        raise UserError(
            f"The image {path} is not a file. Give the path of an image, relative to captions.tsv."
        )
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise UserError(
            "Reading images needs Pillow. Install it with `pip install 'seq2seq_lab[images]'`."
        ) from error
    try:
        # Warnings are about large images and damaged metadata; an image that is too large is an error.
        with warnings.catch_warnings(action="ignore"), Image.open(path) as image:
            fitted = ImageOps.fit(to_rgb(image), (width, height))
    # The readers of damaged files raise all of these.
    except (OSError, ValueError, SyntaxError, EOFError, struct.error, Image.DecompressionBombError) as error:
        raise UserError(
            f"The image {path} cannot be read ({error}). Replace the file, or leave it out."
        ) from error
    return np.asarray(fitted, np.uint8).transpose(2, 0, 1)


def png_address(image_HWC: npt.NDArray[np.uint8]) -> str:
    """Return RGB values as an address `data:image/png;base64,…`, which a page can show."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image_HWC).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def to_rgb(image: "Image.Image") -> "Image.Image":
    """Return an image of any mode as RGB, as a viewer shows it.

    It is upright, its transparent parts are white, 12 and 16 bits are scaled to 8, and its colors are those of its ICC
    profile, converted to sRGB.

    Raises:
        ValueError: the mode has no defined colors, such as floating-point numbers.
    """
    from PIL import Image, ImageOps

    tags = getattr(image, "tag_v2", {})  # of TIFF
    profile = image.info.get("icc_profile")
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16"):
        values = np.asarray(image).astype(np.uint16) >> (tags.get(_BITS, (16,))[0] - 8)
        if tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO:  # Pillow inverts 8 bits only
            values = 255 - values
        image = Image.fromarray(values.astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError(
            f"its mode {image.mode!r} has numbers without a range of brightness; convert it to 8 or 16 bits"
        )
    if image.has_transparency_data:
        colors = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        rgb = _to_srgb(colors.convert("RGB"), profile)
        rgb.putalpha(colors.getchannel("A"))
        return Image.alpha_composite(white, rgb).convert("RGB")
    return _to_srgb(image if image.mode in ("CMYK", "L", "LAB") else image.convert("RGB"), profile)


def _to_srgb(image: "Image.Image", profile: bytes | None) -> "Image.Image":
    """Return an image in the colors of sRGB.

    Args:
        profile: its ICC profile; one that is malformed or for other modes is ignored, as viewers do.
    """
    from PIL import ImageCms

    try:
        if profile:
            own = ImageCms.ImageCmsProfile(io.BytesIO(profile))
            converted = ImageCms.profileToProfile(
                image, own, ImageCms.createProfile("sRGB"), outputMode="RGB"
            )
            assert converted is not None
            return converted
    except (ImageCms.PyCMSError, OSError):
        pass
    return image.convert("RGB")
