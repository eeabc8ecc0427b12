"""`python -m seq2seq_lab.predict RUN`: apply a trained run of any task to files, standard input or typed lines."""

import argparse
import io
import itertools
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from seq2seq_lab.config.run_folder import SCORED
from seq2seq_lab.data.local_files import CONVERT_REMEDY, decode_lines, read_lines
from seq2seq_lab.data.text import new_counts
from seq2seq_lab.errors import (
    ISOLATES,
    LINES,
    Parser,
    UserError,
    flag,
    output_file,
    output_folder,
    print_visible,
    report_errors,
    require,
)
from seq2seq_lab.evaluate import add_ensemble, add_opening, open_run
from seq2seq_lab.plots import picture_format, save_figure
from seq2seq_lab.runtime.console import print_prose

SHOWN_OUTPUTS = 10  # at the prompt
SHOWN_UNKNOWN = 20  # words that the vocabulary lacks
BATCHES = 16  # batches that are read, processed and written together
ONE_LINE = str.maketrans("\n\r\t", "   ")  # a character model may output any of them
STANDARD_INPUT = "standard input"

# The options that not every task has (`Loaded.options`), with their values if they are not given.
OPTIONS = {
    "nbest": False,
    "scores": False,
    "alignments": False,
    "replace_unknown": False,
    "weights": False,
    "attention": None,
    "light": False,
    "attention_maps": None,
    "export": None,
    "count": None,
    "log_probs": False,
}
# The other settings that can be changed are those of an evaluation.
OF_PREDICT = ("search", "task.eval_batch_size", "task.max_eval_length")
OF_ATTENTION = ("alignments", "replace_unknown", "weights", "attention")
OF_FILES = ("alignments", "attention", "light", "attention_maps", "log_probs")  # not at the prompt


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; see `parser`."""
    with report_errors():
        program = parser()
        options = program.parse_intermixed_args(arguments)
        program.refuse_without("attention", ["light"], options)
        if isinstance(sys.stdout, io.TextIOWrapper):  # in UTF-8 like the input, on every system
            sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")
        predict(options)


def parser() -> Parser:
    """Return the parser of the command line."""
    arguments = Parser(
        prog="python -m seq2seq_lab.predict",
        usage="%(prog)s RUN [FILE ...] [KEY=VALUE ...] [options]",
        description="Apply a trained run: translate, answer, classify or continue lines of text, or describe images. "
        "Without files, read standard input; at a terminal, ask for lines.",
        epilog="Example: python -m seq2seq_lab.predict outputs/DATE/TIME news.en search=beam --scores > news.fr",
    )
    add_opening(arguments)
    add_ensemble(arguments)
    arguments.add_argument(
        "inputs",
        nargs="*",
        metavar="FILE | KEY=VALUE",
        help="files with one input per line (- for standard input), or the images to describe; changes to the run's "
        "search, such as search=beam search.size=10",
    )
    arguments.add_argument(
        "--max-tokens",
        type=int,
        metavar="N",
        help="refuse lines with more tokens, since time and memory grow with the length (default: 1000, or "
        "task.max_eval_length of the run)",
    )
    arguments.add_argument(
        "--nbest",
        action="store_true",
        help="write all outputs of the search as `index ||| output ||| score`",
    )
    arguments.add_argument("--scores", action="store_true", help="add a column with the score of the search")
    arguments.add_argument(
        "--weights", action="store_true", help="below each output, print the attention weights as shades"
    )
    arguments.add_argument(
        "--attention",
        type=output_file,
        metavar="FILE.png",
        help="draw the attention, one picture per input (also .pdf, .svg)",
    )
    arguments.add_argument(
        "--light", action="store_true", help="with --attention: high weights dark on white, for print"
    )
    add_translation(arguments)
    add_language_model(arguments)
    return arguments


def add_translation(arguments: argparse.ArgumentParser) -> None:
    """Add the options of translation and dialogue; `--attention-maps` also applies to language models."""
    group = arguments.add_argument_group("translation and dialogue")
    group.add_argument(
        "--alignments",
        action="store_true",
        help="add a column with word alignments (0-0 1-2, Pharaoh format, words between spaces): for each output word the "
        "source word with the highest attention weight",
    )
    group.add_argument(
        "--replace-unknown",
        action="store_true",
        help="replace each unknown word (⁇) by the source word with the highest attention weight",
    )
    group.add_argument(
        "--attention-maps",
        type=output_file,
        metavar="FILE.png",
        help="draw the attention of every layer and head of a Transformer as FILE.encoder.png, FILE.decoder.png and "
        "FILE.cross.png, for each line; of a language model as FILE.decoder.png",
    )
    group.add_argument(
        "--export",
        type=output_folder,
        metavar="FOLDER",
        help="instead of translating, write the weights, the vocabulary and a program of plain PyTorch that translates with "
        "them to a new folder; for models such as the default one",
    )


def add_language_model(arguments: argparse.ArgumentParser) -> None:
    """Add the options of language models."""
    group = arguments.add_argument_group("language models").add_mutually_exclusive_group()
    group.add_argument(
        "--count",
        type=int,
        metavar="N",
        help="run the search N times for each line; without files, generate sentences without a beginning",
    )
    group.add_argument(
        "--log-probs",
        action="store_true",
        help="instead of continuing each line, print its log-probability in nats, with the end of the sentence, before it",
    )


def predict(options: argparse.Namespace) -> None:
    """Apply the run to the inputs.

    Raises:
        UserError: the task of the run does not have an option, or an input cannot be used.
    """
    files = [word for word in options.inputs if word == "-" or "=" not in word or Path(word).exists()]
    changes = [word for word in options.inputs if word not in files]
    for path in filter(None, (options.attention, options.attention_maps)):
        picture_format(path)
    require(options.count is None or options.count >= 1, "--count", options.count, "1 or more")
    require(
        options.max_tokens is None or options.max_tokens >= 1, "--max-tokens", options.max_tokens, "1 or more"
    )
    refuse_changes(changes)
    for name in files:
        if name != "-" and (not Path(name).exists() or Path(name).is_dir()):
            raise UserError(f"{name} is not a file. Give an existing file, or a setting as KEY=VALUE.")
    run = open_run(options, changes, options.others)
    with run.named_errors():
        apply(run, options, files, changes)


def apply(run: Any, options: argparse.Namespace, files: Sequence[str], changes: Sequence[str]) -> None:
    """Apply an open run to the inputs; see `predict`."""
    refuse_options(run, options, files)
    searches = [change for change in changes if change.startswith("search")]
    others = [*(flag(one) for one in given_options(options) if one != "log_probs"), *searches]
    if options.log_probs and others:
        raise UserError(f"--log-probs generates no text. Leave out {' '.join(others)}.")
    if options.export is not None:
        export(run, options, files)
        return
    for path in filter(None, (options.attention, options.attention_maps)):
        path.parent.mkdir(parents=True, exist_ok=True)
    if run.reads == "files":
        if not files:
            raise UserError("No file is given. Name one or more files after the run folder.")
        write_outputs(run, map(run.read_file, files), options)
    elif files or options.count is None:
        longest = run.longest_input if options.max_tokens is None else options.max_tokens
        if not files and sys.stdin.isatty():
            prompt(run, options, longest)
            return
        write_outputs(run, read_inputs(run, files, longest), options)
    else:
        write_outputs(run, iter([""]), options)


def refuse_changes(changes: Iterable[str]) -> None:
    """Refuse settings of the data and the metrics of an evaluation.

    Raises:
        UserError: names the setting.
    """
    from seq2seq_lab.config.schema import OPENED_GROUPS, OPENED_KEYS

    of_evaluation = {*OPENED_GROUPS, *OPENED_KEYS}.difference(OF_PREDICT)
    for change in changes:
        key = change.partition("=")[0]
        if not of_evaluation.isdisjoint([key, key.partition(".")[0]]):
            raise UserError(
                f"{change} has no effect on predict, which scores no data set. Leave it out, or score the run: "
                f"python -m seq2seq_lab.evaluate RUN {shlex.quote(change)}"
            )


def refuse_options(run: Any, options: argparse.Namespace, files: Sequence[str]) -> None:
    """Refuse options that the task of the run does not have, or that have no effect.

    Raises:
        UserError: names the option.
    """
    for name in given_options(options):
        if name not in run.options:
            known = ", ".join(flag(one) for one in OPTIONS if one in run.options)
            raise UserError(
                f"{flag(name)}: runs of {type(run.task).__name__} do not have this option. Leave it out. Options of the "
                f"task: {known or 'none'}."
            )
        if name in OF_ATTENTION and not run.attends:
            raise UserError(
                f"{flag(name)}: the model of {run.folder} has no attention. Leave the option out, or use a run of a model "
                f"with attention, such as model=attn."
            )
    if options.max_tokens is not None and (run.reads == "files" or not (files or options.count is None)):
        raise UserError(f"--max-tokens={options.max_tokens} has no effect: no lines are read. Leave it out.")
    if options.count is not None and options.attention_maps is not None:
        raise UserError(
            f"--attention-maps draws lines that are read, and --count={options.count} generates sentences. Leave one of "
            f"them out."
        )


def export(run: Any, options: argparse.Namespace, files: Sequence[str]) -> None:
    """Export the model of a run, and print how to use it.

    Raises:
        UserError: other options or files are given, or the run cannot be exported.
    """
    others = [*files, *(flag(name) for name in given_options(options) if name != "export")]
    others += ["--max-tokens"] if options.max_tokens is not None else []
    others += ["--precision"] if options.precision != "auto" else []
    if others:
        raise UserError(f"--export={options.export} translates no text. Leave out {' '.join(others)}.")
    run.export(options.export)
    sentence = test_input(run) or "TEXT"
    print_visible(
        f"Written to {options.export}; README.md describes the files. To translate without seq2seq_lab:"
    )
    print_visible(
        f"  echo {shlex.quote(sentence)} | python {shlex.quote(str(options.export / 'translate.py'))}"
    )


def given_options(options: argparse.Namespace) -> list[str]:
    """Return the names of those of `OPTIONS` that are set."""
    return [name for name, absent in OPTIONS.items() if getattr(options, name) != absent]


def read_inputs(run: Any, files: Sequence[str], longest: int) -> Iterator[str]:
    """Yield the lines of files, or of standard input if there are none.

    Raises:
        UserError: a line is not UTF-8, or the model cannot read it.
    """
    for name in files or ["-"]:
        shown = STANDARD_INPUT if name == "-" else name
        lines = (
            decode_lines(sys.stdin.buffer, STANDARD_INPUT, new_counts())
            if name == "-"
            else read_lines(Path(name), new_counts(), show=False, remedy=CONVERT_REMEDY)
        )
        for line_number, (line, problem) in enumerate(lines, start=1):
            where = f"{shown}, line {line_number}"
            if problem:
                raise UserError(f"{where}: {problem}. Correct the line. All earlier lines are processed.")
            run.check_input(line, where, longest)
            yield line


def write_outputs(run: Any, inputs: Iterable[Any], options: argparse.Namespace) -> None:
    """Draw the attention for the inputs, and print their outputs."""
    from seq2seq_lab.runtime.device import release_memory

    unknown: dict[str, None] = {}  # a set in the order of the inputs
    repeated = itertools.chain.from_iterable(itertools.repeat(one, options.count or 1) for one in inputs)
    arguments, first = run.nbest_arguments(given_options(options)), 0
    for chunk in chunks(repeated, BATCHES * run.task.eval_batch_size):
        if options.log_probs:
            for line, log_prob in zip(chunk, run.log_probs(chunk), strict=True):
                print_visible(f"{log_prob:.4f}\t{line}")
        else:
            for index, outputs in enumerate(run.nbest(chunk, first=first, **arguments), first):
                write_output(run, outputs, index, options)
                unknown |= dict.fromkeys(outputs[0].unknown_words)
        first += len(chunk)
        sys.stdout.flush()
        release_memory()
    if unknown:
        print_visible(f"warning: {describe_unknown([*unknown])}", sys.stderr)


def describe_unknown(words: Sequence[str]) -> str:
    """Return a sentence on words that the vocabulary of a run lacks."""
    shown = ", ".join(repr(word) for word in words[:SHOWN_UNKNOWN])
    more = f" and {len(words) - SHOWN_UNKNOWN:,} more" if len(words) > SHOWN_UNKNOWN else ""
    return f"not in the vocabulary, so the model reads <unk> (marked ⁇) instead: {shown}{more}."


def write_output(run: Any, outputs: Sequence[Any], index: int, options: argparse.Namespace) -> None:
    """Draw the attention of the best output for one input, and print the outputs."""
    best = outputs[0]
    if options.attention is not None and (figure := best.figure(options.light)) is not None:
        save_figure(figure, picture(options.attention, index))
    if options.attention_maps is not None and best.source.strip():
        for name, figure in run.plot_attention_maps(best.source, index).items():
            file = picture(options.attention_maps, index)
            save_figure(figure, file.with_name(f"{file.stem}.{name}{file.suffix}"))
    for one in outputs if options.nbest else [best]:
        print_visible(format_line(one, index, options))
        if options.weights:
            print_shades(one.shades())


def print_shades(lines: Sequence[str]) -> None:
    """Print the result of `Prediction.shades`, in which isolates order words from right to left."""
    for line in lines:
        print_visible(line, kept=LINES + ISOLATES)


def picture(path: Path, index: int) -> Path:
    """Return the file of an input's picture: its name has the count of the input, except for the first."""
    return path if index == 0 else path.with_name(f"{path.stem}.{index + 1}{path.suffix}")


