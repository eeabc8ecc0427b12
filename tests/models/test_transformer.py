"""The Transformer against formulas written out, one position at a time, and its cache against full decoding."""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest
import torch
from small_models import batch_of, beam_search, small_config, small_model, values_of
from torch import Tensor
from torch.nn import functional

from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.tokenizers import EOS, SOS
from seq2seq_lab.errors import UserError
from seq2seq_lab.launching.checks import check_slots
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.models.transformer import attend, sinusoids
from seq2seq_lab.tasks.parts import check_model

HEADS, LAYERS = 2, 2
SOURCES, TARGETS = [[4, 5, 6], [7], [8, 9, 10, 11, 12]], [[5, 6, 7, 8], [9, 10], [11]]
FUNCTIONS = sorted({*values_of("attention")} - {"none", "linear"})
VARIANTS = [*product(("pre", "post"), ("sinusoidal", "learned"))]


def model_of(
    attention: str = "scaled_dot",
    norm: str = "pre",
    positions: str = "sinusoidal",
    encoder: str = "transformer",
    **model: Any,
) -> Seq2Seq:
    """A model in float64 whose attention is far from uniform; all sizes differ."""
    settings: dict[str, Any] = {"num_layers": LAYERS, "locked_dropout": False} | model
    config = small_config(encoder, "transformer", attention, **settings)
    for slot in (config.encoder, config.decoder):
        if "norm" in slot:
            slot.update(norm=norm, positions=positions, max_length=4)
    check_slots(config)
    made = small_model(config).double().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(2).add_(0.1 * torch.randn_like(parameter))
    return made


def batch() -> Batch:
    return batch_of(SOURCES, TARGETS)


