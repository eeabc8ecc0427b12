"""How fast this package translates, beside a tutorial's loop and JoeyNMT.

    python -m benchmarks.decoding --multi30k DIR --threads 2 --joeynmt PYTHON --json docs/decoding.cpu.json

measures source sentences and target tokens a second of batched greedy and beam search, in turns: every round each way
translates the same batches. The tutorial's loop translates one sentence at a time with the reference of
`benchmarks.reference`, whose weights the package's model has; it and greedy search in float32 are checked to say the same.
Weights are random, and every output has as many tokens as its source: no way gains by a model that ends early. `<eos>` is
forbidden to all, JoeyNMT's batches being as long as their longest source.

The bound is what reading the weights of a step once would allow: batch size × memory bandwidth / bytes of the weights.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from benchmarks.learners import MODELS, Data, Package, copy_weights, multi30k, synthetic
from benchmarks.machine import DTYPES, bandwidth, machine, seconds
from benchmarks.reference import Reference, Sizes
from benchmarks.training import WIDTH, positive
from benchmarks.turns import Arm, Contestant, Peer, Turn, forget, in_turns, joeynmt
from seq2seq_lab.config.schema import Device, Precision
from seq2seq_lab.data.batching import BatchMaker, StepPlan, plan_evaluation
from seq2seq_lab.data.tokenized import TokenizedText
from seq2seq_lab.data.tokenizers import EOS, PAD, SOS
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.runtime.device import (
    autocast,
    choose_device,
    choose_precision,
    limit_primitive_cache,
    peak_memory,
)
from seq2seq_lab.search.base import Search
from seq2seq_lab.search.beam import BeamSearch
from seq2seq_lab.search.greedy import GreedySearch
from seq2seq_lab.tracking.git import git_commit, git_is_dirty

SENTENCES = 2000  # that are translated, round and round
LENGTHS: dict[str, Any] = {"min_length_factor": 1.0, "max_length_factor": 1.0, "max_length_extra": 1}
SIZES = {"greedy": 1, "beam": 5}
SEARCHES: dict[str, Search] = {
    "greedy": GreedySearch(**LENGTHS),
    "beam": BeamSearch(SIZES["beam"], 0.6, 0.0, 1, **LENGTHS),
}
ALONE_OF = 8  # of so many sentences a tutorial's loop translates one: it is the slowest by far
HEADS = ("search", "sentences/s", "target tokens/s (slowest–fastest)", "× the first", "of the bound")


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured of one way: medians over the rounds; `share` is that of the bound, None where there is none."""

    group: str
    name: str
    sentences_per_second: float
    tokens_per_second: float
    slowest: float
    fastest: float
    times_the_first: float
    share: float | None


@dataclass(frozen=True, slots=True)
class Given:
    """What all ways are given: sentences in batches, and how fast memory is read, in bytes a second by precision."""

    data: Data
    text: TokenizedText
    plan: Sequence[StepPlan]
    batch_size: int
    device: torch.device
    speed: Mapping[str, float]
    sizes: Sizes

    def package(self, name: str, *overrides: str) -> Seq2Seq:
        """Return the package's model of a bundle at these sizes."""
        made = Package(name, self.sizes, 0.0, self.data, self.batch_size, self.device, 1, *overrides)
        return made.model.eval()

    def ways(self, model: Seq2Seq, name: str) -> list[Contestant]:
        """Return the package's search of a name, in float32 and in the precision of a run."""
        batches = BatchMaker(self.text, self.device)
        return [
            Contestant(
                Arm(f"package, {name} {SIZES[name]}, {precision.value}", "package", "", precision),
                0,
                partial(together, model, SEARCHES[name], precision, batches, self.plan, self.device),
            )
            for precision in dict.fromkeys((Precision.fp32, choose_precision(Precision.auto, self.device)))
        ]

    def rows(
        self, group: str, model: Seq2Seq, contestants: Sequence[Contestant], turns: Sequence[Sequence[Turn]]
    ) -> list[Row]:
        """Return what a model's turns come to; the first contestant is the one the others stand beside."""
        lengths = torch.tensor(np.concatenate([step[0] for step in self.plan]))
        mean = float(self.text.source_lengths[lengths].double().mean())
        weights, rows = weights_of_a_step(model), []
        for contestant, own in zip(contestants, turns, strict=True):
            name = contestant.arm.precision.value
            bound = self.batch_size * self.speed[name] / (weights * DTYPES[name].itemsize)
            rows.append(summarise(group, contestant.arm, own, turns[0], mean, bound))
        return rows


