"""Random tensors in float64, and comparisons of tensors."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from seq2seq_lab.lesson.properties import TOLERANCE, Mismatch, Solution, describe_error
from seq2seq_lab.lesson.student import Student


class Draw:
    """Draws the random tensors of one property; two students have other ones."""

    def __init__(self, student: Student) -> None:
        self.generator = torch.Generator().manual_seed(student.seed)

    def __call__(self, *shape: int) -> Tensor:
        """Return a tensor of normal numbers in float64."""
        return torch.randn(shape, generator=self.generator, dtype=torch.float64)


def source_lengths(student: Student) -> list[int]:
    """Return the number of words of four source sentences, the first with the held-out construction."""
    pairs = [student.held_out[0], *student.shown[:3]]
    lengths = [len(pair.source_words) for pair in pairs]
    return lengths if len(set(lengths)) > 1 else [*lengths[:3], lengths[3] + 2]  # padding is needed


def mask_of(lengths: Sequence[int]) -> Tensor:
    """Return mask_BS, True at the real positions."""
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def expect(got: object, expected: Tensor, given: str, tolerance: float = TOLERANCE) -> Tensor:
    """Compare a tensor; return it.

    Raises:
        Mismatch: it is not a tensor of this shape, or an entry differs by more than the tolerance.
    """
    found = expect_shape(got, expected.shape, given).to(expected.dtype)
    wrong = ~((found - expected).abs() <= tolerance * (1 + expected.abs()))  # also if it is not a number
    if wrong.any():
        index = tuple(wrong.nonzero()[0].tolist())
        where = f"{given}, entry {list(index)}" if index else given
        raise Mismatch(where, f"{expected[index].item():.6g}", f"{found[index].item():.6g}")
    return found


def expect_shape(got: object, shape: Sequence[int], given: str) -> Tensor:
    """Return what the function returned.

    Raises:
        Mismatch: it is not a floating-point tensor of this shape.
    """
    if not isinstance(got, Tensor):
        raise Mismatch(given, f"a tensor of shape {[*shape]}", f"a value of type {type(got).__name__}")
    if got.shape != torch.Size(shape):
        raise Mismatch(given, f"shape {[*shape]}", f"shape {[*got.shape]}")
    if not got.is_floating_point():
        raise Mismatch(given, "floating-point numbers", str(got.dtype))
    return got


def expect_gradients(
    solution: Solution,
    reference: Callable[..., Tensor],
    arguments: Sequence[Tensor],
    names: Sequence[str],
    student: Student,
) -> None:
    """Compare the gradients of a random sum of the results.

    Args:
        names: of the arguments; the gradients of the floating-point ones are compared.

    Raises:
        Mismatch: a gradient differs.
    """
    gradients = []
    for function in (reference, lambda *own: solution("a call with a gradient", *own)):
        own = [x.clone().requires_grad_() if x.is_floating_point() else x for x in arguments]
        result = function(*own)
        if not isinstance(result, Tensor) or not result.requires_grad:
            raise Mismatch("a call", "a result that has a gradient", f"{type(result).__name__} without one")
        try:
            (result * Draw(student)(*result.shape)).sum().backward()  # type: ignore[no-untyped-call]
        except RuntimeError as error:  # such as an in-place change of a tensor that the gradient needs
            raise Mismatch("the backward pass", "a gradient", describe_error(error, "")) from error
        gradients.append([x.grad for x in own])
    for name, expected, got in zip(names, *gradients, strict=True):
        if expected is not None:
            expect(got, expected, f"the gradient of {name}")
