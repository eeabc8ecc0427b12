"""`python -m seq2seq_lab.compare FOLDERS…`: finished runs beside one another."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from seq2seq_lab.errors import Parser, report_errors
from seq2seq_lab.files import write_atomically
from seq2seq_lab.reporting import comparison, page
from seq2seq_lab.reporting.runs import find_runs, group_runs


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of the runs, and write what else is asked for."""
    with report_errors():
        options = parser().parse_args(arguments)
        runs, left_out = find_runs(options.folders)
        by = options.by.split(",") if options.by else ()
        found = comparison.compare(group_runs(runs, by), options.baseline)
        comparison.tell(found)
        for one in left_out:
            print(f"left out: {one}", file=sys.stderr)
        title = ", ".join(str(folder) for folder in options.folders)
        if options.csv:
            write(options.csv, comparison.as_csv(found))
        if options.latex:
            write(options.latex, comparison.as_latex(found))
        if options.html:
            write(options.html, page.page(found, title))


def write(path: Path, text: str) -> None:
    """Write a file and say so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)
    print(f"written: {path}")


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    made = Parser(
        prog="python -m seq2seq_lab.compare",
        description="Compare finished runs: mean and standard deviation over seeds, significance, and a page to look "
        "through.",
    )
    made.add_argument(
        "folders",
        nargs="+",
        type=Path,
        metavar="FOLDER",
        help="of runs, of studies, or of evaluations (RUN/evaluations/NUMBER)",
    )
    made.add_argument(
        "--by", metavar="KEY,KEY", help="what tells the lines apart (default: all that differs but the seed)"
    )
    made.add_argument(
        "--baseline",
        metavar="NAME",
        help="the line to test the others against (default: the best, with a correction for all pairs of lines)",
    )
    made.add_argument("--csv", type=Path, metavar="FILE", help="write the table")
    made.add_argument("--latex", type=Path, metavar="FILE", help="write the table for a paper (booktabs)")
    made.add_argument(
        "--html", type=Path, metavar="FILE", help="write a page: curves, lengths, translations, attention"
    )
    return made


if __name__ == "__main__":
    main()
