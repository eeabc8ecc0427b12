"""Count the lines of code of a package: no blank lines, comments or docstrings.

python -m benchmarks.code_lines [FOLDER] [--files N]
"""

import argparse
import ast
import io
import tokenize
from collections.abc import Sequence
from pathlib import Path

from seq2seq_lab.errors import report_errors

NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the lines of code of the folder, its sub-packages and its longest files."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.code_lines", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("folder", nargs="?", type=Path, default=Path("seq2seq_lab"))
    parser.add_argument(
        "--files", type=int, default=10, metavar="N", help="the longest files to print (default: 10)"
    )
    options = parser.parse_args(arguments)
    with report_errors():
        count_lines(options.folder, options.files)


def count_lines(folder: Path, files: int) -> None:
    """Print the lines of code of a folder, its sub-packages and this many of its longest files."""
    paths = sorted(folder.rglob("*.py"))
    counts = {path: code_lines(path.read_text("utf-8")) for path in paths}
    rooms: dict[str, int] = {}
    for path, count in counts.items():
        room = path.relative_to(folder).parts[0]
        rooms[room] = rooms.get(room, 0) + count
    print(f"{folder}: {sum(counts.values()):,} lines of code in {len(paths)} files")
    for room, count in sorted(rooms.items(), key=lambda item: -item[1]):
        print(f"{count:7,}  {room}")
    print("longest files, all lines:")
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in paths}
    for path in sorted(lengths, key=lambda path: -lengths[path])[:files]:
        print(f"{lengths[path]:7,}  {path}")


def code_lines(text: str) -> int:
    """Return the number of lines of a module that contain code."""
    documented = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if ast.get_docstring(node, clean=False) is not None
        for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    }
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(lines - documented)


if __name__ == "__main__":
    main()
