"""`python -m seq2seq_lab.translate RUN_FOLDER`: translate files, standard input, or sentences typed at a prompt."""

import argparse
import io
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq_lab.data.local_files import CONVERT_REMEDY, decode_lines, read_lines
from seq2seq_lab.data.text import new_counts
from seq2seq_lab.errors import Parser, UserError, print_visible, report_errors
from seq2seq_lab.evaluate import add_ensemble, add_opening, open_run
from seq2seq_lab.plots import picture_format, save_figure

if TYPE_CHECKING:
    from seq2seq_lab.tasks.translation.loaded import LoadedTranslation, Translation

BATCHES = 16  # batches that are read, translated and written together
ONE_LINE = str.maketrans("\n\r\t", "   ")  # a character model may output any of them


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; see `parser`."""
    with report_errors():
        options = parser().parse_intermixed_args(arguments)
        use_utf8_output()
        translate(options)


def use_utf8_output() -> None:
    """Write standard output in UTF-8 with "\\n" at the end of a line, as the input, on every system."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    arguments = Parser(
        prog="python -m seq2seq_lab.translate",
        usage="%(prog)s FOLDER [FILE ...] [KEY=VALUE ...] [options]",
        description="Translate files or standard input with a trained run, one sentence per line. Without files, at a "
        "terminal, ask for sentences.",
        epilog="Example: python -m seq2seq_lab.translate outputs/DATE/TIME news.en search=beam --scores > news.fr",
    )
    add_opening(arguments)
    add_ensemble(arguments)
    arguments.add_argument(
        "inputs",
        nargs="*",
        metavar="FILE | KEY=VALUE",
        help="files with one sentence per line; changes to the run's settings, such as search=beam search.size=10",
    )
    arguments.add_argument(
        "--nbest",
        action="store_true",
        help="write all outputs of the search as `number ||| translation ||| score`",
    )
    arguments.add_argument("--scores", action="store_true", help="add a column with the score of the search")
    arguments.add_argument(
        "--alignments",
        action="store_true",
        help="add a column with word alignments (0-0 1-2, Pharaoh format): for each output word the source word "
        "with the highest attention weight",
    )
    arguments.add_argument(
        "--replace-unknown",
        action="store_true",
        help="replace each unknown word (⁇) by the source word with the highest attention weight",
    )
    arguments.add_argument(
        "--attention",
        type=Path,
        metavar="FILE.png",
        help="draw the attention, one picture per line (also .pdf, .svg)",
    )
    arguments.add_argument(
        "--light", action="store_true", help="with --attention: high weights dark on white, for print"
    )
    arguments.add_argument(
        "--attention-maps",
        type=Path,
        metavar="FILE.png",
        help="draw the attention of every layer and head of a Transformer as FILE.encoder.png, FILE.decoder.png and "
        "FILE.cross.png, for each line",
    )
    return arguments


def translate(options: argparse.Namespace) -> None:
    """Translate the files, standard input, or sentences typed at a prompt.

    Raises:
        UserError: a file or a line cannot be read, a line is too long for the model, or the model has no attention to show.
    """
    from seq2seq_lab.runtime.device import release_memory
    from seq2seq_lab.tasks.translation.task import TranslationTask

    files = [Path(word) for word in options.inputs if "=" not in word or Path(word).exists()]
    changes = [word for word in options.inputs if Path(word) not in files]
    for path in files:
        if not path.exists() or path.is_dir():
            raise UserError(f"{path} is not a file. Give an existing file, or a setting as KEY=VALUE.")
    for path in (options.attention, options.attention_maps):
        if path is not None:
            picture_format(path)
    run = open_run(options, changes, TranslationTask, options.others)
    for path in (options.attention, options.attention_maps):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
    if not files and sys.stdin.isatty():
        prompt(run, options.replace_unknown)
        return
    sources = [
        (str(path), read_lines(path, new_counts(), show=False, remedy=CONVERT_REMEDY)) for path in files
    ]
    lines = check_lines(
        run, sources or [("standard input", decode_lines(sys.stdin.buffer, "standard input", new_counts()))]
    )
    wanted = options.alignments or options.attention is not None
    first = 0
    for chunk in chunks(lines, BATCHES * run.config.trainer.eval_batch_size):
        found = run.nbest(chunk, True, wanted, first, options.replace_unknown)
        for number, translations in enumerate(found, start=first):
            for translation in translations if options.nbest else translations[:1]:
                print_visible(format_line(translation, number, options))
            if options.attention is not None:
                draw(run, translations[0], options.attention, number, options.light)
            if options.attention_maps is not None:
                draw_maps(run, translations[0], options.attention_maps, number)
        first += len(chunk)
        sys.stdout.flush()
        release_memory()


