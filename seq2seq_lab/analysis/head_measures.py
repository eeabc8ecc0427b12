"""The measures of `metrics.attention` for each layer and head of a Transformer."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from seq2seq_lab.analysis.comparison import Mean
from seq2seq_lab.analysis.forced import Forced
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.attention import ATTENTION_MEASURES, COLUMNS, measures
from seq2seq_lab.metrics.base import Array
from seq2seq_lab.runtime.device import to_host

Head = tuple[int | None, int | None]


@dataclass(frozen=True)
class HeadMeasures:
    """The measures of the attention of one head.

    Attributes:
        layer, head: from 0; without a head, of the mean weights of the heads of the layer; without both, of a model that is
            not a Transformer.
        values: by the name of the metric; None where it is not defined for any sentence.
    """

    layer: int | None
    head: int | None
    values: Mapping[str, Mean | None]


def measures_of_heads(model: Any, forced: Forced) -> list[HeadMeasures]:
    """Return the measures of each layer and head for the given outputs.

    Raises:
        UserError: the model has no attention to words.
    """
    if forced.source_tokenizer is None:
        raise UserError("measures needs a run with text as its source.")
    sums: dict[Head, Array] = {}
    for index, batch, _, weights_BTS in forced.readings():
        if weights_BTS is None:
            raise UserError("The model has no attention to words. Give a run whose model has it.")
        sources, targets = zip(*map(forced.units, index), strict=True)
        for head, of_head_BTS in _of_heads(model, forced, batch, weights_BTS):
            rows = sums.setdefault(head, np.zeros((len(forced.targets), len(COLUMNS))))
            rows[index] = measures(to_host(of_head_BTS.float()), sources, targets)
    return [
        HeadMeasures(
            layer,
            head,
            {one.name: Mean.of(one.of_sums(rows), forced.clusters_N) for one in ATTENTION_MEASURES},
        )
        for (layer, head), rows in sums.items()
    ]


def _of_heads(model: Any, forced: Forced, batch: Any, weights_BTS: Tensor) -> Iterator[tuple[Head, Tensor]]:
    layers, heads = model.decoder.heads
    if not layers:
        yield (None, None), weights_BTS
        return
    maps_BLATS = forced.cross_maps(model, batch)
    for layer in range(layers):
        yield (layer, None), maps_BLATS[:, layer].mean(1)
        yield from (((layer, head), maps_BLATS[:, layer, head]) for head in range(heads))
