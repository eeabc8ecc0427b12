"""Searches that never revise a token."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from seq2seq_lab.data.tokenizers import EOS, PAD, SOS
from seq2seq_lab.errors import require
from seq2seq_lab.search.base import Hypothesis, LengthLimits, SearchBatch, StepModel
from seq2seq_lab.search.frontier import Frontier
from seq2seq_lab.search.trace import SearchTrace


class PathSearch(ABC):
    """Extend K independent hypotheses of each sentence until `<eos>` or the length limit.

    Args:
        paths: K.

    Raises:
        ValueError: K is below 1, or length limits that no output satisfies; see `LengthLimits`.
    """

    def __init__(
        self, paths: int, min_length_factor: float, max_length_factor: float, max_length_extra: int
    ) -> None:
        require(paths >= 1, "search.nbest", paths, "1 or more")
        self.paths = paths
        self.limits = LengthLimits(min_length_factor, max_length_factor, max_length_extra)

    @abstractmethod
    def choose(self, log_probs_AKV: Tensor, index_A: Tensor, t: int) -> Tensor:
        """Return token_AK, the token at position t of each output.

        Args:
            index_A: the index of each sentence in the text.
        """

    @torch.no_grad()
    def __call__(
        self,
        model: StepModel,
        batch: SearchBatch,
        with_weights: bool,
        *,
        prefix: Sequence[Sequence[int]] | None = None,
        trace: SearchTrace | None = None,
    ) -> list[list[Hypothesis]]:
        frontier = Frontier(
            model, batch, self.limits, with_weights, width=self.paths, prefix=prefix, trace=trace
        )
        token_AK = batch.index_B.new_full((len(batch.index_B), self.paths), SOS)
        live_AK = torch.ones_like(token_AK, dtype=torch.bool)
        tokens_BKT = token_AK.new_full((*token_AK.shape, frontier.steps), PAD)
        log_prob_BK = torch.zeros(token_AK.shape, device=token_AK.device)
        for t in range(frontier.steps):
            log_probs_AKV, _ = frontier.step(token_AK, t, False)
            sentence_A = frontier.sentence_A
            chosen_AK = self.choose(log_probs_AKV, batch.index_B[sentence_A], t)
            gained_AK = log_probs_AKV.gather(-1, chosen_AK[..., None])[..., 0]
            token_AK = torch.where(live_AK, chosen_AK, PAD)
            log_prob_BK[sentence_A] += torch.where(live_AK, gained_AK, 0.0).float()
            tokens_BKT[sentence_A, :, t] = token_AK
            read_AK, live_AK = live_AK, live_AK & (token_AK != EOS) & (frontier.longest_A > t + 1)[:, None]
            if trace is not None:
                trace.extend(
                    sentence_A,
                    live_AK.any(1),
                    token_AK=token_AK,
                    parent_AK=torch.arange(self.paths).expand_as(token_AK),
                    log_prob_AK=log_prob_BK[sentence_A].masked_fill(~read_AK, float("-inf")),
                    finished_AK=~live_AK,
                )
            kept_A = frontier.keep(live_AK.any(1), self.paths, t)
            if kept_A is not None:
                if not len(kept_A):
                    break
                token_AK, live_AK = token_AK[kept_A], live_AK[kept_A]
        weights_BTKS = frontier.weights_BTKS
        weights_BKTS = None if weights_BTKS is None else weights_BTKS.transpose(1, 2)
        return frontier.hypotheses(tokens_BKT, log_prob_BK, log_prob_BK, weights_BKTS)
