"""The rows of `faults.ends`, and loggers that fail, each with real processes."""

import os
from collections.abc import Iterator

import pytest
from faults import afterwards, ends
from faults.rig import Fault, Rig


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("ends")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "SEQ2SEQ_LAB_CACHE", str(folder / "cache"))
        rig = Rig(folder)
        rig.warm_up()
        yield rig


ROWS = [*ends.faults(), *(fault for fault in afterwards.faults() if fault.row == "46")]


@pytest.mark.slow
@pytest.mark.parametrize("fault", ROWS, ids=lambda fault: fault.name)
def test_an_end_from_outside_costs_nothing(fault: Fault, rig: Rig) -> None:
    assert fault.run(rig).problems == []
