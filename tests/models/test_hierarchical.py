"""The hierarchical encoder against its equations, one dialogue and one turn at a time, and in whole models."""

from typing import Any, Literal

import pytest
import torch
from small_models import VOCABULARY, batch_of, small_config, small_model, values_of
from torch import Tensor, nn

from seq2seq_lab.config.schema import Config
from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.tokenizers import EOS, PAD, SOS
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.encoders import HierarchicalEncoder
from seq2seq_lab.models.encoders.hierarchical import split_turns
from seq2seq_lab.models.ensemble import Ensemble
from seq2seq_lab.models.recurrent import Cell, RecurrentSpec
from seq2seq_lab.search.beam import BeamSearch
from seq2seq_lab.search.greedy import GreedySearch
from seq2seq_lab.tasks.losses import cross_entropy

Outputs = Literal["words", "turns", "both"]
E, H = 3, 4
DIALOGUES = (
    ((5, 6, 7), (8,), (9, 10)),
    ((4, 11),),
    ((12,), (), (5, 5, 5, 5), (6, 7)),
)
"""Tokens by turn and dialogue: different numbers of both, and an empty turn."""

every_output = pytest.mark.parametrize("outputs", ["words", "turns", "both"])


def dialogue_batch(repeated: int = 1) -> Batch:
    """Return the dialogues as sources, each with a target."""
    sources = [joined(turns) for turns in DIALOGUES] * repeated
    return batch_of(sources, [[4, 5], [6], [7, 8, 9]] * repeated)


def joined(turns: tuple[tuple[int, ...], ...]) -> list[int]:
    return [token for turn in turns for token in (*turn, EOS)][:-1]


def encoder(outputs: Outputs, cell: Cell, num_layers: int, bidirectional: bool) -> HierarchicalEncoder:
    torch.manual_seed(0)
    return HierarchicalEncoder(
        input_size=E,
        recurrent=RecurrentSpec(cell, H, num_layers, 0.0, False),
        bidirectional=bidirectional,
        outputs=outputs,
        encoder_output_dropout=0.0,
    ).double()


def by_the_equations(
    model: HierarchicalEncoder, turns: tuple[tuple[int, ...], ...], table: nn.Embedding
) -> tuple[Tensor, Tensor]:
    """Return (outputs_SM, the final state [L, H]) of one dialogue, each turn read alone."""
    words, last = [], []
    for number, turn in enumerate(turns):
        ids = torch.tensor([*([SOS] if number == 0 else []), *turn, EOS])
        states_1WM, final = model.words(table(ids)[None], None)
        words.append(states_1WM[0])
        last.append(final.hidden_LBH[-1, 0])
    turns_1UM, final = model.turns(torch.stack(last)[None], None)
    rows = {
        "words": torch.cat(words),
        "turns": turns_1UM[0],
        "both": torch.cat(
            [
                torch.cat([word, turn.expand(len(word), -1)], -1)
                for word, turn in zip(words, turns_1UM[0], strict=True)
            ]
        ),
    }
    return rows[model.outputs], final.hidden_LBH[:, 0]


@every_output
@pytest.mark.parametrize(
    ("cell", "num_layers", "bidirectional"), [("gru", 1, True), ("lstm", 2, False), ("rnn", 2, True)]
)
def test_outputs_and_gradients_are_those_of_the_equations(
    outputs: Outputs, cell: Cell, num_layers: int, bidirectional: bool
) -> None:
    model = encoder(outputs, cell, num_layers, bidirectional)
    table = nn.Embedding(VOCABULARY, E).double()
    found = model.encode(dialogue_batch(), table)
    assert found.final is not None
    assert found.outputs_BSM.shape[2] == model.sizes.encoder_output_size
    expected = [by_the_equations(model, turns, table) for turns in DIALOGUES]
    assert found.lengths == [len(outputs_SM) for outputs_SM, _ in expected]
    weights: list[Any] = [*model.parameters(), *table.parameters()]
    direction_SM = torch.randn(100, found.outputs_BSM.shape[2], dtype=torch.float64)
    totals = [torch.zeros((), dtype=torch.float64)] * 2
    for row, (outputs_SM, final_LH) in enumerate(expected):
        alone_SM = found.outputs_BSM[row, : len(outputs_SM)]
        torch.testing.assert_close(alone_SM, outputs_SM, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(found.final.hidden_LBH[:, row], final_LH, rtol=1e-10, atol=1e-12)
        assert found.outputs_BSM[row, len(outputs_SM) :].abs().sum() == 0
        for number, (rows_SM, state_LH) in enumerate(
            ((alone_SM, found.final.hidden_LBH[:, row]), (outputs_SM, final_LH))
        ):
            totals[number] = totals[number] + (rows_SM * direction_SM[: len(rows_SM)]).sum() + state_LH.sum()
    gradients = [torch.autograd.grad(total, weights, allow_unused=True) for total in totals]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-11)


