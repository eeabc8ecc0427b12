"""The contract of readouts."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from seq2seq_lab.errors import UserError
from seq2seq_lab.models.kernels.linear import Linear
from seq2seq_lab.models.source import Source


class Readout(nn.Module, ABC):
    """From decoder features to scores over the vocabulary.

    The output weights of a tied readout are the target embeddings (Press and Wolf 2017, arXiv:1608.05859).

    `needs_weights` is whether the readout reads the attention weights, `needs_tokens` whether it reads `Source.tokens_BS`,
    `source_types` the number of output types, the last ones, that stand for words of the source; they have no embedding.

    Args:
        feature_size: F, the size of the decoder features.
        vocabulary_size: V.
        table: the target embeddings_VE of a tied readout, else None.
    """

    needs_weights: ClassVar[bool] = False
    needs_tokens: ClassVar[bool] = False
    source_types: int = 0

    def __init__(self, feature_size: int, vocabulary_size: int, table: nn.Parameter | None) -> None:
        super().__init__()

    @classmethod
    def source_types_of(cls, settings: Mapping[str, Any]) -> int:
        """Return the `source_types` of a readout with these settings."""
        return 0

    @abstractmethod
    def forward(
        self, features_NTF: Tensor, weights_NTS: Tensor | None = None, source: Source | None = None
    ) -> Tensor:
        """Return logits or log-probabilities, NTV.

        The losses apply `log_softmax` to both: it does not change log-probabilities.

        Args:
            features_NTF: T is 1 in a step of a search; a readout without `needs_weights` gets features_NF there, as in a
                classifier.
            weights_NTS: may be None for a readout without `needs_weights`.
            source: the B sentences of the N = B · K rows; None in a model without one.
        """

    def check(self, *, weights: bool, tokens: bool) -> None:
        """Refuse a model that lacks an input of the readout.

        Args:
            weights: whether the model has attention weights for each output.
            tokens: whether the ids of the source are those of the output's vocabulary.

        Raises:
            UserError: names the keys and the remedy.
        """
        name = type(self).__name__
        if self.needs_weights and not weights:
            raise UserError(
                f"readout={name} reads attention weights, and this model has none. Choose an attention function and a "
                f"decoder with attention, such as model=attn, or another readout, such as readout=linear."
            )
        if self.needs_tokens and not tokens:
            raise UserError(
                f"readout={name} reads the tokens of the source as tokens of the output, and this model has no vocabulary "
                f"that both share. Set tokenizer.joint=true in a task whose source is text, or choose another readout, such "
                f"as readout=linear."
            )


def check_source_types(vocabulary_size: int, source_types: int) -> None:
    """Refuse a vocabulary that consists of types for words of the source only, or has none.

    Args:
        vocabulary_size: V, the number of all types of the output.
        source_types: see `Readout`.

    Raises:
        UserError: names the key and the remedy.
    """
    if vocabulary_size <= source_types:
        raise UserError(
            f"readout.copied_words={source_types} is not allowed: the outputs of this task have no types for words of the "
            f"source. Use readout=pointer in a task whose source and output share a vocabulary, such as task=translation, "
            f"or choose readout=linear."
        )


def output_layer(size: int, vocabulary_size: int, table: nn.Parameter | None, remedy: str) -> nn.Linear:
    """Return the linear layer before the softmax, tied to the table if there is one.

    Raises:
        ValueError: the vectors of the table do not have the size of the layer's input.
    """
    layer = Linear(size, vocabulary_size)
    if table is not None:
        if table.shape[1] != size:
            raise ValueError(
                f"readout: model.tied_embeddings makes the target embeddings the output weights, so the output layer must "
                f"read features of the embeddings' size, but these have {size} and the table {table.shape[1]}. {remedy}, or "
                f"model.tied_embeddings=none."
            )
        layer.weight = table
    return layer