def format_line(prediction: Any, index: int, options: argparse.Namespace) -> str:
    """Return a prediction as a line of the output."""
    score = "" if prediction.score is None else f"{prediction.score:.4f}"
    links = [prediction.alignment()] if options.alignments else []
    if options.nbest:
        return " ||| ".join([str(index), prediction.text.translate(ONE_LINE), score, *links])
    columns = [column.translate(ONE_LINE) for column in prediction.columns()]
    return "\t".join([*columns, *([score] if options.scores else []), *links])


def chunks(inputs: Iterator[Any], size: int) -> Iterator[list[Any]]:
    """Yield lists of up to `size` inputs; after an error, first the inputs before it."""
    chunk: list[Any] = []
    try:
        for one in inputs:
            chunk.append(one)
            if len(chunk) == size:
                yield chunk
                chunk = []
    except UserError:
        yield chunk
        raise
    if chunk:
        yield chunk


def test_input(run: Any) -> str:
    """Return a short text of the first test set of a run; empty if the run has recorded no outputs."""
    from seq2seq_lab.reporting.runs import find_runs

    if run.result is None or run.result.get("status") not in SCORED:
        return ""
    (read, *_), _ = find_runs([run.folder], for_page=True)
    return min((row["input"] for row in read.examples[:SHOWN_OUTPUTS]), key=len, default="")


