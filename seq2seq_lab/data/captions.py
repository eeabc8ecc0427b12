"""Images or features of images with captions: what a data set for captioning returns, and those of a folder."""

import base64
import io
import math
import struct
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt

from seq2seq_lab.config.type_checks import Count, Within
from seq2seq_lab.data.caption_files import read_captions
from seq2seq_lab.data.corpus import check_lengths
from seq2seq_lab.data.local_files import check_encoding
from seq2seq_lab.data.progress import progress
from seq2seq_lab.data.text import new_counts
from seq2seq_lab.errors import UserError

if TYPE_CHECKING:
    from PIL import Image

_BITS, _PHOTOMETRIC, _WHITE_IS_ZERO = 258, 262, 0  # tags of TIFF, and a value of the second one
Box = tuple[int, int, int, int]  # left, top, right, bottom in pixels; the last two are outside


@dataclass(frozen=True, slots=True)
class CaptionedImages:
    """The N pairs of an image and a caption of one split.

    Attributes:
        images: the I different images, RGB, uint8, of shape I3HW; or their features, floating-point numbers, one value of D
            for each of H × W positions.
        captions: one per pair; words are separated by spaces.
        names: the name of the image of each pair; captions of one image have one name.
        image_N: the index in `images` of the image of each pair.
        regions: for each pair the region of each word that names something in the image, by the index of the word; None if
            the data set has no regions.

    Raises:
        UserError: the columns have different lengths, an index is not that of an image, or the images have another shape.
    """

    images: npt.NDArray[Any]
    captions: Sequence[str]
    names: Sequence[str]
    image_N: npt.NDArray[np.int64]
    regions: Sequence[Mapping[int, Box]] | None = None

    def __post_init__(self) -> None:
        columns: dict[str, Sized] = {"captions": self.captions, "names": self.names, "image_N": self.image_N}
        columns |= {} if self.regions is None else {"regions": self.regions}
        check_lengths("CaptionedImages", columns)
        kind = self.images.dtype
        if self.images.ndim != 4 or (kind == np.uint8 and self.images.shape[1] != 3):
            raise UserError(
                f"CaptionedImages: images are of shape {self.images.shape} and type {kind}. Give RGB values of uint8 in the "
                f"shape I × 3 × height × width, or floating-point features in the shape I × D × rows × columns."
            )
        if not isinstance(self.image_N, np.ndarray) or self.image_N.dtype.kind not in "iu":
            raise UserError(
                "CaptionedImages: image_N is not an array of integers. Give one with numpy.array."
            )
        if len(self.image_N) and not 0 <= self.image_N.min() <= self.image_N.max() < len(self.images):
            raise UserError(
                f"CaptionedImages: image_N has values from {self.image_N.min()} to {self.image_N.max()}. Give indices of "
                f"the {len(self.images):,} images."
            )

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
        counts: see `new_counts`; `leaked_images`, those of validation and test that training also has, by content.
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
    """Images of a folder, with captions in a file of it; an image may have several.

    Args:
        path: the folder.
        captions: the file, relative to the folder; see `read_captions`.
        encoding: the encoding of `captions`; see `read_lines`.
        size: width and height in pixels that the images are resized to; the shorter side is cropped to first.
        language: the code of the captions' language.

    Raises:
        UserError: the encoding does not exist.
    """

    source: ClassVar[str] = "images"
    path: str
    captions: str
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

        def read(files: Sequence[Path]) -> Iterator[npt.NDArray[Any]]:
            return (read_image(file, self.size, self.size) for file in files)

        return _load_folder(self, read)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureFolder:
    """Features of images that another network computed, with captions of the images in a file of the folder.

    The features of an image are in the file of its name with the suffix `.npy`; see `read_features`.

    Args:
        path, captions, encoding, language: see `ImageFolder`.
        grid: the rows and columns of the positions; None for the square root of L each.

    Raises:
        UserError: the encoding does not exist, or the grid is not two numbers.
    """

    source: ClassVar[str] = "features"
    path: str
    captions: str
    encoding: str | None
    grid: list[Count] | None
    language: str

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        if self.grid is not None and len(self.grid) != 2:
            raise UserError(
                f"dataset.grid={self.grid} is not the numbers of rows and columns. Give two, for example dataset.grid=[7,7]."
            )

    def load(self) -> CaptionCorpus:
        """Read the captions and features.

        Raises:
            UserError: a file is missing or cannot be read, or the features differ in shape.
        """
        shape: tuple[int, ...] | None = None

        def read(files: Sequence[Path]) -> Iterator[npt.NDArray[Any]]:
            nonlocal shape
            for file in files:
                features = read_features(file, self.grid, shape)
                shape = features.shape
                yield features

        return _load_folder(self, read, ".npy")


