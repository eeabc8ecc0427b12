"""Spellings and pronunciations: the files of SIGMORPHON 2020, task 1 (Gorman 2020)."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from seq2seq_lab.data import text
from seq2seq_lab.data.corpus import Corpus
from seq2seq_lab.data.deduplication import count_repeats
from seq2seq_lab.data.local_files import check_encoding, find_packed, list_folder
from seq2seq_lab.data.tables import Reader
from seq2seq_lab.errors import UserError, did_you_mean

SPLITS = ("train", "dev", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphemeToPhoneme:
    """Words and their phones, separated by spaces, of one language.

    `path` is a folder with the files `SPLIT/LANGUAGE_SPLIT.tsv` for the splits train, dev and test, plain or compressed. A
    line is a word, a tab and the phones.
    """

    licence: ClassVar[str] = "CC BY-SA (SIGMORPHON 2020 task 1, from Wiktionary)"
    path: str
    language: str
    encoding: str | None
    on_bad_pair: text.OnBadPair

    def __post_init__(self) -> None:
        check_encoding(self.encoding)

    def load(self) -> Corpus:
        """Read the corpus. Raises `UserError` for missing files, bad lines, swapped columns, and a split without pairs."""
        counts = text.new_counts()
        reader = Reader("tsv", encoding=self.encoding)
        splits = []
        for split in SPLITS:
            file = self._find(split)
            candidates = reader.pairs(file, (1, 2), ("word", "phones"), counts)
            splits.append(
                text.collect(text.usable_pairs(candidates, str(file), self.on_bad_pair, counts), None)
            )
            if not splits[-1]:
                raise UserError(f"dataset.path={self.path}: {file} has no pairs. Give another folder.")
        train, validation, test = splits
        words, phones = (sum(" " in one for one in side) for side in (train.source, train.target))
        if phones < len(train) / 2 < words:
            raise UserError(
                f"dataset.path={self.path}: most words contain spaces and most pronunciations do not, so the columns are "
                f"probably swapped. Write the word first, then a tab and the phones, separated by spaces."
            )
        count_repeats(train, [validation, test], counts)
        return Corpus(self.language, "phones", train, validation, {"test": test}, counts)

    def _find(self, split: str) -> Path:
        folder = Path(self.path).expanduser() / split
        file = find_packed(folder / f"{self.language}_{split}.tsv")
        if file.is_file():
            return file
        languages = sorted({one.name.partition(f"_{split}.tsv")[0] for one in folder.glob(f"*_{split}.tsv*")})
        if languages and self.language not in languages:
            raise UserError(
                f"dataset.language={self.language} is not in {folder}.{did_you_mean(self.language, languages)} "
                f"Values: {', '.join(languages)}."
            )
        raise UserError(
            f"dataset.path={self.path}: {file} (or compressed) not found; {list_folder(folder)}. Give the folder with "
            f"{', '.join(f'{one}/LANGUAGE_{one}.tsv' for one in SPLITS)}."
        )
