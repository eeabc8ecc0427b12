"""`python -m seq2seq_lab.predict RUN_FOLDER`: classify lines of text with a trained run."""

import argparse
import sys
from collections.abc import Sequence

from seq2seq_lab.errors import Parser, print_visible, report_errors, require
from seq2seq_lab.evaluate import add_opening, open_run
from seq2seq_lab.generate import add_longest, input_lines
from seq2seq_lab.translate import BATCHES, chunks, use_utf8_output


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; see `parser`."""
    with report_errors():
        options = parser().parse_args(arguments)
        use_utf8_output()
        predict(options)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    arguments = Parser(
        prog="python -m seq2seq_lab.predict",
        description="Classify the lines of standard input with a trained run of task=classification. For each line, print "
        "its class, the probability of the class, and the line, separated by tabs.",
        epilog="Example: python -m seq2seq_lab.predict outputs/DATE/TIME < names.txt",
    )
    add_opening(arguments)
    add_longest(arguments)
    arguments.add_argument(
        "--weights",
        action="store_true",
        help="below each line, shade each word by its weight, relative to the greatest one",
    )
    return arguments


def predict(options: argparse.Namespace) -> None:
    """Classify the lines of standard input.

    Raises:
        UserError: a line is not UTF-8, has no tokens or too many, or the run is not one of classification.
    """
    from seq2seq_lab.runtime.console import shade
    from seq2seq_lab.tasks.classification.report import relative
    from seq2seq_lab.tasks.classification.task import ClassificationTask

    require(options.max_tokens >= 1, "--max-tokens", options.max_tokens, "1 or more")
    run = open_run(options, (), ClassificationTask)
    lines = input_lines(run.task.vocabulary.tokenizer, options.max_tokens, empty=False)
    for chunk in chunks(lines, BATCHES * run.config.trainer.eval_batch_size):
        for one in run.predict(chunk):
            print_visible(f"{one.label}\t{one.probabilities[one.label]:.4f}\t{one.text}")
            if options.weights:
                weights = relative(one.weights)
                print_visible(" ".join(one.tokens))
                print(" ".join(shade(weight, word) for weight, word in zip(weights, one.tokens, strict=True)))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
