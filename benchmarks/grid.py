"""Decoder × attention function: the runs, docs/grid.jsonl with their figures, and the tables in docs/results.md.

    python -m benchmarks.grid run --grid grammar --folder DIR --jobs 2
    python -m benchmarks.grid add --grid grammar --folder DIR --machine "2 cores of …, one thread a run, two at once"
    python -m benchmarks.grid tables

`run` starts every run of the grid that has not finished in the folder, or goes on with it, each a process of one
thread; `add` reads the finished ones into the file; `tables` rewrites the generated part of the page.
"""

import argparse
import json
import shlex
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from benchmarks.page import Part, filled, table
from benchmarks.results import (
    PLACEHOLDER,
    PROGRAM,
    UNKNOWN,
    UNKNOWN_NOTE,
    aer_bounds,
    commit_of,
    composed,
    distinct,
    names_commit,
)
from seq2seq_lab.config import schema as configuration
from seq2seq_lab.config.compose import setting
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import read_finished_result, read_json_lines, read_record, write_atomically
from seq2seq_lab.launching.side_by_side import Command, Devices, cores, side_by_side
from seq2seq_lab.runtime.console import mean_and_deviation

DOCS = Path(__file__).parents[1] / "docs"
LINES = DOCS / "grid.jsonl"
PART = Part(
    DOCS / "results.md",
    first="<!-- grid: made from docs/grid.jsonl by `python -m benchmarks.grid tables` -->",
    last="<!-- end of the grid -->",
)
MARK = "¹"  # of a cell that has settings of its own
COMMIT_MARKS = "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐ"  # of the commits of a grid's runs, where there are several

DECODERS = {
    "plain": ("model=vanilla",),
    "context": ("decoder=context",),
    "luong": ("decoder=luong",),
    "luong_feeding": ("decoder=luong_feeding",),
    "bahdanau": ("decoder=bahdanau",),
    "tutorial": ("decoder=tutorial",),
    "conditional": ("decoder=conditional",),
}
# Its sizes have to agree. A narrower encoder leaves the decoder as it is, and no score is bought by more weights.
DOT = "model.encoder_hidden_size=128"

AER_BOUNDS = ("test/aer_oracle", "test/aer_diagonal")  # recorded, and shown above the tables
RATE = "train/target_tokens_per_second"
BLEU = {
    "test/bleu": ("test BLEU", ".2f"),
    "test/compositional/bleu": ("compositional BLEU", ".2f"),
    "test/bleu_lowercased_tokenised": ("lowercased, tokenised", ".2f"),
}
MEASURES = {
    **BLEU,
    "test/aer": ("AER", ".3f"),
    "num_parameters": ("parameters", ",.0f"),
    RATE: ("tokens/s", ",.0f"),
}


@dataclass(frozen=True)
class Cell:
    """A decoder with an attention function."""

    decoder: str
    attention: str

    def exists(self) -> bool:
        """Return whether they go together."""
        if self.decoder in ("plain", "context"):
            return self.attention == "none"
        return self.decoder != "conditional" or self.attention != "none"

    def settings(self) -> list[str]:
        """Return what a command line sets for it."""
        attention = [] if self.decoder == "plain" else [f"attention={self.attention}"]
        return [*DECODERS[self.decoder], *attention, *([DOT] if self.attention == "dot" else [])]


@dataclass(frozen=True)
class Grid:
    """What is run and shown.

    Attributes:
        settings: of every run, besides the cell's.
        seeds: that are run unless others are asked for.
        measures: their names in `result.json`.
        crossed: a table a measure, decoders down and attention functions across; else one with a row a cell.
        note: what stands above the tables.
    """

    name: str
    title: str
    settings: tuple[str, ...]
    decoders: tuple[str, ...]
    attentions: tuple[str, ...]
    seeds: tuple[int, ...]
    measures: tuple[str, ...]
    crossed: bool
    note: str

    def cells(self) -> list[Cell]:
        """Return those that exist, by decoder."""
        every = (Cell(decoder, attention) for decoder in self.decoders for attention in self.attentions)
        return [cell for cell in every if cell.exists()]

    def command(self, cell: Cell, seed: int) -> str:
        """Return a run's command as a user types it, DIR in place of a path."""
        return shlex.join([*PROGRAM, *cell.settings(), *self.settings, f"seed={seed}", "logger=none"])

    def run_name(self, cell: Cell, seed: int) -> str:
        """Return the name of a run's folder."""
        return f"{self.name}-{cell.decoder}-{cell.attention}-{seed}"


