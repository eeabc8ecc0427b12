"""Compares the decoding speed of the package with that of a tutorial's loop and of JoeyNMT.

    python -m benchmarks.decoding --multi30k DIR --threads 2 --json docs/decoding.cpu.json

measures source sentences and target tokens per second of batched greedy and beam search, in turns. The tutorial's loop
translates one sentence at a time with a model of `benchmarks.reference`; the model of the package has the same weights, and
both are checked to return the same translations. Weights are random and `<eos>` is only allowed at the end, so that each
output is as long as its source or one token longer.

`--joeynmt PYTHON` adds JoeyNMT's search with the recurrent model of JoeyNMT 2.3, beside the package's search with a model
of the same architecture and sizes. PYTHON is the interpreter of an environment that has JoeyNMT. JoeyNMT's outputs are as
long as the longest source of their batch; only as many tokens as the source has are counted.

The bound is the speed at which a step takes no longer than reading its weights from memory once, at the machine's bandwidth,
and computing its matrix products, at the machine's peak; the slower of the two decides (`benchmarks.flops` counts products).
"""

import argparse
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import cli
from benchmarks.flops import Tokens
from benchmarks.learners import MODELS, Data, copy_weights, multi30k, package, synthetic
from benchmarks.machine import DTYPES, bandwidth, matrix_product_peak, peaks_line, seconds
from benchmarks.reference import Reference, Sizes
from benchmarks.turns import Contestant, Speed, Turn, in_turns, reset_memory, summarize
from seq2seq_lab.config.schema import Precision
from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.batching import BatchMaker, StepPlan, plan_evaluation
from seq2seq_lab.data.tokenized import TokenizedText
from seq2seq_lab.data.tokenizers import EOS, PAD, SOS
from seq2seq_lab.errors import UserError
from seq2seq_lab.evaluate import positive
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.runtime import console
from seq2seq_lab.runtime.device import autocast, choose_precision
from seq2seq_lab.runtime.tables import print_table
from seq2seq_lab.search.base import Search
from seq2seq_lab.search.beam import BeamSearch
from seq2seq_lab.search.greedy import GreedySearch

SENTENCES = 2000  # that are translated, repeatedly
LENGTHS: dict[str, Any] = {"min_length_factor": 1.0, "max_length_factor": 1.0, "max_length_extra": 1}
SIZES = {"greedy": 1, "beam": 5}
SEARCHES: dict[str, Search] = {
    "greedy": GreedySearch(**LENGTHS),
    "beam": BeamSearch(
        size=SIZES["beam"], length_penalty=0.6, length_offset=5, coverage_penalty=0.0, nbest=1, **LENGTHS
    ),
}
LOOP_SHARE = 8  # the tutorial's loop translates every 8th sentence only, because it is by far the slowest
GROUP = "Luong 2015: bilinear attention, no input feeding"
LOOP = "tutorial's loop, greedy, one sentence at a time"
HEADS = (
    "search",
    "sentences/s",
    "target tokens/s (slowest–fastest)",
    "speedup (95% interval)",
    "of the bound",
)


@dataclass(frozen=True, kw_only=True)
class Row(Speed):
    """The measurement of a search; `share` is that of the bound, None for code other than the package's."""

    group: str
    name: str
    sentences_per_second: float
    share: float | None

    def cells(self) -> list[str]:
        """Return the row of a table with `HEADS`."""
        return [
            *(self.name, f"{self.sentences_per_second:,.1f}", self.cell, self.times_cell),
            "–" if self.share is None else f"{self.share:.0%}",
        ]


