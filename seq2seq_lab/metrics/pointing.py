"""Whether attention to an image is in the region that a word names."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

from seq2seq_lab.metrics.base import Array, Share


class Pointing(Protocol):
    """Outputs with attention to regions."""

    @property
    def pointing(self) -> Array | None:
        """A row (hits, attention in the region, share of the image that the region covers, words) for each example.

        The columns are sums over the content words of the reference, which the model reads under teacher forcing. None
        without attention or without gold regions.
        """
        ...


class PointingMetric(Share):
    """The mean of a column of `Pointing.pointing` over the content words."""

    format, confidence = ".3f", False
    column: int

    def unavailable(self, outputs: Pointing) -> str | None:
        """See `Metric.unavailable`."""
        return "it needs attention and gold regions" if outputs.pointing is None else None

    def rows(self, outputs: Pointing) -> Array:
        """See `Metric.rows`."""
        assert outputs.pointing is not None
        return outputs.pointing[:, [self.column, 3]]


class PointingGame(PointingMetric):
    """The share of content words whose highest attention is in their region (Zhang 2016, arXiv:1608.00507)."""

    name, label, column = "pointing_game", "pointing game", 0


class AttentionInRegion(PointingMetric):
    """The mean attention in a content word's region."""

    name, label, column = "attention_in_region", "attention in region", 1
    bounds = ("region_share",)


class RegionShare(PointingMetric):
    """The mean share of the image that a content word's region covers, which uniform attention would reach."""

    name, label, column = "region_share", "share of the region", 2
    shown, compared = False, False


def pointing_counts(
    weights_WS: Mapping[int, npt.NDArray[np.floating]], regions_S: Mapping[int, npt.NDArray[np.float32]]
) -> tuple[float, float, float, int]:
    """Return the row of an example; see `Pointing`.

    Args:
        weights_WS: the attention of words to the positions of the image, by the index of the word.
        regions_S: the share of each position that is in the word's region, by the index of the word.
    """
    words = regions_S.keys() & weights_WS.keys()
    hits = sum(float(regions_S[word][weights_WS[word].argmax()] >= 0.5) for word in words)
    inside = sum(float((weights_WS[word] * regions_S[word]).sum()) for word in words)
    share = sum(float(regions_S[word].mean()) for word in words)
    return hits, inside, share, len(words)