def test_a_source_is_split_after_each_eos() -> None:
    batch = dialogue_batch()
    assert batch.turn_lengths == ((5, 2, 3), (4,), (3, 1, 5, 3))
    assert batch.twice().turn_lengths == batch.turn_lengths * 2
    source_NW, lengths, turns = split_turns(batch.source_BS, batch.turn_lengths)
    assert turns == [3, 1, 4]
    assert lengths == [5, 2, 3, 4, 3, 1, 5, 3]
    assert source_NW[0].tolist() == [SOS, 5, 6, 7, EOS]
    assert source_NW[5].tolist() == [EOS, PAD, PAD, PAD, PAD]
    assert source_NW[7].tolist() == [6, 7, EOS, PAD, PAD]


def config(outputs: Outputs, decoder: str = "luong", attention: str = "additive", **model: object) -> Config:
    made = small_config(encoder="hierarchical", decoder=decoder, attention=attention, **model)
    assert made.encoder is not None
    made.encoder["outputs"] = outputs
    return made


@every_output
def test_embeddings_from_outside_are_split_as_the_tokens_are(outputs: Outputs) -> None:
    model, batch = small_model(config(outputs)).double().eval(), dialogue_batch()
    plain_BTV, _ = model(batch, batch.inputs_BT)
    embedded_BSE = model.embed_source(batch.source_BS).detach().requires_grad_()
    logits_BTV, _ = model.unroll(batch.inputs_BT, *model.start(batch, embedded_BSE))
    assert torch.equal(logits_BTV, plain_BTV)
    logits_BTV[:, -1].square().sum().backward()
    assert embedded_BSE.grad is not None
    assert torch.equal(embedded_BSE.grad.abs().sum(-1) > 0, batch.source_BS != PAD)
    with pytest.raises(UserError, match=r"embedded_BSE of shape \[3, 11, 6\].*tokens of shape \[8, 5\]"):
        model.start(batch, embedded_BSE[:, :-1])


