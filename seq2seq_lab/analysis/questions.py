"""One example as a function of the vectors of its source, which attributions explain."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from seq2seq_lab.analysis.forced import Forced
from seq2seq_lab.data.tokenizers import PAD, UNK, Tokenizer
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.attention import Units
from seq2seq_lab.models.classifier import Classifier
from seq2seq_lab.models.encoders.base import EncoderOutputs
from seq2seq_lab.models.language_model import LanguageModel
from seq2seq_lab.models.seq2seq import Seq2Seq, log_softmax
from seq2seq_lab.models.source import Source
from seq2seq_lab.models.weight_change import WeightChange


@dataclass(frozen=True, kw_only=True)
class Question(ABC):
    """An example with S source positions and T outputs.

    Attributes:
        index: the index of the example.
        line, output: the source and the output as text.
        source: the units of the source positions, whose scores belong together.
        source_names, target_names: the names of the units and of the outputs.
        frame: the units that are never deleted: `<sos>` and `<eos>`.
        vectors_SE: the vectors of the source positions.
        unknown_E: the vector of an unknown word; None if there is none.
        inputs_TE: the vectors of the outputs that the model reads before each output; None if it reads none.
        outputs_T: the ids of the outputs.
        has: what its methods can use: "attention" to the source positions, "values" of its encoder outputs, an "unknown"
            word, and whether positions can be "removed".
        names_of: returns the names of ids of outputs.
        id_of: returns the id of an output by its name; None if there is none.
    """

    index: int
    line: str
    output: str
    source: Units
    source_names: list[str]
    target_names: list[str]
    frame: frozenset[int]
    vectors_SE: Tensor
    unknown_E: Tensor | None
    inputs_TE: Tensor | None
    outputs_T: Tensor
    has: frozenset[str]
    names_of: Callable[[list[int]], list[str]]
    id_of: Callable[[str], int | None]

    @property
    def steps(self) -> int:
        """T."""
        return len(self.outputs_T)

    @property
    def inner(self) -> list[int]:
        """The units outside the frame."""
        return [unit for unit in range(len(self.source.is_word)) if unit not in self.frame]

    @property
    def read_TU(self) -> npt.NDArray[np.bool_]:
        """Whether the model has read each unit of the source before each output."""
        return np.ones((self.steps, len(self.source.is_word)), np.bool_)

    @property
    def only_copied(self) -> int:
        """The number of outputs that the model can only copy from the source."""
        return 0

    @abstractmethod
    def log_probs(
        self,
        vectors_NSE: Tensor,
        inputs_NTE: Tensor | None = None,
        steps: int | None = None,
        removed_NS: Tensor | None = None,
    ) -> Tensor:
        """Return log_probs_NTV of the outputs for N versions of the source vectors, and of the vectors of the inputs.

        Args:
            steps: compute the first steps only.
            removed_NS: the positions whose tokens the model may not copy.
        """

    def attention(self) -> tuple[Tensor, Tensor]:
        """Return weights_TS, and the norm of what each position contributes: norms_S; needs "attention" in `has`."""
        raise NotImplementedError

    def without_tokens(self, removed: Sequence[Sequence[int]], steps: int | None = None) -> Tensor:
        """Return log_probs_NTV for the source without some of its positions, once for each list of them.

        Args:
            steps: compute the first steps only.

        Raises:
            UserError: nothing can be removed from the source.
        """
        raise UserError("Nothing can be removed from this source. Delete by zeros instead: --delete zero.")

    def with_values_zeroed(self, zeroed_NS: Tensor) -> Tensor:
        """Return log_probs_NTV if the encoder outputs at some positions are 0 and all attention weights are kept.

        The tokens at these positions cannot be copied. It needs "values" in `has`.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class DecodedQuestion(Question):
    """An example of a model with an encoder and a decoder.

    Attributes:
        model: in evaluation mode.
        forced: the examples.
        batch: the example alone.
        spans: the characters of the source units outside the frame; empty if they are not text.
    """

    model: Seq2Seq
    forced: Forced
    batch: Any
    spans: Sequence[tuple[int, int]] = ()

    def copies(self, count: int) -> Any:
        """Return a batch of `count` times the example."""
        return self.forced.batch(np.full(count, self.index))

    def start(self, batch: Any, vectors_NSE: Tensor) -> tuple[Any, Source]:
        """Return the decoder's first state and the source for these vectors."""
        return self.model.start(batch, vectors_NSE)

    @property
    def only_copied(self) -> int:
        return int((self.outputs_T >= len(self.model.target_embedding.weight)).sum())

    def log_probs(
        self,
        vectors_NSE: Tensor,
        inputs_NTE: Tensor | None = None,
        steps: int | None = None,
        removed_NS: Tensor | None = None,
    ) -> Tensor:
        batch = self.copies(len(vectors_NSE))
        state, source = self.start(batch, vectors_NSE)
        if removed_NS is not None:
            source = without_copies(source, removed_NS)
        if inputs_NTE is None:
            assert self.inputs_TE is not None
            inputs_NTE = self.inputs_TE.expand(len(vectors_NSE), -1, -1)
        return self.read(batch, state, source, steps, embedded_inputs_BTE=inputs_NTE[:, :steps])

    def read(
        self, batch: Any, state: Any, source: Source, steps: int | None = None, **options: Any
    ) -> Tensor:
        """Return log_probs_NTV of the outputs of a batch; `options` are those of `Seq2Seq.unroll`."""
        logits_NTV, _ = self.model.unroll(batch.inputs_BT[:, :steps], state, source, False, **options)
        return log_softmax(logits_NTV)

    def attention(self) -> tuple[Tensor, Tensor]:
        state, source = self.model.start(self.batch)
        _, weights_1TS = self.model.unroll(self.batch.inputs_BT, state, source, True)
        assert weights_1TS is not None
        return weights_1TS[0].float(), source.encoder_outputs_BSM[0].float().norm(dim=-1)

    def without_tokens(self, removed: Sequence[Sequence[int]], steps: int | None = None) -> Tensor:
        if self.forced.without is None:
            return super().without_tokens(removed, steps)
        ids = self.batch.source_BS[0].tolist()
        last = len(ids) - 1
        rows = [
            [token for position, token in enumerate(ids) if 0 < position < last and position not in positions]
            for positions in map(set, removed)
        ]
        batch = self.forced.without(rows, self.index)
        return self.read(batch, *self.model.start(batch), steps)

    def with_values_zeroed(self, zeroed_NS: Tensor) -> Tensor:
        kept: list[Tensor] = []
        state, source = self.model.start(self.batch)

        def record(weights_NTS: Tensor, step: int) -> Tensor:
            kept.append(weights_NTS)
            return weights_NTS

        self.model.unroll(self.batch.inputs_BT, state, source, False, change=WeightChange(record))
        batch, replayed = self.copies(len(zeroed_NS)), iter(kept)
        state, source = self.model.start(batch)
        outputs_NSM = source.encoder_outputs_BSM.masked_fill(zeroed_NS[..., None], 0)
        source = without_copies(source, zeroed_NS)._replace(
            encoder_outputs_BSM=outputs_NSM, keys_BSK=self.model.decoder.project(outputs_NSM)
        )
        change = WeightChange(lambda weights_NTS, step: next(replayed).expand_as(weights_NTS))
        return self.read(batch, state, source, change=change)


