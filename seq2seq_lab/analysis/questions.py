"""One sentence pair as a function of the vectors of its source tokens, which attributions explain."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seq2seq_lab.analysis.forced import Forced
from seq2seq_lab.data.tokenizers import UNK
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.attention import Units
from seq2seq_lab.models.seq2seq import Seq2Seq, log_softmax
from seq2seq_lab.models.weight_change import WeightChange


@dataclass(frozen=True)
class Question:
    """A sentence pair of S source tokens, with `<sos>` and `<eos>`, and T target tokens, with `<eos>`.

    Attributes:
        model: in evaluation mode.
        forced: the pairs.
        index: the index of the pair.
        source, target: the units of the tokens.
        batch: the pair alone.
        vectors_SE: the embeddings of the source tokens.
        unknown_E: the embedding of `<unk>`.
        inputs_TE: the embeddings of `<sos>` y_1 … y_{T−1}.
        outputs_T: y_1 … `<eos>`.
    """

    model: Seq2Seq
    forced: Forced
    index: int
    source: Units
    target: Units
    batch: Any
    vectors_SE: Tensor
    unknown_E: Tensor
    inputs_TE: Tensor
    outputs_T: Tensor

    @property
    def steps(self) -> int:
        """T."""
        return len(self.outputs_T)

    def copies(self, count: int) -> Any:
        """Return a batch of `count` times the pair."""
        return self.forced.batch(np.full(count, self.index))

    def log_probs(
        self, vectors_NSE: Tensor, inputs_NTE: Tensor | None = None, steps: int | None = None
    ) -> Tensor:
        """Return log_probs_NTV of the target tokens for N versions of the source vectors, and of the input embeddings.

        Args:
            steps: compute the first steps only.
        """
        batch = self.copies(len(vectors_NSE))
        state, source = self.model.start(batch, vectors_NSE)
        if inputs_NTE is None:
            inputs_NTE = self.inputs_TE.expand(len(vectors_NSE), -1, -1)
        logits_NTV, _ = self.model.unroll(
            batch.inputs_BT[:, :steps], state, source, False, embedded_inputs_BTE=inputs_NTE[:, :steps]
        )
        return log_softmax(logits_NTV)

    def without_tokens(self, removed: Sequence[Sequence[int]]) -> Tensor:
        """Return log_probs_NTV for the source without some of its tokens, once for each list of their positions."""
        ids = self.batch.source_BS[0].tolist()
        last = len(ids) - 1
        rows = [
            [token for position, token in enumerate(ids) if 0 < position < last and position not in positions]
            for positions in map(set, removed)
        ]
        assert self.forced.without is not None
        batch = self.forced.without(rows, self.index)
        state, source = self.model.start(batch)
        logits_NTV, _ = self.model.unroll(batch.inputs_BT, state, source, False)
        return log_softmax(logits_NTV)

    def with_values_zeroed(self, zeroed_NS: Tensor) -> Tensor:
        """Return log_probs_NTV if the encoder outputs at some positions are 0 and all attention weights are kept.

        Raises:
            UserError: the model has no attention.
        """
        if not self.model.attends:
            raise UserError("value_zeroing needs a model with attention. Choose another method.")
        kept: list[Tensor] = []
        state, source = self.model.start(self.batch)

        def record(weights_NTS: Tensor, step: int) -> Tensor:
            kept.append(weights_NTS)
            return weights_NTS

        self.model.unroll(self.batch.inputs_BT, state, source, False, change=WeightChange(record))
        batch, replayed = self.copies(len(zeroed_NS)), iter(kept)
        state, source = self.model.start(batch)
        outputs_NSM = source.encoder_outputs_BSM.masked_fill(zeroed_NS[..., None], 0)
        source = source._replace(
            encoder_outputs_BSM=outputs_NSM, keys_BSK=self.model.decoder.project(outputs_NSM)
        )
        change = WeightChange(lambda weights_NTS, step: next(replayed).expand_as(weights_NTS))
        logits_NTV, _ = self.model.unroll(batch.inputs_BT, state, source, False, change=change)
        return log_softmax(logits_NTV)


def ask(model: Any, forced: Forced, index: int) -> Question:
    """Return the question of one pair.

    Raises:
        UserError: the model is an ensemble, or its source has no token embeddings.
    """
    if not isinstance(model, Seq2Seq) or forced.source_tokenizer is None:
        raise UserError("Attributions need one run of translation or dialogue, with text as its source.")
    batch = forced.batch(np.array([index]))
    source_line, target_line = forced.sources[index], forced.targets[index]
    with torch.no_grad():
        vectors_SE = model.embed_source(batch.source_BS)[0]
        return Question(
            model=model,
            forced=forced,
            index=index,
            source=Units.of(source_line, forced.source_tokenizer.spans(source_line), 1),
            target=Units.of(target_line, forced.tokenizer.spans(target_line), 0),
            batch=batch,
            vectors_SE=vectors_SE,
            unknown_E=model.embed_source(torch.full_like(batch.source_BS[:, :1], UNK))[0, 0],
            inputs_TE=model.embed_target(batch.inputs_BT)[0],
            outputs_T=batch.outputs_BT[0],
        )
