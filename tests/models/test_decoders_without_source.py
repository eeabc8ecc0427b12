"""Language models: every decoder that runs without a source, against repeated steps, torch's own layers and a search that
reads all tokens again."""

import math
from typing import Any, NamedTuple

import pytest
import torch
from hydra import compose
from small_models import beam_search, sampling_search
from torch import Tensor, nn
from torch.nn import functional

from seq2seq_lab.config.compose import composer
from seq2seq_lab.config.schema import typed
from seq2seq_lab.data.tokenizers import PAD, SOS
from seq2seq_lab.models.decoders.base import RecurrentDecoder
from seq2seq_lab.models.language_model import LanguageModel, build_language_model
from seq2seq_lab.models.transformer import sinusoids
from seq2seq_lab.search.greedy import GreedySearch
from seq2seq_lab.tasks.language_model.evaluation import GenerationBatch
from seq2seq_lab.tasks.losses import cross_entropy

VOCABULARY = 13
DECODERS = ["plain", "luong", "luong_feeding", "bahdanau", "tutorial", "transformer"]
SIZES = (
    "embedding_size=6",
    "hidden_size=6",
    "num_layers=2",
    "num_heads=2",
    "feedforward_size=7",
    "dropout=0",
    "tied_embeddings=none",
)
INPUTS_BT = torch.tensor([[SOS, 5, 6, 7, 8], [SOS, 9, 10, PAD, PAD], [SOS, 11, 4, 4, PAD]])


def model_of(decoder: str, *settings: str) -> LanguageModel:
    """A model in float64 whose weights are far from 0."""
    with composer():
        node = compose(
            "config",
            [
                *("task=language_model", f"decoder={decoder}", *(f"model.{size}" for size in SIZES)),
                *settings,
            ],
        )
    torch.manual_seed(1)
    model = build_language_model(typed(node), VOCABULARY).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2).add_(0.1 * torch.randn_like(parameter))
    return model


class Given(NamedTuple):
    beginning_BP: Tensor


def by_steps(model: LanguageModel) -> Tensor:
    state, source = model.start(Given(INPUTS_BT[:, :1]))
    rows = []
    for token_B in INPUTS_BT.unbind(1):
        log_probs_BV, state, _ = model.step(token_B, state, source)
        rows.append(log_probs_BV)
    return torch.stack(rows, dim=1)


@pytest.mark.parametrize(
    ("decoder", "setting"),
    [
        *((decoder, "seed=1") for decoder in DECODERS),
        *(("plain", f"model.cell={cell}") for cell in ("rnn", "gru")),
        *(("transformer", f"decoder.{setting}") for setting in ("norm=post", "positions=learned")),
    ],
)
def test_one_pass_equals_repeated_steps_and_two_passes(decoder: str, setting: str) -> None:
    model = model_of(decoder, setting)
    logits_BTV, after = model(INPUTS_BT)
    log_probs_BTV, stepped_BTV = logits_BTV.log_softmax(-1), by_steps(model)
    torch.testing.assert_close(log_probs_BTV, stepped_BTV, rtol=1e-10, atol=1e-12)
    direction = torch.linspace(-1, 2, stepped_BTV.numel(), dtype=torch.float64).view_as(stepped_BTV)
    gradients = [
        torch.autograd.grad((output * direction).sum(), [*model.parameters()], retain_graph=True)
        for output in (log_probs_BTV, stepped_BTV)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-11)
    first_BTV, state = model(INPUTS_BT[:, :2])
    second_BTV, end = model(INPUTS_BT[:, 2:], state)
    torch.testing.assert_close(torch.cat([first_BTV, second_BTV], 1), logits_BTV, rtol=1e-10, atol=1e-12)
    if isinstance(model.decoder, RecurrentDecoder):  # what a language model carries
        torch.testing.assert_close(end.layers.hidden_LBH, after.layers.hidden_LBH)
        assert (end.fed_BF is not None) is (decoder == "luong_feeding")


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_the_plain_decoder_is_the_recurrent_layer_of_torch(cell: str) -> None:
    model = model_of("plain", f"model.cell={cell}", "model.num_layers=1")
    layer = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}[cell](6, 6, batch_first=True).double()
    layer.load_state_dict(
        {name.rpartition(".")[2]: weight for name, weight in model.decoder.state_dict().items()}
    )
    states_BTH, _ = layer(model.target_embedding.weight[INPUTS_BT] * math.sqrt(6))
    logits_BTV, _ = model(INPUTS_BT)
    expected_BTV = model.readout(states_BTH)
    torch.testing.assert_close(logits_BTV, expected_BTV)


