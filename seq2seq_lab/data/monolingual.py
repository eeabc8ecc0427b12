"""The data set for language models: a text, or one side of the generated grammar."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from seq2seq_lab.config.type_checks import Count, Within
from seq2seq_lab.data import text
from seq2seq_lab.data.grammar import Grammar
from seq2seq_lab.data.grammar.minimal_pairs import agreement_distances, contrasts
from seq2seq_lab.data.licences import GENERATED
from seq2seq_lab.data.lines import Lines
from seq2seq_lab.data.local_files import check_encoding, find_file
from seq2seq_lab.data.sentences import SentenceCorpus, Sentences
from seq2seq_lab.data.tables import Reader
from seq2seq_lab.errors import UserError

SIDES = ("en", "fr")


@dataclass(frozen=True, slots=True, kw_only=True)
class Monolingual:
    """Sentences of one language.

    With `path`, the text in this file: its last lines are the test split, the lines before them the validation split.
    Lines of white space only are left out and counted; they separate documents. Without `path`, one side of `Grammar`, with
    an ungrammatical form of many test sentences; see `grammar.minimal_pairs`.

    Args:
        path: a file with one sentence per line, or a table, plain or compressed.
        encoding: of the file; see `read_lines`.
        column: the name or number of the column of a table that has the sentences.
        language: the language of the text; without `path` en or fr.
        validation_share: the share of the lines of the file that is used for validation.
        test_share: the share of the lines of the file that is used for the test.
        train: the number of generated sentences; also `validation` and `test`.
        seed: random seed of the generated sentences; see `Grammar`, also for `max_depth`.

    Raises:
        UserError: a value out of range.
    """

    licence: ClassVar[str] = GENERATED
    path: str | None
    encoding: str | None
    column: str | int | None
    language: str
    validation_share: float
    test_share: float
    train: Count
    validation: Count
    test: Count
    seed: int
    max_depth: Annotated[int, Within(0)]

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        text.check_shares(self.validation_share, self.test_share)
        if self.path is None and self.language not in SIDES:
            raise UserError(
                f"dataset.language={self.language} is not a language of the grammar. Values: {', '.join(SIDES)}; or "
                f"give a text, dataset.path=FILE."
            )

    def load(self) -> SentenceCorpus:
        """Read or generate the sentences. Raises `UserError` if the file cannot be used."""
        return self._generate() if self.path is None else self._read(self.path)

    def _generate(self) -> SentenceCorpus:
        corpus = Grammar(
            train=self.train,
            validation=self.validation,
            test=self.test,
            test_compositional=0,
            held_out_share=0.0,
            seed=self.seed,
            max_depth=self.max_depth,
        ).load()
        train, validation, test = (
            split.source if self.language == "en" else split.target
            for split in (corpus.train, corpus.validation, corpus.tests["test"])
        )
        golds = corpus.tests["test"].gold or ()
        wrong = contrasts(golds, self.language)
        distances = [
            distance if one is not None and one.phenomenon == "agreement" else None
            for one, distance in zip(wrong, agreement_distances(golds, self.language), strict=True)
        ]
        held_out = Sentences(test, wrong, distances)
        return SentenceCorpus(self.language, Sentences(train), Sentences(validation), held_out)

    def _read(self, path: str) -> SentenceCorpus:
        file, counts, lines = find_file("dataset.path", path), text.new_counts(), []
        blank, documents = 0, []
        for line, problem in Reader(encoding=self.encoding).column(file, self.column, counts):
            if problem.endswith(text.EMPTY):
                blank += 1
            elif problem:
                raise UserError(f"dataset.path={path}: {problem}. Correct or remove the line.")
            else:
                lines.append(line)
                documents.append(blank)
        test = round(self.test_share * len(lines))
        validation = round(self.validation_share * len(lines))
        train = len(lines) - validation - test
        if 0 in (train, validation, test):
            raise UserError(
                f"dataset.path={path} has {len(lines)} lines with text, which gives {train} for train, {validation} for "
                f"validation and {test} for test. Add lines, or increase dataset.validation_share and "
                f"dataset.test_share."
            )
        text.warn_of_small_splits({"validation": validation, "test": test}, len(lines))
        parts = (slice(train), slice(train, train + validation), slice(train + validation, None))
        first, second, third = (Sentences(Lines.of(lines[part]), documents=documents[part]) for part in parts)
        return SentenceCorpus(self.language, first, second, third, {**counts, "blank_lines": blank})
