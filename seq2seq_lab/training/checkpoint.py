"""Checkpoints: the complete state of a training, written atomically.

A checkpoint is a folder with `model.safetensors`, `optimizer.safetensors`, `task.safetensors` and `state.json`;
`manifest.json` lists the SHA-256 of each file. The folder is written under a temporary name and renamed. No pickle.
"""

import json
import logging
import re
import shutil
import stat
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from seq2seq_lab.errors import STORAGE_REMEDIES, UserError, did_you_mean
from seq2seq_lab.files import flush, parse_json, read_bounded, remove_folder, sha256

log = logging.getLogger(__name__)

FORMAT = 4
NAME = re.compile(r"step_\d+")
FILES = ("model.safetensors", "optimizer.safetensors", "task.safetensors", "state.json")


def save(
    folder: Path,
    name: str,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: Mapping[str, Any],
    *,
    best: str | None,
    task_state: Mapping[str, Any],
) -> Path:
    """Write a checkpoint and return its folder, `folder/name`; it replaces one of the same name.

    Args:
        state: JSON values; see `load_state`.
        best: the name of the best checkpoint so far; `prune` keeps it as long as it keeps this checkpoint.
        task_state: tensors and JSON values; see `load_task_state`.

    Raises:
        UserError: the checkpoint cannot be written, for example on a full disk. Earlier checkpoints are not changed.
    """
    final, temporary, replaced = folder / name, folder / f".{name}.writing", folder / f".{name}.replaced"
    for leftover in (temporary, replaced):
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        # On a GPU the weights of a recurrent layer are views of one buffer, which safetensors cannot store.
        weights = {name: weight.cpu().contiguous() for name, weight in _weights(model).items()}
        save_file(weights, temporary / "model.safetensors")
        tensors, rest = _flatten(optimizer.state_dict())
        save_file(tensors, temporary / "optimizer.safetensors")
        kept = {key: value for key, value in task_state.items() if isinstance(value, Tensor)}
        others = {key: value for key, value in task_state.items() if key not in kept}
        save_file(
            {key: value.cpu().contiguous() for key, value in kept.items()}, temporary / "task.safetensors"
        )
        _write_json(temporary / "state.json", {"optimizer": rest, "best": best, "task": others, **state})
        files = {file: sha256(temporary / file) for file in FILES}
        _write_json(temporary / "manifest.json", {"format": FORMAT, "files": files})
        mode = stat.S_IMODE((temporary / "state.json").stat().st_mode)
        for path in temporary.iterdir():
            path.chmod(mode)  # safetensors ignores the umask
            flush(path)
        flush(temporary)
        if final.exists():
            final.rename(replaced)
        temporary.rename(final)
        flush(folder)
        shutil.rmtree(replaced, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        restore_moved(folder)
        remedy = STORAGE_REMEDIES.get(
            getattr(error, "errno", 0), "Check the free space and the permissions of the folder"
        )
        raise UserError(
            f"The checkpoint {final} cannot be written: {error}. Earlier checkpoints are not changed. {remedy}, then "
            f"resume with resume=RUN."
        ) from error
    return final


def damage(checkpoint: Path) -> str | None:
    """Return what is wrong with the files of a checkpoint, or None if they are valid."""
    if not checkpoint.is_dir():
        return "it is missing"
    try:
        manifest = parse_json(read_bounded(checkpoint / "manifest.json"))
        if manifest["format"] != FORMAT:
            return f"it has format {manifest['format']}; this version reads format {FORMAT}"
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
        try:
            _read_header(checkpoint / file)
        except (SafetensorError, ValueError):
            return f"{file} has another format"
    return None


def checksum(checkpoint: Path) -> str:
    """Return the SHA-256 of the weights of a checkpoint, as its manifest has it."""
    return str(parse_json(read_bounded(checkpoint / "manifest.json"))["files"]["model.safetensors"])


def _read_header(path: Path) -> None:
    """Read the header of a file of tensors, or the values of a JSON file."""
    if path.suffix == ".json":
        parse_json(read_bounded(path))
    else:
        with safe_open(path, framework="pt"):
            pass


def any_in(folder: Path) -> bool:
    """Return whether a run has a checkpoint, valid or not."""
    return bool(_by_name(folder))


def name_of(checkpoint: Path) -> str:
    """Return the name of a checkpoint, also of one that `save` has moved."""
    return checkpoint.name.removeprefix(".").removesuffix(".replaced")


def _by_name(folder: Path) -> dict[str, Path]:
    """Return the checkpoints of a run by name, the oldest first, with those that `save` has moved and not replaced."""
    # In this order: `save` may move a checkpoint while this function reads the folder.
    current = {path.name: path for path in folder.glob("step_*")}
    moved = {name_of(path): path for path in folder.glob(".step_*.replaced")}
    return dict(sorted((moved | current).items()))


def restore_moved(folder: Path) -> None:
    """Restore the checkpoints that `save` has moved and not replaced. The run folder must be locked."""
    for name, path in _by_name(folder).items():
        if path.name != name:
            path.rename(folder / name)


def newest(folder: Path) -> Path:
    """Return the newest valid checkpoint of a run; damaged ones are logged and skipped.

    Raises:
        UserError: no checkpoint is valid.
    """
    damaged = []
    for name, checkpoint in reversed(_by_name(folder).items()):
        reason = damage(checkpoint)
        if reason is None:
            return checkpoint
        log.warning("The checkpoint %s cannot be used (%s); trying the one before it.", checkpoint, reason)
        damaged.append(f"{name}: {reason}")
    reasons = f" ({'; '.join(damaged)})" if damaged else ""
    raise UserError(
        f"{folder} contains no checkpoint that can be used{reasons}. Restore one from a copy, or start a new run (a job "
        f"of a study: move {folder.parent} away, then start it again)."
    )


def best(folder: Path) -> Path:
    """Return the best checkpoint of a run so far, or the newest before the first validation.

    Raises:
        UserError: no checkpoint is valid.
    """
    last = newest(folder)
    name = load_state(last)["best"]
    return last if name is None else _by_name(folder).get(name, folder / name)


def named(folder: Path, names: str | None) -> list[Path]:
    """Return checkpoints by name.

    Args:
        names: names separated by commas, None for the best, or `last:N` for the newest N of validations and of
            `trainer.checkpoint_every_steps`. The steps of other checkpoints depend on the time and on interruptions.

    Raises:
        UserError: a checkpoint does not exist.
    """
    if names is None:
        return [best(folder)]
    existing = _by_name(folder)
    count = names.removeprefix("last:")
    if count != names:
        regular = _regular(folder, existing)
        if not count.isdecimal() or not 1 <= int(count) <= len(regular):
            raise UserError(
                f"{names}: {folder} contains the last {len(regular)} checkpoints. Values: last:1 to last:{len(regular)}; a "
                f"run with trainer.keep_checkpoints=N keeps the newest N. Checkpoints that the time or a signal "
                f"caused do not count."
            )
        chosen = regular[-int(count) :]
    else:
        chosen = names.split(",")
    for name in chosen:
        if name not in existing:
            raise UserError(
                f"{folder / name} does not exist.{did_you_mean(name, existing)} Values: {', '.join(existing)}."
            )
    return [existing[name] for name in chosen]


def _regular(folder: Path, existing: Mapping[str, Path]) -> list[str]:
    """Return the names of the checkpoints that `last:N` counts: see `TrainState.regular`. Earlier runs counted all."""
    state = load_state(newest(folder)).get("train_state")
    regular = state.get("regular") if isinstance(state, dict) else None
    return [name for name in existing if not isinstance(regular, list) or name in regular]


def names_until(checkpoint: Path) -> list[str]:
    """Return the names of the checkpoints up to this one, from the oldest."""
    return [name for name in _by_name(checkpoint.parent) if name <= name_of(checkpoint)]


def prune(folder: Path, keep: int, regular: Collection[str] = ()) -> None:
    """Remove all checkpoints except the newest `keep`, those of the names `regular`, and the best one that each records.

    What an interrupted `save` or `prune` has left is removed too.
    """
    _remove_leftovers(folder)
    checkpoints = sorted(folder.glob("step_*"))
    newest = [one for one in checkpoints if one in checkpoints[-keep:] or one.name in regular]
    kept = {checkpoint.name for checkpoint in newest}
    # If the newest is damaged, the run resumes from the one before it, which needs its own best.
    kept |= {best for checkpoint in newest if (best := _best(checkpoint)) is not None}
    for checkpoint in checkpoints:
        if checkpoint.name not in kept:
            remove_folder(checkpoint)


def remove_newer(checkpoint: Path) -> None:
    """Remove the checkpoints, all of them damaged, that are newer than the one a run resumes from."""
    for other in checkpoint.parent.glob("step_*"):
        if other.name > checkpoint.name:
            remove_folder(other)


def _remove_leftovers(folder: Path) -> None:
    """Remove the folders that an interrupted `save` has left, except the only valid copy of a checkpoint."""
    for unfinished in folder.glob(".step_*.writing"):
        remove_folder(unfinished)
    for replaced in folder.glob(".step_*.replaced"):
        if damage(folder / replaced.stem[1:]) is None:
            remove_folder(replaced)


def load_weights(checkpoint: Path, model: nn.Module) -> None:
    """Load a checkpoint's weights into a model of the same shape.

    Raises:
        UserError: the checkpoint is damaged, or belongs to another model.
    """
    _refuse_damaged(checkpoint)
    load_checked_weights(checkpoint, model)


def _refuse_damaged(checkpoint: Path) -> None:
    if (reason := damage(checkpoint)) is not None:
        raise UserError(
            f"The checkpoint {checkpoint} cannot be used: {reason}. Restore it from a copy, or use another checkpoint."
        )


def load_checked_weights(checkpoint: Path, model: nn.Module) -> None:
    """Load the weights of a checkpoint in which `damage` has found nothing; see `load_weights`."""
    difference = mismatch(checkpoint, model)
    if difference is not None:
        raise UserError(
            f"The weights in {checkpoint} do not fit this model: {difference}. Use the model settings of the run that they "
            f"are from (its config.yaml)."
        )
    saved, weights = load_file(checkpoint / "model.safetensors"), _weights(model)
    with torch.no_grad():
        for name, weight in saved.items():
            weights[_renamed(name, model)].copy_(weight)


def copy_parts(checkpoint: Path, model: nn.Module, parts: Sequence[str]) -> None:
    """Copy the weights of parts of another model into a model that has these parts; see `saved_shapes`.

    Raises:
        UserError: the checkpoint is damaged, or a weight is missing or has another shape in one of the two models.
    """
    _refuse_damaged(checkpoint)
    weights, saved = model.state_dict(), saved_shapes(checkpoint, parts)
    ours = {name: tuple(weight.shape) for name, weight in weights.items() if _is_in(name, parts)}
    if difference := _difference(saved, ours):
        raise UserError(
            f"init_part={','.join(parts)}: the two models differ: {difference}. Leave the settings of these parts out: they "
            f"are inherited from the run of init_from."
        )
    with torch.no_grad(), safe_open(checkpoint / "model.safetensors", framework="pt") as file:
        for name in saved:
            weights[name].copy_(file.get_tensor(name))


def saved_shapes(checkpoint: Path, parts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights of parts, names of modules such as `encoder`, in a checkpoint.

    Raises:
        UserError: a part has no weights.
    """
    shapes = _shapes(checkpoint)
    check_parts(shapes, parts, f"the model of {checkpoint}, where a weight of several parts is in the first")
    return {name: shape for name, shape in shapes.items() if _is_in(name, parts)}


def check_parts(weights: Collection[str], parts: Sequence[str], model: str) -> None:
    """Check that each part has weights among the names of a model's weights.

    Raises:
        UserError: names the first part without weights.
    """
    known = sorted({name.partition(".")[0] for name in weights})
    for part in parts:
        if not any(_is_in(name, [part]) for name in weights):
            raise UserError(
                f"init_part={part} is not a part of {model}.{did_you_mean(part, known)} Parts: {', '.join(known)}."
            )


def _is_in(name: str, parts: Sequence[str]) -> bool:
    return f"{name}.".startswith(tuple(f"{part}." for part in parts))


def _shapes(checkpoint: Path) -> dict[str, tuple[int, ...]]:
    with safe_open(checkpoint / "model.safetensors", framework="pt") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def mismatch(checkpoint: Path, model: nn.Module) -> str | None:
    """Return the first weight whose shape differs between a checkpoint and a model, or None. Reads no weights."""
    saved = {_renamed(name, model): shape for name, shape in _shapes(checkpoint).items()}
    return _difference(saved, {name: tuple(weight.shape) for name, weight in _weights(model).items()})


def _difference(saved: Mapping[str, tuple[int, ...]], weights: Mapping[str, tuple[int, ...]]) -> str | None:
    for name in sorted(saved.keys() | weights.keys()):
        before, now = (shapes.get(name, "missing") for shapes in (saved, weights))
        if before != now:
            return f"{name} is {before} in the checkpoint and {now} in the model"
    return None


def _renamed(name: str, model: nn.Module) -> str:
    """Return the name of a weight in a model, from its name in a checkpoint; see `LanguageModel.renamed_weights`."""
    renamed: Mapping[str, str] = getattr(model, "renamed_weights", {})
    for before, now in renamed.items():
        if name.startswith(before):
            return now + name.removeprefix(before)
    return name


def load_average(checkpoints: Sequence[Path], model: nn.Module) -> None:
    """Load the mean of the weights of checkpoints into a model of the same shape.

    Raises:
        UserError: a checkpoint is damaged, or belongs to another model.
    """
    load_weights(checkpoints[0], model)
    if len(checkpoints) == 1:
        return
    with torch.no_grad():
        # On the host, since MPS does not support float64.
        totals = {name: weight.to("cpu", torch.float64) for name, weight in _weights(model).items()}
        for checkpoint in checkpoints[1:]:
            load_weights(checkpoint, model)
            for name, weight in _weights(model).items():
                totals[name] += weight.cpu()
        for name, weight in _weights(model).items():
            weight.copy_(totals[name] / len(checkpoints))


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and persistent buffers of a model by name, shared ones once."""
    kept = model.state_dict().keys()
    named = [*model.named_parameters(), *model.named_buffers()]
    return {name: tensor.detach() for name, tensor in named if name in kept}


def load_optimizer(checkpoint: Path, optimizer: torch.optim.Optimizer) -> None:
    """Load the state of the optimizer from a checkpoint whose weights have been loaded."""
    tensors = load_file(checkpoint / "optimizer.safetensors")
    rest = load_state(checkpoint)["optimizer"]
    state: dict[int, dict[str, Any]] = {int(index): dict(values) for index, values in rest["state"].items()}
    for key, tensor in tensors.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": rest["param_groups"]})


def load_state(checkpoint: Path) -> dict[str, Any]:
    """Return the JSON values of a checkpoint.

    Raises:
        UserError: they are not those of a checkpoint.
    """
    path = checkpoint / "state.json"
    state = parse_json(read_bounded(path))
    parts = ("optimizer", "task")
    if not isinstance(state, dict) or not all(isinstance(state.get(part), dict) for part in parts):
        raise UserError(f"{path} is damaged: it has no {' and '.join(parts)}. Restore it from a copy.")
    if (best := state.get("best")) is not None and not (isinstance(best, str) and NAME.fullmatch(best)):
        raise UserError(
            f"{path} is damaged: best={best!r:.80} is not the name of a checkpoint. Restore it from a copy."
        )
    return state


def load_task_state(checkpoint: Path) -> dict[str, Any]:
    """Return the tensors and JSON values of the task; see `Task.state_dict`."""
    return {**load_state(checkpoint)["task"], **load_file(checkpoint / "task.safetensors")}


def _best(checkpoint: Path) -> str | None:
    """Return the name of the best checkpoint that a checkpoint records; None if it is damaged."""
    try:
        best = load_state(checkpoint)["best"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return best if isinstance(best, str) else None


def _flatten(state: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Split the state of an optimizer into tensors, named "parameter.key", and other values."""
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
