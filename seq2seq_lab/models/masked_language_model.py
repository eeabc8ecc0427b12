"""The masked language model."""

from typing import NamedTuple, Protocol

from torch import Tensor, nn

from seq2seq_lab.config.schema import Config, TiedEmbeddings
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.classifier import TextModel, Texts, assemble, build_encoder
from seq2seq_lab.models.embedding import Embedding
from seq2seq_lab.models.masking import masked_mean, padding_mask
from seq2seq_lab.models.readouts import Readout

MASK = -1  # in the place of a token that is masked; the vocabulary does not contain it


class MaskedTexts(Texts, Protocol):
    """A batch of texts, some of whose tokens are predicted.

    Attributes:
        position_N: the N tokens to predict, as indices of the flat `source_BS`.
    """

    @property
    def position_N(self) -> Tensor: ...


class Predicted(NamedTuple):
    """The outputs of a masked language model.

    Attributes:
        logits_NV: of the tokens to predict.
        next_B2: the logits of "the second sentence is another one" and "it is the next one"; None without this prediction.
    """

    logits_NV: Tensor
    next_B2: Tensor | None


class MaskedLanguageModel(TextModel):
    """p(token | the other tokens of a text), of the tokens that are masked (Devlin 2019, arXiv:1810.04805, §3.1).

    `mask` is the embedding of a masked token. The table does not contain it, so a model without masks can use the same
    vocabulary. The readout reads the output of the encoder at a token through `transform`: a linear layer, GELU and layer
    normalization, as in the authors' program. For the prediction of the next sentence, a linear layer reads the mean of the
    outputs.
    """

    source_embedding: Embedding
    mask: nn.Embedding
    transform: nn.Sequential
    readout: Readout
    next_sentence: nn.Linear | None

    def embed(self, tokens_BS: Tensor) -> Tensor:
        """Return the embeddings of tokens and masks, with dropout."""
        embedded_BSE = self.source_embedding(tokens_BS.clamp(min=0))
        return self.dropout(embedded_BSE.where((tokens_BS != MASK)[..., None], self.mask.weight))

    def forward(self, batch: MaskedTexts) -> Predicted:
        """Return the logits of the tokens to predict, and those of the next sentence."""
        encoded = self.encoder(self.embed(batch.source_BS), batch.source_lengths)
        outputs_BSM = encoded.outputs_BSM
        logits_NV = self.readout(self.transform(outputs_BSM.flatten(0, 1).index_select(0, batch.position_N)))
        if self.next_sentence is None:
            return Predicted(logits_NV, None)
        mask_BS = padding_mask(batch.source_lengths, outputs_BSM.shape[1], outputs_BSM.device)
        return Predicted(logits_NV, self.next_sentence(masked_mean(outputs_BSM, mask_BS)))

    def attention_maps(self, batch: Texts) -> dict[str, Tensor]:
        """Return maps_BLASS, the self-attention weights of a Transformer, as "encoder"; without one, nothing."""
        return self.encoder.attention_maps(batch, self.embed)


def build_masked_language_model(config: Config, vocabulary: int, next_sentence: bool) -> MaskedLanguageModel:
    """Return the model, with weights drawn from torch's global generator.

    Args:
        next_sentence: whether the model predicts the next sentence.

    Raises:
        UserError: components that cannot be combined, by name.
    """
    sizes, source = config.model, config.embedding.source
    tied = sizes.tied_embeddings is TiedEmbeddings.all
    if sizes.tied_embeddings is TiedEmbeddings.target:
        raise UserError(
            "model.tied_embeddings=target is not allowed: a masked language model has one table, that of the source. Set "
            "model.tied_embeddings=all, or none."
        )
    if tied and (source.path or source.frozen or source.size != sizes.embedding_size):
        raise UserError(
            f"embedding.source={vars(source)} is not allowed: with model.tied_embeddings=all the table is also the output "
            f"weights, which are trained and have size model.embedding_size={sizes.embedding_size}. Set "
            f"model.tied_embeddings=none."
        )
    encoder = build_encoder(config)
    size = sizes.embedding_size
    mask = nn.Embedding(1, size)
    nn.init.normal_(mask.weight, std=size**-0.5)
    transform = nn.Sequential(
        nn.Linear(encoder.sizes.encoder_output_size, size), nn.GELU(), nn.LayerNorm(size)
    )
    next_layer = nn.Linear(encoder.sizes.encoder_output_size, 2) if next_sentence else None
    parts = {"mask": mask, "transform": transform, "next_sentence": next_layer}
    return assemble(
        MaskedLanguageModel, config, vocabulary, encoder, readout_sizes=(size, vocabulary), tied=tied, **parts
    )
