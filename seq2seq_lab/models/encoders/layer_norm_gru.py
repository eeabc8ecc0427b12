"""The recurrent encoder with layer normalization."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from seq2seq_lab.errors import require
from seq2seq_lab.models.dropout import Dropout
from seq2seq_lab.models.encoders.recurrent import RecurrentEncoder, reverse
from seq2seq_lab.models.kernels.recurrent import matrix_dtype
from seq2seq_lab.models.masking import padding_mask
from seq2seq_lab.models.recurrent import LayerState, RecurrentSpec, RecurrentState, gru_step


class LayerNormGruLayers(nn.Module):
    """Stacked GRU layers with layer normalization, batch first (Ba 2016, arXiv:1607.06450, supplement).

    r, z = σ(LN(W x_t) + LN(U h_{t-1})), n = tanh(LN(W_n x_t) + r ⊙ LN(U_n h_{t-1})), h_t = (1 − z) ⊙ n + z ⊙ h_{t-1}.
    W and U contain the rows of both gates, which are normalized together. As in `torch.nn.GRU`, z is the share of the
    old state; in the paper it is that of the new one.

    Args:
        input_size: E, the size of an embedding.

    Raises:
        UserError: the cell is not a GRU.
    """

    def __init__(self, spec: RecurrentSpec, input_size: int, bidirectional: bool) -> None:
        super().__init__()
        require(spec.cell == "gru", "encoder.cell", spec.cell, "gru; for other cells, choose another encoder")
        size, layers = spec.hidden_size, spec.num_layers
        self.directions = 2 if bidirectional else 1
        self.output_size = self.directions * size
        # Holds the weights; its forward pass is not used.
        self.weights = nn.GRU(input_size, size, layers, bias=False, bidirectional=bidirectional)
        self.input_norms = nn.ModuleList(_GateNorm(self.directions, size) for _ in range(layers))
        self.recurrent_norms = nn.ModuleList(_GateNorm(self.directions, size) for _ in range(layers))
        self.dropout = Dropout(spec.dropout, spec.locked_dropout)

    def forward_padded(self, inputs_BTE: Tensor, lengths: Sequence[int]) -> tuple[Tensor, RecurrentState]:
        """Return (the top layer's states_BTH, 0 at padding; the state after the last token).

        Args:
            lengths: the B real lengths, on the host.
        """
        mask_BT = padding_mask(lengths, inputs_BTE.shape[1], inputs_BTE.device)
        states_BTH, finals = inputs_BTE, []
        for layer in range(self.weights.num_layers):
            if layer > 0:
                states_BTH = self.dropout(states_BTH)
            states_BTH, final_BH = self._run_layer(layer, states_BTH, mask_BT)
            if mask_BT is not None:
                states_BTH = states_BTH * mask_BT[..., None]
            finals.append(final_BH)
        return states_BTH, RecurrentState(torch.stack(finals), None)

    def _run_layer(self, layer: int, inputs_BTE: Tensor, mask_BT: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return (states_BTH of a layer, not 0 at padding; its final state_BH)."""
        batch_size, steps, _ = inputs_BTE.shape
        dtype, size = matrix_dtype(inputs_BTE), self.weights.hidden_size
        own = self.weights.all_weights[layer * self.directions : (layer + 1) * self.directions]
        weight_DEG, recurrent_DHG = (
            torch.stack(weights).transpose(1, 2).to(dtype) for weights in zip(*own, strict=True)
        )
        sides = [inputs_BTE, reverse(inputs_BTE, mask_BT)][: self.directions]
        products_DNG = torch.stack(sides).flatten(1, 2).to(dtype) @ weight_DEG
        inputs_DBTG = self.input_norms[layer](products_DNG).unflatten(1, (batch_size, steps))
        # Time first, so that the rows of a step are contiguous.
        inputs_TDBG = inputs_DBTG.permute(2, 0, 1, 3).contiguous()
        state_DBH = inputs_TDBG.new_zeros(self.directions, batch_size, size)
        states = []
        for input_DBG in inputs_TDBG.unbind(0):
            recurrent_DBG = self.recurrent_norms[layer](state_DBH.to(dtype) @ recurrent_DHG)
            state_DBH = gru_step(input_DBG, recurrent_DBG, LayerState(state_DBH, None)).hidden_BH
            states.append(state_DBH)
        states_DBTH = torch.stack(states, dim=2)
        last_DBH = _last(states_DBTH, mask_BT)
        forward_BTH, *backward = states_DBTH.unbind(0)
        sides = [forward_BTH, *(reverse(states_BTH, mask_BT) for states_BTH in backward)]
        return torch.cat(sides, dim=-1), torch.cat(last_DBH.unbind(0), dim=-1)


class LayerNormGruEncoder(RecurrentEncoder):
    """The recurrent encoder with GRUs and layer normalization; see `LayerNormGruLayers`."""

    layers_type = LayerNormGruLayers


class _GateNorm(nn.Module):
    """Layer normalization of the products of a GRU: the rows of both gates together, and those of n separately.

    Each row has a gain and a bias.
    """

    def __init__(self, directions: int, hidden_size: int) -> None:
        super().__init__()
        self.parts = [2 * hidden_size, hidden_size]
        self.directions = directions
        self.gain = nn.Parameter(torch.ones(directions * sum(self.parts)))
        self.bias = nn.Parameter(torch.zeros(directions * sum(self.parts)))

    def forward(self, x_DNG: Tensor) -> Tensor:
        """Normalize over the rows, in float32 or wider."""
        wide_DNG = x_DNG.to(torch.promote_types(x_DNG.dtype, torch.float32))
        parts = [
            functional.layer_norm(part, part.shape[-1:]) for part in torch.split(wide_DNG, self.parts, dim=-1)
        ]
        gain_D1G, bias_D1G = (weight.view(self.directions, 1, -1) for weight in (self.gain, self.bias))
        return torch.addcmul(bias_D1G, torch.cat(parts, dim=-1), gain_D1G)


def _last(states_DBTH: Tensor, mask_BT: Tensor | None) -> Tensor:
    """Return the states at the last real position of each sentence."""
    if mask_BT is None:
        return states_DBTH[:, :, -1]
    return states_DBTH[:, torch.arange(len(mask_BT), device=mask_BT.device), mask_BT.sum(1) - 1]