def test_attention_to_both_is_the_product_of_attention_to_words_and_to_turns() -> None:
    """With `multiplicative` scores: α_j ∝ α_j(word) · α(turn of j), the product of two softmaxes (Nallapati 2016, §2.4)."""
    model = small_model(config("both", attention="multiplicative")).double()
    batch = dialogue_batch()
    state, source = model.start(batch)
    token_B = torch.full((len(DIALOGUES),), SOS)
    _, _, weights_BS = model.step(token_B, state, source)
    assert weights_BS is not None
    size = source.encoder_outputs_BSM.shape[2] // 2
    features_BQ, *_ = model.decoder.layers.step(model.embed_target(token_B), state.layers)
    attention = model.decoder.attention
    keys_BSM, query = source.encoder_outputs_BSM, features_BQ[:, None]
    halves = [
        torch.cat([keys_BSM[..., :size], torch.zeros_like(keys_BSM[..., size:])], -1),
        torch.cat([torch.zeros_like(keys_BSM[..., :size]), keys_BSM[..., size:]], -1),
    ]
    scores = [attention.score(query, attention.project(half))[:, 0] for half in halves]
    for row, turns in enumerate(DIALOGUES):
        lengths = [len(turn) + 1 + (number == 0) for number, turn in enumerate(turns)]
        turn_S = torch.arange(len(turns)).repeat_interleave(torch.tensor(lengths))
        word_S = scores[0][row, : len(turn_S)].softmax(0)
        starts = [sum(lengths[:number]) for number in range(len(turns))]
        of_turn_S = scores[1][row, starts].softmax(0)[turn_S]
        expected_S = word_S * of_turn_S / (word_S * of_turn_S).sum()
        torch.testing.assert_close(weights_BS[row, : len(turn_S)], expected_S, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    ("outputs", "decoder", "attention"),
    [
        *(("both", "luong", one) for one in values_of("attention") if one not in ("none", "dot", "linear")),
        *(("both", one, "additive") for one in ("bahdanau", "luong_feeding", "conditional", "transformer")),
        *(("turns", "luong", one) for one in ("scaled_dot", "local", "coverage", "location")),
        *(("words", "bahdanau", one) for one in ("additive", "location_sensitive")),
        ("turns", "context", "none"),
    ],
)
def test_every_attention_and_decoder_unrolls_as_it_steps(
    outputs: Outputs, decoder: str, attention: str
) -> None:
    model = small_model(config(outputs, decoder, attention)).double().eval()
    batch = dialogue_batch()
    logits_BTV, weights_BTS = model(batch, batch.inputs_BT)
    state, source = model.start(batch)
    for t, token_B in enumerate(batch.inputs_BT.unbind(1)):
        log_probs_BV, state, weights_BS = model.step(token_B, state, source)
        torch.testing.assert_close(log_probs_BV, logits_BTV[:, t].log_softmax(-1), rtol=1e-8, atol=1e-10)
        if weights_BTS is not None:
            torch.testing.assert_close(weights_BS, weights_BTS[:, t], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    ("decoder", "attention", "bridge", "key"),
    [
        ("luong", "additive", "mean", r"model\.bridge=mean"),
        ("bahdanau", "additive", "zero", r"model\.bridge=zero"),
        ("transformer", "scaled_dot", "tanh", "decoder=transformer"),
    ],
)
def test_an_rnn_over_turns_that_is_not_read_is_refused(
    decoder: str, attention: str, bridge: str, key: str
) -> None:
    for outputs in ("turns", "both"):
        small_model(config(outputs, decoder, attention, bridge=bridge))
    with pytest.raises(UserError, match=rf"{key} .*encoder\.outputs=words"):
        small_model(config("words", decoder, attention, bridge=bridge))


def test_with_words_a_decoder_that_reads_the_final_state_trains_the_rnn_over_turns() -> None:
    batch = dialogue_batch()
    for settings in (("luong", "additive", "tanh"), ("context", "none", "mean"), ("context", "none", "zero")):
        decoder, attention, bridge = settings
        model = small_model(config("words", decoder, attention, bridge=bridge))
        model(batch, batch.inputs_BT)[0].sum().backward()
        turns = [*model.encoder.turns.named_parameters()]
        assert turns
        assert all(weight.grad is not None for _, weight in turns)


@every_output
def test_searches_and_ensembles(outputs: Outputs) -> None:
    """A dialogue has the same response alone and in a batch, with beam search and an ensemble."""
    limits: dict[str, Any] = {"min_length_factor": 0.0, "max_length_factor": 0.0, "max_length_extra": 4}
    model = Ensemble([small_model(config(outputs), seed).double().eval() for seed in (0, 1)])
    beam = BeamSearch(size=3, length_penalty=0.6, length_offset=5, coverage_penalty=0.1, nbest=2, **limits)
    whole = beam(model, dialogue_batch(), True)
    for search in (beam, GreedySearch(**limits)):
        together = search(model, dialogue_batch(), True)
        for row, turns in enumerate(DIALOGUES):
            ((alone, *_),) = search(model, batch_of([joined(turns)], [[4]]), True)
            assert alone.tokens == together[row][0].tokens
            assert alone.log_prob == pytest.approx(together[row][0].log_prob)
    columns = len(DIALOGUES[2]) if outputs == "turns" else len(joined(DIALOGUES[2])) + 2
    weights_TS = whole[2][0].weights_TS
    assert weights_TS is not None
    assert weights_TS.shape[1] == columns


def test_a_few_dialogues_are_learned() -> None:
    model, batch = small_model(config("both")), dialogue_batch()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    losses = []
    for _ in range(80):
        optimizer.zero_grad()
        logits_BTV, _ = model(batch, batch.inputs_BT)
        loss = cross_entropy(logits_BTV, batch.outputs_BT, 0.0) / batch.target_tokens
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > 2
    assert min(losses) < 0.1
