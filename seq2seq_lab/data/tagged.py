"""Sentences with a tag for each word: the French side of the grammar, or files of columns or JSON lines."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, ClassVar

from seq2seq_lab.config.type_checks import Count, Within
from seq2seq_lab.data.grammar import Grammar
from seq2seq_lab.data.labelled import (
    Example,
    LabelledFiles,
    TaggedCorpus,
    collect_labelled,
    refuse_without_train,
)
from seq2seq_lab.data.licences import GENERATED
from seq2seq_lab.data.local_files import compose, plain_suffix, read_lines
from seq2seq_lab.data.tables import SUFFIXES, Reader
from seq2seq_lab.data.text import SplitName, find_problem, split_by_hash
from seq2seq_lab.errors import UserError, require

DOCUMENT = "-DOCSTART-"  # the first word of a line between documents (Tjong Kim Sang and De Meulder 2003)
NO_WORD = re.compile(r"\d+[-.]\d+")  # the first column of a range of words, or of an empty word, in CoNLL-U
LONGEST = 500  # words: a file with one longer sentence lacks the empty lines
COLUMN = "a column number from 1, or from the right -1 for the last column"

Rows = Iterator[tuple[str, Sequence[str], Sequence[str]]]
"""The location of each sentence, its words and its tags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tagged(LabelledFiles):
    """Sentences with a tag for each word.

    Without `train`, French sentences of `Grammar`; a tag is the part of speech with the gender and the number that the word
    agrees with, such as `ADJ.f.pl`. Many forms have several tags: `les` is an article or a pronoun, `jeune` masculine or
    feminine, `suis` an auxiliary or a verb.

    Args:
        train, validation, test: see `read_tagged` and `LabelledFiles`; None for `train` to generate sentences.
        word_column: the column of the words, from 1; from the right -1 for the last one. JSON lines have `tokens`.
        tag_column: the column of the tags; JSON lines have `tags`.
        sentences: the number of sentences to generate.
        seed: random seed of the generated sentences; see `Grammar`, also for `max_depth`.

    Raises:
        UserError: a value is out of range.
    """

    licence: ClassVar[str] = GENERATED
    of_generated: ClassVar[tuple[str, ...]] = ("sentences", "seed", "max_depth")
    of_files: ClassVar[tuple[str, ...]] = ("encoding", "language", "word_column", "tag_column")
    word_column: int
    tag_column: int
    sentences: Count
    seed: int
    max_depth: Annotated[int, Within(0)]

    def __post_init__(self) -> None:
        LabelledFiles.__post_init__(self)  # super() fails in a dataclass with slots
        for name in ("word_column", "tag_column"):
            require(getattr(self, name) != 0, f"dataset.{name}", getattr(self, name), COLUMN)
        refuse_without_train(self)

    def load(self) -> TaggedCorpus:
        """Read or generate the sentences. Raises `UserError` for files that cannot be used."""
        if self.train is None:
            return collect_labelled("fr", self._generated(), self.shares, kind=TaggedCorpus)
        return self.read(TaggedCorpus)

    def _generated(self) -> Iterator[tuple[SplitName, Example]]:
        corpus = Grammar(
            train=self.sentences,
            validation=1,
            test=1,
            test_compositional=0,
            held_out_share=0.0,
            seed=self.seed,
            max_depth=self.max_depth,
        ).load()
        for gold in corpus.train.gold or ():
            text = " ".join(gold.target_words)
            rows = zip(gold.target_classes or (), gold.target_agreement or (), strict=True)
            tags = " ".join(f"{part}.{agreement}" if agreement else part for part, agreement in rows)
            yield split_by_hash(text, self.validation_share, self.test_share), (text, tags, None)

    def examples(self, source: Path, counts: Counter[str]) -> Iterator[tuple[str, Example]]:
        """See `LabelledFiles.examples`."""
        columns = (self.word_column, self.tag_column)
        for text, tags in read_tagged(source, columns, self.encoding, counts):
            yield text, (text, tags, None)


