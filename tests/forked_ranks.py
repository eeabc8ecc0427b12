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
    """Make `launch.spawn` fork its ranks, which compute with one thread whatever they ask for.

    OpenMP's threads do not survive a fork: a rank with several would wait for those that this process has used before.
    """
    import torch._dynamo  # here, as each rank would import it for its optimizer

    threads = torch.get_num_threads()

    class WithForks(api.LaunchConfig):
        def __init__(self, **given: Any) -> None:
            super().__init__(**given | {"start_method": "fork"})

    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("default")  # in a spawned rank, warnings are not errors either
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setattr(api, "LaunchConfig", WithForks)
        patch.setattr(torch, "set_num_threads", lambda number: None)
        gc.collect()
        gc.freeze()  # a rank that collected a store of an earlier launch would wait for its threads, which it does not have
        yield
    gc.unfreeze()
    torch.set_num_threads(threads)
