"""What the language models share: sentences of one language."""

import logging
import math
from abc import abstractmethod
from pathlib import Path
from typing import Any

from seq2seq_lab.data.lines import Lines
from seq2seq_lab.data.sentences import SentenceCorpus
from seq2seq_lab.data.tokenizers import UNK
from seq2seq_lab.metrics.base import digest
from seq2seq_lab.runtime import console
from seq2seq_lab.runtime.tables import sectioned_table
from seq2seq_lab.tasks.text import TextTask, corpus_record, warn_if_mostly_unknown

log = logging.getLogger(__name__)


class SentenceTask(TextTask):
    """A task of sentences of one language."""

    unit = "tokens"

    @property
    @abstractmethod
    def corpus(self) -> SentenceCorpus:
        """The sentences."""

    def data_record(self) -> dict[str, Any]:
        corpus = self.corpus
        hashes = {name: Lines.of(text.lines).digest().hex() for name, text in corpus.splits.items()}
        return corpus_record(corpus, hashes, {"test": digest([hashes["test"], corpus.test.contrasts])})

    def tokenize_sentences(self, cache: Path, saved: Path | None) -> str:
        """Set the vocabulary and the tokens; see `TextTask.tokenize`."""
        corpus = self.corpus
        lines = {name: split.lines for name, split in corpus.splits.items()}
        about = corpus.language if self.framed else [corpus.language, "unframed"]
        return self.tokenize(lines, about, cache, saved)

    def describe(self) -> None:
        """Print the sentences, tokens and unknown tokens of each split, and the size of the vocabulary."""
        rows, unknowns = [], dict[str, float]()
        for name, ids in self.tokens.items():
            count = len(ids.tokens) - (2 * len(ids) if self.framed else 0)
            unknowns[name] = int((ids.tokens == UNK).sum()) / max(1, count)
            rows.append([name, f"{len(ids):,}", f"{count:,}", f"{unknowns[name]:.2%}"])
        vocabulary = ["vocabulary", "", f"{self.vocabulary.tokenizer.size:,} types", ""]
        heads = ["split", "sentences", "tokens", "unknown"]
        console.print_and_log(sectioned_table("corpus", heads, [rows, [vocabulary]]))
        warn_if_mostly_unknown(unknowns["train"], "training texts")
        if not unknowns["train"] and any(unknowns.values()):
            log.warning(
                "The training split has no unknown token, but other splits have: the model is not trained on <unk>. Use a "
                "tokenizer without unknown tokens, such as tokenizer=bpe, or a greater tokenizer.min_frequency."
            )

    def uniform_loss(self) -> float:
        return math.log(self.vocabulary.tokenizer.size)
