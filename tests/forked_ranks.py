"""Starts ranks as forks of this process, which do not import PyTorch again: a spawned rank takes seconds to do so."""

import gc
import multiprocessing
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from torch import multiprocessing as torch_processes
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

    start_processes = torch_processes.start_processes

    def start_together(fn: Callable[..., None], *given: Any, **named: Any) -> Any:
        """Start the processes, and let them begin when all are forked.

        The store of this process looks up the name of each rank that connects. A process that is forked meanwhile would wait
        for glibc's lock of names (`resolv_conf`), which stays locked in it.
        """
        forked = multiprocessing.get_context("fork").Event()

        def begin(*arguments: Any) -> None:
            assert forked.wait(timeout=60), "the other ranks were not forked"
            fn(*arguments)

        processes = start_processes(begin, *given, **named)
        forked.set()
        return processes

    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("default")  # in a spawned rank, warnings are not errors either
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setattr(api, "LaunchConfig", WithForks)
        patch.setattr(torch_processes, "start_processes", start_together)
        patch.setattr(torch, "set_num_threads", lambda number: None)
        gc.collect()
        gc.freeze()  # a rank that collected a store of an earlier launch would wait for its threads, which it does not have
        yield
    gc.unfreeze()
    torch.set_num_threads(threads)
