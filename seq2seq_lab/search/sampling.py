"""Sampling: tokens drawn from the distribution of the model."""

import torch
from torch import Tensor

from seq2seq_lab.errors import require
from seq2seq_lab.runtime.counter_rng import uniform
from seq2seq_lab.search.paths import PathSearch


class SamplingSearch(PathSearch):
    """Draw each token from softmax(log p / temperature), restricted to the most probable tokens.

    A draw depends on the seed, the index of the sentence in the text, the index of the output and the position in it, but
    not on the batch or the number of ranks. The log-probabilities of hypotheses are those of the model.

    Args:
        temperature: below 1 makes probable tokens more probable; the limit 0 is greedy search.
        top_k: draw from this many most probable tokens (Fan 2018, §5.1); None for all.
        top_p: draw from the smallest set of most probable tokens with at least this probability (Holtzman 2020, §3.1); 1 for
            all.
        nbest: number of outputs per sentence, in the order of the draws.

    Raises:
        ValueError: a value out of range, or length limits that no output satisfies; see `LengthLimits`.
    """

    def __init__(
        self,
        temperature: float,
        top_k: int | None,
        top_p: float,
        nbest: int,
        seed: int,
        min_length_factor: float,
        max_length_factor: float,
        max_length_extra: int,
    ) -> None:
        super().__init__(nbest, min_length_factor, max_length_factor, max_length_extra)
        require(
            temperature > 0, "search.temperature", temperature, "a number above 0; search=greedy is its limit"
        )
        require(top_k is None or top_k >= 1, "search.top_k", top_k, "1 or more, or null for all tokens")
        require(0 < top_p <= 1, "search.top_p", top_p, "a number above 0 and at most 1")
        self.temperature, self.top_k, self.top_p, self.seed = temperature, top_k, top_p, seed

    def choose(self, log_probs_AKV: Tensor, index_A: Tensor, t: int) -> Tensor:
        probs_AKV = (log_probs_AKV / self.temperature).softmax(-1)
        vocabulary = probs_AKV.shape[-1]
        # C most probable tokens, in their order.
        probs_AKC, token_AKC = probs_AKV.topk(min(self.top_k or vocabulary, vocabulary))
        below_AKC = probs_AKC.cumsum(-1) - probs_AKC  # probability of the more probable tokens
        probs_AKC[below_AKC >= self.top_p] = 0
        cumulative_AKC = probs_AKC.cumsum(-1)
        path_K = torch.arange(self.paths, device=index_A.device)
        draw_AK = uniform(self.seed, index_A[:, None], path_K, torch.full_like(path_K, t))
        place_AK1 = torch.searchsorted(
            cumulative_AKC, (draw_AK * cumulative_AKC[..., -1])[..., None], right=True
        )
        # Rounding must not select a token of probability 0.
        last_AK1 = ((probs_AKC > 0).sum(-1, keepdim=True) - 1).clamp_min(0)
        return token_AKC.gather(-1, place_AK1.minimum(last_AK1))[..., 0]
