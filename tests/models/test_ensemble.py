"""Ensembles: the mean of probabilities, step by step and at once."""

import pytest
import torch
from small_models import batch_of, beam_search, ragged_batch, small_config, small_model

from seq2seq_lab.data.tokenizers import EOS
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.ensemble import Ensemble
from seq2seq_lab.models.seq2seq import EncodedModel, Seq2Seq
from seq2seq_lab.search.base import Search
from seq2seq_lab.search.greedy import GreedySearch


def member(seed: int, decoder: str = "luong", attention: str = "additive") -> Seq2Seq:
    return small_model(small_config("gru", decoder, attention), seed=seed).double().eval()


def test_it_is_the_mean_of_its_members() -> None:
    members = [member(1), member(2, "luong_feeding"), member(3, "plain", "none")]
    given = ragged_batch()
    arguments = (given, given.inputs_BT)
    with torch.no_grad():
        logits_BTV, weights_BTS = EncodedModel(Ensemble(members), given)(*arguments)
        apart = [one(*arguments) for one in members]
    mean_BTV = sum(logits.softmax(-1) for logits, _ in apart) / 3
    torch.testing.assert_close(logits_BTV.exp(), mean_BTV, rtol=1e-6, atol=1e-8)
    first, second = apart[0][1], apart[1][1]
    assert weights_BTS is not None
    assert first is not None
    assert second is not None
    torch.testing.assert_close(weights_BTS, (first + second) / 2)  # the mean over the members with attention


def test_its_steps_are_its_unrolling() -> None:
    given, ensemble = ragged_batch(), Ensemble([member(1), member(2, "bahdanau")])
    with torch.no_grad():
        state, source = ensemble.start(given)
        logits_BTV, _ = ensemble.unroll(given.inputs_BT, state, source)
        for t, token_B in enumerate(given.inputs_BT.unbind(1)):
            log_probs_BV, state, _ = ensemble.step(token_B, state, source)
            torch.testing.assert_close(log_probs_BV, logits_BTV[:, t], rtol=1e-5, atol=1e-6)


def test_members_that_attend_to_different_positions_have_no_mean_weights() -> None:
    turns = small_model(small_config("hierarchical", "luong", "additive")).double().eval()
    ensemble, given = Ensemble([member(1), turns]), batch_of([[5, EOS, 6], [7, 8]], [[4, 5], [6]])
    state, source = ensemble.start(given)
    assert not ensemble.attends
    assert ensemble.unroll(given.inputs_BT, state, source)[1] is None
    assert ensemble.step(given.inputs_BT[:, 0], state, source)[2] is None
    turns.encoder.output_per_token = True  # as encoders of images, whose numbers of regions differ
    assert ensemble.attends
    assert ensemble.unroll(given.inputs_BT, state, source, with_weights=False)[1] is None
    assert ensemble.step(given.inputs_BT[:, 0], state, source, with_weights=False)[2] is None
    with pytest.raises(UserError, match="attention weights"):
        ensemble.unroll(given.inputs_BT, state, source)
    with pytest.raises(UserError, match="attention weights"):
        ensemble.step(given.inputs_BT[:, 0], state, source)


def test_positions_are_those_of_the_members_that_attend() -> None:
    turns = small_model(small_config("hierarchical", "plain", "none")).double().eval()
    given = batch_of([[5, EOS, 6], [7, 8]], [[4, 5], [6]])
    lengths = []
    for members in ([turns, member(1)], [member(1), turns]):
        state, source = Ensemble(members).start(given)
        lengths.append(source.select(torch.tensor([1, 0])).lengths_B.tolist())
        _, _, weights_BS = Ensemble(members).step(given.inputs_BT[:, 0], state, source)
        assert weights_BS is not None
        assert weights_BS.shape[1] == max(lengths[-1])
    assert lengths[0] == lengths[1] == [*given.source_lengths][::-1]


@pytest.mark.parametrize(
    "search",
    [
        GreedySearch(0.0, 1.0, 3),
        beam_search(3, length_penalty=0.6, nbest=2, max_length_extra=3),
    ],
)
def test_an_ensemble_of_one_model_twice_is_that_model(search: Search) -> None:
    one = member(1)
    alone, twice = search(one, ragged_batch(), True), search(Ensemble([one, one]), ragged_batch(), True)
    for mine, theirs in zip(alone, twice, strict=True):
        assert [h.tokens for h in mine] == [h.tokens for h in theirs]
        assert [h.score for h in mine] == pytest.approx([h.score for h in theirs], rel=1e-5)
    other = search(Ensemble([one, member(2)]), ragged_batch(), True)
    assert [h.score for h in other[0]] != pytest.approx([h.score for h in alone[0]], rel=1e-5)
