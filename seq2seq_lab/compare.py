"""`python -m seq2seq_lab.compare FOLDER…`: compare finished runs."""

import sys
from collections.abc import Sequence
from pathlib import Path

from seq2seq_lab import api
from seq2seq_lab.config.run_folders import named_folder
from seq2seq_lab.errors import Parser, output_file, output_folder, print_visible, report_errors, require
from seq2seq_lab.files import write_atomically
from seq2seq_lab.reporting import comparison, figures, page, table_files, workspace
from seq2seq_lab.streams import optional_output


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of the runs, and write the files that the options name."""
    with report_errors():
        program = parser()
        options = program.parse_args(arguments)
        program.refuse_without("latex", ("latex_columns", "latex_digits", "latex_caption"), options)
        digits = options.latex_digits
        require(digits is None or digits >= 0, "--latex-digits", digits, "0 or more")
        folders = [named_folder(folder) for folder in options.folders]
        table = api.compare(
            folders,
            options.by.split(",") if options.by else (),
            options.baseline,
            options.metric,
            margin=options.margin,
            p_of_median_runs=options.p_of_median_runs,
            for_page=options.html is not None,
            test=options.test,
            validation=options.validation,
            attention=options.attention,
            config_dir=options.config_dir,
        )
        with optional_output():  # the files are the result
            comparison.print_comparison(table)
            for one in folded(table.skipped):
                print_visible(f"skipped: {one}", sys.stderr)
            count = len(folders)
            title = " and ".join(map(str, folders)) if count < 3 else f"Runs of {count} folders"
            if options.csv:
                write(options.csv, table_files.as_csv(table))
            if options.latex:
                columns = options.latex_columns.split(",") if options.latex_columns else None
                latex = table_files.LatexOptions(columns, options.latex_digits, options.latex_caption)
                write(options.latex, table_files.as_latex(table, latex))
            if options.html:
                write(options.html, page.page(table, title))
            if options.figures:
                for path in figures.save_figures(table, options.figures):
                    print(f"written: {path}")
            if options.wandb:
                print(f"saved: {workspace.save_workspace(table, options.wandb)}")


def folded(skipped: Sequence[str]) -> list[str]:
    """Return the reasons why folders were skipped; several runs that failed are one line."""
    failed = [one for one in skipped if one.endswith(": failed")]
    if len(failed) < 2:
        return [*skipped]
    others = [one for one in skipped if one not in failed]
    return [
        *others,
        f"{len(failed)} runs that failed (python -m seq2seq_lab.runs --status failed lists them)",
    ]


def write(path: Path, text: str) -> None:
    """Write a file and print its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)
    print(f"written: {path}")


def parser() -> Parser:
    """Return the parser of the command line."""
    arguments = Parser(
        prog="python -m seq2seq_lab.compare",
        description="Compare finished runs: mean and standard deviation over seeds, significance, and an "
        "HTML page.",
    )
    arguments.add_argument(
        "folders",
        nargs="+",
        metavar="FOLDER",
        help="a run, `latest` for the newest one, a study, or an evaluation (RUN/evaluations/NUMBER)",
    )
    arguments.add_argument(
        "--by",
        metavar="KEY,KEY",
        help="the settings that distinguish the rows (default: all that differ, except the seed)",
    )
    arguments.add_argument(
        "--baseline",
        metavar="NAME",
        help="the row to test the others against (default: the best that can be tested, with a correction for all "
        "pairs of rows)",
    )
    arguments.add_argument(
        "--metric", metavar="NAME", help="the metric to sort and test by (default: the task's primary metric)"
    )
    arguments.add_argument(
        "--test",
        metavar="NAME",
        help="the test set, NAME in test/NAME/… of result.json (default: the first one, test/…)",
    )
    arguments.add_argument(
        "--validation",
        action="store_true",
        help="compare the scores of the validation split: to choose settings without the test scores",
    )
    arguments.add_argument(
        "--margin",
        type=float,
        metavar="M",
        help="also test whether rows are equal: whether their means differ by less than M, in the unit of the metric "
        "(BLEU: points; a metric shown in %%: 0.01 for one percentage point)",
    )
    arguments.add_argument(
        "--p-of-median-runs",
        action="store_true",
        help="also test the runs of median score of two rows: whether these two models differ, not their settings",
    )
    arguments.add_argument(
        "--attention",
        action="store_true",
        help="also open the runs and measure how far apart their attention and their predictions are, between the runs of a "
        "row and to the baseline",
    )
    arguments.add_argument(
        "--config-dir",
        metavar="FOLDER",
        help="for --attention: the folder of the custom components of the runs; its Python files are executed",
    )
    arguments.add_argument("--csv", type=output_file, metavar="FILE", help="write the table as CSV")
    arguments.add_argument(
        "--latex", type=output_file, metavar="FILE", help="write the table as LaTeX (booktabs)"
    )
    arguments.add_argument(
        "--latex-columns",
        metavar="NAME,NAME",
        help="the metrics and keys of result.json that the LaTeX table shows (default: those of the terminal; "
        "it has no distances between runs)",
    )
    arguments.add_argument(
        "--latex-digits",
        type=int,
        metavar="N",
        help="digits after the decimal point of the metrics in the LaTeX table (default: those of the terminal)",
    )
    arguments.add_argument(
        "--latex-caption",
        metavar="TEXT",
        help="write a table environment with this caption, the signature and what p and bold face mean",
    )
    arguments.add_argument(
        "--html",
        type=output_file,
        metavar="FILE",
        help="write a page with curves, metrics by group of examples, outputs and attention",
    )
    arguments.add_argument(
        "--figures",
        type=output_folder,
        metavar="FOLDER",
        help="write curves and metrics by group of examples as PDF, for print",
    )
    arguments.add_argument(
        "--wandb",
        metavar="ENTITY/PROJECT",
        help="save a W&B workspace with the panels of the page in the project that the runs were logged to",
    )
    return arguments


if __name__ == "__main__":
    main()
