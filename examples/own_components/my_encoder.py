"""A custom encoder."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from seq2seq_lab.config.type_checks import Count, Share
from seq2seq_lab.models.dropout import Dropout
from seq2seq_lab.models.encoders import EncoderOutputs, EncoderSizes, TokenEncoder
from seq2seq_lab.models.recurrent import RecurrentState


class ConvolutionalEncoder(TokenEncoder):
    """Stacked convolutions with residual connections (after Gehring 2017, arXiv:1611.02344, section 3).

    The decoder starts from the mean of each layer's outputs, because the encoder has no final state.

    Args:
        input_size: E, the size of an embedding.
        hidden_size: M, the size of the encoder outputs.
        width: number of tokens in a convolution.

    Raises:
        ValueError: `width` is even.
    """

    def __init__(
        self, input_size: int, hidden_size: Count, num_layers: Count, width: Count, dropout: Share
    ) -> None:
        super().__init__()
        if width % 2 == 0:
            raise ValueError(f"encoder.width={width} must be odd.")
        self.sizes = EncoderSizes(
            encoder_output_size=hidden_size, final_size=hidden_size, num_layers=num_layers
        )
        self.input = nn.Linear(input_size, hidden_size)
        self.layers = nn.ModuleList(
            nn.Conv1d(hidden_size, hidden_size, width, padding=width // 2) for _ in range(num_layers)
        )
        self.dropout = Dropout(dropout, locked=False)

    def forward(self, embedded_BSE: Tensor, lengths: Sequence[int]) -> EncoderOutputs:
        length_B1 = torch.tensor(lengths, device=embedded_BSE.device)[:, None]
        positions_S = torch.arange(embedded_BSE.shape[1], device=embedded_BSE.device)
        real_BS1 = (positions_S < length_B1)[:, :, None]
        state_BSM = self.input(embedded_BSE)
        means = []
        for layer in self.layers:
            # A convolution at the end of a sentence reads its padding, which must be zero.
            state_BSM = state_BSM * real_BS1
            state_BSM = state_BSM + layer(self.dropout(state_BSM).transpose(1, 2)).transpose(1, 2).tanh()
            means.append((state_BSM * real_BS1).sum(1) / length_B1)
        return EncoderOutputs(state_BSM * real_BS1, lengths, RecurrentState(torch.stack(means), None))
