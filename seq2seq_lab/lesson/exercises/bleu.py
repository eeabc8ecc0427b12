"""The properties of BLEU; the reference is sacreBLEU without smoothing."""

from collections.abc import Sequence
from random import Random

from sacrebleu.metrics.bleu import BLEU

from seq2seq_lab.data.corpus import Gold
from seq2seq_lab.lesson.properties import Property, Solution, expect_number, unchanged
from seq2seq_lab.lesson.student import Student

Corpus = list[list[str]]


def reference(hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> float:
    """Return BLEU of tokens."""
    scorer = BLEU(tokenize="none", smooth_method="none", force=True)
    lines, golds = ([" ".join(words) for words in side] for side in (hypotheses, references))
    return float(scorer.corpus_score(lines, [golds]).score)


def expect(solution: Solution, hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Compare BLEU of a few sentences of words between spaces."""
    split = [line.split() for line in hypotheses], [line.split() for line in references]
    given = f"bleu of {hypotheses} against {references}"
    expect_number(solution(given, *split), reference(*split), given)


def words_of(pairs: Sequence[Gold]) -> Corpus:
    """Return the target sentences."""
    return [[*pair.target_words] for pair in pairs]


def identical(solution: Solution, student: Student) -> None:
    """A sentence that equals its reference has 100."""
    expect(solution, ["a b c d e f"], ["a b c d e f"])


def geometric(solution: Solution, student: Student) -> None:
    """BLEU is the geometric mean of the four precisions times 100: one sentence, no word twice, equal lengths."""
    expect(solution, ["a b c d e f x y z w"], ["a b c d e f g h i j"])


def clipping(solution: Solution, student: Student) -> None:
    """A matched n-gram counts at most as often as it occurs in the reference."""
    expect(solution, ["a b c d a b c d"], ["a b c d e f g h"])
    expect(solution, ["a b c d e a a a a"], ["a b c d e a f g h"])


def long_output(solution: Solution, student: Student) -> None:
    """Output longer than the references has no penalty besides its lower precision."""
    expect(solution, ["a b c d e f g h i j k l"], ["a b c d e f g h"])


def brevity(solution: Solution, student: Student) -> None:
    """Output shorter than the references has the penalty e^(1 − r / c), r and c their tokens in all sentences."""
    expect(solution, ["a b c d e"], ["a b c d e f g h"])


def boundaries(solution: Solution, student: Student) -> None:
    """No n-gram contains words of two sentences."""
    expect(solution, ["a b c d x", "f g h i y"], ["a b c d e", "f g h i j"])


def corpus(solution: Solution, student: Student) -> None:
    """The counts are summed over the sentences before they are divided; BLEU is not a mean over sentences."""
    expect(solution, ["a b c d e", "k l m n x y z w v u"], ["a b c d e", "k l m n o p q r s t"])


def brevity_of_corpus(solution: Solution, student: Student) -> None:
    """A short sentence and a long one whose lengths sum to those of the references have no brevity penalty."""
    expect(solution, ["a b c d e", "k l m n o p q"], ["a b c d e f", "k l m n o p"])


def no_match(solution: Solution, student: Student) -> None:
    """BLEU is 0 if no 4-gram matches, or if no hypothesis has 4 words."""
    expect(solution, ["a b c x e f g"], ["a b c d e f g"])
    expect(solution, ["a b c"], ["a b c"])


def empty(solution: Solution, student: Student) -> None:
    """An empty hypothesis has no n-grams, and its reference counts in the brevity penalty; a corpus of them has 0."""
    expect(solution, ["a b c d e", ""], ["a b c d e", "f g h"])
    expect(solution, ["", ""], ["a b c d e", "f g h"])


def case(solution: Solution, student: Student) -> None:
    """Words are compared as they are, with upper and lower case."""
    expect(solution, ["Paul voit le roi et Marie"], ["paul voit le roi et Marie"])


def sentences(solution: Solution, student: Student) -> None:
    """BLEU of changed sentences of the grammar is that of sacreBLEU, with and without the held-out construction."""
    random = Random(student.seed)
    for name, pairs in (("shown", student.shown), (student.phenomenon, student.held_out)):
        golds = words_of(pairs)
        for share in (0.05, 0.15, 0.4):
            changed = [corrupted(words, random, share) for words in golds]
            given = f"{len(golds)} sentences ({name}), the first {' '.join(changed[0])!r} for {' '.join(golds[0])!r}"
            expect_number(solution(given, changed, golds), reference(changed, golds), given)


def corrupted(words: Sequence[str], random: Random, share: float) -> list[str]:
    """Leave out, repeat and exchange some words."""
    changed: list[str] = []
    for word in words:
        point = random.random() / share
        changed += [] if point < 0.4 else [word, word] if point < 0.7 else [word] if point > 1 else ["roi"]
    return changed


PROPERTIES: tuple[Property, ...] = (
    *(identical, geometric, clipping, long_output, brevity, boundaries, corpus, brevity_of_corpus),
    *(no_match, empty, case, sentences, unchanged),
)
