"""Names with the language that they come from: generated names of invented languages, or files of names."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import ClassVar

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.data.labelled import Example, LabelledCorpus, collect_labelled
from seq2seq_lab.data.licences import GENERATED
from seq2seq_lab.data.local_files import check_encoding, list_folder, plain_name, read_lines
from seq2seq_lab.data.text import check_shares, find_problem, split_by_hash
from seq2seq_lab.errors import UserError

MOST_REPEATS = 1_000
"""After this many consecutive names that were drawn before, a language counts as exhausted."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """The spelling rules of an invented language.

    A name has `syllables` syllables, each an onset, a vowel and a coda, and then an ending. All are drawn with equal
    probability; a part that is listed twice is twice as frequent.

    Attributes:
        harmony: sets of vowels; a name has the vowels of one set only.
    """

    onsets: tuple[str, ...]
    harmony: tuple[tuple[str, ...], ...]
    codas: tuple[str, ...]
    endings: tuple[str, ...]
    syllables: tuple[int, ...]

    def draw(self, random: Random) -> str:
        """Return a name."""
        vowels = random.choice(self.harmony)
        parts = [
            random.choice(self.onsets) + random.choice(vowels) + random.choice(self.codas)
            for _ in range(random.choice(self.syllables))
        ]
        return ("".join(parts) + random.choice(self.endings)).capitalize()


PLAIN = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v")
FIVE = (("a", "e", "i", "o", "u"),)
NONE = ("",)

# Most letters occur in every language; the languages differ in how letters combine. Some names match two languages.
LANGUAGES = {
    # open syllables: each consonant has a vowel after it
    "Alu": Spelling((*PLAIN, ""), FIVE, NONE, NONE, (2, 3)),
    # each syllable is closed
    "Berk": Spelling(PLAIN, FIVE, ("k", "l", "n", "r", "s", "t"), NONE, (1, 2)),
    # doubled consonants between vowels, and a final -o, -i or -a
    "Cassi": Spelling(PLAIN, FIVE, ("ll", "nn", "ss", "tt", ""), ("o", "i", "a", "ino", "ello"), (1, 2)),
    # vowel harmony: a o u, or e i y
    "Dorun": Spelling(PLAIN, (("a", "o", "u"), ("e", "i", "y")), ("", "", "n", "r"), NONE, (2, 3)),
    # clusters at the start, and a final -sen or -ard
    "Fjell": Spelling(("fj", "gr", "kn", "sk", "st", "tr", "br"), FIVE, ("", "l", "n", "rg"), ("sen", "ard", "vik"), (1, 2)),
    # digraphs: gw, ll, rh, dd, ff
    "Gwyn": Spelling(
        ("gw", "ll", "rh", "c", "m", "p", "t"), (("a", "e", "o", "w", "y"),), ("", "dd", "ff", "n", "s"), NONE, (1, 2)
    ),
    # the only coda is n; the clusters sh, ts and ky
    "Hoshi": Spelling(("k", "m", "n", "s", "t", "h", "sh", "ts", "ky", "r"), FIVE, ("", "", "", "n"), NONE, (2, 3)),
    # sibilant digraphs, and a final -ski, -ova or -wicz
    "Kovia": Spelling((*PLAIN, "cz", "sz", "rz", "z"), FIVE, ("", "", "w", "l"), ("ski", "ova", "wicz", "enko"), (1, 2)),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Names with their languages.

    Args:
        path: a folder with one file `LANGUAGE.txt` per language and one name per line, plain or compressed; None to generate
            names of invented languages (`LANGUAGES`).
        encoding: of the files; see `read_lines`.
        names: the number of names to generate, the same for each language.
        validation_share: the share of the names that is used for validation, by a hash of the name: a name that several
            languages have is in one split.
        test_share: the share of the test split.
        seed: random seed of the generated names.

    Raises:
        UserError: a value is out of range.
    """

    licence: ClassVar[str] = GENERATED
    of_generated: ClassVar[tuple[str, ...]] = ("names", "seed")
    of_files: ClassVar[tuple[str, ...]] = ("encoding",)
    path: str | None
    encoding: str | None
    names: Count
    validation_share: float
    test_share: float
    seed: int

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        check_shares(self.validation_share, self.test_share)

    def load(self) -> LabelledCorpus:
        """Read or generate the names. Raises `UserError` for files that cannot be used.

        Besides what `read_lines` counts, the corpus of files counts

        - `dropped_duplicates`: lines that repeat a name of the same language; `dropped_duplicates/LANGUAGE` by language
        - `names_of_several_languages`: names that more than one language has
        """
        counts = Counter[str]()
        examples = (
            self._generated() if self.path is None else self._read(Path(self.path).expanduser(), counts)
        )
        shares = {"validation": self.validation_share, "test": self.test_share}
        split = ((split_by_hash(one[0], *shares.values()), one) for one in examples)
        return collect_labelled("und", split, shares, counts)

    def _generated(self) -> Iterator[Example]:
        for language, spelling in LANGUAGES.items():
            random = Random(f"{self.seed} {language}")
            found: set[str] = set()
            repeats = 0
            while len(found) < -(-self.names // len(LANGUAGES)):
                name = spelling.draw(random)
                repeats = repeats + 1 if name in found else 0
                if repeats == MOST_REPEATS:
                    raise UserError(
                        f"dataset.names={self.names}: the language {language} has only about {len(found):,} names. Set a "
                        f"smaller number."
                    )
                if name not in found:
                    found.add(name)
                    yield name, language, None

    def _read(self, folder: Path, counts: Counter[str]) -> Iterator[Example]:
        files = dict[str, Path]()  # the plain file of a language if there is also a compressed one
        for file in sorted(folder.glob("*.txt*")):
            if (name := plain_name(file.name)).endswith(".txt"):
                files.setdefault(name.removesuffix(".txt"), file)
        if len(files) < 2:
            raise UserError(
                f"dataset.path={self.path} needs a file LANGUAGE.txt for each of at least two languages; "
                f"{list_folder(folder)}. Give another folder, or dataset.path=null for generated names."
            )
        counts["dropped_duplicates"] = 0
        languages = Counter[str]()  # the number of languages of each name
        for language, file in files.items():
            names = [
                (line_number, line.strip(), problem)
                for line_number, (line, problem) in enumerate(
                    read_lines(file, counts, encoding=self.encoding), 1
                )
            ]
            for line_number, name, problem in names:
                if reason := problem or find_problem(name):
                    raise UserError(f"{file} line {line_number}: {reason}. Correct or remove the line.")
            distinct = dict.fromkeys(name for _, name, _ in names)
            languages.update(distinct.keys())
            if dropped := len(names) - len(distinct):
                counts["dropped_duplicates"] += dropped
                counts[f"dropped_duplicates/{language}"] = dropped
            for name in distinct:
                yield name, language, None
        counts["names_of_several_languages"] = sum(count > 1 for count in languages.values())
