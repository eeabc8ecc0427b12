"""Checks of everything that a configuration names, before any data is read."""

from typing import Any

import torch
from torch import nn

from seq2seq_lab.config.schema import SLOTS, Config, file_keys, group_values
from seq2seq_lab.config.slots import check_slot, locate, named_components, part
from seq2seq_lab.errors import UserError
from seq2seq_lab.tasks import parts as task_parts
from seq2seq_lab.tracking import parts as tracking_parts
from seq2seq_lab.training import parts as training_parts
from seq2seq_lab.training.schedules import OneCycle

KINDS = {**task_parts.KINDS, **training_parts.KINDS, **tracking_parts.KINDS}


def check_slots(config: Config) -> None:
    """Check that each open slot has a trusted target and that its settings are arguments of the constructor, of its types.

    Raises:
        UserError: names the key, the value, what is allowed and the nearest spelling.
    """
    check_slot("task", config.task, KINDS)
    task_parts.check_groups(config)
    for name in SLOTS:
        if (slot := getattr(config, name)) is not None and name != "task":
            check_slot(name, slot, KINDS)
    task_parts.check_metrics(config)


def check_parts(config: Config) -> None:
    """Check the slots and create every part that needs no data, so that constructors check their arguments early.

    Raises:
        UserError: names the setting and the remedy.
    """
    check_slots(config)
    with named_components(config):
        _create_parts(config)


def check_generated(config: Config) -> None:
    """Refuse settings of generated data for a data set that is read from files, and the reverse: they have no effect.

    The data set names these settings in `of_generated` and `of_files`. Values of the files in conf/dataset are not refused:
    the user has not set them.

    Raises:
        UserError: names the setting and the remedy.
    """
    slot = config.dataset or {}
    key = "path" if "path" in slot else "train"
    is_read = slot.get(key) is not None
    others = "of_generated" if is_read else "of_files"
    names = getattr(locate("dataset", slot, KINDS), others, ()) if slot else ()
    if not names:
        return
    files = [file_keys("dataset", choice) for choice in group_values("dataset")]
    usual = [keys for keys in files if keys.get("_target_") == slot["_target_"]]
    for name in names:
        value = slot[name]
        # A text is a file: dataset=monolingual has the number of sentences of a split or its file in one setting.
        if (is_read and isinstance(value, str)) or value in [keys.get(name) for keys in usual]:
            continue
        if not is_read:
            raise UserError(
                f"dataset.{name}={value} is a setting of files, and these data are generated. Leave it out, or give files "
                f"with dataset.{key}."
            )
        share = f"{name}_share"
        instead = f", or set dataset.{share} or dataset.{name}=FILE instead" if share in slot else ""
        raise UserError(
            f"dataset.{name}={value} is a setting of generated data, and dataset.{key}={slot[key]} reads files. Leave it "
            f"out{instead}."
        )


def check_momentum(config: Config) -> None:
    """Refuse a first beta of the optimizer that the schedule replaces at every step: it has no effect.

    A value of the files in conf/optimizer is not refused: the user has not set it.

    Raises:
        UserError: names the setting and the remedy.
    """
    betas, schedule = (config.optimizer or {}).get("betas"), config.schedule or {}
    if not betas or not schedule.get("momentum") or locate("schedule", schedule, KINDS) is not OneCycle:
        return
    if betas[0] not in [usual[0] for usual in _optimizers_of_files("betas") if usual]:
        raise UserError(
            f"optimizer.betas={betas}: the first one has no effect, because schedule.momentum={schedule['momentum']} "
            f"replaces it at every step. Set schedule.momentum=null to keep the optimizer's."
        )


def _optimizers_of_files(key: str) -> list[Any]:
    """Return the value of a key in each file of conf/optimizer; None where a file does not set it."""
    return [file_keys("optimizer", choice).get(key) for choice in group_values("optimizer")]


def _check_optimizer(config: Config) -> None:
    """Create the optimizer, and refuse a class of torch whose step needs a closure or sparse gradients.

    Raises:
        UserError: names the class and the error.
    """
    weight = nn.Parameter(torch.zeros(1))
    optimizer = part("optimizer", config.optimizer, KINDS)([weight])
    path = config.optimizer["_target_"]
    # With `capturable` it has steps on a GPU only.
    if (
        path in _optimizers_of_files("_target_")
        or not path.startswith("torch.")
        or optimizer.defaults.get("capturable")
    ):
        return
    weight.grad = torch.zeros_like(weight)
    try:
        optimizer.step()
    except (TypeError, RuntimeError) as error:
        raise UserError(
            f"optimizer._target_={path}: its step failed: {str(error).rstrip('.')}. Choose an optimizer whose step needs "
            f"no closure and takes dense gradients."
        ) from error


def _create_parts(config: Config) -> None:
    for group in ("dataset", "tokenizer", "teacher_forcing", "search"):
        if (slot := getattr(config, group)) is not None:
            part(group, slot, KINDS)()
    training_parts.build_schedule(config)
    _check_optimizer(config)
    task_parts.check_model(config)
