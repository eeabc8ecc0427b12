"""Compares the speed of models in training and decoding.

    python -m benchmarks.models --multi30k DIR --threads 1 "experiment=multi30k_de_en" "experiment=multi30k_de_en model=attn"

measures target tokens per second of training steps and of greedy and beam search, in turns, in float32 and in the precision
of a run. Each argument is a part of a command line of `seq2seq_lab`. All models need the same data and tokenizer. A training
step is one with teacher forcing, without label smoothing and R-Drop. Decoding uses the models after these steps, without
`<eos>`, so that each output has as many tokens as its source.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch

from benchmarks import cli
from benchmarks.decoding import SEARCHES, precisions, translate, translate_batch, workload
from benchmarks.learners import Data, Package, composed, num_parameters
from benchmarks.training import Arm, mixed_lengths, new_contestant
from benchmarks.turns import Contestant, Speed, in_turns, summarize
from seq2seq_lab.config.schema import Config, Precision
from seq2seq_lab.data.batching import plan_epoch
from seq2seq_lab.data.download import cache_folder
from seq2seq_lab.data.tokenized import tokenize_corpus
from seq2seq_lab.errors import UserError
from seq2seq_lab.evaluate import positive
from seq2seq_lab.runtime.tables import print_table
from seq2seq_lab.tasks.parts import build_dataset, build_tokenizer

HEADS = ("work", "settings", "parameters", "target tokens/s (slowest–fastest)", "speedup (95% interval)")
CHOSEN = ("dataset", "tokenizer")  # what must be equal


@dataclass(frozen=True, kw_only=True)
class Row(Speed):
    """The measurement of one kind of work with one model."""

    work: str
    settings: str
    parameters: int

    def cells(self) -> list[str]:
        """Return the row of a table with `HEADS`."""
        return [self.work, self.settings, f"{self.parameters:,}", self.cell, self.times_cell]


def new_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = cli.new_parser("benchmarks.models", (__doc__ or "").split("\n")[0], batch_size=128)
    parser.add_argument("settings", nargs="+", help="of a model, as on the command line of seq2seq_lab")
    parser.add_argument("--rounds", type=positive, default=15, help="turns of each model (default: 15)")
    parser.add_argument("--multi30k", metavar="DIR", help="dataset.path of all models")
    parser.add_argument("--batches", type=positive, default=1, help="of a turn (default: 1)")
    return parser


def main() -> None:
    """Measure what the command line asks for."""
    cli.run(new_parser(), compare)


def compare(options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Measure each model, print a table, and return the report."""
    if repeated := [one for one in options.settings if options.settings.count(one) > 1]:
        raise UserError(f"{repeated[0]!r} is given more than once. Name each model once.")
    path = [] if options.multi30k is None else [f"dataset.path={options.multi30k}"]
    size = [f"task.batch_size={options.batch_size}", f"seed={options.seed}", "logger=none"]
    configs = [composed(*settings.split(), *path, *size) for settings in options.settings]
    data = read_data(configs, options.settings)
    learners = {
        name: Package(config, data, device) for name, config in zip(options.settings, configs, strict=True)
    }
    rows: list[Row] = []
    for work in (f"training, {precision.value}" for precision in precisions(device)):
        contestants = [training(learner, data, work, options) for learner in learners.values()]
        rows += measure(work, learners, contestants, options)
    for learner in learners.values():
        learner.model.eval()
    for search in SEARCHES:
        for work in (f"{search}, {precision.value}" for precision in precisions(device)):
            contestants = [decoding(learner, data, work, options, device) for learner in learners.values()]
            rows += measure(work, learners, contestants, options)
    print_table(data.name, HEADS, [row.cells() for row in rows], len(HEADS))
    return {"data": data.name, "batch_size": options.batch_size, "rows": list(map(asdict, rows))}


def read_data(configs: Sequence[Config], names: Sequence[str]) -> Data:
    """Return the training data of the settings.

    Raises:
        UserError: they have different data or tokenizers.
    """
    first = configs[0]
    for name, config in zip(names, configs, strict=True):
        for group in CHOSEN:
            if getattr(config, group) != getattr(first, group):
                raise UserError(
                    f"{name!r}: {group} differs from that of {names[0]!r}. Choose the same for all models."
                )
    assert first.tokenizer is not None
    cache = cache_folder(first.cache_dir)
    corpus = tokenize_corpus(build_dataset(first).load(), build_tokenizer(first), first.tokenizer, cache)
    pair = corpus.tokenizers
    name = f"{len(corpus.train):,} training pairs of {type(build_dataset(first)).__name__}"
    return Data(name, corpus.train, pair.source.size, pair.target.size, joint=pair.joint)


def training(learner: Package, data: Data, work: str, options: argparse.Namespace) -> Contestant:
    """Return a contestant that trains."""
    precision = Precision(work.rpartition(", ")[2])
    pad_to = learner.task.settings.pad_to or 1
    plan = plan_epoch(data.text, options.batch_size, "sentences", seed=options.seed, epoch=0, pad_to=pad_to)
    arm = Arm(work, "package", "exact length", precision, reuses_memory=True)
    learner.model.train()
    return new_contestant(learner, arm, mixed_lengths(plan, data), data)


def decoding(
    learner: Package, data: Data, work: str, options: argparse.Namespace, device: torch.device
) -> Contestant:
    """Return a contestant that translates."""
    search, _, precision = work.partition(", ")
    load = workload(data, options.batch_size, device=device, rates={}, peaks={}, sizes=data.sizes())
    translate_one = partial(translate_batch, SEARCHES[search], learner.model, Precision(precision))
    return partial(translate, load, translate_one, every=1, reuse=True)


def measure(
    work: str, learners: dict[str, Package], contestants: Sequence[Contestant], options: argparse.Namespace
) -> list[Row]:
    """Return the rows of one kind of work."""
    turns = in_turns(contestants, 2, options.rounds, options.batches)
    return [
        Row(work=work, settings=name, parameters=num_parameters(learner.model), **summarize(own, turns[0]))
        for (name, learner), own in zip(learners.items(), turns, strict=True)
    ]


if __name__ == "__main__":
    main()
