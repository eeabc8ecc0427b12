"""The models of classification and tagging, and what other models of texts share with them."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from seq2seq_lab.config.schema import Config
from seq2seq_lab.config.slots import part
from seq2seq_lab.models.dropout import EmbeddingDropout
from seq2seq_lab.models.embedding import Embedding
from seq2seq_lab.models.encoders.base import TokenEncoder
from seq2seq_lab.models.parts import KINDS
from seq2seq_lab.models.pooling import Pooling
from seq2seq_lab.models.readouts import Readout
from seq2seq_lab.models.tables import build_embedding, check_tables, embedding_dropout, has_source_table


class Texts(Protocol):
    """A batch of B texts: token ids, padded, and the real lengths on the host."""

    @property
    def source_BS(self) -> Tensor: ...

    @property
    def source_lengths(self) -> tuple[int, ...]: ...


class Classified(NamedTuple):
    """The outputs of a classifier for B texts and C classes.

    Attributes:
        weights_BS: the gates of the words, else the weights of the pooling; None without either.
        penalty_B: see `Gates`; None without gates.
    """

    logits_BC: Tensor
    weights_BS: Tensor | None
    penalty_B: Tensor | None


class TextModel(nn.Module):
    """A model of texts: an embedding, an encoder, and parts that read its outputs, such as a readout.

    Args:
        source_embedding: None for an encoder with its own embeddings.
        parts: these modules, by name.
    """

    def __init__(
        self,
        *,
        source_embedding: Embedding | None,
        encoder: TokenEncoder,
        dropout: EmbeddingDropout,
        **parts: nn.Module | None,
    ) -> None:
        super().__init__()
        self.source_embedding = source_embedding
        self.encoder = encoder
        for name, part_of_model in parts.items():
            setattr(self, name, part_of_model)
        self.dropout = dropout

    def embed(self, tokens_BS: Tensor) -> Tensor:
        """Return the embeddings of tokens, with dropout."""
        if self.source_embedding is None:
            return self.encoder.embed(tokens_BS)
        return self.dropout(self.source_embedding(tokens_BS))


class Tagger(TextModel):
    """p(tag | text) of each token: an embedding, an encoder and a readout of its outputs."""

    readout: Readout

    def forward(self, batch: Texts) -> Tensor:
        """Return logits_BSC of the tags of all tokens; those of padding have no meaning."""
        encoded = self.encoder(self.embed(batch.source_BS), batch.source_lengths)
        return self.readout(encoded.outputs_BSM)


class Classifier(TextModel):
    """p(class | text): an embedding, an encoder, a pooling and a readout."""

    renamed_weights: ClassVar[Mapping[str, str]] = {"embedding.": "source_embedding."}
    factor: ClassVar[int] = 1  # the size of the features of the readout, relative to that of a vector
    pooling: Pooling
    readout: Readout

    def forward(self, batch: Texts) -> Classified:
        """Return the logits of the classes, and the weights and the penalty of the pooling."""
        return self.classify(self.embed(batch.source_BS), batch.source_lengths)

    @torch.enable_grad()
    def saliency(self, batch: Texts) -> Tensor:
        """Return weights_BS: the norm of the gradient of the predicted class's logit with respect to each embedding.

        The weights of a text are scaled to the sum 1 (Li 2016, arXiv:1506.01066, §5).
        """
        embedded_BSE = self.embed(batch.source_BS).detach().requires_grad_()
        with torch.backends.cudnn.flags(enabled=False):  # cuDNN has no backward pass in evaluation mode
            logits_BC = self.classify(embedded_BSE, batch.source_lengths).logits_BC
            (gradient_BSE,) = torch.autograd.grad(logits_BC.amax(1).sum(), embedded_BSE)
        norm_BS = gradient_BSE.float().norm(dim=-1)
        return norm_BS / norm_BS.sum(1, keepdim=True).clamp_min(torch.finfo(norm_BS.dtype).tiny)

    def classify(self, embedded_BSE: Tensor, source_lengths: tuple[int, ...]) -> Classified:
        """Return the outputs for texts of these embeddings and lengths."""
        gates = self.pooling.gates(embedded_BSE, source_lengths)
        if gates is not None:
            embedded_BSE = embedded_BSE * gates.gate_BS[..., None].to(embedded_BSE.dtype)
        vector_BF, weights_BS = self.pooling(self.encoder(embedded_BSE, source_lengths))
        logits_BC = self.readout(self.combined(vector_BF))
        if gates is not None:
            return Classified(logits_BC, gates.gate_BS, self.penalty(gates.penalty_B))
        return Classified(logits_BC, weights_BS, None)

    def combined(self, vector_BF: Tensor) -> Tensor:
        """Return the features that the readout reads, from the vectors of the texts."""
        return vector_BF

    def penalty(self, penalty_B: Tensor) -> Tensor:
        """Return the penalty of each example, from those of the texts."""
        return penalty_B


class PairClassifier(Classifier):
    """p(class | u, v): the vectors u and v of two texts, each read alone, as [u; v; |u − v|; u ⊙ v].

    The features are those of Conneau 2017 (arXiv:1705.02364, §3.1). The texts of a batch of B pairs are the B first ones and
    then the B second ones, and so are the weights; the weights of each text have the sum 1.
    """

    factor = 4

    def combined(self, vector_BF: Tensor) -> Tensor:
        u_BF, v_BF = vector_BF.chunk(2)
        return torch.cat([u_BF, v_BF, (u_BF - v_BF).abs(), u_BF * v_BF], dim=-1)

    def penalty(self, penalty_B: Tensor) -> Tensor:
        return penalty_B[: len(penalty_B) // 2] + penalty_B[len(penalty_B) // 2 :]


Kind = TypeVar("Kind", bound=TextModel)


def build_classifier(config: Config, vocabulary: int, classes: int, pairs: bool = False) -> Classifier:
    """Return the classifier, with weights drawn from torch's global generator.

    Args:
        pairs: return a `PairClassifier`.

    Raises:
        UserError: components that cannot be combined, by name.
    """
    encoder = build_encoder(config)
    pooling: Pooling = part("pooling", config.pooling, KINDS)(
        input_size=encoder.embedding_size or config.model.embedding_size,
        encoder=encoder.sizes,
        attention=part("attention", config.attention, KINDS),
    )
    # The order of the parts is that of their random draws.
    kind = PairClassifier if pairs else Classifier
    size = kind.factor * pooling.feature_size
    return assemble(kind, config, vocabulary, encoder, readout_sizes=(size, classes), pooling=pooling)


def build_tagger(config: Config, vocabulary: int, classes: int) -> Tagger:
    """Return the tagger; see `build_classifier`."""
    encoder = build_encoder(config)
    size = encoder.sizes.encoder_output_size
    return assemble(Tagger, config, vocabulary, encoder, readout_sizes=(size, classes))


def build_encoder(config: Config) -> TokenEncoder:
    """Return the encoder of a model of texts, which have one vocabulary."""
    check_tables(config, joint=True)
    encoder: TokenEncoder = part("encoder", config.encoder, KINDS)(input_size=config.model.embedding_size)
    return encoder


def assemble(
    kind: Callable[..., Kind],
    config: Config,
    vocabulary: int,
    encoder: TokenEncoder,
    *,
    readout_sizes: tuple[int, int] | None,
    tied: bool = False,
    **parts: Any,
) -> Kind:
    """Return a model of an encoder, with a new embedding.

    Args:
        kind: makes the model from its parts.
        readout_sizes: the size of the features that a new readout reads, and the number of its outputs; None for a model
            without a readout.
        tied: whether the output weights are the embeddings.
        parts: further modules, by name.
    """
    sizes, source = config.model, config.embedding.source
    size = encoder.embedding_size or sizes.embedding_size
    embedding = build_embedding(source, vocabulary, size) if has_source_table(config) else None
    if readout_sizes is not None:
        readout: Readout = part("readout", config.readout, KINDS)(
            feature_size=readout_sizes[0],
            vocabulary_size=readout_sizes[1],
            table=embedding.weight if tied and embedding is not None else None,
        )
        readout.check(weights=False, tokens=False)
        parts["readout"] = readout
    network = kind(
        source_embedding=embedding,
        encoder=encoder,
        dropout=embedding_dropout(source, sizes),
        **parts,
    )
    part("initialization", config.initialization, KINDS)()(network)
    return network
