"""The grids: which cells there are, how their runs are done, and that the page shows what the file says."""

import json
import shlex
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import open_dict, read_write

from benchmarks import grid
from benchmarks.grid import DECODERS, GRIDS, MARK, RATE, Cell, Grid, GridRun
from seq2seq_lab import build
from seq2seq_lab.config import schema as configuration
from seq2seq_lab.config.compose import compose, compose_run, composer
from seq2seq_lab.config.schema import Config
from seq2seq_lab.errors import UserError
from seq2seq_lab.launching.side_by_side import Command

GRAMMAR, MULTI30K = GRIDS["grammar"], GRIDS["multi30k"]
EVERY_CELL = [Cell(*names) for names in product(GRAMMAR.decoders, GRAMMAR.attentions)]
RUNS = grid.read_lines(grid.LINES)
COMMIT = "0123456789abcdef0123456789abcdef01234567"
MACHINE = "2 cores of a test"
SETTINGS = (
    "dataset.train=100",
    "dataset.validation=8",
    "dataset.test=8",
    "dataset.test_compositional=8",
    "model.embedding_size=8",
    "model.hidden_size=8",
    "model.encoder_hidden_size=4",
    "trainer.max_epochs=1",
    "trainer.samples=0",
    "trainer.device=cpu",
)
SMALL = replace(GRAMMAR, settings=SETTINGS, decoders=("luong",), attentions=("additive",), seeds=(1,))
ADDITIVE = Cell("luong", "additive")


