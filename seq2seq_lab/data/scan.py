"""SCAN: commands of a small language and the actions that they mean (Lake and Baroni 2018, arXiv:1711.00350)."""

import hashlib
import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import ClassVar, Literal

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.data.corpus import Corpus, ParallelText, exact_pairs
from seq2seq_lab.data.licences import GENERATED
from seq2seq_lab.data.local_files import find_file, read_lines
from seq2seq_lab.errors import UserError

log = logging.getLogger(__name__)

Split = Literal["simple", "length", "add_jump", "add_turn_left", "around_right", "jump_around_right"]

VERBS = {"walk": ["I_WALK"], "look": ["I_LOOK"], "run": ["I_RUN"], "jump": ["I_JUMP"], "turn": []}
TURNS = {"left": "I_TURN_LEFT", "right": "I_TURN_RIGHT"}
SIMPLE_TEST = 4182  # commands of the test split, one of five
SIMPLE_DIGEST = "fbf1f87122f48f4d"  # of the published test split
LONGEST_TRAINED = 22  # actions of the training commands of the length split
PRIMITIVE_SHARE = 10  # a primitive is one of ten training pairs
# What a command of the test split contains.
PRIMITIVES = {"add_jump": "jump", "add_turn_left": "turn left"}
TEMPLATES = {"around_right": "around right", "jump_around_right": "jump around right"}
NEVER_SEEN = "turn around right"  # in neither side of a split of templates
PHENOMENA = frozenset(("and", "after", "twice", "thrice", "opposite", "around"))


def commands() -> dict[str, str]:
    """Return the actions of each of the 20,910 commands."""
    phrases: dict[str, list[str]] = {verb: actions for verb, actions in VERBS.items() if actions}
    for (verb, actions), (direction, turn) in product(VERBS.items(), TURNS.items()):
        phrases[f"{verb} {direction}"] = [turn, *actions]
        phrases[f"{verb} opposite {direction}"] = [turn, turn, *actions]
        phrases[f"{verb} around {direction}"] = [turn, *actions] * 4
    simple = dict(phrases)
    for word, times in (("twice", 2), ("thrice", 3)):
        simple |= {f"{phrase} {word}": actions * times for phrase, actions in phrases.items()}
    found = dict(simple)
    for (left, first), (right, second) in product(simple.items(), repeat=2):
        found[f"{left} and {right}"] = first + second
        found[f"{left} after {right}"] = second + first
    return {command: " ".join(actions) for command, actions in found.items()}


def digest(pairs: Iterable[tuple[str, str]]) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of a set of commands and actions."""
    lines = sorted({f"{command}\t{actions}" for command, actions in pairs})
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The pairs of SCAN in one of its splits; `conf/dataset/scan.yaml` describes each key.

    Training and test split equal the published files as sets of pairs, and in their sizes: a primitive is repeated until it
    is a tenth of the training pairs. The simple split was drawn at random by its authors; without `path`, which has its test
    commands, it is drawn here with `seed`. SCAN has no validation split: `validation` training pairs are also the validation
    split, which `hold_out` leaves out of training.
    """

    licence: ClassVar[str] = GENERATED
    split: Split
    path: str | None
    direction: Literal["actions", "commands"]
    validation: Count
    hold_out: bool
    seed: int

    def __post_init__(self) -> None:
        if self.path is not None and self.split != "simple":
            raise UserError(
                f"dataset.path={self.path} has the test commands of dataset.split=simple, but dataset.split={self.split}, "
                "which needs no file. Leave one of them out."
            )

    def load(self) -> Corpus:
        """Generate the corpus. Raises `UserError` for a file with other lines, and a validation split that is too large."""
        actions = commands()
        train, test = self._divide(actions)
        primitive = PRIMITIVES.get(self.split)
        others = [command for command in train if command != primitive]
        if self.validation >= len(others):
            raise UserError(
                f"dataset.validation={self.validation} must be smaller than {len(others):,}, the number of training "
                f"commands of dataset.split={self.split}. Set it to 500, for example."
            )
        validation = Random(self.seed).sample(others, self.validation)
        if self.hold_out:
            held_out = set(validation)
            others = [command for command in others if command not in held_out]
        train = others if primitive is None else others + [primitive] * (len(others) // (PRIMITIVE_SHARE - 1))
        texts = [self._text(actions, part) for part in (train, validation, test)]
        sides = ("commands", "actions") if self.direction == "actions" else ("actions", "commands")
        return Corpus(*sides, texts[0], texts[1], {"test": texts[2]})

    def _divide(self, actions: dict[str, str]) -> tuple[list[str], list[str]]:
        """Return the commands of the training split and of the test split, each once."""
        if self.split == "simple":
            test = self._simple_test(actions)
        elif self.split == "length":
            test = {one for one, text in actions.items() if len(text.split()) > LONGEST_TRAINED}
        else:
            phrase = (PRIMITIVES | TEMPLATES)[self.split]
            test = {one for one in actions if phrase in one}
            if self.split in TEMPLATES:
                actions = {one: text for one, text in actions.items() if NEVER_SEEN not in one}
            else:
                test.remove(phrase)
        return [one for one in actions if one not in test], [one for one in actions if one in test]

    def _simple_test(self, actions: dict[str, str]) -> set[str]:
        if self.path is None:
            log.warning(
                "dataset.split=simple without dataset.path is a random split with dataset.seed=%s, not the published one.",
                self.seed,
            )
            return set(Random(self.seed).sample([*actions], SIMPLE_TEST))
        found = set()
        file = find_file("dataset.path", self.path)
        for number, (line, problem) in enumerate(read_lines(file, Counter()), start=1):
            command = line.removeprefix("IN: ").partition(" OUT: ")[0].strip()
            if command not in actions:
                raise UserError(
                    f"dataset.path={self.path} line {number}: {problem or f'{command!r:.80} is not a command of SCAN'}. "
                    "Give the test file of SCAN's simple split, or its commands, one per line."
                )
            found.add(command)
        if not found or len(found) == len(actions):
            raise UserError(
                f"dataset.path={self.path} has {len(found):,} of the {len(actions):,} commands of SCAN, so one split is "
                "empty. Give the test file of SCAN's simple split."
            )
        if digest((command, actions[command]) for command in found) != SIMPLE_DIGEST:
            log.warning("dataset.path=%s is not the published test split of dataset.split=simple.", self.path)
        return found

    def _text(self, actions: dict[str, str], part: list[str]) -> ParallelText:
        pairs = [(command, actions[command]) for command in part]
        if self.direction == "commands":
            pairs = [(text, command) for command, text in pairs]
        return exact_pairs(pairs, [PHENOMENA.intersection(command.split()) for command in part])
