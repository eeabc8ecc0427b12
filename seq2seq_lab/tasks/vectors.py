"""Pretrained word vectors in a new model."""

import logging

from torch import Tensor

from seq2seq_lab.data.tokenizers import UNK, Tokenizer
from seq2seq_lab.data.vectors import coverage, read_vectors
from seq2seq_lab.models.embedding import Embedding
from seq2seq_lab.tasks.base import Parts

log = logging.getLogger(__name__)


def load_vectors(
    parts: Parts, side: str, embedding: Embedding | None, scale: float, tokenizer: Tokenizer, tokens: Tensor
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
        words = read_vectors(path, key, tokenizer.tokens(range(size)))
        embedding.load_vectors(words, scale)
        covered = coverage(words, tokens.where(tokens < size, UNK).bincount(minlength=size))
        log.info("%s: %s have a vector in %s.", key, covered, path)