def main() -> None:
    """Measure what the command line asks for and print it."""
    options = parser().parse_args()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    limit_primitive_cache()
    device = choose_device(Device(options.device))
    try:
        data = synthetic(options.pairs, 1) if options.multi30k is None else multi30k(options.multi30k)
        report = compare(options, data, device)
    except UserError as error:
        sys.exit(str(error))
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n", "utf-8")


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.decoding", description=__doc__.splitlines()[0])
    made.add_argument("--rounds", type=positive, default=5, help="turns of each way (default: 5)")
    made.add_argument("--batches", type=positive, default=4, help="of a turn (default: 4)")
    made.add_argument("--batch-size", type=positive, default=64, help="sentences (default: 64)")
    made.add_argument("--threads", type=positive, help="of torch (default: torch's choice)")
    made.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    made.add_argument("--multi30k", type=Path, metavar="DIR", help="with the raw files train.de, train.en, …")
    made.add_argument("--pairs", type=positive, default=2000, help="random ones, without --multi30k")
    made.add_argument(
        "--joeynmt", type=Path, metavar="PYTHON", help="interpreter of an environment with JoeyNMT"
    )
    made.add_argument("--json", type=Path, metavar="FILE", help="where to write the figures as JSON too")
    return made


def compare(options: argparse.Namespace, data: Data, device: torch.device) -> dict[str, Any]:
    """Measure every way, print a table for each model, and return all figures."""
    speed = {name: bandwidth(dtype, device) for name, dtype in DTYPES.items()}
    given = prepared(data, options.batch_size, device, speed, data.sizes())
    rows = beside_the_tutorial(given, options)
    if options.joeynmt:
        rows += beside_joeynmt(given, options)
    report = {
        "machine": machine(device),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "data": data.name,
        "batch_size": options.batch_size,
        "bytes_per_second": speed,
        "commit": git_commit(),
        "changed_since": git_is_dirty(),
        "rows": [asdict(row) for row in rows],
    }
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    console.print(
        f"{data.name}, batches of {options.batch_size}; {report['machine']}, threads: {report['threads']}, torch "
        f"{torch.__version__}. {rates_line(speed)}."
    )
    for group in dict.fromkeys(row.group for row in rows):
        console.print(table([row for row in rows if row.group == group]))
    return report


def prepared(
    data: Data, batch_size: int, device: torch.device, speed: Mapping[str, float], sizes: Sizes
) -> Given:
    """Return the batches to translate: full ones, in random order."""
    text = data.text.select(torch.arange(min(len(data.text), SENTENCES)))
    plan = [[index] for index in plan_evaluation(text, batch_size) if len(index) == batch_size]
    plan = [plan[i] for i in np.random.default_rng(1).permutation(len(plan))]
    return Given(data, text, plan, batch_size, device, speed, sizes)


def rates_line(speed: Mapping[str, float]) -> str:
    """Return how fast memory is read."""
    return "Memory read at " + ", ".join(f"{rate / 1e9:.1f} GB/s in {name}" for name, rate in speed.items())


def beside_the_tutorial(given: Given, options: argparse.Namespace) -> list[Row]:
    """Measure the package and the tutorial's loop, of the same weights."""
    loop = MODELS["luong"].reference(given.sizes, 0.0).to(given.device).eval()
    package = given.package("luong")
    copy_weights(loop, package)
    batches = BatchMaker(given.text, given.device)
    check_same(loop, package, batches, given.plan[0])
    arm = Arm("tutorial's loop, greedy, one sentence at a time", "loop", "", Precision.fp32)
    contestants = [Contestant(arm, 0, partial(alone, loop, batches, given.plan, given.device))]
    contestants += [*given.ways(package, "greedy"), *given.ways(package, "beam")]
    turns = in_turns(contestants, 1, options.rounds, options.batches)
    return given.rows("Luong 2015: bilinear attention, no input feeding", package, contestants, turns)


def beside_joeynmt(given: Given, options: argparse.Namespace) -> list[Row]:
    """Measure the package and JoeyNMT, greedy search and then the beam, each beside its own."""
    package = given.package("luong_feeding", "attention=additive")
    rows = []
    with joeynmt(options.joeynmt, given.sizes, given.text, given.plan, given.device, 1) as peer:
        for name, size in SIZES.items():
            arm = Arm(f"JoeyNMT 2.3, {name} {size}", "", "", Precision.fp32)
            contestants = [Contestant(arm, 0, partial(asked, peer, size)), *given.ways(package, name)]
            turns = in_turns(contestants, 1, options.rounds, options.batches)
            group = f"JoeyNMT's model: additive attention, input feeding; {name} {size}"
            rows += given.rows(group, package, contestants, turns)
    return rows


def asked(peer: Peer, size: int, first: int, count: int) -> Turn:
    """Have JoeyNMT translate some batches with a beam of some size; 1: greedily."""
    return peer.ask(first, count, size)


