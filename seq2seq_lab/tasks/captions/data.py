"""Captioned images in batches, and their evaluation splits."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from seq2seq_lab.data.batch import BatchOfTargets
from seq2seq_lab.data.batching import Index
from seq2seq_lab.data.captions import CaptionedImages
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.metrics.texts import References
from seq2seq_lab.runtime.device import on_device
from seq2seq_lab.tasks.splits import TextSplit


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionBatch(BatchOfTargets):
    """B images with captions; a source length is that of the longest training caption, with `<sos>` and `<eos>`.

    Attributes:
        image_BCHW: RGB values, uint8; or features, see `CaptionedImages`.
    """

    image_BCHW: Tensor


@dataclass(frozen=True, slots=True)
class CaptionExamples:
    """The tokenized pairs of a split.

    Attributes:
        image_ICHW: the I different images, or their features; see `CaptionedImages`.
        image_N: the index of the image of each pair.
        longest: the number of tokens of the longest training caption.
    """

    image_ICHW: Tensor
    image_N: Tensor
    captions: Ragged
    longest: int

    @property
    def lengths(self) -> Tensor:
        """The same length for each image: int64, N."""
        return torch.full((len(self.captions),), self.longest)

    @property
    def units(self) -> Tensor:
        """The number of target tokens to predict of each pair: int64, N."""
        return self.captions.lengths - 1

    def select(self, index: Tensor) -> "CaptionExamples":
        """Return some pairs, in the order of the index."""
        return replace(self, image_N=self.image_N[index], captions=self.captions.select(index))


class CaptionBatches:
    """Creates the batches of a split, whose images and captions are in the memory of the device."""

    def __init__(self, examples: CaptionExamples, device: torch.device) -> None:
        self.device = device
        self.longest = examples.longest
        self._units = examples.units.numpy()
        self._captions = examples.captions.to(device)
        self._image_ICHW, self._image_N = examples.image_ICHW.to(device), examples.image_N.to(device)

    def __call__(self, index: Index) -> CaptionBatch:
        """Return the batch of the given pairs, in their order."""
        index_B, units = on_device(index, self.device), self._units[index]
        return CaptionBatch(
            index_B=index_B,
            image_BCHW=self._image_ICHW[self._image_N[index_B]],
            source_lengths=(self.longest,) * len(index),
            target_BU=self._captions.padded(index_B, int(units.max()) + 1),
            target_tokens=int(units.sum()),
        )


@dataclass(frozen=True)
class CaptionSplit(TextSplit[CaptionedImages, CaptionExamples]):
    """A split of captioned images."""

    def references(self, multiple: bool) -> References:
        """Return the captions as references.

        Args:
            multiple: score each image once; see `References`.
        """
        return References(self.text.captions, self.text.names, multiple, segmentation=self.segmentation)


def region_shares(
    pairs: CaptionedImages, index: int, grid: tuple[int, int]
) -> dict[int, "np.ndarray[tuple[int], np.dtype[np.float32]]"]:
    """Return the share of each position of the feature map that is in the region of a word, by the index of the word."""
    assert pairs.regions is not None
    rows, columns = grid
    height, width = pairs.images.shape[2:]
    shares = {}
    for word, (left, top, right, bottom) in pairs.regions[index].items():
        down = _overlap(rows, height, top, bottom)
        across = _overlap(columns, width, left, right)
        shares[word] = np.outer(down, across).ravel()
    return shares


def _overlap(cells: int, pixels: int, start: int, end: int) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
    """Return the share of each of the equal cells of a side that is between two pixels."""
    edges = np.linspace(0, pixels, cells + 1)
    inside = np.minimum(edges[1:], end) - np.maximum(edges[:-1], start)
    return (inside.clip(0) / (pixels / cells)).astype(np.float32)
