"""The embedding tables that a configuration describes."""

from pathlib import Path

from seq2seq_lab.config.schema import Config, ModelConfig, TableConfig, TiedEmbeddings
from seq2seq_lab.config.slots import locate
from seq2seq_lab.data.vectors import vector_size
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.dropout import EmbeddingDropout
from seq2seq_lab.models.embedding import KNOWN, Embedding
from seq2seq_lab.models.encoders.base import Encoder
from seq2seq_lab.models.parts import KINDS


def build_embedding(
    table: TableConfig, vocabulary_size: int, embedding_size: int, source_types: int = 0
) -> Embedding:
    """Return the embedding of one side; the vectors of a file are loaded later.

    Args:
        source_types: see `Readout`; these types of the vocabulary have no vectors.
    """
    extended = source_types > 0
    return Embedding(vocabulary_size - source_types, table.size, embedding_size, table.frozen, extended)


def embedding_dropout(table: TableConfig, sizes: ModelConfig) -> EmbeddingDropout:
    """Return the scaling and dropout of the embeddings of a table."""
    scale = sizes.embedding_size**0.5 if sizes.scale_embeddings else 1.0
    return EmbeddingDropout(table.dropout, sizes.locked_dropout, scale)


def has_source_table(config: Config) -> bool:
    """Return whether the source has an embedding table, which an encoder with its own embeddings does not need.

    Raises:
        UserError: such an encoder, and settings of the table.
    """
    kind: type[Encoder] = locate("encoder", config.encoder or {}, KINDS)
    table = config.embedding.source
    if kind.source == "subwords" and (table.path or table.frozen):
        raise UserError(
            f"embedding.source={vars(table)} is not allowed: {kind.__name__} has its own embeddings. Leave "
            f"embedding.source out."
        )
    return kind.source != "subwords"


def check_tables(config: Config, joint: bool) -> None:
    """Refuse embedding tables that cannot be shared, or that would keep random values.

    Raises:
        UserError: names the keys and the remedy.
    """
    tied, source, target = config.model.tied_embeddings, config.embedding.source, config.embedding.target
    if tied is TiedEmbeddings.all and not joint:
        raise UserError(
            "model.tied_embeddings=all requires one vocabulary for both sides. Set tokenizer.joint=true, or "
            "model.tied_embeddings=target."
        )
    usual = (config.model.embedding_size, target.size)
    if tied is TiedEmbeddings.all and (source.path or source.frozen or source.size not in usual):
        raise UserError(
            f"embedding.source={vars(source)} is not allowed: with model.tied_embeddings=all both sides use the target's "
            f"table. Set embedding.target instead, or model.tied_embeddings=target."
        )
    if tied is not TiedEmbeddings.none and (target.frozen or target.size != config.model.embedding_size):
        raise UserError(
            f"embedding.target={vars(target)} is not allowed: with model.tied_embeddings={tied.value} this table is also "
            f"the output weights, which are trained and have size model.embedding_size={config.model.embedding_size}. Set "
            f"embedding.target.size=${{model.embedding_size}} and embedding.target.frozen=false, or "
            f"model.tied_embeddings=none."
        )
    for side, table in vars(config.embedding).items():
        key = f"embedding.{side}"
        copied = config.copies(f"{side}_embedding")
        if table.frozen and table.path is None and not copied:
            raise UserError(
                f"{key}.frozen={str(table.frozen).lower()} requires pretrained vectors. Set {key}.path=FILE, or "
                f"{key}.frozen=false."
            )
        decay = (config.optimizer or {}).get("weight_decay")
        if table.frozen == KNOWN and decay:
            raise UserError(
                f"{key}.frozen=known cannot be combined with optimizer.weight_decay={decay}, which would change the "
                f"vectors. Set optimizer.weight_decay=0, or {key}.frozen=true."
            )
        if table.path is not None and copied:
            raise UserError(
                f"{key}.path={table.path} cannot be combined with init_from={config.init_from}, which loads the same "
                f"embeddings. Leave one of them out."
            )


def check_vectors(config: Config) -> None:
    """Refuse files of pretrained vectors whose size is not the table's, and those of a side that has no table.

    Raises:
        UserError: the sizes differ, a file cannot be read, or the task has no text on a side.
    """
    kind = None if config.encoder is None else locate("encoder", config.encoder, KINDS)
    absent = {
        "source": getattr(kind, "source", None) in ("images", "features"),
        "target": config.decoder is None,
    }
    for side, table in vars(config.embedding).items():
        key = f"embedding.{side}"
        if absent[side] and (table.path or table.frozen):
            raise UserError(
                f"{key}={vars(table)} is not allowed: the task has no text on this side. Leave {key} out."
            )
        if table.path is not None and (size := vector_size(Path(table.path), f"{key}.path")) != table.size:
            raise UserError(
                f"{key}.size={table.size}: the vectors of {key}.path={table.path} have size {size}. Set "
                f"{key}.size={size} or, if the table is also the output weights, model.embedding_size={size}."
            )
