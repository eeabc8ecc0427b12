"""Beam search: the K most probable prefixes, extended together."""

from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from seq2seq_lab.config.type_checks import AtMost, Count, NonNegative, Within
from seq2seq_lab.data.tokenizers import EOS, PAD
from seq2seq_lab.errors import UserError, require
from seq2seq_lab.runtime.device import to_host
from seq2seq_lab.search.base import Hypothesis, LengthFactor, LengthLimits
from seq2seq_lab.search.frontier import Frontier, FrontierSearch


class BeamSearch(FrontierSearch):
    """Keep the K most probable hypotheses of each sentence at every step (Sutskever 2014, §3.2; Wu 2016, §7).

    A hypothesis that ends with `<eos>` leaves the beam and is ranked by log p(Y|X) / lp(Y) + cp(X, Y), with the length
    penalty lp(Y) = ((c + |Y|) / (c + 1))^α, |Y| including `<eos>`, and the coverage penalty cp = β Σ_i log min(Σ_j p_ij, 1)
    over the source positions i. A sentence is finished when no hypothesis in its beam can still be ranked above the last
    one that would be returned. Outputs that reach the length limit without `<eos>` are ranked below those with it.

    Args:
        size: K.
        length_penalty: α; 0 ranks by the log-probability.
        length_offset: c; 5 in Wu 2016 (eq. 14), 0 for lp(Y) = |Y|^α.
        coverage_penalty: β; needs attention.
        nbest: number of outputs per sentence, at most K.

    Raises:
        ValueError: `nbest` is above `size`, or length limits that no output satisfies; see `LengthLimits`.
    """

    def __init__(
        self,
        *,
        size: Count,
        length_penalty: Annotated[float, Within(0), AtMost(10)],
        length_offset: NonNegative,
        coverage_penalty: NonNegative,
        nbest: Count,
        min_length_factor: float,
        max_length_factor: LengthFactor,
        max_length_extra: Count,
    ) -> None:
        require(nbest <= size, "search.nbest", nbest, f"1 to search.size={size}")
        self.width, self.nbest = size, nbest
        self.length_penalty, self.length_offset = length_penalty, length_offset
        self.coverage_penalty = coverage_penalty
        self.limits = LengthLimits(min_length_factor, max_length_factor, max_length_extra)

    @property
    def needs_attention(self) -> bool:
        """See `FrontierSearch.needs_attention`."""
        return self.coverage_penalty > 0

    def search(self, frontier: Frontier, index_B: Tensor) -> list[list[Hypothesis]]:
        device, count = index_B.device, len(index_B)
        total_AK = torch.full((count, self.width), float("-inf"), device=device)
        total_AK[:, 0] = 0  # before the first step all K are equal
        # The tokens of each hypothesis, and the index of its prefix in the beam of each step.
        token_AK, tokens_AKT, total_AK = frontier.begin(total_AK)
        parents_AKT = torch.zeros_like(tokens_AKT)
        covered_AKS = torch.zeros(count, self.width, 1, device=device)
        if self.coverage_penalty and frontier.first:
            covered_AKS = covered_AKS + self._attention(frontier.read_weights_BTS).sum(1, keepdim=True)
        best = _Best.empty(count, self.nbest, frontier.steps, device)
        for t in range(frontier.first, frontier.steps):
            log_probs_AKV, weights_AKS = frontier.step(token_AK, t, self.needs_attention)
            vocabulary = log_probs_AKV.shape[-1]
            total_AK, choice_AK = (total_AK[..., None] + log_probs_AKV).flatten(1).topk(self.width)
            parent_AK, token_AK = choice_AK // vocabulary, choice_AK % vocabulary
            frontier.reorder(parent_AK)
            for path_AKT in (tokens_AKT[..., :t], parents_AKT[..., :t]):
                path_AKT.copy_(take(path_AKT, parent_AK))
            tokens_AKT[..., t], parents_AKT[..., t] = token_AK, parent_AK
            if self.coverage_penalty:
                covered_AKS = take(covered_AKS + self._attention(weights_AKS), parent_AK)
            ended_AK = token_AK == EOS
            finished_AK = ended_AK | (frontier.longest_A <= t + 1)[:, None]
            if device.type != "cpu" or finished_AK.any():
                lengths_A = frontier.source_lengths_B[frontier.sentence_A]
                score_AK = self._score(total_AK, t + 1, covered_AKS, lengths_A).masked_fill(
                    ~finished_AK, float("-inf")
                )
                paths = tokens_AKT[..., : t + 1], parents_AKT[..., : t + 1]
                best.add(frontier.sentence_A, _Best(score_AK, total_AK, ended_AK, *paths))
            reached_AK, total_AK = total_AK, total_AK.masked_fill(finished_AK, float("-inf"))
            reachable_A = total_AK.amax(1) / self._length_penalty(frontier.longest_A)
            active_A = reachable_A > best.score_BF[frontier.sentence_A, -1]
            if frontier.trace is not None:
                kept = {"token_AK": token_AK, "parent_AK": parent_AK, "log_prob_AK": reached_AK}
                frontier.trace.extend(frontier.sentence_A, active_A, **kept, finished_AK=finished_AK)
            kept_A = frontier.keep(active_A, t)
            if kept_A is not None:
                if not len(kept_A):
                    break
                token_AK, total_AK = token_AK[kept_A], total_AK[kept_A]
                tokens_AKT, parents_AKT = tokens_AKT[kept_A], parents_AKT[kept_A]
                covered_AKS = covered_AKS[kept_A]
        weights_BFTS = None
        if frontier.weights_BTKS is not None:
            sentence_B11 = torch.arange(count, device=device)[:, None, None]
            # The host reads the length once per batch, because the size of the result depends on it.
            longest = int(to_host((best.tokens_BFT != PAD).sum(-1).max()))
            step_T = torch.arange(longest, device=device)
            weights_BFTS = frontier.weights_BTKS[sentence_B11, step_T, best.parents_BFT[..., :longest]]
        return frontier.hypotheses(best.tokens_BFT, best.log_prob_BF, best.score_BF, weights_BFTS)

    def _length_penalty(self, length: Any) -> Any:
        """Return lp of a length or of lengths."""
        return ((self.length_offset + length) / (self.length_offset + 1)) ** self.length_penalty

    def _attention(self, weights_AKS: Tensor | None) -> Tensor:
        if weights_AKS is None:
            raise UserError(
                f"search.coverage_penalty={self.coverage_penalty} needs attention, which this model does not have. Set "
                f"it to 0."
            )
        return weights_AKS

    def _score(self, total_AK: Tensor, length: int, covered_AKS: Tensor, lengths_A: Tensor) -> Tensor:
        score_AK = total_AK / self._length_penalty(length)
        if not self.coverage_penalty:
            return score_AK
        real_AS = torch.arange(covered_AKS.shape[-1], device=lengths_A.device) < lengths_A[:, None]
        # Weights may be 0: those of attention=local outside its window, others by rounding.
        log_AKS = covered_AKS.clamp(torch.finfo(covered_AKS.dtype).tiny, 1).log()
        return score_AK + self.coverage_penalty * log_AKS.masked_fill(~real_AS[:, None], 0).sum(-1)