@torch.no_grad()
def alone(
    loop: Reference,
    batches: BatchMaker,
    plan: Sequence[StepPlan],
    device: torch.device,
    first: int,
    count: int,
) -> Turn:
    """Translate some sentences of the batches one at a time, reading the chosen token from the device at each step."""
    index = np.concatenate([plan[number % len(plan)][0] for number in range(first, first + count)])[
        ::ALONE_OF
    ]
    sentences = [batches(index[i : i + 1]) for i in range(len(index))]

    def work() -> None:
        for batch in sentences:
            greedy_of_one(loop, batch.source_BS.t(), batch.source_lengths)

    forget(device)
    time = seconds(work, device)
    return Turn(sum(batch.source_lengths[0] for batch in sentences), time, None, peak_memory(device))


def greedy_of_one(loop: Reference, source_S1: torch.Tensor, lengths: tuple[int, ...]) -> list[int]:
    """Return the output of one sentence, as tutorials find it; as long as its source."""
    state, lookup = loop.encode(source_S1, lengths)
    token, said = SOS, []
    for _ in range(lengths[0]):
        embedded_11E = loop.target_embedding(torch.tensor([[token]], device=source_S1.device))
        logits_1V, state = loop.step(embedded_11E, state, lookup)
        logits_1V[:, [PAD, SOS, EOS]] = float("-inf")
        token = int(logits_1V.argmax(-1).item())
        said.append(token)
    return said


@torch.no_grad()
def together(
    model: Seq2Seq,
    search: Search,
    precision: Precision,
    batches: BatchMaker,
    plan: Sequence[StepPlan],
    device: torch.device,
    first: int,
    count: int,
) -> Turn:
    """Translate some batches."""
    chosen = [batches(plan[number % len(plan)][0]) for number in range(first, first + count)]

    def work() -> None:
        for batch in chosen:
            with autocast(precision, device):
                search(model, batch, False)

    forget(device)
    time = seconds(work, device)
    return Turn(sum(sum(batch.source_lengths) for batch in chosen), time, None, peak_memory(device))


@torch.no_grad()
def check_same(loop: Reference, package: Seq2Seq, batches: BatchMaker, step: StepPlan) -> None:
    """Refuse a loop and a package that translate some sentences differently.

    They compute in float64: in float32 two words may be equally probable but for rounding.
    """
    loop, package = deepcopy(loop).double(), deepcopy(package).double()
    some = batches(step[0][:4])
    found = GreedySearch(**LENGTHS)(package, some, False)
    for row, (hypothesis,) in enumerate(found):
        length = some.source_lengths[row]
        said = greedy_of_one(loop, some.source_BS[row : row + 1, :length].t(), (length,))
        if hypothesis.tokens[:length] != said:
            raise UserError(
                "The package's greedy search and the tutorial's loop differ. Mend one of them first: "
                f"{hypothesis.tokens[:length]} and {said}."
            )


def weights_of_a_step(model: Seq2Seq) -> int:
    """Return how many weights one step of decoding reads, whatever the batch: all of decoder and readout but the keys'."""
    read: list[nn.Parameter] = [*model.decoder.parameters(), *model.readout.parameters()]
    unread = [
        parameter
        for name, parameter in model.decoder.named_parameters()
        if name.startswith("bridge.") or ".key" in name
    ]
    return sum(parameter.numel() for parameter in read) - sum(parameter.numel() for parameter in unread)


def summarise(
    group: str, arm: Arm, own: Sequence[Turn], reference: Sequence[Turn], length: float, bound: float
) -> Row:
    """Return the medians of a way's turns, beside those of the first way; `length` is the mean of an output."""
    speeds = [turn.tokens / turn.seconds for turn in own]
    first = [turn.tokens / turn.seconds for turn in reference]
    speed = statistics.median(speeds)
    return Row(
        group=group,
        name=arm.name,
        sentences_per_second=speed / length,
        tokens_per_second=speed,
        slowest=min(speeds),
        fastest=max(speeds),
        times_the_first=statistics.median(a / b for a, b in zip(speeds, first, strict=True)),
        share=speed / bound if arm.code == "package" else None,
    )


def cells(row: Row) -> list[str]:
    """Return a row of a model's table, in the order of `HEADS`."""
    return [
        row.name,
        f"{row.sentences_per_second:,.1f}",
        f"{row.tokens_per_second:,.0f} ({row.slowest:,.0f}–{row.fastest:,.0f})",
        f"{row.times_the_first:.2f}",
        "–" if row.share is None else f"{row.share:.0%}",
    ]


def table(rows: Sequence[Row]) -> Table:
    """Return one model's figures as a table."""
    made = Table(title=rows[0].group)
    for number, head in enumerate(HEADS):
        made.add_column(head, justify="right" if number else "left")
    for row in rows:
        made.add_row(*cells(row))
    return made


if __name__ == "__main__":
    main()
