"""Counter-based random numbers: a number depends on its counters, not on the order of the draws."""

import torch
from torch import Tensor

_MASK = (1 << 64) - 1
_GOLDEN, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def _signed(value: int) -> int:
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


def _mix(x: Tensor) -> Tensor:
    """Apply the finalizer of splitmix64 (Steele et al. 2014) to int64 words; products wrap around."""
    for shift, factor in ((30, _MIX_1), (27, _MIX_2)):
        x = (x ^ ((x >> shift) & (_MASK >> shift))) * _signed(factor)
    return x ^ ((x >> 31) & (_MASK >> 31))


def uniform(seed: int, *counters: Tensor | int) -> Tensor:
    """Return float32 numbers in [0, 1) that depend only on the seed and the counters, which are broadcast.

    A number is the same for any batch order, any number of ranks and any device.
    """
    device = next(counter.device for counter in counters if isinstance(counter, Tensor))
    # Filled on the device: copying a number to it would synchronize.
    x = torch.full((), _signed(seed * _GOLDEN), device=device)
    for counter in counters:
        x = _mix((x ^ counter) + _signed(_GOLDEN))
    return ((x >> 40) & (_MASK >> 40)).float() / (1 << 24)  # some devices lack float64
