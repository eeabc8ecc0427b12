"""Notebooks in Jupyter's format 4.5: write them from the Markdown file of an exercise, and read them."""

import json
import re
import tokenize
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from seq2seq_lab.lesson.student import student_of

CODE = re.compile(r"^```python *(\w*)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
IPYTHON = re.compile(r"^([ \t]*)(?:[%!?].*|[\w., \t]+=[ \t]*[%!].*|[^#'\"\n]*\?[ \t]*)$", re.MULTILINE)
CHECK = "check"  # the tag of the cell that checks, which `lesson check` leaves out


class Cell(NamedTuple):
    """A cell of code.

    Attributes:
        name: names it in messages, and as a file in tracebacks.
    """

    name: str
    code: str


def make_notebook(exercise: str, student_id: str) -> dict[str, Any]:
    """Return the notebook of an exercise for a student, as values of JSON."""
    text = resources.files("seq2seq_lab.lesson.exercises").joinpath(f"{exercise}.md").read_text("utf-8")
    for name, value in _values(student_id).items():
        text = text.replace("{{" + name + "}}", value)
    cells: list[dict[str, Any]] = []
    before = 0
    for block in CODE.finditer(text):
        cells.append({"cell_type": "markdown", "source": text[before : block.start()].strip()})
        tags = {"tags": [block[1]]} if block[1] else {}
        code: dict[str, Any] = {"cell_type": "code", "execution_count": None, "outputs": []}
        cells.append({**code, "metadata": tags, "source": block[2].rstrip("\n")})
        before = block.end()
    for number, cell in enumerate(cells):
        cell["id"] = f"{exercise}-{number}"
        cell.setdefault("metadata", {})
        cell["source"] = cell["source"].splitlines(keepends=True)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def _values(student_id: str) -> dict[str, str]:
    """Return the values of the names in braces of the Markdown files."""
    student = student_of(student_id)
    pairs = [*student.shown[:3], student.held_out[0]]
    by_length = sorted(pairs, key=lambda pair: len(pair.source_words))
    return {
        "student": repr(student_id),
        "phenomenon": student.phenomenon,
        "source": repr([*pairs[-1].source_words]),
        "sources": repr([[*pair.source_words] for pair in (by_length[0], by_length[-1])]),
        "targets": repr([[*pair.target_words] for pair in pairs]),
    }


def is_notebook(path: Path) -> bool:
    """Return whether the name of a file is that of a notebook."""
    return path.suffix.lower() == ".ipynb"


def read_cells(path: Path) -> list[Cell]:
    """Return the code of a notebook without the cell that checks, or of a Python file.

    Lines for IPython, which begin with % or !, have `= !` or `= %`, or end with ?, are left out of cells that are not Python
    otherwise.

    Raises:
        ValueError: the file is not a notebook.
    """
    if not is_notebook(path):
        with tokenize.open(path) as file:  # as Python reads it, with a byte order mark or another encoding
            return [Cell(str(path), file.read())]
    cells = []
    try:
        for number, cell in enumerate(json.loads(path.read_text("utf-8-sig"))["cells"], start=1):
            if cell["cell_type"] == "code" and CHECK not in cell["metadata"].get("tags", ()):
                cells.append(Cell(f"{path}, cell {number}", _python("".join(cell["source"]))))
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a notebook of format 4 ({type(error).__name__}: {error})") from error
    return cells


def _python(code: str) -> str:
    """Return the code of a cell without the lines for IPython."""
    if code.lstrip().startswith("%%"):
        return ""
    try:
        compile(code, "", "exec")
    except SyntaxError:
        return IPYTHON.sub(r"\1pass", code)
    return code
