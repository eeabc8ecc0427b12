"""How the time of an update falls with the number of ranks, and what their communication costs.

    python -m benchmarks.scaling --ranks 1 2 --threads 1
    python -m benchmarks.scaling --device cuda --batch-size 1024 --json scaling.json

The same updates (the plan is that of one process) on 1, 2, … ranks of this machine: with the gradients shared, without,
and the sum over the ranks of a tensor of the gradients' size alone. Then, on paper, more ranks on a link of given speed.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from benchmarks.learners import MODELS, MULTI30K_PAIRS, Package, num_parameters, synthetic
from benchmarks.machine import machine, seconds
from benchmarks.training import WIDTH, positive
from seq2seq_lab.config.schema import Backend, Device, Precision
from seq2seq_lab.data.batching import plan_epoch
from seq2seq_lab.launching.launch import joined, spawn
from seq2seq_lab.runtime.device import (
    choose_device,
    choose_precision,
    keep_freed_memory,
    limit_primitive_cache,
)
from seq2seq_lab.runtime.ranks import Ranks

LINKS = (12.5, 50.0)  # gigabytes a second that a GPU sends and receives: 100 and 400 Gbit/s
ON_PAPER = (8, 64)


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
    pairs: int = MULTI30K_PAIRS
    embedding: int = 256
    hidden: int = 512


@dataclass(frozen=True)
class Measured:
    """Medians over the updates, of rank 0.

    Attributes:
        seconds: of an update.
        alone: of the same update when no gradients are shared.
        sharing: of a sum over the ranks of as many numbers as the model has, by itself.
        target_tokens: of an update, in the mean.
        parameters: that are trained.
    """

    ranks: int
    seconds: float
    alone: float
    sharing: float
    target_tokens: float
    parameters: int


class Silent(Ranks):
    """Ranks that keep their gradients to themselves."""

    def gradient_sync(self, module: nn.Module, last: bool) -> AbstractContextManager[None]:
        """Share with no backward pass."""
        return super().gradient_sync(module, last=False)

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """Add nothing."""
        return tensor


def main() -> None:
    """Measure what the command line asks for and print it."""
    options = parser().parse_args()
    settings = Settings(
        options.model,
        options.batch_size,
        options.steps,
        options.warm_up,
        options.threads,
        options.device,
        options.seed,
    )
    rows = [spawn(count, on_a_rank, settings)[0] for count in options.ranks]
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    name = torch.cuda.get_device_name() if options.device == "cuda" else machine()
    console.print(
        f"{MODELS[options.model].title}, {rows[0].parameters:,} parameters, batches of {options.batch_size} sentences "
        f"whatever the ranks; {name}, torch {torch.__version__}, threads a rank: {options.threads or 'its share'}"
    )
    console.print(table(rows))
    console.print(on_paper(rows[0]))
    if options.json:
        report = {"machine": name, "torch": torch.__version__, "settings": asdict(settings)}
        options.json.write_text(
            json.dumps({**report, "rows": list(map(asdict, rows))}, indent=2) + "\n", "utf-8"
        )


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__.splitlines()[0])
    made.add_argument("--ranks", nargs="+", type=positive, default=[1, 2], help="how many (default: 1 2)")
    made.add_argument("--model", choices=list(MODELS), default="luong")
    made.add_argument(
        "--batch-size", type=positive, default=128, help="sentences of an update (default: 128)"
    )
    made.add_argument("--steps", type=positive, default=20, help="updates (default: 20)")
    made.add_argument("--warm-up", type=positive, default=5, help="updates before (default: 5)")
    made.add_argument("--threads", type=positive, help="of each rank (default: its share of the cores)")
    made.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--json", type=Path, metavar="FILE", help="where to write the figures as JSON too")
    return made


def on_a_rank(settings: Settings) -> Measured:
    """Measure together with the other ranks; each calls this."""
    with joined() as ranks:
        if settings.threads:
            torch.set_num_threads(settings.threads)
        limit_primitive_cache()
        device = choose_device(Device(settings.device), ranks.local_rank)
        ranks = ranks.with_backend(Backend.auto, device)
        keep_freed_memory(device)
        precision = ranks.broadcast(lambda: choose_precision(Precision.auto, device))
        data = synthetic(settings.pairs, settings.seed)
        sizes = data.sizes(settings.embedding, settings.hidden)
        package = Package(
            settings.model, sizes, 0.5, data, settings.batch_size, device, settings.seed, ranks=ranks
        )
        package.trainer.open_epoch(0)
        plan = plan_epoch(data.text, settings.batch_size, "sentences", settings.seed, 0)
        count = settings.warm_up + settings.steps

        def median(own: Ranks) -> float:
            package.trainer.ranks = own
            times = []
            for step in plan[:count]:
                ranks.barrier()
                times.append(seconds(lambda step=step: package.update(step, 1.0, precision), device))
            return statistics.median(times[settings.warm_up :])

        gradients = torch.zeros(num_parameters(package.model), device=device)
        sharing = [seconds(lambda: ranks.all_reduce(gradients), device) for _ in range(10)]
        tokens = [data.tokens(step).target for step in plan[settings.warm_up : count]]
        return Measured(
            ranks.size,
            median(ranks),
            median(Silent(ranks.rank, ranks.size, ranks.local_rank, ranks.group)),
            statistics.median(sharing[2:]) if ranks.size > 1 else 0.0,
            statistics.mean(tokens),
            num_parameters(package.model),
        )


def efficiency(row: Measured, first: Measured) -> float:
    """Return how much of a rank's time is as well used as in the first row: 1 where twice the ranks halve the time."""
    return (first.seconds * first.ranks) / (row.seconds * row.ranks)


def table(rows: Sequence[Measured]) -> Table:
    """Return the figures as a table."""
    made = Table(title="One update")
    for head in (
        "ranks",
        "ms",
        "target tokens/s",
        "efficiency",
        "without sharing, ms",
        "sum of gradients alone, ms",
    ):
        made.add_column(head, justify="right")
    for row in rows:
        made.add_row(
            str(row.ranks),
            f"{1000 * row.seconds:.1f}",
            f"{row.target_tokens / row.seconds:,.0f}",
            f"{efficiency(row, rows[0]):.0%}",
            f"{1000 * row.alone:.1f}",
            f"{1000 * row.sharing:.1f}" if row.ranks > 1 else "–",
        )
    return made


def sharing_on_paper(parameters: int, ranks: int, link: float) -> float:
    """Return the seconds of a ring's sum over the ranks: each sends 2 (n - 1) / n of the gradients in float32.

    Args:
        link: gigabytes a second.
    """
    return 2 * (ranks - 1) / ranks * 4 * parameters / (link * 1e9)


def on_paper(row: Measured) -> Table:
    """Return what more ranks would come to, each with as many sentences as one rank had here."""
    alone = row.alone
    made = Table(
        title=f"On paper: each rank with {1000 * alone:.1f} ms of its own an update, sharing not overlapped"
    )
    for head in ("ranks", "link, GB/s", "sharing, ms", "efficiency"):
        made.add_column(head, justify="right")
    for ranks in ON_PAPER:
        for link in LINKS:
            time = sharing_on_paper(row.parameters, ranks, link)
            made.add_row(str(ranks), f"{link:g}", f"{1000 * time:.2f}", f"{alone / (alone + time):.0%}")
    return made


if __name__ == "__main__":
    main()
