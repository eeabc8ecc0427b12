"""The data set for language models: a text, or one side of the generated grammar."""

from array import array
from collections import Counter
from dataclasses import dataclass
from typing import Annotated, ClassVar

from seq2seq_lab.config.type_checks import Count, Within
from seq2seq_lab.data import text
from seq2seq_lab.data.corpus import ParallelText
from seq2seq_lab.data.deduplication import count_repeats
from seq2seq_lab.data.grammar import Grammar
from seq2seq_lab.data.grammar.minimal_pairs import agreement_distances, contrasts
from seq2seq_lab.data.licences import GENERATED
from seq2seq_lab.data.lines import Lines, LinesBuilder
from seq2seq_lab.data.local_files import check_encoding, find_file
from seq2seq_lab.data.sentences import SentenceCorpus, Sentences
from seq2seq_lab.data.tables import Reader
from seq2seq_lab.errors import UserError

SIDES = ("en", "fr")


@dataclass(frozen=True, slots=True, kw_only=True)
class Monolingual:
    """Sentences of one language.

    With `path`, the text in this file: its last lines are the test split, the lines before them the validation split, unless
    `validation` or `test` names another file. Lines of white space only are left out and counted; they separate documents.
    Without `path`, one side of `Grammar`, with an ungrammatical form of many test sentences; see `grammar.minimal_pairs`.

    Args:
        path: a file with one sentence per line, or a table, plain or compressed.
        encoding: of the file; see `read_lines`.
        column: the name or number of the column of a table that has the sentences.
        language: the language of the text; without `path` en or fr.
        validation_share: the share of the lines of the file that is used for validation.
        test_share: the share of the lines of the file that is used for the test.
        train: the number of generated sentences.
        validation: the same; or, with `path`, a file like it, which is used whole. Also `test`.
        seed: random seed of the generated sentences; see `Grammar`, also for `max_depth`.

    Raises:
        UserError: a value out of range.
    """

    licence: ClassVar[str] = GENERATED
    of_generated: ClassVar[tuple[str, ...]] = ("train", "validation", "test", "seed", "max_depth")
    of_files: ClassVar[tuple[str, ...]] = ("encoding", "column", "validation_share", "test_share")
    path: str | None
    encoding: str | None
    column: str | Count | None
    language: str
    validation_share: float
    test_share: float
    train: Count
    validation: Count | str
    test: Count | str
    seed: int
    max_depth: Annotated[int, Within(0)]

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        files = [name for name in ("validation", "test") if isinstance(getattr(self, name), str)]
        text.check_shares(self.validation_share, self.test_share, files)
        if self.path is None and self.language not in SIDES:
            raise UserError(
                f"dataset.language={self.language} is not a language of the grammar. Values: {', '.join(SIDES)}; or "
                f"give a text, dataset.path=FILE."
            )
        for name in files:
            if self.path is None:
                raise UserError(f"dataset.{name}={getattr(self, name)} needs dataset.path=FILE. Set it too.")

    def load(self) -> SentenceCorpus:
        """Read or generate the sentences. Raises `UserError` if the file cannot be used."""
        return self._generate() if self.path is None else self._read(self.path)

    def _generate(self) -> SentenceCorpus:
        assert isinstance(self.validation, int)  # checked in the constructor
        assert isinstance(self.test, int)
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
        counts = text.new_counts()
        lines, documents = self._lines("dataset.path", path, counts)
        files = {name: getattr(self, name) for name in ("validation", "test")}
        shares = {"validation": self.validation_share, "test": self.test_share}
        cut = {name: round(shares[name] * len(lines)) for name in files if not isinstance(files[name], str)}
        train = len(lines) - sum(cut.values())
        if 0 in (train, *cut.values()):
            sizes = ", ".join(f"{size} for {name}" for name, size in {"train": train, **cut}.items())
            better = text.larger_shares({name: shares[name] for name, size in cut.items() if not size}, 0.1)
            raise UserError(
                f"dataset.path={path} has {len(lines)} lines with text, which gives {sizes}. Add lines"
                f"{f', or set larger shares, for example {better}' if better else ''}."
            )
        text.warn_of_small_splits(cut, len(lines), shares)
        parts, end = {"train": Sentences(lines[:train], documents=documents[:train])}, train
        for name, file in files.items():
            if name in cut:
                part = slice(end, end + cut[name])
                parts[name], end = Sentences(lines[part], documents=documents[part]), part.stop
            else:
                held_out, numbers = self._lines(f"dataset.{name}", file, counts)
                if not held_out:
                    raise UserError(f"dataset.{name}={file} has no line with text. Give another file.")
                parts[name] = Sentences(held_out, documents=numbers)
        training, *others = (ParallelText(part.lines, part.lines) for part in parts.values())
        count_repeats(training, others, counts)
        return SentenceCorpus(self.language, parts["train"], parts["validation"], parts["test"], counts)

    def _lines(self, key: str, path: str, counts: Counter[str]) -> "tuple[Lines, array[int]]":
        """Return the lines with text of a file, and the number of the document of each; counts the others."""
        lines, documents, document = LinesBuilder(), array("q"), 0
        counts["blank_lines"] += 0
        for line, problem in Reader(encoding=self.encoding).column(find_file(key, path), self.column, counts):
            if problem.endswith((text.EMPTY, text.EMPTY_LINE)):
                counts["blank_lines"] += 1
                document += 1
            elif problem:
                raise UserError(f"{key}={path}: {problem}. Correct or remove the line.")
            else:
                lines.append(line)
                documents.append(document)
        return lines.build(), documents
