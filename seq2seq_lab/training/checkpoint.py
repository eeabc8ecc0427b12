"""Checkpoints: the whole state of a training, written so that a crash leaves the old one or the new one.

A checkpoint is a folder with `model.safetensors`, `optimizer.safetensors` and `state.json`; `manifest.json`
names each file with its SHA-256. The folder is written under a temporary name and renamed. No pickle.
"""

import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from seq2seq_lab.errors import UserError, did_you_mean
from seq2seq_lab.files import flush, sha256

log = logging.getLogger(__name__)

FORMAT = 2
FILES = ("model.safetensors", "optimizer.safetensors", "state.json")


def save(
    folder: Path,
    name: str,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: Mapping[str, Any],
    best: str | None,
) -> Path:
    """Write a new checkpoint and return its folder, `folder/name`.

    Args:
        state: plain values, returned by `load_state`.
        best: the name of the best checkpoint so far, which `prune` keeps for as long as it keeps this one.

    Raises:
        UserError: it cannot be written, for example on a full disk; those there are stay as they are.
    """
    final, temporary = folder / name, folder / f".{name}.writing"
    assert not final.exists(), final
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        # On a GPU the weights of a recurrent layer are views of one buffer, which the format does not hold.
        weights = {name: weight.cpu().contiguous() for name, weight in _weights(model).items()}
        save_file(weights, temporary / "model.safetensors")
        tensors, rest = _flatten(optimizer.state_dict())
        save_file(tensors, temporary / "optimizer.safetensors")
        _write_json(temporary / "state.json", {"optimizer": rest, "best": best, **state})
        files = {file: sha256(temporary / file) for file in FILES}
        _write_json(temporary / "manifest.json", {"format": FORMAT, "files": files})
        for path in temporary.iterdir():
            flush(path)
        flush(temporary)
        temporary.rename(final)
        flush(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise UserError(
            f"The checkpoint {final} cannot be written: {error}. The checkpoints before it are as they were: "
            f"make room or mend the disk, then go on with resume=RUN_FOLDER."
        ) from error
    return final


def damage(checkpoint: Path) -> str | None:
    """Return what is wrong with the files of a checkpoint, or None where nothing is."""
    try:
        manifest = json.loads((checkpoint / "manifest.json").read_text("utf-8"))
        if manifest["format"] != FORMAT:
            return f"it is of format {manifest['format']}, and this version reads {FORMAT}"
        digests = {file: manifest["files"][file] for file in FILES}
    except FileNotFoundError:
        return "manifest.json is missing"
    except (ValueError, KeyError, TypeError):
        return "manifest.json is damaged"
    for file, digest in digests.items():
        if not (checkpoint / file).is_file():
            return f"{file} is missing"
        if sha256(checkpoint / file) != digest:
            return f"{file} is damaged"
    return None


def any_in(folder: Path) -> bool:
    """Return whether a run has a checkpoint, valid or not."""
    return any(folder.glob("step_*"))


def any_valid(folder: Path) -> bool:
    """Return whether a run has a checkpoint that it can go on from."""
    return any(damage(checkpoint) is None for checkpoint in folder.glob("step_*"))


def newest(folder: Path) -> Path:
    """Return the newest valid checkpoint of a run; a damaged one is named in the log and passed over.

    Raises:
        UserError: there is none.
    """
    damaged = []
    for checkpoint in sorted(folder.glob("step_*"), reverse=True):
        reason = damage(checkpoint)
        if reason is None:
            return checkpoint
        log.warning("The checkpoint %s cannot be used (%s); trying the one before it.", checkpoint, reason)
        damaged.append(f"{checkpoint.name}: {reason}")
    what = f"none that can be used ({'; '.join(damaged)})" if damaged else "none yet"
    raise UserError(f"{folder} holds no checkpoint to go on from: {what}. Start a new run.")


def best(folder: Path) -> Path:
    """Return the best checkpoint of a run so far, the newest where it has not validated yet.

    Raises:
        UserError: the folder holds none that is valid.
    """
    last = newest(folder)
    name = load_state(last)["best"]
    return last if name is None else last.with_name(name)


def named(folder: Path, names: str | None) -> list[Path]:
    """Return the checkpoints of some names: one or more with commas between them, `last:N`, or None for the best one.

    Raises:
        UserError: there is none of a name, not as many, or one is damaged.
    """
    if names is None:
        return [best(folder)]
    there = sorted(path.name for path in folder.glob("step_*"))
    count = names.removeprefix("last:")
    if count != names:
        if not count.isdecimal() or not 1 <= int(count) <= len(there):
            raise UserError(
                f"{names}: {folder} holds {len(there)} checkpoints. Allowed: last:1 to last:{len(there)}; a run with "
                f"trainer.keep_checkpoints=N keeps the newest N."
            )
        chosen = there[-int(count) :]
    else:
        chosen = names.split(",")
    for name in chosen:
        if name not in there:
            raise UserError(
                f"{folder / name}: no checkpoint lies there.{did_you_mean(name, there)} Allowed: {', '.join(there)}."
            )
    return [folder / name for name in chosen]


def prune(folder: Path, keep: int) -> None:
    """Remove all checkpoints but the newest `keep`, and the best one as each of these knows it."""
    checkpoints = sorted(folder.glob("step_*"))
    kept = {checkpoint.name for checkpoint in checkpoints[-keep:]}
    # The newest may turn out damaged: the one before it must then find the best of its own time.
    kept |= {best for checkpoint in checkpoints[-keep:] if (best := _best(checkpoint)) is not None}
    for checkpoint in checkpoints:
        if checkpoint.name not in kept:
            shutil.rmtree(checkpoint)


def remove_newer(checkpoint: Path) -> None:
    """Remove the checkpoints, all damaged, that are newer than the one a run goes on from."""
    for other in checkpoint.parent.glob("step_*"):
        if other.name > checkpoint.name:
            shutil.rmtree(other)


def load_weights(checkpoint: Path, model: nn.Module) -> None:
    """Load a checkpoint's weights into a model of the same shape.

    Raises:
        UserError: the checkpoint is damaged, or of another model.
    """
    reason = damage(checkpoint)
    if reason is not None:
        raise UserError(f"The checkpoint {checkpoint} cannot be used: {reason}.")
    difference = mismatch(checkpoint, model)
    if difference is not None:
        raise UserError(
            f"The weights in {checkpoint} are not of this model: {difference}. Use the model, embedding, encoder, decoder, "
            f"attention and readout of the run that they are from (its config.yaml)."
        )
    saved, weights = load_file(checkpoint / "model.safetensors"), _weights(model)
    with torch.no_grad():
        for name, weight in weights.items():
            weight.copy_(saved[name])


def mismatch(checkpoint: Path, model: nn.Module) -> str | None:
    """Return the first weight whose shape differs between a checkpoint and a model, or None; no weight is read."""
    with safe_open(checkpoint / "model.safetensors", framework="pt") as file:
        saved = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    weights = {name: tuple(weight.shape) for name, weight in _weights(model).items()}
    for name in sorted(saved.keys() | weights.keys()):
        there, here = (of.get(name, "not there") for of in (saved, weights))
        if there != here:
            return f"{name} is {there} in the checkpoint and {here} in the model"
    return None


def load_average(checkpoints: Sequence[Path], model: nn.Module) -> None:
    """Load the mean of the weights of checkpoints into a model of the same shape.

    Raises:
        UserError: one is damaged, or of another model.
    """
    load_weights(checkpoints[0], model)
    if len(checkpoints) == 1:
        return
    with torch.no_grad():
        totals = {name: weight.double() for name, weight in _weights(model).items()}
        for checkpoint in checkpoints[1:]:
            load_weights(checkpoint, model)
            for name, weight in _weights(model).items():
                totals[name] += weight
        for name, weight in _weights(model).items():
            weight.copy_(totals[name] / len(checkpoints))


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's parameters and persistent buffers by name, one that parts share once."""
    kept = model.state_dict().keys()
    named = [*model.named_parameters(), *model.named_buffers()]
    return {name: tensor.detach() for name, tensor in named if name in kept}


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


def _best(checkpoint: Path) -> str | None:
    """Return the best checkpoint's name as a checkpoint has it; one that is damaged knows of none."""
    try:
        best = load_state(checkpoint)["best"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return best if isinstance(best, str) else None


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


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, allow_nan=False), "utf-8")