@dataclass(frozen=True, slots=True)
class Workload:
    """What is translated: sentences in batches.

    Attributes:
        rates: bytes read from memory per second, by precision.
        peaks: operations per second of matrix products, by precision.
    """

    data: Data
    text: TokenizedText
    plan: Sequence[StepPlan]
    device: torch.device
    rates: Mapping[str, float]
    peaks: Mapping[str, float]
    sizes: Sizes

    @property
    def batch_size(self) -> int:
        """Sentences per batch."""
        return len(self.plan[0][0])

    def package(self, name: str, *overrides: str) -> Seq2Seq:
        """Return the model of a bundle at these sizes."""
        made = package(name, self.data, self.device, *overrides, sizes=self.sizes, dropout=0.0)
        return made.model.eval()

    @property
    def lengths(self) -> list[int]:
        """The source lengths of all sentences."""
        index = torch.tensor(np.concatenate([step[0] for step in self.plan]))
        return [int(length) for length in self.text.lengths[index]]

    def index(self, first: int, count: int) -> list[Any]:
        """Return the sentences of some batches, in the order of the plan and then from its start."""
        return [self.plan[index % len(self.plan)][0] for index in range(first, first + count)]


def main() -> None:
    """Measure what the command line asks for."""
    parser = cli.new_parser("benchmarks.decoding", (__doc__ or "").split("\n")[0], batch_size=64)
    cli.add_comparison(parser, pairs=SENTENCES, rounds=20)
    parser.add_argument("--batches", type=positive, default=1, help="of a turn (default: 1)")
    parser.add_argument(
        "--joeynmt", type=Path, metavar="PYTHON", help="interpreter of an environment with JoeyNMT"
    )
    cli.run(parser, compare)