def take(x_AK: Tensor, index_AJ: Tensor) -> Tensor:
    """Return the entries of each row at the indices of this row; further dimensions are kept."""
    return x_AK[torch.arange(len(x_AK), device=x_AK.device)[:, None], index_AJ]


@dataclass
class _Best:
    """The best F outputs of each sentence so far: those with `<eos>` first, then by score."""

    score_BF: Tensor
    log_prob_BF: Tensor
    ended_BF: Tensor
    tokens_BFT: Tensor
    parents_BFT: Tensor

    @classmethod
    def empty(cls, count: int, nbest: int, steps: int, device: torch.device) -> "_Best":
        """Return F empty entries per sentence, with a score of minus infinity."""
        score_BF = torch.full((count, nbest), float("-inf"), device=device)
        tokens_BFT = torch.full((count, nbest, steps), PAD, device=device)
        ended_BF = torch.zeros_like(score_BF, dtype=torch.bool)
        return cls(score_BF, score_BF.clone(), ended_BF, tokens_BFT, torch.zeros_like(tokens_BFT))

    def add(self, sentence_A: Tensor, new: "_Best") -> None:
        """Add outputs that rank above those so far; a score of minus infinity marks an empty entry.

        No output so far has more tokens than the new ones.
        """
        length = new.tokens_BFT.shape[-1]
        filled = {
            name: value[..., :length] if value.dim() == 3 else value for name, value in vars(self).items()
        }
        joined = {
            name: torch.cat([value[sentence_A], getattr(new, name)], dim=1) for name, value in filled.items()
        }
        score_AJ = joined["score_BF"]
        order_AJ = score_AJ.argsort(dim=1, descending=True, stable=True)
        cut_AJ = take(~joined["ended_BF"] | score_AJ.isneginf(), order_AJ)
        order_AJ = take(order_AJ, cut_AJ.byte().argsort(dim=1, stable=True))
        best_AF = order_AJ[:, : self.score_BF.shape[1]]
        for name, value in filled.items():
            value[sentence_A] = take(joined[name], best_AF).to(value.dtype)
