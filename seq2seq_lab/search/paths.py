"""Searches that never revise a token."""

from abc import abstractmethod

import torch
from torch import Tensor

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.data.tokenizers import EOS, PAD
from seq2seq_lab.search.base import Hypothesis, LengthFactor, LengthLimits
from seq2seq_lab.search.frontier import Frontier, FrontierSearch


class PathSearch(FrontierSearch):
    """Extend K independent hypotheses of each sentence until `<eos>` or the length limit.

    Args:
        paths: K.

    Raises:
        ValueError: length limits that no output satisfies; see `LengthLimits`.
    """

    def __init__(
        self, paths: int, min_length_factor: float, max_length_factor: LengthFactor, max_length_extra: Count
    ) -> None:
        self.width = paths
        self.limits = LengthLimits(min_length_factor, max_length_factor, max_length_extra)

    @abstractmethod
    def choose(self, log_probs_AKV: Tensor, index_A: Tensor, t: int) -> Tensor:
        """Return token_AK, the token at position t of each output.

        Args:
            index_A: the index of each sentence in the text.
        """

    def search(self, frontier: Frontier, index_B: Tensor) -> list[list[Hypothesis]]:
        log_prob_BK = torch.zeros(len(index_B), self.width, device=index_B.device)
        token_AK, tokens_BKT, log_prob_BK = frontier.begin(log_prob_BK)
        live_AK = torch.ones_like(token_AK, dtype=torch.bool)
        for t in range(frontier.first, frontier.steps):
            log_probs_AKV, _ = frontier.step(token_AK, t, False)
            sentence_A = frontier.sentence_A
            chosen_AK = self.choose(log_probs_AKV, index_B[sentence_A], t)
            gained_AK = log_probs_AKV.gather(-1, chosen_AK[..., None])[..., 0]
            token_AK = torch.where(live_AK, chosen_AK, PAD)
            log_prob_BK[sentence_A] += torch.where(live_AK, gained_AK, 0.0).float()
            tokens_BKT[sentence_A, :, t] = token_AK
            read_AK, live_AK = live_AK, live_AK & (token_AK != EOS) & (frontier.longest_A > t + 1)[:, None]
            if frontier.trace is not None:
                frontier.trace.extend(
                    sentence_A,
                    live_AK.any(1),
                    token_AK=token_AK,
                    parent_AK=torch.arange(self.width, device=token_AK.device).expand_as(token_AK),
                    log_prob_AK=log_prob_BK[sentence_A].masked_fill(~read_AK, float("-inf")),
                    finished_AK=~live_AK,
                )
            kept_A = frontier.keep(live_AK.any(1), t)
            if kept_A is not None:
                if not len(kept_A):
                    break
                token_AK, live_AK = token_AK[kept_A], live_AK[kept_A]
        weights_BTKS = frontier.weights_BTKS
        weights_BKTS = None if weights_BTKS is None else weights_BTKS.transpose(1, 2)
        return frontier.hypotheses(tokens_BKT, log_prob_BK, log_prob_BK, weights_BKTS)
