"""Texts and their references, as the metrics of texts read them.

Text is scored under two conditions whose scores are not comparable: plain text, as sacreBLEU intends, and lowercased Moses
tokens, as papers on Multi30k do (Caglayan et al. 2017, arXiv:1707.04481).
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

from seq2seq_lab.data.corpus import UNKNOWN
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics import sacrebleu_adapter
from seq2seq_lab.metrics.base import Array, Metric, digest
from seq2seq_lab.metrics.sacrebleu_adapter import Scorer
from seq2seq_lab.metrics.segmentation import SPACED, Segmentation
from seq2seq_lab.metrics.significance import clusters_of

# Moses' rules treat this as a word and UNKNOWN as punctuation, which would split it off an elided article (l').
_LETTER = "\N{CYRILLIC LETTER MULTIOCULAR O}"


class References:
    """The references of a split, and which of its pairs share a source sentence.

    Translations of one source sentence, and the responses in one dialogue, are not independent observations. They form a
    cluster, and confidence intervals and tests resample clusters.

    Args:
        lines: the reference of each pair.
        sources: the source sentence of each pair; None if all are distinct.
        multiple: score each source sentence once, against the references of all its pairs. The translation is that of the
            first pair.
        clusters: the number of each pair's cluster; None: the pairs of one source sentence are a cluster.
        segmentation: how the texts are cut into words.

    Attributes:
        pairs: the numbers of the pairs whose translations are scored.
        streams: the references as sacreBLEU takes them: the first of each scored translation, the second (None where there
            is none), and so on.
        clusters: the number of the cluster of each scored translation.
    """

    def __init__(
        self,
        lines: Sequence[str],
        sources: Sequence[str] | None = None,
        multiple: bool = False,
        clusters: Sequence[int] | None = None,
        segmentation: Segmentation = SPACED,
    ) -> None:
        self.segmentation = segmentation
        self._source_of_pair = clusters_of(range(len(lines)) if sources is None else sources)
        assert len(self._source_of_pair) == len(lines)
        groups: dict[int, list[int]] = {}
        for pair, source in enumerate(self._source_of_pair.tolist()):
            groups.setdefault(source, []).append(pair)
        self._lines, self._sources, self._multiple, self._clusters = lines, sources, multiple, clusters
        self.pairs: Sequence[int] = range(len(lines))
        self.streams: list[list[Any]] = [list(lines)]
        if multiple:
            self.pairs = [pairs[0] for pairs in groups.values()]
            rows = [[lines[pair] for pair in pairs] for pairs in groups.values()]
            self.streams = [list(stream) for stream in zip_longest(*rows)]
        cluster_of_pair = self._source_of_pair if clusters is None else np.array(clusters, dtype=np.int64)
        self.clusters = cluster_of_pair[self.pairs]
        self._tokenised: dict[str, References] = {}
        self._long: dict[Callable[[str], str], npt.NDArray[np.bool_]] = {}

    def __len__(self) -> int:
        return len(self._lines)

    @cached_property
    def examples(self) -> str:
        """Identifies the pairs and how they are scored; see `Measurement.examples`."""
        sources = [None] * len(self) if self._sources is None else self._sources
        pairs, tokenizer = digest(zip(sources, self._lines, strict=True)), self.segmentation.bleu
        how = ["multi-reference"] * self._multiple + [f"tok:{tokenizer}"] * (tokenizer != SPACED.bleu)
        return f"{pairs} ({', '.join(how)})" if how else pairs

    def scored(self, hypotheses: Sequence[str]) -> list[str]:
        """Return the translations that are scored, from one for each pair.

        Raises:
            UserError: their number is not that of the references, or there are none.
        """
        # sacreBLEU silently cuts the longer list and fails on empty ones with an IndexError.
        if len(hypotheses) != len(self):
            raise UserError(
                f"{len(hypotheses)} hypotheses for {len(self)} references cannot be scored. Give one hypothesis for each "
                f"reference, in the same order (an empty line counts)."
            )
        if not hypotheses:
            raise UserError("No sentence to score. Give at least one hypothesis and its reference.")
        return [hypotheses[pair] for pair in self.pairs]

    def sum_of_scored(self, rows: Array) -> Array:
        """Return the sums of a row for each pair, a row for each scored translation."""
        if not self._multiple:
            return rows
        sums = np.zeros((len(self.pairs), rows.shape[1]))
        np.add.at(sums, self._source_of_pair, rows)
        return sums

    def maximum_of_scored(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the greatest of the values of the pairs of each scored translation, from a value for each pair."""
        if not self._multiple:
            return values
        greatest = values[[*self.pairs]]
        np.maximum.at(greatest, self._source_of_pair, values)
        return greatest

    def padded(self) -> list[list[str]]:
        """Return the streams with the first reference where there is none, to be written to files.

        Repeated references change neither BLEU nor chrF, but TER, which divides by their mean length.
        """
        first = self.streams[0]
        return [
            [start if line is None else line for start, line in zip(first, stream, strict=True)]
            for stream in self.streams
        ]

    def of(self, index: int) -> list[str]:
        """Return the references of a scored translation."""
        return [line for stream in self.streams if (line := stream[index]) is not None]

    def long(self, tokenize: Callable[[str], str]) -> npt.NDArray[np.bool_]:
        """Return for each scored translation whether one of its references has four tokens."""
        if tokenize not in self._long:
            self._long[tokenize] = np.array(
                [
                    any(len(tokenize(line).split()) >= 4 for line in self.of(index))
                    for index in range(len(self.pairs))
                ]
            )
        return self._long[tokenize]

    def lowercased_tokenised(self, language: str) -> "References":
        """Return the references in lowercased Moses tokens of a language."""
        if language not in self._tokenised:
            lines = lowercased_tokens(self._lines, language)
            self._tokenised[language] = References(lines, self._sources, self._multiple, self._clusters)
        return self._tokenised[language]


