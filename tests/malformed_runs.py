"""Copies of a finished run that someone else could have sent: malformed, hostile, or with commands for the terminal."""

import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rewriting import rewrite

from seq2seq_lab.config.run_folder import cover

DEPTH = 100_000
ESCAPE = "\x1b]0;title\x07\x1b[31mred\u202e\x9b2J"

Change = Callable[[Path], object]


class Canary:
    """A pickle that creates a folder when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.mkdir, (str(self.path),)


def _edited(name: str, edit: Callable[[dict[str, Any]], object]) -> Change:
    def change(folder: Path) -> None:
        content = json.loads((folder / name).read_text("utf-8"))
        edit(content)
        rewrite(folder / name, json.dumps(content))

    return change


def _set(name: str, *keys: str, value: object) -> Change:
    def edit(content: dict[str, Any]) -> None:
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = value

    return _edited(name, edit)


def _written(name: str, text: str) -> Change:
    return lambda folder: rewrite(folder / name, text)


def _replaced(old: str, new: str) -> Change:
    def change(folder: Path) -> None:
        text = (folder / "config.yaml").read_text("utf-8")
        assert old in text
        rewrite(folder / "config.yaml", text.replace(old, new, 1))

    return change


def _bomb() -> str:
    names = "abcdefghijkl"
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{one}: &{one} [{', '.join([f'*{before}'] * 9)}]" for before, one in itertools.pairwise(names)]
    return "\n".join(lines)


def _cover_result(folder: Path) -> None:
    found = [*folder.glob("*.jsonl"), *folder.glob("attention/*.jsonl")]
    names = [str(path.relative_to(folder)) for path in found if path.name != "metrics.jsonl"]
    cover(folder, "result", ["result.json", "scored", *names])


def _large_config(folder: Path) -> None:
    with (folder / "config.yaml").open("wb") as file:
        file.truncate(10**9)
    cover(folder, "run", ["config.yaml", "run.json", "tokenizer"])


def _pickled_statistics(folder: Path) -> None:
    array = np.array([Canary(folder.parent / "canary")], dtype=object)
    np.savez(folder / "scored" / "test.npz", bleu=array)
    _cover_result(folder)


def _other_statistics(folder: Path) -> None:
    np.savez(folder / "scored" / "test.npz", _clusters=np.arange(6), bleu=np.ones((6, 3)))
    _cover_result(folder)


def _endless_weights(folder: Path) -> None:
    path = folder / "attention.test.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    rows[0]["weights"][0][0] = float("inf")
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    _cover_result(folder)


def _stray_attention(folder: Path) -> None:
    (folder / "attention").mkdir(exist_ok=True)
    (folder / "attention" / "step_x.jsonl").write_text("{}\n")


# By the name of the copy: what is changed, and a part of the reason for which the run is left out.
MALFORMED: dict[str, tuple[Change, str]] = {
    "aliases": (_written("config.yaml", _bomb()), "YAML alias"),
    "resolver": (_replaced("seed: 1\n", "seed: ${oc.env:HOME}\n"), "oc.env"),
    "reference": (_replaced("seed: 1\n", "seed: ${dataset.seed}\n"), "dataset.seed"),
    "deep config": (_written("config.yaml", "[" * 900 + "]" * 900), "levels"),
    "deeper config": (_written("config.yaml", "[" * DEPTH + "]" * DEPTH), "YAML"),
    "long number": (_replaced("seed: 1\n", f"seed: {'9' * 5000}\n"), "config.yaml"),
    "large config": (_large_config, "bytes"),
    "empty config": (_written("config.yaml", ""), "config.yaml"),
    "text as config": (_written("config.yaml", "model"), "config.yaml"),
    "number as model": (_written("config.yaml", "model: 3\n"), "config.yaml"),
    "python in config": (_written("config.yaml", "a: !!python/object/apply:os.mkdir [canary]"), "YAML"),
    "deep run": (_written("run.json", '{"a":' * DEPTH + "1" + "}" * DEPTH), "levels"),
    "binary run": (_written("run.json", "\x00\x01"), "run.json"),
    "deep result": (_written("result.json", '{"a":' * DEPTH + "1" + "}" * DEPTH), "levels"),
    "deep list": (
        _written("result.json", f'{{"status": "finished", "a": {"[" * 500}{"]" * 500}}}'),
        "levels",
    ),
    "list as result": (_written("result.json", "[1, 2]"), "JSON object"),
    "deep manifest": (
        lambda folder: (folder / "manifest.json").write_text('{"a":' * DEPTH + "1" + "}" * DEPTH),
        "manifest.json",
    ),
    "choices above conf": (_set("run.json", "choices", "dataset", value="../../x"), "choices.dataset"),
    "list as choices": (_set("run.json", "choices", value=["x"]), "choices"),
    "no choices": (_edited("run.json", lambda content: content.pop("choices")), "choices"),
    "number as evaluation": (_set("run.json", "evaluation", value=3), "evaluation"),
    "mapping as run id": (_set("run.json", "run_id", value={"a": 1}), "run_id"),
    "number as machine": (_set("result.json", "provenance", "machine", value=3), "machine"),
    "no provenance": (_set("result.json", "provenance", value=[1]), "provenance"),
    "no metrics": (_edited("result.json", lambda content: content.pop("metrics")), "metrics"),
    "wide format": (
        _set("result.json", "metrics", "metrics", "bleu", "format", value="999999999.2f"),
        "format",
    ),
    "unknown key": (_set("result.json", "metrics", "metrics", "bleu", "code", value="x"), "code"),
    "text as score": (_set("result.json", "test/bleu", value="high"), "test/bleu"),
    "endless score": (_set("result.json", "test/bleu", value=float("inf")), "test/bleu"),
    "long score": (_set("result.json", "test/bleu", value=10**400), "test/bleu"),
    "text as seconds": (_set("result.json", "val/seconds", value="x"), "val/seconds"),
    "endless seconds": (_set("result.json", "val/seconds", value=1e308), "val/seconds"),
    "no seconds": (_set("result.json", "val/seconds", value=float("nan")), "val/seconds"),
    "negative steps": (_set("result.json", "steps", value=-1), "steps"),
    "long parameters": (_set("result.json", "num_parameters", value=10**400), "num_parameters"),
    "circle": (lambda folder: (folder / "loop").symlink_to("loop"), "link"),
    "list as parameters": (_set("result.json", "num_parameters", value=[1]), "num_parameters"),
    "malformed group": (_set("result.json", "test/bleu_by_length", value=[{"group": 3}]), "group"),
    "pickled array": (_pickled_statistics, "scored/test.npz"),
    "other statistics": (_other_statistics, "scored/test.npz"),
    "endless weights": (_endless_weights, "heatmaps"),
    "stray attention": (_stray_attention, "step_x.jsonl"),
    "malformed page": (_set("result.json", "page", "examples", "columns", value={}), "page.examples"),
    "link": (lambda folder: (folder / "evaluations").symlink_to("/"), "link"),
    "pipe": (lambda folder: os.mkfifo(folder / "metrics.pipe"), "neither a file nor a folder"),
}


def write_malformed(run: Path, tree: Path) -> None:
    """Write a copy of a run for each entry of `MALFORMED`, the run itself as "good", and one with escapes in its texts.

    The copies are without weights and pictures.

    Args:
        tree: the new folder of the copies.
    """
    for name in ("good", "escapes", *MALFORMED):
        shutil.copytree(run, tree / name, ignore=shutil.ignore_patterns("*.safetensors", "*.png"))
    for name, (change, _) in MALFORMED.items():
        change(tree / name)
    _set("run.json", "overrides", value=[f"seed={ESCAPE}"])(tree / "escapes")
    _set("result.json", "metrics", "metrics", "bleu", "label", value=f"BLEU{ESCAPE}")(tree / "escapes")
