"""How fast, and in how much memory, a large parallel corpus is read, tokenised and batched.

    python -m benchmarks.data --pairs 5000000

writes a synthetic tab-separated file, takes it through the same steps as a run, and prints pairs a second and
the peak of resident memory of each. `--file` takes a file of one's own, `--tokenizer` another tokenizer.
"""

import argparse
import json
import logging
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import hydra
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.machine import machine
from seq2seq_lab import build
from seq2seq_lab.config import schema as config
from seq2seq_lab.data.batching import BatchMaker, plan_epoch
from seq2seq_lab.data.progress import progress
from seq2seq_lab.data.tokenized import tokenize_corpus
from seq2seq_lab.runtime.device import peak_memory, reset_peak_memory

CPU = torch.device("cpu")
WORDS = 50_000
CHUNK = 100_000
BATCH_SIZE = 128


def main() -> None:
    """Measure the steps and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.data", description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=1_000_000, help="sentence pairs of the synthetic file")
    parser.add_argument("--file", type=Path, help="a tab-separated file to use instead")
    parser.add_argument("--tokenizer", default="bpe", help="a value of the config group (default: bpe)")
    parser.add_argument("--json", type=Path, help="where to write the figures as JSON too")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")  # progress where there is no terminal
    with tempfile.TemporaryDirectory() as folder:
        file = options.file
        if file is None:
            file = Path(folder, "pairs.tsv")
            write_pairs(file, options.pairs)
        rows = measure(file, options.tokenizer, Path(folder, "cache"))
        size = file.stat().st_size
    table = Table(title=f"{options.tokenizer}, {size / 2**20:,.0f} MiB of text, {machine()}")
    for column in ("step", "seconds", "pairs/s", "peak memory"):
        table.add_column(column, justify="left" if column == "step" else "right")
    for row in rows:
        memory = f"{row['peak_bytes'] / 2**30:.2f} GiB"
        table.add_row(
            str(row["step"]), f"{row['seconds']:.1f}", f"{row['pairs'] / row['seconds']:,.0f}", memory
        )
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "steps": rows}, indent=2) + "\n", "utf-8")


def write_pairs(path: Path, pairs: int) -> None:
    """Write random sentences of 3 to 25 words and their word-by-word translation; words are Zipf's."""
    generator = np.random.default_rng(1)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    sides = [
        ["".join(generator.choice(letters, size)) for size in generator.integers(2, 11, WORDS)]
        for _ in range(2)
    ]
    frequency = 1 / np.arange(1, WORDS + 1)
    cumulative = np.cumsum(frequency / frequency.sum())
    with path.open("w", encoding="utf-8") as file:
        for start in progress(range(0, pairs, CHUNK), "Writing", len(range(0, pairs, CHUNK))):
            lengths = generator.integers(3, 26, min(CHUNK, pairs - start))
            words = np.searchsorted(cumulative, generator.random(int(lengths.sum()))).clip(max=WORDS - 1)
            for sentence in np.split(words, np.cumsum(lengths)[:-1]):
                numbers = sentence.tolist()
                file.write("\t".join(" ".join([side[i] for i in numbers]) for side in sides) + "\n")


def measure(file: Path, tokenizer: str, cache: Path) -> list[dict[str, float | str]]:
    """Take a file from reading to the batches of an epoch, as a run does."""
    overrides = ["dataset=parallel", f"dataset.train='{file}'", f"tokenizer={tokenizer}"]
    with hydra.initialize_config_dir(str(config.CONF_DIR), version_base="1.3"):
        settings = config.typed(hydra.compose("config", overrides))
    rows: list[dict[str, float | str]] = []

    @contextmanager
    def step(name: str) -> Iterator[None]:
        reset_peak_memory(CPU)
        start = time.perf_counter()
        yield
        rows.append(
            {"step": name, "seconds": time.perf_counter() - start, "peak_bytes": peak_memory(CPU), "pairs": 0}
        )

    with step("read, split, look for repeats"):
        corpus = build.dataset(settings).load()
    pairs = len(corpus.train) + len(corpus.validation) + sum(map(len, corpus.tests.values()))
    with step("fit the tokenizer and encode"):
        tokenized = tokenize_corpus(corpus, build.tokenizer(settings), settings.tokenizer, cache)
    del tokenized
    with step("read it from the cache"):
        tokenized = tokenize_corpus(corpus, build.tokenizer(settings), settings.tokenizer, cache)
    with step("plan an epoch"):
        plan = plan_epoch(tokenized.train, BATCH_SIZE, "sentences", seed=1, epoch=0)
    with step("make its batches"):
        batches = BatchMaker(tokenized.train, CPU)
        for update in progress(plan, "Batches", len(plan)):
            for index in update:
                batches(index)
    for row in rows:
        row["pairs"] = pairs
    return rows


if __name__ == "__main__":
    main()
