"""The properties of the additive score; the references are that of the package and the formula."""

from torch import Tensor

from seq2seq_lab.lesson.properties import Property, Solution, unchanged
from seq2seq_lab.lesson.student import Student
from seq2seq_lab.lesson.tensors import (
    Draw,
    expect,
    expect_gradients,
    expect_shape,
    source_lengths,
)
from seq2seq_lab.models.attention import AdditiveAttention

NAMES = ("query_BTQ", "encoder_outputs_BSM", "W_AQ", "U_AM", "b_A", "v_A")
SIZES = (4, 3, 6)  # Q, M and A
EQUAL = (5, 5, 5)  # where a product with a transposed matrix has the same shape
SMALL, LARGE = 1e-5, 1e3  # tanh x = x within a relative 1e-10; tanh x = ±1


def reference(*arguments: Tensor) -> Tensor:
    """Return scores_BTS, computed from the formula."""
    query_BTQ, outputs_BSM, W_AQ, U_AM, b_A, v_A = arguments
    query_BT1A, keys_B1SA = (query_BTQ @ W_AQ.T)[:, :, None], (outputs_BSM @ U_AM.T)[:, None]
    return (query_BT1A + keys_B1SA + b_A).tanh() @ v_A


def package_score(*arguments: Tensor) -> Tensor:
    """Return the scores_BTS of the package with these weights."""
    query_BTQ, outputs_BSM, W_AQ, U_AM, b_A, v_A = arguments
    attention = AdditiveAttention(query_BTQ.shape[-1], outputs_BSM.shape[-1], len(v_A)).double()
    weights = {"query.weight": W_AQ, "key.weight": U_AM, "key.bias": b_A, "energy.weight": v_A[None]}
    attention.requires_grad_(False).load_state_dict(weights)
    return attention.score(query_BTQ, attention.project(outputs_BSM))


def arguments_of(student: Student, sizes: tuple[int, int, int] = SIZES) -> list[Tensor]:
    """Return random arguments for sentences of the student, and one query more than source positions."""
    lengths, (q, m, a), draw = source_lengths(student), sizes, Draw(student)
    return [
        draw(len(lengths), max(lengths) + 1, q),
        draw(len(lengths), max(lengths), m),
        draw(a, q),
        draw(a, m),
        draw(a),
        draw(a),
    ]


def describe(arguments: list[Tensor], what: str) -> str:
    """Return the shapes of the arguments."""
    return f"{what}, query {[*arguments[0].shape]}, encoder outputs {[*arguments[1].shape]}"


def expect_term(solution: Solution, student: Student, kept: str, what: str) -> None:
    """Compare scores of small weights, where tanh is the identity, with one term in it."""
    arguments = arguments_of(student, EQUAL)
    for index, name in enumerate(NAMES):
        if name in ("W_AQ", "U_AM", "b_A"):
            arguments[index] = arguments[index] * (SMALL if name == kept else 0)
    given = describe(arguments, what)
    got = expect_shape(solution(given, *arguments), reference(*arguments).shape, given)
    expect(got / SMALL, reference(*arguments) / SMALL, f"{given}, the scores divided by {SMALL}", 1e-6)


def shape(solution: Solution, student: Student) -> None:
    """There is one score for each query and each source position, also for one query, position or sentence."""
    query, outputs, *weights = arguments_of(student, EQUAL)
    for rows, steps, positions in ((None, None, None), (1, None, None), (None, 1, None), (None, None, 1)):
        arguments = [query[:rows, :steps], outputs[:rows, :positions], *weights]
        given = describe(arguments, "random weights")
        expect_shape(solution(given, *arguments), reference(*arguments).shape, given)


def query_term(solution: Solution, student: Student) -> None:
    """The query enters as W s: with U = 0, b = 0 and small W, the score is vᵀ W s."""
    expect_term(solution, student, "W_AQ", "U = 0, b = 0, small W")


def position_term(solution: Solution, student: Student) -> None:
    """The encoder output enters as U h_j: with W = 0, b = 0 and small U, the score is vᵀ U h_j."""
    expect_term(solution, student, "U_AM", "W = 0, b = 0, small U")


def bias(solution: Solution, student: Student) -> None:
    """The bias is added once: with W = 0, U = 0 and small b, the score is vᵀ b."""
    expect_term(solution, student, "b_A", "W = 0, U = 0, small b")


def tanh(solution: Solution, student: Student) -> None:
    """tanh bounds each of the A terms: with W = 0, U = 0 and large b, the score is vᵀ sign(b)."""
    query, outputs, W, U, b, v = arguments_of(student)
    arguments = [query, outputs, W * 0, U * 0, b.sign() * LARGE, v]
    given = describe(arguments, f"W = 0, U = 0, b of {LARGE:g} and −{LARGE:g}")
    expect(solution(given, *arguments), reference(*arguments), given)


def inside(solution: Solution, student: Student) -> None:
    """One tanh of the whole sum W s + U h_j + b: if W s = U h_j is large and b = 0, the score is vᵀ sign(W s)."""
    query, outputs, W, _, b, v = arguments_of(student, EQUAL)
    outputs = query[:, :1].expand(-1, outputs.shape[1], -1)
    arguments = [query[:, :1], outputs, W * LARGE, W * LARGE, b * 0, v]
    given = describe(arguments, f"h_j = s, U = W of about {LARGE:g}, b = 0")
    expect(solution(given, *arguments), reference(*arguments), given)


def values(solution: Solution, student: Student) -> None:
    """The scores are those of the package for random weights."""
    for sizes in (SIZES, EQUAL, (1, 1, 1)):
        arguments = arguments_of(student, sizes)
        given = describe(arguments, "random weights")
        expect(solution(given, *arguments), package_score(*arguments), given)


def independent(solution: Solution, student: Student) -> None:
    """A sentence alone has the scores that it has in the batch."""
    query, outputs, *weights = arguments_of(student)
    for row in range(len(query)):
        arguments = [query[row : row + 1], outputs[row : row + 1], *weights]
        given = describe(arguments, f"sentence {row} alone")
        expect(solution(given, *arguments), reference(*arguments), given)


def gradient(solution: Solution, student: Student) -> None:
    """The gradients of all arguments are those of the formula."""
    expect_gradients(solution, reference, arguments_of(student), NAMES, student)


PROPERTIES: tuple[Property, ...] = (
    *(shape, query_term, position_term, bias, tanh, inside, values, independent, gradient, unchanged),
)
