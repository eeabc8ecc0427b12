import math
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from small_models import batch_of, random_sentences, small_config, small_model, values_of
from torch import Tensor, nn

from seq2seq_lab.config.schema import origin
from seq2seq_lab.data.batch import Batch
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.attention import (
    AdditiveAttention,
    Attention,
    BaseAttention,
    CoverageAttention,
    DotAttention,
    LocationAttention,
    MultiplicativeAttention,
    ScaledDotAttention,
    UniformAttention,
    additive,
)
from seq2seq_lab.models.encoders import EncoderOutputs
from seq2seq_lab.models.source import Source

B, T, S, E, M, D = 3, 2, 4, 2, 3, 5
LENGTHS = (4, 2, 1)

# One score, number by number, from the formula of each function; h is the encoder output at position j, s a query.
Score = Callable[[Attention, Tensor, Tensor, int], Tensor]


def dot(_: Attention, h: Tensor, s: Tensor, j: int) -> Tensor:
    return total(h[i] * s[i] for i in range(len(h)))


def multiplicative(attention: Attention, h: Tensor, s: Tensor, j: int) -> Tensor:
    """h_j^T W s; the layer holds W transposed, times the root of the size of s."""
    w = matrix(attention, "key") / math.sqrt(len(s))
    return total(h[i] * w[k, i] * s[k] for i, k in product(range(len(h)), range(len(s))))


def additive_score(attention: Attention, h: Tensor, s: Tensor, j: int) -> Tensor:
    u, w, v = matrix(attention, "key"), matrix(attention, "query"), matrix(attention, "energy")[0]
    b = linear(attention, "key").bias
    terms = []
    for k in range(len(v)):
        inner = total(w[k, i] * s[i] for i in range(len(s))) + total(u[k, i] * h[i] for i in range(len(h)))
        terms.append(v[k] * torch.tanh(inner + b[k]))
    return total(terms)


def scaled_dot(attention: Attention, h: Tensor, s: Tensor, j: int) -> Tensor:
    w, u = matrix(attention, "key"), matrix(attention, "query")
    terms = []
    for k in range(len(w)):
        key, query = (
            total(w[k, i] * h[i] for i in range(len(h))),
            total(u[k, i] * s[i] for i in range(len(s))),
        )
        terms.append(key * query)
    return total(terms) / math.sqrt(len(w))


def location(attention: Attention, h: Tensor, s: Tensor, j: int) -> Tensor:
    """Row j of W times [e; s], independent of the encoder outputs."""
    w = matrix(attention, "position")
    return total(w[j, i] * s[i] for i in range(len(s)))


def total(terms: object) -> Tensor:
    return torch.stack(list(terms)).sum()  # type: ignore[call-overload]


def linear(attention: Attention, name: str) -> nn.Linear:
    layer = attention.get_submodule(name)
    assert isinstance(layer, nn.Linear)
    return layer


def matrix(attention: Attention, name: str) -> Tensor:
    return linear(attention, name).weight


FUNCTIONS: dict[str, tuple[Callable[[], Attention], Score]] = {
    "dot": (lambda: DotAttention(query_size=M, encoder_output_size=M), dot),
    "multiplicative": (lambda: MultiplicativeAttention(query_size=2, encoder_output_size=M), multiplicative),
    "additive": (lambda: AdditiveAttention(query_size=2, encoder_output_size=M, size=D), additive_score),
    "scaled_dot": (lambda: ScaledDotAttention(query_size=2, encoder_output_size=M, size=D), scaled_dot),
    # Of its 6 scores the last 2 are cut off.
    "location": (
        lambda: LocationAttention(query_size=2, encoder_output_size=M, embedding_size=E, max_length=4),
        location,
    ),
}

every_function = pytest.mark.parametrize("name", FUNCTIONS)


