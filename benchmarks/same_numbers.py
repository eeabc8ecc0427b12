"""Check that two commits compute the same numbers, in small runs of every task.

    python -m benchmarks.same_numbers OLD_COMMIT [NEW_COMMIT] [--only NAME]

Every loss, weight, test score and output is compared, and the new commit opens the runs of the old one. Each commit runs
from its own git worktree, in fp32 and on one thread per process, so a difference is a change of the arithmetic. Training
losses are compared as hexadecimal numbers and weights by their SHA-256, in parameter order without names, since names may
change. The numbers are only comparable on one machine: none of them is stored.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seq2seq_lab.config.upgrade import RENAMED

STEPS = 24
SETTINGS = (
    "logger=none trainer.device=cpu trainer.precision=fp32 trainer.log_every_steps=1 task.samples=1 "
    "task.batch_size=16 task.eval_batch_size=32 model.embedding_size=24 model.hidden_size=32 "
    "model.encoder_hidden_size=32"
)
GRAMMAR = "dataset.train=200 dataset.validation=30 dataset.test=40 dataset.test_compositional=20"
RUNS = {
    "default": GRAMMAR,
    "vanilla": f"{GRAMMAR} model=vanilla",
    "bahdanau at ratio 0.5 per token": (
        f"{GRAMMAR} model=bahdanau decoder=bahdanau teacher_forcing.ratio=0.5 teacher_forcing.scope=token"
    ),
    "luong_feeding with R-Drop and label smoothing": (
        f"{GRAMMAR} decoder=luong_feeding task.r_drop=5 task.label_smoothing=0.1"
    ),
    "conditional with locked dropout": (
        f"{GRAMMAR} decoder=conditional model.locked_dropout=true model.dropout=0.3"
    ),
    "BPE-dropout on a parallel file": (
        "dataset=parallel dataset.train=pairs.tsv dataset.validation_share=0.1 dataset.test_share=0.1 "
        "tokenizer=bpe_dropout tokenizer.vocab_size=300"
    ),
    "transformer": f"{GRAMMAR} model=transformer model.num_heads=2",
    "coverage": f"{GRAMMAR} attention=coverage decoder=bahdanau",
    "classification": "task=classification dataset.names=400",
    "classification with attention": "experiment=sentiment pooling=attention dataset.reviews=400",
    "captions": "task=captions dataset.train=120 dataset.validation=20 dataset.test=20",
    "dialogue": "task=dialogue dataset.train=200 dataset.validation=20 dataset.test=20",
    "language model": (
        "task=language_model dataset.train=200 dataset.validation=30 dataset.test=40 model.tied_embeddings=none"
    ),
    "two ranks": f"{GRAMMAR} trainer.devices=2",
    "resumed": GRAMMAR,
}
# Run by the interpreter in a worktree: opens a run and prints the hash of each parameter, in order.
HASHES = """
import hashlib, sys, seq2seq_lab
run = seq2seq_lab.load(sys.argv[1], device="cpu", checkpoint=sys.argv[2])
for parameter in run.model.parameters():
    print(hashlib.sha256(parameter.detach().numpy().tobytes()).hexdigest())
"""
# The same: predicts for lines of text, and prints the outputs with their scores.
PREDICTIONS = """
import sys, seq2seq_lab
run = seq2seq_lab.load(sys.argv[1], device="cpu", checkpoint=sys.argv[2])
if run.reads == "lines":
    for one in run.predict(["the king sleeps.", "a cat sees the old queen."]):
        print(repr(one.text), None if one.score is None else one.score.hex())
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare two commits; return 1 if any number differs."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.same_numbers", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("old", help="commit that computes the expected numbers")
    parser.add_argument("new", nargs="?", default="HEAD", help="commit to check (default: HEAD)")
    parser.add_argument("--only", choices=[*RUNS], action="append", help="run only these; may be repeated")
    options = parser.parse_args(arguments)
    names = options.only or [*RUNS]
    with (
        worktree(options.old) as old_tree,
        worktree(options.new) as new_tree,
        tempfile.TemporaryDirectory() as old_folder,
        tempfile.TemporaryDirectory() as new_folder,
    ):
        expected = {name: numbers(old_tree, Path(old_folder), name) for name in names}
        found = {name: numbers(new_tree, Path(new_folder), name) for name in names}
        for name in names:
            for kind, values in opened(new_tree, Path(old_folder), name).items():
                found[name][f"{kind} of the old run"] = values
                expected[name][f"{kind} of the old run"] = expected[name][kind]
    different = 0
    for name, old in expected.items():
        wrong = [kind for kind, values in old.items() if values != found[name][kind]]
        different += bool(wrong)
        sizes = ", ".join(f"{len(values)} {kind}" for kind, values in old.items())
        print(f"{name}: {'different ' + ', '.join(wrong) if wrong else 'equal'} ({sizes})")
        for kind in wrong:
            print(f"  {kind}: {first_difference(old[kind], found[name][kind])}")
    return int(different > 0)


