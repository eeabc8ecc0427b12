"""An optimizer step that is skipped if the loss or the gradient is not finite; a hash of weights and optimizer."""

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor

from seq2seq_lab.errors import UserError
from seq2seq_lab.runtime.device import to_host


def decides_on_device(optimizer: torch.optim.Optimizer, device: torch.device) -> bool:
    """Return whether the optimizer can skip a step without the host: the fused optimizers on a GPU."""
    return device.type == "cuda" and bool(optimizer.defaults.get("fused"))


def step_if(finite: Tensor, optimizer: torch.optim.Optimizer, on_device: bool) -> None:
    """Perform an optimizer step if `finite` is true; otherwise change neither the weights nor the optimizer's state.

    Args:
        finite: a bool, on the device of the weights.
        on_device: pass the decision to the fused kernel as `torch.amp.GradScaler` does. Otherwise the host reads it.
    """
    if on_device:
        optimizer.found_inf = (~finite).float()  # type: ignore[attr-defined]
        optimizer.step()
        del optimizer.found_inf  # type: ignore[attr-defined]
    elif finite:
        optimizer.step()


def start_momentum(optimizer: torch.optim.Optimizer) -> None:
    """Set the momentum of SGD to 0.

    Its fused kernel allocates the buffers without a value and sets them in the first step only: if that step is skipped,
    the next one reads uninitialized memory.

    Raises:
        UserError: a dampening, which SGD does not apply to the first gradient, but would apply to a momentum of 0.
    """
    if isinstance(optimizer, torch.optim.SGD):
        for group in optimizer.param_groups:
            if group["momentum"]:
                if group["dampening"] != 0:
                    raise UserError(
                        f"optimizer.dampening={group['dampening']} cannot be combined with optimizer.fused=true on a GPU. "
                        f"Set optimizer.dampening=0, or optimizer.fused=false."
                    )
                for parameter in group["params"]:
                    optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


def state_tensors(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return the tensors of the state of an optimizer, in the order of its parameters."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    states = [optimizer.state.get(parameter, {}) for parameter in parameters]
    return [value for state in states for _, value in sorted(state.items()) if isinstance(value, Tensor)]


def digest(tensors: Iterable[Tensor]) -> str:
    """Return a hash of the values of tensors."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(to_host(tensor.contiguous()).tobytes())  # the ranks compare their weights
    return found.hexdigest()