def inputs(attention: BaseAttention, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Random query_BTQ, as the function makes it of state and embedding, and encoder_outputs_BSM."""
    state_BTH = torch.randn(B, T, attention.query_size, dtype=dtype, requires_grad=True)
    query_BTQ = attention.build_query(state_BTH, torch.randn(B, T, E, dtype=dtype))
    encoder_outputs_BSM = torch.randn(B, S, attention.encoder_output_size, dtype=dtype, requires_grad=True)
    return query_BTQ, encoder_outputs_BSM


def mask_of(lengths: tuple[int, ...]) -> Tensor:
    """B1S, true at real positions."""
    return (torch.arange(S) < torch.tensor(lengths)[:, None])[:, None]


def attend(
    attention: BaseAttention, query_BTQ: Tensor, encoder_outputs_BSM: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    size = encoder_outputs_BSM.shape[1]
    lengths = [size] * len(query_BTQ) if mask is None else mask.sum((1, 2)).tolist()
    source = Source.encoded(EncoderOutputs(encoder_outputs_BSM, lengths, None), attention.project)
    context_BTM, weights_BTS, _ = attention(query_BTQ, source, attention.initial_state(source))
    assert weights_BTS is not None
    return context_BTM, weights_BTS


def slow(
    attention: Attention,
    score: Score,
    query_BTQ: Tensor,
    encoder_outputs_BSM: Tensor,
    lengths: tuple[int, ...],
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, context and weights in loops: softmax over the real positions, then the weighted sum."""
    zero = torch.zeros((), dtype=torch.float64)
    scores, contexts, weights = [], [], []
    for b, t in product(range(B), range(T)):
        row = [score(attention, encoder_outputs_BSM[b, j], query_BTQ[b, t], j) for j in range(S)]
        real = range(lengths[b])
        denominator = total(torch.exp(row[j]) for j in real)
        weight = [torch.exp(row[j]) / denominator if j in real else zero for j in range(S)]
        contexts += [total(weight[j] * encoder_outputs_BSM[b, j, m] for j in range(S)) for m in range(M)]
        scores += row
        weights += weight
    return (
        torch.stack(scores).view(B, T, S),
        torch.stack(contexts).view(B, T, M),
        torch.stack(weights).view(B, T, S),
    )


def gradients(output: Tensor, attention: Attention, *leaves: Tensor) -> list[Tensor]:
    direction = torch.linspace(-1, 2, output.numel(), dtype=output.dtype).view_as(output)
    leaves += tuple(attention.parameters())
    found = torch.autograd.grad((output * direction).sum(), leaves, allow_unused=True, retain_graph=True)
    return [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, found, strict=True)]


def test_uniform_attention_is_the_mean_of_the_real_positions() -> None:
    attention = UniformAttention(query_size=2, encoder_output_size=M)
    assert not [*attention.parameters()]
    query_BTQ, encoder_outputs_BSM = inputs(attention)
    lengths = (*range(1, S + 1), *[S] * B)[:B]
    context_BTM, weights_BTS = attend(attention, query_BTQ, encoder_outputs_BSM, mask_of(lengths))
    for row, length in enumerate(lengths):
        torch.testing.assert_close(weights_BTS[row, :, :length], torch.full((T, length), 1 / length).double())
        assert not weights_BTS[row, :, length:].any()
        mean_M = encoder_outputs_BSM[row, :length].mean(0)
        torch.testing.assert_close(context_BTM[row], mean_M.expand(T, M))


def test_every_function_in_conf_is_tested() -> None:
    stateful = {"coverage", "local", "location_sensitive"}  # see test_stateful_attention.py
    others = {"none", "uniform", *stateful}
    assert {origin("attention", value) for value in values_of("attention")} - others == {*FUNCTIONS}


