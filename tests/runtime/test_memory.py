"""Exhausted memory becomes an error that names the batch and the remedy."""

import pytest
import torch
from small_models import batch_of

from seq2seq_lab.config.schema import Precision
from seq2seq_lab.errors import UserError
from seq2seq_lab.runtime.memory import TRAINING, evaluation_context, memory_errors

TOO_MUCH = 2**50  # float32 values


def test_a_refused_allocation_names_the_batch_and_the_keys() -> None:
    with (
        pytest.raises(UserError, match=r"step 12\b.* target 2 × 6, source 2 × 7\b.*trainer\.micro_batches"),
        memory_errors("step 12", batch_of([[4] * 5, [4] * 3], [[4] * 4, [4] * 2]), TRAINING),
    ):
        torch.empty(TOO_MUCH)


def test_an_evaluation_names_its_keys() -> None:
    with (
        pytest.raises(UserError, match=r"evaluation.*task\.eval_batch_size.*search\.size"),
        evaluation_context(None, Precision.fp32, torch.device("cpu")),
    ):
        raise MemoryError("32 GiB")


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has …"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("CUDA error: out of memory"),
    ],
)
def test_errors_of_a_gpu(error: Exception) -> None:
    with (
        pytest.raises(UserError, match=r"Out of memory in step 1\..*\(CUDA"),
        memory_errors("step 1", None, TRAINING),
    ):
        raise error


@pytest.mark.parametrize("error", [RuntimeError("size mismatch"), ValueError("out of memory")])
def test_other_errors_are_not_changed(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, memory_errors("step 1", None, TRAINING):
        raise error
    assert raised.value is error
