"""`python -m seq2seq_lab.analyze QUESTION RUN …`: ask a trained run about given texts."""

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext

from seq2seq_lab.analyze.adversary import add_adversary
from seq2seq_lab.analyze.aer import add_aer
from seq2seq_lab.analyze.align import add_align
from seq2seq_lab.analyze.attribute import add_attribute
from seq2seq_lab.analyze.counterfactuals import add_counterfactuals
from seq2seq_lab.analyze.intervene import add_intervene
from seq2seq_lab.analyze.measures import add_measures
from seq2seq_lab.analyze.score import add_score
from seq2seq_lab.errors import Parser, report_errors
from seq2seq_lab.streams import optional_output


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; see `parsers`."""
    with report_errors():
        given = sys.argv[1:] if arguments is None else arguments
        program, questions = parsers()
        if given and given[0] in questions:  # settings may come after options
            options = questions[given[0]].parse_intermixed_args(given[1:])
        else:
            options = program.parse_args(given)
        options.command = shlex.join(["python", "-m", "seq2seq_lab.analyze", *given])
        # What is printed while the examples are computed must not end the program before it writes its files.
        writes = any(getattr(options, name, None) for name in ("pictures", "html"))
        with optional_output() if writes else nullcontext():
            options.run(options)


def parsers() -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """Return the parser of the command line, and the one of each question."""
    arguments = Parser(
        prog="python -m seq2seq_lab.analyze",
        description="Ask a trained run about given texts: how probable they are, what aligns, what changes an output.",
    )
    questions = arguments.add_subparsers(metavar="QUESTION", required=True, parser_class=Parser)
    add_score(questions)
    add_align(questions)
    add_aer(questions)
    add_measures(questions)
    add_intervene(questions)
    add_adversary(questions)
    add_attribute(questions)
    add_counterfactuals(questions)
    return arguments, questions.choices


if __name__ == "__main__":
    main()
