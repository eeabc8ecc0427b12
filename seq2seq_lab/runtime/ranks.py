"""The processes (ranks) of a data-parallel run and the communication between them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.distributed import Store  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel

from seq2seq_lab.config.schema import Backend
from seq2seq_lab.errors import UserError
from seq2seq_lab.runtime.device import gpu_of_rank
from seq2seq_lab.runtime.heartbeat import heartbeat

Value = TypeVar("Value")

NO_TIMEOUT = timedelta(days=365)  # `runtime.watch` ends a run that makes no progress


def has_lost_rank(error: BaseException) -> bool:
    """Return whether a collective operation has failed because another rank has ended."""
    return isinstance(error, distributed.DistError) or "gloo/transport" in str(error)


@dataclass(frozen=True)
class Ranks:
    """The rank of this process and the collective operations of its run.

    With one process, every operation returns its argument without communication. `broadcast` and `gather` exchange
    Python values, `all_reduce` tensors.

    Attributes:
        rank: index of this process.
        size: number of processes.
        local_rank: index of this process on its machine.
        group: process group of the tensor operations; None for the default group (gloo).
        store: key-value store of the ranks; None with one process.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    group: distributed.ProcessGroup | None = None
    store: Store | None = None

    @property
    def main(self) -> bool:
        """Whether this process writes the run folder and the terminal output."""
        return self.rank == 0

    def gpu_index(self, backend: Backend) -> int:
        """Return the index of this rank's GPU. With gloo, ranks can share GPUs."""
        return gpu_of_rank(self.local_rank) if backend is Backend.gloo else self.local_rank

    def with_backend(self, backend: Backend, device: torch.device) -> "Ranks":
        """Return a copy with the process group of a backend for tensor operations. Every rank must call this.

        Python values always use gloo, so exchanging them does not wait for a GPU.

        Raises:
            UserError: NCCL is requested without a GPU.
        """
        if backend is Backend.nccl and device.type != "cuda":
            raise UserError(
                f"trainer.backend=nccl requires GPUs, but the device is {device.type}. Values: auto, gloo."
            )
        if self.size == 1 or backend is Backend.gloo or device.type != "cuda":
            return self
        with heartbeat.waiting():
            return replace(self, group=distributed.new_group(backend="nccl", timeout=NO_TIMEOUT))

    def broadcast(self, make: Callable[[], Value]) -> Value:
        """Call `make` on rank 0 only and return its result on every rank."""
        if self.size == 1:
            return make()
        values = [make() if self.main else None]
        with heartbeat.waiting():
            distributed.broadcast_object_list(values, src=0)
        return values[0]  # type: ignore[return-value]

    def gather(self, value: Value) -> list[Value]:
        """Return the values of all ranks in rank order, on every rank."""
        if self.size == 1:
            return [value]
        values: list[Value | None] = [None] * self.size
        with heartbeat.waiting():
            distributed.all_gather_object(values, value)
        return values  # type: ignore[return-value]

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over the ranks in place and return it."""
        if self.size > 1:
            with heartbeat.waiting():
                distributed.all_reduce(tensor, group=self.group)
        return tensor

    def start_maximum(self, values: Sequence[int]) -> Callable[[], list[int]]:
        """Start to compute the maximum of each value over the ranks; return a function that waits for the result.

        No GPU is involved, so that neither the host nor the GPU waits for the other.
        """
        if self.size == 1:
            return lambda: [*values]
        tensor = torch.tensor(values)
        work = distributed.all_reduce(tensor, distributed.ReduceOp.MAX, async_op=True)
        assert work is not None

        def wait() -> list[int]:
            with heartbeat.waiting():
                work.wait()
            result: list[int] = tensor.tolist()
            return result

        return wait

    @contextmanager
    def main_first(self) -> Iterator[None]:
        """Run the block on rank 0 before the other ranks, which can then use the cache it has filled."""
        if not self.main:
            self.barrier()
        yield
        if self.main:
            self.barrier()

    def barrier(self) -> None:
        """Wait until all ranks have called this."""
        if self.size > 1:
            with heartbeat.waiting():
                distributed.barrier()

    def data_parallel(self, module: nn.Module, device: torch.device) -> nn.Module:
        """Return the module wrapped so that each backward pass averages its gradients over the ranks.

        All ranks start with the weights of rank 0.
        """
        if self.size == 1:
            return module
        with heartbeat.waiting():
            return DistributedDataParallel(
                module,
                device_ids=[device] if device.type == "cuda" else None,
                process_group=self.group,
                gradient_as_bucket_view=True,
            )

    def gradient_sync(self, module: nn.Module, last: bool) -> AbstractContextManager[None]:
        """Return the context of a backward pass; gradients are averaged only in the last one of an optimizer step."""
        if last or not isinstance(module, DistributedDataParallel):
            return nullcontext()
        return module.no_sync()
