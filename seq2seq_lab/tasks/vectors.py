"""Pretrained word vectors in a new model."""

import logging
from typing import Literal

from torch import Tensor

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.data.tokenizers import UNK, Tokenizer
from seq2seq_lab.data.vectors import coverage, read_vectors, read_words
from seq2seq_lab.errors import UserError
from seq2seq_lab.models.embedding import Embedding
from seq2seq_lab.tasks.base import Parts

log = logging.getLogger(__name__)

VectorWords = Count | Literal["all"] | None


def check_vector_words(parts: Parts, tokenizer: Tokenizer, count: VectorWords) -> None:
    """Refuse `task.vector_words` without a file of vectors, or with a tokenizer that has no vocabulary of words."""
    if count is None:
        return
    if parts.vectors["source"] is None:
        raise UserError(
            f"task.vector_words={count} needs pretrained vectors. Set embedding.source.path=FILE, or task.vector_words=null."
        )
    tokenizer.add_words(())


def add_vector_words(parts: Parts, tokenizer: Tokenizer, count: VectorWords) -> None:
    """Add the first words of the file of pretrained vectors of the source to a trained vocabulary.

    Args:
        count: the number of words of the file; "all"; None for none.

    Raises:
        UserError: see `read_words` and `Tokenizer.add_words`.
    """
    path = parts.vectors["source"]
    if count is not None and path is not None:
        before = tokenizer.size
        words = read_words(path, "embedding.source.path", None if count == "all" else count)
        tokenizer.add_words(words)
        log.info(
            "Vocabulary: %s of the %s words of %s are added to the %s types of the training text.",
            *(f"{tokenizer.size - before:,}", f"{len(words):,}", path, f"{before:,}"),
        )


def load_vectors(
    parts: Parts,
    side: str,
    embedding: Embedding | None,
    *,
    scale: float,
    tokenizer: Tokenizer,
    tokens: Tensor,
) -> None:
    """Set the embedding table of a side from its file of pretrained vectors, if it has one.

    It logs how much of the text the vectors cover.

    Args:
        side: `source` or `target`.
        scale: factor of the model on embeddings.
        tokens: the ids of the training text.
    """
    path, key = parts.vectors[side], f"embedding.{side}.path"
    if path is not None:
        assert embedding is not None
        size = len(embedding.weight)
        words = read_vectors(path, key, tokenizer.tokens(range(size)), tokenizer.case or None)
        embedding.load_vectors(words, scale)
        covered = coverage(words, tokens.where(tokens < size, UNK).bincount(minlength=size))
        log.info("%s: %s have a vector in %s.", key, covered, path)
