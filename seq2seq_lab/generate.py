"""`python -m seq2seq_lab.generate RUN_FOLDER`: generate sentences with a language model, or score sentences."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from seq2seq_lab.data.local_files import decode_lines
from seq2seq_lab.data.text import new_counts
from seq2seq_lab.errors import Parser, UserError, print_visible, report_errors, require
from seq2seq_lab.evaluate import add_opening, open_run
from seq2seq_lab.translate import BATCHES, chunks, use_utf8_output

if TYPE_CHECKING:
    from seq2seq_lab.data.tokenizers import Tokenizer
    from seq2seq_lab.tasks.language_model.loaded import LoadedLanguageModel


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; see `parser`."""
    with report_errors():
        options = parser().parse_intermixed_args(arguments)
        use_utf8_output()
        generate(options)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    arguments = Parser(
        prog="python -m seq2seq_lab.generate",
        usage="%(prog)s FOLDER [KEY=VALUE ...] [options]",
        description="Generate sentences with a trained language model, or score the sentences of standard input.",
        epilog="Example: python -m seq2seq_lab.generate outputs/DATE/TIME --count 5 search=beam search.nbest=5",
    )
    add_opening(arguments)
    arguments.add_argument(
        "changes",
        nargs="*",
        metavar="KEY=VALUE",
        help="changes to the run's settings, such as search=sampling search.temperature=0.5 search.seed=2",
    )
    arguments.add_argument(
        "--count", type=int, default=10, help="how many times to run the search (default: 10)"
    )
    arguments.add_argument("--scores", action="store_true", help="add a column with the log-probability")
    add_longest(arguments)
    modes = arguments.add_mutually_exclusive_group()
    modes.add_argument(
        "--continue",
        dest="beginnings",
        action="store_true",
        help="read beginnings of sentences from standard input, one per line, and continue each of them",
    )
    modes.add_argument(
        "--score",
        action="store_true",
        help="print the log-probability in nats, with the end of the sentence, before each line of standard input",
    )
    return arguments


def add_longest(arguments: argparse.ArgumentParser) -> None:
    """Add the option that limits the length of lines."""
    arguments.add_argument(
        "--max-tokens",
        type=int,
        default=1000,
        metavar="N",
        help="refuse lines with more tokens, since time and memory grow with the length (default: 1000)",
    )


def generate(options: argparse.Namespace) -> None:
    """Generate or score sentences.

    Raises:
        UserError: the run is not one of a language model, or a line is not UTF-8 or too long.
    """
    from seq2seq_lab.tasks.language_model.task import LanguageModelTask

    require(options.count >= 1, "--count", options.count, "1 or more")
    require(options.max_tokens >= 1, "--max-tokens", options.max_tokens, "1 or more")
    model = open_run(options, options.changes, LanguageModelTask)
    lines = input_lines(model.task.vocabulary.tokenizer, options.max_tokens)
    if options.score:
        score(model, lines)
        return
    beginnings = lines if options.beginnings else iter([""])
    for number, beginning in enumerate(beginnings):
        for text, log_prob in model.generate(options.count, beginning, number * options.count):
            print_visible(f"{text}\t{log_prob:.4f}" if options.scores else text)
        sys.stdout.flush()


def score(model: "LoadedLanguageModel", lines: Iterator[str]) -> None:
    """Print the log-probability of each line."""
    for chunk in chunks(lines, BATCHES * model.config.trainer.eval_batch_size):
        for line, log_prob in zip(chunk, model.log_probs(chunk), strict=True):
            print_visible(f"{log_prob:.4f}\t{line}")
        sys.stdout.flush()


def input_lines(tokenizer: "Tokenizer", longest: int, empty: bool = True) -> Iterator[str]:
    """Yield the lines of standard input.

    Args:
        longest: the largest number of tokens.
        empty: accept lines without tokens.

    Raises:
        UserError: a line is not UTF-8, is too long, or has no tokens.
    """
    for number, (line, problem) in enumerate(
        decode_lines(sys.stdin.buffer, "standard input", new_counts()), start=1
    ):
        if problem:
            raise UserError(f"standard input, line {number}: {problem}. Correct the line.")
        length = len(tokenizer.encode([line])[0])
        if length > longest:
            raise UserError(
                f"standard input, line {number} has {length:,} tokens; --max-tokens={longest}. Split the line, or add "
                f"--max-tokens {length} to the command: time and memory grow with the length."
            )
        if not (length or empty):
            raise UserError(f"standard input, line {number}: {line!r} has no token. Remove the line.")
        yield line


if __name__ == "__main__":
    main()
