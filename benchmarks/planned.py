"""The runs that the tables of the docs should have: their cost, which are recorded, and the command that runs the others.

    python -m benchmarks.planned list
    python -m benchmarks.planned run FOLDER --path DIR=PATH --path FILE=PATH
    python -m benchmarks.planned add FOLDER --machine "2 cores of …"

`run` starts one run after another in FOLDER, continues runs that were interrupted, and skips runs that another process
works on: start it once for each core. Start it in a clean checkout: a run records its commit. `add` adds the finished runs
of FOLDER to docs/results.jsonl.
"""

import argparse
import hashlib
import itertools
import math
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks import results
from benchmarks.page import table
from benchmarks.results import EVALUATE, PROGRAM, RESULTS, Line, read_lines, unseeded
from seq2seq_lab.config.run_folder import read_finished_result
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import LOCK, FolderInUseError, lock_folder
from seq2seq_lab.training import checkpoint

SEEDS = (1, 2, 3)
BEAM = "search=beam"
MAIN = "the grammar with and without attention"
GRAMMAR = "decoder × attention function on the grammar"
FORMER = (
    "optimizer=adam model.dropout=0.05"  # of model=vanilla in the tables of decoders and attention functions
)
MULTI30K = "decoder × attention function on Multi30k"
SIX_EPOCHS = "dataset=multi30k dataset.path=DIR trainer.max_epochs=6"
PRESETS = "`multi30k_de_en` and `multi30k_en_de`, greedy and beam search"
LONGEST_NAME = 255  # of a folder
MISSING = 'Not recorded, or without the statistics per example that "p, seeds" needs:'
CLAIMS = ".planned"  # a folder beside the runs: its locks show which run `planned run` works on
TATOEBA = "Tatoeba, by similarity to the training sources and with all references"
WU = "the Transformer of Wu et al. 2021 on Multi30k"
LIUM = "the model of LIUM-CVC at WMT17 on Multi30k"
# Tables of the pages on tasks; see `result_tables.TASK_TABLES`.
NAMES = "names of invented languages"
NAME_ENCODERS = "recurrent cells and sizes on names"
SURNAMES = "surnames of 18 languages"
REVIEWS = "poolings on reviews"
SST2 = "settings on SST-2"
CAPTIONS = "captions of scenes"
DIALOGUES = "encoders of dialogues"
LANGUAGE_MODEL = "language model of the grammar"
WORD_LANGUAGE_MODEL = "the word_language_model example"
WORD_VECTORS = "word vectors and random embeddings"
# By the study: its table, the settings that `hydra.mode=RUN` does not take from it, and the minutes of a run.
PRETRAINING = {
    "pretraining": ("with and without pretraining: tagging", "dataset.sentences=13000", 1),
    "pretraining_sentiment": (
        "with and without pretraining: reviews",
        "dataset.reviews=13000 pooling=max model.scale_embeddings=true",
        1,
    ),
    "pretraining_entailment": ("with and without pretraining: sentence pairs", "dataset.pairs=13000", 1),
    "pretraining_span": ("with and without pretraining: answers in a text", "dataset.questions=13000", 3),
}
EXPLANATION = "what attention aligns to and explains"
EXPLANATION_SECOND = f"{EXPLANATION}, second data set"
EXPLANATION_MULTI30K = f"{EXPLANATION}, Multi30k"
SAME_ENCODER = (  # that of `experiment=masked_language_model`
    "encoder=transformer model.embedding_size=128 encoder.num_layers=2 encoder.feedforward_size=256"
)
COUNTING = "formal languages: counting"
COPYING = ("formal languages: copy", "formal languages: reversal")
PHONES = "graphemes to phonemes"
LANGUAGES = (  # of SIGMORPHON 2020 task 1
    *("ady", "arm", "bul", "dut", "fre", "geo", "gre", "hin", "hun"),
    *("ice", "jpn", "kor", "lit", "rum", "vie"),
)
SCAN = {  # the tables by split, with the number of seeds
    "SCAN, length": 10,
    "SCAN, add_jump": 10,
    "SCAN, add_turn_left": 3,
    "SCAN, around_right": 3,
    "SCAN, jump_around_right": 3,
    "SCAN, simple": 3,
}
TESTED = (  # with ten seeds each
    "decoder=luong attention=additive",
    "decoder=luong attention=multiplicative",
    "decoder=luong attention=scaled_dot",
    "decoder=luong_feeding attention=additive",
    "decoder=bahdanau attention=additive",
    "decoder=conditional attention=additive",
)
LOWEST_AER = ("decoder=luong attention=multiplicative", "decoder=conditional attention=additive")


