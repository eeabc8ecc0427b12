"""Checks and measures the questions about one sentence that the studio asks: trace, score, attribute, intervene, neighbors.

    python -m benchmarks.studio right FOLDER
    python -m benchmarks.studio fast

`right` trains a small run of each kind in FOLDER, unless it is there, and compares the answers with the functions that they
name, for the sentences of its test set. A difference of 0 means equal to the last bit. `fast` measures the run of the
package, in CPU time of one thread: each ratio is the median over sentences of two times that are measured in turns.
"""

import argparse
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch

import seq2seq_lab
from benchmarks.machine import machine
from seq2seq_lab.analysis import neighbors
from seq2seq_lab.analysis.attributions import attribute
from seq2seq_lab.analysis.interventions import intervene
from seq2seq_lab.analysis.plain import plain
from seq2seq_lab.errors import UserError
from seq2seq_lab.evaluate import positive
from seq2seq_lab.launching.evaluation import read_data
from seq2seq_lab.runtime.console import progress_bar
from seq2seq_lab.runtime.tables import print_table

SMALL = (
    *("dataset.train=2000", "dataset.validation=100", "dataset.test=200", "dataset.test_compositional=0"),
    *(
        "model.embedding_size=48",
        "model.hidden_size=64",
        "model.encoder_hidden_size=64",
        "trainer.max_epochs=3",
    ),
    *("task.samples=0", "logger=none", "trainer.device=cpu", "trainer.precision=fp32"),
)
KINDS: dict[str, tuple[str, ...]] = {
    "attention after": ("decoder=luong",),
    "attention before": ("decoder=bahdanau",),
    "input feeding": ("decoder=luong_feeding",),
    "coverage": ("decoder=bahdanau", "attention=coverage"),
    "transformer": (
        "model=transformer",
        "model.num_heads=4",
        "model.feedforward_size=128",
        "model.num_layers=2",
    ),
    "vanilla": ("model=vanilla",),
    "subwords": ("decoder=luong", "tokenizer=bpe", "tokenizer.vocab_size=600"),
}
BEAM = ("search=beam", "search.size=5", "search.nbest=5")
CLOSE = 1e-4  # nats
REPEATS = 5


@dataclass
class Check:
    """The largest difference that a comparison found.

    Attributes:
        limit: the largest one that is allowed.
        count: the number of comparisons.
    """

    limit: float
    largest: float = 0.0
    count: int = 0

    def add(self, one: Any, other: Any) -> None:
        """Compare numbers, or other values for equality."""
        self.count += 1
        if isinstance(one, str | bool | list) and not _numbers(one):
            self.largest = max(self.largest, 0.0 if one == other else float("inf"))
            return
        ours, theirs = (np.asarray(value, np.float64) for value in (one, other))
        if ours.shape != theirs.shape:
            self.largest = float("inf")
        elif ours.size:
            equal = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
            self.largest = max(self.largest, float(np.where(equal, 0, abs(ours - theirs)).max()))


def _numbers(value: Any) -> bool:
    while isinstance(value, list) and value:
        value = value[0]
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass
class Checks:
    """Comparisons by name."""

    found: dict[str, Check] = field(default_factory=dict)

    def __call__(self, name: str, one: Any, other: Any, limit: float = 0.0) -> None:
        """Compare two values; see `Check.add`."""
        self.found.setdefault(name, Check(limit)).add(one, other)


def trained(folder: Path, settings: Sequence[str]) -> Any:
    """Return the run in a folder; train it first if it is not there."""
    if not (folder / "result.json").is_file():
        seq2seq_lab.train([*SMALL, *settings], folder)
    torch.set_num_threads(1)
    return seq2seq_lab.load(folder, device="cpu", changes=BEAM)


def sentences_of(run: Any, count: int) -> list[tuple[str, str]]:
    """Return test sentences with their references."""
    text = read_data(run, False).tests[0].text
    return [*zip(text.source, text.target, strict=True)][:count]


def check_run(run: Any, pairs: Sequence[tuple[str, str]], advance: Callable[[int, int], None]) -> Checks:
    """Compare the answers for some sentence pairs with the functions that they name."""
    check = Checks()
    for index, (source, target) in enumerate(pairs):
        check_trace(run, source, check)
        check_questions(run, source, target, check)
        advance(index + 1, len(pairs))
    return check


def check_trace(run: Any, source: str, check: Checks) -> None:
    """Compare a trace with the predictions, their scores, and traces that force its outputs."""
    traced, predicted = run.trace(source), run.nbest([source], join_subwords=False)[0]
    found = traced.as_json()
    check("outputs", [one["text"] for one in found["outputs"]], [one.text for one in predicted])
    check(
        "log p, predict", [one["log_prob"] for one in found["outputs"]], [one.log_prob for one in predicted]
    )
    check("score, predict", [one["score"] for one in found["outputs"]], [one.score for one in predicted])
    leaves = sorted(node["output"] for node in found["tree"] if node["state"] == "finished")
    check("leaves", leaves, [*range(len(predicted))])
    scored = run.score([source] * len(predicted), [one.text for one in predicted])
    for output, own, one in zip(traced.outputs, scored, predicted, strict=True):
        if one.attention is not None:
            check("attention, predict", plain(output.attention), one.attention.tolist())
        if [token.text for token in output.tokens] == own.tokens:
            check("log p of tokens, score", output.log_probs, own.log_probs, CLOSE)
            check("entropy, score", output.entropies, own.entropies, CLOSE)
            check("ranks, score", output.ranks, own.ranks, 1)
        ids = [token.id for token in output.tokens]
        forced = run.trace(source, ids).best
        check("forced output", [token.id for token in forced.tokens], ids)
        check("log p of a forced output", forced.log_prob, output.log_prob, CLOSE)
    if traced.no_attention is None:
        greedy = run.trace(source, search=("search=greedy",))
        middle = len(greedy.steps) // 2
        row = {"kind": "uniform", "step": middle}
        changed = run.trace(source, change=row, before=greedy)
        check(
            "tokens before a change", changed.best.log_probs[:middle], greedy.best.log_probs[:middle], CLOSE
        )
        check("undo", plain(run.trace(source, search=("search=greedy",))) == plain(greedy), True)


