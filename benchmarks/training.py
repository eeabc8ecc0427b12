"""How fast this package trains, beside the loops that people learn these models from.

    python -m benchmarks.training --multi30k DIR --threads 2 --json docs/training.cpu.json

measures target tokens a second (real ones, `<eos>` counted, without warm-up) of the four models of
`benchmarks.reference` and of the package's models of the same sizes, on the same data, in one process and in turns:
every round runs a few updates of each. Between the reference and the package stand runs with one change alone: the
package's model (vectorised over time), batches of one exact source length, bfloat16. Without `--multi30k` the
sentences are random, with Multi30k's lengths and vocabulary sizes.

`--check-loss` trains reference and package from the same weights on the same batches and compares their losses.
`--joeynmt PYTHON` measures JoeyNMT 2.3 beside the package's model of the same architecture (`joeynmt_worker.py`).
"""

import argparse
import json
import logging
import shlex
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.learners import (
    DROPOUT,
    MODELS,
    MULTI30K_PAIRS,
    Data,
    Loop,
    Package,
    loss_curves,
    multi30k,
    num_parameters,
    random_plan,
    synthetic,
)
from benchmarks.machine import DTYPES, machine, matrix_product_peak
from benchmarks.reference import Sizes
from benchmarks.results import OWN_PATH
from benchmarks.turns import Arm, Contestant, Turn, in_turns, joeynmt, take_turn
from seq2seq_lab.config.schema import Device, Precision
from seq2seq_lab.data.batching import StepPlan, plan_epoch
from seq2seq_lab.errors import UserError
from seq2seq_lab.runtime.device import choose_device, choose_precision, limit_primitive_cache
from seq2seq_lab.tracking.git import git_commit, git_is_dirty

# Of two runs that compute the same in another order, in float64.
SAME_LOSS = 1e-6  # nats a token
WIDTH = 140  # of the tables in a file
HEADS = (
    "ratio",
    "code, batches, precision",
    "target tokens/s (slowest–fastest)",
    "× the first",
    "of the peak",
    "peak memory",
)
ALL_ON = "package, all on"
PEER = "JoeyNMT's model: additive attention after the step, input feeding"


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured of one arm: medians over the rounds, and the slowest and fastest round.

    `times_the_reference` is the median of the rounds' own quotients, with the least and the most of them.
    `operations_per_second` are those that the model needs; None where they are not known.
    """

    model: str
    ratio: float
    name: str
    code: str
    batches: str
    precision: str
    parameters: int
    target_tokens_per_second: float
    slowest: float
    fastest: float
    times_the_reference: float
    least_times: float
    most_times: float
    operations_per_second: float | None
    peak_bytes: int


def main() -> None:
    """Measure what the command line asks for and print it."""
    options = parser().parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    limit_primitive_cache()
    device = choose_device(Device(options.device))
    try:
        data = (
            synthetic(options.pairs, options.seed) if options.multi30k is None else multi30k(options.multi30k)
        )
        report = check_losses(options, data, device) if options.check_loss else compare(options, data, device)
    except UserError as error:
        sys.exit(str(error))
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    if options.check_loss and not all(curve["same"] for curve in report["curves"]):
        sys.exit(1)


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--ratios", nargs="+", type=ratio, default=[1.0, 0.5], help="of teacher forcing")
    parser.add_argument("--rounds", type=positive, default=5, help="turns of each way to train (default: 5)")
    parser.add_argument("--steps", type=positive, default=10, help="updates in a turn (default: 10)")
    parser.add_argument("--warm-up", type=positive, default=3, help="updates of each before (default: 3)")
    parser.add_argument(
        "--batch-size", type=positive, default=128, help="sentences of an update (default: 128)"
    )
    parser.add_argument("--threads", type=positive, help="of torch (default: torch's choice)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument(
        "--precision",
        choices=["auto", "fp32", "bf16"],
        default="auto",
        help="of the package with everything on (default: auto, as in a run)",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--multi30k", type=Path, metavar="DIR", help="with the raw files train.de, train.en, …"
    )
    parser.add_argument(
        "--pairs", type=positive, default=MULTI30K_PAIRS, help="random ones, without --multi30k"
    )
    parser.add_argument(
        "--joeynmt", type=Path, metavar="PYTHON", help="interpreter of an environment with JoeyNMT"
    )
    parser.add_argument(
        "--check-loss",
        type=positive,
        nargs="?",
        const=300,
        metavar="UPDATES",
        help="compare the loss curves of reference and package instead (default: 300 updates)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write the figures as JSON too")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="where to draw them, for example training.png"
    )
    return parser


def positive(text: str) -> int:
    """Return a whole number above 0."""
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def ratio(text: str) -> float:
    """Return a number from 0 to 1."""
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError(text)
    return value


def compare(options: argparse.Namespace, data: Data, device: torch.device) -> dict[str, Any]:
    """Measure every model at every ratio, print a table a model, and return all figures."""
    peaks = {name: matrix_product_peak(dtype, device) for name, dtype in DTYPES.items()}
    precision = choose_precision(Precision(options.precision), device)
    sizes = data.sizes()
    report: dict[str, Any] = {
        **surroundings(options, data, device),
        "peak_flops_per_second": peaks,
        "command": command(options),
        "commit": git_commit(),
        "changed_since": git_is_dirty(),
        "warm_up": options.warm_up,
        "rounds": options.rounds,
        "updates_a_round": options.steps,
        "rows": [],
    }
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    console.print(
        f"{report['data']}, batches of {options.batch_size}; {report['machine']}, threads: {report['threads']}, "
        f"torch {torch.__version__}. {peaks_line(peaks)}"
    )
    for name in options.models:
        rows = measure(name, sizes, data, options, device, arms(precision, device))
        peaks.update(measured_again(peaks, device))
        report["rows"] += map(asdict, rows)
        console.print(table(rows, peaks))
    if options.joeynmt:
        rows = measure_peer(sizes, data, options, device, precision)
        report["rows"] += map(asdict, rows)
        console.print(table(rows, peaks))
    console.print(peaks_line(peaks))
    console.print(
        "Medians of the rounds. Reference: a loop over time in float32 on random batches, padded. The package's code "
        "is vectorised over time, has its own dropout, cross-entropy and attention kernels, and packs padded sources. "
        "Operations are those the model needs for real tokens, three times the forward pass; the share is of the peak in "
        "the row's own precision. Memory is the process's, which holds reference and package at once (JoeyNMT: its own)."
    )
    if options.plot:
        draw(report, options.plot)
    return report


def peaks_line(peaks: Mapping[str, float]) -> str:
    """Return what the machine's matrix products reach at most."""
    return "Matrix-product peak: " + ", ".join(
        f"{name} {peak / 1e9:,.0f} GFLOP/s" for name, peak in peaks.items()
    )


