"""Whether attributions name the source words that a prediction depends on: what is lost without them.

Words and punctuation marks are deleted in the order of their scores, `<sos>` and `<eos>` stay. A random order is the floor
and a greedy search, which at each step deletes what costs most, the ceiling.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from seq2seq_lab.analysis.attributions import ROWS, Floats, Options, quantity, without
from seq2seq_lab.analysis.questions import Question
from seq2seq_lab.runtime.device import to_host

Counts = npt.NDArray[np.int64]

PERCENTS = range(10, 101, 10)  # of the words, for the deletion curve
SHARES = (0.1, 0.2, 0.5)  # of the words, as in DeYoung et al. 2020
RANDOM_ORDERS = 5
LEAST_WORDS = 4  # of a rank correlation (Jain and Wallace 2019)


class Deletions:
    """The explained quantity without some units of the source.

    A set of units is computed once, up to the last row that is asked for.

    Args:
        how: see `attributions.occlusion`.

    Attributes:
        units: the K units that can be deleted.
        counts_T: the number of these that each row has read; the others are the last ones of its order and are not deleted.
    """

    def __init__(self, question: Question, options: Options, how: str) -> None:
        self._question, self._options, self._how = question, options, how
        self._found: dict[bytes, Floats] = {}
        self.units = question.inner
        self.read_TU = question.read_TU
        self.counts_T: Counts = self.read_TU[:, self.units].sum(1)
        with torch.no_grad():
            f_1T = quantity(question.log_probs(question.vectors_SE[None]), question, options)
        self.whole_T: Floats = to_host(f_1T)[0].astype(np.float64)

    def __call__(self, removed_NU: npt.NDArray[np.bool_], rows_N: npt.NDArray[np.int64]) -> Floats:
        """Return f_N of row `rows_N[n]` without the units of version n."""
        keys = [removed_U.tobytes() for removed_U in removed_NU]
        rows = rows_N.tolist()
        lasts: dict[bytes, int] = defaultdict(int)
        versions = dict(zip(keys, removed_NU, strict=True))
        for key, row in zip(keys, rows, strict=True):
            if row >= len(self._found.get(key, ())):
                lasts[key] = max(lasts[key], row)
        new = sorted(lasts, key=lambda key: lasts[key])
        for part in (new[i : i + ROWS] for i in range(0, len(new), ROWS)):
            removed_CU, steps = np.stack([versions[key] for key in part]), lasts[part[-1]] + 1
            with torch.no_grad():
                f_CT = without(self._question, self._options, removed_CU, self._how, steps)
            self._found |= zip(part, to_host(f_CT).astype(np.float64), strict=True)
        return np.array([self._found[key][row] for key, row in zip(keys, rows, strict=True)])

    def order(self, scores_TU: Floats) -> npt.NDArray[np.int64]:
        """Return the units of each row by descending score; of equal scores, the first unit first."""
        scores_TK = np.where(self.read_TU, scores_TU, -np.inf)[:, self.units]
        return np.asarray(self.units, np.int64)[np.argsort(-scores_TK, axis=1, kind="stable")]

    def random_order(self, seed: int) -> npt.NDArray[np.int64]:
        """Return one random order for all rows, which share the deletions then."""
        order_K = np.random.default_rng(seed).permutation(np.asarray(self.units, np.int64))
        found: npt.NDArray[np.int64] = order_K[np.argsort(~self.read_TU[:, order_K], axis=1, kind="stable")]
        return found

    def removed(self, count: int) -> npt.NDArray[np.bool_]:
        """Return [count, U] with nothing removed."""
        return np.zeros((count, len(self._question.source.is_word)), np.bool_)

    def drops(self, order_TK: npt.NDArray[np.int64]) -> Floats:
        """Return the drop f_t(x) − f_t(x without the first k units of the order of row t): [T, K], for k = 1 … K."""
        rows, units = order_TK.shape
        removed_NU = self.removed(rows * units)
        for t, (order_K, read) in enumerate(zip(order_TK, self.counts_T, strict=True)):
            for k in range(units):
                removed_NU[t * units + k, order_K[: min(k + 1, read)]] = True
        return self._drops(removed_NU)

    def kept_drops(self, order_TK: npt.NDArray[np.int64], kept_TQ: Counts) -> Floats:
        """Return the drop if only the first units of each order are kept, Q numbers of them for each row: [T, Q]."""
        rows, columns = kept_TQ.shape
        removed_NU = self.removed(rows * columns)
        for t, (order_K, read) in enumerate(zip(order_TK, self.counts_T, strict=True)):
            for j, kept in enumerate(kept_TQ[t]):
                removed_NU[t * columns + j, order_K[kept:read]] = True
        return self._drops(removed_NU)

    def _drops(self, removed_NU: npt.NDArray[np.bool_]) -> Floats:
        """Return the drops [T, N / T] without the units of each version, N / T versions for row 0 first."""
        rows = len(self.whole_T)
        f_N = self(removed_NU, np.repeat(np.arange(rows), len(removed_NU) // rows))
        drops: Floats = self.whole_T[:, None] - f_N.reshape(rows, -1)
        return drops

    def greedy(self) -> Floats:
        """Return the drops [T, K] of the order of a greedy search, 0 after the units that a row has read."""
        rows, units = len(self.whole_T), len(self.units)
        order_TK = np.zeros((rows, units), np.int64)
        drops_TK = np.zeros((rows, units))
        for k in range(units):
            owners: list[tuple[int, int]] = []
            parts = []
            for t in np.flatnonzero(self.counts_T > k).tolist():
                known = {unit for unit in self.units if self.read_TU[t, unit]}
                for unit in sorted(known - {*order_TK[t, :k].tolist()}):
                    removed_U = self.removed(1)
                    removed_U[0, [*order_TK[t, :k], unit]] = True
                    parts.append(removed_U)
                    owners.append((t, unit))
            if not owners:
                break
            f_N = self(np.concatenate(parts), np.array([t for t, _ in owners]))
            lowest: dict[int, tuple[float, int]] = {}
            for (t, unit), f in zip(owners, f_N, strict=True):
                lowest[t] = min(lowest.get(t, (math.inf, -1)), (float(f), unit))
            for t, (value, unit) in lowest.items():
                order_TK[t, k], drops_TK[t, k] = unit, self.whole_T[t] - value
        return drops_TK

    def area(self, drops_TK: Floats) -> Floats:
        """Return the mean drop of each row over all numbers of deleted units; NaN for a row that has read none."""
        drops_TK = np.where(np.arange(drops_TK.shape[1]) < self.counts_T[:, None], drops_TK, 0)
        total_T = drops_TK.sum(1)
        return np.divide(total_T, self.counts_T, out=np.full_like(total_T, np.nan), where=self.counts_T > 0)

    def shares(self, shares: Sequence[float]) -> Counts:
        """Return the number of units for each share of the units that a row has read, rounded up: [T, Q]."""
        return np.array([[math.ceil(share * count) for share in shares] for count in self.counts_T.tolist()])


@dataclass(frozen=True)
class Faithfulness:
    """The effect of deletions in the order of one method, for the T rows of one sentence; nats.

    The units of a row are those that it has read: of a language model the words before. The values are NaN for a row that
    has read none.

    Attributes:
        area_T: the mean drop over all numbers of deleted units.
        comprehensiveness_TQ: the drop without the first 10, 20 and 50% of the units, rounded up.
        sufficiency_TQ: the drop with these units only.
        curve_TP: the drop without the first 10, 20, … 100% of the units, rounded up.
    """

    area_T: Floats
    comprehensiveness_TQ: Floats
    sufficiency_TQ: Floats
    curve_TP: Floats


def faithfulness(deletions: Deletions, order_TK: npt.NDArray[np.int64]) -> Faithfulness:
    """Return the measures of an order."""
    drops_TK = deletions.drops(order_TK)
    kept_TQ = deletions.shares(SHARES)
    known_T1 = deletions.counts_T[:, None] > 0

    def drops_without(counts_TQ: Counts) -> Floats:
        found: Floats = np.where(known_T1, np.take_along_axis(drops_TK, counts_TQ - 1, 1), np.nan)
        return found

    return Faithfulness(
        deletions.area(drops_TK),
        drops_without(kept_TQ),
        np.where(known_T1, deletions.kept_drops(order_TK, kept_TQ), np.nan),
        drops_without(deletions.shares([percent / 100 for percent in PERCENTS])),
    )


def rank_correlation(scores_TU: Floats, others_TU: Floats, words_TU: npt.NDArray[np.bool_]) -> list[float]:
    """Return Kendall's τ_b of two attributions over the words of each row for which it is defined."""
    first_P, second_P = np.triu_indices(scores_TU.shape[1], 1)
    both_TP = words_TU[:, first_P] & words_TU[:, second_P]
    one_TP, other_TP = (
        np.sign(rows_TU[:, first_P] - rows_TU[:, second_P]) * both_TP for rows_TU in (scores_TU, others_TU)
    )
    with np.errstate(invalid="ignore"):  # 0 / 0 in a row of equal scores
        tau_T = (one_TP * other_TP).sum(1) / np.sqrt(abs(one_TP).sum(1)) / np.sqrt(abs(other_TP).sum(1))
    enough_T = words_TU.sum(1) >= LEAST_WORDS
    return [float(tau) for tau in tau_T[enough_T] if math.isfinite(tau)]
