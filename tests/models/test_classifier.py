"""The classifier and its poolings: padding has no effect, and the formulas are those of the papers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from seq2seq_lab.models.attention import (
    AdditiveAttention,
    CoverageAttention,
    LocalAttention,
    LocationAttention,
    NoAttention,
)
from seq2seq_lab.models.classifier import Classifier
from seq2seq_lab.models.dropout import EmbeddingDropout
from seq2seq_lab.models.embedding import Embedding
from seq2seq_lab.models.encoders import EncoderSizes, RecurrentEncoder, TransformerEncoder
from seq2seq_lab.models.pooling import (
    Attender,
    AttentionPooling,
    FirstOutput,
    LastState,
    MaxPooling,
    MeanPooling,
    Pooling,
)
from seq2seq_lab.models.readouts import LinearReadout
from seq2seq_lab.models.recurrent import RecurrentSpec
from seq2seq_lab.models.transformer import TransformerSpec
from seq2seq_lab.training import checkpoint

LENGTHS = (5, 2, 7, 5)
POOLINGS = ("last", "mean", "max", "first", "attention", "attender")
OF_OUTPUTS = {"last": LastState, "mean": MeanPooling, "max": MaxPooling, "first": FirstOutput}


@dataclass(frozen=True)
class Batch:
    source_BS: Tensor
    source_lengths: tuple[int, ...]


def additive(query_size: int, encoder_output_size: int) -> AdditiveAttention:
    return AdditiveAttention(query_size, encoder_output_size, 6)


def pooling_of(kind: str, encoder: EncoderSizes, size: int, spec: RecurrentSpec) -> Pooling:
    if kind in OF_OUTPUTS:
        return OF_OUTPUTS[kind](size, encoder, NoAttention)
    if kind == "attention":
        return AttentionPooling(size, encoder, additive)
    return Attender(size, encoder=encoder, attention=NoAttention, recurrent=spec, sparsity=0.15, free_steps=3)


def classifier(
    kind: str,
    cell: Any = "gru",
    *,
    bidirectional: bool = True,
    size: int = 6,
    layers: int = 2,
    classes: int = 3,
) -> Classifier:
    torch.manual_seed(1)
    spec = RecurrentSpec(cell=cell, hidden_size=size, num_layers=layers, dropout=0.0, locked_dropout=False)
    encoder = RecurrentEncoder(
        input_size=size,
        recurrent=spec,
        bidirectional=bidirectional,
        reverse=False,
        encoder_output_dropout=0.0,
    )
    pooling = pooling_of(kind, encoder.sizes, size, spec)
    return Classifier(
        source_embedding=Embedding(12, size, size, frozen=False),
        encoder=encoder,
        pooling=pooling,
        readout=LinearReadout(pooling.feature_size, classes, None),
        dropout=EmbeddingDropout(0.0, locked=False, scale=1.0),
    ).double()


def batch_of(lengths: tuple[int, ...], width: int) -> Batch:
    """Return texts whose tokens depend on their length and position only; padding is id 1."""
    source_BS = torch.ones(len(lengths), width, dtype=torch.int64)
    for row_S, length in zip(source_BS, lengths, strict=True):
        row_S[:length] = 4 + (torch.arange(length) * 3 + length) % 8
    return Batch(source_BS, lengths)


@pytest.mark.parametrize("kind", POOLINGS)
@pytest.mark.parametrize(("cell", "bidirectional"), [("rnn", False), ("lstm", True), ("gru", False)])
def test_padded_packed_and_masked_batches_give_equal_results(
    kind: str, cell: str, bidirectional: bool
) -> None:
    model = classifier(kind, cell, bidirectional=bidirectional)
    together = model(batch_of(LENGTHS, max(LENGTHS)))  # packed in the recurrent layers, masked after them
    wider = model(batch_of(LENGTHS, max(LENGTHS) + 3))  # padding in every row
    for row, length in enumerate(LENGTHS):
        alone = model(batch_of((length,), length))  # without padding
        for other in (together, wider):
            torch.testing.assert_close(other.logits_BC[row], alone.logits_BC[0])
            if kind not in OF_OUTPUTS:
                torch.testing.assert_close(other.weights_BS[row, :length], alone.weights_BS[0])
                assert other.weights_BS[row, length:].abs().sum() == 0
            if kind == "attender":
                torch.testing.assert_close(other.penalty_B[row], alone.penalty_B[0])


def test_the_last_state_is_that_of_torch() -> None:
    model = classifier("last", "gru", bidirectional=False, layers=1)
    batch = batch_of((5, 5), 5)
    reference = nn.GRU(6, 6, batch_first=True).double()
    reference.load_state_dict(dict(model.encoder.layers.layers[0].named_parameters()))
    _, final_1BH = reference(model.source_embedding(batch.source_BS))
    torch.testing.assert_close(model(batch).logits_BC, model.readout.linear(final_1BH[0]))


@pytest.mark.parametrize("kind", ["mean", "max", "first"])
def test_poolings_of_outputs_from_their_formulas(kind: str) -> None:
    model, batch = classifier(kind), batch_of(LENGTHS, 9)
    found = model(batch).logits_BC
    for row, length in enumerate(LENGTHS):
        embedded_1SE = model.source_embedding(batch.source_BS[row : row + 1, :length])
        outputs = [*model.encoder(embedded_1SE, (length,)).outputs_BSM[0]]
        vector_M = {
            "mean": sum(outputs) / length,
            "max": torch.stack([max(column) for column in zip(*outputs, strict=True)]),
            "first": outputs[0],
        }[kind]
        torch.testing.assert_close(found[row], model.readout.linear(vector_M))


def test_the_last_state_of_an_encoder_without_one_is_the_mean_of_its_outputs() -> None:
    spec = TransformerSpec(
        num_layers=1,
        num_heads=2,
        feedforward_size=8,
        norm="pre",
        positions="sinusoidal",
        max_length=20,
        dropout=0.0,
        locked_dropout=False,
    )
    encoder = TransformerEncoder(input_size=6, transformer=spec).double()
    embedded_BSE = torch.randn(2, 5, 6, dtype=torch.float64)
    encoded = encoder(embedded_BSE, (5, 3))
    last, mean = (kind(6, encoder.sizes, NoAttention)(encoded)[0] for kind in (LastState, MeanPooling))
    torch.testing.assert_close(last, mean)
    torch.testing.assert_close(last[1], encoder(embedded_BSE[1:, :3], (3,)).outputs_BSM[0].mean(0))


def test_attention_over_states_from_its_formula() -> None:
    model = classifier("attention", "gru", bidirectional=False, layers=1)
    batch = batch_of((4,), 4)
    encoded = model.encoder(model.source_embedding(batch.source_BS), (4,))
    attention, final_H = model.pooling.attention, encoded.final.hidden_LBH[-1, 0]
    scores = [
        attention.energy.weight[0] @ torch.tanh(attention.query.weight @ final_H + attention.key(h_H))
        for h_H in encoded.outputs_BSM[0]
    ]
    weights_S = torch.stack(scores).softmax(0)
    context_H = sum(weight * h_H for weight, h_H in zip(weights_S, encoded.outputs_BSM[0], strict=True))
    found = model(batch)
    torch.testing.assert_close(found.weights_BS[0], weights_S)
    torch.testing.assert_close(found.logits_BC[0], model.readout.linear(torch.cat([final_H, context_H])))


def test_the_attender_from_its_formula() -> None:
    model = classifier("attender", "lstm")
    batch = batch_of(LENGTHS, 7)
    pooling = model.pooling
    found = model(batch)
    for row, length in enumerate(LENGTHS):
        embedded_1SE = model.source_embedding(batch.source_BS[row : row + 1, :length])
        states_1SH, _ = pooling.layers(embedded_1SE, None)
        gates = [torch.sigmoid(pooling.gate(state_H)).item() for state_H in states_1SH[0]]
        gated_1SE = embedded_1SE * torch.tensor(gates, dtype=torch.float64)[None, :, None]
        final_H = model.encoder(gated_1SE, (length,)).final.hidden_LBH[-1, 0]
        torch.testing.assert_close(found.logits_BC[row], model.readout.linear(final_H), atol=1e-6, rtol=1e-5)
        # Only real words count in the mean.
        assert found.penalty_B[row].item() == pytest.approx(0.15 * sum(gates) / length, rel=1e-5)
    assert [pooling.penalizes(step) for step in (0, 2, 3, 90)] == [False, False, True, True]


def test_the_attender_trains_both_networks() -> None:
    model = classifier("attender", "lstm")
    found = model(batch_of(LENGTHS, 7))
    found.logits_BC.square().sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.abs().sum() > 0, name


def test_weights_recorded_with_the_earlier_name_of_the_embedding_are_loaded(tmp_path: Path) -> None:
    model = classifier("attender", "lstm")
    weights = {name.removeprefix("source_"): weight for name, weight in model.state_dict().items()}
    save_file(weights, tmp_path / "model.safetensors")
    other = classifier("attender", "lstm")
    torch.nn.init.zeros_(other.source_embedding.weight)
    checkpoint.load_checked_weights(tmp_path, other)
    assert torch.equal(other.source_embedding.weight, model.source_embedding.weight)


def test_the_published_number_of_trainable_parameters() -> None:
    model = classifier("attender", "lstm", size=100, classes=2)
    trainable = [
        weight for name, weight in model.named_parameters() if not name.startswith("source_embedding")
    ]
    assert sum(weight.numel() for weight in trainable) == 807_003  # 0.807M


def test_saliency_is_the_norm_of_the_gradient() -> None:
    model = classifier("last", "gru", bidirectional=False).eval()
    batch = batch_of((4,), 4)
    with torch.no_grad():
        found_S = model.saliency(batch)[0].double()
    embedded_1SE = model.source_embedding(batch.source_BS).detach()

    def logit(x_1SE: Tensor) -> Tensor:
        return model.readout(model.encoder(x_1SE, (4,)).final.hidden_LBH[-1])[0].max()

    slopes_SE = torch.zeros(4, 6, dtype=torch.float64)
    for place, size in torch.cartesian_prod(torch.arange(4), torch.arange(6)).tolist():
        shift_1SE = torch.zeros_like(embedded_1SE)
        shift_1SE[0, place, size] = 1e-5
        slopes_SE[place, size] = (logit(embedded_1SE + shift_1SE) - logit(embedded_1SE - shift_1SE)) / 2e-5
    expected_S = slopes_SE.detach().norm(dim=1)
    torch.testing.assert_close(found_S, expected_S / expected_S.sum(), atol=1e-5, rtol=1e-4)


SIZES, NO_FINAL = EncoderSizes(4, 4, 1), EncoderSizes(4, None, 1)
SPEC = RecurrentSpec(cell="gru", hidden_size=4, num_layers=1, dropout=0.0, locked_dropout=False)


@pytest.mark.parametrize(
    ("key", "make"),
    [
        ("pooling=attention", lambda: AttentionPooling(4, NO_FINAL, additive)),
        ("pooling=last", lambda: LastState(4, SIZES, additive)),
        ("pooling=mean", lambda: MeanPooling(4, SIZES, additive)),
        ("pooling=max", lambda: MaxPooling(4, SIZES, additive)),
        ("pooling=first", lambda: FirstOutput(4, SIZES, additive)),
        ("pooling=attention", lambda: AttentionPooling(4, SIZES, NoAttention)),
        (
            "pooling=attention",
            lambda: AttentionPooling(
                4,
                SIZES,
                lambda query_size, encoder_output_size: LocationAttention(
                    query_size, encoder_output_size, 4, 9
                ),
            ),
        ),
        (
            "pooling=attention",
            lambda: AttentionPooling(
                4,
                SIZES,
                lambda query_size, encoder_output_size: CoverageAttention(query_size, encoder_output_size, 4),
            ),
        ),
        (
            r"attention\.alignment=monotonic",
            lambda: AttentionPooling(
                4,
                SIZES,
                lambda query_size, encoder_output_size: LocalAttention(
                    query_size, encoder_output_size, size=4, window=1, alignment="monotonic"
                ),
            ),
        ),
        (
            "pooling=attender",
            lambda: Attender(
                4, encoder=SIZES, attention=additive, recurrent=SPEC, sparsity=0.1, free_steps=0
            ),
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused(key: str, make: Any) -> None:
    with pytest.raises(ValueError, match=key):
        make()
