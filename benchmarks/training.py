"""Compares the training speed of the package with that of loops as in tutorials.

    python -m benchmarks.training --multi30k DIR --threads 2 --json docs/training.cpu.json

measures target tokens per second (with `<eos>`, without padding and warm-up) of the four models of `benchmarks.reference`
and of the same models in the package, on the same data, in one process and in turns. Further rows change one thing of the
reference: the code of the package (vectorized over time), batches of one exact source length, bfloat16 if
the device computes it faster. Without `--multi30k` the sentences are random, with Multi30k's lengths and vocabulary sizes.

"""

import argparse
import logging
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from benchmarks import cli, flops
from benchmarks.flops import Tokens
from benchmarks.learners import (
    DROPOUT,
    MODELS,
    MULTI30K_PAIRS,
    Data,
    Loop,
    Package,
    multi30k,
    num_parameters,
    package,
    random_plan,
    synthetic,
)
from benchmarks.machine import DTYPES, matrix_product_peak, peaks_line, seconds
from benchmarks.reference import Sizes
from benchmarks.turns import Contestant, Speed, Turn, in_turns, reset_memory, summarize
from seq2seq_lab.config.schema import Precision
from seq2seq_lab.data.batching import StepPlan, plan_epoch
from seq2seq_lab.errors import UserError
from seq2seq_lab.evaluate import positive
from seq2seq_lab.runtime import console
from seq2seq_lab.runtime.device import choose_precision, peak_memory
from seq2seq_lab.runtime.tables import print_table

HEADS = (
    *("ratio", "code, batches, precision", "target tokens/s (slowest–fastest)"),
    *("speedup (95% interval)", "of the peak", "peak memory"),
)
ALL_ON = "package, all on"
PEER = "JoeyNMT's model: additive attention after the step, input feeding"


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to train: code, batches, precision, and whether a CPU reuses freed memory."""

    name: str
    code: str
    batches: str
    precision: Precision
    reuses_memory: bool = False


@dataclass(frozen=True, kw_only=True)
class Row(Speed):
    """The measurement of an arm. `operations_per_second` are those that the model needs, None if they are not known."""

    model: str
    ratio: float
    name: str
    code: str
    batches: str
    precision: str
    parameters: int
    operations_per_second: float | None
    peak_bytes: int

    def cells(self, first: "Row", peaks: Mapping[str, float]) -> list[str]:
        """Return the row of a table with `HEADS`, with the number of parameters if it is not that of the first row."""
        work = self.operations_per_second
        differs = "" if self.parameters == first.parameters else f", {self.parameters:,} parameters"
        return [
            f"{self.ratio:g}",
            f"{self.name}: {self.code}, {self.batches}, {self.precision}{differs}",
            *(self.cell, self.times_cell),
            "–" if work is None else f"{work / peaks[self.precision]:.1%}",
            f"{self.peak_bytes / 2**30:.2f} GiB",
        ]


def main() -> None:
    """Measure what the command line asks for."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")  # shows the progress
    cli.run(parser(), compare)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = cli.new_parser("benchmarks.training", (__doc__ or "").split("\n")[0], batch_size=128)
    cli.add_comparison(parser, pairs=MULTI30K_PAIRS, rounds=10)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--ratios", nargs="+", type=float, default=[1.0, 0.5], help="of teacher forcing")
    parser.add_argument("--steps", type=positive, default=4, help="of a turn (default: 4)")
    parser.add_argument("--warm-up", type=positive, default=4, help="steps of each before (default: 4)")
    return parser