def _load_folder(
    folder: ImageFolder | FeatureFolder,
    read: Callable[[Sequence[Path]], Iterator[npt.NDArray[Any]]],
    suffix: str | None = None,
) -> CaptionCorpus:
    """Return the images of a folder with their captions.

    Args:
        read: returns the contents of files.
        suffix: of the files to read, if it is not that of the images.

    Raises:
        UserError: a file is missing, or what `read_captions` and `read` raise.
    """
    root = Path(folder.path).expanduser()
    table = root / folder.captions
    if not table.is_file():
        raise UserError(
            f"dataset.path={folder.path}: {table} not found. Give a folder that contains dataset.captions={folder.captions}."
        )
    counts = new_counts()
    rows = read_captions(table, folder.encoding, counts)

    def file_of(image: str) -> Path:
        return root / image if suffix is None else (root / image).with_suffix(suffix)

    resolved = dict[str, Path]()
    for row in rows:
        if row.image in resolved:
            continue
        file = file_of(row.image)
        if not file.is_file():
            raise UserError(
                f"{row.location}: {file} is not a file. Correct the row, or dataset.path={folder.path}, the folder of the "
                f"images."
            )
        resolved[row.image] = file.resolve()

    def split(name: str) -> CaptionedImages:
        # A file may have several paths. The first one in the split is the name of the image.
        names = dict[Path, str]()
        chosen = [
            row._replace(image=names.setdefault(resolved[row.image], row.image))
            for row in rows
            if row.split == name
        ]
        if not chosen:
            raise UserError(
                f"dataset.path={folder.path}: {table} has no caption of the split {name}. Add some."
            )
        indices = {image: index for index, image in enumerate(dict.fromkeys(row.image for row in chosen))}
        images = _stack(read([*map(file_of, indices)]), len(indices), f"Reading images of {name}")
        image_N = np.array([indices[row.image] for row in chosen])
        return CaptionedImages(
            images, [row.caption for row in chosen], [row.image for row in chosen], image_N
        )

    train, validation, test = split("train"), split("validation"), split("test")
    contents = {hash(image.tobytes()) for image in train.images}
    counts["leaked_images"] = sum(
        hash(image.tobytes()) in contents for pairs in (validation, test) for image in pairs.images
    )
    return CaptionCorpus(folder.language, train, validation, {"test": test}, counts)


def _stack(found: Iterator[npt.NDArray[Any]], count: int, description: str) -> npt.NDArray[Any]:
    """Return arrays of one shape as one array, with a progress bar."""
    first = next(found)
    images = np.empty((count, *first.shape), first.dtype)
    images[0] = first
    for index, image in enumerate(progress(found, description, count - 1), start=1):
        images[index] = image
    return images


