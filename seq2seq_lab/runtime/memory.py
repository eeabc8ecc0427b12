"""Errors for the user when the memory of a device is exhausted."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from seq2seq_lab.config.schema import Precision
from seq2seq_lab.errors import UserError
from seq2seq_lab.runtime.device import autocast

TRAINING = (
    "Set a smaller task.batch_size or task.max_length, or a greater trainer.micro_batches (parts of a step that are "
    "computed one after another), in a new run; init_from=RUN starts it with the weights of a checkpoint."
)
DEVICE = (
    "End the programs that use the device, or choose another one with trainer.device or CUDA_VISIBLE_DEVICES."
)
EVALUATION = "Set a smaller task.eval_batch_size, search.size or task.max_eval_length."

# In the messages of errors that are not `torch.OutOfMemoryError`: of the CPU's allocator, and of CUDA's libraries.
MARKS = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED")


@contextmanager
def memory_errors(during: str, batch: Any, remedy: str) -> Iterator[None]:
    """Raise `UserError` in place of an error that the memory is exhausted. Other errors are not changed.

    On Linux a process that exhausts the memory of the machine, not a limit of its own, is usually killed without an error.

    Args:
        during: what is computed, as in "step 12".
        batch: see `shapes_of`.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not is_out_of_memory(error):
            raise
        shapes, reason = shapes_of(batch), next(iter(str(error).splitlines()), type(error).__name__)
        computed = f"{during} (batch: {shapes})" if shapes else during
        raise UserError(f"Out of memory in {computed}. {remedy} ({reason})") from error


@contextmanager
def evaluation_context(batch: Any, precision: Precision, device: torch.device) -> Iterator[None]:
    """The context of the forward passes and the search of an evaluation: `autocast` and `memory_errors`."""
    with memory_errors("an evaluation", batch, EVALUATION), autocast(precision, device):
        yield


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return whether an error of PyTorch means that memory is exhausted."""
    return isinstance(error, torch.OutOfMemoryError) or any(mark in str(error) for mark in MARKS)


def shapes_of(batch: Any) -> str:
    """Return the names, without the letters of the dimensions, and the shapes of the tensors of a batch.

    Tensors of one dimension are left out. The result is empty for a batch that is not a dataclass.
    """
    if not dataclasses.is_dataclass(batch):
        return ""
    values = {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch)}
    return ", ".join(
        f"{name.rpartition('_')[0] or name} {' × '.join(map(str, value.shape))}"
        for name, value in values.items()
        if isinstance(value, Tensor) and value.dim() > 1
    )