@dataclass(frozen=True)
class Cell:
    """Runs that differ only in the seed.

    Attributes:
        table: the name of its table.
        command: without the seed; words in capitals, such as DIR, are placeholders of paths.
        minutes: of one run on one core of an AMD EPYC beside other jobs.
        evaluations: settings and options with which each run is also evaluated.
    """

    table: str
    command: str
    minutes: int
    evaluations: tuple[str, ...] = ()
    seeds: tuple[int, ...] = SEEDS


@dataclass(frozen=True)
class Run:
    """One run of a cell."""

    cell: Cell
    seed: int

    @property
    def command(self) -> str:
        """The command with the seed, if it is not the default."""
        return self.cell.command if self.seed == 1 else f"{self.cell.command} seed={self.seed}"

    @property
    def name(self) -> str:
        """The name of its folder, at most as long as file systems allow."""
        words = shlex.split(self.command)[len(PROGRAM) :]
        name = re.sub(r"[^A-Za-z0-9_.]+", "-", " ".join(words) or "default")
        if len(name) <= LONGEST_NAME:
            return name
        end = f"-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
        return name[: LONGEST_NAME - len(end)] + end

    def is_of(self, line: Line) -> bool:
        """Return whether a line is that of this run, or of an evaluation of it."""
        return line.seed == self.seed and unseeded(line.command) == unseeded(self.command)

    def is_recorded(self, lines: Sequence[Line]) -> bool:
        """Return whether lines have what the tables show of it: scores of the evaluations, or scores and statistics."""
        own = [line for line in lines if self.is_of(line) and not (line.superseded or line.others)]
        if self.cell.evaluations:
            wanted = {None, *map(evaluation_command, self.cell.evaluations)}
            return wanted <= {line.evaluation for line in own}
        return any(line.statistics and line.evaluation is None for line in own)


@cache
def cells() -> tuple[Cell, ...]:
    """Return what is planned."""
    parts = (_cells_of_translation, _cells_of_tasks, _cells_of_explanation, _cells_of_generalization)
    return tuple(cell for part in parts for cell in part(shlex.join(PROGRAM)))


def cells_of(name: str) -> list[Cell]:
    """Return the cells of a table."""
    return [cell for cell in cells() if cell.table == name]