@dataclass(frozen=True)
class TextOutputs:
    """The texts that a model produced for a split.

    Attributes:
        hypotheses: one for each pair.
        language: the code of their language; None if it is not known.
        unknown_replaced: the same texts with each unknown word replaced by a source word, if requested.
    """

    hypotheses: Sequence[str]
    references: References
    language: str | None = None
    unknown_replaced: "TextOutputs | None" = None

    @cached_property
    def scored(self) -> list[str]:
        """The hypotheses that are scored; see `References`."""
        return self.references.scored(self.hypotheses)

    @property
    def moses(self) -> bool:
        """Whether Moses has rules for the language, and its words are separated by spaces."""
        return self.language in moses_languages() and self.references.segmentation.ter == "spaces"

    @cached_property
    def lowercased_tokenised(self) -> "TextOutputs":
        """The texts in lowercased Moses tokens, if `moses` is true."""
        assert self.language is not None
        lines = lowercased_tokens(self.hypotheses, self.language)
        return TextOutputs(lines, self.references.lowercased_tokenised(self.language))

    @property
    def lines(self) -> list[list[str]]:
        """The hypotheses that are scored, and the streams of their references."""
        return [self.scored, *self.references.padded()]


class TextMetric(Metric):
    """A metric of texts, computed by sacreBLEU.

    Args:
        lowercased_tokenised: score lowercased Moses tokens, not plain text. The signature names the tokenizer.
        unknown_replaced: score `TextOutputs.unknown_replaced`.
    """

    confidence = True
    variants_shown = True
    """False: the lowercased tokens and the replaced unknown words are computed at the end only, and not shown."""

    def __init__(self, lowercased_tokenised: bool = False, unknown_replaced: bool = False) -> None:
        self.lowercased_tokenised = lowercased_tokenised
        self.unknown_replaced = unknown_replaced
        if lowercased_tokenised:
            self.name += "_lowercased_tokenised"
            self.label += " of lowercased tokens"
        if unknown_replaced:
            self.name += "_unknown_replaced"
            self.label += ", unknown replaced"
            self.compared = False
        if (lowercased_tokenised or unknown_replaced) and not self.variants_shown:
            self.when, self.shown, self.compared = "final", False, False

    @abstractmethod
    def scorer(self, references: References) -> Scorer:
        """Return sacreBLEU's scorer for these references."""

    def texts(self, outputs: TextOutputs) -> TextOutputs:
        """Return the texts that are scored."""
        if self.unknown_replaced:
            assert outputs.unknown_replaced is not None
            outputs = outputs.unknown_replaced
        return outputs.lowercased_tokenised if self.lowercased_tokenised else outputs

    def lines(self, texts: TextOutputs) -> tuple[Sequence[str], Sequence[Sequence[str | None]]]:
        """Return the hypotheses and the streams of references that sacreBLEU's scorer reads."""
        return texts.scored, texts.references.streams

    def rows(self, outputs: TextOutputs) -> Array:
        """See `Metric.rows`."""
        texts = self.texts(outputs)
        return sacrebleu_adapter.statistics(self.scorer(texts.references), *self.lines(texts))

    def signature(self, outputs: TextOutputs) -> str:
        """Return sacreBLEU's signature."""
        references = self.texts(outputs).references
        signature = sacrebleu_adapter.signature(self.scorer(references), references.streams)
        if not self.lowercased_tokenised:
            return signature
        import sacremoses  # type: ignore[import-untyped]

        return f"{signature}|moses:sacremoses-{sacremoses.__version__}-{outputs.language}"

    def unavailable(self, outputs: TextOutputs) -> str | None:
        """See `Metric.unavailable`."""
        if self.unknown_replaced and outputs.unknown_replaced is None:
            return "unknown words are not replaced"
        if self.lowercased_tokenised and not outputs.moses:
            return f"sacremoses has no rules for words of target language {outputs.language}"
        return None


