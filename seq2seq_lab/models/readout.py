"""From decoder features to scores over the vocabulary."""

from torch import Tensor, nn


class LinearReadout(nn.Module):
    """logits = W f + b. A tied readout uses the target embeddings as W (Press and Wolf 2017, arXiv:1608.05859).

    Raises:
        ValueError: a tied W does not have the width of the features.
    """

    def __init__(self, feature_size: int, vocabulary_size: int, tied: nn.Embedding | None) -> None:
        super().__init__()
        self.linear = nn.Linear(feature_size, vocabulary_size)
        if tied is not None:
            if tied.embedding_dim != feature_size:
                raise ValueError(
                    f"model.tied_embeddings makes the target embeddings the output weights, so the decoder's features must "
                    f"have the embeddings' size, but they have {feature_size} and model.embedding_size is "
                    f"{tied.embedding_dim}. Set decoder.attentional_size=${{model.embedding_size}} (decoder=luong), "
                    f"model.embedding_size={feature_size}, or model.tied_embeddings=none."
                )
            self.linear.weight = tied.weight

    def forward(self, features_BTF: Tensor) -> Tensor:
        """Return logits_BTV."""
        return self.linear(features_BTF)
