"""A GRU with layer normalization, in one or both directions."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from seq2seq_lab.errors import require
from seq2seq_lab.models.dropout import Dropout
from seq2seq_lab.models.encoders.base import Encoder, EncoderOutputs, EncoderSizes
from seq2seq_lab.models.encoders.recurrent import reverse
from seq2seq_lab.models.kernels.recurrent import matrix_dtype
from seq2seq_lab.models.masking import padding_mask
from seq2seq_lab.models.recurrent import RecurrentState


class LayerNormGruEncoder(Encoder):
    """Stacked GRU layers with layer normalization over the source (Ba 2016, arXiv:1607.06450, supplement).

    r, z = σ(LN(W x_t) + LN(U h_{t-1})), n = tanh(LN(W_n x_t) + r ⊙ LN(U_n h_{t-1})), h_t = (1 − z) ⊙ n + z ⊙ h_{t-1}.
    W and U contain the rows of both gates, which are normalized together. As in `torch.nn.GRU`, z is the share of the
    old state; in the paper it is that of the new one.

    Args:
        input_size: E, the size of an embedding.
        hidden_size: H of one direction.
        dropout: probability between the layers.
        encoder_output_dropout: probability on the outputs that the decoder attends to.
        locked_dropout: one dropout mask per sentence instead of one per token.

    Raises:
        ValueError: `num_layers` is below 1.
    """

    def __init__(
        self,
        *,
        input_size: int,
        bidirectional: bool,
        hidden_size: int,
        num_layers: int,
        dropout: float,
        encoder_output_dropout: float,
        locked_dropout: bool,
    ) -> None:
        super().__init__()
        require(num_layers >= 1, "encoder.num_layers", num_layers, "1 or more")
        self.hidden_size = hidden_size
        self.directions = 2 if bidirectional else 1
        size = self.directions * hidden_size
        # Only its weights are used.
        self.weights = nn.GRU(input_size, hidden_size, num_layers, bias=False, bidirectional=bidirectional)
        self.input_norms, self.recurrent_norms = (
            nn.ModuleList(_GateNorm(self.directions, hidden_size) for _ in range(num_layers))
            for _ in range(2)
        )
        self.sizes = EncoderSizes(size, final_size=size, num_layers=num_layers)
        self.dropout = Dropout(dropout, locked_dropout)
        self.encoder_output_dropout = Dropout(encoder_output_dropout, locked_dropout)

    def forward(self, embedded_BSE: Tensor, lengths: Sequence[int]) -> EncoderOutputs:
        mask_BS = padding_mask(lengths, embedded_BSE.shape[1], embedded_BSE.device)
        states_BSM, finals = embedded_BSE, []
        for layer in range(self.sizes.num_layers):
            if layer > 0:
                states_BSM = self.dropout(states_BSM)
            states_BSM, final_BM = self._read(layer, states_BSM, mask_BS)
            if mask_BS is not None:
                states_BSM = states_BSM * mask_BS[..., None]
            finals.append(final_BM)
        final = RecurrentState(torch.stack(finals), None)
        return EncoderOutputs(self.encoder_output_dropout(states_BSM), lengths, final)

    def _read(self, layer: int, inputs_BSE: Tensor, mask_BS: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return (states_BSM of a layer, also at padding; its final state_BM)."""
        batch_size, steps, _ = inputs_BSE.shape
        dtype = matrix_dtype(inputs_BSE)
        own = self.weights.all_weights[layer * self.directions : (layer + 1) * self.directions]
        weight_DEG, recurrent_DHG = (
            torch.stack(weights).transpose(1, 2).to(dtype) for weights in zip(*own, strict=True)
        )
        sides = [inputs_BSE, reverse(inputs_BSE, mask_BS)][: self.directions]
        products_DNG = torch.stack(sides).flatten(1, 2).to(dtype) @ weight_DEG
        inputs_DBSG = self.input_norms[layer](products_DNG).unflatten(1, (batch_size, steps))
        # Time first, so that the rows of a step are contiguous.
        inputs_SDBG = inputs_DBSG.permute(2, 0, 1, 3).contiguous()
        state_DBH = inputs_SDBG.new_zeros(self.directions, batch_size, self.hidden_size)
        states = []
        split = [2 * self.hidden_size, self.hidden_size]
        for input_DBG in inputs_SDBG.unbind(0):
            recurrent_DBG = self.recurrent_norms[layer](state_DBH.to(dtype) @ recurrent_DHG)
            gates, candidate_DBH = input_DBG.split(split, dim=-1)
            recurrent_gates, recurrent_candidate_DBH = recurrent_DBG.split(split, dim=-1)
            r_DBH, z_DBH = (gates + recurrent_gates).sigmoid().chunk(2, dim=-1)
            n_DBH = torch.addcmul(candidate_DBH, r_DBH, recurrent_candidate_DBH).tanh()
            state_DBH = torch.lerp(n_DBH, state_DBH, z_DBH)
            states.append(state_DBH)
        states_DBSH = torch.stack(states, dim=2)
        last_DBH = _last(states_DBSH, mask_BS)
        forward_BSH, *backward = states_DBSH.unbind(0)
        sides = [forward_BSH, *(reverse(states_BSH, mask_BS) for states_BSH in backward)]
        return torch.cat(sides, dim=-1), torch.cat(last_DBH.unbind(0), dim=-1)


class _GateNorm(nn.Module):
    """Layer normalization of products for both gates together and of those for n, with one gain and bias per unit."""

    def __init__(self, directions: int, hidden_size: int) -> None:
        super().__init__()
        self.parts = [2 * hidden_size, hidden_size]
        self.directions = directions
        self.gain = nn.Parameter(torch.ones(directions * sum(self.parts)))
        self.bias = nn.Parameter(torch.zeros(directions * sum(self.parts)))

    def forward(self, x_DNG: Tensor) -> Tensor:
        """Normalize over the units, in float32 or wider."""
        wide_DNG = x_DNG.to(torch.promote_types(x_DNG.dtype, torch.float32))
        parts = [
            functional.layer_norm(part, part.shape[-1:]) for part in torch.split(wide_DNG, self.parts, dim=-1)
        ]
        gain_D1G, bias_D1G = (weight.view(self.directions, 1, -1) for weight in (self.gain, self.bias))
        return torch.addcmul(bias_D1G, torch.cat(parts, dim=-1), gain_D1G)


def _last(states_DBSH: Tensor, mask_BS: Tensor | None) -> Tensor:
    """Return the states at the last real position of each sentence."""
    if mask_BS is None:
        return states_DBSH[:, :, -1]
    return states_DBSH[:, torch.arange(len(mask_BS), device=mask_BS.device), mask_BS.sum(1) - 1]
