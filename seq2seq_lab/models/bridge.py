"""From the encoder's final state to the decoder's first."""

from typing import Literal

from torch import nn

from seq2seq_lab.models.encoders.base import EncoderSizes
from seq2seq_lab.models.recurrent import RecurrentState

BridgeKind = Literal["tanh", "copy"]


class Bridge(nn.Module):
    """Start the decoder from what the encoder ended with.

    `copy` hands the states over as they are (Sutskever 2014), so both sides must have the same size.
    `tanh` starts from h_0 = tanh(W h) (Bahdanau 2014, appendix A.2.2), one W for all layers; an LSTM's memory
    cell is copied where the sizes agree and projected linearly where they do not. A memory cell only the
    encoder has is dropped; one only the decoder has starts from the encoder's final state.

    Raises:
        ValueError: layers or sizes differ and the bridge cannot join them.
    """

    def __init__(
        self, kind: BridgeKind, encoder: EncoderSizes, hidden_size: int, num_layers: int, has_cell: bool
    ) -> None:
        super().__init__()
        if encoder.num_layers != num_layers:
            raise ValueError(
                f"the encoder has {encoder.num_layers} layers and the decoder {num_layers}: the final state of each encoder "
                f"layer starts a decoder layer, so both need the same number. Set model.num_layers for both."
            )
        same = encoder.final_size == hidden_size
        if kind == "copy" and not same:
            raise ValueError(
                f"decoder.bridge=copy needs a decoder state of the encoder's size, but the decoder (model.hidden_size) has "
                f"{hidden_size} and the encoder's final state {encoder.final_size} (model.encoder_hidden_size times its "
                f"directions). Set model.hidden_size={encoder.final_size}, or decoder.bridge=tanh."
            )
        self.hidden: nn.Module = nn.Identity()
        if kind == "tanh":
            self.hidden = nn.Sequential(nn.Linear(encoder.final_size, hidden_size), nn.Tanh())
        self.cell: nn.Module | None = None
        if has_cell:
            self.cell = nn.Identity() if same else nn.Linear(encoder.final_size, hidden_size)

    def forward(self, final: RecurrentState) -> RecurrentState:
        """Return the decoder's first state."""
        hidden_LBH = self.hidden(final.hidden_LBH)
        if self.cell is None:
            return RecurrentState(hidden_LBH, None)
        cell_LBH = final.hidden_LBH if final.cell_LBH is None else final.cell_LBH
        return RecurrentState(hidden_LBH, self.cell(cell_LBH))
