"""Dialogues of several turns: generated ones whose answer depends on an earlier turn, or files of JSON lines."""

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import ClassVar, NamedTuple

from seq2seq_lab.config.type_checks import Count, Probability
from seq2seq_lab.data.corpus import Corpus, ParallelText
from seq2seq_lab.data.deduplication import count_repeats
from seq2seq_lab.data.licences import GENERATED
from seq2seq_lab.data.lines import LinesBuilder
from seq2seq_lab.data.local_files import check_encoding, compose, find_packed, list_folder, read_lines
from seq2seq_lab.data.text import EMPTY_LINE, SPLITS, OnBadPair, find_problem, new_counts, usable
from seq2seq_lab.data.tokenizers.turns import TURN
from seq2seq_lab.errors import UserError, require
from seq2seq_lab.files import parse_json


class Topic(NamedTuple):
    """The topic of a fact: its values, its statement, and the question that the statement answers."""

    values: tuple[str, ...]
    statement: str
    question: str


TOPICS = (
    Topic(
        ("kitchen", "garden", "office", "library", "school", "station"),
        "the key is in the {}.",
        "where is the key?",
    ),
    Topic(
        ("red", "green", "blue", "white", "black", "yellow"),
        "my car is {}.",
        "what colour is my car?",
    ),
    Topic(
        ("two", "three", "four", "five", "six", "seven"),
        "we have {} tickets.",
        "how many tickets do we have?",
    ),
    Topic(
        ("anna", "ben", "carla", "david", "emma", "felix"),
        "{} made the cake.",
        "who made the cake?",
    ),
    Topic(
        ("monday", "tuesday", "wednesday", "thursday", "friday", "sunday"),
        "the exam is on {}.",
        "when is the exam?",
    ),
)
REMARKS = (
    "how are you today?",
    "it is raining again.",
    "i slept very well.",
    "did you see the match?",
    "dinner is almost ready.",
    "the train was late.",
    "my phone does not work.",
    "we should go soon.",
    "that is good.",
    "tell me more.",
)

EXAMPLE = (
    'Write one dialogue per line, for example ["how are you?", "fine."], or with speakers '
    '[{"speaker": "ann", "text": "how are you?"}, …]'
)
REMARKED = 0.5  # share of remarks among the turns that do not state the fact


@dataclass(frozen=True, slots=True)
class DialogueText(ParallelText):
    """Dialogues of one split: `source` is the context, turns separated by `TURN`, and `target` the response to it.

    `distances[i]` is the number of turns from the turn that decides the response to the end of the context: 0 for the last
    turn of the context. None if the data set does not provide it. `clusters[i]` is the line number of the dialogue in its
    file; a generated dialogue has one response. `last_turns` are the last turns of the contexts without the names of
    speakers; None if the contexts have no such names.
    """

    distances: Sequence[int] | None = None
    last_turns: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class DialogueCorpus(Corpus):
    """Dialogues in splits, each of them a `DialogueText`."""


class Example(NamedTuple):
    """A generated dialogue."""

    context: tuple[str, ...]
    response: str
    distance: int
    phenomenon: str


class Turn(NamedTuple):
    """A turn of a dialogue in a file.

    Attributes:
        dialogue: the line number of the dialogue in its file.
        context: the last turns before it, with the names of their speakers.
        response: its text.
        before: the text of the last turn of the context.
    """

    dialogue: int
    context: str
    response: str
    before: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialogue:
    """Contexts of several turns with the response to them.

    A generated dialogue states facts (`TOPICS`), makes unrelated remarks, and ends with a question about one fact. The last
    statement of this fact is the deciding turn and the response; it is 1 to `max_distance` turns before the question. In
    some dialogues (`overwritten`) an earlier turn states the same fact with another value.

    Args:
        path: a folder with the files train.jsonl, validation.jsonl and test.jsonl, plain or compressed; see
            `read_dialogues`. None to generate dialogues.
        encoding: of the files; see `read_lines`.
        on_bad_pair: what to do with a response in a file that cannot be used; see `read_dialogues` and `usable`.
        turns: the number of turns of a context, the last ones before the response; None: all. The turn that decides the
            response to a generated dialogue may then be outside the context.
        language: the code of the language; "en" for generated dialogues.
        train: the number of generated dialogues; also `validation` and `test`.
        max_distance: the greatest distance of the deciding turn from the question.
        overwritten: the share of dialogues in which the fact has another value earlier, if there is an earlier turn.
        seed: random seed of the generated dialogues.

    Raises:
        UserError: generated dialogues are not in this language.
    """

    licence: ClassVar[str] = GENERATED
    of_generated: ClassVar[tuple[str, ...]] = (
        *("train", "validation", "test", "max_distance", "overwritten", "seed"),
    )
    of_files: ClassVar[tuple[str, ...]] = ("encoding", "on_bad_pair")
    path: str | None
    encoding: str | None
    on_bad_pair: OnBadPair
    turns: Count | None
    language: str
    train: Count
    validation: Count
    test: Count
    max_distance: Count
    overwritten: Probability
    seed: int

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        require(
            self.path is not None or self.language == "en",
            "dataset.language",
            self.language,
            "en for generated dialogues; give files with dataset.path=FOLDER",
        )

    def load(self) -> DialogueCorpus:
        """Read or generate the dialogues. The counts of files include those of `count_repeats`.

        Raises:
            UserError: a file is missing, cannot be read, or has a turn that cannot be used or no response.
        """
        counts = Counter[str]() if self.path is None else new_counts()
        splits = {name: self._split(name, counts) for name in SPLITS}
        train, validation, test = splits.values()
        if self.path is not None:
            for name, text in splits.items():
                if not text:
                    raise UserError(
                        f"dataset.path={self.path}: {name}.jsonl has no responses with "
                        f"dataset.on_bad_pair={self.on_bad_pair}. Check the file."
                    )
            count_repeats(train, [validation, test], counts)
        return DialogueCorpus(self.language, self.language, train, validation, {"test": test}, counts)

    def _split(self, name: str, counts: Counter[str]) -> DialogueText:
        if self.path is not None:
            file = find_split(Path(self.path).expanduser(), name)
            candidates = read_dialogues(file, counts, self.turns, self.encoding)
            contexts, responses, last_turns, dialogues = *(LinesBuilder() for _ in range(3)), array("q")
            for turn in usable(candidates, str(file), self.on_bad_pair, counts):
                contexts.append(turn.context)
                responses.append(turn.response)
                last_turns.append(turn.before)
                dialogues.append(turn.dialogue)
            return DialogueText(
                contexts.build(), responses.build(), clusters=dialogues, last_turns=last_turns.build()
            )
        random = Random(f"{self.seed} {name}")  # so that the size of one split does not change the others
        examples = [self.draw(random) for _ in range(getattr(self, name))]
        return DialogueText(
            [TURN.join(one.context[-(self.turns or 0) :]) for one in examples],
            [one.response for one in examples],
            phenomena=[frozenset({one.phenomenon}) for one in examples],
            distances=[one.distance for one in examples],
        )

    def draw(self, random: Random) -> Example:
        """Return a dialogue."""
        topic = random.choice(TOPICS)
        value, other = random.sample(topic.values, 2)
        distance = random.randint(1, self.max_distance)
        before = random.randint(0, self.max_distance - distance)
        turns = [draw_turn(random, topic) for _ in range(before + distance)]
        response = turns[before] = topic.statement.format(value)
        overwritten = before > 0 and random.random() < self.overwritten
        if overwritten:
            turns[random.randrange(before)] = topic.statement.format(other)
        phenomenon = "overwritten" if overwritten else "stated once"
        return Example((*turns, topic.question), response, distance, phenomenon)