def a_run(of: Grid, cell: Cell, seed: int = 1, figures: dict[str, float] | None = None) -> GridRun:
    figures = figures or {}
    signatures = {name: "nrefs:1" for name in figures if "bleu" in name}
    command = of.command(cell, seed)
    return GridRun(of.name, cell.decoder, cell.attention, seed, command, COMMIT, MACHINE, figures, signatures)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the one run of the small grid, done by the tool; copy it before changing it."""
    folder = tmp_path_factory.mktemp("it's a grid, (small)=1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(GRIDS, "grammar", SMALL)
        patch.setenv("SEQ2SEQ_LAB_CACHE", str(folder / "cache"))
        grid.main(["run", "--grid", "grammar", "--folder", str(folder)])
    change(folder / "grammar-luong-additive-1" / "run.json", commit=COMMIT, dirty=False)
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(GRIDS, "grammar", SMALL)
    return Path(shutil.copytree(finished, tmp_path / "runs"))


def change(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), "utf-8")


def test_page_says_what_the_file_says() -> None:
    page = grid.PART.page.read_text("utf-8")
    assert grid.PART.replaced(page, grid.tables(RUNS)) == page, "run: python -m benchmarks.grid tables"


def test_lines_are_such_as_add_writes() -> None:
    assert grid.with_runs(RUNS[::-1], []) == RUNS
    for run in RUNS:
        assert set(run.figures) <= {*GRIDS[run.grid].measures, *grid.AER_BOUNDS}
        assert set(run.signatures) == {name for name in run.figures if "bleu" in name}


def test_grids_have_every_decoder_and_attention_function() -> None:
    names = configuration.group_values
    attentions = {name for name in names("attention") if configuration.canonical("attention", name) == name}
    assert set(GRAMMAR.decoders) == set(names("decoder"))
    assert set(GRAMMAR.attentions) == attentions
    assert {"additive", "multiplicative", "scaled_dot"} <= {cell.attention for cell in MULTI30K.cells()}


def test_cells_are_the_models_that_can_be_built() -> None:
    def composed(*settings: str) -> Config:
        node = compose(settings)
        with read_write(node), open_dict(node):
            node.pop("hydra")
        return configuration.typed(node)

    with composer():
        decoders = {name: composed(*settings).decoder for name, settings in DECODERS.items()}
        bases = {name: composed(*Cell("luong", name).settings()) for name in GRAMMAR.attentions}
    for cell in EVERY_CELL:
        config = replace(bases[cell.attention], decoder=decoders[cell.decoder])
        if cell.exists():
            build.check_model(config)
        else:
            with pytest.raises(UserError, match=r"decoder.*attention="):
                build.check_model(config)
    assert sum(cell.exists() for cell in EVERY_CELL) == len(GRAMMAR.cells()) == 31


@pytest.mark.parametrize("of", GRIDS.values(), ids=GRIDS)
@pytest.mark.parametrize("cell", [Cell("plain", "none"), Cell("bahdanau", "dot")], ids=str)
def test_command_of_a_cell_gives_its_parts(of: Grid, cell: Cell) -> None:
    node, choices, _ = compose_run(shlex.split(of.command(cell, 3))[3:])
    assert (choices["decoder"], choices["attention"], choices["dataset"]) == (*vars(cell).values(), of.name)
    assert (node.seed, node.trainer.max_epochs, choices["logger"]) == (3, 5, "none")
    assert node.model.hidden_size == 256
    assert node.model.encoder_hidden_size == (128 if cell.attention == "dot" else 256)


def test_the_first_seed_of_every_cell_comes_first(tmp_path: Path) -> None:
    cells = grid.chosen(GRAMMAR, ["luong", "plain"], None)
    assert [cell.decoder for cell in cells] == ["plain", *["luong"] * 6]
    jobs = grid.unfinished(GRAMMAR, cells, (1, 2), tmp_path, None)
    assert [grid.run_of(job).name[-1] for job in jobs] == ["1"] * 7 + ["2"] * 7
    assert jobs[1].arguments[:4] == ("-m", "seq2seq_lab", "decoder=luong", "attention=none")
    assert jobs[1].arguments[-1] == f"hydra.run.dir='{tmp_path}/grammar-luong-none-1'"
    with pytest.raises(UserError, match=r"no such cell. Allowed: plain with none, luong with none"):
        grid.chosen(MULTI30K, ["luong_feeding"], None)


def test_multi30k_is_read_where_it_lies(tmp_path: Path) -> None:
    (cell,) = grid.chosen(MULTI30K, ["luong"], ["dot"])
    (job,) = grid.unfinished(MULTI30K, [cell], (1,), tmp_path, tmp_path / "a, b='c'")
    parsed = OverridesParser.create().parse_overrides([*job.arguments[2:]])
    values = {override.key_or_group: override.value() for override in parsed}
    assert str(values["dataset.path"]) == str(tmp_path / "a, b='c'")
    with pytest.raises(UserError, match="--multi30k is not given"):
        grid.unfinished(MULTI30K, [cell], (1,), tmp_path, None)


def test_finished_runs_are_left_and_begun_ones_go_on(folder: Path) -> None:
    run = folder / "grammar-luong-additive-1"
    assert grid.unfinished(SMALL, [ADDITIVE], (1,), folder, None) == []
    change(run / "result.json", status="interrupted")
    (job,) = grid.unfinished(SMALL, [ADDITIVE], (1,), folder, None)
    assert job == Command(("-m", "seq2seq_lab", f"resume={run}"), folder / f"{run.name}.log")
    (run / "run.json").unlink()
    (job,) = grid.unfinished(SMALL, [ADDITIVE], (1,), folder, None)
    assert job.arguments[2:4] == ("decoder=luong", "attention=additive")


def command_of(folder: Path, name: str, program: str) -> Command:
    return Command(("-S", "-c", f"import os, sys\n{program}"), folder / f"{name}.log")


def test_runs_are_done_on_a_core_each_and_failures_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid, "outcome", lambda folder: "done")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    commands = [
        command_of(tmp_path, "a", "print('threads', os.environ['OMP_NUM_THREADS'])"),
        command_of(tmp_path, "bad", "sys.exit('no luck')"),
    ]
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "config.yaml").touch()
    with pytest.raises(UserError, match=rf"1 of 2 runs failed: bad\. Their logs lie in {tmp_path};"):
        grid.run_commands(commands, 2)
    logs = {name: (tmp_path / f"{name}.log").read_text("utf-8") for name in ("a", "bad")}
    assert logs == {"a": "threads 1\n", "bad": "no luck\n"}
    # It would stand in the way of a run that has nothing to go on with.
    assert not (tmp_path / "a" / "config.yaml").exists()
    printed = capsys.readouterr().out.splitlines()
    assert [line[:6] for line in printed] == ["[1/2] ", "[2/2] "]
    assert any(f"] bad: failed with status 1, see {tmp_path}/bad.log, " in line for line in printed)
    assert any("] a: done, " in line for line in printed)


def test_a_run_is_read(folder: Path) -> None:
    (line,) = grid.finished_runs(SMALL, folder, MACHINE, None)
    result = json.loads((folder / "grammar-luong-additive-1" / "result.json").read_text("utf-8"))
    assert (line.cell, line.seed, line.commit, line.machine) == (ADDITIVE, 1, COMMIT, MACHINE)
    assert line.command == SMALL.command(ADDITIVE, 1)
    assert set(line.figures) == {*SMALL.measures, *grid.AER_BOUNDS}
    assert line.figures["test/aer"] == pytest.approx(result["test/aer"], abs=1e-4)
    assert line.signatures == {
        name: result[f"{name}_signature"] for name in ("test/bleu", "test/compositional/bleu")
    }


def test_runs_that_are_not_their_cells_are_refused(folder: Path) -> None:
    run = folder / "grammar-luong-additive-1"
    other = replace(SMALL, settings=(*SMALL.settings, "model.dropout=0.2"))
    with pytest.raises(UserError, match=r"gives model\.dropout=0\.2, and the run had 0\.1"):
        grid.finished_runs(other, folder, MACHINE, None)
    (run / "config.yaml").write_text(
        (run / "config.yaml").read_text("utf-8").replace("seed: 1", "seed: 2", 1)
    )
    with pytest.raises(UserError, match="gives seed=1, and the run had 2"):
        grid.finished_runs(SMALL, folder, MACHINE, None)
    change(run / "result.json", status="interrupted")
    with pytest.raises(UserError, match="no run of --grid=grammar has finished there"):
        grid.finished_runs(SMALL, folder, MACHINE, None)


def test_the_commit_is_given_for_the_runs_that_do_not_say_it(folder: Path) -> None:
    run = folder / "grammar-luong-additive-1"
    assert grid.finished_runs(SMALL, folder, MACHINE, "abcdef0")[0].commit == COMMIT
    change(run / "run.json", dirty=True)
    assert grid.finished_runs(SMALL, folder, MACHINE, "abcdef0")[0].commit == "abcdef0"
    with pytest.raises(UserError, match="was run with changes to"):
        grid.finished_runs(SMALL, folder, MACHINE, None)


def test_runs_are_in_the_order_of_the_tables_and_replaced_by_cell_and_seed() -> None:
    first, second = a_run(GRAMMAR, ADDITIVE, 1), a_run(GRAMMAR, ADDITIVE, 2)
    plain, multi30k = a_run(GRAMMAR, Cell("plain", "none"), 1), a_run(MULTI30K, ADDITIVE, 1)
    new = replace(first, commit="new")
    assert grid.with_runs([multi30k, second, first], [plain, new]) == [plain, new, second, multi30k]


def test_a_cell_shows_mean_and_deviation_over_its_seeds() -> None:
    runs = [
        a_run(GRAMMAR, ADDITIVE, seed, {"test/bleu": bleu, "num_parameters": 1234567})
        for seed, bleu in ((1, 30.0), (2, 31.0), (3, 32.0))
    ]
    runs += [a_run(GRAMMAR, Cell("luong", "dot"), 1, {"test/bleu": 29.5})]
    page = "\n".join(grid.section(GRAMMAR, runs))
    assert "| `luong` | not run | 31.00 ± 1.00 (3) | not run | not run | 29.50 (1) ¹ | not run |\n" in page
    assert "| `luong` | not run | 1,234,567 | not run | not run | not measured | not run |\n" in page
    assert "| `conditional` | – | not run |" in page
    assert f"- machine: {MACHINE}\n- commit: 0123456\n- test BLEU: `nrefs:1`" in page
    assert "Nothing of it has been run yet." not in page
    alignment = page[page.index("| AER ") :].split("\n\n")[0]
    assert "`none`" not in alignment
    assert "`plain`" not in alignment
    assert page.count(MARK) == 2  # in the legend, and where it was run


def test_cells_say_which_commit_they_are_of() -> None:
    bleu = {"test/bleu": 30.0, "num_parameters": 5}
    old, new = a_run(GRAMMAR, ADDITIVE, 1, bleu), a_run(GRAMMAR, Cell("bahdanau", "additive"), 1, bleu)
    both = replace(a_run(GRAMMAR, ADDITIVE, 2, bleu), commit="f" * 40)
    page = "\n".join(grid.section(GRAMMAR, [old, replace(new, commit="f" * 40)]))
    assert "| `luong` | not run | 30.00 (1) ᵃ |" in page
    assert "| `bahdanau` | not run | 30.00 (1) ᵇ |" in page
    assert "| `bahdanau` | not run | 5 |" in page, "a number of parameters does not depend on the version"
    assert "- commit: ᵃ 0123456; ᵇ fffffff\n" in page
    assert "with different letters are not comparable" in page
    assert "| `luong` | not run | 30.00 (2) ᵃᵇ |" in "\n".join(grid.section(GRAMMAR, [old, both]))
    page = "\n".join(grid.section(GRAMMAR, [old, new]))
    assert "| `bahdanau` | not run | 30.00 (1) |" in page
    assert "- commit: 0123456\n" in page
    assert "not comparable" not in page


def test_the_recorded_grammar_is_of_several_commits_and_says_so() -> None:
    runs = [run for run in RUNS if run.grid == "grammar"]
    marks = grid.commit_marks(runs)
    for run in runs:
        shown = grid.text(run.cell, runs, "test/bleu")
        assert marks[run.commit] in shown
        assert [mark for mark in grid.COMMIT_MARKS if mark in shown] == [marks[run.commit]][: len(marks) > 1]


def test_the_bounds_of_the_aer_stand_above_the_tables() -> None:
    run = a_run(GRAMMAR, ADDITIVE, 1, {"test/aer": 0.1})
    assert "bounds" not in "".join(grid.section(GRAMMAR, [run]))
    run = replace(run, figures=run.figures | {"test/aer_oracle": 0.0450, "test/aer_diagonal": 0.5981})
    page = " ".join(grid.section(GRAMMAR, [run]))
    assert "bounds on this test set: oracle 0.045, diagonal 0.598." in page
    assert page.index("oracle 0.045") < page.index("| AER |")


def test_scores_with_unknown_words_are_marked() -> None:
    run = a_run(MULTI30K, ADDITIVE, 1, {"test/bleu": 30.0})
    assert "‡" not in "".join(grid.section(MULTI30K, [run]))
    page = "\n".join(grid.section(MULTI30K, [replace(run, unknown="three tokens")]))
    assert "| `luong` | `additive` | 30.00 (1) ‡ |" in page
    assert "‡ scored with `<unk>` as three tokens" in page


def test_rates_of_several_machines_are_not_set_beside_one_another() -> None:
    bahdanau = Cell("bahdanau", "additive")
    runs = [a_run(MULTI30K, cell, 1, {RATE: 7030.4, "num_parameters": 5}) for cell in (ADDITIVE, bahdanau)]
    assert "| `luong` | `additive` | not measured | not measured | 5 | 7,030 |" in grid.section(
        MULTI30K, runs
    )
    elsewhere = grid.section(MULTI30K, [runs[0], replace(runs[1], machine="an H200")])
    assert "| `luong` | `additive` | not measured | not measured | 5 |" in elsewhere
    assert f"- machine: {MACHINE}; an H200" in elsewhere


def test_tables_refuse_a_page_without_their_place_and_lines_of_other_commands() -> None:
    with pytest.raises(UserError, match=r"no line '<!-- grid: .*Put both where the tables are to be"):
        grid.PART.replaced(f"{grid.PART.last}\n{grid.PART.first}\n", grid.tables([]))
    stale = replace(a_run(GRAMMAR, ADDITIVE), command="python -m seq2seq_lab trainer.max_epochs=4")
    with pytest.raises(UserError, match=r"max_epochs=4' is of no command of --grid=grammar"):
        grid.tables([stale])


def test_the_tool_adds_and_writes_tables(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, page = folder / "grid.jsonl", folder / "results.md"
    lines.write_text("", "utf-8")
    page.write_text(f"# By hand\n{grid.PART.first}\nold\n{grid.PART.last}\nBy hand\n", "utf-8")
    monkeypatch.setattr(grid, "LINES", lines)
    monkeypatch.setattr(grid, "PART", replace(grid.PART, page=page))
    grid.main(["run", "--grid", "grammar", "--folder", str(folder)])
    for _ in range(2):
        grid.main(["add", "--grid", "grammar", "--folder", str(folder), "--machine", MACHINE])
    grid.main(["tables"])
    (line,) = grid.read_lines(lines)
    text = page.read_text("utf-8")
    assert text.startswith(
        f"# By hand\n{grid.PART.first}\n\n## Decoder × attention function on the grammar\n"
    )
    assert text.endswith(f"\n\n{grid.PART.last}\nBy hand\n")
    assert f"| `luong` | {line.figures['test/bleu']:.2f} (1) |\n" in text
    assert capsys.readouterr().out == (
        "0 of 1 runs to do.\n" + "grid.jsonl: 1 runs. Now: python -m benchmarks.grid tables\n" * 2
    )
    with pytest.raises(SystemExit, match=r"^error: --multi30k is not given"):
        grid.main(["run", "--grid", "multi30k", "--folder", str(folder)])
