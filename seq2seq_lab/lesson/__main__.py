"""`python -m seq2seq_lab.lesson`: start, check and grade exercises.

Modules that import torch are imported when a solution is checked.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from seq2seq_lab.errors import Parser, UserError, did_you_mean, output_file, output_folder, report_errors
from seq2seq_lab.lesson.exercises import NAMES
from seq2seq_lab.streams import optional_output

TIME_LIMIT = 60.0  # seconds; the checks take a few


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; see `parser`."""
    with report_errors():
        options = parser().parse_args(arguments)
        options.run(options)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    listed = ", ".join(f"{number} {name}" for number, name in enumerate(NAMES, start=1))
    arguments = Parser(
        prog="python -m seq2seq_lab.lesson",
        description="Exercises: notebooks with a function to write, and checks of its properties.",
        epilog=f"Exercises: {listed}.",
    )
    commands = arguments.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)

    about = "write the notebook of an exercise"
    command = commands.add_parser(
        "start", help=about, description=f"{about[0].upper()}{about[1:]}: {listed}."
    )
    command.add_argument("exercise", metavar="N", help="number or name of the exercise")
    command.add_argument(
        "--output", type=output_folder, default=Path(), metavar="FOLDER", help="default: this folder"
    )
    command.add_argument(
        "--student",
        default="",
        metavar="ID",
        help="use the part of the lexicon and the held-out construction that belong to this ID",
    )
    command.set_defaults(run=start)

    about = (
        "check the solutions in notebooks or Python files; the exit status is 1 if a property does not hold"
    )
    command = commands.add_parser("check", help=about, description=f"{about[0].upper()}{about[1:]}.")
    command.add_argument("files", nargs="+", type=Path, metavar="FILE")
    command.add_argument("--student", metavar="ID", help="default: STUDENT in the file")
    add_exercises(command)
    command.add_argument(
        "--results",
        type=output_file,
        metavar="FILE",
        help="also add a line of JSON for each property to this file",
    )
    command.set_defaults(run=check)

    about = "check a folder of submissions, each in its own process, and write the points"
    command = commands.add_parser("grade", help=about, description=f"{about[0].upper()}{about[1:]}.")
    command.add_argument(
        "folder", type=Path, help="a notebook, a Python file or a folder for each submission"
    )
    add_exercises(command)
    command.add_argument(
        "--time-limit",
        type=float,
        default=TIME_LIMIT,
        metavar="SECONDS",
        help=f"for each submission (default: {TIME_LIMIT:g})",
    )
    command.add_argument(
        "--output",
        type=output_folder,
        default=Path("grades"),
        metavar="FOLDER",
        help="a new folder for points.json and, for each submission, Gradescope's results.json (default: grades)",
    )
    command.set_defaults(run=grade)
    return arguments


def add_exercises(command: argparse.ArgumentParser) -> None:
    """Add the option for the exercises that are checked."""
    command.add_argument(
        "--exercises", metavar="N,…", default=",".join(NAMES), help="numbers or names (default: all)"
    )


def exercise_of(given: str) -> str:
    """Return the name of an exercise from its number or name.

    Raises:
        UserError: there is none.
    """
    if given in NAMES:
        return given
    numbers = {str(number): name for number, name in enumerate(NAMES, start=1)}
    if given not in numbers:
        listed = ", ".join(f"{number} {name}" for number, name in numbers.items())
        raise UserError(f"{given} is not an exercise.{did_you_mean(given, NAMES)} Exercises: {listed}.")
    return numbers[given]


def exercises_of(given: str) -> list[str]:
    """Return the names of exercises, each once, from numbers or names separated by commas.

    Raises:
        UserError: there is none, or not one of them.
    """
    names = [name.strip() for name in given.split(",") if name.strip()]
    if not names:
        raise UserError(f"--exercises={given} names no exercise. Names: {', '.join(NAMES)}.")
    return [*dict.fromkeys(map(exercise_of, names))]


def start(options: argparse.Namespace) -> None:
    """Write the notebook of an exercise.

    Raises:
        UserError: the exercise does not exist, or the file does.
    """
    from seq2seq_lab.lesson.notebook import make_notebook

    exercise = exercise_of(options.exercise)
    path = options.output / f"{exercise}.ipynb"
    text = json.dumps(make_notebook(exercise, options.student), ensure_ascii=False, indent=1)
    options.output.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text + "\n")
    except FileExistsError as error:
        raise UserError(f"{path} exists. Choose another folder with --output, or rename the file.") from error
    print(f"{path}: fill the gap, then `python -m seq2seq_lab.lesson check {path}`.")


def check(options: argparse.Namespace) -> None:
    """Check solutions; exit with status 1 if a property does not hold."""
    exercises = exercises_of(options.exercises)
    from seq2seq_lab.lesson.checks import check_files

    if not check_files(options.files, options.student, options.results, exercises):
        sys.exit(1)


def grade(options: argparse.Namespace) -> None:
    """Check submissions and write the points."""
    exercises = exercises_of(options.exercises)
    from seq2seq_lab.lesson.grades import grade as grade_folder

    with optional_output():  # the points are in files
        grade_folder(options.folder, exercises, options.time_limit, options.output)


if __name__ == "__main__":
    main()
