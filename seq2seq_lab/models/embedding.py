"""Embedding tables."""

import torch
from torch import Tensor, nn

from seq2seq_lab.data.tokenizers import PAD, UNK
from seq2seq_lab.data.vectors import WordVectors


class Embedding(nn.Module):
    """A table of vectors, with a linear projection without bias if their size is not that of the model.

    The table is drawn from N(0, 1/table_size), a scale that also suits output weights; padding is 0.

    Args:
        table_size: size of a vector in the table, for example of pretrained word vectors.
        embedding_size: E, the size that the rest of the model reads.
        frozen: train the projection but not the table.
        extended: the ids may be greater than those of the table; these are embedded as `<unk>`.
    """

    def __init__(
        self, vocabulary_size: int, table_size: int, embedding_size: int, frozen: bool, extended: bool = False
    ) -> None:
        super().__init__()
        self.extended = extended
        self.table = nn.Embedding(vocabulary_size, table_size, padding_idx=PAD)
        self._draw(table_size**-0.5)
        self.table.weight.requires_grad_(not frozen)
        self.projection = (
            nn.Identity()
            if table_size == embedding_size
            else nn.Linear(table_size, embedding_size, bias=False)
        )

    @property
    def weight(self) -> Tensor:
        """The parameter of the table: one row of `table_size` values per vocabulary entry."""
        return self.table.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the embeddings, of shape …E, of ids of any shape."""
        if self.extended:
            tokens = tokens.where(tokens < len(self.weight), UNK)
        return self.projection(self.table(tokens))

    @torch.no_grad()
    def load_vectors(self, words: WordVectors, scale: float) -> None:
        """Set the rows of the words that have a vector; draw the others again with the mean square of these vectors.

        Known and unknown words then have vectors of about the same length. Padding stays 0.

        Args:
            scale: the factor of the model on embeddings. The rows are divided by it, so that the model reads the vectors.
        """
        assert words.vectors_VD.shape == self.weight.shape
        vectors_VD = words.vectors_VD / scale
        self._draw(vectors_VD[words.found_V].square().mean().sqrt().item())
        found_V = words.found_V.to(self.weight.device)
        self.weight[found_V] = vectors_VD.to(self.weight)[found_V]

    @torch.no_grad()
    def _draw(self, std: float) -> None:
        nn.init.normal_(self.weight, std=std)
        self.weight[PAD].zero_()
