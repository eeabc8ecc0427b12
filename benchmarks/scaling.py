"""Measures how the time of a training step depends on the number of ranks, and the cost of their communication.

    python -m benchmarks.scaling --ranks 1 2 --threads 1
    python -m benchmarks.scaling --device cuda --batch-size 1024 --json scaling.json

runs the same steps (planned for one process) on each number of ranks of this machine: with and without the exchange of
gradients, and only the sum of a tensor of their size over the ranks.
"""

import argparse
import statistics
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import nn

from benchmarks import cli
from benchmarks.learners import MODELS, MULTI30K_PAIRS, num_parameters, package, synthetic
from benchmarks.machine import seconds
from seq2seq_lab.config.schema import Backend, Device, Precision
from seq2seq_lab.data.batching import plan_epoch
from seq2seq_lab.evaluate import positive
from seq2seq_lab.launching.launch import join_ranks, spawn
from seq2seq_lab.runtime.device import (
    choose_device,
    choose_precision,
    keep_freed_memory,
    limit_primitive_cache,
)
from seq2seq_lab.runtime.ranks import Ranks
from seq2seq_lab.runtime.tables import print_table

HEADS = (
    *("ranks", "ms per step", "target tokens/s", "efficiency"),
    *("without exchange, ms", "sum of the gradients alone, ms"),
)


@dataclass(frozen=True)
class Settings:
    """What is measured."""

    model: str
    batch_size: int
    steps: int
    warm_up: int
    threads: int | None
    device: str
    seed: int
    precision: str = "auto"
    pairs: int = MULTI30K_PAIRS
    embedding: int = 256
    hidden: int = 512


@dataclass(frozen=True)
class Row:
    """Medians over the steps, of rank 0.

    Attributes:
        seconds: per step.
        without_exchange: seconds of the same step without the exchange of gradients.
        exchange: seconds of a sum over the ranks of as many numbers as the model has parameters.
        tokens_per_second: target tokens.
    """

    ranks: int
    seconds: float
    without_exchange: float
    exchange: float
    tokens_per_second: float
    parameters: int

    def cells(self, first: "Row") -> list[str]:
        """Return the row of a table with `HEADS`."""
        return [
            str(self.ranks),
            f"{1000 * self.seconds:.1f}",
            f"{self.tokens_per_second:,.0f}",
            f"{efficiency(self, first):.0%}",
            f"{1000 * self.without_exchange:.1f}",
            f"{1000 * self.exchange:.1f}" if self.ranks > 1 else "–",
        ]


class SilentRanks(Ranks):
    """Ranks that do not exchange gradients."""

    def gradient_sync(self, module: nn.Module, last: bool) -> AbstractContextManager[None]:
        """Exchange in no backward pass."""
        return super().gradient_sync(module, last=False)

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor of this rank."""
        return tensor


def main() -> None:
    """Measure what the command line asks for."""
    parser = cli.new_parser("benchmarks.scaling", (__doc__ or "").split("\n")[0], batch_size=128)
    parser.add_argument("--ranks", nargs="+", type=positive, default=[1, 2], help="(default: 1 2)")
    parser.add_argument("--model", choices=list(MODELS), default="luong")
    parser.add_argument("--steps", type=positive, default=20, help="measured steps (default: 20)")
    parser.add_argument("--warm-up", type=positive, default=5, help="steps before (default: 5)")
    cli.run(parser, compare)


def compare(options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Measure each number of ranks, print a table, and return the report."""
    given = {name: value for name, value in vars(options).items() if name in Settings.__dataclass_fields__}
    settings = Settings(**given)
    rows = [spawn(count, on_a_rank, settings)[0] for count in options.ranks]
    title = f"{MODELS[options.model].title}, {rows[0].parameters:,} parameters, {options.batch_size} sentences per step"
    print_table(title, HEADS, [row.cells(rows[0]) for row in rows], len(HEADS))
    return {"settings": asdict(settings), "rows": list(map(asdict, rows))}


def on_a_rank(settings: Settings) -> Row:
    """Measure as one of the ranks."""
    with join_ranks() as ranks:
        if settings.threads:
            torch.set_num_threads(settings.threads)
        limit_primitive_cache()
        device = choose_device(Device(settings.device), ranks.local_rank)
        ranks = ranks.with_backend(Backend.auto, device)
        keep_freed_memory(device)
        precision = ranks.broadcast(lambda: choose_precision(Precision(settings.precision), device))
        data = synthetic(settings.pairs, settings.seed)
        learner = package(
            *(settings.model, data, device),
            sizes=data.sizes(settings.embedding, settings.hidden),
            batch_size=settings.batch_size,
            seed=settings.seed,
            ranks=ranks,
        )
        plan = plan_epoch(data.text, settings.batch_size, "sentences", seed=settings.seed, epoch=0)
        steps = [plan[index % len(plan)] for index in range(settings.warm_up + settings.steps)]
        elapsed = partial(seconds, device=device, clock=perf_counter)  # includes the time a rank waits

        def measure(own: Ranks) -> list[float]:
            learner.step.compute = replace(learner.step.compute, ranks=own)
            times = []
            for step in steps:
                ranks.barrier()
                times.append(elapsed(partial(learner.train_step, step, 1.0, precision)))
            return times[settings.warm_up :]

        gradients = torch.zeros(num_parameters(learner.model), device=device)
        exchange = [elapsed(lambda: ranks.all_reduce(gradients)) for _ in range(10)]
        times = measure(ranks)
        silent = measure(SilentRanks(ranks.rank, ranks.size, ranks.local_rank, ranks.group))
        tokens = [data.tokens(step).target for step in steps[settings.warm_up :]]
        return Row(
            ranks.size,
            statistics.median(times),
            statistics.median(silent),
            statistics.median(exchange[2:]) if ranks.size > 1 else 0.0,
            statistics.median(count / time for count, time in zip(tokens, times, strict=True)),
            num_parameters(learner.model),
        )


def efficiency(row: Row, first: Row) -> float:
    """Return the speed-up per rank: 1 if twice the ranks halve the time."""
    return (first.seconds * first.ranks) / (row.seconds * row.ranks)


if __name__ == "__main__":
    main()