def surroundings(options: argparse.Namespace, data: Data, device: torch.device) -> dict[str, Any]:
    """Return what the figures depend on besides the code."""
    return {
        "machine": machine(device),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "data": data.name,
        "batch_size": options.batch_size,
        "seed": options.seed,
    }


def command(options: argparse.Namespace) -> str:
    """Return a command line of these options, with placeholders for the paths that are this machine's own."""
    known, words = parser(), ["python", "-m", "benchmarks.training"]
    for name, value in vars(options).items():
        if value == known.get_default(name):
            continue
        shown = [str(item) for item in value] if isinstance(value, list) else [str(value)]
        if name in ("multi30k", "joeynmt"):
            shown = [{"multi30k": "DIR", "joeynmt": "PYTHON"}[name]]
        elif OWN_PATH.search(shown[0]):
            shown = ["FILE"]
        words += [f"--{name.replace('_', '-')}", *shown]
    return shlex.join(words)


def arms(precision: Precision, device: torch.device) -> list[Arm]:
    """Return the ways to train that are compared; the first is the reference."""
    fp32 = Precision.fp32
    reuse = [Arm("memory reused alone", "loop", "random", fp32, reuses_memory=True)]  # glibc's on a CPU
    return [
        Arm("reference", "loop", "random", fp32),
        Arm("package's code alone", "package", "random", fp32),
        Arm("exact lengths alone", "loop", "exact length", fp32),
        Arm("bfloat16 alone", "loop", "random", Precision.bf16),
        *(reuse if device.type == "cpu" else []),
        Arm(ALL_ON, "package", "exact length", precision, reuses_memory=True),
    ]


