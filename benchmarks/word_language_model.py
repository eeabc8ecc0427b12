"""PyTorch's example word_language_model beside `experiment=word_language_model`, on the same text.

    python -m benchmarks.word_language_model text FOLDER --train FILE --valid FILE --test FILE
    python -m benchmarks.planned run RUNS --only word_language_model --path TRAIN=… --path VALID=… --path TEST=…
    python -m benchmarks.word_language_model example SCRIPT FOLDER --json docs/word_language_model.json

`text` writes train.txt, valid.txt and test.txt in the format of the Penn Treebank: lowercase, with spaces around
punctuation, and with words that occur once in the training text replaced by `<unk>`. `example` trains the main.py of the
example on them.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from benchmarks.machine import machine
from benchmarks.page import NOT_RECORDED, filled, table
from seq2seq_lab.errors import UserError
from seq2seq_lab.runtime.tables import mean_and_deviation

EPOCHS = 10  # as in the planned runs
SPLITS = ("train", "valid", "test")
UNKNOWN = "<unk>"
COMMAND = (
    "python -m benchmarks.word_language_model example SCRIPT FOLDER --json docs/word_language_model.json"
)
SCORES = (  # of the report: the name, the head in the table, the format and the unit
    ("test", "perplexity per word", ".2f", 1),
    ("val", "validation perplexity per word", ".2f", 1),
    ("seconds", "whole command, min", ".1f", 60),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run an action of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.word_language_model", description=(__doc__ or "").split("\n")[0]
    )
    actions = parser.add_subparsers(dest="action", required=True)
    writer = actions.add_parser("text", help="write train.txt, valid.txt and test.txt")
    writer.add_argument("folder", type=Path)
    for split in SPLITS:
        writer.add_argument(f"--{split}", type=Path, required=True, metavar="FILE")
    trainer = actions.add_parser("example", help="train the main.py of the example")
    trainer.add_argument("script", type=Path)
    trainer.add_argument("folder", type=Path)
    trainer.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    trainer.add_argument("--epochs", type=int, default=EPOCHS)
    trainer.add_argument("--json", type=Path, metavar="FILE", help="write the perplexities to this file")
    options = parser.parse_args(arguments)
    if options.action == "text":
        texts = {split: getattr(options, split).read_text("utf-8").splitlines() for split in SPLITS}
        options.folder.mkdir(parents=True, exist_ok=True)
        for split, lines in penn_format(texts).items():
            (options.folder / f"{split}.txt").write_text("".join(f" {line} \n" for line in lines), "utf-8")
        return
    threads = torch.get_num_threads()
    report: dict[str, Any] = {
        "script": hashlib.sha256(options.script.read_bytes()).hexdigest(),
        "machine": f"{threads} thread{'s' * (threads > 1)} of {machine()}",
        "torch": torch.__version__.partition("+")[0],
        "epochs": options.epochs,
        "runs": [],
    }
    for seed in options.seeds:
        report["runs"].append(train_example(options.script, options.folder, seed, options.epochs))
        print(json.dumps(report["runs"][-1]), flush=True)
        if options.json:
            options.json.write_text(json.dumps(report, indent=2) + "\n", "utf-8")


def example_table(path: Path) -> list[str]:
    """Return a table of the perplexities of the example in a report of `example`, or a sentence if there is none."""
    if not path.exists():
        return [f"{NOT_RECORDED} `{COMMAND}` trains the example."]
    report = json.loads(path.read_text("utf-8"))
    runs = report["runs"]
    rows = [["seeds", ", ".join(str(run["seed"]) for run in runs)]]
    for name, head, form, unit in SCORES:
        rows.append([f"{head} ± std", mean_and_deviation([run[name] / unit for run in runs], form)])
    about = (
        f"- command: `{COMMAND} --epochs {report['epochs']}`; SHA-256 of SCRIPT: {report['script'][:16]}…; machine: "
        f"{report['machine']}, torch {report['torch']}, fp32"
    )
    return [*filled(about, "  "), "", *table(["test, the example of PyTorch", ""], rows, 1)]


def penn_format(texts: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the lines of each split in the format of the Penn Treebank, without empty ones."""
    tokenize = Tokenizer13a()  # type: ignore[no-untyped-call]
    words = {
        split: [line.split() for text in lines if (line := tokenize(text.lower()))]
        for split, lines in texts.items()
    }
    counts = Counter(word for line in words["train"] for word in line)
    return {
        split: [" ".join(word if counts[word] > 1 else UNKNOWN for word in line) for line in lines]
        for split, lines in words.items()
    }


def train_example(script: Path, folder: Path, seed: int, epochs: int) -> dict[str, Any]:
    """Train the example with its default settings and return its perplexities and its time.

    Raises:
        UserError: the script fails, or a perplexity is not a number.
    """
    # The example loads its own checkpoint, a whole module.
    environment = os.environ | {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
    start = time.perf_counter()
    with TemporaryDirectory() as saved:
        command = [sys.executable, script.name, "--data", str(folder.resolve()), "--seed", str(seed)]
        command += ["--epochs", str(epochs), "--save", f"{saved}/model.pt"]
        done = subprocess.run(
            command, cwd=script.resolve().parent, env=environment, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise UserError(f"{script} ended with code {done.returncode}:\n{done.stderr[-2000:]}")
    validation, test = (
        [float(one) for one in re.findall(rf"{split} ppl +([\d.]+)", done.stdout)]
        for split in ("valid", "test")
    )
    if len(validation) < epochs or len(test) != 1:
        raise UserError(
            f"{script} with --seed {seed} has not printed a perplexity for each epoch and the test set."
        )
    seconds = round(time.perf_counter() - start, 1)
    return {"seed": seed, "val": min(validation), "test": test[0], "seconds": seconds}


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
