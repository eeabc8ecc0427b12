"""An encoder of dialogues: an RNN over the words of each turn, and an RNN over the turns."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Literal

import torch
from torch import Tensor

from seq2seq_lab.config.type_checks import Share
from seq2seq_lab.data.tokenizers import PAD
from seq2seq_lab.models.dropout import Dropout
from seq2seq_lab.models.encoders.base import EncoderOutputs, EncoderSizes, TokenEncoder
from seq2seq_lab.models.recurrent import RecurrentLayers, RecurrentSpec
from seq2seq_lab.runtime.device import on_device


class HierarchicalEncoder(TokenEncoder):
    """Hierarchical recurrent encoder (Serban 2016, arXiv:1507.04808, §3.2).

    The first RNN reads each turn, from its first token to its `<eos>`. The second RNN reads the final states of the first,
    one per turn; its final state is that of the encoder.

    The encoder outputs, to which the decoder attends, are one of

    - `words`: the states of the first RNN, an output per token
    - `turns`: the states of the second RNN, an output per turn
    - `both`: for each token its state, and the state of its turn, concatenated. With a score that is linear in these
      (`dot`, `multiplicative`, `scaled_dot`), the weights are the product of attention to words and attention to turns,
      renormalized, as in hierarchical attention (Nallapati 2016, arXiv:1602.06023, §2.4).

    Args:
        input_size: E, the size of an embedding.
        recurrent: the settings of both RNNs.
        bidirectional: whether both RNNs read in both directions.
        outputs: the encoder outputs.
        encoder_output_dropout: probability on the encoder outputs.
    """

    source = "turns"

    def __init__(
        self,
        *,
        input_size: int,
        recurrent: RecurrentSpec,
        bidirectional: bool,
        outputs: Literal["words", "turns", "both"],
        encoder_output_dropout: Share,
    ) -> None:
        super().__init__()
        self.outputs = outputs
        self.output_per_token = outputs != "turns"
        if outputs == "words":
            self.needs_final = (
                "With encoder.outputs=words only this state depends on the RNN over the turns, which would not be trained. "
                "Set encoder.outputs=both, or choose a recurrent decoder with model.bridge=tanh."
            )
        self.words = RecurrentLayers(recurrent, input_size, bidirectional)
        size = self.words.output_size
        self.turns = RecurrentLayers(recurrent, size, bidirectional)
        self.state_dropout = Dropout(recurrent.dropout, recurrent.locked_dropout)
        self.encoder_output_dropout = Dropout(encoder_output_dropout, recurrent.locked_dropout)
        output_size = 2 * size if outputs == "both" else size
        self.sizes = EncoderSizes(output_size, final_size=size, num_layers=recurrent.num_layers)

    def encode(self, batch: Any, embed: Callable[[Tensor], Tensor]) -> EncoderOutputs:
        """Encode the source of a batch. If its `turn_lengths` are None, each source is one turn."""
        if batch.turn_lengths is None:
            return super().encode(batch, embed)
        source_NW, lengths, turns = split_turns(batch.source_BS, batch.turn_lengths)
        outputs: EncoderOutputs = self(embed(source_NW), lengths, turns)
        return outputs

    def arrange(self, batch: Any, embedded_BSE: Tensor) -> Tensor:
        """See `Encoder.arrange`: split as the tokens are."""
        if batch.turn_lengths is None or embedded_BSE.shape[:2] != batch.source_BS.shape:
            return embedded_BSE
        return split_turns(embedded_BSE, batch.turn_lengths, padding=0)[0]

    def forward(
        self, embedded_NWE: Tensor, lengths: Sequence[int], turns: Sequence[int] | None = None
    ) -> EncoderOutputs:
        """Encode B dialogues, given as their N turns in one batch.

        Args:
            embedded_NWE: the turns of the first dialogue, then those of the second, and so on; W tokens each, padded.
            lengths: the number of tokens of each turn.
            turns: the number of turns of each dialogue; None for one turn each.
        """
        lengths_N = torch.tensor(lengths)
        turns_B = torch.tensor([1] * len(lengths) if turns is None else turns)
        words_NWM, final = self.words.forward_padded(embedded_NWE, lengths)
        last_NM = self.state_dropout(final.hidden_LBH[-1])
        turn_BU = padded(torch.arange(len(lengths)), turns_B)
        turns_BUM, final = self.turns.forward_padded(select_rows(last_NM, turn_BU), turns_B.tolist())
        if self.outputs == "turns":
            return EncoderOutputs(self.encoder_output_dropout(turns_BUM), turns_B.tolist(), final)
        tokens_B = torch.stack([part.sum() for part in torch.split(lengths_N, turns_B.tolist())])
        token_BS = padded(real_positions(lengths_N, words_NWM.shape[1]), tokens_B)
        outputs_BSM = select_rows(words_NWM.flatten(0, 1), token_BS)
        if self.outputs == "both":
            turn_BS = padded(
                real_positions(turns_B, turns_BUM.shape[1]).repeat_interleave(lengths_N), tokens_B
            )
            outputs_BSM = torch.cat([outputs_BSM, select_rows(turns_BUM.flatten(0, 1), turn_BS)], -1)
        return EncoderOutputs(self.encoder_output_dropout(outputs_BSM), tokens_B.tolist(), final)


def split_turns(
    source_BS: Tensor, turn_lengths: Sequence[Sequence[int]], padding: int = PAD
) -> tuple[Tensor, list[int], list[int]]:
    """Return the N turns of B dialogues: (source_NW, padded; the tokens per turn; the turns per dialogue).

    Args:
        source_BS: the tokens, or their embeddings [B, S, E].
        turn_lengths: the number of tokens of each turn of each dialogue.
        padding: see `select_rows`.
    """
    lengths = [*chain.from_iterable(turn_lengths)]
    token_R = real_positions(torch.tensor([*map(sum, turn_lengths)]), source_BS.shape[1])
    source_NW = select_rows(source_BS.flatten(0, 1), padded(token_R, torch.tensor(lengths)), padding)
    return source_NW, lengths, [*map(len, turn_lengths)]


def real_positions(lengths_N: Tensor, width: int) -> Tensor:
    """Return the flat indices of the R real positions of a padded batch [N, width]."""
    return (torch.arange(width) < lengths_N[:, None]).flatten().nonzero()[:, 0]


def padded(index_R: Tensor, lengths_N: Tensor) -> Tensor:
    """Return N sequences of indices, given one after another, as index_NW with -1 as padding."""
    real_NW = torch.arange(int(lengths_N.max())) < lengths_N[:, None]
    index_NW = torch.full(real_NW.shape, -1)
    index_NW[real_NW] = index_R
    return index_NW


def select_rows(rows: Tensor, index_NW: Tensor, padding: int = 0) -> Tensor:
    """Return the rows with these indices as a batch [N, W] or [N, W, M]; `padding` for the index -1.

    Args:
        rows: [R] or [R, M].
        index_NW: on the host.
    """
    index_NW = on_device(index_NW.numpy(), rows.device)
    batch = rows.index_select(0, index_NW.flatten().clamp(min=0)).view(*index_NW.shape, *rows.shape[1:])
    real_NW = index_NW >= 0
    return torch.where(real_NW if rows.dim() == 1 else real_NW[..., None], batch, padding)
