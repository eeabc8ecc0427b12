"""What the language models share: sentences of one language, their tokens and the vocabulary."""

import logging
import math
from abc import abstractmethod
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from seq2seq_lab.data.lines import Lines
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.sentences import SentenceCorpus
from seq2seq_lab.data.token_cache import cached_tokens, text_key
from seq2seq_lab.data.tokenizers import UNK
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.base import digest
from seq2seq_lab.runtime import console
from seq2seq_lab.runtime.tables import sectioned_table
from seq2seq_lab.tasks.base import Parts, Task
from seq2seq_lab.tasks.text import Vocabulary, corpus_record
from seq2seq_lab.tasks.vectors import load_vectors

log = logging.getLogger(__name__)


class SentenceTask(Task):
    """A task of sentences of one language.

    Attributes:
        side: the side of the vocabulary, which is that of the embedding: `source` or `target`.
        tokenizer_name: of the tokenizer's files.
        framed: whether each sentence has `<sos>` and `<eos>` around it.
        tokens: the tokens of each split, by name.
    """

    side: ClassVar[str]
    tokenizer_name: ClassVar[str]
    framed: ClassVar[bool]
    unit = "tokens"
    files: tuple[str, ...] = ("tokenizer",)
    parts: Parts

    vocabulary: Vocabulary
    tokens: dict[str, Ragged]

    @property
    @abstractmethod
    def corpus(self) -> SentenceCorpus:
        """The sentences."""

    def data_record(self) -> dict[str, Any]:
        corpus = self.corpus
        hashes = {name: Lines.of(text.lines).digest().hex() for name, text in corpus.splits.items()}
        return corpus_record(corpus, hashes, {"test": digest([hashes["test"], corpus.test.contrasts])})

    def tokenize(self, cache: Path, saved: Path | None) -> str:
        """Set the vocabulary and the tokens; see `Task.load`. Return the key of both in the cache."""
        corpus, load = self.corpus, partial(Vocabulary.load, name=self.tokenizer_name)
        fitted = None if saved is None else load(saved / "tokenizer")
        if (initial := self.initial_tokenizers.get(self.side)) is not None:
            fitted = Vocabulary(initial, self.tokenizer_name)
        lines = {name: split.lines for name, split in corpus.splits.items()}
        about = corpus.language if self.framed else [corpus.language, "unframed"]
        key = text_key(lines, about, self.parts.tokenizer.settings, fitted)

        def build() -> tuple[Vocabulary, list[Ragged]]:
            vocabulary = fitted or Vocabulary.fitted(
                self.parts.tokenizer(), self.tokenizer_name, corpus.language, corpus.train.lines
            )
            encode, encoded = vocabulary.tokenizer.encode, Ragged.encoded if self.framed else Ragged.unframed
            return vocabulary, [encoded(encode, text, f"Tokenizing {name}") for name, text in lines.items()]

        entry = cached_tokens(key, [*lines], cache, build=build, load=load)
        self.vocabulary, self.tokens = entry.tokenizers, entry.ids
        return key

    def open(self, folder: Path) -> None:
        self.vocabulary = Vocabulary.load(folder / "tokenizer", self.tokenizer_name)

    def save(self, folder: Path) -> None:
        self.vocabulary.save(folder / "tokenizer")

    def load_pretrained(self, model: Any) -> None:
        tokenizer, tokens = self.vocabulary.tokenizer, self.tokens["train"].tokens
        embedding = getattr(model, f"{self.side}_embedding")
        load_vectors(
            self.parts, self.side, embedding, scale=model.dropout.scale, tokenizer=tokenizer, tokens=tokens
        )

    def describe(self) -> None:
        """Print the sentences, tokens and unknown tokens of each split, and the size of the vocabulary."""
        rows, unknowns = [], dict[str, int]()
        for name, ids in self.tokens.items():
            count = len(ids.tokens) - (2 * len(ids) if self.framed else 0)
            unknown = unknowns[name] = int((ids.tokens == UNK).sum())
            rows.append([name, f"{len(ids):,}", f"{count:,}", f"{unknown / max(1, count):.2%}"])
        vocabulary = ["vocabulary", "", f"{self.vocabulary.tokenizer.size:,} types", ""]
        heads = ["split", "sentences", "tokens", "unknown"]
        console.print_and_log(sectioned_table("corpus", heads, [rows, [vocabulary]]))
        if not unknowns["train"] and any(unknowns.values()):
            log.warning(
                "The training split has no unknown token, but other splits have: the model is not trained on <unk>. Use a "
                "tokenizer without unknown tokens, such as tokenizer=bpe, or a greater tokenizer.min_frequency."
            )

    def uniform_loss(self) -> float:
        return math.log(self.vocabulary.tokenizer.size)


def fitting(lengths: Tensor, longest: int) -> Tensor:
    """Return the indices of the training sentences of at most `longest` tokens, and log how many have more.

    Raises:
        UserError: all sentences have more.
    """
    index = (lengths <= longest).nonzero().squeeze(1)
    if not len(index):
        raise UserError(f"task.max_length={longest}: all training sentences have more tokens. Increase it.")
    if left_out := len(lengths) - len(index):
        log.info("%s training sentences of more than %s tokens are left out.", f"{left_out:,}", longest)
    return index
