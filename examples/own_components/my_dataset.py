"""Custom data sets."""

from random import Random

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.data.corpus import Corpus, Gold, ParallelText
from seq2seq_lab.data.labelled import LabelledCorpus, LabelledText
from seq2seq_lab.errors import UserError


class Reversal:
    """Distinct rows of digits ("4 8 1") and the same digits backwards ("1 8 4"), with gold alignments.

    Raises:
        UserError: `longest` is less than `shortest`, or the lengths allow too few distinct rows.
    """

    def __init__(
        self, *, train: Count, validation: Count, test: Count, shortest: Count, longest: Count, seed: int
    ) -> None:
        if longest < shortest:
            raise UserError(
                f"dataset.longest={longest} must be at least dataset.shortest={shortest}. Increase dataset.longest."
            )
        if train + validation + test > 10**longest // 2:
            raise UserError(
                f"dataset.shortest={shortest} and dataset.longest={longest} allow too few rows for "
                f"{train + validation + test} pairs. Increase dataset.longest."
            )
        self.sizes = (train, validation, test)
        self.lengths = (shortest, longest)
        self.seed = seed

    def load(self) -> Corpus:
        random = Random(self.seed)
        rows: dict[str, None] = {}
        while len(rows) < sum(self.sizes):
            rows[" ".join(random.choices("0123456789", k=random.randint(*self.lengths)))] = None
        lines = iter(rows)
        train, validation, test = (_pairs([next(lines) for _ in range(size)]) for size in self.sizes)
        return Corpus("digits", "stigid", train, validation, {"test": test})


def _pairs(sources: list[str]) -> ParallelText:
    digits = [tuple(source.split()) for source in sources]
    gold = [
        Gold(row, row[::-1], frozenset((len(row) - 1 - target, target) for target in range(len(row))))
        for row in digits
    ]
    return ParallelText(sources, [" ".join(row[::-1]) for row in digits], gold)


class Parity:
    """Numbers, and whether each is even or odd."""

    def __init__(self, *, train: Count, validation: Count, test: Count, seed: int) -> None:
        self.sizes = (train, validation, test)
        self.seed = seed

    def load(self) -> LabelledCorpus:
        random = Random(self.seed)
        train, validation, test = (
            _labelled([random.randrange(1_000_000) for _ in range(size)]) for size in self.sizes
        )
        return LabelledCorpus("digits", train, validation, test)


def _labelled(numbers: list[int]) -> LabelledText:
    return LabelledText([str(one) for one in numbers], ["odd" if one % 2 else "even" for one in numbers])