def _cells_of_translation(start: str) -> Iterator[Cell]:
    for precision in ("bf16", "fp32"):
        yield Cell(MAIN, f"{start} model=attn attention=additive trainer.precision={precision}", 3)
    yield Cell(MAIN, f"{start} model=vanilla trainer.precision=bf16", 2)
    yield Cell(MAIN, f"{start} model=vanilla trainer.max_epochs=24 trainer.precision=bf16", 12)
    yield Cell(MAIN, f"{start} experiment=transformer_grammar trainer.precision=bf16", 7)
    for seed in (2, 3, 4):
        for model, minutes in (("model=attn attention=additive", 3), ("model=vanilla", 2)):
            command = f"{start} {model} dataset.seed={seed} trainer.precision=bf16"
            yield Cell(MAIN, command, minutes, seeds=(1,))
    yield Cell(GRAMMAR, f"{start} model=attn attention=additive", 3)
    yield Cell(GRAMMAR, f"{start} model=vanilla {FORMER}", 2)
    luong = ("multiplicative", "scaled_dot", "dot model.encoder_hidden_size=96", "location", "none")
    for attention in luong:
        yield Cell(GRAMMAR, f"{start} decoder=luong attention={attention}", 3)
    for decoder in ("bahdanau", "luong_feeding"):
        for attention in ("additive", "multiplicative", "scaled_dot"):
            yield Cell(GRAMMAR, f"{start} decoder={decoder} attention={attention}", 5)
    for attention in ("additive", *luong):
        yield Cell(MULTI30K, f"{start} decoder=luong attention={attention} {SIX_EPOCHS}", 8)
    for attention in ("additive", "multiplicative", "scaled_dot"):
        yield Cell(MULTI30K, f"{start} decoder=bahdanau attention={attention} {SIX_EPOCHS}", 15)
    yield Cell(MULTI30K, f"{start} model=vanilla {SIX_EPOCHS} {FORMER}", 8)
    for name, minutes in (("multi30k_de_en", 100), ("multi30k_en_de", 140)):
        yield Cell(PRESETS, f"{start} experiment={name} dataset.path=DIR", minutes, (BEAM,))
    mean = "search=beam search.length_penalty=1 search.length_offset=0 --checkpoint last:10"
    for dataset in ("", " dataset=multi30k"):  # English to German, German to English
        yield Cell(WU, f"{start} experiment=wu2021 dataset.path=DIR{dataset}", 120, (mean,))
    for dataset in ("", " dataset=multi30k_en_fr"):  # to German, to French
        command = f"{start} experiment=lium_wmt17 dataset.path=DIR{dataset}"
        yield Cell(LIUM, command, 110, ("search=beam search.size=12",))
    tatoeba = f"{start} experiment=tatoeba_en_fr dataset.path=FILE"
    yield Cell(TATOEBA, tatoeba, 100, ("task.multi_reference=true",), seeds=(1,))


def _cells_of_tasks(start: str) -> Iterator[Cell]:
    yield Cell(NAMES, f"{start} experiment=names", 1)
    for encoder in ("rnn", "lstm", "gru"):
        for size in (25, 50, 100):
            settings = f"encoder={encoder} model.encoder_hidden_size={size}"
            yield Cell(NAME_ENCODERS, f"{start} experiment=names {settings}", 1)
    yield Cell(SURNAMES, f"{start} experiment=names dataset.path=SURNAMES", 1)
    for pooling in ("attender", "attention", "last"):
        yield Cell(REVIEWS, f"{start} experiment=sentiment pooling={pooling}", 3)
    for settings in (
        "embedding.source.frozen=true",
        "embedding.source.frozen=true model.dropout=0.5 trainer.monitor=val/accuracy",
        "embedding.source.frozen=true model.dropout=0.4 trainer.monitor=val/accuracy task.batch_size=32 "
        "optimizer.lr=5e-4 trainer.max_epochs=6",
        "model.dropout=0.5 trainer.monitor=val/accuracy trainer.max_epochs=5",
        "model.dropout=0.5 trainer.monitor=val/accuracy trainer.max_epochs=5 task.vector_words=all",
    ):
        paths = "dataset.path=SST embedding.source.path=GLOVE"
        yield Cell(SST2, f"{start} experiment=sentiment {paths} {settings}", 3)
    yield Cell(CAPTIONS, f"{start} experiment=captions", 6)
    hierarchical = [f"hierarchical encoder.outputs={outputs}" for outputs in ("words", "turns", "both")]
    for epochs, minutes in ((3, 2), (8, 4)):
        for encoder in ("bigru", *hierarchical):
            settings = f"encoder={encoder} trainer.max_epochs={epochs}"
            yield Cell(DIALOGUES, f"{start} experiment=dialogue {settings}", minutes)
    yield Cell(LANGUAGE_MODEL, f"{start} experiment=language_model", 2)
    texts = "dataset.path=TRAIN dataset.validation=VALID dataset.test=TEST"
    settings = f"{texts} trainer.max_epochs=10 trainer.precision=fp32"
    yield Cell(WORD_LANGUAGE_MODEL, f"{start} experiment=word_language_model {settings}", 10)
    parts = "init_from=null", "init_from=PRETRAINED init_part=[source_embedding,encoder]"
    for name, (of_study, own, minutes) in PRETRAINING.items():
        settings = f"study={name} hydra.mode=RUN {SAME_ENCODER} {own} dataset.seed=2"
        for examples, part in itertools.product((100, 1000, 10000), parts):
            command = f"{start} {settings} task.training_examples={examples} {part}"
            yield Cell(of_study, command, minutes, seeds=(1, 2, 3, 4, 5))
    study = f"{start} study=word_vectors hydra.mode=RUN dataset.test_compositional=0"
    for pairs in (1000, 5000, 20000):
        for path in ("VECTORS", "null"):
            yield Cell(WORD_VECTORS, f"{study} dataset.train={pairs} embedding.source.path={path}", 3)


