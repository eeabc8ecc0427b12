"""The outputs of two runs for one input, side by side."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from seq2seq_lab.analysis.plain import Plain
from seq2seq_lab.analysis.traced import Floats, Traced, TracedOutput, WordPair
from seq2seq_lab.analysis.traced_change import aligned_words
from seq2seq_lab.errors import UserError, require

END = "<eos>"


@dataclass(frozen=True, kw_only=True)
class Parting:
    """The first word in which the best outputs of two runs differ.

    Attributes:
        word: its index in both outputs.
        words: the word of each run; `<eos>` if the output ends there.
        log_probs: [2, 2], the log-probability that each run (row) gives to the word of each run (column) after the words
            that both outputs have; None if a run does not have this output. The words of the other run are split by a
            run's own tokenizer.
    """

    word: int
    words: tuple[str, str]
    log_probs: Sequence[Sequence[float | None]]


@dataclass(frozen=True, kw_only=True)
class Difference(Plain):
    """The best outputs of two runs, a and b, for one input.

    Attributes:
        a, b: the traces of both runs.
        words: the words of both outputs, aligned; `before` is that of a, `after` that of b.
        attention: a row for each of `words`, the weights of b minus those of a between this word and the columns
            `Source.word_column_names`, NaN where one output has no word; None if they cannot be compared.
        no_attention: why they cannot be compared, as a sentence; None if they can.
        parting: where the outputs differ first; None if they have the same words, or differ only because the length limit
            cut one of them.
        log_probs: [2, 2], the log-probability that each run (row) gives to the output of each run (column); with `<eos>` if
            the output ended. A run scores the tokens that it generated. It splits the text of the other output with its
            own tokenizer.
    """

    a: Traced
    b: Traced
    words: list[WordPair]
    attention: Floats | None = field(repr=False)
    no_attention: str | None
    parting: Parting | None
    log_probs: list[list[float | None]]


def difference(
    run_a: Any,
    run_b: Any,
    sentence: str,
    *,
    search: Sequence[str] = (),
    traces: tuple[Traced, Traced] | None = None,
) -> Difference:
    """Return the best outputs of two runs for an input, and how they differ.

    Args:
        run_a, run_b: opened runs of one task.
        sentence: a line of text, or the path of a file (`Loaded.reads`).
        search: settings that replace those of both runs; see `Loaded.trace`.
        traces: the traces of both runs for this input without a change, if they were computed before.

    Raises:
        UserError: runs of different tasks, an input that a run cannot read, or traces of another input or with a change.
    """
    for run in (run_a, run_b):
        if not hasattr(run, "task_name"):
            raise UserError(
                f"difference takes two runs that are open, not {run!r}. Write difference(seq2seq_lab.load(FOLDER), "
                f"seq2seq_lab.load(OTHER_FOLDER), SENTENCE)."
            )
    require_one_task(run_a, run_b)
    for traced in traces or ():
        if traced.changed is not None:
            raise UserError("traces: one has changed attention weights. Give the traces without the change.")
        if traced.given is not None:
            same = traced.given.sentence == str(sentence)
            require(same, "sentence", repr(sentence), f"that of traces, {traced.given.sentence!r}")
    a, b = traces or (run_a.trace(sentence, search=search), run_b.trace(sentence, search=search))
    words = aligned_words(a.best.words, b.best.words)
    no_attention = _not_comparable(a, b)
    return Difference(
        a=a,
        b=b,
        words=words,
        attention=None if no_attention else _attention(a, b, words),
        no_attention=no_attention,
        parting=_parting(run_a, run_b, a, b),
        log_probs=[[_log_prob(run, own, one) for one in (a, b)] for run, own in ((run_a, a), (run_b, b))],
    )


def require_one_task(run_a: Any, run_b: Any) -> None:
    """Refuse two opened runs of different tasks.

    Raises:
        UserError: names the runs and their tasks.
    """
    if run_a.task_name != run_b.task_name:
        raise UserError(
            f"difference: {run_a.folder} is a run of {run_a.task_name} and {run_b.folder} one of {run_b.task_name}. Give "
            f"two runs of one task."
        )


def _not_comparable(a: Traced, b: Traced) -> str | None:
    for name, one in (("first", a), ("second", b)):
        if one.no_attention is not None:
            return f"The {name} run has no attention weights. {one.no_attention}"
    if (a.source.columns, a.source.word_column_names) != (b.source.columns, b.source.word_column_names):
        return "The runs attend to different source words."
    return None


def _attention(a: Traced, b: Traced, words: Sequence[WordPair]) -> Floats:
    assert a.best.word_attention is not None
    assert b.best.word_attention is not None
    rows_PC = np.full((len(words), len(a.source.word_column_names)), np.nan)
    for row, pair in enumerate(words):
        if pair.before is not None and pair.after is not None:
            rows_PC[row] = b.best.word_attention[pair.after] - a.best.word_attention[pair.before]
    return rows_PC


def _log_prob(run: Any, own: Traced, one: Traced) -> float | None:
    """Return the log-probability under a run of the best output of a trace, its own one or another one."""
    if own.search is None:
        return _of_class(own, one.best.text)
    if one is own:
        begun = _scored(run, own, own.source.text).log_probs[:-1] if run.reads_targets_only else []
        return math.fsum([*begun, own.best.log_prob])
    scored = _scored(run, own, one.best.text)
    return math.fsum(scored.log_probs if one.best.ended else scored.log_probs[:-1])


def _of_class(own: Traced, name: str) -> float | None:
    return next((one.log_prob for one in own.outputs if one.text == name), None)


def _scored(run: Any, own: Traced, text: str) -> Any:
    (scored,) = run.score(["" if run.reads_targets_only else own.source.text], [text])
    return scored


def _parting(run_a: Any, run_b: Any, a: Traced, b: Traced) -> Parting | None:
    ours, theirs = a.best.words, b.best.words
    if ours == theirs:
        return None
    first = next(
        (i for i, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]),
        min(len(ours), len(theirs)),
    )
    if any(_is_cut_at(one.best, first, (*other[first:], "")[0]) for one, other in ((a, theirs), (b, ours))):
        return None
    words = tuple(one[first] if first < len(one) else END for one in (ours, theirs))
    rows = [
        [_log_prob_of_word(run, own, one, first, word) for one, word in zip((a, b), words, strict=True)]
        for run, own in ((run_a, a), (run_b, b))
    ]
    return Parting(word=first, words=(words[0], words[1]), log_probs=rows)


def _log_prob_of_word(run: Any, own: Traced, one: Traced, index: int, word: str) -> float | None:
    """Return the log-probability under a run of a word of the best output of a trace; see `_log_prob`."""
    if own.search is None:
        return _of_class(own, word)
    if one is own:
        return own.best.log_probs[-1] if word == END else own.best.word_log_probs[index]
    scored = _scored(run, own, _until(one, index))
    return float(scored.log_probs[-1]) if word == END else _of_last(scored, len(word))


def _is_cut_at(output: TracedOutput, word: int, other: str) -> bool:
    """Return whether the length limit cut an output before a word, or in this word, which begins that of the other run."""
    if output.ended or word < len(output.words) - 1:
        return False
    return word == len(output.words) or other.startswith(output.words[word])


def _of_last(scored: Any, letters: int) -> float:
    """Return the log-probability of the last words of a scored text that have this many letters together.

    A run may cut a word of the other run into several, in scripts without spaces.
    """
    total = 0.0
    for word, log_prob in zip(reversed(scored.words), reversed(scored.word_log_probs), strict=True):
        total, letters = total + log_prob, letters - len(word)
        if letters <= 0:
            break
    return total


def _until(traced: Traced, word: int) -> str:
    """Return the best output up to and with a word; the whole output if it ends before."""
    assert traced.given is not None
    tokens = traced.best.tokens
    last = max((i for i, token in enumerate(tokens) if token.word == word), default=len(tokens) - 1)
    ids = [token.id for token in tokens[: last + 1] if token.kind != "eos"]
    return traced.given.tokenizer.decode([*traced.given.before, *ids])