class Paper:
    """Vaswani 2017, sections 3.1 to 3.5, for one sentence and without matrices over time."""

    def __init__(self, model: Seq2Seq, norm: str, positions: str) -> None:
        self.weights, self.scale = model.state_dict(), model.target_dropout.scale
        self.pre, self.learned = norm == "pre", positions == "learned"

    def affine(self, name: str, x: Tensor) -> Tensor:
        return self.weights[f"{name}.weight"] @ x + self.weights[f"{name}.bias"]

    def norm(self, name: str, x: Tensor) -> Tensor:
        standard = (x - x.mean()) / (x.var(unbiased=False) + 1e-5).sqrt()
        return self.weights[f"{name}.weight"] * standard + self.weights[f"{name}.bias"]

    def embed(self, side: str, room: str, tokens: Sequence[int]) -> list[Tensor]:
        table = self.weights[f"{side}_embedding.table.weight"]
        return [self.scale * table[token] + self.position(room, p) for p, token in enumerate(tokens)]

    def position(self, room: str, p: int) -> Tensor:
        if self.learned:
            return self.weights[f"{room}.positions.table.weight"][min(p, 3)]
        size = 6
        angles = [p / 10_000 ** (2 * (i // 2) / size) for i in range(size)]
        rows = [torch.tensor(angle, dtype=torch.float64) for angle in angles]
        return torch.stack([row.cos() if i % 2 else row.sin() for i, row in enumerate(rows)])

    def heads(self, x: Tensor) -> tuple[Tensor, ...]:
        return x.chunk(HEADS)

    def attend(self, name: str, x: Tensor, others: list[Tensor]) -> Tensor:
        """MultiHead(x, others, others), equation 1 in each head."""
        queries = self.heads(self.affine(f"{name}.query", x))
        keys = [self.heads(self.affine(f"{name}.key", other)) for other in others]
        values = [self.heads(self.affine(f"{name}.value", other)) for other in others]
        contexts = []
        for head, query in enumerate(queries):
            powers = [(key[head] @ query / len(query) ** 0.5).exp() for key in keys]
            total = sum(powers)
            contexts.append(
                torch.stack([p / total * value[head] for p, value in zip(powers, values, strict=True)]).sum(0)
            )
        return self.affine(f"{name}.output", torch.cat(contexts))

    def sublayer(
        self, name: str, xs: list[Tensor], function: Callable[[int, list[Tensor]], Tensor]
    ) -> list[Tensor]:
        """LayerNorm(x + Sublayer(x)), or x + Sublayer(LayerNorm(x))."""
        entered = [self.norm(f"{name}_residual.norm", x) for x in xs] if self.pre else xs
        left = [x + function(t, entered) for t, x in enumerate(xs)]
        return left if self.pre else [self.norm(f"{name}_residual.norm", x) for x in left]

    def feed_forward(self, name: str, xs: list[Tensor]) -> list[Tensor]:
        def network(t: int, entered: list[Tensor]) -> Tensor:
            return self.affine(f"{name}.2", self.affine(f"{name}.0", entered[t]).clamp(min=0))

        return self.sublayer(name, xs, network)

    def encode(self, tokens: Sequence[int]) -> list[Tensor]:
        xs = self.embed("source", "encoder", tokens)
        for number in range(LAYERS):
            name = f"encoder.layers.{number}"
            xs = self.sublayer(
                f"{name}.attention",
                xs,
                lambda t, entered, name=name: self.attend(f"{name}.attention", entered[t], entered),
            )
            xs = self.feed_forward(f"{name}.feed_forward", xs)
        return [self.norm("encoder.norm", x) for x in xs] if self.pre else xs

    def decode(self, outputs: list[Tensor], tokens: Sequence[int]) -> list[Tensor]:
        xs = self.embed("target", "decoder", tokens)
        for number in range(LAYERS):
            layer = f"decoder.layers.{number}"
            xs = self.sublayer(
                f"{layer}.self",
                xs,
                lambda t, entered, name=f"{layer}.self_attention": self.attend(
                    name, entered[t], entered[: t + 1]
                ),
            )
            xs = self.sublayer(
                f"{layer}.cross",
                xs,
                lambda t, entered, name=f"{layer}.cross_attention": self.attend(name, entered[t], outputs),
            )
            xs = self.feed_forward(f"{layer}.feed_forward", xs)
        xs = [self.norm("decoder.norm", x) for x in xs] if self.pre else xs
        return [self.affine("readout.linear", x).log_softmax(0) for x in xs]


@pytest.mark.parametrize(("norm", "positions"), VARIANTS)
def test_log_probabilities_are_those_of_the_paper(norm: str, positions: str) -> None:
    """The batch is padded, and learned positions end at 4."""
    model, given = model_of(norm=norm, positions=positions), batch()
    paper = Paper(model, norm, positions)
    logits_BTV, _ = model(given, given.inputs_BT)
    for log_probs_TV, source, target in zip(logits_BTV.log_softmax(-1), SOURCES, TARGETS, strict=True):
        expected = paper.decode(paper.encode([SOS, *source, EOS]), [SOS, *target])
        torch.testing.assert_close([*log_probs_TV[: len(expected)]], expected, rtol=1e-9, atol=1e-11)


def test_the_positions_of_the_paper() -> None:
    """PE(p, 2i) = sin(p / 10000^(2i/E)), PE(p, 2i + 1) = cos of the same, also of an odd size."""
    found = sinusoids(torch.tensor([0, 7]), 5)
    assert found[0].tolist() == [0.0, 1.0, 0.0, 1.0, 0.0]
    expected = torch.tensor([7.0, 7 / 10_000 ** (2 / 5), 7 / 10_000 ** (4 / 5)], dtype=torch.float64)
    torch.testing.assert_close(found[1, ::2], expected.sin())
    torch.testing.assert_close(found[1, 1::2], expected[:2].cos())


def by_steps(model: Seq2Seq, given: Batch) -> tuple[Tensor, Tensor]:
    state, source = model.start(given)
    rows, weights = [], []
    for token_B in given.inputs_BT.unbind(1):
        log_probs_BV, state, weights_BS = model.step(token_B, state, source)
        assert weights_BS is not None
        rows.append(log_probs_BV)
        weights.append(weights_BS)
    return torch.stack(rows, dim=1), torch.stack(weights, dim=1)


@pytest.mark.parametrize(
    "settings",
    [
        *({"attention": attention} for attention in FUNCTIONS),
        *({"norm": norm, "positions": positions} for norm, positions in VARIANTS),
        {"encoder": "bilstm"},
        {"encoder": "gru", "attention": "coverage"},
    ],
    ids=lambda settings: "-".join(settings.values()),
)
def test_unroll_equals_repeated_step(settings: dict[str, str]) -> None:
    """Log-probabilities, attention weights and gradients; without weights, the same log-probabilities."""
    model, given = model_of(**settings), batch()
    state, source = model.start(given)
    logits_BTV, weights_BTS = model.unroll(given.inputs_BT, state, source)
    found, found_weights = by_steps(model, given)
    log_probs_BTV = logits_BTV.log_softmax(-1)
    torch.testing.assert_close(found, log_probs_BTV, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found_weights, weights_BTS, rtol=1e-10, atol=1e-12)
    direction = torch.linspace(-1, 2, found.numel(), dtype=torch.float64).view_as(found)
    gradients = [
        torch.autograd.grad((output * direction).sum(), [*model.parameters()], retain_graph=True)
        for output in (found, log_probs_BTV)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-11)
    without_BTV, _ = model.unroll(given.inputs_BT, state, source, with_weights=False)
    assert torch.equal(without_BTV, logits_BTV)


def test_unroll_continues_after_a_step() -> None:
    model, given = model_of(), batch()
    whole_BTV, _ = model(given, given.inputs_BT)
    state, source = model.start(given)
    _, state, _ = model.step(given.inputs_BT[:, 0], state, source)
    rest_BTV, _ = model.unroll(given.inputs_BT[:, 1:], state, source)
    torch.testing.assert_close(rest_BTV, whole_BTV[:, 1:])


def test_weights_are_computed_only_if_they_are_read() -> None:
    model, given = model_of(), batch()
    state, source = model.start(given)
    _, weights_BTS = model.unroll(given.inputs_BT, state, source, with_weights=False)
    _, _, weights_BS = model.step(given.inputs_BT[:, 0], state, source, with_weights=False)
    assert weights_BTS is None
    assert weights_BS is None


@pytest.mark.parametrize("attention", ["scaled_dot", "coverage", "local"])
def test_rows_of_a_beam_share_the_source_of_their_sentence(attention: str) -> None:
    """K hypotheses of B sentences equal N sentences of one hypothesis, also after they are reordered."""
    model = model_of(attention)
    given, repeated = (batch_of([one for one in SOURCES for _ in range(k)], [[]] * 3 * k) for k in (1, 2))
    state, source = model.start(given)
    state = state.select(torch.tensor([0, 0, 1, 1, 2, 2]))
    apart, wide = model.start(repeated)
    order = torch.tensor([1, 1, 2, 3, 5, 4])
    for token in (4, 7, 9):
        token_N = torch.arange(6) + token - 4
        found_NV, state, weights_NS = model.step(token_N, state, source)
        expected_NV, apart, expected_NS = model.step(token_N, apart, wide)
        torch.testing.assert_close(found_NV, expected_NV)
        torch.testing.assert_close(weights_NS, expected_NS)
        state, apart = state.select(order), apart.select(order)


class WithoutCache(Seq2Seq):
    """Reads all tokens again at every step; the state is the tokens and their sentences."""

    def start(self, batch: Any) -> Any:
        _, source = super().start(batch)
        return Tokens(torch.empty(len(batch.index_B), 0, dtype=torch.long)), source

    def step(self, token_N: Tensor, state: Any, source: Any, with_weights: bool = True) -> Any:
        tokens_NT = torch.cat([state.tokens_NT, token_N[:, None]], dim=1)
        wide = source.select(
            torch.arange(len(source.lengths_B)).repeat_interleave(len(token_N) // len(source.lengths_B))
        )
        logits_NTV, weights_NTS = self.unroll(tokens_NT, self.decoder.start(wide), wide)
        assert weights_NTS is not None
        return logits_NTV[:, -1].log_softmax(-1), Tokens(tokens_NT), weights_NTS[:, -1]


class Tokens:
    def __init__(self, tokens_NT: Tensor) -> None:
        self.tokens_NT = tokens_NT

    def select(self, index_N: Tensor) -> "Tokens":
        return Tokens(self.tokens_NT[index_N])


@pytest.mark.parametrize("attention", ["scaled_dot", "additive", "coverage"])
def test_beam_search_finds_the_same_without_the_cache(attention: str) -> None:
    model, given = model_of(attention), batch()
    search = beam_search(4, length_penalty=0.6, coverage_penalty=0.3, nbest=3, max_length_extra=3)
    found = search(model, given, with_weights=True)
    model.__class__ = WithoutCache
    expected = search(model, given, with_weights=True)
    assert len({tuple(one.tokens) for one in found[2]}) == 3
    for ours, theirs in zip(found, expected, strict=True):
        assert [one.tokens for one in ours] == [one.tokens for one in theirs]
        for one, other in zip(ours, theirs, strict=True):
            assert one.score == pytest.approx(other.score, rel=1e-6)
            assert one.weights_TS == pytest.approx(other.weights_TS, abs=1e-6)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_no_position_reads_later_target_tokens_or_padding(norm: str) -> None:
    """The gradient of each output with respect to the embeddings is 0 after its position, and at padding of the source."""
    model, given = model_of(norm=norm), batch()
    embedded_BTE = torch.randn(3, 5, 6, dtype=torch.float64, requires_grad=True)
    embedded_BSE = torch.randn(3, 7, 6, dtype=torch.float64, requires_grad=True)
    encoded = model.encoder(embedded_BSE, given.source_lengths)
    assert not encoded.outputs_BSM[1, 3:].any()
    from_encoder = torch.autograd.grad(encoded.outputs_BSM.square().sum(), embedded_BSE)[0]
    real_BS = torch.arange(7) < torch.tensor(given.source_lengths)[:, None]
    assert torch.equal(from_encoder.abs().amax(-1) > 0, real_BS)
    state, source = model.start(given)
    features_BTF, _, _ = model.decoder.unroll(embedded_BTE, state, source)
    for t in range(5):
        seen = torch.autograd.grad(features_BTF[:, t].square().sum(), embedded_BTE, retain_graph=True)[0]
        assert (seen.abs().amax(-1) > 0).tolist() == [[position <= t for position in range(5)]] * 3


def test_attention_maps_of_every_layer_and_head() -> None:
    model, given = model_of(), batch()
    maps = model.attention_maps(given, given.inputs_BT)
    assert {name: tuple(one.shape) for name, one in maps.items()} == {
        "encoder": (3, LAYERS, HEADS, 7, 7),
        "decoder": (3, LAYERS, HEADS, 5, 5),
        "cross": (3, LAYERS, HEADS, 5, 7),
    }
    _, weights_BTS = model(given, given.inputs_BT)
    torch.testing.assert_close(maps["cross"][:, -1].mean(1), weights_BTS)
    for one in maps.values():
        torch.testing.assert_close(one.sum(-1), torch.ones_like(one[..., 0]))
    assert not maps["encoder"][1, ..., 3:].any()
    assert not maps["decoder"].triu(1).any()
    assert small_model(small_config()).attention_maps(given, given.inputs_BT) == {}


def test_fused_attention_equals_the_score_function() -> None:
    """The weights of a head are the softmax of (W h)^T (U s) / sqrt(d), d = attention.size / heads."""
    model, given = model_of(hidden_size=8), batch()
    read: list[Tensor] = []
    cross = model.decoder.get_submodule("layers.1.cross_attention")
    cross.register_forward_pre_hook(lambda _, args: read.append(args[0]))
    maps = model.attention_maps(given, given.inputs_BT)
    _, source = model.start(given)
    query = functional.linear(read[-1], cross.query.weight, cross.query.bias)[2].chunk(HEADS, -1)
    keys = functional.linear(source.encoder_outputs_BSM, cross.key.weight, cross.key.bias)[2].chunk(HEADS, -1)
    for head in range(HEADS):
        expected = (query[head] @ keys[head].T / (8 / HEADS) ** 0.5).softmax(-1)
        torch.testing.assert_close(maps["cross"][2, 1, head], expected)


def test_attention_in_bfloat16_computes_what_torch_does() -> None:
    """On a CPU, bfloat16 has its own implementation of the dot-product attention."""
    query, keys, values = (torch.randn(2, HEADS, 5, 4).bfloat16() for _ in range(3))
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    expected, expected_weights = attend(query.double(), keys.double(), values.double(), mask, True)
    assert expected_weights is not None
    query.requires_grad_()
    for with_weights in (False, True):
        found, weights = attend(query, keys, values, mask, with_weights)
        assert found.requires_grad
        torch.testing.assert_close(found.double(), expected, rtol=0.02, atol=0.02)
        if with_weights:
            torch.testing.assert_close(weights.double(), expected_weights, rtol=0.02, atol=0.02)
        else:
            assert weights is None


@pytest.mark.parametrize("bridge", ["mean", "zero"])
def test_a_recurrent_decoder_on_a_transformer_encoder(bridge: str) -> None:
    config = small_config("gru", "luong", "multiplicative", bridge=bridge)
    config.encoder = small_config("transformer", "transformer").encoder
    check_model(config)
    model, given = small_model(config).double(), batch()
    found, _ = by_steps(model, given)
    torch.testing.assert_close(found, model(given, given.inputs_BT)[0].log_softmax(-1))


@pytest.mark.parametrize(
    ("encoder", "decoder", "attention", "sizes", "key"),
    [
        ("transformer", "transformer", "none", {}, "attention"),
        ("transformer", "transformer", "scaled_dot", {"num_heads": 4}, "num_heads"),
        ("bigru", "transformer", "scaled_dot", {"hidden_size": 5}, r"attention\.size"),
        ("transformer", "transformer", "scaled_dot", {"share_layers": True}, r"model\.share_layers"),
    ],
)
def test_refused_by_name(encoder: str, decoder: str, attention: str, sizes: dict[str, Any], key: str) -> None:
    with pytest.raises(UserError, match=key):
        check_model(small_config(encoder, decoder, attention, **sizes))


def test_a_bridge_from_a_final_state_is_refused() -> None:
    config = small_config("gru", "luong", "additive")
    config.encoder = small_config("transformer", "transformer").encoder
    with pytest.raises(UserError, match=r"model\.bridge=mean"):
        check_model(config)


def test_number_of_parameters() -> None:
    """By hand, of the sizes of conf/model/transformer.yaml."""
    size, inner, layers, vocabulary = 128, 256, 4, 100
    attention, norm = 4 * (size * size + size), 2 * size
    feed_forward = size * inner + inner + inner * size + size
    sides = layers * (attention + feed_forward + 2 * norm), layers * (2 * attention + feed_forward + 3 * norm)
    sizes = {"embedding_size": size, "feedforward_size": inner, "num_layers": layers, "num_heads": 4}
    config = small_config("transformer", "transformer", "scaled_dot", hidden_size=size, **sizes)
    model = small_model(config, vocabulary=vocabulary)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert parameters == sum(sides) + 2 * norm + 2 * vocabulary * size + vocabulary * (size + 1)
