"""The properties of masked softmax; the reference is that of the package."""

import torch
from torch import Tensor

from seq2seq_lab.lesson.properties import Property, Solution, unchanged
from seq2seq_lab.lesson.student import Student
from seq2seq_lab.lesson.tensors import (
    Draw,
    expect,
    expect_gradients,
    expect_shape,
    mask_of,
    source_lengths,
)
from seq2seq_lab.models.masking import masked_softmax as package_softmax

STEPS = 3
EMPTY = 1  # the sentence without real positions


def reference(scores_BTS: Tensor, mask_B1S: Tensor) -> Tensor:
    """Return the weights of the package, and 0 for a sentence without real positions."""
    real_B11 = mask_B1S.any(-1, keepdim=True)
    weights_BTS = package_softmax(scores_BTS, mask_B1S | ~real_B11)
    return torch.where(real_B11, weights_BTS, 0.0)


def padded(student: Student) -> tuple[Tensor, Tensor, str]:
    """Return random scores_BTS, the mask_B1S of sentences of the student, and a description."""
    lengths = source_lengths(student)
    scores_BTS = Draw(student)(len(lengths), STEPS, max(lengths))
    given = f"random scores_BTS {[*scores_BTS.shape]}, sentences of {lengths} words"
    return scores_BTS, mask_of(lengths)[:, None], given


def with_empty(student: Student) -> tuple[Tensor, Tensor, str]:
    """Return the same with a sentence without real positions."""
    scores_BTS, mask_B1S, given = padded(student)
    mask_B1S[EMPTY] = False
    return scores_BTS, mask_B1S, f"{given}, the mask of sentence {EMPTY} all False"


def shape(solution: Solution, student: Student) -> None:
    """There is one weight for each score."""
    scores_BTS, mask_B1S, given = padded(student)
    expect_shape(solution(given, scores_BTS, mask_B1S), scores_BTS.shape, given)


def axis(solution: Solution, student: Student) -> None:
    """The softmax is over the source positions: without padding, the weights of each step sum to 1."""
    scores_BTS, mask_B1S, given = padded(student)
    given = f"{given}, the mask all True"
    weights_BTS = expect_shape(
        solution(given, scores_BTS, torch.ones_like(mask_B1S)), scores_BTS.shape, given
    )
    expect(weights_BTS.sum(-1), torch.ones_like(weights_BTS[..., 0]), f"{given}, sum over S")


def padding(solution: Solution, student: Student) -> None:
    """The weight of padding is exactly 0."""
    scores_BTS, mask_B1S, given = padded(student)
    weights_BTS = expect_shape(solution(given, scores_BTS, mask_B1S), scores_BTS.shape, given)
    expect(weights_BTS.masked_fill(mask_B1S, 0.0), torch.zeros_like(weights_BTS), given, tolerance=0.0)


def normalized(solution: Solution, student: Student) -> None:
    """With padding, the weights of the real positions sum to 1."""
    scores_BTS, mask_B1S, given = padded(student)
    weights_BTS = expect_shape(solution(given, scores_BTS, mask_B1S), scores_BTS.shape, given)
    sums_BT = weights_BTS.masked_fill(~mask_B1S, 0.0).sum(-1)
    expect(sums_BT, torch.ones_like(sums_BT), f"{given}, sum over the real positions")


def values(solution: Solution, student: Student) -> None:
    """The weights are those of the package."""
    scores_BTS, mask_B1S, given = padded(student)
    expect(solution(given, scores_BTS, mask_B1S), reference(scores_BTS, mask_B1S), given, 1e-12)


def shift(solution: Solution, student: Student) -> None:
    """The weights do not change if a constant is added to all scores: 1e4, −1e4."""
    scores_BTS, mask_B1S, given = padded(student)
    for constant in (1e4, -1e4):
        shifted = f"{given}, plus {constant:g}"
        expect(solution(shifted, scores_BTS + constant, mask_B1S), reference(scores_BTS, mask_B1S), shifted)


def empty(solution: Solution, student: Student) -> None:
    """A sentence without real positions has weights 0, and the other sentences do not change."""
    scores_BTS, mask_B1S, given = with_empty(student)
    expect(solution(given, scores_BTS, mask_B1S), reference(scores_BTS, mask_B1S), given)


def half_precision(solution: Solution, student: Student) -> None:
    """Scores in float16 have the same weights within 0.002."""
    scores_BTS, mask_B1S, given = padded(student)
    given = f"{given}, in float16"
    expect(solution(given, scores_BTS.half(), mask_B1S), reference(scores_BTS, mask_B1S), given, 2e-3)


def gradient(solution: Solution, student: Student) -> None:
    """The gradient of the scores is that of the package, also with a sentence without real positions."""
    for scores_BTS, mask_B1S, _ in (padded(student), with_empty(student)):
        expect_gradients(solution, reference, (scores_BTS, mask_B1S), ("scores_BTS", "mask_B1S"), student)


PROPERTIES: tuple[Property, ...] = (
    *(shape, axis, padding, normalized, values, shift, empty, half_precision, gradient, unchanged),
)