def _cells_of_explanation(start: str) -> Iterator[Cell]:
    for decoder, minutes in (("luong", 4), ("luong_feeding", 5), ("bahdanau", 6), ("conditional", 6)):
        for attention in (
            *("additive", "multiplicative", "scaled_dot", "dot model.encoder_hidden_size=96"),
            *("location", "uniform"),
        ):
            settings = f"decoder={decoder} attention={attention}"
            seeds = range(1, 11 if settings in TESTED else 4)
            if settings == TESTED[0]:  # also shows how often the test errs for equal cells
                seeds = range(1, 25)
            yield Cell(EXPLANATION, f"{start} {settings} trainer.precision=fp32", minutes, seeds=(*seeds,))
    for settings in LOWEST_AER:  # on the validation split, mean of ten seeds of each tested cell
        command = f"{start} {settings} dataset.seed=2 trainer.precision=fp32"
        yield Cell(EXPLANATION_SECOND, command, 5)
    # The highest BLEU on the validation split of the table `MULTI30K`.
    settings = f"decoder=luong attention=multiplicative {SIX_EPOCHS} trainer.precision=fp32"
    yield Cell(EXPLANATION_MULTI30K, f"{start} {settings}", 10)


def _cells_of_generalization(start: str) -> Iterator[Cell]:
    formal = f"{start} experiment=formal trainer.precision=fp32"
    for encoder in ("rnn", "gru", "lstm"):
        yield Cell(COUNTING, f"{formal} encoder={encoder}", 4)
    for name in COPYING:
        for settings in ("encoder=lstm", "model=attn"):
            yield Cell(name, f"{formal} dataset.language={name.split()[-1]} {settings}", 4)
    for language in LANGUAGES:
        command = (
            f"{start} experiment=g2p dataset.language={language} dataset.path=PHONES trainer.precision=fp32"
        )
        yield Cell(PHONES, command, 5, ("search=beam search.length_penalty=1 search.length_offset=0",))
    for name, seeds in SCAN.items():
        split = name.split()[-1]
        path = " dataset.path=COMMANDS" if split == "simple" else ""
        for model, minutes in (("scan_lstm", 25), ("scan_gru", 26), ("scan_attn", 3)):
            command = f"{start} experiment={model} dataset.split={split}{path}"
            yield Cell(name, command, minutes, seeds=(*range(1, seeds + 1),))


def shared_words(of: Sequence[Cell]) -> list[str]:
    """Return the words that the commands of some cells all have."""
    first, *others = (unseeded(cell.command) for cell in of)
    return [word for word in first if all(word in words for words in others)]


def tables() -> list[str]:
    """Return the names of the tables."""
    return list(dict.fromkeys(cell.table for cell in cells()))