GRIDS = {
    grid.name: grid
    for grid in (
        Grid(
            name="grammar",
            title="Decoder × attention function on the grammar",
            settings=("trainer.max_epochs=5",),
            decoders=tuple(DECODERS),
            attentions=("none", "additive", "multiplicative", "scaled_dot", "dot", "location"),
            seeds=(1, 2, 3),
            measures=("test/bleu", "test/compositional/bleu", "test/aer", "num_parameters"),
            crossed=True,
            note="English to French, 20,000 pairs to train on, five epochs. AER is that of the test set; "
            "compositional BLEU that of `test_compositional`.",
        ),
        Grid(
            name="multi30k",
            title="Decoder × attention function on Multi30k German to English, test2016",
            settings=("dataset=multi30k", "dataset.path=DIR", "trainer.max_epochs=5"),
            decoders=("plain", "luong", "bahdanau"),
            attentions=("none", "additive", "multiplicative", "scaled_dot", "dot", "location"),
            seeds=(1,),
            measures=("test/bleu", "test/bleu_lowercased_tokenised", "num_parameters", RATE),
            crossed=False,
            note="The same budget for every row: five epochs over the 29,000 pairs, words as tokens. Tokens/s are "
            "target tokens a second in training; the machine's line below says what else ran there.",
        ),
    )
}


@dataclass(frozen=True)
class GridRun:
    """One run of a grid, a line of the file.

    Attributes:
        command: as a user types it, with DIR in place of a path.
        commit: of the package when the run began.
        machine: in words: cores, kind of processor, torch's version, precision, what ran beside.
        figures: the grid's measures, by their names in `result.json`; one that the run has not is left out.
        signatures: of the figures that have one, by the same names.
        unknown: how `<unk>` was scored, where that is not how it is scored now: "three tokens".
    """

    grid: str
    decoder: str
    attention: str
    seed: int
    command: str
    commit: str
    machine: str
    figures: dict[str, float]
    signatures: dict[str, str]
    unknown: str | None = None

    @property
    def cell(self) -> Cell:
        """The cell it is a run of."""
        return Cell(self.decoder, self.attention)


def main(arguments: Sequence[str] | None = None) -> None:
    """Do what the command line asks for."""
    options = parse(arguments)
    try:
        if options.action == "run":
            grid = GRIDS[options.grid]
            seeds = options.seeds or grid.seeds
            cells = chosen(grid, options.decoders, options.attentions)
            commands = unfinished(grid, cells, seeds, options.folder, options.multi30k)
            print(f"{len(commands)} of {len(cells) * len(seeds)} runs to do.", flush=True)
            run_commands(commands, options.jobs)
        elif options.action == "add":
            grid = GRIDS[options.grid]
            new = finished_runs(grid, options.folder, options.machine, options.commit)
            write_lines(LINES, with_runs(read_lines(LINES), new))
            print(f"{LINES.name}: {len(new)} runs. Now: python -m benchmarks.grid tables")
        else:
            PART.write(tables(read_lines(LINES)))
    except UserError as error:
        raise SystemExit(f"error: {error}") from None
    except KeyboardInterrupt:
        raise SystemExit("Stopped. The same command goes on.") from None


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.grid", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="action", required=True)
    running = commands.add_parser("run", help="do the runs of a grid that have not finished")
    adding = commands.add_parser("add", help="read the finished runs into docs/grid.jsonl")
    for command in (running, adding):
        command.add_argument("--grid", choices=list(GRIDS), required=True)
        command.add_argument("--folder", type=Path, required=True, help="of the run folders")
    running.add_argument(
        "--jobs", type=positive, default=2, help="processes at once, of one thread each (default: 2)"
    )
    running.add_argument("--seeds", type=numbers, metavar="1,2,3", help="(default: the grid's)")
    running.add_argument("--decoders", nargs="+", choices=list(DECODERS), help="(default: all of the grid)")
    running.add_argument(
        "--attentions", nargs="+", choices=GRIDS["grammar"].attentions, help="(default: all of the grid)"
    )
    running.add_argument("--multi30k", type=Path, metavar="DIR", help="with the raw files train.de, …")
    adding.add_argument("--machine", required=True, help="in words: cores, processor, torch, what ran beside")
    adding.add_argument("--commit", help="of the code, where run.json names none or the tree was changed")
    commands.add_parser("tables", help="rewrite the generated part of docs/results.md")
    return parser.parse_args(arguments)


