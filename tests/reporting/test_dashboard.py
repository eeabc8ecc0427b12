"""The W&B workspace: its spec is built and checked without the network."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from extras import needs_workspaces
from rewriting import rewrite

from seq2seq_lab import dashboard
from seq2seq_lab.dashboard import workspace
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.base import Declarations
from seq2seq_lab.metrics.ter import Ter
from seq2seq_lab.tasks.translation.evaluation import METRICS

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic V1 style")  # W&B's package has some


def spec_of(*arguments: Any) -> dict[str, Any]:
    return json.loads(
        workspace(*arguments, dashboard.read_declarations(None))._to_model().model_dump_json(by_alias=True)
    )


def found(node: Any, key: str) -> list[Any]:
    """Return every value of a key, at any depth."""
    if isinstance(node, list):
        return [value for item in node for value in found(item, key)]
    if not isinstance(node, dict):
        return []
    return [*([node[key]] if key in node else []), *(v for value in node.values() for v in found(value, key))]


def test_without_workspaces_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb_workspaces.workspaces", None)  # importing it raises ImportError
    with pytest.raises(UserError, match=r"seq2seq_lab\[dashboard\]"):
        spec_of("team", "seq2seq_lab", None, "attention")


@needs_workspaces
def test_the_workspace_has_the_panels_of_the_page() -> None:
    text = json.dumps(spec_of("team", "seq2seq_lab", "why", "attention"))
    spec = json.loads(text)
    names = [name for name in found(spec, "name") if isinstance(name, str)]
    for section in ("Curves", "Test metrics", "Groups of examples", "Metrics and settings", "Attention"):
        assert section in names
    for key in ("train/loss", "val/aer", "val/attention/1", "test/bleu_by_length", "trainer/step"):
        assert key in text
    for metric in METRICS:
        assert f"test/{metric.name}" in text
    assert "stddev" in text


@needs_workspaces
def test_a_study_is_shown_alone_and_grouped() -> None:
    spec = spec_of("team", "seq2seq_lab", "why", "encoder")
    assert "why" in found(spec, "value")
    assert "why" not in json.dumps(spec_of("team", "seq2seq_lab", None, "encoder"))
    assert "encoder" in json.dumps(found(spec, "grouping"))


@needs_workspaces
def test_without_a_key_nothing_is_saved(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import wandb

    monkeypatch.setattr(wandb, "login", lambda **options: False)
    with pytest.raises(SystemExit):
        dashboard.main(["--entity", "team"])
    assert "wandb login" in capsys.readouterr().err


@needs_workspaces
def test_an_invalid_key_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import wandb

    monkeypatch.setenv("WANDB_API_KEY", "short")
    try:
        with pytest.raises(SystemExit):
            dashboard.main(["--entity", "team"])
    finally:
        wandb.teardown()  # its session keeps the key
    assert "WANDB_API_KEY" in capsys.readouterr().err


@needs_workspaces
def test_the_metrics_of_a_run_have_panels(tmp_path: Path) -> None:
    declared = Declarations.of([Ter()], [], "ter")
    rewrite(tmp_path / "result.json", json.dumps({"status": "finished", **declared.result()}))
    spec = workspace("team", "seq2seq_lab", None, "attention", dashboard.read_declarations(tmp_path))
    text = spec._to_model().model_dump_json(by_alias=True)
    assert "test/ter" in text
    assert "test/bleu" not in text
    with pytest.raises(UserError, match="--run"):
        dashboard.read_declarations(tmp_path / "nothing")