@pytest.mark.parametrize("value", values_of("attention"))
@pytest.mark.parametrize("decoder", ["luong", "bahdanau"])
def test_weights_of_every_value_in_conf(value: str, decoder: str) -> None:
    """A row is a distribution over the real tokens; the weights of `local` sum to less than 1."""
    model = small_model(small_config("gru", decoder, value, encoder_hidden_size=10))
    batch = batch_of(random_sentences([4, 1, 6], seed=1), random_sentences([2, 5, 3], seed=2))
    _, weights_BTS = model(batch, batch.inputs_BT)
    if value == "none":
        assert weights_BTS is None
        return
    positions_S = torch.arange(batch.source_BS.shape[1])
    real_B1S = (positions_S < torch.tensor(batch.source_lengths)[:, None])[:, None]
    assert torch.equal(weights_BTS > 0, real_B1S.expand_as(weights_BTS))
    assert torch.equal(weights_BTS == 0, ~real_B1S.expand_as(weights_BTS))
    assert weights_BTS.max() <= 1
    if value == "local":
        assert weights_BTS.sum(-1).max() <= 1
    else:
        torch.testing.assert_close(weights_BTS.sum(-1), torch.ones(weights_BTS.shape[:2]))


def test_location_reads_the_input_and_no_key() -> None:
    attention = FUNCTIONS["location"][0]()
    state_BTH, embedded_BTE, encoder_outputs_BSM = (
        torch.randn(B, T, 2),
        torch.randn(B, T, E),
        torch.randn(B, S, M),
    )
    query_BTQ = attention.build_query(state_BTH, embedded_BTE)
    assert torch.equal(query_BTQ, torch.cat([embedded_BTE, state_BTH], dim=-1))
    assert attention.project(encoder_outputs_BSM).shape == (B, S, 0)
    other_BSM = torch.randn(B, S, M)
    weights = [attend(attention, query_BTQ, memory, None)[1] for memory in (encoder_outputs_BSM, other_BSM)]
    assert torch.equal(*weights)


@pytest.mark.parametrize("decoder", ["tutorial", "luong"])
def test_a_source_longer_than_location_has_scores_for_is_refused(decoder: str) -> None:
    config = small_config("gru", decoder, "location")
    config.attention["max_length"] = 4
    model = small_model(config)
    model(*longest_of(4))
    with pytest.raises(
        UserError, match=r"sentence has 5 tokens.* 4 at most.*attention\.max_length=5 .*attention=additive"
    ):
        model(*longest_of(5))
    with pytest.raises(UserError, match=r"^The test set has 6 tokens"):
        model.check_length(8, "The test set")


def longest_of(length: int) -> tuple[Batch, Tensor]:
    batch = batch_of(random_sentences([2, length], seed=1), random_sentences([2, 2], seed=2))
    return batch, batch.inputs_BT


@pytest.mark.parametrize("value", sorted({*values_of("attention")} - {"location"}))
def test_other_functions_take_a_source_of_any_length(value: str) -> None:
    small_model(small_config("gru", "luong", value, encoder_hidden_size=10)).check_length(10**6, "It")


