"""Make the run that the package contains, `demo`, from a finished run of the default settings.

python -m benchmarks.demo RUN

The weights of its best checkpoint are rounded to half precision, and the validation and test sets are scored again with the
rounded weights: every score of `demo` is theirs. `provenance.json` has the scores before and after.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

import seq2seq_lab
from seq2seq_lab.config.run_folder import (
    MANIFEST,
    read_finished_result,
    read_manifest,
    read_record,
    write_manifest,
)
from seq2seq_lab.config.run_folders import DEMO_FOLDER
from seq2seq_lab.errors import UserError, report_errors
from seq2seq_lab.files import sha256
from seq2seq_lab.training import checkpoint

OF_RUN = ("config.yaml", "metrics.jsonl", "tokenizer")
OF_EVALUATION = (
    "attention.test.jsonl",
    "scored/test.compositional.npz",
    "scored/test.npz",
    "translations.test.jsonl",
)
SCORES = ("val/", "test/", "baseline/")  # beginnings of the keys of result.json that are measured again
MEASUREMENTS = ("val/seconds",)
MARKS = ("folder", "run_id")  # entries of run.json that belong to one folder


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the folder of the package."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.demo", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("folder", type=Path, metavar="RUN")
    with report_errors():
        make(parser.parse_args(arguments).folder, DEMO_FOLDER)
    size = sum(path.stat().st_size for path in DEMO_FOLDER.rglob("*") if path.is_file())
    print(f"written: {DEMO_FOLDER} ({size / 1e6:.1f} MB)")


def make(source: Path, target: Path) -> None:
    """Write a run with rounded weights to a folder, which is replaced.

    Raises:
        UserError: the run has not finished, has other settings than the defaults, or a changed checkout.
    """
    record, result = read_record(source), read_finished_result(source)
    if result is None or record["overrides"] or record["dirty"] is not False:
        raise UserError(
            f"{source} is not a finished run of python -m seq2seq_lab in a checkout without changes."
        )
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in OF_RUN:
        copy = shutil.copytree if (source / name).is_dir() else shutil.copyfile
        copy(source / name, target / name)
    listed = read_manifest(source)["run"]
    kept = {key: value for key, value in record.items() if key not in MARKS}
    write_json(target / "run.json", kept)
    write_rounded(source / "checkpoints" / result["best_checkpoint"], target / "checkpoints")
    before = {key: value for key, value in result.items() if is_score(key)}
    write_json(target / "result.json", {key: value for key, value in result.items() if key not in before})
    write_manifest(target, {"run": listed, "result": ["result.json"]})
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "test"
        run = seq2seq_lab.load(target, device="cpu")
        scores = run.evaluate(validation=True, output=Path(folder) / "val") | run.evaluate(output=output)
        after = {key: value for key, value in scores.items() if is_score(key)}
        for name in OF_EVALUATION:
            (target / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(output / name, target / name)
    write_json(target / "result.json", result | after)
    compared = [
        f"{split}/{name}" for split in ("val", "test", "test/compositional") for name in ("bleu", "aer")
    ]
    write_json(
        target / "provenance.json",
        {
            "command": "python -m seq2seq_lab, then python -m benchmarks.demo",
            "commit": record["commit"],
            "machine": record["machine"],
            "precision": record["precision"],
            "weights": "rounded to half precision (float16)",
            "scores before rounding": {key: before[key] for key in compared},
            "scores": {key: after[key] for key in compared},
        },
    )
    write_manifest(target, {"run": listed, "result": ["result.json", *OF_EVALUATION]})


def is_score(key: str) -> bool:
    """Return whether a key of result.json has a score."""
    return key.startswith(SCORES) and key not in MEASUREMENTS


def write_rounded(source: Path, folder: Path) -> None:
    """Write a checkpoint with weights in half precision and without the state of the optimizer."""
    target = folder / source.name
    target.mkdir(parents=True)
    weights = load_file(source / "model.safetensors")
    save_file(
        {name: weight.to(torch.float16) for name, weight in weights.items()}, target / "model.safetensors"
    )
    for name in ("optimizer", "task"):
        save_file({}, target / f"{name}.safetensors")
    state = checkpoint.load_state(source)
    write_json(target / "state.json", {**state, "optimizer": {}})
    files = {file: sha256(target / file) for file in checkpoint.FILES}
    write_json(target / MANIFEST, {"format": checkpoint.FORMAT, "files": files})


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
