"""The properties of a decoder step with attention after the recurrent step; the reference is that of the package."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from seq2seq_lab.lesson.properties import Mismatch, Property, Solution, unchanged
from seq2seq_lab.lesson.student import Student
from seq2seq_lab.lesson.tensors import Draw, expect, expect_shape, mask_of, source_lengths
from seq2seq_lab.models.attention import MultiplicativeAttention
from seq2seq_lab.models.attention.base import AttentionState
from seq2seq_lab.models.decoders import AttendAfterDecoder, DecoderState
from seq2seq_lab.models.encoders.base import EncoderSizes
from seq2seq_lab.models.recurrent import RecurrentSpec, RecurrentState
from seq2seq_lab.models.source import Source

EMBEDDING = 3  # E
SIZE = 5  # H = M = F, so that another order of a product or a concatenation has the same shape
SMALL = 1e-5  # tanh x = x within a relative 1e-10
STEPS = 3


class Step(NamedTuple):
    """The results of a step."""

    features_BF: Tensor
    state_BH: Tensor
    weights_BS: Tensor


class Case:
    """A decoder of the package with random weights, and the arguments of its first step.

    Args:
        combine: W_c = [`combine[0]` | `combine[1]`] instead of random weights.
    """

    def __init__(self, student: Student, combine: tuple[Tensor, Tensor] | None = None) -> None:
        draw, lengths = Draw(student), source_lengths(student)
        self.decoder = AttendAfterDecoder(
            input_size=EMBEDDING,
            encoder=EncoderSizes(SIZE, None, 1),
            attention=MultiplicativeAttention,
            recurrent=RecurrentSpec("gru", SIZE, 1, 0.0, False),
            attentional_size=SIZE,
            input_feeding=False,
            rectified_input=False,
            bridge="zero",
            state_dropout=0.0,
        ).double()
        self.decoder.requires_grad_(False)
        for weight in self.decoder.parameters():
            weight.copy_(draw(*weight.shape))
        self.weight_FX = self.decoder.state_dict()["combine.weight"]
        if combine is not None:
            self.weight_FX.copy_(torch.cat(combine, dim=1))
        layer = self.decoder.layers.layers[0]
        self.rnn = nn.GRUCell(EMBEDDING, SIZE).double().requires_grad_(False)
        self.rnn.load_state_dict(
            {name.removesuffix("_l0"): weight for name, weight in layer.state_dict().items()}
        )
        self.outputs_BSM, self.mask_BS = draw(len(lengths), max(lengths), SIZE), mask_of(lengths)
        keys_BSK = self.decoder.project(self.outputs_BSM)
        self.source = Source(self.outputs_BSM, keys_BSK, torch.tensor(lengths), self.mask_BS[:, None], None)
        self.embedded_BTE, self.state_BH = draw(len(lengths), STEPS, EMBEDDING), draw(len(lengths), SIZE)
        self.given = f"random weights, {len(lengths)} sentences of {lengths} words"

    def score(self, state_BH: Tensor, outputs_BSM: Tensor) -> Tensor:
        """Return scores_BS."""
        keys_BSK = self.decoder.project(outputs_BSM)
        return (keys_BSK @ state_BH[:, :, None])[..., 0]

    def arguments(self, t: int, state_BH: Tensor) -> tuple[object, ...]:
        """Return the arguments of step t."""
        own = (self.embedded_BTE[:, t], state_BH, self.outputs_BSM, self.mask_BS)
        return (*own, self.rnn, self.score, self.weight_FX)

    def reference(self, t: int, state_BH: Tensor) -> Step:
        """Return what the package computes at step t."""
        state = DecoderState(RecurrentState(state_BH[None], None), AttentionState(t, None))
        features_BF, after, weights_BS = self.decoder.step(self.embedded_BTE[:, t], state, self.source)
        assert weights_BS is not None
        return Step(features_BF, after.layers.hidden_LBH[0], weights_BS)

    def solve(self, solution: Solution, t: int = 0, state_BH: Tensor | None = None) -> Step:
        """Return what the function returns at step t, of any type.

        Raises:
            Mismatch: it does not return three values.
        """
        arguments = self.arguments(t, self.state_BH if state_BH is None else state_BH)
        result = solution(self.given, *arguments)
        if not isinstance(result, tuple | list) or len(result) != len(Step._fields):
            count = f"{len(result)} of them" if isinstance(result, tuple | list) else type(result).__name__
            raise Mismatch(self.given, f"three values ({', '.join(Step._fields)})", count)
        return Step(*result)


def three_values(solution: Solution, student: Student) -> None:
    """The step returns the features, the new state and the weights."""
    Case(student).solve(solution)


def recurrent_state(solution: Solution, student: Student) -> None:
    """The new state is s_t = RNN(e(y_{t-1}), s_{t-1}), not s̃_t."""
    case = Case(student)
    expect(case.solve(solution).state_BH, case.reference(0, case.state_BH).state_BH, f"{case.given}, state")


def padding(solution: Solution, student: Student) -> None:
    """The weights of padding are exactly 0."""
    case = Case(student)
    given = f"{case.given}, weights"
    weights_BS = expect_shape(case.solve(solution).weights_BS, case.mask_BS.shape, given)
    expect(weights_BS.masked_fill(case.mask_BS, 0.0), torch.zeros_like(weights_BS), given, tolerance=0.0)


def query(solution: Solution, student: Student) -> None:
    """The weights are the softmax over the source positions of the scores of the new state s_t."""
    case = Case(student)
    expected = case.reference(0, case.state_BH).weights_BS
    expect(case.solve(solution).weights_BS, expected, f"{case.given}, weights")


def order(solution: Solution, student: Student) -> None:
    """The last H columns of W_c multiply s_t: with 0 in the others, s̃_t is tanh(W s_t)."""
    small = SMALL * torch.eye(SIZE, dtype=torch.float64)
    expect_features(solution, Case(student, (0 * small, small)), "W_c = [0 | small]")


def context(solution: Solution, student: Student) -> None:
    """The first M columns of W_c multiply the context c_t = Σ_j α_tj h_j: with 0 in the others, s̃_t is tanh(W c_t)."""
    small = SMALL * torch.eye(SIZE, dtype=torch.float64)
    expect_features(solution, Case(student, (small, 0 * small)), "W_c = [small | 0]")


def expect_features(solution: Solution, case: Case, what: str) -> None:
    """Compare features that are so small that tanh is the identity."""
    features_BF, expected = case.solve(solution).features_BF, case.reference(0, case.state_BH).features_BF
    if isinstance(features_BF, Tensor):
        features_BF = features_BF / SMALL
    expect(features_BF, expected / SMALL, f"{case.given}, {what}, features divided by {SMALL}", 1e-6)


def features(solution: Solution, student: Student) -> None:
    """The features are s̃_t = tanh(W_c [c_t; s_t])."""
    case = Case(student)
    expected = case.reference(0, case.state_BH).features_BF
    expect(case.solve(solution).features_BF, expected, f"{case.given}, features")


def several_steps(solution: Solution, student: Student) -> None:
    """Three steps, each from the state of the last one, are those of the package."""
    case = Case(student)
    own = expected_BH = case.state_BH
    for t in range(STEPS):
        result, expected = case.solve(solution, t, own), case.reference(t, expected_BH)
        for name, found, value in zip(Step._fields, result, expected, strict=True):
            expect(found, value, f"{case.given}, step {t}, {name}")
        own, expected_BH = result.state_BH, expected.state_BH


PROPERTIES: tuple[Property, ...] = (
    *(three_values, recurrent_state, padding, query, order, context, features, several_steps, unchanged),
)
