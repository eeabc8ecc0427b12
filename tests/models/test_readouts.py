"""Readouts that read attention weights and source tokens: the example of a pointer, and what is refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import command_line
import pytest
import torch
from small_models import batch_of, beam_search, random_sentences, small_config, small_model
from torch import Tensor, nn
from torch.nn import functional

import seq2seq_lab
from seq2seq_lab.config import extensions
from seq2seq_lab.config.schema import Config
from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.tokenizers import EOS, PAD, SOS
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.seq2seq import EncodedModel, Seq2Seq, build_seq2seq
from seq2seq_lab.tasks.losses import cross_entropy, free_running, teacher_forced, token_losses
from seq2seq_lab.tasks.translation.teacher_forcing import choose_inputs

EXAMPLES = Path(__file__).parents[2] / "examples" / "own_components"
POINTER = {"_target_": "my_readout.PointerReadout"}
MODELS = [
    ("bigru", "luong", "additive"),
    ("bilstm", "luong_feeding", "coverage"),
    ("bigru", "bahdanau", "multiplicative"),
    ("gru", "conditional", "location_sensitive"),
    ("transformer", "transformer", "scaled_dot"),
    ("transformer", "transformer", "additive"),
]
each_model = pytest.mark.parametrize(("encoder", "decoder", "attention"), MODELS)


@pytest.fixture(autouse=True)
def examples() -> Iterator[None]:
    with extensions.using(EXAMPLES):
        yield


def pointer_config(encoder: str = "bigru", decoder: str = "luong", attention: str = "additive") -> Config:
    config = small_config(encoder, decoder, attention, bridge="zero" if encoder == "transformer" else "tanh")
    config.readout = dict(POINTER)
    return config


def ragged_batch() -> Batch:
    return batch_of(random_sentences([4, 2, 5], 1), random_sentences([3, 5, 1], 2))


@each_model
def test_the_unrolling_of_a_pointer_equals_its_steps(encoder: str, decoder: str, attention: str) -> None:
    """Also if the caller asks for no weights, and for the hypotheses of a search, which share a source."""
    model, batch = small_model(pointer_config(encoder, decoder, attention)).double().eval(), ragged_batch()
    state, source = model.start(batch)
    whole_BTV, weights_BTS = model.unroll(batch.inputs_BT, state, source, with_weights=False)
    torch.testing.assert_close(whole_BTV.logsumexp(-1), torch.zeros(3, 6, dtype=torch.float64))
    two_N = torch.tensor([0, 0, 1, 1, 2, 2])
    state = state.select(two_N)
    for t, token_B in enumerate(batch.inputs_BT.unbind(1)):
        log_probs_NV, state, weights_NS = model.step(token_B[two_N], state, source, with_weights=False)
        torch.testing.assert_close(log_probs_NV, whole_BTV[two_N, t], rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(weights_NS, weights_BTS[two_N, t], rtol=1e-10, atol=1e-12)


def test_a_pointer_copies_by_the_weights() -> None:
    """Its formula in loops."""
    model, batch = small_model(pointer_config()).double(), ragged_batch()
    state, source = model.start(batch)
    log_probs_BTV, weights_BTS = model.unroll(batch.inputs_BT, state, source)
    features_BTF = model.decoder.unroll(model.embed_target(batch.inputs_BT), state, source)[0]
    generate_BT = torch.sigmoid(model.readout.generate(features_BTF))[..., 0]
    vocabulary_BTV = functional.linear(features_BTF, *model.readout.linear.parameters()).softmax(-1)
    for b, length in enumerate(batch.source_lengths):
        for t in range(batch.inputs_BT.shape[1]):
            expected_V = generate_BT[b, t] * vocabulary_BTV[b, t]
            for s in range(length):
                expected_V[batch.source_BS[b, s]] += (1 - generate_BT[b, t]) * weights_BTS[b, t, s]
            torch.testing.assert_close(log_probs_BTV[b, t].exp(), expected_V)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_losses_take_log_probabilities(smoothing: float) -> None:
    """The loss and its gradient are those of log-probabilities, which have no second normalization."""
    model, batch = small_model(pointer_config()).double(), ragged_batch()
    log_probs_BTV, _ = model(batch, batch.inputs_BT)
    real_BT, outputs_BT = batch.outputs_BT != PAD, batch.outputs_BT
    likely_BT = log_probs_BTV.gather(-1, outputs_BT[..., None])[..., 0]
    loss_BT = -(1 - smoothing) * likely_BT - smoothing * log_probs_BTV.mean(-1)
    expected, found = loss_BT[real_BT].sum(), cross_entropy(log_probs_BTV, outputs_BT, smoothing)
    torch.testing.assert_close(found, expected)
    weights = [*model.parameters()]
    gradients = [torch.autograd.grad(loss, weights, retain_graph=True) for loss in (found, expected)]
    torch.testing.assert_close(*gradients)
    torch.testing.assert_close(token_losses(log_probs_BTV, outputs_BT), -likely_BT.where(real_BT, 0).detach())


@torch.no_grad()
def log_prob(model: Seq2Seq, batch: Batch, row: int, tokens: list[int]) -> float:
    """The log-probability of an output, the sentence alone in its batch."""
    words = batch.source_BS[row, 1 : batch.source_lengths[row] - 1].tolist()
    log_probs_1TV, _ = model(batch_of([words], [[]]), torch.tensor([[SOS, *tokens[:-1]]]))
    return sum(float(log_probs_1TV[0, t, token]) for t, token in enumerate(tokens))


def test_a_pointer_is_searched_evaluated_and_forced() -> None:
    model, batch = small_model(pointer_config()).double().eval(), ragged_batch()
    encoded = EncodedModel(model, batch)
    losses_BT = teacher_forced(encoded, batch, with_weights=False)[0].detach()
    for row, target_T in enumerate(batch.outputs_BT.tolist()):
        tokens = [token for token in target_T if token != PAD]
        assert float(losses_BT[row].sum()) == pytest.approx(-log_prob(model, batch, row, tokens))
    assert free_running(encoded, batch).shape == batch.outputs_BT.shape
    for row, (best, *_) in enumerate(beam_search(3, max_length_extra=2)(model, batch, False)):
        tokens = [*best.tokens, *[EOS] * best.ended]
        assert best.log_prob == pytest.approx(log_prob(model, batch, row, tokens), rel=1e-5)
    chosen_BT = choose_inputs(model, *model.start(batch), batch, torch.zeros(3, 6, dtype=torch.bool))
    logits_BTV, _ = model(batch, chosen_BT)
    assert torch.equal(logits_BTV.argmax(-1)[:, :-1], chosen_BT[:, 1:])


class Spy(nn.Module):
    """Record what a readout is given."""

    needs_weights = needs_tokens = False

    def __init__(self, readout: nn.Module) -> None:
        super().__init__()
        self.readout, self.given = readout, []

    def forward(self, *given: Any) -> Tensor:
        self.given.append(given)
        return self.readout(*given)


@pytest.mark.parametrize("decoder", ["luong", "transformer"])
def test_weights_and_tokens_are_computed_only_for_a_readout_that_needs_them(decoder: str) -> None:
    model, batch = small_model(small_config("bigru", decoder)).eval(), ragged_batch()
    model.readout = Spy(model.readout)
    state, source = model.start(batch)
    model.unroll(batch.inputs_BT, state, source, with_weights=False)
    assert source.tokens_BS is None
    if decoder == "transformer":
        assert model.readout.given[0][1] is None
    model.readout.needs_weights = model.readout.needs_tokens = True
    state, source = model.start(batch)
    model.unroll(batch.inputs_BT, state, source, with_weights=False)
    assert model.readout.given[1][1].shape == (*batch.inputs_BT.shape, batch.source_BS.shape[1])
    assert torch.equal(source.tokens_BS, batch.source_BS)
    assert torch.equal(source.select(torch.tensor([2, 0])).tokens_BS, batch.source_BS[[2, 0]])


def test_a_model_without_what_a_readout_needs_is_refused() -> None:
    with pytest.raises(UserError, match=r"readout=PointerReadout reads attention weights.*readout=linear"):
        small_model(pointer_config("gru", "plain", "none"))
    for source, joint in ((9, False), (None, True)):  # two vocabularies; images
        with pytest.raises(UserError, match=r"readout=PointerReadout.*tokenizer\.joint=true.*=linear"):
            build_seq2seq(pointer_config(), source_vocabulary=source, target_vocabulary=9, joint=joint)
    for settings in (["task=classification"], ["task=language_model"]):
        with pytest.raises(UserError, match="readout=PointerReadout reads attention weights"):
            command_line.check(f"--config-dir={EXAMPLES}", *settings, "readout=copier")
    with pytest.raises(UserError, match=r"tokenizer\.joint=true"):
        command_line.check(f"--config-dir={EXAMPLES}", "readout=copier")


def test_a_source_with_fewer_outputs_than_tokens_is_refused() -> None:
    model, batch = small_model(pointer_config()), ragged_batch()
    one_each = model.encoder.forward
    model.encoder.forward = (
        lambda *given: one_each(*given)._replace(  # type: ignore[method-assign]
            outputs_BSM=one_each(*given).outputs_BSM[:, 1:], lengths=[5, 3, 6]
        )
    )
    with pytest.raises(UserError, match=r"readout=PointerReadout.*encoder=\w+ has other outputs"):
        model.start(batch)


def test_a_run_with_a_pointer_learns_to_copy_and_opens(tmp_path: Path) -> None:
    settings = (
        *("readout=copier", "dataset=reversal", "tokenizer.joint=true", "dataset.train=600", "dataset.test=40"),
        *("dataset.validation=40", "dataset.longest=5", "model.embedding_size=32", "model.hidden_size=32"),
        *("model.encoder_hidden_size=16", "trainer.max_epochs=12", "optimizer.lr=0.01", "task.batch_size=32"),
        *("trainer.device=cpu", "trainer.precision=fp32", "task.samples=0", "logger=none"),
    )  # fmt: skip
    run = seq2seq_lab.train(settings, tmp_path / "run", config_dir=EXAMPLES)
    assert run.result["test/bleu"] > 80
    again = seq2seq_lab.load(tmp_path / "run", config_dir=EXAMPLES)
    assert [one.text for one in again.predict(["3 1 4", "2 7 1 8"])] == ["4 1 3", "8 1 7 2"]
    assert again.evaluate()["test/bleu"] == pytest.approx(run.result["test/bleu"])