def read_features(
    path: Path, grid: Sequence[int] | None, shape: tuple[int, ...] | None = None
) -> npt.NDArray[np.floating[Any]]:
    """Return features of an image, an array of shape L × D in a file of NumPy, in the shape D × rows × columns.

    Features in float16 stay in float16, others are returned in float32.

    Args:
        grid: the number of rows and columns of the L positions, row by row; None for the square root of L each.
        shape: that of the other features, if it is known.

    Raises:
        UserError: the file cannot be read, or the features do not have this shape or are not finite.
    """
    if not path.is_file():
        raise UserError(
            f"The features {path} are not a file. Give an array of shape L × D, as numpy.save writes it."
        )
    try:
        array_LD = np.lib.format.open_memmap(path, mode="r")  # unlike numpy.load never unpickles
    except (OSError, ValueError, EOFError, SyntaxError) as error:
        raise UserError(
            f"The features {path} cannot be read ({error}). Give a file .npy: an array of numbers of shape L × D, as "
            f"numpy.save writes it."
        ) from error
    if array_LD.ndim != 2 or array_LD.dtype.kind != "f" or not array_LD.size:
        raise UserError(
            f"The features {path} are an array of shape {array_LD.shape} of {array_LD.dtype}. Write floating-point numbers "
            f"of shape L × D: L positions of the image, D features."
        )
    rows, columns = grid or (math.isqrt(len(array_LD)),) * 2
    if rows * columns != len(array_LD):
        raise UserError(
            f"The features {path} have L={len(array_LD)} positions, and a grid of {rows} × {columns} has {rows * columns}. "
            f"Give all images the same L, and set dataset.grid=[ROWS,COLUMNS], or dataset.grid=[1,{len(array_LD)}] for "
            f"regions without rows."
        )
    kind = np.float16 if array_LD.dtype == np.float16 else np.float32
    features: npt.NDArray[np.floating[Any]] = array_LD.T.reshape(-1, rows, columns).astype(kind)
    if shape is not None and features.shape != shape:
        raise UserError(
            f"The features {path} have L={len(array_LD)} and D={len(features)}, and others L={shape[1] * shape[2]} and "
            f"D={shape[0]}. Compute all of them with one network, from images of one size."
        )
    if not np.isfinite(features).all():
        position, feature = np.argwhere(~np.isfinite(features.reshape(len(features), -1).T))[0]
        raise UserError(
            f"The features {path} contain {array_LD[position, feature]} at position {position}, feature {feature} (counted "
            f"from 0). Compute them again, or leave the image out."
        )
    return features


def rgb(image_CHW: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return an image as RGB values of shape HW3; of features their norm at each position, as a shade of gray."""
    if image_CHW.dtype == np.uint8:
        return image_CHW.transpose(1, 2, 0)
    norm_HW = np.linalg.norm(image_CHW.astype(np.float32), axis=0)
    gray_HW = 255 * norm_HW / max(float(norm_HW.max()), 1e-9)
    return np.repeat(gray_HW.astype(np.uint8)[..., None], 3, axis=2)


def write_image(stem: Path, image_CHW: npt.NDArray[Any]) -> Path:
    """Write an image as PNG, or features as `read_features` reads them, and return the path with its suffix."""
    if image_CHW.dtype != np.uint8:
        np.save(stem.with_suffix(".npy"), image_CHW.reshape(len(image_CHW), -1).T)
        return stem.with_suffix(".npy")
    from PIL import Image

    Image.fromarray(rgb(image_CHW)).save(stem.with_suffix(".png"))
    return stem.with_suffix(".png")


def read_image(path: Path, height: int, width: int) -> npt.NDArray[np.uint8]:
    """Return an image as RGB values of shape 3HW, cropped at its center to the shape of `height` and `width` and resized.

    Raises:
        UserError: the file cannot be read, or Pillow is not installed.
    """
    if not path.is_file():
        raise UserError(f"The image {path} is not a file. Give the path of an image.")
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
    # Pillow scales the values of a PGM of more than 8 bits to 16, in the mode of 32.
    gray_16 = image.mode.startswith("I;16") or (image.mode, image.format) == ("I", "PPM")
    image = ImageOps.exif_transpose(image)
    if gray_16:
        transparent = image.info.get("transparency")
        levels_HW = np.asarray(image).astype(np.uint16)
        values_HW = levels_HW >> (tags.get(_BITS, (16,))[0] - 8)
        if tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO:  # Pillow inverts 8 bits only
            values_HW = 255 - values_HW
        image = Image.fromarray(values_HW.astype(np.uint8))
        if transparent is not None:
            image.putalpha(Image.fromarray(np.where(levels_HW == transparent, 0, 255).astype(np.uint8)))
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
