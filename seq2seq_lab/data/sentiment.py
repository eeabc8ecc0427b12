"""Sentences with their sentiment: generated reviews whose deciding words are known, or files in the format of SST-2."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import ClassVar

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.data.labelled import Example, LabelledCorpus, collect_counted, collect_labelled
from seq2seq_lab.data.licences import GENERATED
from seq2seq_lab.data.local_files import check_encoding, compose, find_packed, list_folder, read_lines
from seq2seq_lab.data.text import SplitName, check_shares, find_problem, malformed, new_counts, split_by_hash
from seq2seq_lab.errors import UserError

POSITIVE = [
    "brilliant",
    "charming",
    "clever",
    "delightful",
    "excellent",
    "fine",
    "funny",
    "gripping",
    "lovely",
    "moving",
    "superb",
    "touching",
    "warm",
    "witty",
]
NEGATIVE = [
    "awful",
    "boring",
    "clumsy",
    "dreadful",
    "dull",
    "empty",
    "flat",
    "lame",
    "poor",
    "predictable",
    "shallow",
    "slow",
    "tedious",
    "weak",
]
WORDS = {"positive": POSITIVE, "negative": NEGATIVE}
OPPOSITE = {"positive": "negative", "negative": "positive"}
SUBJECTS = [
    "film",
    "movie",
    "story",
    "plot",
    "ending",
    "acting",
    "cast",
    "script",
    "dialogue",
    "music",
    "camerawork",
    "direction",
]
OTHERS = ["trailer", "poster", "book", "sequel", "original", "remake"]
DEGREES = ("", "", "", "very ", "rather ", "quite ", "really ")
FACTS = (
    "it runs for two hours",
    "it was shot in spain",
    "we saw it on a monday",
    "it is set in a small town",
    "the director lives in paris",
    "the hero is a young doctor",
    "it follows two brothers through a long winter",
    "there are subtitles",
)
NEGATED = 0.3  # share of the reviews with a negation
CONCEDED = 0.4  # share of the reviews with an opinion that does not decide
DECIDING = "*"  # marks a deciding word
HEADER = ("sentence", "label")
LABELS = {"0": "negative", "1": "positive"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentiment:
    """Sentences with the label `positive` or `negative`.

    A generated review has one opinion that decides its label ("the script is witty", "the acting is not dull"). It may also
    have an opinion on something else, which does not ("although the trailer looked dull"), and facts without an opinion.

    Args:
        path: a folder with `train.tsv` and `dev.tsv` in the format of SST-2 (Socher 2013, GLUE): a header, then
            `sentence<TAB>label` with the labels 0 and 1; the test split is `dev.tsv`. None to generate reviews.
        encoding: of the files; see `read_lines`.
        reviews: the number of reviews to generate.
        validation_share: the share of the training sentences that is used for validation, by a hash of the sentence.
        test_share: the share of generated reviews that is used for the test.
        seed: random seed of the generated reviews.

    Raises:
        UserError: a value is out of range.
    """

    licence: ClassVar[str] = GENERATED
    of_generated: ClassVar[tuple[str, ...]] = ("reviews", "test_share", "seed")
    of_files: ClassVar[tuple[str, ...]] = ("encoding",)
    path: str | None
    encoding: str | None
    reviews: Count
    validation_share: float
    test_share: float
    seed: int

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        check_shares(self.validation_share, self.test_share)

    def load(self) -> LabelledCorpus:
        """Read or generate the sentences. Raises `UserError` for files that cannot be used."""
        if self.path is None:
            shares = {"validation": self.validation_share, "test": self.test_share}
            examples = ((split_by_hash(one[0], *shares.values()), one) for one in self._generated())
            return collect_labelled("en", examples, shares)
        counts, folder = new_counts(), Path(self.path).expanduser()
        shares = {"validation": self.validation_share}
        return collect_counted("en", self._read(folder, counts), shares, counts)

    def _read(self, folder: Path, counts: Counter[str]) -> Iterator[tuple[SplitName, Example]]:
        for name in ("train.tsv", "dev.tsv"):
            for text, label in read_sst2(find_packed(folder / name), self.encoding, counts):
                held_out = split_by_hash(text, self.validation_share, 0) == "validation"
                split: SplitName = "test" if name == "dev.tsv" else "validation" if held_out else "train"
                yield split, (text, label, None)

    def _generated(self) -> Iterator[Example]:
        random, found = Random(self.seed), set[str]()
        while len(found) < self.reviews:
            text, label, deciding = draw_review(random)
            if text not in found:
                found.add(text)
                yield text, label, deciding


def draw_review(random: Random) -> tuple[str, str, frozenset[int]]:
    """Return a review, its label and the indices of its deciding words."""
    label = random.choice(("positive", "negative"))
    subject, degree = random.choice(SUBJECTS), random.choice(DEGREES)
    if random.random() < NEGATED:
        opinion = f"the {subject} is {DECIDING}not {degree}{DECIDING}{random.choice(WORDS[OPPOSITE[label]])}"
    else:
        opinion = f"the {subject} is {degree}{DECIDING}{random.choice(WORDS[label])}"
    if random.random() < CONCEDED:
        other = random.choice(WORDS[random.choice((label, OPPOSITE[label]))])
        opinion = f"although the {random.choice(OTHERS)} looked {other} , {opinion}"
    clauses = [*random.sample(FACTS, random.randint(0, 2)), opinion]
    random.shuffle(clauses)
    words = f"{' . '.join(clauses)} .".split()
    deciding = frozenset(position for position, word in enumerate(words) if word.startswith(DECIDING))
    return " ".join(word.removeprefix(DECIDING) for word in words), label, deciding


def read_sst2(path: Path, encoding: str | None, counts: Counter[str]) -> Iterator[tuple[str, str]]:
    """Yield (sentence, label) of a file in the format of SST-2.

    Args:
        counts: counts what `read_lines` and `compose` count.

    Raises:
        UserError: the file does not exist, or a line has another format.
    """
    if not path.is_file():
        raise UserError(
            f"dataset.path={path.parent}: {path.name} not found; {list_folder(path.parent)}. Give a folder with train.tsv "
            f"and dev.tsv, or dataset.path=null for generated reviews."
        )
    for line_number, (line, problem) in enumerate(read_lines(path, counts, encoding=encoding), start=1):
        text, _, label = line.rpartition("\t")
        if line_number == 1 and (text, label) == HEADER:
            continue
        form = "" if label in LABELS else malformed(line, "a sentence, a tab and 0 or 1")
        if reason := problem or form or find_problem(text):
            raise UserError(
                f"{path} line {line_number}: {reason}. The first line is `sentence<TAB>label`; correct or remove the line."
            )
        yield compose(text, counts).strip(), LABELS[label]