def runs() -> list[Run]:
    """Return all planned runs, the first seed of every cell of a table before the second."""
    return [
        Run(cell, seed)
        for name in tables()
        for seed in sorted({seed for cell in cells() for seed in cell.seeds})
        for cell in cells()
        if cell.table == name and seed in cell.seeds
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """List, run or add the planned runs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planned", description=__doc__.split("\n")[0])
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("list", help="print what is planned and what is recorded")
    runner = actions.add_parser("run", help="run what is not recorded")
    runner.add_argument("folder", type=Path)
    runner.add_argument("--path", action="append", default=[], metavar="NAME=PATH", help="of DIR, FILE, …")
    runner.add_argument("--only", default="", metavar="TEXT", help="only tables or commands with this text")
    runner.add_argument(
        "--hours", type=float, default=math.inf, help="of the planned times together, at most"
    )
    adder = actions.add_parser("add", help="add finished runs to docs/results.jsonl")
    adder.add_argument("folder", type=Path)
    adder.add_argument("--machine", required=True, help="cores, processor, version of torch, precision")
    adder.add_argument("--commit", help="of the code of runs that do not record it")
    options = parser.parse_args(arguments)
    lines = read_lines(RESULTS)
    missing = [run for run in runs() if not run.is_recorded(lines)]
    try:
        if options.action == "list":
            print("\n".join(summary(lines)))
        elif options.action == "add":
            add_all(missing, options)
        else:
            chosen = [run for run in missing if options.only in f"{run.cell.table}: {run.command}"]
            if missing and not chosen:
                raise UserError(
                    f"--only={options.only}: no table and no command of a run that is not recorded has this text. "
                    f"`python -m benchmarks.planned list` shows them."
                )
            execute_all(chosen, options.folder, paths_of(options.path), 60 * options.hours)
    except UserError as error:
        sys.exit(f"error: {error}")


def paths_of(given: Sequence[str]) -> dict[str, str]:
    """Return the paths by the names of their placeholders, from words NAME=PATH.

    Raises:
        UserError: a word has no path, or no planned command has such a placeholder.
    """
    known = {name for cell in cells() for name in placeholders(cell.command)}
    paths: dict[str, str] = {}
    for one in given:
        name, equals, path = one.partition("=")
        if not (equals and path):
            raise UserError(f"--path={one} has no path. Write --path {name}=PATH.")
        if name not in known:
            raise UserError(
                f"--path={one}: no planned command has {name}. They have: {', '.join(sorted(known))}."
            )
        paths[name] = path
    return paths


def placeholders(command: str) -> list[str]:
    """Return the placeholders of paths in a command, such as DIR."""
    return [word.partition("=")[2] for word in unseeded(command) if results.is_placeholder(word)]


def execute_all(chosen: Sequence[Run], folder: Path, paths: dict[str, str], minutes: float) -> None:
    """Start runs in a folder one after another, as long as their planned times together are at most `minutes`.

    Raises:
        UserError: the path of a run is not given, which is checked before the first one, or the program fails.
    """
    for run in chosen:
        program_words(run, paths)
    too_long = []
    for run in chosen:
        if run.cell.minutes > minutes:
            too_long.append(run)
        elif execute(run, folder / run.name, paths):
            minutes -= run.cell.minutes
    if too_long:
        shortest = min(run.cell.minutes for run in too_long)
        print(
            f"Not started, because of --hours: {len(too_long)} (the shortest takes {shortest} minutes)",
            flush=True,
        )


def execute(run: Run, folder: Path, paths: dict[str, str]) -> bool:
    """Train a run, or continue it, and start its evaluations; skip it if another process works on it.

    Returns:
        Whether a program was started.

    Raises:
        UserError: a path is not given, or the program fails.
    """
    started = False
    words = program_words(run, paths)
    claim = folder.parent / CLAIMS / folder.name
    claim.mkdir(parents=True, exist_ok=True)
    try:
        with lock_folder(claim, timeout=0):  # of `planned run`; the program locks the run folder itself
            if training := training_command(words, folder):
                start(training)
                started = True
            for setting, made in evaluations(run, folder):
                if read_finished_result(made) is None:
                    shutil.rmtree(made, ignore_errors=True)
                    given = shlex.split(setting)
                    start([*words[:2], "seq2seq_lab.evaluate", str(folder), *given, f"--output={made}"])
                    started = True
    except FolderInUseError:
        print(f"Skipped, because another process works on it: {folder}", flush=True)
    return started


def program_words(run: Run, paths: dict[str, str]) -> list[str]:
    """Return the command of a run with this Python and without placeholders.

    Raises:
        UserError: a path is not given.
    """
    words = [sys.executable, *shlex.split(run.command)[1:]]
    for index, word in enumerate(words):
        key, _, value = word.partition("=")
        if results.is_placeholder(word):
            if value not in paths:
                raise UserError(f"{run.command} needs a path. Give it with --path {value}=PATH.")
            words[index] = f"{key}={paths[value]}"
    return words


def training_command(words: Sequence[str], folder: Path) -> list[str] | None:
    """Return the command that trains or resumes a run, or None if it has finished; empty a folder without checkpoints.

    A run whose checkpoints are all damaged is resumed too: the program then reports the damage.

    Raises:
        FolderInUseError: another process trains the run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder):
        if read_finished_result(folder) is not None:
            return None
        if checkpoint.any_in(folder / "checkpoints"):
            return [*words[:3], f"resume={folder}"]
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != LOCK:
                path.unlink()
    return [*words, f"hydra.run.dir={folder}"]


