"""Bridges: the decoder's first state from the encoded source."""

from typing import Literal

from torch import Tensor, nn

from seq2seq_lab.models.encoders.base import EncoderSizes
from seq2seq_lab.models.masking import masked_mean
from seq2seq_lab.models.recurrent import RecurrentSpec, RecurrentState
from seq2seq_lab.models.source import Source

BridgeKind = Literal["copy", "tanh", "mean", "zero"]


class Bridge(nn.Module):
    """Compute the decoder's first state from the encoded source.

    `copy` takes the final states of the encoder (Sutskever 2014); both sides need the same sizes.
    `tanh` starts from h_0 = tanh(W h + b), h the final state of an encoder layer (of both directions), with one W for all
    layers. Bahdanau 2014 (appendix A.2.2) reads the final state of the backward direction only, without b. The memory cell
    of an LSTM is copied if the sizes are equal, else projected linearly; if only the decoder is an LSTM, its memory cell
    starts from the encoder's final hidden state.
    `mean` starts all layers from h_0 = tanh(W mean(h_1 … h_S) + b) (Sennrich 2017, arXiv:1703.04357, eq. 2), and
    `zero` from 0; the memory cell of an LSTM is then 0.

    Raises:
        ValueError: `copy` or `tanh` with an encoder without a final state, or with other layers or sizes than allowed.
    """

    def __init__(self, kind: BridgeKind, encoder: EncoderSizes, decoder: RecurrentSpec) -> None:
        super().__init__()
        self.kind = kind
        self.shape = (decoder.num_layers, decoder.hidden_size)
        self.has_cell = decoder.cell == "lstm"
        from_final = self.uses_final = kind in ("copy", "tanh")
        if from_final:
            check_final(kind, encoder, decoder)
        size = encoder.final_size if from_final else encoder.encoder_output_size
        self.hidden: nn.Module = nn.Identity()
        if kind in ("tanh", "mean"):
            self.hidden = nn.Sequential(nn.Linear(size or 0, decoder.hidden_size), nn.Tanh())
        self.cell: nn.Module = nn.Identity()
        if from_final and self.has_cell and size != decoder.hidden_size:
            self.cell = nn.Linear(size or 0, decoder.hidden_size)

    def forward(self, source: Source) -> RecurrentState:
        """Return the decoder's first state."""
        if self.uses_final:
            final = source.final
            assert final is not None
            cell_LBH = final.hidden_LBH if final.cell_LBH is None else final.cell_LBH
            return RecurrentState(
                self.hidden(final.hidden_LBH), self.cell(cell_LBH) if self.has_cell else None
            )
        layers, size = self.shape
        zeros_LBH = source.encoder_outputs_BSM.new_zeros(layers, len(source.encoder_outputs_BSM), size)
        cell = zeros_LBH if self.has_cell else None
        if self.kind == "zero":
            return RecurrentState(zeros_LBH, cell)
        mask_BS = None if source.mask is None else source.mask[:, 0]
        hidden_BH: Tensor = self.hidden(masked_mean(source.encoder_outputs_BSM, mask_BS))
        return RecurrentState(hidden_BH.expand(layers, *hidden_BH.shape), cell)


def check_final(kind: BridgeKind, encoder: EncoderSizes, decoder: RecurrentSpec) -> None:
    """Check that the final state of an encoder can start a decoder.

    Raises:
        ValueError: it cannot; the message names the keys.
    """
    if encoder.final_size is None:
        raise ValueError(
            f"decoder.bridge={kind} starts the decoder from the encoder's final state, and this encoder has none. Set "
            f"model.bridge=mean or model.bridge=zero."
        )
    if encoder.num_layers != decoder.num_layers:
        raise ValueError(
            f"decoder.bridge={kind}: the encoder has {encoder.num_layers} layers and the decoder {decoder.num_layers}, but "
            f"the final state of each encoder layer starts a decoder layer. Set model.num_layers for both, or "
            f"model.bridge=mean."
        )
    if kind == "copy" and encoder.final_size != decoder.hidden_size:
        raise ValueError(
            f"decoder.bridge=copy needs a decoder state of the encoder's size, but the decoder (model.hidden_size) has "
            f"{decoder.hidden_size} and the encoder's final state {encoder.final_size} (model.encoder_hidden_size times its "
            f"directions). Set model.hidden_size={encoder.final_size}, or model.bridge=tanh."
        )
