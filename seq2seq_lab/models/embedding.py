"""Embedding tables."""

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor, nn

from seq2seq_lab.data.tokenizers import PAD, UNK
from seq2seq_lab.data.vectors import WordVectors

KNOWN: Literal["known"] = "known"


class Embedding(nn.Module):
    """A table of vectors, with a linear projection without bias if their size is not that of the model.

    The table is drawn from N(0, 1/table_size), a scale that also suits output weights; padding is 0.

    Args:
        table_size: size of a vector in the table, for example of pretrained word vectors.
        embedding_size: E, the size that the rest of the model reads.
        frozen: true: train the projection but not the table. "known": train also the rows of the table without a vector.
        extended: the ids may be greater than those of the table; these are embedded as `<unk>`.

    Attributes:
        known_V: with "known", whether the row of each vocabulary entry is a vector of `load_vectors`; else None.
    """

    known_V: Tensor | None

    def __init__(
        self,
        vocabulary_size: int,
        table_size: int,
        embedding_size: int,
        frozen: bool | Literal["known"],
        extended: bool = False,
    ) -> None:
        super().__init__()
        self.extended = extended
        self.table = nn.Embedding(vocabulary_size, table_size, padding_idx=PAD)
        self._draw(table_size**-0.5)
        self.table.weight.requires_grad_(frozen is not True)
        self.register_buffer(
            "known_V", torch.zeros(vocabulary_size, dtype=torch.bool) if frozen == KNOWN else None
        )
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
        embedded = self.table(tokens)
        if self.known_V is not None:  # no gradient reaches the rows of known words
            embedded = torch.where(self.known_V[tokens].unsqueeze(-1), embedded.detach(), embedded)
        return self.projection(embedded)

    @property
    def fixed_values(self) -> int:
        """The number of values of the rows that are not trained, in a table whose other rows are."""
        return 0 if self.known_V is None else int(self.known_V.sum()) * self.weight.shape[1]

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
        if self.known_V is not None:
            self.known_V.copy_(found_V)

    @torch.no_grad()
    def _draw(self, std: float) -> None:
        nn.init.normal_(self.weight, std=std)
        self.weight[PAD].zero_()


def count_trained(parameters: Iterable[nn.Parameter], modules: Iterable[nn.Module]) -> int:
    """Return the number of trained values of parameters.

    Args:
        modules: the modules that have these parameters. An `Embedding` may train only some of its rows.
    """
    counted = {id(one): one.numel() for one in parameters if one.requires_grad}
    tables = [one for one in modules if isinstance(one, Embedding) and id(one.weight) in counted]
    return sum(counted.values()) - sum(table.fixed_values for table in tables)
