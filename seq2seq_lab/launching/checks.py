"""Checks of everything that a configuration names, before any data is read."""

import torch
from torch import nn

from seq2seq_lab.config.schema import SLOTS, Config
from seq2seq_lab.config.slots import check_slot, named_components, part
from seq2seq_lab.tasks import parts as task_parts
from seq2seq_lab.tracking import parts as tracking_parts
from seq2seq_lab.training import parts as training_parts

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


def _create_parts(config: Config) -> None:
    for group in ("dataset", "tokenizer", "teacher_forcing", "search"):
        if (slot := getattr(config, group)) is not None:
            part(group, slot, KINDS)()
    training_parts.build_schedule(config)
    part("optimizer", config.optimizer, KINDS)([nn.Parameter(torch.zeros(1))])
    task_parts.check_model(config)