class ImageQuestion(DecodedQuestion):
    """An image with a caption; the vectors are the encoder outputs of its regions."""

    def start(self, batch: Any, vectors_NSE: Tensor) -> tuple[Any, Source]:
        encoded = self.model.encode(batch)
        source = Source.encoded(encoded._replace(outputs_BSM=vectors_NSE), self.model.decoder.project)
        return self.model.decoder.start(source), source


@dataclass(frozen=True, kw_only=True)
class LanguageQuestion(Question):
    """A sentence of a language model; the source is the words before each word."""

    model: LanguageModel
    inputs_1T: Tensor

    @property
    def read_TU(self) -> npt.NDArray[np.bool_]:
        first_U = np.unique(self.source.of_token, return_index=True)[1]
        found_TU: npt.NDArray[np.bool_] = first_U <= np.arange(self.steps)[:, None]
        return found_TU

    def log_probs(
        self,
        vectors_NSE: Tensor,
        inputs_NTE: Tensor | None = None,
        steps: int | None = None,
        removed_NS: Tensor | None = None,
    ) -> Tensor:
        inputs_NT = self.inputs_1T.expand(len(vectors_NSE), -1)[:, :steps]
        logits_NTV, _ = self.model(inputs_NT, embedded_BTE=vectors_NSE[:, :steps])
        return log_softmax(logits_NTV)


