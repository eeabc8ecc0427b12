"""The processes of a data-parallel run and what they tell each other."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from seq2seq_lab.config.schema import Backend
from seq2seq_lab.errors import UserError

Value = TypeVar("Value")

TIMEOUT = timedelta(hours=2)  # of waiting for another rank, which may be reading a large corpus


@dataclass(frozen=True)
class Ranks:
    """This process among those of its run; a run of one process has nobody to talk to.

    What is sent between ranks with `broadcast` and `gather` are plain Python values.

    Attributes:
        rank: this process, counted from 0.
        size: how many there are.
        local_rank: this process among those on its machine.
        group: the process group that tensors are added up in; None for that of the Python values, gloo's.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    group: distributed.ProcessGroup | None = None

    @property
    def main(self) -> bool:
        """Whether this process writes the run folder and talks to the user."""
        return self.rank == 0

    def gpu_index(self, backend: Backend) -> int:
        """Return the number of this rank's GPU; gloo lets ranks share the GPUs of a machine that has fewer of them."""
        gpus = torch.cuda.device_count()
        return self.local_rank % gpus if gpus and backend is Backend.gloo else self.local_rank

    def with_backend(self, backend: Backend, device: torch.device) -> "Ranks":
        """Return these ranks with the process group of a backend to add up tensors; every rank calls it.

        Python values always go through gloo, so that they never wait for a GPU.

        Raises:
            UserError: NCCL is asked for without GPUs.
        """
        if backend is Backend.nccl and device.type != "cuda":
            raise UserError(
                f"trainer.backend=nccl needs GPUs, and this run computes on {device.type}. Allowed here: auto, gloo."
            )
        if self.size == 1 or backend is Backend.gloo or device.type != "cuda":
            return self
        return replace(self, group=distributed.new_group(backend="nccl", timeout=TIMEOUT))

    def broadcast(self, make: Callable[[], Value]) -> Value:
        """Return what `make` gives on rank 0; it is called there alone."""
        if self.size == 1:
            return make()
        values = [make() if self.main else None]
        distributed.broadcast_object_list(values, src=0)
        return values[0]  # type: ignore[return-value]

    def gather(self, value: Value) -> list[Value]:
        """Return the values of all ranks, in their order, on every rank."""
        if self.size == 1:
            return [value]
        values: list[Value | None] = [None] * self.size
        distributed.all_gather_object(values, value)
        return values  # type: ignore[return-value]

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Add up a tensor over the ranks, in place, and return it."""
        if self.size > 1:
            distributed.all_reduce(tensor, group=self.group)
        return tensor

    @contextmanager
    def main_first(self) -> Iterator[None]:
        """Let rank 0 do the work before the others do it: they find what it has put into a cache."""
        if self.size > 1 and not self.main:
            distributed.barrier()
        yield
        if self.size > 1 and self.main:
            distributed.barrier()

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        if self.size > 1:
            distributed.barrier()

    def data_parallel(self, module: nn.Module, device: torch.device) -> nn.Module:
        """Return the module with its gradients averaged over the ranks in each backward pass.

        All ranks begin with the weights of rank 0.
        """
        if self.size == 1:
            return module
        return DistributedDataParallel(
            module,
            device_ids=[device] if device.type == "cuda" else None,
            process_group=self.group,
            gradient_as_bucket_view=True,
        )

    def gradient_sync(self, module: nn.Module, last: bool) -> AbstractContextManager[None]:
        """Return the context of a backward pass of such a module: the ranks share an update's gradients with its last."""
        if last or not isinstance(module, DistributedDataParallel):
            return nullcontext()
        return module.no_sync()