def evaluation_command(setting: str) -> str:
    """Return the command of an evaluation as lines have it."""
    return shlex.join([*EVALUATE, *shlex.split(setting)])


def evaluations(run: Run, folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the setting and the folder of each planned evaluation of a run."""
    for index, setting in enumerate(run.cell.evaluations, start=1):
        yield setting, folder / "evaluations" / f"planned-{index}"


def start(words: Sequence[str]) -> None:
    """Run a command.

    Raises:
        UserError: it fails.
    """
    print(f"$ {shlex.join(words)}", flush=True)
    if status := subprocess.run(words, check=False).returncode:
        stopped = status - 128 in {signal.SIGINT, signal.SIGTERM}
        remedy = "A signal stopped it: to go on, run" if stopped else "Correct the cause, and run"
        raise UserError(f"The command ended with status {status}. {remedy} this command again.")


def add_all(missing: Sequence[Run], options: argparse.Namespace) -> None:
    """Add the finished runs of a folder.

    Raises:
        UserError: none has finished, or some cannot be added, each with the reason; the others are added.
    """
    finished = [run for run in missing if read_finished_result(options.folder / run.name) is not None]
    if not finished:
        raise UserError(
            f"{options.folder} has no finished run that is still to be recorded. Give the FOLDER of "
            "`python -m benchmarks.planned run FOLDER`, not that of one run."
        )
    refused = []
    for run in finished:
        try:
            add_run(run, options.folder / run.name, options)
        except UserError as error:
            refused.append(str(error))
    if refused:
        raise UserError("\n".join(refused))


def add_run(run: Run, folder: Path, options: argparse.Namespace) -> None:
    """Add a finished run and its finished evaluations.

    Raises:
        UserError: the run or an evaluation cannot be added; see `results.add_line`.
    """
    about = ["--command", run.command, "--machine", options.machine]
    about += [] if options.commit is None else ["--commit", options.commit]
    results.add(["add", str(folder), *about])
    for setting, made in evaluations(run, folder):
        if read_finished_result(made) is not None:
            results.add(["add", str(made), *about, "--evaluation", evaluation_command(setting)])


def summary(lines: Sequence[Line]) -> list[str]:
    """Return a table of what is planned, and what is not recorded."""
    rows = []
    for name in tables():
        planned = [run for run in runs() if run.cell.table == name]
        recorded = [run for run in planned if run.is_recorded(lines)]
        minutes = sum(run.cell.minutes for run in planned)
        counted = [len({run.cell.command for run in planned}), len({run.seed for run in planned})]
        rows.append([name, *map(str, counted), f"{minutes / 60:.1f}", f"{len(recorded)} of {len(planned)}"])
    heads = ["table", "configurations", "seeds", "core-hours", "complete runs"]
    missing: dict[str, list[int]] = {}
    for run in runs():
        if not run.is_recorded(lines):
            missing.setdefault(run.cell.command, []).append(run.seed)
    return [
        *table(heads, rows, 1),
        *(["", MISSING, ""] if missing else []),
        *(f"- `{command}`: seeds {', '.join(map(str, seeds))}" for command, seeds in missing.items()),
    ]


if __name__ == "__main__":
    main()