@dataclass(frozen=True, kw_only=True)
class ClassQuestion(Question):
    """A text with its most probable class."""

    model: Classifier
    batch: Any

    def log_probs(
        self,
        vectors_NSE: Tensor,
        inputs_NTE: Tensor | None = None,
        steps: int | None = None,
        removed_NS: Tensor | None = None,
    ) -> Tensor:
        logits_NC = self.model.classify(vectors_NSE, self.batch.source_lengths * len(vectors_NSE)).logits_BC
        return log_softmax(logits_NC)[:, None]

    def attention(self) -> tuple[Tensor, Tensor]:
        weights_1S = self.model(self.batch).weights_BS
        assert weights_1S is not None
        vectors_1SE, lengths = self.vectors_SE[None], self.batch.source_lengths
        if self.model.pooling.gates(vectors_1SE, lengths) is None:
            weighted_SE = self.model.encoder(vectors_1SE, lengths).outputs_BSM[0]
        else:
            weighted_SE = self.vectors_SE
        return weights_1S.float(), weighted_SE.float().norm(dim=-1)


def ask(model: Any, forced: Forced, index: int) -> DecodedQuestion:
    """Return the question of one pair of texts.

    Raises:
        UserError: the model is an ensemble, or its source has no token embeddings.
    """
    if not isinstance(model, Seq2Seq) or forced.source_tokenizer is None:
        raise UserError("Attributions need one run of translation or dialogue, with text as its source.")
    batch = forced.batch(np.array([index]))
    line, output = forced.sources[index], forced.targets[index]
    token_spans, tokenizer = forced.source_tokenizer.spans(line), forced.tokenizer.for_source(line)
    source = source_units(line, token_spans, 1)
    spans = joined_spans(source.of_token[1:-1], token_spans)
    with torch.no_grad():
        encoded = model.encode(batch)
        attends = model.attends and encoded.outputs_BSM.shape[1] == batch.source_BS.shape[1]
        return DecodedQuestion(
            index=index,
            line=line,
            output=output,
            source=source,
            source_names=["<sos>", *(line[start:end] for start, end in spans), "<eos>"],
            target_names=output_names(tokenizer, batch),
            frame=frozenset((0, len(source.is_word) - 1)),
            vectors_SE=model.embed_source(batch.source_BS)[0],
            unknown_E=model.embed_source(torch.full_like(batch.source_BS[:, :1], UNK))[0, 0],
            inputs_TE=model.embed_target(batch.inputs_BT)[0],
            outputs_T=batch.outputs_BT[0],
            has=frozenset(("unknown", "removed", *(("attention", "values") if attends else ()))),
            names_of=tokenizer.tokens,
            id_of=partial(token_id, tokenizer),
            model=model,
            forced=forced,
            batch=batch,
            spans=spans,
        )


def ask_image(model: Seq2Seq, forced: Forced, index: int) -> ImageQuestion:
    """Return the question of one image with its caption."""
    batch = forced.batch(np.array([index]))
    with torch.no_grad():
        encoded: EncoderOutputs = model.encode(batch)
        regions = encoded.outputs_BSM.shape[1]
        rows, columns = encoded.grid or (1, regions)
        return ImageQuestion(
            index=index,
            line=forced.sources[index],
            output=forced.targets[index],
            source=Units(np.arange(regions), np.ones(regions, np.bool_)),
            source_names=[f"{row}, {column}" for row in range(rows) for column in range(columns)],
            target_names=output_names(forced.tokenizer, batch),
            frame=frozenset(),
            vectors_SE=encoded.outputs_BSM[0],
            unknown_E=None,
            inputs_TE=model.embed_target(batch.inputs_BT)[0],
            outputs_T=batch.outputs_BT[0],
            has=frozenset(("attention", "values") if model.attends else ()),
            names_of=forced.tokenizer.tokens,
            id_of=partial(token_id, forced.tokenizer),
            model=model,
            forced=forced,
            batch=batch,
        )