def run_folder(folder: Path, name: str) -> Path:
    """Return the folder of one of `RUNS`."""
    return folder / "runs" / name.replace(" ", "_")


def opened(tree: Path, folder: Path, name: str) -> dict[str, list[str]]:
    """Open one of `RUNS` with the package of a worktree, and return its parameters and predictions."""
    arguments = (str(run_folder(folder, name)), f"step_{STEPS:08d}")
    return {
        "parameters": python(tree, folder, "-c", HASHES, *arguments).split(),
        "predictions": python(tree, folder, "-c", PREDICTIONS, *arguments).splitlines(),
    }


def numbers(tree: Path, folder: Path, name: str) -> dict[str, Any]:
    """Run one of `RUNS` and return its numbers."""
    print(f"{tree.name}: {name}", file=sys.stderr, flush=True)
    write_pairs(folder / "pairs.tsv")
    settings, run = RUNS[name], run_folder(folder, name)
    program = ("-m", "seq2seq_lab")
    # The number of steps changes the schedule, so the first part of the resumed run is shorter in both commits.
    first = STEPS // 2 if name == "resumed" else STEPS
    length = (f"trainer.max_steps={first}", "trainer.max_epochs=1000")
    words = (*SETTINGS.split(), *settings.split(), *length, f"hydra.run.dir={run}")
    python(tree, folder, *program, *known_to(tree, words))
    if name == "resumed":
        python(tree, folder, *program, f"resume={run}", f"trainer.max_steps={STEPS}")
    rows = [json.loads(row) for row in (run / "metrics.jsonl").read_text("utf-8").split("\n")[:-1]]
    result = json.loads((run / "result.json").read_text("utf-8"))
    losses = [float(row["train/loss"]).hex() for row in rows if "train/loss" in row]
    assert len(losses) == STEPS, f"{name}: {len(losses)} losses of {STEPS} steps"
    return {
        "losses": losses,
        **opened(tree, folder, name),
        "outputs": [
            text
            for path in sorted(run.glob("*.test*.jsonl"))
            for text in path.read_text("utf-8").splitlines()
        ],
        "test scores": {
            key: value.hex()
            for key, value in sorted(result.items())
            if key.startswith("test/") and isinstance(value, float)
        },
    }


def known_to(tree: Path, words: Sequence[str]) -> list[str]:
    """Return settings with the keys of a commit, which may be from before `RENAMED`."""
    if (tree / "conf" / "task" / "settings").is_dir():
        return [*words]
    earlier = {new: old for old, new in RENAMED.items()}
    pairs = (word.partition("=") for word in words)
    return [f"{earlier.get(key, key)}{equals}{value}" for key, equals, value in pairs]


def python(tree: Path, folder: Path, *arguments: str) -> str:
    """Run the interpreter in a folder with the package of a worktree; return what it prints."""
    environment = os.environ | {
        "PYTHONPATH": str(tree),
        "OMP_NUM_THREADS": "1",
        "SEQ2SEQ_LAB_CACHE": str(folder / "cache"),
    }
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, encoding="utf-8"
    )
    if done.returncode:
        sys.exit(f"{' '.join(arguments)} failed in {tree}:\n{done.stdout}{done.stderr}")
    return done.stdout


@contextmanager
def worktree(commit: str) -> Iterator[Path]:
    """Check a commit out into a folder, and remove it afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / commit.replace("/", "_")
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree, commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], check=True)


def write_pairs(path: Path) -> None:
    """Write a small corpus of made-up words whose target is the source spelled backwards, word by word."""
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefghij", k=draw.randint(2, 6))) for _ in range(60)]
    lines = []
    for _ in range(400):
        source = draw.choices(words, k=draw.randint(3, 9))
        lines.append(f"{' '.join(source)}\t{' '.join(word[::-1] for word in source)}\n")
    path.write_text("".join(lines), "utf-8")


def first_difference(old: Any, new: Any) -> str:
    """Return where two lists or mappings first differ."""
    pairs = old.items() if isinstance(old, dict) else enumerate(old)
    for key, value in pairs:
        other = new.get(key) if isinstance(new, dict) else new[key] if key < len(new) else None
        if other != value:
            return f"at {key}: {value} and {other}"
    return f"{len(old)} values and {len(new)}"


if __name__ == "__main__":
    sys.exit(main())