def positive(text: str) -> int:
    """Return a number from the command line that is at least 1."""
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


def numbers(text: str) -> tuple[int, ...]:
    """Return numbers written with commas between them."""
    return tuple(int(word) for word in text.split(","))


def chosen(grid: Grid, decoders: Sequence[str] | None, attentions: Sequence[str] | None) -> list[Cell]:
    """Return the cells of a grid with these decoders and attention functions; None: with any.

    Raises:
        UserError: there is none.
    """
    cells = [
        cell
        for cell in grid.cells()
        if cell.decoder in (decoders or grid.decoders) and cell.attention in (attentions or grid.attentions)
    ]
    if not cells:
        raise UserError(
            f"--decoders={decoders} --attentions={attentions}: --grid={grid.name} has no such cell. Allowed: "
            f"{', '.join(f'{cell.decoder} with {cell.attention}' for cell in grid.cells())}."
        )
    return cells


def unfinished(
    grid: Grid, cells: Sequence[Cell], seeds: Sequence[int], folder: Path, multi30k: Path | None
) -> list[Command]:
    """Return the runs that have not finished in the folder, one seed of every cell before the next.

    Raises:
        UserError: the data's folder is not given.
    """
    commands = []
    for seed in seeds:
        for cell in cells:
            run = folder.absolute() / grid.run_name(cell, seed)
            if read_finished_result(run) is None:
                words = shlex.split(grid.command(cell, seed))[len(PROGRAM) :]
                arguments = ("-m", "seq2seq_lab", *overrides(words, run, multi30k))
                commands.append(Command(arguments, run.with_name(f"{run.name}.log")))
    return commands


def overrides(words: Iterable[str], run: Path, multi30k: Path | None) -> list[str]:
    """Return the settings that start a run in its folder, or that go on with it if it has begun to train.

    Raises:
        UserError: the data's folder is not given.
    """
    if (run / "run.json").is_file():
        return [f"resume={run}"]
    made = [word for word in words if word != "dataset.path=DIR"]
    if made != list(words):
        if multi30k is None:
            raise UserError(
                "--multi30k is not given. Give the folder of train.de, train.en, val.* and test*.*."
            )
        made.append(setting("dataset.path", multi30k.absolute()))
    return [*made, setting("hydra.run.dir", run)]


def run_commands(commands: Sequence[Command], at_once: int) -> None:
    """Do all runs, so many at once on one core each, and print a line as each ends.

    Raises:
        UserError: some failed; the others were done.
        KeyboardInterrupt, SystemExit: a signal came; the processes have been stopped.
    """
    failed: list[str] = []
    for command in commands:
        if not (run_of(command) / "run.json").exists():
            # What was cut off before it trained has nothing to go on with, and would stand in the way.
            (run_of(command) / "config.yaml").unlink(missing_ok=True)
    ids = cores()[:at_once]
    for done, ended in enumerate(side_by_side(commands, Devices("cpu", ids, len(ids))), start=1):
        run, log = run_of(ended.command), ended.command.log
        failed += [run.name] if ended.status else []
        said = f"failed with status {ended.status}, see {log}" if ended.status else outcome(run)
        print(f"[{done}/{len(commands)}] {run.name}: {said}, {ended.seconds:.0f} s", flush=True)
    if failed:
        raise UserError(
            f"{len(failed)} of {len(commands)} runs failed: {', '.join(failed)}. Their logs lie in "
            f"{commands[0].log.parent}; the same command tries them again."
        )


def run_of(command: Command) -> Path:
    """Return the folder of a command's run, which has to be empty: the log lies beside it."""
    return command.log.with_suffix("")


def outcome(folder: Path) -> str:
    """Return what a run came to, in a few words."""
    result = read_finished_result(folder)
    assert result is not None, folder
    return f"test BLEU {result['test/bleu']:.2f}"


def finished_runs(grid: Grid, folder: Path, machine: str, commit: str | None) -> list[GridRun]:
    """Return the lines of the grid's runs that have finished in a folder.

    Args:
        commit: of the code, for those runs that do not say it themselves.

    Raises:
        UserError: there is none, one is not of its cell's configuration, or its commit is not known.
    """
    names = (path.name.rpartition("-")[2] for path in folder.glob(f"{grid.name}-*"))
    seeds = sorted({int(name) for name in names if name.isdecimal()})
    runs = [
        grid_run(grid, cell, seed, path, machine, commit)
        for cell in grid.cells()
        for seed in seeds
        if read_finished_result(path := folder / grid.run_name(cell, seed)) is not None
    ]
    if not runs:
        raise UserError(
            f"--folder={folder}: no run of --grid={grid.name} has finished there. Run: python -m benchmarks.grid run "
            f"--grid {grid.name} --folder {folder}"
        )
    return runs