def compare(options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Measure each search, print a table for each model, and return the report."""
    data = synthetic(options.pairs, options.seed) if options.multi30k is None else multi30k(options.multi30k)
    rates = {name: bandwidth(dtype, device) for name, dtype in DTYPES.items()}
    peaks = {name: matrix_product_peak(dtype, device) for name, dtype in DTYPES.items()}
    work = workload(data, options.batch_size, device=device, rates=rates, peaks=peaks, sizes=data.sizes())
    rows = measure(work, options)
    console.console().print(
        f"{data.name}, batches of {options.batch_size}. {rates_line(rates)}. {peaks_line(peaks)}."
    )
    for group in dict.fromkeys(row.group for row in rows):
        cells = [row.cells() for row in rows if row.group == group]
        print_table(group, HEADS, cells, len(HEADS) - 1)
    return {
        "data": data.name,
        "batch_size": options.batch_size,
        "bytes_per_second": rates,
        "peak_flops_per_second": peaks,
        "rows": list(map(asdict, rows)),
    }


def workload(
    data: Data,
    batch_size: int,
    *,
    device: torch.device,
    rates: Mapping[str, float],
    peaks: Mapping[str, float],
    sizes: Sizes,
) -> Workload:
    """Return full batches in random order.

    Raises:
        UserError: a batch has more sentences than the data.
    """
    text = data.text.select(torch.arange(min(len(data.text), SENTENCES)))
    batches = [[index] for index in plan_evaluation(text, batch_size) if len(index) == batch_size]
    if not batches:
        raise UserError(
            f"--batch-size={batch_size}: there are only {len(text)} sentences. Choose a smaller batch."
        )
    order = np.random.default_rng(1).permutation(len(batches))
    return Workload(data, text, [batches[i] for i in order], device, rates, peaks, sizes)


def rates_line(rates: Mapping[str, float]) -> str:
    """Return the memory bandwidth as text."""
    return "Memory read at " + ", ".join(f"{rate / 1e9:.1f} GB/s in {name}" for name, rate in rates.items())


def measure(work: Workload, options: argparse.Namespace) -> list[Row]:
    """Measure the package and a tutorial's loop with the same weights, then the package and JoeyNMT."""
    loop = MODELS["luong"].reference(work.sizes, 0.0).to(work.device).eval()
    package = work.package("luong")
    copy_weights(loop, package)
    check_same(loop, package, work)
    contestants: dict[str, Contestant] = {
        LOOP: partial(translate, work, partial(translate_singly, loop), every=LOOP_SHARE, reuse=False),
        **searches(work, package, "greedy"),
        **searches(work, package, "beam"),
    }
    rows = measure_group(GROUP, contestants, work, package, options)
    if options.joeynmt is not None:
        package = work.package("luong_feeding", "attention=additive")
        with start_joeynmt(options.joeynmt, work) as translate_with_joeynmt:
            for name, size in SIZES.items():
                contestants = {
                    f"JoeyNMT 2.3, {name} {size}": partial(translate_with_joeynmt, size),
                    **searches(work, package, name),
                }
                group = f"JoeyNMT's model: additive attention, input feeding; {name} {size}"
                rows += measure_group(group, contestants, work, None, options)
    return rows


def measure_group(
    group: str,
    contestants: Mapping[str, Contestant],
    work: Workload,
    bounded: Seq2Seq | None,
    options: argparse.Namespace,
) -> list[Row]:
    """Measure contestants in turns.

    Args:
        bounded: the model of the package's contestants, if their share of the bound is wanted.
    """
    every = in_turns([*contestants.values()], 1, options.rounds, options.batches)
    length, rows = float(np.mean(work.lengths)), []
    for name, turns in zip(contestants, every, strict=True):
        speed = summarize(turns, every[0])
        share = None
        if bounded is not None and name.startswith("package"):
            _, search, precision = name.split(", ")  # as `searches` writes it
            share = speed["tokens_per_second"] / bound(work, bounded, int(search.split()[1]), precision)
        sentences = speed["tokens_per_second"] / length
        rows.append(Row(group=group, name=name, sentences_per_second=sentences, share=share, **speed))
    return rows


@contextmanager
def start_joeynmt(python: Path, work: Workload) -> Iterator[Callable[[int, int, int], Turn]]:
    """Start JoeyNMT, and return a function that translates with it: (size of the beam, first batch, number of batches).

    Raises:
        UserError: the interpreter does not exist, or JoeyNMT does not run in it.
    """
    settings = asdict(work.sizes) | {"threads": torch.get_num_threads(), "device": work.device.type}
    with tempfile.TemporaryDirectory() as folder:
        data, described = Path(folder, "data.npz"), Path(folder, "settings.json")
        source = work.text.source
        batches = np.stack([step[0] for step in work.plan])
        np.savez(data, tokens=source.tokens.numpy(), offsets=source.offsets.numpy(), batches=batches)
        described.write_text(json.dumps(settings), "utf-8")
        command = [python, Path(__file__).with_name("joeynmt_worker.py"), data, described]
        try:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        except OSError as error:
            raise UserError(
                f"--joeynmt={python} cannot be started ({error.strerror}). Give the Python interpreter of an environment "
                f"with JoeyNMT 2.3, for example FOLDER/bin/python."
            ) from error
        with process:
            requests, answers = process.stdin, process.stdout
            assert requests is not None
            assert answers is not None

            def read() -> dict[str, float]:
                line = answers.readline()
                if not line:
                    raise UserError(
                        f"--joeynmt={python}: JoeyNMT ended with code {process.wait()}; its message is above. The "
                        f"environment needs `pip install joeynmt==2.3.0 importlib_metadata`."
                    )
                values: dict[str, float] = json.loads(line)
                return values

            def translate_batches(beam: int, first: int, count: int) -> Turn:
                with suppress(BrokenPipeError):  # `read` reports that JoeyNMT has ended
                    requests.write(f"{first} {count} {beam}\n".encode())
                values = read()
                return Turn(int(values["tokens"]), values["seconds"])

            read()  # after the model has been built
            yield translate_batches


def bound(work: Workload, model: Seq2Seq, beam: int, precision: str) -> float:
    """Return target tokens per second at the speed of memory or of matrix products, whichever is slower."""
    step_bytes = weights_of_a_step(model) * DTYPES[precision].itemsize
    lengths = work.lengths
    one = Tokens.of(lengths, lengths)
    # In the first step a sentence has one prefix, in the others `beam` prefixes.
    rows = sum(1 + beam * (length - 1) for length in lengths)
    pairs = sum(length * (1 + beam * (length - 1)) for length in lengths)
    products = MODELS["luong"].forward_flops(work.sizes, replace(one, target=rows, pairs=pairs))
    return min(
        work.batch_size * work.rates[precision] / step_bytes, one.target * work.peaks[precision] / products
    )


def precisions(device: torch.device) -> list[Precision]:
    """Return float32 and the precision of a run."""
    return [*dict.fromkeys((Precision.fp32, choose_precision(Precision.auto, device)))]


def searches(work: Workload, model: Seq2Seq, name: str) -> dict[str, Contestant]:
    """Return a search of the package, in float32 and in the precision of a run."""
    return {
        f"package, {name} {SIZES[name]}, {precision.value}": partial(
            translate, work, partial(translate_batch, SEARCHES[name], model, precision), every=1, reuse=True
        )
        for precision in precisions(work.device)
    }


def translate_singly(loop: Reference, batch: Batch) -> None:
    """Translate the sentences of a batch one at a time; each step reads the chosen token from the device."""
    for row, length in enumerate(batch.source_lengths):
        greedy_tokens(loop, batch.source_BS[row : row + 1, :length].t(), (length,))


def greedy_tokens(loop: Reference, source_S1: torch.Tensor, lengths: tuple[int, ...]) -> list[int]:
    """Return the translation of one sentence, of the length of its source."""
    state, lookup = loop.encode(source_S1, lengths)
    token, tokens = SOS, []
    for _ in range(lengths[0]):
        embedded_11E = loop.target_embedding(torch.tensor([[token]], device=source_S1.device))
        logits_1V, state = loop.step(embedded_11E, state, lookup)
        logits_1V[:, [PAD, SOS, EOS]] = float("-inf")
        token = int(logits_1V.argmax(-1).item())
        tokens.append(token)
    return tokens


@torch.no_grad()
def translate(
    work: Workload, search: Callable[[Batch], object], first: int, count: int, *, every: int, reuse: bool
) -> Turn:
    """Translate some batches. The first one is translated once before, unmeasured.

    Args:
        first, count: the index of the first batch, and the number of batches.
        every: only every `every`-th sentence is translated.
        reuse: keep freed memory, as in a run of the package.
    """
    batches = BatchMaker(work.text, work.device)
    chosen = [batches(index[::every]) for index in work.index(first, count)]

    def run() -> None:
        for batch in chosen:
            search(batch)

    reset_memory(work.device, reuse=reuse)
    search(chosen[0])
    time = seconds(run, work.device)
    return Turn(sum(sum(batch.source_lengths) for batch in chosen), time)


def translate_batch(search: Search, model: Seq2Seq, precision: Precision, batch: Batch) -> None:
    """Translate a batch."""
    with autocast(precision, batch.source_BS.device):
        search(model, batch, False)


@torch.no_grad()
def check_same(loop: Reference, package: Seq2Seq, work: Workload) -> None:
    """Check that loop and package translate some sentences alike, in float64: in float32, rounding may decide ties.

    Raises:
        UserError: they do not.
    """
    loop, package = deepcopy(loop).double(), deepcopy(package).double()
    some = BatchMaker(work.text, work.device)(work.plan[0][0][:4])
    for row, (hypothesis,) in enumerate(GreedySearch(**LENGTHS)(package, some, False)):
        length = some.source_lengths[row]
        expected = greedy_tokens(loop, some.source_BS[row : row + 1, :length].t(), (length,))
        if hypothesis.tokens[:length] != expected:
            raise UserError(
                f"The greedy search of the package returns {hypothesis.tokens[:length]}, the tutorial's loop {expected}. "
                f"Correct one of them."
            )


def weights_of_a_step(model: Seq2Seq) -> int:
    """Return the number of weights that each step reads: those of decoder and readout, without bridge and keys."""
    decoder = [
        weight
        for name, weight in model.decoder.named_parameters()
        if not name.startswith("bridge.") and ".key" not in name
    ]
    return sum(weight.numel() for weight in (*decoder, *model.readout.parameters()))


if __name__ == "__main__":
    main()
