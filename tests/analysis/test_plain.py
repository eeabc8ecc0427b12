"""Results as plain data."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from seq2seq_lab.analysis.plain import HIDDEN, Plain, plain
from seq2seq_lab.analyze.common import print_record


@dataclass
class Inner:
    values: tuple[float, ...]
    model: object = field(default=None, metadata=HIDDEN)


@dataclass
class Outer(Plain):
    inner: list[Inner]
    weights: np.ndarray
    name: str | None = None


def test_a_dataclass_becomes_plain_data() -> None:
    one = Outer([Inner((1.5, float("inf")), object())], np.array([[0.5, np.nan]], np.float32))
    expected = {"inner": [{"values": [1.5, None]}], "weights": [[0.5, None]], "name": None}
    assert one.as_json() == expected
    assert json.loads(json.dumps(one.as_json(), allow_nan=False)) == expected


def test_other_values_are_refused() -> None:
    with pytest.raises(TypeError, match="PosixPath"):
        plain({"folder": Path()})


def test_a_printed_record_has_null_for_a_number_that_is_not_finite(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_record({"confidence": math.inf})
    assert capsys.readouterr().out == '{"confidence": null}\n'
