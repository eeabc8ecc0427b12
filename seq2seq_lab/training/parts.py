"""The slots of the training, and the settings of the trainer."""

from dataclasses import fields

import torch
from torch import nn

from seq2seq_lab.config.schema import Config, MonitorMode, Normalization, ValidateUnit
from seq2seq_lab.config.slots import Kind, part
from seq2seq_lab.models.encoders.base import Encoder
from seq2seq_lab.tasks.base import Task
from seq2seq_lab.tasks.parts import monitored
from seq2seq_lab.training.schedules import Schedule
from seq2seq_lab.training.state import TrainerSettings

KINDS = {
    "optimizer": Kind(torch.optim.Optimizer, frozenset({"params"})),
    "schedule": Kind(Schedule),
}


def trainer_settings(config: Config, task: Task) -> TrainerSettings:
    """Return the settings of the trainer."""
    trainer, metric = config.trainer, monitored(config, task)
    automatic = trainer.monitor_mode is MonitorMode.auto
    losses = [f"val/{other.name}" for other in task.metrics if other.is_loss and other is not metric]
    names = [field.name for field in fields(TrainerSettings)]
    values = {
        **{name: value for name, value in vars(trainer).items() if name in names},
        "monitor": f"val/{metric.name}",
        "higher_is_better": metric.higher_is_better if automatic else trainer.monitor_mode is MonitorMode.max,
        "tie_breaker": losses[0] if losses else None,
        "by_example": trainer.normalization is Normalization.examples,
        "validate_by_epoch": trainer.validate_unit is ValidateUnit.epoch,
    }
    return TrainerSettings(**values)


def build_schedule(config: Config) -> Schedule:
    """Return the learning-rate schedule."""
    return part("schedule", config.schedule, KINDS)()


def build_optimizer(config: Config, model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer over the model's trainable parameters; see `Encoder.parameter_groups`."""
    encoders = [module for module in model.modules() if isinstance(module, Encoder)]
    groups = [group for encoder in encoders for group in encoder.parameter_groups()]
    grouped = {parameter for group in groups for parameter in group["params"]}
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    others = [parameter for parameter in trained if parameter not in grouped]
    return part("optimizer", config.optimizer, KINDS)([{"params": others}, *groups])