def ask_sentence(model: LanguageModel, forced: Forced, index: int) -> LanguageQuestion:
    """Return the question of one sentence of a language model."""
    batch, line = forced.batch(np.array([index])), forced.targets[index]
    spans = forced.tokenizer.spans(line)
    units = source_units(line, spans, 1)
    of_token = units.of_token[:-1]  # `<eos>` is not read
    texts = [line[start:end] for start, end in joined_spans(of_token[1:], spans)]
    with torch.no_grad():
        table = model.target_embedding
        return LanguageQuestion(
            index=index,
            line=line,
            output=line,
            source=Units(of_token, units.is_word[:-1]),
            source_names=["<sos>", *texts],
            target_names=output_names(forced.tokenizer, batch),
            frame=frozenset((0,)),
            vectors_SE=table(batch.inputs_BT)[0],
            unknown_E=table(torch.full_like(batch.inputs_BT[:, :1], UNK))[0, 0],
            inputs_TE=None,
            outputs_T=batch.outputs_BT[0],
            has=frozenset(("unknown",)),
            names_of=forced.tokenizer.tokens,
            id_of=partial(token_id, forced.tokenizer),
            model=model,
            inputs_1T=batch.inputs_BT,
        )


def ask_class(
    model: Classifier,
    batch: Any,
    index: int,
    *,
    line: str,
    spans: Sequence[tuple[int, int]],
    classes: Sequence[str],
) -> ClassQuestion:
    """Return the question of one text with its most probable class.

    Args:
        batch: the text alone.
        spans: the characters of its tokens.
        classes: the names of the classes.
    """
    units = source_units(line, spans, 0)
    of_token = units.of_token[:-1]  # a text has no frame
    with torch.no_grad():
        found = model(batch)
        best = found.logits_BC.argmax(1)
        return ClassQuestion(
            index=index,
            line=line,
            output=classes[int(best)],
            source=Units(of_token, units.is_word[:-1]),
            source_names=[line[start:end] for start, end in joined_spans(of_token, spans)],
            target_names=[classes[int(best)]],
            frame=frozenset(),
            vectors_SE=model.embed(batch.source_BS)[0],
            unknown_E=model.embed(torch.full_like(batch.source_BS[:, :1], UNK))[0, 0],
            inputs_TE=None,
            outputs_T=best,
            has=frozenset(("unknown", *(() if found.weights_BS is None else ("attention",)))),
            names_of=lambda ids: [classes[i] for i in ids],
            id_of=dict(zip(classes, range(len(classes)), strict=True)).get,
            model=model,
            batch=batch,
        )


def source_units(line: str, spans: Sequence[tuple[int, int]], before: int) -> Units:
    """Return the units of a source: words and punctuation marks; of a text of one word, its tokens. See `Units.of`."""
    units = Units.of(line, spans, before)
    return Units.of(line, spans, before, by_token=True) if len(units.is_word) == before + 2 else units


def without_copies(source: Source, removed_NS: Tensor) -> Source:
    """Return a source whose tokens at some positions cannot be copied: the padding token is copied instead."""
    if source.tokens_BS is None:
        return source
    return source._replace(tokens_BS=source.tokens_BS.masked_fill(removed_NS, PAD))


def token_id(tokenizer: Tokenizer, word: str) -> int | None:
    """Return the id of a word that is one token of the vocabulary; None for any other text."""
    ids = tokenizer.encode([word])[0]
    return ids[0] if len(ids) == 1 and ids[0] != UNK else None


def output_names(tokenizer: Tokenizer, batch: Any) -> list[str]:
    """Return the names of the outputs of a batch of one example, `<eos>` last."""
    return [*tokenizer.tokens(batch.outputs_BT[0, :-1].tolist()), "<eos>"]


def joined_spans(of_token: Any, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the characters of each unit, from those of its tokens."""
    found: dict[int, tuple[int, int]] = {}
    for unit, (start, end) in zip(of_token, spans, strict=True):
        first, last = found.get(int(unit), (start, end))
        found[int(unit)] = min(first, start), max(last, end)
    return [*found.values()]
