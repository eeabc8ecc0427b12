"""What docs/ shows of Python runs as it stands: the notebook's cells and the code of python.md."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: docs/ beside the examples, elsewhere."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path / "docs")
    return tmp_path / "docs"


def execute(blocks: list[str]) -> dict[str, Any]:
    """Run blocks of code one after another in one namespace, and return it."""
    names: dict[str, Any] = {}
    for number, block in enumerate(blocks, start=1):
        exec(compile(block, f"block {number}", "exec"), names)
    return names


def test_the_notebook(docs: Path) -> None:
    notebook = json.loads((ROOT / "docs" / "notebook.ipynb").read_text("utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 5
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    names = execute(["".join(cell["source"]) for cell in cells])
    for figure in ("curves", "heatmap", "comparison", "own_heatmap"):
        assert isinstance(names[figure], Figure), figure
    run = names["run"]
    assert run.folder.parts[:-2] == (docs.parent / "outputs").parts
    assert [t.text for t in names["translations"]] == [row["hypothesis"] for row in names["test"]]
    # It has to have learnt something, or its pictures show nothing.
    assert run.result["test/bleu"] > 15
    assert names["longest"].attention.shape == (
        len(names["longest"].target_tokens),
        len(names["longest"].source_tokens),
    )


def test_the_page_on_python(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(docs.parent)
    page = (ROOT / "docs" / "python.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    names = execute(blocks)
    assert len(names["translations"]) == 2
    assert Path("attention.png").is_file()
    assert names["mine"].config.attention["_target_"] == "my_attention.CosineAttention"


def test_the_page_on_own_parts_shows_the_example() -> None:
    page = (ROOT / "docs" / "own_parts.md").read_text("utf-8")
    shown = (ROOT / "examples" / "own_parts" / "attention" / "mine.yaml").read_text("utf-8")
    assert shown in page
    code = (ROOT / "examples" / "own_parts" / "my_attention.py").read_text("utf-8")
    (block,) = re.findall(r"^```python\n(class CosineAttention.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for line in block.splitlines():
        assert line in code