def grid_run(grid: Grid, cell: Cell, seed: int, folder: Path, machine: str, commit: str | None) -> GridRun:
    """Return the line of a finished run.

    Raises:
        UserError: it is not of the cell's configuration, or its commit is not known.
    """
    command = grid.command(cell, seed)
    node = OmegaConf.load(folder / "config.yaml")
    assert isinstance(node, DictConfig)
    check_configuration(folder, command, dict(configuration.dotted_settings(configuration.plain(node))))
    result, record = read_finished_result(folder), read_record(folder)
    assert result is not None, folder
    figures = {
        name: round(result[name], 4)
        for name in (*grid.measures, *AER_BOUNDS)
        if isinstance(result.get(name), (int, float))
    }
    return GridRun(
        grid=grid.name,
        decoder=cell.decoder,
        attention=cell.attention,
        seed=seed,
        command=command,
        commit=commit_of(folder, record, None if names_commit(record) else commit),
        machine=machine,
        figures=figures,
        signatures={name: result[f"{name}_signature"] for name in figures if f"{name}_signature" in result},
    )


def check_configuration(folder: Path, command: str, had: Mapping[str, object]) -> None:
    """Refuse a run that another command made; a setting that it did not know yet may have any value.

    Raises:
        UserError: names the setting.
    """
    config, _ = composed(command)
    for key, value in configuration.dotted_settings(config):
        placeholder = isinstance(value, str) and PLACEHOLDER.fullmatch(value)
        if key in had and value != had[key] and not placeholder:
            raise UserError(
                f"{folder}: its cell's command, {command}, gives {key}={value}, and the run had {had[key]}. Take the "
                f"folder away and run the cell anew."
            )


def read_lines(path: Path) -> list[GridRun]:
    """Return the lines of the file."""
    return [GridRun(**row) for row in read_json_lines(path)]


def write_lines(path: Path, runs: Iterable[GridRun]) -> None:
    """Write the file."""
    write_atomically(path, "".join(json.dumps(asdict(run), ensure_ascii=False) + "\n" for run in runs))


def with_runs(old: Iterable[GridRun], new: Iterable[GridRun]) -> list[GridRun]:
    """Return the runs in the order of the tables, new ones in place of those of the same cell and seed."""
    runs = {(run.grid, run.cell, run.seed): run for run in [*old, *new]}
    grids = list(GRIDS)

    def place(run: GridRun) -> tuple[int, int, int]:
        return grids.index(run.grid), GRIDS[run.grid].cells().index(run.cell), run.seed

    return sorted(runs.values(), key=place)


def tables(runs: Sequence[GridRun]) -> list[str]:
    """Return the generated part of the page.

    Raises:
        UserError: a run is of another command than its cell's.
    """
    lines: list[str] = []
    for grid in GRIDS.values():
        lines += ["", *section(grid, [run for run in runs if run.grid == grid.name])]
    return lines[1:]


def section(grid: Grid, runs: Sequence[GridRun]) -> list[str]:
    """Return a grid's part of the page.

    Raises:
        UserError: a run is of another command than its cell's.
    """
    for run in runs:
        if run.command != grid.command(run.cell, run.seed):
            raise UserError(
                f"docs/{LINES.name}: the line of {run.command!r} is of no command of --grid={grid.name}, which has "
                f"{grid.command(run.cell, run.seed)!r}. Take the line out, or run the cell anew."
            )
    machines = distinct(run.machine for run in runs)
    marks = commit_marks(runs)
    # Rates of several machines say nothing beside one another.
    measures = [name for name in grid.measures if name != RATE or len(machines) <= 1]
    tables = crossed(grid, runs, measures) if grid.crossed else [listed(grid, runs, measures)]
    command = shlex.join([*PROGRAM, "DECODER", "ATTENTION", *grid.settings, "seed=SEED", "logger=none"])
    command = command.replace("DECODER", "decoder=…").replace("ATTENTION", "attention=…").replace("SEED", "…")
    signatures = {
        name: distinct(run.signatures[name] for run in runs if name in run.signatures)
        for name in grid.measures
    }
    facts = [
        ("machine", machines),
        ("commit", [f"{mark} {commit[:7]}".strip() for commit, mark in marks.items()]),
        *((BLEU[name][0], [f"`{text}`" for text in texts]) for name, texts in signatures.items() if texts),
    ]
    lines = [f"## {grid.title}", "", f"`{command}`", "", *filled(f"{grid.note} {legend(grid, runs)}")]
    for rows in tables:
        lines += ["", *rows]
    if not runs:
        return [*lines, "", "Nothing of it has been run yet."]
    return [
        *lines,
        "",
        *(line for name, values in facts for line in filled(f"- {name}: {'; '.join(values)}", "  ")),
    ]


