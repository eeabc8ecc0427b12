"""Evaluation of a masked language model on a split."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from seq2seq_lab import plots
from seq2seq_lab.data.batching import Index, plan_evaluation
from seq2seq_lab.data.corpus import CONTENT_CLASSES
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.sentences import Sentences
from seq2seq_lab.metrics.base import Array, digest
from seq2seq_lab.models.masked_language_model import MaskedLanguageModel
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.device import to_host
from seq2seq_lab.runtime.memory import evaluation_context
from seq2seq_lab.tasks.evaluation import SplitEvaluator
from seq2seq_lab.tasks.loaded import Prediction
from seq2seq_lab.tasks.masked_language_model.data import MaskedBatch, MaskedBatches, MaskedTokens
from seq2seq_lab.tasks.splits import TextSplit
from seq2seq_lab.tasks.tagging.data import IGNORED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = 0.02  # words that no mask has with at least this probability are left out of pictures
PROBABILITY = "probability of the word"

MaskedSplit = TextSplit[Sentences, MaskedTokens]

FUNCTION_CLASSES = frozenset(("ADP", "AUX", "CCONJ", "DET", "INTJ", "PART", "PRON", "SCONJ", "SYM", "X"))


def examples_of(split: MaskedSplit) -> str:
    """Identify the texts and their masked words; see `Measurement.examples`."""
    masked = [[part.tolist() for part in split.tokens.of_words(i)] for i in range(len(split.text))]
    return digest(zip(split.text.lines, masked, strict=True))


def are_parts_of_speech(classes: Collection[str]) -> bool:
    """Return whether tags begin with a part of speech of Universal Dependencies, up to the first dot."""
    return {name.split(".")[0] for name in classes} <= CONTENT_CLASSES | FUNCTION_CLASSES | {"PUNCT"}


class MaskedText(NamedTuple):
    """The predictions of the K masked tokens of a text.

    Attributes:
        log_probs_K: the log-probability of each masked token in nats.
        tokens_KC: the C most probable tokens in the place of each, the most probable first.
        probabilities_KC: their probabilities.
        next_2: the log-probabilities that the second sentence is another one, and that it is the next one; empty without.
    """

    log_probs_K: Array
    tokens_KC: npt.NDArray[np.int64]
    probabilities_KC: Array
    next_2: Array


@torch.no_grad()
def predict_masked(
    model: MaskedLanguageModel, batch: MaskedBatch, candidates: int, compute: Compute
) -> list[MaskedText]:
    """Return the predictions of each text of a batch."""
    with evaluation_context(batch, compute.precision, compute.device):
        logits_NV, next_B2 = model(batch)
    log_probs_NV = logits_NV.float().log_softmax(-1)
    values_NC, tokens_NC = log_probs_NV.topk(min(candidates, log_probs_NV.shape[1]))
    of_label_N = log_probs_NV.gather(1, batch.label_N[:, None])[:, 0]
    ends = np.cumsum(batch.counts)[:-1]
    # Read on the host, where the metrics are computed.
    rows = [np.split(to_host(one), ends) for one in (of_label_N, tokens_NC, values_NC.exp())]
    next_log_probs = [np.empty(0)] * len(batch.counts)
    if next_B2 is not None:
        next_log_probs = [*to_host(next_B2.float().log_softmax(-1))]
    return [MaskedText(*row) for row in zip(*rows, next_log_probs, strict=True)]


@dataclass(frozen=True)
class TaggedTypes:
    """The tags of the types of a vocabulary, and those of the tokens of a split.

    Attributes:
        classes: the names of the tags: the part of speech, for some with a gender and a number, such as `ADJ.f.pl`.
        has_tag_VC: which tags each type has in the training split.
        tags: the tag of the word of each token of the split; `IGNORED` after the first token of a word.
    """

    classes: list[str]
    has_tag_VC: npt.NDArray[np.bool_]
    tags: Ragged


@dataclass(frozen=True)
class MaskedOutputs:
    """The inputs of the metrics; see `metrics.masked_language_model` and `Losses`."""

    labels: list[npt.NDArray[np.int64]]
    predicted: list[npt.NDArray[np.int64]]
    losses: Mapping[str, Array]
    texts: Sequence[MaskedText] = ()
    content: list[npt.NDArray[np.bool_]] | None = None
    function: list[npt.NDArray[np.bool_]] | None = None
    agreeing: list[npt.NDArray[np.bool_]] | None = None
    agrees: list[npt.NDArray[np.bool_]] | None = None
    follows: npt.NDArray[np.int64] | None = None
    predicted_follows: npt.NDArray[np.int64] | None = None

    @classmethod
    def of(
        cls,
        split: MaskedSplit,
        types: TaggedTypes | None,
        predicted: list[npt.NDArray[np.int64]],
        log_probs: Sequence[Array],
        texts: Sequence[MaskedText] = (),
    ) -> "MaskedOutputs":
        """Return the outputs for predicted tokens and the log-probabilities of the masked ones.

        Args:
            texts: the predictions of a model; empty for a baseline.
        """
        chosen = [split.tokens.of_words(i) for i in range(len(split.text))]
        losses = {"masked": np.array([[-row.sum(), len(row)] for row in log_probs], np.float64)}
        found: dict[str, Any] = {}
        if split.tokens.follows is not None and texts:
            follows_N = found["follows"] = split.tokens.follows.numpy()
            next_N2 = np.stack([one.next_2 for one in texts]).astype(np.float64)
            found["predicted_follows"] = next_N2.argmax(1)
            of_label_N = next_N2[np.arange(len(follows_N)), follows_N]
            losses["next_sentence"] = np.column_stack([-of_label_N, np.ones(len(follows_N))])
        if types is not None:
            found |= _kinds(types, [positions for positions, _ in chosen], predicted)
        return cls([labels for _, labels in chosen], predicted, losses, texts, **found)


def _kinds(
    types: TaggedTypes, chosen: Sequence[npt.NDArray[np.int64]], predicted: Sequence[npt.NDArray[np.int64]]
) -> dict[str, list[npt.NDArray[np.bool_]]]:
    """Return which masked tokens are content words, function words, agree, and are replaced by a word that agrees too."""
    content_C = np.array([name.split(".")[0] in CONTENT_CLASSES for name in types.classes])
    function_C = np.array([name.split(".")[0] in FUNCTION_CLASSES for name in types.classes])
    agreeing_C = np.array(["." in name for name in types.classes])
    tags, starts = types.tags.tokens.numpy(), types.tags.offsets.tolist()
    kinds: dict[str, list[npt.NDArray[np.bool_]]] = {}
    for start, positions, found in zip(starts[:-1], chosen, predicted, strict=True):
        tag_K = tags[start + positions]
        has_tag_K = tag_K != IGNORED
        tag_K = np.where(has_tag_K, tag_K, 0)
        for name, is_kind_C in (("content", content_C), ("function", function_C), ("agreeing", agreeing_C)):
            kinds.setdefault(name, []).append(is_kind_C[tag_K] & has_tag_K)
        kinds.setdefault("agrees", []).append(types.has_tag_VC[found, tag_K] & has_tag_K)
    return kinds


class MaskedEvaluator(SplitEvaluator[MaskedText]):
    """Evaluates a model on a split, whose masks are fixed.

    Args:
        types: the tags of the words; None if they are not known.
        candidates: the number of the most probable tokens that a result keeps.
        batch_size: texts of a batch.
        measured: see `SplitEvaluator`.
    """

    split: MaskedSplit

    def __init__(
        self,
        model: MaskedLanguageModel,
        split: MaskedSplit,
        types: TaggedTypes | None,
        compute: Compute,
        *,
        candidates: int,
        batch_size: int,
        **measured: Any,
    ) -> None:
        plan = plan_evaluation(split.tokens, batch_size)
        super().__init__(model, split, compute, plan=plan, examples=examples_of(split), **measured)
        self.types, self.candidates = types, candidates
        self._batches = MaskedBatches(split.tokens, compute.device)

    def score(self, index: Index, final: bool) -> list[MaskedText]:
        """See `SplitEvaluator.score`."""
        return predict_masked(self.model, self._batches(index), self.candidates, self.compute)

    def outputs(self, results: Sequence[MaskedText]) -> MaskedOutputs:
        """See `SplitEvaluator.outputs`."""
        predicted = [one.tokens_KC[:, 0] for one in results]
        return MaskedOutputs.of(
            self.split, self.types, predicted, [one.log_probs_K for one in results], results
        )


def likely_words(words: Sequence[str], probabilities: Sequence[float]) -> dict[str, float]:
    """Return the probability of each word, the most probable first. Tokens with the same text are summed."""
    sums = dict[str, float]()
    for word, value in zip(words, probabilities, strict=True):
        sums[word] = sums.get(word, 0.0) + value
    return dict(sorted(sums.items(), key=lambda pair: -pair[1]))


def probable_words(candidates: Sequence[Mapping[str, float]]) -> tuple[list[str], npt.NDArray[np.float64]]:
    """Return the words that some mask has with a probability of `SHOWN`, and their probabilities: words by masks.

    Args:
        candidates: for each mask the probabilities of words, the most probable first.
    """
    rows: dict[str, npt.NDArray[np.float64]] = {}
    for k, probabilities in enumerate(candidates):
        for rank, (word, value) in enumerate(probabilities.items()):
            if value >= SHOWN or rank == 0:
                rows.setdefault(word, np.zeros(len(candidates)))[k] = value
    return [*rows], np.array([*rows.values()])


@dataclass(frozen=True, kw_only=True)
class MaskedPrediction(Prediction):
    """A text with words in the place of its masks; `score` is the log-probability of these words in nats.

    Each word is predicted from the text alone, without the words in the place of other masks.

    Attributes:
        words: the words.
        candidates: for each mask the most probable words with their probabilities, the most probable first.
        follows: the probability that the second sentence is the next one; None if the model does not predict it.
    """

    words: list[str] = field(repr=False)
    candidates: list[dict[str, float]] = field(repr=False)
    follows: float | None = None

    def columns(self) -> list[str]:
        """Return the text, the most probable words for each mask, and the probability of the next sentence."""
        of_masks = [
            ", ".join(f"{word} {value:.2f}" for word, value in one.items()) for one in self.candidates
        ]
        return [self.text, *of_masks, *([] if self.follows is None else [f"next {self.follows:.2f}"])]

    def figure(self, light: bool = False, ax: "Axes | None" = None) -> "Figure":
        """Return the probabilities of the words for each mask as a figure; see `Prediction.figure`."""
        words, weights = probable_words(self.candidates)
        columns = [f"{number} {word}" for number, word in enumerate(self.words, start=1)]
        return plots.draw_attention(
            weights, columns, words, self.source, light=light, scale=PROBABILITY, axes=ax
        )
