"""`task.pad_to`: batches of rounded lengths have the loss and the gradients of batches of exact lengths."""

import pytest
import torch
from small_models import (
    WITHOUT_ATTENTION,
    random_sentences,
    recurrent_values_of,
    small_config,
    small_model,
    values_of,
)

from seq2seq_lab.data.batching import BatchMaker, plan_epoch
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.tokenized import TokenizedText
from seq2seq_lab.data.tokenizers import EOS, SOS
from seq2seq_lab.models.attention import LocationAttention
from seq2seq_lab.tasks.base import StepInfo
from seq2seq_lab.tasks.translation.loss import TrainingLoss
from seq2seq_lab.tasks.translation.teacher_forcing import Constant

SIZES = {"encoder_hidden_size": 5}  # two directions have the size of the decoder, as `attention=dot` needs


def text() -> TokenizedText:
    lengths, target_lengths = [1, 2, 2, 5, 6, 6, 6, 9], [3, 2, 4, 7, 1, 6, 2, 8]
    source, target = (
        Ragged.of([[SOS, *tokens, EOS] for tokens in random_sentences(counts, seed)])
        for counts, seed in ((lengths, 1), (target_lengths, 2))
    )
    return TokenizedText(source, target)


def loss_and_gradients(
    model: torch.nn.Module, pad_to: int, ratio: float, scope: str
) -> tuple[torch.Tensor, list[torch.Tensor | None], set[tuple[int, ...]]]:
    """Return the sum of the loss over all sentences, its gradients, and the shapes of the batches."""
    loss = TrainingLoss(
        Constant(ratio, scope), label_smoothing=0.1, r_drop=0.0, stop_at_eos=False, coverage_loss=0.0, seed=1
    )
    make = BatchMaker(text(), torch.device("cpu"), pad_to)
    batches = [
        make(index)
        for step in plan_epoch(text(), 8, "sentences", seed=1, epoch=0, pad_to=pad_to)
        for index in step
    ]
    total = sum((loss(model, batch, StepInfo(0, 0)) for batch in batches), torch.zeros(()))  # type: ignore[arg-type]
    gradients = torch.autograd.grad(total, list(model.parameters()), allow_unused=True)
    shapes = {(batch.source_BS.shape[1], batch.outputs_BT.shape[1]) for batch in batches}
    return total, list(gradients), shapes


PARTS = [
    *((encoder, "luong", "additive") for encoder in recurrent_values_of("encoder")),
    *(
        ("bilstm", decoder, "none" if decoder in WITHOUT_ATTENTION else "additive")
        for decoder in recurrent_values_of("decoder")
    ),
    *(("bigru", "luong", attention) for attention in values_of("attention")),
    ("transformer", "transformer", "scaled_dot"),
]


CASES = [
    *((*parts, 0.5, "token") for parts in PARTS),
    ("bigru", "luong", "additive", 1.0, "token"),
    ("bigru", "bahdanau", "additive", 0.5, "sequence"),
]


@pytest.mark.parametrize(("encoder", "decoder", "attention", "ratio", "scope"), CASES)
def test_rounded_lengths_change_neither_loss_nor_gradients(
    encoder: str, decoder: str, attention: str, ratio: float, scope: str
) -> None:
    model = small_model(small_config(encoder, decoder, attention, **SIZES)).double().train()
    exact, gradients, shapes = loss_and_gradients(model, 1, ratio, scope)
    rounded, padded_gradients, few_shapes = loss_and_gradients(model, 6, ratio, scope)
    assert len(few_shapes) < len(shapes)
    assert all(size % 6 == 0 for shape in few_shapes for size in shape)
    torch.testing.assert_close(rounded, exact)
    for one, other in zip(gradients, padded_gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_location_scores_cover_the_padding_beyond_its_longest_source() -> None:
    attention = LocationAttention(4, 6, 2, max_length=3)  # 5 positions with <sos> and <eos>
    scores = attention.score(torch.rand(2, 3, 6), torch.rand(2, 8, 0))
    assert scores.shape == (2, 3, 8)
    assert torch.equal(scores[..., 5:], torch.zeros(2, 3, 3))
