"""Greedy search on a model with given log-probabilities."""

import math
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor

from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.tokenizers import EOS, PAD, SOS, UNK
from seq2seq_lab.models.decoders import Source
from seq2seq_lab.models.recurrent import RecurrentState
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.search.base import Hypothesis, LengthLimits
from seq2seq_lab.search.greedy import GreedySearch

V = 8
Script = list[dict[int, float]]

# For each source word, the probabilities of some tokens at each step; the other tokens share the rest. The last entry
# applies to all later steps.
SCRIPTS: dict[int, Script] = {
    4: [{5: 0.6, EOS: 0.2}, {6: 0.5, 5: 0.3}, {EOS: 0.9}, {7: 0.9}],
    5: [{EOS: 0.7, 6: 0.2}, {7: 0.9}],
    6: [{7: 0.5, 4: 0.4}],  # never ends
    7: [{PAD: 0.6, SOS: 0.2, 6: 0.1}, {SOS: 0.9, UNK: 0.05}, {PAD: 0.5, EOS: 0.3}],
}


class Scripted:
    """Predicts what the script of the first source word contains; the state holds the step and the word.

    All attention of step t is on position t, or on the last one.
    """

    def __init__(self, attends: bool = True) -> None:
        self.attends = attends
        self.read: list[list[int]] = []

    def start(self, batch: Batch) -> tuple[RecurrentState, Source]:
        source_BS1, lengths_B = batch.source_BS[..., None], torch.tensor(batch.source_lengths)
        state = RecurrentState(torch.zeros(1, len(lengths_B), 1), batch.source_BS[None, :, 1:2])
        return state, Source(source_BS1.float(), source_BS1, lengths_B, None, state)

    def step(
        self, token_B: Tensor, state: RecurrentState, source: Source, with_weights: bool
    ) -> tuple[Tensor, RecurrentState, Tensor | None]:
        assert state.cell_LBH is not None
        self.read.append(token_B.tolist())
        steps, words = state.hidden_LBH[0, :, 0].int().tolist(), state.cell_LBH[0, :, 0].tolist()
        log_probs_BV = torch.tensor(
            [distribution(word, t) for word, t in zip(words, steps, strict=True)]
        ).log()
        weights_BS = torch.zeros(source.encoder_outputs_BSM.shape[:2])
        for row, (t, length) in enumerate(zip(steps, source.lengths_B.tolist(), strict=True)):
            weights_BS[row, min(t, length - 1)] = 1
        return (
            log_probs_BV,
            state._replace(hidden_LBH=state.hidden_LBH + 1),
            weights_BS if self.attends else None,
        )


def distribution(word: int, t: int) -> list[float]:
    script = SCRIPTS[word]
    said = script[min(t, len(script) - 1)]
    left = (1 - sum(said.values())) / (V - len(said))
    return [said.get(token, left) for token in range(V)]


def batch_of(*sources: list[int]) -> Batch:
    width = max(map(len, sources))
    rows = [[SOS, *source, EOS] + [PAD] * (width - len(source)) for source in sources]
    return Batch(
        index_B=torch.arange(len(sources)),
        source_BS=torch.tensor(rows),
        source_lengths=tuple(len(source) + 2 for source in sources),
        target_BU=torch.tensor([[SOS, EOS]] * len(sources)),
        target_tokens=len(sources),
    )


def search(
    *sources: list[int], factor: float = 1.0, extra: int = 2, with_weights: bool = True, attends: bool = True
) -> list[Hypothesis]:
    model = cast(Seq2Seq, Scripted(attends))
    found = GreedySearch(0.0, factor, extra)(model, batch_of(*sources), with_weights)
    assert all(len(hypotheses) == 1 for hypotheses in found)
    return [hypothesis for (hypothesis,) in found]


# source, output tokens, their probabilities and that of `<eos>`, computed from the scripts by hand
GOLDEN = [
    pytest.param([4], [5, 6], [0.6, 0.5, 0.9], id="stops at <eos>"),
    pytest.param([5, 4], [], [0.7], id="an empty sentence"),
    pytest.param([6], [7] * 5, [0.5] * 5, id="the limit: S + 2"),
    pytest.param([6, 4, 4, 4], [7] * 8, [0.5] * 8, id="the limit of a longer source"),
    pytest.param([7], [6, UNK], [0.1, 0.05, 0.3], id="never <pad> or <sos>"),
]


@pytest.mark.parametrize(("source", "tokens", "probabilities"), GOLDEN)
def test_golden(source: list[int], tokens: list[int], probabilities: list[float]) -> None:
    (found,) = search(source)
    assert found.tokens == tokens
    assert found.ended == (len(probabilities) > len(tokens))
    assert found.log_prob == pytest.approx(sum(map(math.log, probabilities)), rel=1e-5)
    assert found.weights_TS is not None
    assert found.weights_TS.shape == (len(probabilities), len(source) + 2)
    expected = [min(t, len(source) + 1) for t in range(len(probabilities))]
    assert found.weights_TS.argmax(1).tolist() == expected


@pytest.mark.parametrize("copies", [1, 2])
def test_a_batch_equals_each_sentence_alone(copies: int) -> None:
    sources = [[4], [5, 4], [6], [6, 4, 4, 4], [7]] * copies
    for source, together in zip(sources, search(*sources), strict=True):
        (alone,) = search(source)
        assert together.tokens == alone.tokens
        assert together.log_prob == pytest.approx(alone.log_prob, rel=1e-6)
        assert together.weights_TS is not None
        assert alone.weights_TS is not None
        np.testing.assert_array_equal(together.weights_TS, alone.weights_TS)


@pytest.mark.parametrize(
    ("factor", "extra", "limit"),
    [(1.0, 1, 5), (2.0, 10, 18), (0.0, 3, 3), (0.0, 1, 1), (1.5, 1, 7), (0.6, 1, 3)],
)
def test_a_sentence_without_end_stops_at_its_limit(factor: float, extra: int, limit: int) -> None:
    """S is 4."""
    (found,) = search([6, 4], factor=factor, extra=extra)
    assert found.tokens == [7] * limit


def test_limits_are_exact_for_decimal_factors() -> None:
    assert LengthLimits(0.29, 1.1, 1).bounds([100, 110, 30]) == ([29, 31, 8], [111, 122, 34])


def test_eos_at_the_limit_still_ends_the_sentence() -> None:
    (found,) = search([4], factor=0.0, extra=3)
    assert found.tokens == [5, 6]
    assert found.log_prob == pytest.approx(math.log(0.6 * 0.5 * 0.9), rel=1e-5)
    (cut,) = search([4], factor=0.0, extra=2)
    assert cut.tokens == [5, 6]
    assert cut.log_prob == pytest.approx(math.log(0.6 * 0.5), rel=1e-5)
    assert cut.weights_TS is not None
    assert len(cut.weights_TS) == 2


def test_it_reads_its_tokens_and_stops_when_all_have_ended() -> None:
    model = Scripted()
    GreedySearch(0.0, 5.0, 50)(cast(Seq2Seq, model), batch_of([4], [5]), with_weights=False)
    assert model.read == [[SOS, SOS], [5], [6]]  # the second sentence ends at once, and is left out


@pytest.mark.parametrize(("with_weights", "attends"), [(False, True), (True, False), (False, False)])
def test_without_weights(with_weights: bool, attends: bool) -> None:
    (found,) = search([4], with_weights=with_weights, attends=attends)
    assert found.tokens == [5, 6]
    assert found.weights_TS is None
