"""The W&B workspace: its spec is built and checked without the network."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from extras import needs_workspaces
from programs import compare
from reporting.test_compare import make_run

from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.base import Declarations
from seq2seq_lab.reporting import workspace as workspaces
from seq2seq_lab.reporting.comparison import compare_folders
from seq2seq_lab.reporting.workspace import workspace
from seq2seq_lab.tasks.translation.evaluation import BY_PHENOMENON, METRICS

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic V1 style")  # W&B's package has some


def spec_of(*arguments: Any) -> dict[str, Any]:
    declared = Declarations.of(METRICS, [BY_PHENOMENON], "bleu")
    return json.loads(workspace(*arguments, declared)._to_model().model_dump_json(by_alias=True))


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
    for key in ("train/loss", "val/aer", "val/attention/1", "test/accuracy_by_phenomenon", "trainer/step"):
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
    dotted = json.dumps(found(spec_of("team", "seq2seq_lab", None, "model.dropout"), "grouping"))
    assert "config.value.model.dropout" in dotted


@needs_workspaces
@pytest.mark.parametrize(("key", "said"), [(None, "wandb login"), ("short", "API key of W&B is not valid")])
def test_without_a_valid_key_nothing_is_saved(
    key: str | None,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import wandb

    make_run(tmp_path / "run", "dot", 1, 0.5)
    if key is None:
        monkeypatch.setattr(wandb, "login", lambda **options: False)
    else:
        monkeypatch.setenv("WANDB_API_KEY", key)
    try:
        with pytest.raises(SystemExit):
            compare.main([str(tmp_path), "--wandb", "team/seq2seq_lab"])
    finally:
        wandb.teardown()  # its session keeps the key
    assert said in capsys.readouterr().err


@needs_workspaces
def test_the_runs_determine_the_panels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[Any] = []
    monkeypatch.setattr(workspaces, "has_api_key", lambda: True)
    monkeypatch.setattr(
        "wandb_workspaces.workspaces.Workspace.save",
        lambda view: saved.append(view) or SimpleNamespace(url="https://w"),
    )
    make_run(tmp_path / "a", "dot", 1, 0.5)
    make_run(tmp_path / "b", "none", 1, 0.2)
    table = compare_folders([tmp_path])
    assert workspaces.save_workspace(table, "team/seq2seq_lab") == "https://w"
    text = saved[0]._to_model().model_dump_json(by_alias=True)
    assert "test/length" in text  # a metric of the user's own
    assert "why" in found(json.loads(text), "value")  # the study of both runs


@pytest.mark.parametrize("path", ["team", "team/", "/project", "a/b/c"])
def test_a_malformed_project_is_refused(path: str, tmp_path: Path) -> None:
    make_run(tmp_path / "run", "dot", 1, 0.5)
    with pytest.raises(UserError, match=rf"--wandb={path} .*ENTITY/PROJECT"):
        workspaces.save_workspace(compare_folders([tmp_path]), path)
