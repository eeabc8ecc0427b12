"""Sampling: tokens drawn from the distribution of the model."""

import math
from typing import Annotated

import torch
from torch import Tensor

from seq2seq_lab.config.type_checks import Above, AtMost, Count, Within
from seq2seq_lab.runtime.counter_rng import uniform
from seq2seq_lab.search.base import LengthFactor
from seq2seq_lab.search.paths import PathSearch

# log p of tokens with the probability 0: a readout that cannot return log 0 returns that of the smallest number.
IMPOSSIBLE = math.log(torch.finfo(torch.float32).tiny) + 1


class SamplingSearch(PathSearch):
    """Draw each token from softmax(log p / temperature), restricted to the most probable tokens.

    A token with the probability 0, such as a word that a pointer model can neither generate nor copy, is never drawn.

    A draw depends on the seed, the index of the sentence in the text, the index of the output and the position in it, but
    not on the batch or the number of ranks. The log-probabilities of hypotheses are those of the model.

    Args:
        temperature: below 1 makes probable tokens more probable; the limit 0 is greedy search.
        top_k: draw from this many most probable tokens (Fan 2018, §5.1); None for all.
        top_p: draw from the smallest set of most probable tokens with at least this probability (Holtzman 2020, §3.1); 1 for
            all.
        nbest: number of outputs per sentence, in the order of the draws.

    Raises:
        ValueError: length limits that no output satisfies; see `LengthLimits`.
    """

    def __init__(
        self,
        *,
        temperature: Annotated[float, Within(0.0001)],
        top_k: Count | None,
        top_p: Annotated[float, Above(0), AtMost(1)],
        nbest: Count,
        seed: int,
        min_length_factor: float,
        max_length_factor: LengthFactor,
        max_length_extra: Count,
    ) -> None:
        super().__init__(nbest, min_length_factor, max_length_factor, max_length_extra)
        self.temperature, self.top_k, self.top_p, self.seed = temperature, top_k, top_p, seed

    def choose(self, log_probs_AKV: Tensor, index_A: Tensor, t: int) -> Tensor:
        impossible_AKV = log_probs_AKV < IMPOSSIBLE
        probs_AKV = (log_probs_AKV / self.temperature).masked_fill(impossible_AKV, -math.inf).softmax(-1)
        path_K = torch.arange(self.width, device=index_A.device)
        draw_AK = uniform(self.seed, index_A[:, None], path_K, torch.full_like(path_K, t))
        if self.top_k is None and self.top_p == 1:  # sorting the whole vocabulary would take most of the time
            return draw_index(probs_AKV, draw_AK)
        vocabulary = probs_AKV.shape[-1]
        # The C most probable tokens, in their order.
        probs_AKC, token_AKC = probs_AKV.topk(min(self.top_k or vocabulary, vocabulary))
        below_AKC = probs_AKC.cumsum(-1) - probs_AKC  # probability of the more probable tokens
        probs_AKC[below_AKC >= self.top_p] = 0
        return token_AKC.gather(-1, draw_index(probs_AKC, draw_AK)[..., None])[..., 0]


def draw_index(probs_AKC: Tensor, draw_AK: Tensor) -> Tensor:
    """Return index_AK: the inverse of the cumulative distribution at numbers in [0, 1).

    Args:
        probs_AKC: the weights of the indices, with any sum.
    """
    cumulative_AKC = probs_AKC.cumsum(-1)
    target_AK1 = (draw_AK * cumulative_AKC[..., -1])[..., None]
    index_AK1 = torch.searchsorted(cumulative_AKC, target_AK1, right=True).clamp_max(probs_AKC.shape[-1] - 1)
    # Rounding must not select an index of probability 0.
    drawn_AK1 = torch.where(
        probs_AKC.gather(-1, index_AK1) > 0, index_AK1, probs_AKC.argmax(-1, keepdim=True)
    )
    return drawn_AK1[..., 0]