def draw_turn(random: Random, topic: Topic) -> str:
    """Return a remark, or a fact about another topic."""
    if random.random() < REMARKED:
        return random.choice(REMARKS)
    other = random.choice([one for one in TOPICS if one is not topic])
    return other.statement.format(random.choice(other.values))


def find_split(folder: Path, name: str) -> Path:
    """Return the file of a split, plain or compressed.

    Raises:
        UserError: the folder has no such file.
    """
    if (path := find_packed(folder / f"{name}.jsonl")).is_file():
        return path
    raise UserError(
        f"dataset.path={folder}: {name}.jsonl not found; {list_folder(folder)}. Give a folder with train.jsonl, "
        f"validation.jsonl and test.jsonl, or dataset.path=null for generated dialogues."
    )


def read_dialogues(
    path: Path, counts: Counter[str], window: int | None = None, encoding: str | None = None
) -> Iterator[tuple[Turn, str]]:
    """Yield (turn, problem or "") for each turn but the first of each dialogue, and once for a line of another format.

    Each line of the file is a dialogue: a JSON array of at least two turns. A turn is a text, or an object with the text as
    `text` and the name of its speaker as `speaker`, which then precedes the text in contexts: "ann: how are you?". A turn
    cannot be used if it or a turn of its context has a problem, such as an empty text.

    Args:
        counts: see `new_counts`.
        window: the number of turns of a context; None: all turns before the response.
        encoding: see `read_lines`.
    """
    for line_number, (line, problem) in enumerate(read_lines(path, counts, encoding=encoding), start=1):
        problem = problem or ("" if line.strip() else EMPTY_LINE)
        try:
            turns = parse(line, counts) if not problem else []
        except (ValueError, RecursionError) as error:
            turns, problem = [], f"{error}. {EXAMPLE}"
        if problem:
            yield Turn(line_number, "", "", ""), f"{path} line {line_number}: {problem}"
        context = [f"{speaker}: {text}" if speaker else text for speaker, text, _ in turns]
        for end in range(1, len(turns)):
            start = max(0, end - window) if window else 0
            wrong = next((found for *_, found in turns[start : end + 1] if found), "")
            turn = Turn(line_number, TURN.join(context[start:end]), turns[end][1], turns[end - 1][1])
            yield turn, f"{path} line {line_number}: {wrong}" if wrong else ""


def parse(line: str, counts: Counter[str]) -> list[tuple[str, str, str]]:
    """Return (speaker or "", text, problem or "") of each turn of a dialogue in JSON.

    Texts are in Unicode NFC; runs of white space become one space.

    Raises:
        ValueError: the line has another format.
    """
    dialogue = parse_json(line)
    if not isinstance(dialogue, list) or len(dialogue) < 2:
        raise ValueError("the line is not an array of two or more turns")
    turns = []
    for index, turn in enumerate(dialogue, start=1):
        entry = {"text": turn} if isinstance(turn, str) else turn
        if not isinstance(entry, dict) or not {"text"} <= entry.keys() <= {"text", "speaker"}:
            raise ValueError(f"turn {index} is neither a text nor an object with text and speaker")
        problem = ""
        for key, value in entry.items():
            text = compose(" ".join(value.split()), counts) if isinstance(value, str) else value
            if wrong := find_problem(text):
                problem, text = problem or f"turn {index}, {key}: {wrong}", ""
            entry[key] = text
        turns.append((entry.get("speaker", ""), entry["text"], problem))
    return turns
