"""`analyze score`: the log-probability of given outputs."""

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from seq2seq_lab.analyze.common import add_question, numbered, pairs
from seq2seq_lab.errors import UserError, print_visible, require
from seq2seq_lab.evaluate import open_run


def add_score(questions: Any) -> None:
    """Add the question `score`."""
    arguments = add_question(
        questions,
        "score",
        score,
        "the log-probability (natural logarithm) of given outputs, by token, word and sentence",
        "python -m seq2seq_lab.analyze score outputs/DATE/TIME news.en news.fr --format tsv",
    )
    arguments.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="SOURCE TARGET: two files with one text (or path of an image) per line; of a language model only TARGET",
    )
    arguments.add_argument(
        "--format",
        choices=["text", "tsv", "jsonl"],
        default="text",
        help="text: a line per pair: its log-probability, its perplexity per token, the target; tsv: a row per token; "
        "jsonl: everything, an object per pair (default: text)",
    )
    arguments.add_argument(
        "--nbest",
        action="store_true",
        help="TARGET is an n-best list: lines `INDEX ||| TEXT ||| …` whose index is that of a source, from 0. Print its "
        "lines with the log-probability as another field, the most probable output of each source first",
    )


def score(options: argparse.Namespace) -> None:
    """Print the scores of given outputs; a summary goes to standard error.

    Raises:
        UserError: the files do not match, or an n-best list is malformed.
    """
    require(not options.nbest or options.format == "text", "--format", options.format, "text with --nbest")
    run = open_run(options, [])
    run.forced([], [])  # a task without outputs to read is refused before the files are read
    if options.nbest:
        rerank(run, options)
        return
    if options.format == "tsv":
        print("\t".join(("pair", "position", "token", "word", "log_prob", "rank", "entropy")))
    total = Totals()
    for first, sources, targets in pairs(run, options.files):
        for index, one in enumerate(run.score(sources, targets), first):
            total.add(one)
            for line in FORMATS[options.format](index, one):
                print_visible(line)
        sys.stdout.flush()
    print_visible(total, sys.stderr)


class Totals:
    """The sums over all pairs."""

    def __init__(self) -> None:
        self.texts = self.tokens = self.words = 0
        self.log_prob = 0.0

    def add(self, scored: Any) -> None:
        """Add a `ScoredText`."""
        self.texts += 1
        self.tokens += len(scored.tokens)
        self.words += len(scored.words) + 1
        self.log_prob += scored.log_prob

    def __str__(self) -> str:
        from seq2seq_lab.metrics.loss import perplexity

        if not self.texts:
            return "texts: 0"
        per_token, per_word = (perplexity(-self.log_prob / count) for count in (self.tokens, self.words))
        return (
            f"texts: {self.texts:,}, log-probability {self.log_prob:.4f}; perplexity {per_token:.4f} per token "
            f"({self.tokens:,}), {per_word:.4f} per word ({self.words:,}); the end of each text is counted"
        )


def as_text(index: int, scored: Any) -> Iterator[str]:
    """Yield the line of a pair."""
    yield f"{scored.log_prob:.4f}\t{scored.perplexity_per_token:.4f}\t{scored.target}"


def as_rows(index: int, scored: Any) -> Iterator[str]:
    """Yield a row of columns for each token."""
    for position, token in enumerate(scored.as_json(False)["tokens"]):
        word = "" if token["word"] is None else scored.words[token["word"]]
        numbers = (f"{token['log_prob']:.6f}", str(token["rank"]), f"{token['entropy']:.6f}")
        yield "\t".join((str(index), str(position), token["token"], word, *numbers))


def as_json(index: int, scored: Any) -> Iterator[str]:
    """Yield a JSON object."""
    yield json.dumps({"pair": index, **scored.as_json(False)}, ensure_ascii=False)


FORMATS: dict[str, Callable[[int, Any], Iterator[str]]] = {"text": as_text, "tsv": as_rows, "jsonl": as_json}


def rerank(run: Any, options: argparse.Namespace) -> None:
    """Print the lines of an n-best list with their log-probability, the most probable output of each source first.

    Raises:
        UserError: a line is malformed, names no source, or comes after those of another source.
    """
    if run.reads_targets_only or len(options.files) != 2:
        raise UserError(f"{' '.join(options.files)}: --nbest needs SOURCE TARGET of a model with a source.")
    sources = [line for _, line in numbered(options.files[0])]
    listed = (
        read_entry(where, line, options.files[0], len(sources)) for where, line in numbered(options.files[1])
    )
    ranked_indices: set[int] = set()
    for index, entries in itertools.groupby(listed, key=lambda entry: entry[0]):
        if index in ranked_indices:
            raise UserError(
                f"{options.files[1]}: index {index} comes back after another one. Sort the lines by their index. All "
                f"earlier lines are processed."
            )
        ranked_indices.add(index)
        texts = [(text, line) for _, text, line in entries]
        scored = run.score([sources[index]] * len(texts), [text for text, _ in texts])
        ranked = sorted(
            ((one.log_prob, line) for one, (_, line) in zip(scored, texts, strict=True)),
            key=lambda pair: -pair[0],
        )
        for log_prob, line in ranked:
            print_visible(f"{line} ||| {log_prob:.4f}")


def read_entry(where: str, line: str, sources: str, count: int) -> tuple[int, str, str]:
    """Return (index of the source, text, line) of a line of an n-best list."""
    fields = [field.strip() for field in line.split("|||")]
    if len(fields) < 2 or not fields[0].isdecimal():
        raise UserError(f"{where}: {line!r:.80} is not `INDEX ||| TEXT ||| …`. Correct the line.")
    if int(fields[0]) >= count:
        raise UserError(
            f"{where}: index {fields[0]} is not that of a source. {sources} has {count:,} lines, counted from 0."
        )
    return int(fields[0]), fields[1], line.rstrip()
