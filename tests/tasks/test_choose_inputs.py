"""Teacher forcing in two passes, the inputs chosen first, equals one pass with the same mask."""

import pytest
import torch
from small_models import batch_of, random_sentences, small_config, small_model
from torch import Tensor
from torch.nn import functional

from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.tokenizers import PAD, SOS
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.tasks.losses import cross_entropy, free_running
from seq2seq_lab.tasks.translation.teacher_forcing import Constant, Scope, choose_inputs

SCOPES: tuple[Scope, ...] = ("token", "step", "sequence", "batch")
PARTS = [
    ("lstm", "luong", "additive"),
    ("bigru", "bahdanau", "scaled_dot"),
    ("lstm", "luong_feeding", "multiplicative"),
    ("gru", "tutorial", "location"),
    ("gru", "context", "none"),
    ("rnn", "plain", "none"),
    ("bigru", "conditional", "additive"),
]
every_model = pytest.mark.parametrize("parts", PARTS, ids="-".join)


def model_of(parts: tuple[str, str, str]) -> Seq2Seq:
    num_layers = 1 if parts[1] == "conditional" else 2
    return small_model(small_config(*parts, num_layers=num_layers)).double().train()


def ragged_batch() -> Batch:
    return batch_of(random_sentences([4, 2, 5, 4], seed=1), random_sentences([5, 7, 1, 6], seed=2))


def chosen(model: Seq2Seq, batch: Batch, mask_BT: Tensor | None) -> Tensor:
    return choose_inputs(model, *model.start(batch), batch, mask_BT)


def one_pass(model: Seq2Seq, batch: Batch, mask_BT: Tensor) -> tuple[Tensor, Tensor]:
    """The loop of the textbooks: (summed loss, the inputs it read)."""
    state, source = model.start(batch)
    token_B = batch.target_BU[:, 0]
    total, inputs = torch.zeros((), dtype=torch.float64), []
    for t in range(batch.target_BU.shape[1] - 1):
        inputs.append(token_B)
        log_probs_BV, state, _ = model.step(token_B, state, source)
        output_B = batch.target_BU[:, t + 1]
        total = total + functional.nll_loss(log_probs_BV, output_B, ignore_index=PAD, reduction="sum")
        if t + 1 < mask_BT.shape[1]:
            token_B = torch.where(mask_BT[:, t + 1], output_B, log_probs_BV.argmax(-1))
    return total, torch.stack(inputs, dim=1)


@every_model
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("ratio", [0.0, 0.5])
def test_two_passes_equal_one(parts: tuple[str, str, str], scope: Scope, ratio: float) -> None:
    model, batch = model_of(parts), ragged_batch()
    own = 0
    for step in range(3):
        mask_BT = Constant(ratio, scope).mask(batch, seed=1, epoch=step, step=step)
        assert mask_BT is not None
        expected, read_BT = one_pass(model, batch, mask_BT)
        inputs_BT = chosen(model, batch, mask_BT)
        assert torch.equal(inputs_BT, read_BT)
        logits_BTV, _ = model(batch, inputs_BT)
        found = cross_entropy(logits_BTV, batch.outputs_BT, label_smoothing=0.0)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=0)
        parameters = [*model.parameters()]
        torch.testing.assert_close(
            torch.autograd.grad(found, parameters),
            torch.autograd.grad(expected, parameters),
            rtol=1e-8,
            atol=1e-11,
        )
        own += int((inputs_BT != batch.inputs_BT).sum())
    assert own > 0


@every_model
def test_no_gradient_flows_through_the_choices(
    parts: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, batch = model_of(parts), ragged_batch()
    step_features, tracked = model.step_features, []

    def watched(token: Tensor, *rest: object) -> object:
        found = step_features(token, *rest)  # type: ignore[arg-type]
        tracked.append(found[0].requires_grad)
        return found

    monkeypatch.setattr(model, "step_features", watched)
    inputs_BT = chosen(model, batch, torch.zeros(batch.inputs_BT.shape, dtype=torch.bool))
    assert tracked == [False] * (batch.inputs_BT.shape[1] - 1)
    assert inputs_BT.dtype == torch.int64
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.is_grad_enabled()


@every_model
def test_without_masks_the_reference_is_read_and_nothing_computed(
    parts: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, batch = model_of(parts), ragged_batch()
    monkeypatch.setattr(model, "step_features", None)
    assert torch.equal(chosen(model, batch, None), batch.inputs_BT)


@every_model
def test_the_first_input_is_sos_whatever_the_mask(parts: tuple[str, str, str]) -> None:
    model, batch = model_of(parts), ragged_batch()
    for forced in (True, False):
        mask_BT = torch.full(batch.inputs_BT.shape, forced)
        inputs_BT = chosen(model, batch, mask_BT)
        assert inputs_BT[:, 0].tolist() == [SOS] * 4
        assert torch.equal(inputs_BT, batch.inputs_BT) == forced


@every_model
def test_at_ratio_0_it_reads_what_free_running_reads(
    parts: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, batch = model_of(parts), ragged_batch()
    mask_BT = Constant(0.0, "token").mask(batch, seed=1, epoch=0, step=0)
    inputs_BT = chosen(model, batch, mask_BT)
    logits_BTV, _ = model(batch, inputs_BT)
    step, read = model.step, []

    def watched(token: Tensor, *rest: object) -> object:
        read.append(token)
        return step(token, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(model, "step", watched)
    total = free_running(model, batch).sum()
    assert torch.equal(torch.stack(read, dim=1), inputs_BT)
    torch.testing.assert_close(total, cross_entropy(logits_BTV, batch.outputs_BT, label_smoothing=0.0))


def test_every_parameter_learns_in_half_precision_too() -> None:
    # Autocast keeps cast weights: those of the choosing pass, which has no gradient, must not serve the other.
    model, batch = small_model(small_config("gru", "luong", "additive")).train(), ragged_batch()
    mask_BT = Constant(0.5, "token").mask(batch, seed=1, epoch=0, step=0)
    with torch.autocast("cpu", torch.bfloat16):
        inputs_BT = chosen(model, batch, mask_BT)
        logits_BTV, _ = model(batch, inputs_BT)
        cross_entropy(logits_BTV, batch.outputs_BT, label_smoothing=0.0).backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []
