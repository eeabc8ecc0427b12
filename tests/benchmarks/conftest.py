"""Makes the turns of the benchmarks fast enough for tests."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="package")
def frozen_objects() -> Iterator[None]:
    """Each turn collects garbage: skip the hundreds of thousands of objects that exist already."""
    gc.freeze()
    yield
    gc.unfreeze()
