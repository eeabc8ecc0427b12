"""The contract of readouts."""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from seq2seq_lab.models.kernels.linear import Linear


class Readout(nn.Module, ABC):
    """From decoder features to scores over the vocabulary.

    The output weights of a tied readout are the target embeddings (Press and Wolf 2017, arXiv:1608.05859).

    Args:
        feature_size: F, the size of the decoder features.
        vocabulary_size: V.
        table: the target embeddings_VE of a tied readout, else None.
    """

    def __init__(self, feature_size: int, vocabulary_size: int, table: nn.Parameter | None) -> None:
        super().__init__()

    @abstractmethod
    def forward(self, features_BTF: Tensor) -> Tensor:
        """Return logits_BTV."""


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