@every_function
@pytest.mark.parametrize("lengths", [(S, S, S), LENGTHS], ids=["whole", "masked"])
def test_equals_the_formula_in_values_and_gradients(name: str, lengths: tuple[int, ...]) -> None:
    make, score = FUNCTIONS[name]
    torch.manual_seed(1)
    attention = make().double()
    query_BTQ, encoder_outputs_BSM = inputs(attention)
    mask = None if min(lengths) == S else mask_of(lengths)
    scores_BTS = attention.score(query_BTQ, attention.project(encoder_outputs_BSM))
    found = (scores_BTS, *attend(attention, query_BTQ, encoder_outputs_BSM, mask))
    expected = slow(attention, score, query_BTQ, encoder_outputs_BSM, lengths)
    for output, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(output, wanted, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(
            gradients(output, attention, query_BTQ, encoder_outputs_BSM),
            gradients(wanted, attention, query_BTQ, encoder_outputs_BSM),
            rtol=1e-10,
            atol=1e-12,
        )


@every_function
def test_every_parameter_matters(name: str) -> None:
    attention = FUNCTIONS[name][0]().double()
    query_BTQ, encoder_outputs_BSM = inputs(attention)
    context_BTM, _ = attend(attention, query_BTQ, encoder_outputs_BSM, None)
    assert all(g.abs().max() > 0 for g in gradients(context_BTM, attention, query_BTQ, encoder_outputs_BSM))


@pytest.mark.parametrize("numbers", [1, T * S * D, 2 * T * S * D])
def test_additive_scores_do_not_depend_on_how_many_are_in_work_or_stored(
    numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    attention = FUNCTIONS["additive"][0]().double()
    query_BTQ, encoder_outputs_BSM = inputs(attention)
    whole = attend(attention, query_BTQ, encoder_outputs_BSM, None)[0]
    expected = [whole, *gradients(whole, attention, query_BTQ, encoder_outputs_BSM)]
    monkeypatch.setattr(additive, "STORED_SUMS", 0)
    monkeypatch.setattr(additive, "CPU_SUMS", numbers)
    parts = attend(attention, query_BTQ, encoder_outputs_BSM, None)[0]
    torch.testing.assert_close(
        [parts, *gradients(parts, attention, query_BTQ, encoder_outputs_BSM)], expected
    )


def with_weights(attention: Attention, **weights: list[list[float]] | list[float]) -> Attention:
    """The function with the weights of its layers set; `NAME_bias` sets a bias."""
    with torch.no_grad():
        for name, value in weights.items():
            layer = linear(attention, name.removesuffix("_bias"))
            (layer.bias if name.endswith("_bias") else layer.weight).copy_(torch.tensor(value))
    return attention


# Worked by hand, so they hold as long as the formulas do. All scores are 0 or a logarithm: for memory
# rows (1, 0) and (0, 1), scores (ln a, 0) give weights (a, 1) / (a + 1), and the context is the weights.
GOLDEN = [
    pytest.param(
        DotAttention(query_size=2, encoder_output_size=2),
        [math.log(2), 0.0],
        (2 / 3, 1 / 3),
        id="dot",
    ),
    pytest.param(  # W s = (0, ln 3): W exchanges the two numbers
        with_weights(
            MultiplicativeAttention(query_size=2, encoder_output_size=2), key=[[0.0, 2**0.5], [2**0.5, 0.0]]
        ),
        [math.log(3), 0.0],
        (1 / 4, 3 / 4),
        id="multiplicative",
    ),
    pytest.param(  # W s + U h + b = 3 - 2 + (0, -1), and v tanh of it = ln 4 and 0
        with_weights(
            AdditiveAttention(query_size=1, encoder_output_size=2, size=1),
            query=[[0.5]],
            key=[[0.0, -1.0]],
            key_bias=[-2.0],
            energy=[[math.log(4) / math.tanh(1)]],
        ),
        [6.0],
        (4 / 5, 1 / 5),
        id="additive",
    ),
    pytest.param(  # (W h)(U s) = 4 · ln 5 / 2 for the first row, divided by √4
        with_weights(
            ScaledDotAttention(query_size=1, encoder_output_size=2, size=4),
            key=[[1.0, 0.0]] * 4,
            query=[[0.5]] * 4,
        ),
        [math.log(5)],
        (5 / 6, 1 / 6),
        id="scaled_dot",
    ),
    pytest.param(  # W [e; s] = (ln 6, 0, …) of e = 2 and s = ln 6; the third score is cut off
        with_weights(
            LocationAttention(query_size=1, encoder_output_size=2, embedding_size=1, max_length=1),
            position=[[0.0, 1.0], [0.0, 0.0], [9.0, 9.0]],
        ),
        [2.0, math.log(6)],
        (6 / 7, 1 / 7),
        id="location",
    ),
]


@pytest.mark.parametrize(("attention", "query", "expected"), GOLDEN)
def test_golden(attention: Attention, query: list[float], expected: tuple[float, float]) -> None:
    context_BTM, weights_BTS = attend(attention, torch.tensor([[query]]), torch.eye(2)[None], None)
    torch.testing.assert_close(weights_BTS, torch.tensor([[expected]]))
    torch.testing.assert_close(context_BTM, torch.tensor([[expected]]))


@every_function
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_sum_to_1_and_padding_gets_exactly_0(name: str, dtype: torch.dtype) -> None:
    attention = FUNCTIONS[name][0]().to(dtype)
    query_BTQ, encoder_outputs_BSM = inputs(attention, dtype)
    mask = mask_of(LENGTHS)
    context_BTM, weights_BTS = attend(attention, query_BTQ, encoder_outputs_BSM, mask)
    assert context_BTM.dtype == dtype
    assert weights_BTS.dtype == torch.float32
    assert weights_BTS.min() >= 0
    assert torch.all(weights_BTS.masked_select(~mask.expand_as(weights_BTS)) == 0)
    torch.testing.assert_close(weights_BTS.sum(-1), torch.ones(B, T))


@every_function
def test_padding_has_no_effect(name: str) -> None:
    """A masked batch equals each sentence alone, with any values at padding, which gets no gradient."""
    attention = FUNCTIONS[name][0]().double()
    query_BTQ, encoder_outputs_BSM = inputs(attention)
    noise = torch.where(mask_of(LENGTHS).transpose(1, 2), 0.0, 100.0)
    context_BTM, weights_BTS = attend(attention, query_BTQ, encoder_outputs_BSM + noise, mask_of(LENGTHS))
    for b, length in enumerate(LENGTHS):
        alone = attend(attention, query_BTQ[b : b + 1], encoder_outputs_BSM[b : b + 1, :length], None)
        torch.testing.assert_close(context_BTM[b : b + 1], alone[0])
        torch.testing.assert_close(weights_BTS[b : b + 1, :, :length], alone[1])
    (gradient_BSM,) = torch.autograd.grad(context_BTM.sum(), encoder_outputs_BSM)
    assert torch.all(gradient_BSM.abs().sum(-1)[~mask_of(LENGTHS)[:, 0]] == 0)


class OneScore(DotAttention):
    def score(self, query_BTQ: Tensor, keys_BSK: Tensor) -> Tensor:
        return super().score(query_BTQ, keys_BSK)[..., :1]


class NoQueries(DotAttention):
    def score(self, query_BTQ: Tensor, keys_BSK: Tensor) -> Tensor:
        return keys_BSK.sum(-1)


class ShortKeys(DotAttention):
    def project(self, encoder_outputs_BSM: Tensor) -> Tensor:
        return encoder_outputs_BSM[:, 1:]


class OneScoreOfStep(CoverageAttention):
    def score_step(self, query_NQ: Tensor, keys_BSK: Tensor, history: Any) -> Tensor:
        return super().score_step(query_NQ, keys_BSK, history)[:, :1]


class OneWeightOfStep(CoverageAttention):
    def attend_step(self, query_NQ: Tensor, source: Source, history: Any) -> tuple[Tensor, Any]:
        weights_NS, after = super().attend_step(query_NQ, source, history)
        return weights_NS[:, :1], after


@pytest.mark.parametrize(
    ("attention", "method", "shapes"),
    [
        (OneScore(M, M), "score", ([B, T, 1], [B, T, S])),
        (NoQueries(M, M), "score", ([B, S], [B, T, S])),
        (ShortKeys(M, M), "score", ([B, T, S - 1], [B, T, S])),
        (OneScoreOfStep(M, M, size=D), "score_step", ([B, 1], [B, S])),
        (OneWeightOfStep(M, M, size=D), "attend_step", ([B, 1], [B, S])),
    ],
)
def test_scores_of_another_shape_are_refused(
    attention: BaseAttention, method: str, shapes: tuple[list[int], list[int]]
) -> None:
    """The mask would broadcast them: all real positions would get the same weight."""
    given, expected = shapes
    query_BTQ, outputs_BSM = inputs(attention, torch.float32)
    with pytest.raises(UserError) as caught:
        attend(attention, query_BTQ, outputs_BSM, mask_of(LENGTHS))
    for part in (f"attention={type(attention).__name__}: {method} ", f"shape {given}", f"= {expected}"):
        assert part in str(caught.value)
