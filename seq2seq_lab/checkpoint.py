"""Checkpoints: the whole state of a training, written so that a crash leaves the old one or the new one.

A checkpoint is a folder with `model.safetensors`, `optimizer.safetensors` and `state.json`; `manifest.json`
names each file with its SHA-256. The folder is written under a temporary name and renamed. No pickle.
"""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import Tensor, nn

from seq2seq_lab.errors import UserError

log = logging.getLogger(__name__)

FORMAT = 1


def save(folder: Path, name: str, model: nn.Module, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> Path:
    """Write a checkpoint and return its folder, `folder/name`; one of that name is replaced."""
    final, temporary = folder / name, folder / f".{name}.writing"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    save_model(model, str(temporary / "model.safetensors"))
    tensors, rest = _flatten(optimizer.state_dict())
    save_file(tensors, temporary / "optimizer.safetensors")
    _write_json(temporary / "state.json", {"optimizer": rest, **state})
    files = {path.name: _sha256(path) for path in sorted(temporary.iterdir())}
    _write_json(temporary / "manifest.json", {"format": FORMAT, "files": files})
    for path in temporary.iterdir():
        _flush(path)
    shutil.rmtree(final, ignore_errors=True)
    temporary.rename(final)
    _flush(folder)
    return final


def is_valid(checkpoint: Path) -> bool:
    """Say whether every file of a checkpoint is there as it was written."""
    try:
        manifest = json.loads((checkpoint / "manifest.json").read_text("utf-8"))
        return manifest["format"] == FORMAT and all(
            _sha256(checkpoint / name) == digest for name, digest in manifest["files"].items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def newest(folder: Path) -> Path:
    """Return the newest valid checkpoint of a run; a damaged one is named in the log and passed over.

    Raises:
        UserError: there is none.
    """
    candidates = sorted(folder.glob("step_*"), reverse=True)
    for checkpoint in candidates:
        if is_valid(checkpoint):
            return checkpoint
        log.warning("The checkpoint %s is damaged; trying the one before it.", checkpoint)
    what = f"all damaged ({', '.join(path.name for path in candidates)})" if candidates else "missing"
    raise UserError(f"{folder} holds no checkpoint to go on from: {what}. Start a new run.")


def prune(folder: Path, keep: int, best: str | None) -> None:
    """Remove all checkpoints but the newest `keep` and the best."""
    for old in sorted(folder.glob("step_*"))[:-keep]:
        if old.name != best:
            shutil.rmtree(old)


def load_weights(checkpoint: Path, model: nn.Module) -> None:
    """Load a checkpoint's weights into a model of the same shape.

    Raises:
        UserError: the checkpoint is damaged, or of another model.
    """
    if not is_valid(checkpoint):
        raise UserError(f"The checkpoint {checkpoint} is missing or damaged (its manifest does not match its files).")
    try:
        load_model(model, str(checkpoint / "model.safetensors"))
    except RuntimeError as error:
        raise UserError(f"The weights in {checkpoint} are not of this model: {error}") from error


def load_optimizer(checkpoint: Path, optimizer: torch.optim.Optimizer) -> None:
    """Load the optimizer's state of a checkpoint that `load_weights` has accepted."""
    tensors = load_file(checkpoint / "optimizer.safetensors")
    rest = load_state(checkpoint)["optimizer"]
    state: dict[int, dict[str, Any]] = {int(index): dict(values) for index, values in rest["state"].items()}
    for key, tensor in tensors.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": rest["param_groups"]})


def load_state(checkpoint: Path) -> dict[str, Any]:
    """Return what a checkpoint holds besides tensors."""
    state: dict[str, Any] = json.loads((checkpoint / "state.json").read_text("utf-8"))
    return state


def _flatten(state: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Part an optimizer's state into tensors, named "parameter.key", and the rest."""
    tensors: dict[str, Tensor] = {}
    rest: dict[str, dict[str, Any]] = {}
    for index, values in state["state"].items():
        for key, value in values.items():
            if isinstance(value, Tensor):
                tensors[f"{index}.{key}"] = value.contiguous()
            else:
                rest.setdefault(str(index), {})[key] = value
    return tensors, {"state": rest, "param_groups": state["param_groups"]}


def write_atomically(path: Path, text: str) -> None:
    """Write a file under a temporary name and rename it."""
    temporary = path.with_name(f".{path.name}.writing")
    temporary.write_text(text, "utf-8")
    _flush(temporary)
    temporary.replace(path)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), "utf-8")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    """Have the system write a file or a folder's entries to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
