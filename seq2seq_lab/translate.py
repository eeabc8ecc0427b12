"""`python -m seq2seq_lab.translate RUN_FOLDER`: a line out for each line in, or a prompt."""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from seq2seq_lab.errors import UserError
from seq2seq_lab.evaluate import add_opening, opened

if TYPE_CHECKING:
    from seq2seq_lab.api import LoadedRun, Translation

BATCHES = 16  # that are read, translated and written together
ONE_LINE = str.maketrans("\n\r\t", "   ")  # a model of characters may say any of them
SHADES = ((0.8, "█"), (0.5, "▓"), (0.25, "▒"), (0.05, "░"), (0.0, "·"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Translate as the command line says; see `parser`."""
    options = parser().parse_intermixed_args(arguments)
    try:
        translate(options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # who reads has had enough
        sys.stderr.close()
        sys.exit(1)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    made = argparse.ArgumentParser(
        prog="python -m seq2seq_lab.translate",
        description="Translate with a trained run: a line out for each line of the files, or of standard input; at a "
        "terminal, a prompt.",
        epilog="Example: python -m seq2seq_lab.translate outputs/DATE/TIME news.en search=beam --scores > news.fr",
    )
    made.add_argument("folder", type=Path, help="of a run: outputs/DATE/TIME")
    made.add_argument(
        "inputs",
        nargs="*",
        metavar="FILE | KEY=VALUE",
        help="files of one sentence a line, and settings that are to differ from the run's: search=beam, search.size=10",
    )
    made.add_argument(
        "--nbest",
        action="store_true",
        help="all that the search returns, as `number ||| translation ||| score`",
    )
    made.add_argument("--scores", action="store_true", help="add a column: what the search ranks by")
    made.add_argument(
        "--alignments",
        action="store_true",
        help="add a column: for each word of the translation, the source word attended to most, as 0-0 1-2 (Pharaoh)",
    )
    made.add_argument(
        "--attention", type=Path, metavar="FILE.png", help="draw the attention, a picture a line"
    )
    add_opening(made)
    return made


def translate(options: argparse.Namespace) -> None:
    """Translate what there is to be translated."""
    files = [Path(word) for word in options.inputs if "=" not in word or Path(word).exists()]
    changes = [word for word in options.inputs if Path(word) not in files]
    for path in files:
        if not path.is_file():
            raise UserError(f"{path}: there is no such file. A setting is written KEY=VALUE.")
    run = opened(options, changes)
    if not files and sys.stdin.isatty():
        prompt(run)
        return
    size = BATCHES * run.config.trainer.eval_batch_size
    wanted = options.alignments or options.attention is not None
    lines = read_files(files) if files else read_lines(sys.stdin.buffer, "standard input")
    for number, translations in enumerate(
        translations for chunk in chunks(lines, size) for translations in run.nbest(chunk, True, wanted)
    ):
        for translation in translations if options.nbest else translations[:1]:
            print(written(translation, number, options))
        if options.attention is not None and translations[0].attention is not None:
            path = options.attention
            picture = path if number == 0 else path.with_name(f"{path.stem}.{number + 1}{path.suffix}")
            run.plot_attention(translations[0]).savefig(picture)
        if number % size == size - 1:
            sys.stdout.flush()


def written(translation: "Translation", number: int, options: argparse.Namespace) -> str:
    """Return a translation as a line of the output."""
    text = translation.text.translate(ONE_LINE)
    score, links = f"{translation.score:.4f}", pharaoh(translation) if options.alignments else ""
    if options.nbest:
        return " ||| ".join([str(number), text, score, *([links] if options.alignments else [])])
    return "\t".join([text, *([score] if options.scores else []), *([links] if options.alignments else [])])


def pharaoh(translation: "Translation") -> str:
    """Return the word alignment of a translation whose attention is over words: source-target pairs, from 0.

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


def read_files(paths: Iterable[Path]) -> Iterator[str]:
    """Yield the lines of files, one after another."""
    for path in paths:
        with path.open("rb") as file:
            yield from read_lines(file, str(path))


def read_lines(file: BinaryIO, name: str) -> Iterator[str]:
    """Yield the lines of a file; nothing but a line feed ends one.

    Raises:
        UserError: a line is not UTF-8.
    """
    for number, line in enumerate(file, start=1):
        try:
            yield line.decode("utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{name}, line {number}: not UTF-8 (byte {error.start + 1}: 0x{line[error.start]:02x}). The lines before it "
                f"are translated."
            ) from None


def chunks(lines: Iterator[str], size: int) -> Iterator[list[str]]:
    """Yield lines, so many together; those before an error too."""
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


def prompt(run: "LoadedRun") -> None:
    """Translate what is typed, until the end of input."""
    import readline  # noqa: F401  (input() then edits lines and keeps a history)

    print("A sentence a line; Ctrl-D ends.")
    while True:
        try:
            line = input("> ")
        except EOFError:
            print()
            return
        if not line.strip():
            continue
        for translation in run.nbest([line], join_subwords=True)[0]:
            print(f"{translation.text.translate(ONE_LINE)}   ({translation.score:.2f})")
            if translation.attention is not None:
                print(shaded(translation))


def shaded(translation: "Translation") -> str:
    """Return the attention as text: source words across, the translation's down, the darker the more weight."""
    from rich.cells import cell_len

    assert translation.attention is not None
    columns, rows = translation.source_tokens, translation.target_tokens
    margin = max((cell_len(word) for word in rows), default=0)
    lines = [" ".join([" " * margin, *columns])]
    for word, weights_S in zip(rows, translation.attention, strict=True):
        cells = [
            next(shade for least, shade in SHADES if weight >= least) * cell_len(column)
            for column, weight in zip(columns, weights_S, strict=True)
        ]
        lines.append(" ".join([" " * (margin - cell_len(word)) + word, *cells]))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
