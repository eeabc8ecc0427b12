"""Tiny models learn what they must be able to learn."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch
from small_models import batch_of, random_sentences, small_config, small_model, values_of

from seq2seq_lab.config.schema import origin
from seq2seq_lab.data.batch import Batch
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.search.greedy import GreedySearch
from seq2seq_lab.tasks.losses import cross_entropy, teacher_forced


def train(model: Seq2Seq, batches: Iterable[Batch], rates: list[float]) -> Iterator[float]:
    """One Adam step per batch; yield the loss before it."""
    optimizer = torch.optim.Adam(model.parameters())
    for batch, rate in zip(batches, rates, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        logits_BTV, _ = model(batch, batch.inputs_BT)
        loss = cross_entropy(logits_BTV, batch.outputs_BT, label_smoothing=0.0) / batch.target_tokens
        yield loss.item()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


SHARED = {"share_layers": True, "bridge": "copy"}
TRANSFORMER = {"num_layers": 2, "num_heads": 4, "feedforward_size": 64}
OVERFIT: list[tuple[str, str, str, dict[str, Any]]] = [
    ("rnn", "luong", "additive", {}),
    ("lstm", "luong", "scaled_dot", {}),
    ("birnn", "luong", "dot", {}),
    ("bigru", "plain", "none", {}),
    ("gru", "plain", "none", {"reverse_source": True}),
    ("lstm", "plain", "none", SHARED),
    ("gru", "context", "none", {}),
    ("bigru", "bahdanau", "additive", {}),
    ("gru", "tutorial", "location", {}),
    ("gru", "tutorial_plain", "none", {}),
    ("lstm", "luong_feeding", "additive", {}),
    ("bigru", "conditional", "additive", {"bridge": "mean"}),
    ("bilstm", "conditional", "multiplicative", {"bridge": "zero"}),
    ("gru", "luong_feeding", "coverage", {}),
    ("bigru", "luong", "location_sensitive", {}),
    ("lstm", "conditional", "local", {}),
    ("bigru", "luong", "uniform", {}),
    *[(name, name, "scaled_dot", TRANSFORMER) for name in ("transformer", "transformer_post_norm")],
]


@pytest.mark.parametrize(
    ("encoder", "decoder", "attention", "options"),
    [pytest.param(*case, id="-".join([*case[:3], *case[3]])) for case in OVERFIT],
)
def test_overfits_random_pairs(encoder: str, decoder: str, attention: str, options: dict[str, Any]) -> None:
    """The model memorises 64 random pairs, and greedy search reproduces them."""
    width = 32 if encoder.startswith("bi") else 64
    sizes = {"embedding_size": 32, "hidden_size": 64, "encoder_hidden_size": width}
    model = small_model(small_config(encoder, decoder, attention, **(sizes | options)))
    targets = random_sentences([2, 3, 4, 3] * 16, seed=2)
    batch = batch_of(random_sentences([4] * 64, seed=1), targets)
    assert any(loss < 0.03 for loss in train(model, [batch] * 200, [1e-2] * 200))
    with torch.inference_mode():
        loss, _ = teacher_forced(model.eval(), batch)
    assert loss.sum().item() / batch.target_tokens < 0.05
    found = GreedySearch(min_length_factor=0.0, max_length_factor=1.0, max_length_extra=1)(
        model, batch, with_weights=False
    )
    assert (
        sum(hypothesis.tokens == target for (hypothesis,), target in zip(found, targets, strict=True)) >= 63
    )


def test_every_decoder_and_attention_function_overfits() -> None:
    assert {case[1] for case in OVERFIT} == {*values_of("decoder")}
    assert {case[2] for case in OVERFIT} == {origin("attention", value) for value in values_of("attention")}


@pytest.mark.parametrize(
    ("decoder", "attention", "reverse"),
    [
        ("luong", "multiplicative", False),
        ("bahdanau", "additive", True),
    ],
)
def test_attention_finds_the_diagonal(decoder: str, attention: str, reverse: bool) -> None:
    """Source position 0 is `<sos>`, so word t is copied from position t + 1, in reverse from S - 2 - t.

    Row t of the weights belongs to output t in every decoder. Over four seeds of each case, the arg-max was right at 90.1%
    of the positions or more, and the mean weight there at least 0.616; a uniform weight is 0.125.
    """
    sizes: dict[str, Any] = {"embedding_size": 16, "hidden_size": 32, "encoder_hidden_size": 16}
    model = small_model(small_config("bigru", decoder, attention, **sizes), seed=0)
    rates = [1e-2] * 250 + [2e-3] * 50
    batches = [copying(3 + number % 5, number, reverse) for number in range(len(rates))]
    losses = [*train(model, batches, rates)]
    assert losses[-1] < 0.1 * losses[0]
    length = 6
    unseen = copying(length, 999_999, reverse)
    _, weights_BTS = model(unseen, unseen.inputs_BT)
    words_BTS = weights_BTS[:, :length].detach()
    expected_T = torch.arange(1, length + 1)
    if reverse:
        expected_T = expected_T.flip(0)
    assert (words_BTS.argmax(-1) == expected_T).double().mean() > 0.85
    assert words_BTS[:, torch.arange(length), expected_T].mean() > 0.55


def copying(length: int, seed: int, reverse: bool) -> Batch:
    """32 random sentences whose translations are the same sentences, or the reversed ones."""
    sources = random_sentences([length] * 32, seed)
    return batch_of(sources, [source[::-1] if reverse else source for source in sources])