def compare(options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Measure each model at each ratio, print a table for each model, and return the report."""
    data = synthetic(options.pairs, options.seed) if options.multi30k is None else multi30k(options.multi30k)
    peaks = {name: matrix_product_peak(dtype, device) for name, dtype in DTYPES.items()}
    rows: list[Row] = []
    for model in options.models:
        new = measure(model, data, options, device, ways=arms(device), sizes=data.sizes())
        rows += new
        # Another process may have slowed the first measurement of the peaks.
        for name, dtype in DTYPES.items():
            peaks[name] = max(peaks[name], matrix_product_peak(dtype, device))
        print_table(title(new[0]), HEADS, [row.cells(new[0], peaks) for row in new], len(HEADS) - 2)
    console.console().print(f"{data.name}. {peaks_line(peaks)}.")
    return {
        **{
            "data": data.name,
            "batch_size": options.batch_size,
            "seed": options.seed,
            "peak_flops_per_second": peaks,
        },
        **{"warm_up": options.warm_up, "rounds": options.rounds, "steps_per_round": options.steps},
        "rows": list(map(asdict, rows)),
    }


def title(row: Row) -> str:
    """Return the title of a model's table."""
    return f"{MODELS[row.model].title if row.model in MODELS else PEER}, {row.parameters:,} parameters"


def arms(device: torch.device) -> list[Arm]:
    """Return the ways to train that are compared; the first is the reference."""
    fp32, fastest = Precision.fp32, choose_precision(Precision.auto, device)
    has_bf16 = fastest is Precision.bf16
    reuse = [Arm("memory reused alone", "loop", "random", fp32, reuses_memory=True)]  # glibc's, on a CPU
    return [
        Arm("reference", "loop", "random", fp32),
        Arm("package's code alone", "package", "random", fp32),
        Arm("exact lengths alone", "loop", "exact length", fp32),
        *([Arm("bfloat16 alone", "loop", "random", fastest)] if has_bf16 else []),
        *(reuse if device.type == "cpu" else []),
        *([Arm("all but bfloat16", "package", "exact length", fp32, reuses_memory=True)] if has_bf16 else []),
        Arm(ALL_ON, "package", "exact length", fastest, reuses_memory=True),
    ]


def measure(
    name: str,
    data: Data,
    options: argparse.Namespace,
    device: torch.device,
    *,
    ways: Sequence[Arm],
    sizes: Sizes,
) -> list[Row]:
    """Measure the ways to train one model in turns, at each ratio."""
    torch.manual_seed(options.seed)
    loop = Loop(MODELS[name].reference(sizes, DROPOUT), data, device, options.seed)
    learner = package(name, data, device, sizes=sizes, batch_size=options.batch_size, seed=options.seed)
    parameters = num_parameters(loop.model)
    if parameters != num_parameters(learner.model):
        raise UserError(
            f"model={name} has {num_parameters(learner.model):,} parameters, its reference {parameters:,}. Correct "
            f"conf/model/{name}.yaml or benchmarks/reference.py."
        )

    def operations(tokens: Tokens) -> int:
        return flops.training(MODELS[name].forward_flops(sizes, tokens))

    rows: list[Row] = []
    for ratio in options.ratios:
        contestants = [
            new_contestant(
                *(loop if arm.code == "loop" else learner, arm, plan(arm, data, options), data),
                ratio=ratio,
                operations=operations,
            )
            for arm in ways
        ]
        turns = in_turns(contestants, options.warm_up, options.rounds, options.steps)
        rows += [
            new_row(name, arm, own, turns[0], ratio=ratio, parameters=parameters)
            for arm, own in zip(ways, turns, strict=True)
        ]
    return rows


def plan(arm: Arm, data: Data, options: argparse.Namespace) -> list[StepPlan]:
    """Return the steps of an epoch, as in the tutorials or as in the package."""
    if arm.batches == "random":
        return mixed_lengths(random_plan(data.text, options.batch_size, options.seed), data)
    return mixed_lengths(
        plan_epoch(data.text, options.batch_size, "sentences", seed=options.seed, epoch=0), data
    )


def mixed_lengths(plan: Sequence[StepPlan], data: Data) -> list[StepPlan]:
    """Return the steps of a plan, ordered so that the mean length of a few successive steps is about that of all steps.

    Batches of one exact length differ much in length, so turns in a random order are not comparable. Steps 2n and 2n + 1
    are at the quantiles q and 1 − q of the number of target tokens, q = (nφ mod 1) / 2, φ = (√5 − 1) / 2.
    """
    by_length = sorted(plan, key=lambda step: data.tokens(step).target)
    low = np.arange(math.ceil(len(plan) / 2)) * (math.sqrt(5) - 1) / 2 % 1 / 2
    quantiles = np.stack([low, 1 - low], axis=1).flatten()[: len(plan)]
    return [by_length[rank] for rank in quantiles.argsort().argsort()]


def new_contestant(
    learner: Loop | Package,
    arm: Arm,
    plan: Sequence[StepPlan],
    data: Data,
    *,
    ratio: float = 1.0,
    operations: Callable[[Tokens], int] | None = None,
) -> Contestant:
    """Return a contestant that trains on the steps of a plan, repeatedly, after one step that is not measured."""
    device = next(learner.model.parameters()).device

    def turn(first: int, count: int) -> Turn:
        steps = [plan[index % len(plan)] for index in range(first, first + count)]

        def train() -> None:
            for step in steps:
                learner.train_step(step, ratio, arm.precision)

        reset_memory(device, reuse=arm.reuses_memory)
        learner.train_step(plan[(first - 1) % len(plan)], ratio, arm.precision)
        time = seconds(train, device)
        text = [data.tokens(step) for step in steps]
        work = None if operations is None else sum(map(operations, text))
        return Turn(sum(tokens.target for tokens in text), time, work, peak_memory(device))

    return turn


def new_row(
    model: str, arm: Arm, turns: Sequence[Turn], first: Sequence[Turn], *, ratio: float, parameters: int
) -> Row:
    """Return the row of an arm from its turns and those of the reference."""
    work = [turn.operations / turn.seconds for turn in turns if turn.operations is not None]
    return Row(
        model=model,
        ratio=ratio,
        name=arm.name,
        code=arm.code,
        batches=arm.batches,
        precision=arm.precision.value,
        parameters=parameters,
        operations_per_second=statistics.median(work) if work else None,
        peak_bytes=max(turn.peak_bytes for turn in turns if turn.peak_bytes is not None),
        **summarize(turns, first),
    )


if __name__ == "__main__":
    main()
