"""What the positions of a batch may attend to, as the model computes it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seq2seq_lab import plots
from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.tokenizers import PAD, TokenizerPair
from seq2seq_lab.models.seq2seq import Seq2Seq

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES = {
    "encoder": "encoder: padding mask",
    "decoder": "decoder: causal mask",
    "cross": "decoder to source: padding mask",
}


def draw_masks(model: Seq2Seq, batch: Batch, tokenizers: Sequence[TokenizerPair]) -> "Figure | None":
    """Draw the masks of a Transformer for a batch; None if it has none.

    A position is masked if its weight is exactly 0 in all layers and heads.

    Args:
        tokenizers: those of each source of the batch and its outputs.
    """
    maps = model.attention_maps(batch, batch.inputs_BT)
    rows = [*zip(tokenizers, batch.source_BS.tolist(), batch.inputs_BT.tolist(), strict=True)]
    source = [both.source.tokens(ids) for both, ids, _ in rows]
    inputs = [both.target.tokens(ids) for both, _, ids in rows]
    sides = {"encoder": (source, source), "decoder": (inputs, inputs), "cross": (source, inputs)}
    if not maps:
        return None
    return plots.draw_masks(
        {
            TITLES[name]: (maps_BLATS > 0).flatten(1, 2).any(1).cpu().numpy()
            for name, maps_BLATS in maps.items()
        },
        {TITLES[name]: [*zip(*sides[name], strict=True)] for name in maps},
        *tokenizers[0].target.tokens([PAD]),
    )