def measure(
    name: str,
    sizes: Sizes,
    data: Data,
    options: argparse.Namespace,
    device: torch.device,
    ways: Sequence[Arm],
) -> list[Row]:
    """Measure the ways to train one model in turns, at every ratio."""
    torch.manual_seed(options.seed)
    loop = Loop(MODELS[name].reference(sizes, DROPOUT), data, device, options.seed)
    package = Package(name, sizes, DROPOUT, data, options.batch_size, device, options.seed)
    parameters = num_parameters(loop.model)
    if parameters != num_parameters(package.model):
        raise UserError(
            f"model={name} has {num_parameters(package.model):,} parameters and the reference {parameters:,}: they are "
            f"not the same model. Mend conf/model/{name}.yaml or benchmarks/reference.py."
        )
    plans = both_plans(data, options)
    rows: list[Row] = []
    for ratio in options.ratios:
        contestants = []
        for arm in ways:
            learner = loop if arm.code == "loop" else package
            turn = partial(take_turn, learner, arm, plans[arm.batches], ratio, name, sizes, data, device)
            contestants.append(Contestant(arm, parameters, turn))
        turns = in_turns(contestants, options.warm_up, options.rounds, options.steps)
        rows += summarise(name, ratio, contestants, turns)
    return rows


def measure_peer(
    sizes: Sizes,
    data: Data,
    options: argparse.Namespace,
    device: torch.device,
    precision: Precision,
) -> list[Row]:
    """Measure JoeyNMT and the package's model of the same architecture in turns, at ratio 1."""
    package = Package(
        "luong_feeding",
        sizes,
        DROPOUT,
        data,
        options.batch_size,
        device,
        options.seed,
        "attention=additive",
    )
    parameters = num_parameters(package.model)
    plans = both_plans(data, options)
    contestants = [
        Contestant(
            arm,
            parameters,
            partial(take_turn, package, arm, plans[arm.batches], 1.0, None, sizes, data, device),
        )
        for arm in arms(precision, device)
        if arm.code == "package"
    ]
    with joeynmt(options.joeynmt, sizes, data.text, plans["random"], device, options.seed) as peer:
        arm = Arm("JoeyNMT 2.3", "its loop, with input feeding", "random", Precision.fp32)
        contestants = [Contestant(arm, peer.parameters, peer.ask), *contestants]
        turns = in_turns(contestants, options.warm_up, options.rounds, options.steps)
    return summarise("joeynmt", 1.0, contestants, turns)


def both_plans(data: Data, options: argparse.Namespace) -> dict[str, list[StepPlan]]:
    """Return the updates of an epoch as the tutorials and as the package make them."""
    return {
        "random": random_plan(data.text, options.batch_size, options.seed),
        "exact length": plan_epoch(data.text, options.batch_size, "sentences", options.seed, 0),
    }


def measured_again(peaks: Mapping[str, float], device: torch.device) -> dict[str, float]:
    """Return the higher of the peaks before and now: another process may have slowed one of the measurements."""
    return {name: max(peak, matrix_product_peak(DTYPES[name], device)) for name, peak in peaks.items()}


def summarise(
    name: str,
    ratio: float,
    contestants: Sequence[Contestant],
    turns: Sequence[Sequence[Turn]],
) -> list[Row]:
    """Return a row a contestant; the first is the reference."""
    speeds = [[turn.tokens / turn.seconds for turn in own] for own in turns]
    rows = []
    for contestant, own, speed in zip(contestants, turns, speeds, strict=True):
        arm = contestant.arm
        times = [mine / theirs for mine, theirs in zip(speed, speeds[0], strict=True)]
        work = [turn.operations / turn.seconds for turn in own if turn.operations is not None]
        rows.append(
            Row(
                model=name,
                ratio=ratio,
                name=arm.name,
                code=arm.code,
                batches=arm.batches,
                precision=arm.precision.value,
                parameters=contestant.parameters,
                target_tokens_per_second=statistics.median(speed),
                slowest=min(speed),
                fastest=max(speed),
                times_the_reference=statistics.median(times),
                least_times=min(times),
                most_times=max(times),
                operations_per_second=statistics.median(work) if work else None,
                peak_bytes=max(turn.peak_bytes for turn in own),
            )
        )
    return rows


def title(model: str) -> str:
    """Return what stands above a model's figures."""
    return MODELS[model].title if model in MODELS else PEER


