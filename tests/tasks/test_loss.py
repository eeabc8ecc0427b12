from typing import cast

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.tokenizers import EOS, PAD, SOS
from seq2seq_lab.models.decoders import Source
from seq2seq_lab.models.recurrent import RecurrentState
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.tasks import losses

B, T, V = 4, 7, 11

# Of gradients, relative and absolute.
TOLERANCE = {
    torch.float64: (1e-12, 1e-12),
    torch.float32: (1e-5, 1e-6),
    torch.bfloat16: (2**-7, 1e-6),
}


def ragged_outputs() -> Tensor:
    """outputs_BT with padding in three of the four rows."""
    generator = torch.Generator().manual_seed(0)
    outputs_BT = torch.randint(4, V, (B, T), generator=generator)
    for row, length in enumerate((T, 4, 1, 2)):
        outputs_BT[row, length - 1] = EOS
        outputs_BT[row, length:] = PAD
    return outputs_BT


@pytest.mark.parametrize("cached", [1, 3 * V, 2**18], ids=["row_by_row", "three_rows", "at_once"])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_equals_torch_in_value_and_gradient(
    dtype: torch.dtype, label_smoothing: float, cached: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "CACHED_LOGITS", cached)
    torch.manual_seed(0)
    outputs_BT = ragged_outputs()
    logits_BTV = (3 * torch.randn(B, T, V)).to(dtype).requires_grad_()
    same_BTV = logits_BTV.detach().clone().requires_grad_()
    found = losses.cross_entropy(logits_BTV, outputs_BT, label_smoothing)
    wide = torch.promote_types(dtype, torch.float32)
    expected = functional.cross_entropy(
        same_BTV.to(wide).flatten(0, 1),
        outputs_BT.flatten(),
        ignore_index=PAD,
        reduction="sum",
        label_smoothing=label_smoothing,
    )
    assert found.dtype == wide
    torch.testing.assert_close(found, expected, rtol=1e-5 if wide == torch.float32 else 1e-12, atol=0)
    (gradient_BTV,) = torch.autograd.grad(found / 17, logits_BTV)
    (wanted_BTV,) = torch.autograd.grad(expected / 17, same_BTV)
    rtol, atol = TOLERANCE[dtype]
    torch.testing.assert_close(gradient_BTV, wanted_BTV, rtol=rtol, atol=atol)
    assert torch.all(gradient_BTV[outputs_BT == PAD] == 0)


