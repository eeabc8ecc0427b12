"""Shared by all searches: the active hypotheses of a batch, and the conversion of the results."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from seq2seq_lab.data.tokenizers import EOS, PAD, SOS
from seq2seq_lab.errors import require
from seq2seq_lab.runtime.device import to_host
from seq2seq_lab.search.base import Hypothesis, LengthLimits, ReadingModel, SearchBatch, StepModel
from seq2seq_lab.search.trace import SearchTrace

CHECK_EVERY = 8  # steps on a GPU between checks for finished sentences; each check waits for the GPU


class Frontier:
    """K hypotheses of each of the A unfinished sentences, extended one token at a time.

    Attributes:
        sentence_A: index in the batch of each unfinished sentence.
        trace: records the search; None if it is not recorded.
        first: the first step; the tokens of earlier steps are those of the prefixes.
        steps: the maximum number of steps of the batch.
        source_lengths_B: number of real source positions of each sentence of the batch.
        weights_BTKS: the attention weights of each step; None if they are not kept, or without attention.
    """

    def __init__(
        self,
        model: StepModel,
        batch: SearchBatch,
        limits: LengthLimits,
        with_weights: bool,
        *,
        width: int,
        prefix: Sequence[Sequence[int]] | None,
        trace: SearchTrace | None,
        needs_attention: bool,
    ) -> None:
        device, count = batch.index_B.device, len(batch.index_B)
        self._model = model
        self._state, self._source = model.start(batch)
        self.sentence_A = torch.arange(count, device=device)
        shortest, longest = limits.bounds(batch.source_lengths)
        self.steps = max(longest)
        self._shortest_B = torch.tensor(shortest, device=device) if any(shortest) else None
        self._longest_B = torch.tensor(longest, device=device)
        self.source_lengths_B: Tensor = self._source.lengths_B
        self._with_weights = with_weights
        self.weights_BTKS: Tensor | None = None
        self._prefix_BT = None if prefix is None else prefix_ids(prefix, longest).to(device)
        self._width = width
        self.trace = trace
        if trace is not None:
            trace.start(count, width)
        self._beginning = None if trace is None else trace.beginning
        known = 0 if self._beginning is None else len(self._beginning.tokens)
        # The last token of the shortest prefix may end an output, so its step is like any other.
        self.first = max(known, min(map(len, prefix), default=0) - 1) if prefix else known
        self._read_BTV: Tensor | None = None
        self.read_weights_BTS: Tensor | None = None
        if self._beginning is not None and self._beginning.weights_PS is not None:
            self._add_weights(self._beginning.weights_PS[None].expand(count, -1, -1), 0)
        if self.first > known and isinstance(model, ReadingModel):
            self._read_prefix(model, known, with_weights or needs_attention)
        else:
            self.first = known

    def _read_prefix(self, model: ReadingModel, known: int, with_weights: bool) -> None:
        """Read the tokens of the steps before the first one at once, without those whose state is known."""
        assert self._prefix_BT is not None
        check_ids(self._prefix_BT, model.vocabulary_size)
        inputs_BT = torch.nn.functional.pad(self._prefix_BT[:, : self.first - 1], (1, 0), value=SOS)[
            :, known:
        ]
        self._read_BTV, self._state, weights_BTS = model.read(
            inputs_BT, self._state, self._source, with_weights
        )
        if weights_BTS is not None:
            self._add_weights(weights_BTS, known)

    def _add_weights(self, weights_BTS: Tensor, first: int) -> None:
        """Add the attention weights of known tokens from the step `first` on."""
        before_BTS = self.read_weights_BTS
        self.read_weights_BTS = weights_BTS if before_BTS is None else torch.cat([before_BTS, weights_BTS], 1)
        if self._with_weights:
            self._keep(weights_BTS[:, :, None], slice(first, first + weights_BTS.shape[1]))

    def begin(self, log_prob_AK: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return (token_AK that is read first, tokens_AKT so far, log_prob_AK so far) of the hypotheses.

        Args:
            log_prob_AK: 0, and minus infinity for entries that are empty at first.
        """
        token_AK = torch.full_like(log_prob_AK, SOS, dtype=torch.long)
        tokens_AKT = token_AK.new_full((*token_AK.shape, self.steps), PAD)
        known = 0
        if self._beginning is not None and self.trace is not None:
            self.trace.begin_known(log_prob_AK)
            known = len(self._beginning.tokens)
            tokens_AKT[..., :known] = token_AK.new_tensor(self._beginning.tokens)
            log_prob_AK = log_prob_AK + self._beginning.nodes[-1].log_prob
        if self._read_BTV is not None and self._prefix_BT is not None:
            read_BP = self._prefix_BT[:, known : self.first]
            gained_BP = self._read_BTV.gather(2, read_BP[..., None])[..., 0]
            log_prob_AKP = log_prob_AK[..., None] + gained_BP.float().cumsum(1)[:, None]
            tokens_AKT[..., known : self.first] = read_BP[:, None]
            if self.trace is not None:
                self.trace.begin(read_BP, self._read_BTV, log_prob_AKP)
            log_prob_AK = log_prob_AKP[..., -1].clone()  # the trace keeps it
        if self.first:
            token_AK = tokens_AKT[..., self.first - 1]
        return token_AK, tokens_AKT, log_prob_AK

    @property
    def longest_A(self) -> Tensor:
        """The maximum number of tokens of each sentence, including `<eos>`."""
        return self._longest_B[self.sentence_A]

    def step(self, token_AK: Tensor, t: int, with_weights: bool) -> tuple[Tensor, Tensor | None]:
        """Read one token per hypothesis: return (log_probs_AKV of token t, counted from 0, and weights_AKS or None).

        `<pad>` and `<sos>` have probability 0, and so does `<eos>` before the minimum length. At the first step the
        hypotheses of a sentence are equal, and the model reads one of them.

        Args:
            with_weights: return the weights of a model that attends, also if they are not kept.
        """
        if self.trace is not None:
            self.trace.keep_state(t, self._state)
        width = token_AK.shape[1]
        read_AK = token_AK if t > self.first else token_AK[:, :1]
        log_probs_NV, self._state, weights_NS = self._model.step(
            read_AK.flatten(), self._state, self._source, with_weights or self._with_weights
        )
        log_probs_AKV = log_probs_NV.reshape(*read_AK.shape, -1)
        forced_AKV = self._force(log_probs_AKV, t)
        predicted_AKV = log_probs_AKV if self.trace is None else log_probs_AKV.clone()
        for token in (PAD, SOS):
            log_probs_AKV[..., token] = float("-inf")
        if self._shortest_B is not None:
            early_A = self._shortest_B[self.sentence_A] > t
            log_probs_AKV[..., EOS].masked_fill_(early_A[:, None], float("-inf"))
        if forced_AKV is not None:
            log_probs_AKV = torch.where(forced_AKV.isnan(), log_probs_AKV, forced_AKV)
        if self.trace is not None:
            self.trace.read(predicted_AKV, log_probs_AKV)
        if t == self.first and width > 1:
            log_probs_AKV = log_probs_AKV.repeat(1, width, 1)  # not expanded: a search may write to it
            self._state = self._state.select(self.sentence_A.repeat_interleave(width))
        if weights_NS is None:
            return log_probs_AKV, None
        weights_AKS = weights_NS.reshape(*read_AK.shape, -1).expand(-1, width, -1)
        if self._with_weights:
            self._keep(weights_AKS[:, None], slice(t, t + 1))
        return log_probs_AKV, weights_AKS

    def _keep(self, weights_ATKS: Tensor, steps: slice) -> None:
        """Keep the weights of some steps."""
        if self.weights_BTKS is None:  # at the first step, when no sentence is finished
            shape = (len(self.sentence_A), self.steps, self._width, weights_ATKS.shape[-1])
            self.weights_BTKS = weights_ATKS.new_zeros(shape)
        self.weights_BTKS[self.sentence_A, steps] = weights_ATKS

    def _force(self, log_probs_AKV: Tensor, t: int) -> Tensor | None:
        """Return log-probabilities with 0 probability for all tokens but that of the prefix, NaN where it has ended.

        Raises:
            UserError: the vocabulary does not have a token of the prefix.
        """
        if self._prefix_BT is None or t >= self._prefix_BT.shape[1]:
            return None
        if t == self.first:
            check_ids(self._prefix_BT, log_probs_AKV.shape[-1])
        token_A11 = self._prefix_BT[self.sentence_A, t][:, None, None]
        token_AK1 = token_A11.expand(*log_probs_AKV.shape[:2], 1)
        forced_AKV = torch.full_like(log_probs_AKV, float("-inf"))
        forced_AKV.scatter_(-1, token_AK1, log_probs_AKV.gather(-1, token_AK1))
        return forced_AKV.masked_fill_(token_A11 == PAD, float("nan"))

    def reorder(self, parent_AK: Tensor) -> None:
        """Replace the K hypotheses of each sentence by its hypotheses `parent_AK`."""
        first_A1 = torch.arange(len(parent_AK), device=parent_AK.device)[:, None] * parent_AK.shape[1]
        self._state = self._state.select((first_A1 + parent_AK).flatten())

    def keep(self, active_A: Tensor, t: int) -> Tensor | None:
        """Drop the finished sentences once they are at least half of the batch: return the index of the others.

        Returns None if no sentence is dropped, and an empty index after all have finished. The host reads which
        sentences are finished, because the size of the batch depends on it; on a GPU every `CHECK_EVERY` steps.
        """
        device = active_A.device
        if device.type != "cpu" and (t + 1) % CHECK_EVERY:
            return None
        active = np.flatnonzero(to_host(active_A))
        if 2 * len(active) > len(active_A):
            return None
        index_A = torch.from_numpy(active).to(device)
        if len(index_A):
            row_AK = index_A[:, None] * self._width + torch.arange(self._width, device=device)
            self._state = self._state.select(row_AK.flatten())
            self._source = self._source.select(index_A)
        self.sentence_A = self.sentence_A[index_A]
        return index_A

    def hypotheses(
        self, tokens_BKT: Tensor, log_prob_BK: Tensor, score_BK: Tensor, weights_BKTS: Tensor | None
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each sentence, best first, without empty ones; one is kept if all are empty.

        The host reads the results here, once per batch.

        Args:
            tokens_BKT: tokens including `<eos>`, padded.
        """
        ids, log_probs, scores, lengths = (
            to_host(x) for x in (tokens_BKT, log_prob_BK, score_BK, self.source_lengths_B)
        )
        longest = int((ids != PAD).sum(-1).max())
        weights = None if weights_BKTS is None else to_host(weights_BKTS[:, :, :longest].float())
        results: list[list[Hypothesis]] = []
        for i, rows in enumerate(ids.tolist()):
            lengths_K = [row.index(PAD) if PAD in row else len(row) for row in rows]
            results.append(
                [
                    Hypothesis(
                        tokens=row[: length - 1] if length and row[length - 1] == EOS else row[:length],
                        log_prob=float(log_probs[i, k]),
                        score=float(scores[i, k]),
                        # A copy, since a view would keep the whole batch.
                        weights_TS=None if weights is None else weights[i, k, :length, : lengths[i]].copy(),
                        ended=EOS in row,
                    )
                    for k, (row, length) in enumerate(zip(rows, lengths_K, strict=True))
                    if length or (not any(lengths_K) and k == 0)  # NaN log-probabilities, after divergence
                ]
            )
        if self.trace is not None:
            self.trace.finish(results)
        return results


class FrontierSearch(ABC):
    """A search that extends the hypotheses of a `Frontier`. A subclass sets the attributes and defines `search`.

    Attributes:
        width: K, the number of hypotheses of each sentence.
        limits: the limits of the length of an output.
    """

    width: int
    limits: LengthLimits

    @property
    def needs_attention(self) -> bool:
        """Whether the search needs a model that attends."""
        return False

    @abstractmethod
    def search(self, frontier: Frontier, index_B: Tensor) -> list[list[Hypothesis]]:
        """Return the result of `Search`.

        Args:
            index_B: the index of each sentence in its split.
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
        """See `Search`."""
        frontier = Frontier(
            model,
            batch,
            self.limits,
            with_weights,
            width=self.width,
            prefix=prefix,
            trace=trace,
            needs_attention=self.needs_attention,
        )
        return self.search(frontier, batch.index_B)


def check_ids(prefix_BT: Tensor, vocabulary_size: int) -> None:
    """Refuse tokens that the vocabulary does not have.

    Raises:
        UserError: names the highest id.
    """
    highest = int(prefix_BT.max())
    require(highest < vocabulary_size, "prefix", f"[…, {highest}, …]", f"ids from 0 to {vocabulary_size - 1}")


def prefix_ids(prefix: Sequence[Sequence[int]], longest: Sequence[int]) -> Tensor:
    """Return forced tokens, padded: int64, BT.

    Args:
        prefix: the ids of each sentence; see `Search`.
        longest: the maximum number of tokens of each sentence.

    Raises:
        UserError: the prefixes are not those of the sentences, too long, or contain special tokens.
    """
    require(
        len(prefix) == len(longest),
        "prefix",
        f"[{len(prefix)} lists]",
        f"one list for each of {len(longest)} sentences",
    )
    for i, (ids, most) in enumerate(zip(prefix, longest, strict=True)):
        special = min(ids, default=0) < 0 or PAD in ids or SOS in ids or EOS in ids[:-1]
        require(not special, f"prefix[{i}]", list(ids), "ids of words, and <eos> as the last one")
        require(
            len(ids) <= most,
            f"prefix[{i}]",
            f"[{len(ids)} tokens]",
            f"{most} tokens, the length limit of search.*",
        )
    width = max(map(len, prefix))
    return torch.tensor([[*ids, *[PAD] * (width - len(ids))] for ids in prefix]).long()