def check_lines(
    run: "LoadedTranslation", sources: Iterable[tuple[str, Iterable[tuple[str, str]]]]
) -> Iterator[str]:
    """Yield the lines of files.

    Args:
        sources: (name of the file, its lines); a line is (text, description of an error or an empty string).

    Raises:
        UserError: a line is not UTF-8, or has more tokens than `trainer.max_eval_length` or the model allow.
    """
    most = run.config.trainer.max_eval_length
    for name, lines in sources:
        for number, (line, problem) in enumerate(lines, start=1):
            where = f"{name}, line {number}"
            if problem:
                raise UserError(f"{where}: {problem}. Correct the line. All earlier lines are translated.")
            length = len(run.tokenizers.source.encode([line])[0])
            if length > most:
                raise UserError(
                    f"{where} has {length:,} tokens; trainer.max_eval_length={most}. Split the line, or add "
                    f"trainer.max_eval_length={length} to the command: time and memory grow with the square of the length."
                )
            run.model.check_length(2 + length, where)
            yield line


def draw(run: "LoadedTranslation", translation: "Translation", path: Path, number: int, light: bool) -> None:
    """Draw the attention of a translation as the picture of a line; see `picture`.

    Raises:
        UserError: the model has no attention.
    """
    if translation.target_tokens:
        save_figure(run.plot_attention(translation, light=light), picture(path, number))


def draw_maps(run: "LoadedTranslation", translation: "Translation", path: Path, number: int) -> None:
    """Draw the attention of every layer and head for a line; the name of the attention is added to the file name.

    Raises:
        UserError: the model is not a Transformer.
    """
    if translation.source.strip():
        for name, figure in run.plot_attention_maps(translation.source, number).items():
            numbered = picture(path, number)
            save_figure(figure, numbered.with_name(f"{numbered.stem}.{name}{path.suffix}"))


def picture(path: Path, number: int) -> Path:
    """Return the file of a line's picture: the number of the line is added to the name, except for the first."""
    return path if number == 0 else path.with_name(f"{path.stem}.{number + 1}{path.suffix}")


def format_line(translation: "Translation", number: int, options: argparse.Namespace) -> str:
    """Return a translation as a line of the output."""
    text = translation.text.translate(ONE_LINE)
    score, links = f"{translation.score:.4f}", pharaoh(translation) if options.alignments else ""
    if options.nbest:
        return " ||| ".join([str(number), text, score, *([links] if options.alignments else [])])
    return "\t".join([text, *([score] if options.scores else []), *([links] if options.alignments else [])])


def pharaoh(translation: "Translation") -> str:
    """Return the word alignment of a translation: pairs SOURCE-TARGET of word numbers from 0.

    Raises:
        UserError: the model has no attention.
    """
    if translation.attention is None:
        if not translation.target_tokens:
            return ""
        raise UserError("--alignments needs attention, which this model does not have. Leave it out.")
    words_TS = translation.attention[:, 1:-1]  # without <sos> and <eos>
    if words_TS.shape[1] == 0:
        return ""
    return " ".join(f"{row.argmax()}-{target}" for target, row in enumerate(words_TS) if row.sum() > 0)


def chunks(lines: Iterator[str], size: int) -> Iterator[list[str]]:
    """Yield lists of up to `size` lines; after an error, first the lines before it."""
    chunk: list[str] = []
    try:
        for line in lines:
            chunk.append(line)
            if len(chunk) == size:
                yield chunk
                chunk = []
    except UserError:
        yield chunk
        raise
    if chunk:
        yield chunk


def prompt(run: "LoadedTranslation", replace_unknown: bool = False) -> None:
    """Translate sentences typed at a prompt, until the end of input."""
    import readline  # noqa: F401  (input() then edits lines and keeps a history)

    print("Type one sentence per line. Ctrl-D ends the program.")
    for number in itertools.count():
        try:
            line = input("> ")
        except EOFError:
            print()
            return
        if not line.strip():
            continue
        try:
            (translations,) = run.nbest([line], True, first=number, replace_unknown=replace_unknown)
        except UserError as error:  # too long for the model
            print_visible(f"error: {error}")
            continue
        for translation in translations:
            print_visible(f"{translation.text.translate(ONE_LINE)}   ({translation.score:.2f})")
            if translation.attention is not None:
                print(format_attention(translation))


def format_attention(translation: "Translation") -> str:
    """Return the attention as text: source words in columns, target words in rows; darker cells have higher weights."""
    from seq2seq_lab.runtime.console import shade_matrix

    assert translation.attention is not None
    return "\n".join(
        shade_matrix(translation.source_tokens, translation.target_tokens, translation.attention)
    )


if __name__ == "__main__":
    main()
