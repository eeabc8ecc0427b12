"""Sampling against the distribution that it draws from."""

import numpy as np
import pytest
import torch
from small_models import batch_of, random_sentences, sampling_search, small_config, small_model

from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.tokenizers import EOS, PAD, SOS
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.search.greedy import GreedySearch
from seq2seq_lab.search.sampling import SamplingSearch, draw_index

VOCABULARY = 12
DRAWS = 4000
SIGNIFICANT = 34.5  # the 99.95th percentile of χ² with 12 degrees of freedom; the tests have at most 12


def model_of() -> Seq2Seq:
    return small_model(small_config(), vocabulary=VOCABULARY).eval()


def sentences(*lengths: int) -> Batch:
    return batch_of(random_sentences(lengths, seed=1, vocabulary=VOCABULARY), [[] for _ in lengths])


def first_tokens(search: SamplingSearch, model: Seq2Seq, batch: Batch) -> np.ndarray:
    """How often each token is the first one drawn."""
    (found,) = search(model, batch, False)
    drawn = [h.tokens[0] if h.tokens else EOS for h in found]
    return np.bincount(drawn, minlength=VOCABULARY)


def chi_square(counts: np.ndarray, probabilities: np.ndarray) -> float:
    expected = probabilities / probabilities.sum() * counts.sum()
    assert (counts[expected == 0] == 0).all()
    there = expected > 0
    return float(((counts - expected)[there] ** 2 / expected[there]).sum())


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(1.0, None, 1.0), (0.5, None, 1.0), (1.0, 3, 1.0), (1.0, None, 0.6), (2.0, 6, 0.5)],
)
def test_draws_follow_the_softmax(temperature: float, top_k: int | None, top_p: float) -> None:
    model, batch = model_of(), sentences(4)
    state, source = model.start(batch)
    with torch.no_grad():
        log_probs_V = model.step(torch.tensor([SOS]), state, source)[0][0].double().numpy()
    log_probs_V[[PAD, SOS]] = -np.inf
    probabilities = np.exp(log_probs_V / temperature)
    order = np.argsort(-probabilities)
    share = probabilities / probabilities.sum()
    kept, total = [], 0.0
    for token in order[:top_k]:
        if total < top_p:
            kept.append(token)
        total += share[token]
    cut = np.zeros_like(probabilities)
    cut[kept] = probabilities[kept]
    settings = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "nbest": DRAWS}
    search = sampling_search(**settings, max_length_factor=0.0, max_length_extra=1)
    counts = first_tokens(search, model, batch)
    assert counts.sum() == DRAWS
    assert chi_square(counts, cut) < SIGNIFICANT
    # The test tells distributions apart.
    assert chi_square(counts + 1, np.ones(VOCABULARY)) > SIGNIFICANT


@pytest.mark.parametrize("weights", [(0, 3, 0, 7, 0), (7, 3, 0, 0, 0), (0, 1e-45, 0, 0, 0)])
def test_an_index_of_probability_0_is_never_drawn(weights: tuple[float, ...]) -> None:
    draws_AK = torch.cat([torch.linspace(0, 1, 1001)[:-1], torch.tensor([1 - 2**-24])])[None]
    probs_AKC = torch.tensor(weights, dtype=torch.float32).expand(1, draws_AK.shape[1], -1).contiguous()
    counts = np.bincount(draw_index(probs_AKC, draws_AK)[0].numpy(), minlength=len(weights))
    np.testing.assert_allclose(counts / 1001, np.array(weights) / sum(weights), atol=0.002)
    assert (counts[np.array(weights) == 0] == 0).all()


def test_a_token_of_probability_0_is_not_drawn_at_any_temperature() -> None:
    probs_V = torch.tensor([0.5, 0.5, 1e-30, torch.finfo(torch.float32).tiny])
    search = sampling_search(temperature=1000.0, nbest=DRAWS)
    log_probs_1KV = probs_V.log().log_softmax(-1).expand(1, DRAWS, -1)
    counts = np.bincount(search.choose(log_probs_1KV, torch.zeros(1, dtype=torch.long), 0)[0], minlength=4)
    assert counts[3] == 0
    assert counts[:3].min() > DRAWS / 4


def test_towards_temperature_0_it_is_greedy() -> None:
    model, batch = model_of(), sentences(*range(1, 9))
    greedy = GreedySearch(0.0, 1.0, 4)(model, batch, True)
    for (drawn,), (best,) in zip(sampling_search(temperature=1e-4)(model, batch, True), greedy, strict=True):
        assert drawn.tokens == best.tokens
        assert drawn.log_prob == pytest.approx(best.log_prob, rel=1e-5)
        assert drawn.weights_TS is not None
        np.testing.assert_allclose(drawn.weights_TS, best.weights_TS, rtol=1e-5)


def test_a_draw_depends_on_seed_and_sentence_and_not_on_the_batch() -> None:
    model, batch = model_of(), sentences(5, 5, 2, 7)
    found = sampling_search(nbest=3)(model, batch, False)
    again = sampling_search(nbest=3)(model, batch, False)
    other = sampling_search(nbest=3, seed=2)(model, batch, False)
    assert found == again
    assert found != other
    assert len({tuple(h.tokens) for h in found[3]}) == 3
    for row, length in enumerate(batch.source_lengths):
        alone = batch_of([batch.source_BS[row, 1 : length - 1].tolist()], [[]])
        alone.index_B[0] = row
        ((*drawn,),) = sampling_search(nbest=3)(model, alone, False)
        assert [h.tokens for h in drawn] == [h.tokens for h in found[row]]
    alone.index_B[0] = 9
    assert [h.tokens for h in sampling_search(nbest=3)(model, alone, False)[0]] != [
        h.tokens for h in found[3]
    ]