def cells(row: Row, first: Row, peaks: Mapping[str, float]) -> list[str]:
    """Return a row of a model's table, in the order of `HEADS`; the number of parameters where it is not the first's."""
    known = row.operations_per_second
    differs = "" if row.parameters == first.parameters else f", {row.parameters:,} parameters"
    return [
        f"{row.ratio:g}",
        f"{row.name}: {row.code}, {row.batches}, {row.precision}{differs}",
        f"{row.target_tokens_per_second:,.0f} ({row.slowest:,.0f}–{row.fastest:,.0f})",
        f"{row.times_the_reference:.2f} ({row.least_times:.2f}–{row.most_times:.2f})",
        "–" if known is None else f"{known / peaks[row.precision]:.1%}",
        f"{row.peak_bytes / 2**30:.2f} GiB",
    ]


def table(rows: Sequence[Row], peaks: Mapping[str, float]) -> Table:
    """Return one model's figures as a table."""
    made = Table(title=f"{title(rows[0].model)}, {rows[0].parameters:,} parameters")
    for number, column in enumerate(HEADS):
        made.add_column(column, justify="left" if number < 2 else "right")
    for number, row in enumerate(rows):
        if number and row.ratio != rows[number - 1].ratio:
            made.add_section()
        made.add_row(*cells(row, rows[0], peaks))
    return made


def draw(report: Mapping[str, Any], path: Path) -> None:
    """Draw the speeds as bars: a panel a model, a colour a forcing ratio, the slowest and fastest round as a line."""
    from matplotlib.figure import Figure

    rows = report["rows"]
    models = list(dict.fromkeys(row["model"] for row in rows))
    ratios = list(dict.fromkeys(row["ratio"] for row in rows))
    figure = Figure(figsize=(10, 2.6 * len(models)), layout="constrained")
    panels = figure.subplots(len(models), 1, squeeze=False)[:, 0]
    height = 0.8 / len(ratios)
    for panel, model in zip(panels, models, strict=True):
        names = list(dict.fromkeys(row["name"] for row in rows if row["model"] == model))
        for number, ratio in enumerate(ratios):
            own = [row for row in rows if row["model"] == model and row["ratio"] == ratio]
            places = [names.index(row["name"]) + number * height for row in own]
            speeds = [row["target_tokens_per_second"] for row in own]
            below = [row["target_tokens_per_second"] - row["slowest"] for row in own]
            above = [row["fastest"] - row["target_tokens_per_second"] for row in own]
            bars = panel.barh(places, speeds, height, xerr=[below, above], label=f"forcing ratio {ratio:g}")
            panel.bar_label(
                bars,
                [
                    f" {speed:,.0f} ({row['times_the_reference']:.1f}×)"
                    for speed, row in zip(speeds, own, strict=True)
                ],
            )
        panel.set_yticks([place + 0.4 - height / 2 for place in range(len(names))], names)
        panel.invert_yaxis()
        panel.margins(x=0.2)
        panel.set_title(title(model), fontsize=10)
    panels[0].legend(fontsize=8)
    panels[-1].set_xlabel("target tokens a second in training")
    figure.suptitle(
        f"{report['machine']}, {report['threads']} threads, torch {report['torch']}\n{report['data']}",
        fontsize=10,
    )
    figure.savefig(path, dpi=120)


def check_losses(options: argparse.Namespace, data: Data, device: torch.device) -> dict[str, Any]:
    """Train reference and package alike, print how far their losses are apart, and return the curves."""
    sizes = data.sizes()
    report: dict[str, Any] = {**surroundings(options, data, device), "curves": []}
    made = Table(
        title=f"Mean loss of a batch, nats a token, over {options.check_loss} updates in float64: the same weights to begin "
        f"with, the same batches of one exact source length, forcing ratio 1, no dropout"
    )
    for column in (
        "model",
        "first",
        "last, reference",
        "last, package",
        "greatest difference",
        f"within {SAME_LOSS}",
    ):
        made.add_column(column, justify="left" if column == "model" else "right")
    for name in options.models:
        reference, package = loss_curves(
            name, sizes, data, options.check_loss, options.batch_size, options.seed, device
        )
        apart = max(abs(a - b) for a, b in zip(reference, package, strict=True))
        same = apart <= SAME_LOSS
        report["curves"].append(
            {"model": name, "reference": reference, "package": package, "apart": apart, "same": same}
        )
        made.add_row(
            name,
            f"{reference[0]:.4f}",
            f"{reference[-1]:.4f}",
            f"{package[-1]:.4f}",
            f"{apart:.2g}",
            "yes" if same else "NO",
        )
    Console(width=None if sys.stdout.isatty() else WIDTH).print(made)
    return report


if __name__ == "__main__":
    main()
