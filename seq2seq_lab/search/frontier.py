"""What all searches share: the hypotheses that are still extended, and what is handed back of them."""

import numpy as np
import torch
from torch import Tensor

from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.tokenizers import EOS, PAD, SOS
from seq2seq_lab.runtime.device import to_host
from seq2seq_lab.search.base import Hypothesis, LengthLimits, StepModel

LOOK_EVERY = 8  # steps of a GPU: to ask it whether all have ended is to wait for it


class Frontier:
    """K hypotheses of each sentence, of the A sentences that are not done, extended one token at a time.

    Attributes:
        sentence_A: which sentence of the batch each is.
        steps: the most steps that any of them may take.
        weights_BTKS: the attention rows of each step, where they are kept and there is attention.
    """

    def __init__(
        self, model: StepModel, batch: Batch, width: int, limits: LengthLimits, with_weights: bool
    ) -> None:
        device, count = batch.source_BS.device, len(batch.source_lengths)
        self._model = model
        self._state, self._source = model.start(batch.source_BS, batch.source_lengths)
        self.sentence_A = torch.arange(count, device=device)
        if width > 1:
            self._state = self._state.select(self.sentence_A.repeat_interleave(width))
        least, most = limits.of(batch.source_lengths)
        self.steps = max(most)
        self._least_B = torch.tensor(least, device=device) if any(least) else None
        self._most_B = torch.tensor(most, device=device)
        self._lengths_B = torch.tensor(batch.source_lengths, device=device)
        self._with_weights = with_weights
        self._shape = (count, self.steps, width, batch.source_BS.shape[1])
        self.weights_BTKS: Tensor | None = None

    @property
    def most_A(self) -> Tensor:
        """How many tokens there may be, `<eos>` counted."""
        return self._most_B[self.sentence_A]

    @property
    def real_AS(self) -> Tensor:
        """True at the source positions that are not padding."""
        position_S = torch.arange(self._shape[-1], device=self._lengths_B.device)
        return position_S < self._lengths_B[self.sentence_A, None]

    def step(self, token_AK: Tensor, t: int) -> tuple[Tensor, Tensor | None]:
        """Read one token of each: return (log_probs_AKV of token t, from 0, and its attention rows weights_AKS).

        `<pad>` and `<sos>` are impossible, and so is `<eos>` where a sentence may not end yet.
        """
        log_probs_NV, self._state, weights_NS = self._model.step(
            token_AK.flatten(), self._state, self._source
        )
        log_probs_AKV = log_probs_NV.reshape(*token_AK.shape, -1)
        for never in (PAD, SOS):
            log_probs_AKV[..., never] = float("-inf")
        if self._least_B is not None:
            early_A = self._least_B[self.sentence_A] > t
            log_probs_AKV[..., EOS].masked_fill_(early_A[:, None], float("-inf"))
        if weights_NS is None:
            return log_probs_AKV, None
        weights_AKS = weights_NS.reshape(*token_AK.shape, -1)
        if self._with_weights:
            if self.weights_BTKS is None:
                self.weights_BTKS = weights_AKS.new_zeros(self._shape)
            self.weights_BTKS[self.sentence_A, t] = weights_AKS
        return log_probs_AKV, weights_AKS

    def reorder(self, parent_AK: Tensor) -> None:
        """Go on with the hypotheses `parent_AK` of each sentence in place of its K."""
        first_A1 = torch.arange(len(parent_AK), device=parent_AK.device)[:, None] * parent_AK.shape[1]
        self._state = self._state.select((first_A1 + parent_AK).flatten())

    def keep(self, going_A: Tensor, width: int, t: int) -> Tensor | None:
        """Drop the sentences that are done once they are half of all: return the index of those that stay.

        None says that all stay; after the last has ended, none does. The host reads which are done, because the size of the
        batch depends on it; on a GPU every `LOOK_EVERY` steps.
        """
        device = going_A.device
        if device.type != "cpu" and (t + 1) % LOOK_EVERY:
            return None
        staying = np.flatnonzero(to_host(going_A))
        if 2 * len(staying) > len(going_A):
            return None
        index_A = torch.from_numpy(staying).to(device)
        if len(index_A):
            row_AK = index_A[:, None] * width + torch.arange(width, device=device)
            self._state = self._state.select(row_AK.flatten())
            self._source = self._source.select(index_A)
        self.sentence_A = self.sentence_A[index_A]
        return index_A


def hypotheses(
    tokens_BKT: Tensor,
    log_prob_BK: Tensor,
    score_BK: Tensor,
    weights_BKTS: Tensor | None,
    lengths: tuple[int, ...],
) -> list[list[Hypothesis]]:
    """Return each sentence's hypotheses, in their order; one without a token is none, unless there is no other.

    The host reads all of them here, once a batch.

    Args:
        tokens_BKT: `<eos>`, if there is one, counted; padded.
        lengths: of the sources.
    """
    ids, log_probs, scores = (to_host(x) for x in (tokens_BKT, log_prob_BK, score_BK))
    longest = int((ids != PAD).sum(-1).max())
    weights = None if weights_BKTS is None else to_host(weights_BKTS[:, :, :longest].float())
    found: list[list[Hypothesis]] = []
    for i, rows in enumerate(ids.tolist()):
        lasting = [row.index(PAD) if PAD in row else len(row) for row in rows]
        found.append(
            [
                Hypothesis(
                    tokens=row[: length - 1] if length and row[length - 1] == EOS else row[:length],
                    log_prob=float(log_probs[i, k]),
                    score=float(scores[i, k]),
                    # A copy, since a part would keep the whole.
                    weights_TS=None if weights is None else weights[i, k, :length, : lengths[i]].copy(),
                )
                for k, (row, length) in enumerate(zip(rows, lasting, strict=True))
                if length or (not any(lasting) and k == 0)  # a model that has diverged ranks nothing
            ]
        )
    return found