def check_questions(run: Any, source: str, target: str, check: Checks) -> None:
    """Compare the plain data of scores, attributions and interventions with their functions."""
    (scored,) = run.score([source], [target])
    tokens = scored.as_json()["tokens"]
    check("score", [one["log_prob"] for one in tokens], scored.log_probs)
    attends = run.model.attends
    methods = ["grad_x_input", *(["attention"] if attends else [])]
    found = run.attribute(source, target, methods).as_json()["scores"]
    for name, one in attribute(run.question(source, target), methods).items():
        check("attribute", found[name], one.scores_TU)
    if attends:
        effects = run.intervene(source, target, ["uniform", "permute"]).as_json()["effects"]
        expected = intervene(run.model, run.forced([source], [target]), ["uniform", "permute"], ["step"])
        for effect, known in zip(effects, expected.values(), strict=True):
            check("intervene", effect["tokens"]["log_prob_change"], known.log_prob_change)


def right(folder: Path, count: int, only: Sequence[str]) -> bool:
    """Check a run of each kind; print the largest differences and return whether all are allowed."""
    passed = True
    for name in only or KINDS:
        run = trained(folder / name.replace(" ", "_"), KINDS[name])
        pairs = sentences_of(run, count)
        with progress_bar(name) as advance:
            found = check_run(run, pairs, advance).found
        passed &= all(one.largest <= one.limit for one in found.values())
        rows = [
            [what, f"{one.count:,}", f"{one.largest:.3g}", f"≤ {one.limit:g}" if one.limit else "equal"]
            for what, one in found.items()
        ]
        heads = ["what", "comparisons", "largest difference", "allowed"]
        print_table(f"{name}: {len(pairs)} sentences", heads, rows, 2)
    return passed


def times(works: Sequence[Callable[[], object]]) -> list[float]:
    """Return the shortest CPU time in milliseconds of each function; they are measured in turns."""
    best = [float("inf")] * len(works)
    for turn in range(REPEATS + 1):
        for index, work in enumerate(works):
            begin = process_time()
            work()
            if turn:  # the first turn fills caches
                best[index] = min(best[index], 1000 * (process_time() - begin))
    return best


def fast(count: int) -> None:
    """Measure the run of the package; print the medians over sentences."""
    torch.set_num_threads(1)
    found: dict[str, list[float]] = defaultdict(list)
    for search in ("greedy", "beam"):
        run = seq2seq_lab.load("demo", device="cpu", changes=[f"search={search}"])
        pairs = sentences_of(seq2seq_lab.load("demo", device="cpu", changes=[f"dataset.test={count}"]), count)
        with progress_bar(search) as advance:
            for index, (source, _) in enumerate(pairs):
                for name, value in measure(run, search, source):
                    found[name].append(value)
                advance(index + 1, len(pairs))
    rows = [
        [name, f"{statistics.median(values):.2f}", f"{len(values):,}"]
        for name, values in sorted(found.items())
    ]
    print_table(f"Medians; {machine(torch.device('cpu'))}", ["what", "median", "sentences"], rows, 2)


def measure(run: Any, search: str, source: str) -> Iterator[tuple[str, float]]:
    """Yield the names and values of the measurements of one sentence."""
    traced = run.trace(source)
    steps = len(traced.steps)
    changes = {share: int(share * steps) for share in (0.25, 0.5, 0.75)}
    works = [
        lambda: run.predict([source]),
        lambda: run.trace(source),
        *(
            lambda step=step: run.trace(source, change={"kind": "uniform", "step": step}, before=traced)
            for step in changes.values()
        ),
        *(lambda state=state: run.neighbors(source, 1, state, traced=traced) for state in neighbors.KINDS),
    ]
    predicted, trace, *others = times(works if search == "greedy" else works[: -len(neighbors.KINDS)])
    yield f"{search}: trace / predict, limit 1.3", trace / predicted
    yield f"{search}: trace, ms per token", trace / steps
    for (share, step), one in zip(changes.items(), others[:3], strict=True):
        allowed = (steps - step + 2) / steps
        yield (
            f"{search}: change at {share:.0%} / predict / ((T − t + 2) / T), limit 1",
            one / predicted / allowed,
        )
    for state, one in zip(neighbors.KINDS, others[3:], strict=False):
        yield f"neighbors, {state}, ms, limit 30", one


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studio", description=__doc__)
    parser.add_argument("what", choices=["right", "fast"])
    parser.add_argument("folder", nargs="?", type=Path, help="of the runs, for `right`")
    parser.add_argument("--sentences", type=positive, default=200, help="(default: 200)")
    parser.add_argument(
        "--only", action="append", choices=[*KINDS], help="a kind of run; may be given several times"
    )
    options = parser.parse_args()
    if options.what == "fast":
        fast(options.sentences)
        return
    try:
        if options.folder is None:
            raise UserError("right needs FOLDER, the folder of the runs.")
        if not right(options.folder, options.sentences, options.only or []):
            sys.exit(1)
    except UserError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
