"""What the positions of a batch may attend to, as the model computes it."""

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


def draw_masks(model: Seq2Seq, batch: Batch, tokenizers: TokenizerPair) -> "Figure | None":
    """Draw the masks of a Transformer for a batch; None if it has none.

    A position is masked if its weight is exactly 0 in all layers and heads.
    """
    maps = model.attention_maps(batch, batch.inputs_BT)
    source, inputs = (
        [tokenizer.tokens(row) for row in ids.tolist()]
        for tokenizer, ids in ((tokenizers.source, batch.source_BS), (tokenizers.target, batch.inputs_BT))
    )
    sides = {"encoder": (source, source), "decoder": (inputs, inputs), "cross": (source, inputs)}
    if not maps:
        return None
    return plots.draw_masks(
        {
            TITLES[name]: (maps_BLATS > 0).flatten(1, 2).any(1).cpu().numpy()
            for name, maps_BLATS in maps.items()
        },
        {TITLES[name]: [*zip(*sides[name], strict=True)] for name in maps},
        *tokenizers.target.tokens([PAD]),
    )
