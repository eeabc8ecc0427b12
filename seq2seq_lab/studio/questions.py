"""What the page asks: each question reads its fields, then calls one method of a run."""

import functools
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from seq2seq_lab.analysis.attributions import METHODS
from seq2seq_lab.analysis.neighbors import StateKind
from seq2seq_lab.analysis.plain import plain
from seq2seq_lab.analysis.traced import Change, Traced
from seq2seq_lab.errors import UserError, require
from seq2seq_lab.reporting.studio_page import SEARCHES, ChosenSearch, about, compared, saved_page
from seq2seq_lab.studio.fields import FieldError, Fields
from seq2seq_lab.studio.picker import examples
from seq2seq_lab.studio.workers import Check, Worker

LONGEST_TEXT = 50_000  # characters
LONGEST_PREFIX = 2000  # tokens
LONGEST_NAME = 24  # characters of a run
LONGEST_WORD = 200  # characters
MOST_TOKENS = 2**31 - 1  # of a vocabulary
MOST_COLUMNS = 3000  # weights of a row
MOST_STATES = 100  # of an answer
MOST_EXPORTED = 20  # sentences
KEPT = 4  # answers about searches, of a run
WIDEST = 20  # hypotheses of a search
Call = Callable[[Check], Any]


class Opened:
    """A run of the studio.

    Attributes:
        name: as the user named it, shortened.
        run: what `seq2seq_lab.load` returns.
        worker: computes with its model.
        traced: the last questions about a search, with their answers.
    """

    def __init__(self, name: str, run: Any) -> None:
        self.name, self.run, self.worker = short(name), run, Worker(name)
        self.traced: deque[tuple[OneSentence, Traced]] = deque(maxlen=KEPT)

    @functools.cached_property
    def examples(self) -> dict[str, Any]:
        """See `picker.examples`."""
        return examples(self.run.folder)

    @property
    def about(self) -> dict[str, Any]:
        """What the page shows of the run, and the question that it starts with."""
        rows = self.examples["rows"]
        sentence = "" if self.run.reads_targets_only or not rows else rows[0][0]
        search = (self.run.config.search or {}).get("_target_", "").rpartition(".")[2]
        # The tree of a greedy search has one branch.
        first = {"sentence": sentence, "search": "beam" if search == "GreedySearch" else "own", "size": 5}
        return {**about(self.name, self.run), "first": first}

    def check_input(self, text: str) -> None:
        """Refuse a text that the model cannot read, or a file that is not one of the run's test set.

        Raises:
            UserError: names the field.
        """
        if self.run.reads == "files":
            known = [row[0] for row in self.examples["rows"]]
            if text not in known:
                raise UserError(f"sentence={text[:80]} is not a test image of {self.name}. Choose one below.")
        else:
            self.run.check_input(text, "sentence", self.run.longest_input)


def short(name: str) -> str:
    """Return the name of a folder; of a long one its last two parts."""
    return name if len(name) <= LONGEST_NAME else "…/" + "/".join(Path(name).parts[-2:])


class Studio:
    """The runs of the studio.

    Args:
        runs: they have at least one.
    """

    def __init__(self, runs: Sequence[Opened]) -> None:
        self.runs = runs
        self._files = Worker("files")

    def submit(self, key: tuple[str, str], indices: Sequence[int], call: Call) -> Future[Any]:
        """Answer a question in the thread of the first run that it uses, while no other question uses these runs.

        Raises:
            QueueFull: too many questions wait for this run.
        """
        worker = self.runs[indices[0]].worker if indices else self._files
        return worker.submit(key, call, [self.runs[index].worker.lock for index in sorted({*indices})])

    def run_of(self, fields: Fields, name: str = "run") -> tuple[int, Opened]:
        """Return the run of a field, with its index."""
        index = fields.integer(name, 0, len(self.runs) - 1)
        return index, self.runs[index]


Question = Callable[[Studio, Fields], tuple[Sequence[int], Call]]


def runs(studio: Studio, fields: Fields) -> tuple[Sequence[int], Call]:
    """Return what the page shows of each run."""
    return (), lambda check: [one.about for one in studio.runs]


def sentences(studio: Studio, fields: Fields) -> tuple[Sequence[int], Call]:
    """Return the recorded test sentences of a run."""
    _, one = studio.run_of(fields)
    return (), lambda check: one.examples


def search_of(fields: Fields) -> ChosenSearch:
    """Return the search that a question chooses."""
    return ChosenSearch(fields.choice("search", [*SEARCHES], "own"), fields.integer("size", 1, WIDEST, 5))


def prefix_of(fields: Fields) -> tuple[int | str, ...]:
    """Return the tokens and words that an output is forced to begin with."""
    found = fields.list_of("prefix", LONGEST_PREFIX)
    return tuple(
        Fields({"prefix": one}).text("prefix", LONGEST_WORD)
        if isinstance(one, str)
        else Fields({"prefix": one}).integer("prefix", 0, MOST_TOKENS)
        for one in found
    )


def change_of(fields: Fields) -> Change | None:
    """Return the change of attention weights."""
    given = fields.fields("change")
    if given is None:
        return None
    scope = given.choice("scope", ("step", "from", "all"), "step")
    weights = given.numbers("weights", MOST_COLUMNS, 0, 1)
    change = Change(
        kind=given.text("kind", 40),
        scope=scope,  # type: ignore[arg-type]
        step=None if scope == "all" else given.integer("step", 0, LONGEST_PREFIX),
        weights=weights or None,
        seed=given.integer("seed", 0, 2**31 - 1, 1),
    )
    given.take("step")
    given.close()
    return change