def read_tagged(
    path: Path, columns: tuple[int, int], encoding: str | None, counts: Counter[str]
) -> Iterator[tuple[str, str]]:
    """Yield the words and the tags of each sentence of a file, both separated by spaces.

    A file with the suffix of JSON or Parquet has lists `tokens` and `tags`. Any other file has a word in each line, and an
    empty line after each sentence (CoNLL); columns are separated by tabs, or by white space if no line has a tab. Lines that
    begin with `-DOCSTART-` are left out, and in columns separated by tabs also the comments, ranges of words and empty words
    of CoNLL-U. White space inside a word is replaced by `_`, which `words_with_spaces` counts.

    Args:
        columns: those of the words and the tags; see `Tagged`.
        counts: counts what `read_lines` and this function count.

    Raises:
        UserError: names the line and what is wrong with it.
    """
    form = SUFFIXES.get(plain_suffix(path))
    if form in ("jsonl", "parquet"):
        sentences = _named_sentences(path, encoding, counts)
    else:
        sentences = _column_sentences(path, columns, encoding, counts)
    for location, words, tags in sentences:
        joined = []
        for word, tag in zip(words, tags, strict=True):
            if problem := find_problem(word) or find_problem(tag):
                raise UserError(f"{location}: a word or tag is not usable: {problem}. Correct the file.")
            if len(tag.split()) != 1:
                raise UserError(f"{location}: tag={tag!r} contains white space. Correct the file.")
            parts = word.split()
            counts["words_with_spaces"] += len(parts) > 1
            joined.append(compose("_".join(parts), counts))
        yield " ".join(joined), " ".join(tags)


def _named_sentences(path: Path, encoding: str | None, counts: Counter[str]) -> Rows:
    for location, row, problem in Reader(encoding=encoding).rows(path, counts):
        found = [row.get(name) for name in ("tokens", "tags")] if isinstance(row, dict) else [None, None]
        words, tags = ([*one] if isinstance(one, list | tuple) else None for one in found)
        if not problem and (words is None or tags is None):
            problem = "`tokens` and `tags` are not two lists"
        elif not problem and not (words and all(isinstance(one, str) for one in [*words, *(tags or ())])):
            problem = "`tokens` and `tags` are not lists of texts with at least one word"
        elif not problem and len(words or ()) != len(tags or ()):
            problem = f"{len(words or ())} tokens and {len(tags or ())} tags"
        if problem:
            raise UserError(f'{location}: {problem}. Write {{"tokens": [WORD, …], "tags": [TAG, …]}}.')
        yield location, words or (), tags or ()


def _column_sentences(
    path: Path, columns: tuple[int, int], encoding: str | None, counts: Counter[str]
) -> Rows:
    read = partial(read_lines, path, encoding=encoding)
    separator = "\t" if any("\t" in line for line, _ in read(Counter())) else None
    end = [("", "")]
    start, words, tags, width, lengths = 0, list[str](), list[str](), 0, list[int]()
    for line_number, (line, problem) in enumerate(chain(read(counts), end), start=1):
        if problem:
            raise UserError(f"{path} line {line_number}: {problem}. Correct the file.")
        if separator and line.startswith("#") and separator not in line:
            continue
        cells = line.split(separator) if line.strip() else []
        if not cells:
            if words:
                lengths.append(len(words))
                yield f"{path} lines {start} to {line_number - 1}", words, tags
            words, tags = [], []
            continue
        if cells[0] == DOCUMENT or (separator and NO_WORD.fullmatch(cells[0]) and columns[0] != 1):
            continue
        width = width or max(2, len(cells), *map(abs, columns))
        if len(cells) != width:
            raise UserError(
                f"{path} line {line_number}: {len(cells)} columns instead of {width}: {line!r:.80}. Each line is a word "
                f"with its tag, with an empty line after each sentence. Correct the line, or choose the columns with "
                f"dataset.word_column and dataset.tag_column (1 is the first one, -1 the last one)."
            )
        start = start if words else line_number
        words.append(cells[columns[0] - (columns[0] > 0)])
        tags.append(cells[columns[1] - (columns[1] > 0)].strip())
    if len(lengths) == 1 and lengths[0] > LONGEST:
        raise UserError(
            f"{path} has {lengths[0]:,} words without an empty line between them, which makes them one sentence. Write an "
            f"empty line after each sentence."
        )
