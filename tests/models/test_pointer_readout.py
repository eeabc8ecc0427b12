"""The pointer-generator: its formula in loops, words of the source without an embedding, and the searches."""

from typing import Any

import pytest
import torch
from small_models import batch_of, beam_search, small_config, small_model
from torch.nn import functional

from seq2seq_lab.config.schema import Config
from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.tokenizers import SOS, UNK
from seq2seq_lab.errors import UserError

TYPES, COPIED = 13, 3  # V + copied types


def pointer_config(decoder: str = "luong", copied: int = COPIED, **model: object) -> Config:
    config = small_config("bigru", decoder, "additive", "pointer", **model)
    config.readout = {**(config.readout or {}), "copied_words": copied}
    return config


def batch() -> Batch:
    return batch_of([[4, 10, 5, 11, 10], [12, 10]], [[10, 6], [12, 4, 10]])


@pytest.mark.parametrize("decoder", ["luong", "bahdanau"])
def test_probabilities_are_those_of_the_formula_in_loops(decoder: str) -> None:
    model, given = small_model(pointer_config(decoder), vocabulary=TYPES).double(), batch()
    with torch.no_grad():
        state, source = model.start(given)
        log_probs_BTV, weights_BTS = model.unroll(given.inputs_BT, state, source)
        features_BTF = model.decoder.unroll(model.embed_target(given.inputs_BT), state, source)[0]
    assert weights_BTS is not None
    assert log_probs_BTV.shape[-1] == TYPES == model.vocabulary_size
    readout: Any = model.readout
    for b, length in enumerate(given.source_lengths):
        for t in range(given.inputs_BT.shape[1]):
            with torch.no_grad():
                generate = torch.sigmoid(readout.generate(features_BTF[b, t]))
                vocabulary = functional.linear(features_BTF[b, t], *readout.linear.parameters()).softmax(-1)
            for w in range(TYPES):
                copied = sum(weights_BTS[b, t, s] for s in range(length) if int(given.source_BS[b, s]) == w)
                generated = generate * vocabulary[w] if w < TYPES - COPIED else 0
                expected = generated + (1 - generate) * copied
                assert log_probs_BTV[b, t, w].exp().item() == pytest.approx(float(expected), abs=1e-12)


def test_words_of_the_source_are_read_as_unknown() -> None:
    model = small_model(pointer_config(tied_embeddings="target"), vocabulary=TYPES)
    for embedding in (model.source_embedding, model.target_embedding):
        assert embedding is not None
        assert len(embedding.weight) == TYPES - COPIED
        found = embedding(torch.tensor([9, 10, 12]))
        assert torch.equal(found, embedding(torch.tensor([9, UNK, UNK])))


def test_a_search_finds_copied_words_and_continues_a_prefix() -> None:
    model, given = small_model(pointer_config(), vocabulary=TYPES).eval(), batch()
    with torch.no_grad():
        model.readout.generate.bias.fill_(-20)  # copy always
    search: Any = beam_search(2, max_length_extra=2)
    for row, hypotheses in enumerate(search(model, given, False)):
        source = {*given.source_BS[row].tolist()}
        assert all({*one.tokens} <= source for one in hypotheses)
    (best, *_), _ = search(model, given, False, prefix=[[11], [12]])
    assert best.tokens[0] == 11
    log_probs, _ = model(given, torch.tensor([[SOS, 11], [SOS, 12]]))
    assert log_probs.isfinite().all()


def test_without_copied_words_the_output_is_the_vocabulary() -> None:
    model = small_model(pointer_config(copied=0), vocabulary=TYPES)
    assert model.vocabulary_size == TYPES == len(model.target_embedding.weight)
    with pytest.raises(UserError, match=r"readout\.copied_words=13"):
        small_model(pointer_config(copied=TYPES), vocabulary=TYPES)
