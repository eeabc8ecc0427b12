"""The properties of a step of beam search; the reference expands every hypothesis by every token."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from seq2seq_lab.lesson.properties import Mismatch, Property, Solution, shorten, unchanged
from seq2seq_lab.lesson.student import Student
from seq2seq_lab.lesson.tensors import Draw

EOS = 0
Hypothesis = tuple[tuple[int, ...], float]
Beam = list[Hypothesis]
START: Beam = [((), 0.0)]


def reference(beam: Beam, log_probs_KV: Tensor, size: int, eos: int) -> Beam:
    """Return the best of all candidates, in the order that the notebook defines."""
    candidates: list[tuple[float, int, int, Hypothesis]] = []
    for k, (tokens, log_prob) in enumerate(beam):
        if tokens[-1:] == (eos,):
            candidates.append((-log_prob, k, -1, (tokens, log_prob)))
            continue
        for token, added in enumerate(log_probs_KV[k].tolist()):
            total = log_prob + added
            candidates.append((-total, k, token, ((*tokens, token), total)))
    return [best for *_, best in sorted(candidates, key=lambda one: one[:3])[:size]]


def expect(
    solution: Solution, beam: Beam, log_probs_KV: Tensor, size: int, only_tokens: bool = False
) -> Beam:
    """Compare one step; return the reference.

    Args:
        only_tokens: do not compare the log-probabilities.

    Raises:
        Mismatch: the hypotheses, their order or their log-probabilities differ.
    """
    rows = log_probs_KV.tolist() if log_probs_KV.numel() <= 12 else f"of shape {[*log_probs_KV.shape]}"
    given = shorten(f"beam {beam}, log_probs_KV {rows}, size {size}, eos {EOS}")
    expected = reference(beam, log_probs_KV, size, EOS)
    got = solution(given, beam, log_probs_KV, size, EOS)
    try:
        found = [(tuple(map(int, tokens)), float(log_prob)) for tokens, log_prob in got]
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise Mismatch(given, f"a list of (tokens, log-probability), {expected}", repr(got)) from error
    same = [tokens for tokens, _ in found] == [tokens for tokens, _ in expected]
    if not same or not (
        only_tokens
        or all(
            math.isclose(own, right, rel_tol=1e-9, abs_tol=1e-12)
            for (_, own), (_, right) in zip(found, expected, strict=True)
        )
    ):
        raise Mismatch(given, expected, found)
    return expected


def rows(*log_probs: Sequence[float]) -> Tensor:
    """Return log_probs_KV whose sums are exact in float64. Their exponentials need not sum to 1."""
    return torch.tensor(log_probs, dtype=torch.float64)


def best_first(solution: Solution, student: Student) -> None:
    """The `size` most probable tokens extend one hypothesis, best first."""
    expect(solution, START, rows([-4.0, -1.0, -3.0, -2.0]), 3, only_tokens=True)


def added(solution: Solution, student: Student) -> None:
    """The log-probability of a hypothesis is its former one plus that of the token."""
    expect(solution, [((2,), -1.5)], rows([-4.0, -1.0, -3.0]), 2)


def parents(solution: Solution, student: Student) -> None:
    """Each token extends the hypothesis in whose row it is."""
    expect(solution, [((1,), -1.0), ((2,), -1.25)], rows([-9.0, -8.0, -3.0], [-9.0, -1.0, -7.0]), 2)


def competing(solution: Solution, student: Student) -> None:
    """The candidates of all hypotheses compete: both best ones may extend the same hypothesis."""
    expect(solution, [((1,), -0.5), ((2,), -8.0)], rows([-4.0, -1.0, -2.0], [-3.0, -0.25, -0.5]), 2)


def kept(solution: Solution, student: Student) -> None:
    """A finished hypothesis stays in the beam with its log-probability, and is not extended."""
    expect(solution, [((1, EOS), -1.0), ((2,), -1.5)], rows([-0.25, -0.5, -0.75], [-3.0, -1.0, -2.0]), 3)


def dropped(solution: Solution, student: Student) -> None:
    """A finished hypothesis leaves the beam if `size` candidates are more probable."""
    expect(solution, [((1,), -0.5), ((2, EOS), -6.0)], rows([-2.0, -1.0, -3.0], [-0.5, -0.5, -0.5]), 2)


def all_finished(solution: Solution, student: Student) -> None:
    """A beam of finished hypotheses does not change."""
    expect(solution, [((1, EOS), -1.0), ((EOS,), -2.0)], rows([-0.5, -1.0], [-0.5, -1.0]), 2)


def fewer(solution: Solution, student: Student) -> None:
    """With fewer candidates than `size`, all are returned."""
    expect(solution, START, rows([-2.0, -1.0]), 5)


def ties(solution: Solution, student: Student) -> None:
    """Of equally probable candidates, the one of the earlier hypothesis is first, then the one of the smaller token."""
    expect(solution, START, rows([-2.0, -1.0, -1.0, -1.0]), 2)
    expect(solution, [((1,), -1.0), ((2,), -2.0)], rows([-9.0, -2.0, -3.0], [-9.0, -2.0, -1.0]), 3)


def random_steps(solution: Solution, student: Student) -> None:
    """Random steps are those of the exhaustive expansion."""
    draw = Draw(student)
    for size in (1, 2, 5):
        beam = START
        for _ in range(4):
            beam = expect(solution, beam, draw(len(beam), 6).log_softmax(-1), size)


def bigrams(student: Student) -> tuple[Tensor, list[str]]:
    """Return log p(next word | word)_VV of the student's French sentences, and the words; the first is `<eos>`."""
    lines = [[*pair.target_words[:-1]] for pair in [*student.shown, *student.held_out]]
    words = ["<eos>", *sorted({word for line in lines for word in line})]
    index = {word: i for i, word in enumerate(words)}
    counts_VV = torch.full((len(words), len(words)), 0.1, dtype=torch.float64)
    for line in lines:
        for first, second in pairwise(["<eos>", *line, "<eos>"]):  # row 0: the first word
            counts_VV[index[first], index[second]] += 1
    return (counts_VV / counts_VV.sum(1, keepdim=True)).log(), words


def search(solution: Solution, student: Student) -> None:
    """A search over a bigram model of sentences of the grammar finds what the exhaustive expansion finds."""
    log_probs_VV, _ = bigrams(student)
    for size in (1, 4):
        beam = START
        for _ in range(8):
            last_K = torch.tensor([tokens[-1] if tokens else EOS for tokens, _ in beam])
            beam = expect(solution, beam, log_probs_VV[last_K], size)


PROPERTIES: tuple[Property, ...] = (
    *(best_first, added, parents, competing, kept, dropped, all_finished, fewer, ties, random_steps),
    *(search, unchanged),
)