def torch_transformer(model: LanguageModel, norm: str) -> nn.TransformerEncoder:
    """torch's encoder with the weights of the decoder."""
    pre = norm == "pre"
    layer = nn.TransformerEncoderLayer(6, 2, 7, dropout=0.0, batch_first=True, norm_first=pre)
    made = nn.TransformerEncoder(layer, 2, nn.LayerNorm(6) if pre else None, enable_nested_tensor=False)
    saved, weights = model.decoder.state_dict(), {}
    for number in range(2):
        ours = f"layers.{number}"
        for kind in ("weight", "bias"):
            parts = [
                saved[f"{ours}.self_attention.{name}.{kind}"] for name in ("query", "key", "value", "output")
            ]
            weights[f"{ours}.self_attn.in_proj_{kind}"] = torch.cat(parts[:3])
            weights[f"{ours}.self_attn.out_proj.{kind}"] = parts[3]
            weights[f"{ours}.linear1.{kind}"] = saved[f"{ours}.feed_forward.0.{kind}"]
            weights[f"{ours}.linear2.{kind}"] = saved[f"{ours}.feed_forward.2.{kind}"]
            weights[f"{ours}.norm1.{kind}"] = saved[f"{ours}.self_residual.norm.{kind}"]
            weights[f"{ours}.norm2.{kind}"] = saved[f"{ours}.feed_forward_residual.norm.{kind}"]
            if pre:
                weights[f"norm.{kind}"] = saved[f"norm.{kind}"]
    made = made.double().eval()
    made.load_state_dict(weights)
    return made


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_loss_of_a_transformer_is_that_of_torch_with_a_causal_mask(norm: str) -> None:
    model = model_of("transformer", f"decoder.norm={norm}")
    outputs_BT = torch.cat([INPUTS_BT[:, 1:], torch.tensor([[2], [PAD], [2]])], dim=1)
    embedded_BTE = model.target_embedding.weight[INPUTS_BT] * math.sqrt(6) + sinusoids(torch.arange(5), 6)
    mask_TT = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    features_BTE = torch_transformer(model, norm)(embedded_BTE, mask=mask_TT, is_causal=True)
    logits_BTV = model.readout(features_BTE)
    expected = functional.cross_entropy(
        logits_BTV.transpose(1, 2), outputs_BT, ignore_index=PAD, reduction="sum"
    )
    found = cross_entropy(model(INPUTS_BT)[0], outputs_BT, 0.0)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)


def test_a_transformer_has_no_weights_for_a_source() -> None:
    model = model_of("transformer")
    assert not [name for name, _ in model.named_parameters() if "cross" in name]
    assert not model.decoder.attends


def test_attention_maps_of_a_transformer_read_earlier_tokens_only() -> None:
    maps = model_of("transformer").attention_maps(INPUTS_BT)
    assert maps.keys() == {"decoder"}
    assert maps["decoder"].shape == (3, 2, 2, 5, 5)
    torch.testing.assert_close(maps["decoder"].sum(-1), torch.ones(3, 2, 2, 5).double())
    assert not maps["decoder"].triu(1).any()
    assert model_of("plain").attention_maps(INPUTS_BT) == {}


class Tokens(NamedTuple):
    tokens_NT: Tensor

    def select(self, index_N: Tensor) -> "Tokens":
        return Tokens(self.tokens_NT[index_N])


class WithoutState(LanguageModel):
    """Reads all tokens again at every step; the state is the tokens."""

    def start(self, batch: Any) -> Any:
        return Tokens(batch.beginning_BP), super().start(batch)[1]

    def step(self, token_N: Tensor, state: Any, source: Any, with_weights: bool = True) -> Any:
        if not (token_N == SOS).all():
            state = Tokens(torch.cat([state.tokens_NT, token_N[:, None]], dim=1))
        return self(state.tokens_NT)[0][:, -1].log_softmax(-1), state, None


SEARCHES = {
    "greedy": GreedySearch(0.5, 1.0, 3),
    "beam": beam_search(4, length_penalty=0.6, nbest=3, min_length_factor=0.5, max_length_extra=3),
    "sampling": sampling_search(nbest=2, seed=7, min_length_factor=0.5, max_length_extra=3),
}


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("decoder", DECODERS)
def test_every_search_finds_what_it_finds_without_a_state(decoder: str, search: str) -> None:
    model = model_of(decoder)
    found = []
    for kind in (LanguageModel, WithoutState):
        model.__class__ = kind
        beginning_BP = torch.tensor([[SOS, 5, 6], [SOS, 7, 8]])
        found.append(SEARCHES[search](model, GenerationBatch(torch.arange(2), beginning_BP, (6, 6)), False))
    ours, theirs = found
    assert [[one.tokens for one in of_one] for of_one in ours] == [
        [one.tokens for one in of_one] for of_one in theirs
    ]
    assert all(len(one.tokens) > 2 for of_one in ours for one in of_one)
    scores = [[one.score for of_one in each for one in of_one] for each in found]
    assert scores[0] == pytest.approx(scores[1], rel=1e-6)
