"""Generated pairs of sentences with a label: entailments, contradictions and neutral pairs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.data.labelled import Example, PairCorpus, collect_labelled
from seq2seq_lab.data.licences import GENERATED
from seq2seq_lab.data.text import check_shares, split_by_hash
from seq2seq_lab.data.tokenizers.turns import TURN

NOUNS = (
    "boy",
    "girl",
    "king",
    "queen",
    "doctor",
    "teacher",
    "baker",
    "thief",
    "singer",
    "lawyer",
    "nurse",
    "hero",
)
VERBS = {"sees": ("see", "seen"), "follows": ("follow", "followed"), "helps": ("help", "helped"),
         "calls": ("call", "called"), "thanks": ("thank", "thanked"), "paints": ("paint", "painted"),
         "hears": ("hear", "heard"), "visits": ("visit", "visited")}  # fmt: skip
ADJECTIVES = ("young", "tall", "famous", "sad", "happy", "rich", "small", "clever")
PLACES = ("in the garden", "in the forest", "at school", "near the church", "in Paris", "behind the castle")

# The four forms of a sentence by the phrase of its object, and the labels of pairs of forms. A form with a modifier (an
# adjective or "every") is stronger than the one without if it is affirmative, and weaker if it is negative.
PLAIN, MODIFIED, NONE, NONE_MODIFIED = range(
    4
)  # a cat; a red cat or every cat; no cat; no red cat or not every cat
# The number of pairs of each cell (form of the premise, form of the hypothesis) among 10 of a label. For all labels, the
# numbers of each form are the same in the premises (3, 3, 3, 1) and in the hypotheses (4, 2, 2, 2): one sentence alone says
# nothing about the label.
ENTAILED = {
    **{(PLAIN, PLAIN): 3, (MODIFIED, PLAIN): 1, (MODIFIED, MODIFIED): 2},
    **{(NONE, NONE): 2, (NONE, NONE_MODIFIED): 1, (NONE_MODIFIED, NONE_MODIFIED): 1},
}
CONTRADICTED = {
    **{(PLAIN, NONE): 1, (MODIFIED, NONE): 1, (MODIFIED, NONE_MODIFIED): 2},
    **{(NONE, PLAIN): 2, (NONE, MODIFIED): 1, (NONE_MODIFIED, MODIFIED): 1},
    (PLAIN, PLAIN): 2,  # with swapped roles
}
NEUTRAL = {
    (i, j): premises * hypotheses / 10
    for i, premises in enumerate((3, 3, 3, 1))
    for j, hypotheses in enumerate((4, 2, 2, 2))
}
CELLS: dict[str, Mapping[tuple[int, int], float]] = {
    "contradiction": CONTRADICTED,
    "entailment": ENTAILED,
    "neutral": NEUTRAL,
}
# The cells that are neutral with the same words; in the others, neutral pairs differ in the object or the verb.
UNDECIDED = {(PLAIN, MODIFIED), (PLAIN, NONE_MODIFIED), (NONE_MODIFIED, PLAIN), (NONE_MODIFIED, NONE)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SentencePairs:
    """Generated pairs of sentences with a label.

    A pair has the label `entailment`, `contradiction` or `neutral` by construction: the hypothesis has a weaker
    quantifier or lacks an adjective, is negated or has swapped roles, or has other words. Both sentences may be active or
    passive and begin or end with a place, whatever their label.

    Args:
        pairs: the number of pairs.
        validation_share: the share of the pairs that is used for validation, by a hash of the pair.
        test_share: the share of the pairs that is used for the test.
        seed: random seed of the pairs.

    Raises:
        UserError: a value is out of range.
    """

    licence: ClassVar[str] = GENERATED
    pairs: Count
    validation_share: float
    test_share: float
    seed: int

    def __post_init__(self) -> None:
        check_shares(self.validation_share, self.test_share)

    def load(self) -> PairCorpus:
        """Generate the pairs. Raises `UserError` if a split has no pair."""
        shares = {"validation": self.validation_share, "test": self.test_share}
        examples = ((split_by_hash(one[0], *shares.values()), one) for one in self._generated())
        return collect_labelled("en", examples, shares, kind=PairCorpus)

    def _generated(self) -> Iterator[Example]:
        random, found = Random(self.seed), set[str]()
        while len(found) < self.pairs:
            label = random.choice([*CELLS])
            pair = TURN.join(draw_pair(random, label))
            if pair not in found:
                found.add(pair)
                yield pair, label, None


def draw_pair(random: Random, label: str) -> tuple[str, str]:
    """Return a premise and a hypothesis with this label."""
    cells = CELLS[label]
    first, second = cell = random.choices([*cells], [*cells.values()])[0]
    subject, thing, other = random.sample(NOUNS, 3)
    verb, other_verb = random.sample([*VERBS], 2)
    modifier = random.choice(("every", random.choice(ADJECTIVES)))
    place = random.choice((None, random.choice(PLACES)))
    premise = _sentence(random, first, subject, verb, thing=thing, modifier=modifier, place=place)
    if label == "contradiction" and cell == (PLAIN, PLAIN):
        subject, thing = thing, subject
    elif label == "neutral" and (cell not in UNDECIDED or random.random() < 0.5):
        if random.random() < 0.5:
            thing = other
        else:
            verb = other_verb
    return premise, _sentence(random, second, subject, verb, thing=thing, modifier=modifier, place=place)


def _sentence(
    random: Random, form: int, subject: str, verb: str, *, thing: str, modifier: str, place: str | None
) -> str:
    """Return a sentence of a form, active or passive, with the place at its beginning or end."""
    base, participle = VERBS[verb]
    negative, modified = form in (NONE, NONE_MODIFIED), form in (MODIFIED, NONE_MODIFIED)
    noun = f"{modifier} {thing}" if modified and modifier != "every" else thing
    every = modified and modifier == "every"
    if random.random() < 0.5:
        determiner = ("not every" if negative else "every") if every else "no" if negative else "a"
        words = f"{determiner} {noun} is {participle} by the {subject}"
    elif negative and (every or random.random() < 0.5):
        words = f"the {subject} does not {base} {'every' if every else 'a'} {noun}"
    else:
        words = f"the {subject} {verb} {'every' if every else 'no' if negative else 'a'} {noun}"
    if place is None:
        return f"{words} ."
    return f"{place} {words} ." if random.random() < 0.5 else f"{words} {place} ."
