"""The diagram of docs/models.md."""

from pathlib import Path

import pytest

from benchmarks import diagram


def test_the_diagram_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagram, "PATH", tmp_path / "model.svg")
    diagram.main()
    assert diagram.PATH.read_text("utf-8").endswith("</svg>\n")
