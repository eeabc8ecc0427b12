"""The code in docs/ runs, and links between pages have targets."""

import hashlib
import io
import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import command_line
import pytest
from extras import lacks_spacy
from matplotlib.figure import Figure

import seq2seq_lab
from seq2seq_lab import predict
from seq2seq_lab.config.command_line import parse_line, parse_overrides
from seq2seq_lab.config.compose import compose_job, composer
from seq2seq_lab.config.sweeps import split_values
from seq2seq_lab.config.upgrade import RENAMED
from seq2seq_lab.launching.start import check_parts

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a copy of docs/ beside a copy of the examples."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path / "docs")
    return tmp_path / "docs"


def with_settings(blocks: list[str], smaller: dict[str, str]) -> list[str]:
    """Replace settings; exactly one block contains each."""
    for setting, other in smaller.items():
        assert sum(setting in block for block in blocks) == 1, setting
        blocks = [block.replace(setting, other) for block in blocks]
    return blocks


def execute(blocks: list[str]) -> dict[str, Any]:
    """Run blocks of code one after another in one namespace, and return it."""
    names: dict[str, Any] = {}
    for number, block in enumerate(blocks, start=1):
        exec(compile(block, f"block {number}", "exec"), names)
    return names


@pytest.mark.slow
def test_the_page_on_explanation_shows_what_its_code_prints(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "explanation.md").read_text("utf-8")
    blocks = re.findall(r"^```(?:python|text)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for code, printed in zip(blocks[::2], blocks[1::2], strict=True):
        execute([code])
        assert capsys.readouterr().out == printed


@pytest.mark.slow
def test_the_notebook(docs: Path) -> None:
    notebook = json.loads((ROOT / "docs" / "notebook.ipynb").read_text("utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 5
    blocks = ["".join(cell["source"]) for cell in cells]
    small = {"dataset.train=6000": "dataset.train=200", "trainer.max_epochs=6": "trainer.max_epochs=2"}
    names = execute(with_settings(blocks, small))
    for figure in ("curves", "heatmap", "comparison", "own_heatmap"):
        assert isinstance(names[figure], Figure), figure
    run = names["run"]
    assert run.folder.parts[:-2] == (docs.parent / "outputs").parts
    assert [t.text for t in names["translations"]] == [row["hypothesis"] for row in names["test"]]
    assert names["longest"].attention.shape == (
        len(names["longest"].target_tokens),
        len(names["longest"].source_tokens),
    )


def test_the_notebook_is_saved_with_the_outputs_of_its_code() -> None:
    text = (ROOT / "docs" / "notebook.ipynb").read_text("utf-8")
    notebook = json.loads(text)
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert all(output["output_type"] != "error" for cell in cells for output in cell["outputs"])
    kinds = [{kind for output in cell["outputs"] for kind in output.get("data", {})} for cell in cells]
    assert sum("image/png" in of_cell for of_cell in kinds) == 4  # curves, comparison, two heatmaps
    # Recorded at its execution. If this fails, execute the notebook again.
    code = "\n".join("".join(cell["source"]) for cell in cells)
    assert notebook["metadata"]["executed_source"] == hashlib.sha256(code.encode()).hexdigest()
    scores = {
        kind for cell in cells for kind in re.findall(r"'attention': ([\d.]+)", json.dumps(cell["outputs"]))
    }
    assert min(map(float, scores)) > 80  # the model has learnt enough for its pictures to show something
    assert len(text.encode()) < 900 * 1024
    pictures = {"image/png"}
    shown = "".join(
        "".join(text)
        for cell in cells
        for output in cell["outputs"]
        for text in (
            output.get("text", ""),
            *(value for kind, value in output.get("data", {}).items() if kind not in pictures),
        )
    )
    assert re.findall(r"[^\w.<]/\w+/\S*", shown) == []  # absolute paths


@pytest.mark.slow
def test_the_page_on_python(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(docs.parent)
    page = (ROOT / "docs" / "python.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 13
    small = {
        "dataset.train=6000": "dataset.train=60",
        'dataset.validation=200", "dataset.test=200': 'dataset.validation=6", "dataset.test=6',
        "trainer.max_epochs=6": "trainer.max_epochs=2",
        "dataset.train=200": "dataset.train=40",
    }
    names = execute(with_settings(blocks, small))
    assert len(names["translations"]) == 2
    assert len(names["both"].model.members) == 2
    assert names["beam"].config.search["size"] == 10
    assert len(names["side_by_side"].axes) == 2
    assert Path("attention.png").is_file()
    assert names["mine"].config.attention["_target_"] == "my_attention.CosineAttention"


def test_the_page_on_extending_shows_the_examples() -> None:
    page = (ROOT / "docs" / "extending.md").read_text("utf-8")
    paths = [*(ROOT / "examples").rglob("*.*"), *(ROOT / "seq2seq_lab/models/attention").glob("*.py")]
    files = {path: path.read_text("utf-8") for path in paths if path.suffix in (".yaml", ".py")}
    shown = re.findall(r"^```(yaml|python)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(shown) >= 8
    for language, block in shown:
        suffix = {"yaml": ".yaml", "python": ".py"}[language]
        texts = [text for path, text in files.items() if path.suffix == suffix]
        assert any(all(line in text for line in block.splitlines()) for text in texts), block


def test_the_first_picture_of_getting_started_is_what_the_program_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "index.md").read_text("utf-8")
    (sentence,) = re.findall(r"Type `([^`]+)`", page.replace("\n", " "))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{sentence}\n".encode())))
    predict.main(["demo", "--weights", "--device=cpu", "--precision=fp32"])
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) > 10
    assert f"```\n{printed}```" in page


@pytest.mark.slow
def test_a_run_ends_with_what_getting_started_promises(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    promise = "the scores beside those of a trivial baseline, the page of the run and three commands"
    assert promise in (ROOT / "docs" / "index.md").read_text("utf-8").replace("\n", " ")
    assert (
        command_line.run("trainer.fast_dev_run=true", "logger=none", f"hydra.run.dir={tmp_path / 'run'}") == 0
    )
    end = capsys.readouterr().out.rpartition("attention (darker: higher weight")[2]
    parts = ["<sos>", "± 95% interval", "BLEU, copy of the source", "report.html"]
    parts += [f"python -m seq2seq_lab.{program}" for program in ("predict", "evaluate", "compare")]
    places = [end.find(part) for part in parts]
    assert places == sorted(places)
    assert places[0] >= 0


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_and_module_paths_have_targets(path: Path) -> None:
    text = path.read_text("utf-8")
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", text):
        page = path.parent / target if target else path
        assert page.exists(), target
        assert not anchor or anchor in anchors(page), f"{target}#{anchor}"
    for module in re.findall(r"`((?:\w+/)+\w+\.py)`", text):
        assert any((root / module).is_file() for root in (ROOT, ROOT / "seq2seq_lab")), module


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page with distinct headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


SPREADS = ("± std", "± 95% CI")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_tables_say_what_follows_a_plus_minus_sign(path: Path) -> None:
    for block in re.findall(r"(?:^\|.*\n)+", path.read_text("utf-8"), re.MULTILINE):
        heads, _, *rows = (
            [cell.strip() for cell in line.strip("|\n").split("|")] for line in block.splitlines()
        )
        for row in rows:
            for head, cell in zip(heads, row, strict=False):
                # The word is in the head of the column, of the table, or of the row.
                if re.search(r"\d%? ± \d", cell):
                    assert any(spread in one for spread in SPREADS for one in (head, heads[0], row[0])), (
                        row[0],
                        head,
                        cell,
                    )


NOT_COMPOSED = ("…", "--config-dir", "resume=", "init_from=", "hydra/launcher=", "optuna", "$")


def commands_of(path: Path) -> list[str]:
    """Return the commands of the main program in the blocks of code of a page that need no other files or plugins."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", path.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    commands = [line.partition(" # ")[0] for line in lines if line.startswith("python -m seq2seq_lab ")]
    return [line for line in commands if not any(word in line for word in NOT_COMPOSED)]


@pytest.mark.slow
def test_commands_compose_to_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("en.vec").write_text(f"the{' 0.5' * 256}\n")
    commands = {command for path in PAGES for command in commands_of(path)}
    assert len(commands) > 40
    with composer():
        for command in sorted(commands):
            overrides = parse_overrides(parse_line(shlex.split(command)[3:]).overrides)
            job = compose_job([split_values(override)[0] for override in overrides])
            if "encoder=pretrained" in command:  # needs the files of a model
                continue
            if not lacks_spacy(job.config):
                check_parts(job.config)


def test_the_changelog_lists_the_renamed_settings() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    for before, now in RENAMED.items():
        assert f"| `{before}` | `{now}` |" in text
    assert f"## {seq2seq_lab.__version__} – " in text