def prompt(run: Any, options: argparse.Namespace, longest: int) -> None:
    """Answer lines typed at a prompt with all outputs of the search and their attention, until the end of input.

    Args:
        longest: the largest number of tokens of a line.

    Raises:
        UserError: an option is for files only.
    """
    import readline  # noqa: F401  (input() then edits lines and keeps a history)

    for name in given_options(options):
        if name in OF_FILES:
            raise UserError(
                f"{flag(name)} is for files and standard input. Name a file, or leave it out at a terminal."
            )
    print_prose("Type one line of text. Ctrl-D ends the program.")
    if text := test_input(run):
        print_prose(f"The model knows the words of its training data. A text of the test set: {text}")
    arguments = run.nbest_arguments([*given_options(options), "weights"])  # they are shown
    for index in itertools.count():
        try:
            line = input("> ")
        except EOFError:
            print()
            return
        if not line.strip():
            continue
        try:
            run.check_input(line, "The line", longest)
            (outputs,) = run.nbest([line], first=index, **arguments)
        except UserError as error:
            print_visible(f"error: {error}")
            continue
        if outputs[0].unknown_words:
            print_prose(describe_unknown(outputs[0].unknown_words))
        shaded: list[str] = []
        for one in outputs[:SHOWN_OUTPUTS]:
            score = "" if one.score is None else f"   ({one.score:.2f})"
            print_visible(f"{one.text.translate(ONE_LINE)}{score}")
            if (shades := one.shades()) != shaded:  # those of all classes of a text are the same
                print_shades(shades)
                shaded = shades


if __name__ == "__main__":
    main()
