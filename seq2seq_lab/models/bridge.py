"""From the encoded source to the decoder's first state."""

from typing import Literal

import torch
from torch import Tensor, nn

from seq2seq_lab.models.encoders.base import EncoderSizes
from seq2seq_lab.models.recurrent import RecurrentState
from seq2seq_lab.models.source import Source

BridgeKind = Literal["copy", "tanh", "mean", "zero"]


class Bridge(nn.Module):
    """Start the decoder from what the encoder made of the source.

    `copy` hands the final states over as they are (Sutskever 2014), so both sides must have the same size.
    `tanh` starts from h_0 = tanh(W h + b) (Bahdanau 2014, appendix A.2.2), one W for all layers; an LSTM's memory
    cell is copied where the sizes agree and projected linearly where they do not. A memory cell only the
    encoder has is dropped; one only the decoder has starts from the encoder's final state.
    `mean` starts all layers from h_0 = tanh(W mean(h_1 … h_S) + b) (Sennrich 2017, arXiv:1703.04357, eq. 2), and
    `zero` from 0; an LSTM's memory cell is then 0.

    Raises:
        ValueError: layers or sizes differ and the bridge cannot join them.
    """

    def __init__(
        self, kind: BridgeKind, encoder: EncoderSizes, hidden_size: int, num_layers: int, has_cell: bool
    ) -> None:
        super().__init__()
        self.kind = kind
        self.shape = (num_layers, hidden_size)
        self.has_cell = has_cell
        from_states = kind in ("copy", "tanh")
        if from_states and encoder.num_layers != num_layers:
            raise ValueError(
                f"decoder.bridge={kind}: the encoder has {encoder.num_layers} layers and the decoder {num_layers}, but the "
                f"final state of each encoder layer starts a decoder layer, so both need the same number. Set "
                f"model.num_layers for both, or model.bridge=mean."
            )
        same = encoder.final_size == hidden_size
        if kind == "copy" and not same:
            raise ValueError(
                f"decoder.bridge=copy needs a decoder state of the encoder's size, but the decoder (model.hidden_size) has "
                f"{hidden_size} and the encoder's final state {encoder.final_size} (model.encoder_hidden_size times its "
                f"directions). Set model.hidden_size={encoder.final_size}, or model.bridge=tanh."
            )
        self.hidden: nn.Module = nn.Identity()
        if kind in ("tanh", "mean"):
            size = encoder.final_size if kind == "tanh" else encoder.encoder_output_size
            self.hidden = nn.Sequential(nn.Linear(size, hidden_size), nn.Tanh())
        self.cell: nn.Module = nn.Identity()
        if from_states and has_cell and not same:
            self.cell = nn.Linear(encoder.final_size, hidden_size)

    def forward(self, source: Source) -> RecurrentState:
        """Return the decoder's first state."""
        if self.kind in ("copy", "tanh"):
            final = source.final
            cell_LBH = final.hidden_LBH if final.cell_LBH is None else final.cell_LBH
            return RecurrentState(
                self.hidden(final.hidden_LBH), self.cell(cell_LBH) if self.has_cell else None
            )
        layers, size = self.shape
        zeros_LBH = source.encoder_outputs_BSM.new_zeros(layers, len(source.encoder_outputs_BSM), size)
        cell = zeros_LBH if self.has_cell else None
        if self.kind == "zero":
            return RecurrentState(zeros_LBH, cell)
        hidden_BH: Tensor = self.hidden(mean_output(source))
        return RecurrentState(hidden_BH.expand(layers, *hidden_BH.shape), cell)


def mean_output(source: Source) -> Tensor:
    """Return the mean_BM of the memory over the real tokens."""
    if source.mask is None:
        return source.encoder_outputs_BSM.mean(1)
    real_BS1 = source.mask.transpose(1, 2)
    return torch.where(real_BS1, source.encoder_outputs_BSM, 0).sum(1) / real_BS1.sum(1)