@dataclass(frozen=True)
class OneSentence:
    """A question about the search for one sentence.

    Attributes:
        index, opened: the run.
    """

    index: int
    opened: Opened
    sentence: str
    search: ChosenSearch
    prefix: tuple[int | str, ...]
    change: Change | None

    @classmethod
    def read(cls, studio: Studio, fields: Fields) -> "OneSentence":
        """Return the question of these fields."""
        index, opened = studio.run_of(fields)
        sentence, search = fields.text("sentence", LONGEST_TEXT), search_of(fields)
        return cls(index, opened, sentence, search, prefix_of(fields), change_of(fields))

    def traced(self, check: Check) -> Traced:
        """Return the answer of the run; it keeps the last ones."""
        known = self.opened.traced
        for question, answer in known:
            if question == self:
                return answer
        self.opened.check_input(self.sentence)
        options: dict[str, Any] = {"search": self.search.settings, "check": check}
        if self.change is None:
            found = self.opened.run.trace(self.sentence, self.prefix, **options)
        else:
            before = replace(self, change=None).traced(check)
            found = self.opened.run.trace(
                self.sentence, self.prefix, change=self.change, before=before, **options
            )
        known.append((self, found))
        return found


def trace(studio: Studio, fields: Fields) -> tuple[Sequence[int], Call]:
    """Return the search for one sentence; see `Loaded.trace`."""
    one = OneSentence.read(studio, fields)
    return (one.index,), lambda check: one.traced(check).as_json()


def alternatives(studio: Studio, fields: Fields) -> tuple[Sequence[int], Call]:
    """Return the most probable next words of a step; see `Loaded.alternatives`."""
    one, step = OneSentence.read(studio, fields), fields.integer("step", 0, LONGEST_PREFIX)
    return (one.index,), lambda check: plain(one.opened.run.alternatives(one.traced(check), step))


def contrast(studio: Studio, fields: Fields) -> tuple[Sequence[int], Call]:
    """Return what favors the word of a step of the best output over another one; see `OneInput.attribute`."""
    one, step = OneSentence.read(studio, fields), fields.integer("step", 0, LONGEST_PREFIX)
    against, method = fields.integer("against", 0, MOST_TOKENS), fields.choice("method", [*METHODS])

    def call(check: Check) -> dict[str, Any]:
        best = one.traced(check).best
        check()
        source, target = ("", best.text) if one.opened.run.reads_targets_only else (one.sentence, best.text)
        found = one.opened.run.attribute(source, target, [method], against).as_json()
        rows = found["scores"][method]
        allowed = f"0 to {min(len(rows), len(best.tokens)) - 1}, a step of the output"
        require(step < min(len(rows), len(best.tokens)), "step", step, allowed)
        return {"words": found["words"], "scores": rows[step]}

    return (one.index,), call


def neighbors(studio: Studio, fields: Fields) -> tuple[Sequence[int], Call]:
    """Return the states of the training data nearest to a state; see `OneInput.neighbors`."""
    one, step = OneSentence.read(studio, fields), fields.integer("step", 0, LONGEST_PREFIX)
    state, count = (
        fields.choice("state", get_args(StateKind), "decoder"),
        fields.integer("count", 1, MOST_STATES, 10),
    )

    def call(check: Check) -> Any:
        traced = one.traced(check)
        return one.opened.run.neighbors(one.sentence, step, state, count, traced=traced).as_json()

    return (one.index,), call


def difference(studio: Studio, fields: Fields) -> tuple[Sequence[int], Call]:
    """Return how the outputs of two runs for one sentence differ; see `seq2seq_lab.difference`."""
    index, other = studio.run_of(fields, "other")
    one = OneSentence.read(studio, fields)
    second = replace(one, index=index, opened=other)

    def call(check: Check) -> Any:
        traces = one.traced(check), second.traced(check)
        return compared(one.opened.run, other.run, one.sentence, traces)

    return (one.index, index), call


def export(studio: Studio, fields: Fields) -> tuple[Sequence[int], Call]:
    """Return a page without a server for some sentences."""
    indices = [studio.run_of(fields)[0], *fields.optional("other", lambda: studio.run_of(fields, "other")[0])]
    opened = [studio.runs[index] for index in indices]
    search, given = search_of(fields), fields.texts("sentences", MOST_EXPORTED, LONGEST_TEXT)
    if not given:
        raise FieldError("sentences=[] is not allowed. Give one sentence or more.")

    def call(check: Check) -> str:
        for sentence in given:
            for run in opened:
                run.check_input(sentence)
        return saved_page([(run.name, run.run) for run in opened], given, search, check)

    return indices, call


QUESTIONS: dict[str, Question] = {
    "runs": runs,
    "sentences": sentences,
    "trace": trace,
    "alternatives": alternatives,
    "contrast": contrast,
    "neighbors": neighbors,
    "difference": difference,
    "export": export,
}


def open_studio(folders: Sequence[str], config_dir: str | None, index: bool) -> Studio:
    """Open runs for the studio.

    Args:
        folders: as the user names them.
        config_dir: see `seq2seq_lab.load`.
        index: compute the states of the training data, see `neighbors`.

    Raises:
        UserError: a run cannot be opened, or has no such states.
    """
    from seq2seq_lab import api

    opened = [Opened(name, api.load(name, config_dir)) for name in dict.fromkeys(folders)]
    for one in opened if index else ():
        sentence = one.about["first"]["sentence"]
        for state in get_args(StateKind):
            one.run.neighbors(sentence, 0, state)
    return Studio(opened)
