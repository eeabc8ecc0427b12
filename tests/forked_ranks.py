"""Starts ranks as forks of this process, which do not import PyTorch again: a spawned rank takes seconds to do so."""

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from torch.distributed.launcher import api


@contextmanager
def forked_ranks() -> Iterator[None]:
    """Make `launch.spawn` fork its ranks. They compute with one thread: OpenMP's threads do not survive a fork."""
    import torch._dynamo  # here, as each rank would import it for its optimizer

    settings, threads = api.LaunchConfig, torch.get_num_threads()

    def with_forks(**given: Any) -> Any:
        return settings(**given | {"start_method": "fork"})

    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("default")  # in a spawned rank, warnings are not errors either
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setattr(api, "LaunchConfig", with_forks)
        gc.collect()
        gc.freeze()  # a rank that collected a store of an earlier launch would wait for its threads, which it does not have
        yield
    gc.unfreeze()
    torch.set_num_threads(threads)