def commit_marks(runs: Iterable[GridRun]) -> dict[str, str]:
    """Return the mark of each commit that the runs are of; a single commit has an empty one."""
    commits = distinct(run.commit for run in runs)
    return (
        dict(zip(commits, COMMIT_MARKS[: len(commits)], strict=True))
        if len(commits) > 1
        else dict.fromkeys(commits, "")
    )


def legend(grid: Grid, runs: Sequence[GridRun]) -> str:
    """Return what the cells mean."""
    words = [
        "All but decoder and attention function is as `model=attn` has it (`plain` is `model=vanilla`, the same "
        "sizes), greedy search.",
        "A score is the mean over seeds ± the standard deviation of the sample, and in parentheses how many seeds.",
        f"{MARK} `{DOT}`, half of what the others have: `dot` needs a memory of the decoder state's size, and "
        f"this leaves the decoder as it is.",
        '"not run": no run yet.',
    ]
    if grid.crossed:
        words.append(
            "–: no such model, since `plain` and `context` have no attention and `conditional` is made of it."
        )
    if len(marks := commit_marks(runs)) > 1:
        words.append(
            f"{', '.join(marks.values())}: the commit of the code, listed below the tables. Differences between cells "
            f"with different letters are not comparable: they may come from the code."
        )
    if bounds := distinct(aer_bounds(run.figures, "test") for run in runs):
        words.append(f"AER of one link per target word has bounds on this test set: {'; '.join(bounds)}.")
    if any(run.unknown for run in runs):
        words.append(f"{UNKNOWN} {UNKNOWN_NOTE}.")
    return " ".join(words)


def crossed(grid: Grid, runs: Sequence[GridRun], measures: Sequence[str]) -> list[list[str]]:
    """Return a table for each measure, decoders down and attention functions across."""
    tables = []
    for name in measures:
        attentions = [value for value in grid.attentions if (name, value) != ("test/aer", "none")]
        rows = [
            [f"`{decoder}`", *figures]
            for decoder in grid.decoders
            if {*(figures := [text(Cell(decoder, attention), runs, name) for attention in attentions])}
            != {"–"}
        ]
        tables.append(table([MEASURES[name][0], *(f"`{attention}`" for attention in attentions)], rows, 1))
    return tables


def listed(grid: Grid, runs: Sequence[GridRun], measures: Sequence[str]) -> list[str]:
    """Return one table with a row for each cell."""
    rows = [
        [f"`{cell.decoder}`", f"`{cell.attention}`", *(text(cell, runs, name) for name in measures)]
        for cell in grid.cells()
    ]
    return table(["decoder", "attention", *(MEASURES[name][0] for name in measures)], rows, 2)


def text(cell: Cell, runs: Sequence[GridRun], name: str) -> str:
    """Return what a table shows of a measure in a cell."""
    if not cell.exists():
        return "–"
    ran = [run for run in runs if run.cell == cell]
    figures = [run.figures[name] for run in ran if name in run.figures]
    if not figures:
        return "not measured" if ran else "not run"
    form = MEASURES[name][1]
    if not name.startswith("test/"):
        shown = f"{statistics.mean(figures):{form}}"
        return f"{shown} {MARK}" if cell.attention == "dot" else shown
    marks = [
        MARK if cell.attention == "dot" else "",
        UNKNOWN if name in BLEU and any(run.unknown for run in ran) else "",
        "".join(mark for commit, mark in commit_marks(runs).items() if commit in {run.commit for run in ran}),
    ]
    return " ".join(
        [f"{mean_and_deviation(figures, form)} ({len(figures)})", *(mark for mark in marks if mark)]
    )


if __name__ == "__main__":
    main()
