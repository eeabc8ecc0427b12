"""The validation and test splits of a task whose examples are texts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor

from seq2seq_lab.metrics.segmentation import SPACED, Segmentation


def dotted(prefix: str) -> str:
    """Return the prefix of a split as it is in the names of files."""
    return prefix.replace("/", ".")


class Text(Protocol):
    """The examples of a split as text."""

    def __len__(self) -> int: ...

    def first(self, count: int) -> Self:
        """Return the first examples."""
        ...


class TokenizedExamples(Protocol):
    """The tokenized examples of a split; see also `data.batching.ExampleSizes`."""

    def select(self, index: Tensor) -> Self:
        """Return some examples, in the order of the index."""
        ...


AnyText = TypeVar("AnyText", bound=Text)
AnyTokens = TypeVar("AnyTokens", bound=TokenizedExamples)
AnySplit = TypeVar("AnySplit", bound="TextSplit[Any, Any]")


@dataclass(frozen=True)
class TextSplit(Generic[AnyText, AnyTokens]):
    """A validation or test split.

    Attributes:
        prefix: prefix of its metrics: `val`, `test` or `test/NAME`.
        text: the examples as text.
        tokens: the tokenized examples.
        language: the code of the language of the outputs; None if it is not known.
        segmentation: how the references are cut into words.
    """

    prefix: str
    text: AnyText
    tokens: AnyTokens
    language: str | None = None
    segmentation: Segmentation = SPACED

    def first(self, count: int) -> Self:
        """Return the split with its first examples only."""
        index = torch.arange(min(count, len(self.text)))
        return replace(self, text=self.text.first(count), tokens=self.tokens.select(index))


def evaluation_splits(
    kind: type[AnySplit],
    texts: Mapping[str, Any],
    tokens: Mapping[str, Any],
    limit: int | None = None,
    **about: Any,
) -> list[AnySplit]:
    """Return the splits, in the order of `texts`.

    Args:
        kind: the type of the splits.
        texts: the text by the name of the split, `validation` or that of a test set.
        tokens: the tokenized examples by the same names.
        limit: the number of examples of each split; None for all.
        about: other attributes of the splits.
    """
    prefixes = {"validation": "val"} | prefixes_of_tests(name for name in texts if name != "validation")
    splits = [kind(prefixes[name], text, tokens[name], **about) for name, text in texts.items()]
    return splits if limit is None else [split.first(limit) for split in splits]


def spread(count: int, total: int) -> list[int]:
    """Return `count` indices below `total`, or all of them, at equal distances: a data set may be sorted by class."""
    return [i * total // count for i in range(count)] if count < total else [*range(total)]


def prefixes_of_tests(names: Iterable[str]) -> dict[str, str]:
    """Return the prefix of the metrics of each test set: `test` for the first one, `test/NAME` for the others.

    A prefix `test_` of a name is left out, unless another test set has the shorter name.
    """
    names, prefixes = [*names], dict[str, str]()
    for name in names:
        short = name.removeprefix("test_")
        prefixes[name] = f"test/{name if short in names else short}" if prefixes else "test"
    return prefixes