def test_a_second_backward_pass_is_refused() -> None:
    """The gradient, scaled in place, would be wrong in it."""
    logits_BTV = torch.randn(B, T, V, requires_grad=True)
    for found in (
        losses.cross_entropy(logits_BTV, ragged_outputs(), 0.0),
        losses.symmetric_kl(logits_BTV, logits_BTV * 2, ragged_outputs()),
    ):
        found.backward(retain_graph=True)  # type: ignore[no-untyped-call]
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            found.backward()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("cached", [1, 3 * V, 2**18], ids=["row_by_row", "three_rows", "at_once"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_symmetric_kl_is_the_kl_both_ways(
    dtype: torch.dtype, cached: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "CACHED_LOGITS", cached)
    torch.manual_seed(0)
    outputs_BT = ragged_outputs()
    pair = [(2 * torch.randn(B, T, V)).to(dtype).requires_grad_() for _ in range(2)]
    same = [logits_BTV.detach().clone().requires_grad_() for logits_BTV in pair]
    found = losses.symmetric_kl(pair[0], pair[1], outputs_BT)
    wide = torch.promote_types(dtype, torch.float32)
    p, q = (logits_BTV.to(wide).log_softmax(-1) for logits_BTV in same)
    kl_BTV = functional.kl_div(q, p, reduction="none", log_target=True)  # KL(p‖q)
    kl_BTV = kl_BTV + functional.kl_div(p, q, reduction="none", log_target=True)
    expected = (kl_BTV.sum(-1) * (outputs_BT != PAD)).sum()
    torch.testing.assert_close(found, expected, rtol=1e-5 if wide == torch.float32 else 1e-12, atol=0)
    rtol, atol = TOLERANCE[dtype]
    torch.testing.assert_close(
        torch.autograd.grad(found / 3, pair),
        torch.autograd.grad(expected / 3, same),
        rtol=rtol,
        atol=max(atol, 2**-9 if dtype == torch.bfloat16 else 0),
    )
    assert losses.symmetric_kl(pair[0], pair[0], outputs_BT) == 0


def test_without_gradient() -> None:
    logits_BTV, outputs_BT = torch.randn(B, T, V), ragged_outputs()
    found = losses.cross_entropy(logits_BTV, outputs_BT, 0.1)
    assert not found.requires_grad
    torch.testing.assert_close(
        found, losses.cross_entropy(logits_BTV.requires_grad_(), outputs_BT, 0.1).detach()
    )


def test_golden() -> None:
    """By hand: -ln 1/2 for an even choice of two; smoothed by 0.2, p = (3/4, 1/4) costs as below."""
    inf = float("inf")
    even_112 = torch.tensor([[[0.0, 0.0]]])
    assert losses.cross_entropy(even_112, torch.tensor([[0]]), 0.0).item() == pytest.approx(
        0.693147, abs=1e-6
    )
    uneven_112 = torch.tensor([[[3.0, 1.0]]]).log()
    # 0.9 ln 4/3 + 0.1 ln 4
    assert losses.cross_entropy(uneven_112, torch.tensor([[0]]), 0.2).item() == pytest.approx(
        0.397543, abs=1e-6
    )
    certain_113 = torch.tensor([[[0.0, -inf, -inf]]])
    assert losses.cross_entropy(certain_113, torch.tensor([[0]]), 0.0).item() == 0


def test_padding_has_no_loss_and_no_gradient() -> None:
    logits_BTV = torch.randn(B, T, V, requires_grad=True)
    total = losses.cross_entropy(logits_BTV, torch.full((B, T), PAD), 0.1)
    assert total.item() == 0
    assert torch.all(torch.autograd.grad(total, logits_BTV)[0] == 0)


class Bigrams:
    """A model whose next token depends on the last one and on the number of steps."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.logits_VV = 2 * torch.randn(V, V)
        self.logits_VV[:, [PAD, SOS]] = -9.0
        self.logits_VV[SOS, EOS] = 9.0  # the first choice is <eos>
        self.read: list[list[int]] = []

    def start(self, batch: Batch) -> tuple[RecurrentState, Source]:
        state = RecurrentState(torch.zeros(1, len(batch.index_B), 1), None)
        lengths_B = torch.tensor(batch.source_lengths)
        return state, Source(batch.source_BS, batch.source_BS, lengths_B, None, state)

    def logits(self, token_B: Tensor, number: Tensor) -> Tensor:
        return self.logits_VV[token_B] + torch.sin(number + torch.arange(V))

    def step(self, token_B: Tensor, state: RecurrentState, *_: object) -> tuple[Tensor, RecurrentState, None]:
        self.read.append(token_B.tolist())
        logits_BV = self.logits(token_B, state.hidden_LBH[0])
        return logits_BV.log_softmax(-1), RecurrentState(state.hidden_LBH + 1, None), None

    def __call__(self, _: Batch, inputs_BT: Tensor, with_weights: bool = True) -> tuple[Tensor, Tensor]:
        steps = torch.arange(inputs_BT.shape[1])[:, None]
        return self.logits(inputs_BT, steps), torch.ones(1)


def ragged_batch() -> Batch:
    outputs_BT = ragged_outputs()
    return Batch(
        index_B=torch.arange(B),
        source_BS=torch.tensor([[SOS, 5, EOS]] * B),
        source_lengths=(3,) * B,
        target_BU=torch.cat([torch.full((B, 1), SOS), outputs_BT], dim=1),
        target_tokens=int((outputs_BT != PAD).sum()),
    )


def naive_free_running(model: Bigrams, batch: Batch) -> float:
    """Sentence by sentence, number by number."""
    total = 0.0
    for row in batch.outputs_BT.tolist():
        token = SOS
        for number, output in enumerate(row):
            if output == PAD:
                break
            logits = model.logits(torch.tensor(token), torch.tensor(float(number))).double()
            probabilities = logits.exp() / logits.exp().sum()
            total -= float(probabilities[output].log())
            token = int(probabilities.argmax())
    return total


def test_free_running_equals_a_naive_loop_and_continues_after_eos() -> None:
    model, batch = Bigrams(), ragged_batch()
    found = losses.free_running(cast(Seq2Seq, model), batch)
    assert found.sum().item() == pytest.approx(naive_free_running(model, batch), rel=1e-5)
    assert len(model.read) == T
    assert model.read[1] == [EOS] * B
    assert len({tuple(row) for row in zip(*model.read, strict=True)}) == 1
    assert any(token > EOS for row in model.read[2:] for token in row)


def test_teacher_forced_is_unsmoothed_cross_entropy_on_the_reference() -> None:
    model, batch = Bigrams(), ragged_batch()
    found, weights = losses.teacher_forced(cast(Seq2Seq, model), batch)
    logits_BTV, _ = model(batch, batch.target_BU[:, :-1])
    expected = functional.cross_entropy(
        logits_BTV.flatten(0, 1), batch.target_BU[:, 1:].flatten(), ignore_index=PAD, reduction="sum"
    )
    torch.testing.assert_close(found.sum(), expected)
    assert weights is not None