def lowercased_tokens(lines: Sequence[str], language: str) -> list[str]:
    """Return lines of Moses tokens, separated by spaces, special characters escaped (`&apos;`).

    In the order of Multi30k's own `lc.norm.tok` files: lowercased, punctuation normalized, tokenized. `UNKNOWN` is tokenized
    as a word.

    Args:
        language: one of `moses_languages()`.
    """
    assert language in moses_languages(), language  # Moses would treat another language as English
    import sacremoses

    normalize = sacremoses.MosesPunctNormalizer(language).normalize
    tokenize = sacremoses.MosesTokenizer(language).tokenize
    return [
        tokenize(normalize(line.lower().replace(UNKNOWN, _LETTER)), return_str=True).replace(_LETTER, UNKNOWN)
        for line in lines
    ]


@cache
def moses_languages() -> frozenset[str]:
    """Return the codes of the languages that Moses has rules for."""
    from sacremoses.corpus import NonbreakingPrefixes  # type: ignore[import-untyped]

    return frozenset(NonbreakingPrefixes().available_langs.values())


def named_groups(names: Iterable[Iterable[str]]) -> dict[str, list[int]]:
    """Return the numbers of the examples with each name, such as a phenomenon, in the order of the names.

    Args:
        names: of each example.
    """
    groups: dict[str, list[int]] = {}
    for index, own in enumerate(names):
        for name in own:
            groups.setdefault(name, []).append(index)
    return dict(sorted(groups.items()))


def length_groups(lengths: Sequence[int], bounds: Sequence[int]) -> Mapping[str, list[int]]:
    """Return the numbers of the examples in ranges of length; n bounds make n + 1 ranges.

    Args:
        bounds: the greatest length of each range but the last, in rising order: (6, 18) makes ≤6, 7–18 and >18.
    """
    groups = {}
    for low, high in zip([0, *(bound + 1 for bound in bounds)], [*bounds, None], strict=True):
        label = f"≤{high}" if low == 0 else f"{low}–{high}"
        if high is None:
            label = f">{low - 1}" if low else "all"
        groups[label] = [
            i for i, length in enumerate(lengths) if low <= length and (high is None or length <= high)
        ]
    return groups


def ngrams(tokens: Sequence[str], order: int) -> Iterator[tuple[str, ...]]:
    """Yield the n-grams of a text, in their order."""
    return zip(*(tokens[start:] for start in range(order)), strict=False)
