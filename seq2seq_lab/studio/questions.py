"""What the page asks: each question reads its fields, then calls one method of a run."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from seq2seq_lab.analysis.attributions import METHODS
from seq2seq_lab.analysis.difference import require_one_task
from seq2seq_lab.analysis.neighbors import KINDS
from seq2seq_lab.analysis.plain import plain
from seq2seq_lab.analysis.traced import Change, Traced
from seq2seq_lab.data.tokenizers import EOS
from seq2seq_lab.errors import UserError, require_index
from seq2seq_lab.reporting.studio_page import SEARCHES, ChosenSearch, compared, saved_page, shown
from seq2seq_lab.studio.fields import FieldError, Fields
from seq2seq_lab.studio.opened import Opened
from seq2seq_lab.studio.workers import Check, Worker

LONGEST_TEXT = 50_000  # characters
LONGEST_PREFIX = 2000  # tokens
LONGEST_WORD = 200  # characters
MOST_TOKENS = 2**31 - 1  # of a vocabulary
MOST_COLUMNS = 3000  # weights of a row
MOST_STATES = 100  # of an answer
MOST_EXPORTED = 20  # sentences
WIDEST = 20  # hypotheses of a search
Call = Callable[[Check], Any]


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


def gold(studio: Studio, fields: Fields) -> tuple[Sequence[int], Call]:
    """Return the recorded gold alignment of a test sentence, see `recorded_gold`; None if there is none."""
    _, one = studio.run_of(fields)
    sentence = fields.text("sentence", LONGEST_TEXT)
    return (), lambda check: one.gold.get(sentence)


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
        sentence = self.opened.readable(self.sentence)
        options: dict[str, Any] = {"search": self.search.settings, "check": check}
        if self.change is None:
            found = self.opened.run.trace(sentence, self.prefix, **options)
        else:
            before = replace(self, change=None).traced(check)
            found = self.opened.run.trace(sentence, self.prefix, change=self.change, before=before, **options)
        known.append((self, found))
        return found


def require_unchanged(question: OneSentence) -> None:
    """Refuse a change of attention, which attributions and states would not see.

    Raises:
        UserError: the question has one.
    """
    if question.change is not None:
        raise UserError("This is computed without a change of attention. Undo the change first.")


def trace(studio: Studio, fields: Fields) -> tuple[Sequence[int], Call]:
    """Return the search for one sentence; see `Loaded.trace` and `shown`."""
    one = OneSentence.read(studio, fields)
    return (one.index,), lambda check: shown(one.traced(check))


def alternatives(studio: Studio, fields: Fields) -> tuple[Sequence[int], Call]:
    """Return the most probable next words of a step; see `Loaded.alternatives`."""
    one, step = OneSentence.read(studio, fields), fields.integer("step", 0, LONGEST_PREFIX)
    return (one.index,), lambda check: plain(one.opened.run.alternatives(one.traced(check), step))


def contrast(studio: Studio, fields: Fields) -> tuple[Sequence[int], Call]:
    """Return what favors the word of a step of the best output over another one; see `OneInput.attribute`.

    The attribution reads the output as text, which for a language model includes the given beginning.
    """
    one, step = OneSentence.read(studio, fields), fields.integer("step", 0, LONGEST_PREFIX)
    against, method = fields.integer("against", 0, MOST_TOKENS), fields.choice("method", [*METHODS])

    def call(check: Check) -> dict[str, Any]:
        require_unchanged(one)
        traced = one.traced(check)
        best, given = traced.best, traced.given
        require_index("step", step, len(best.tokens), "a step of the output")
        first = 0
        if given is not None:  # of a search
            read = [*given.before, *(token.id for token in best.tokens if token.id != EOS)]
            if given.tokenizer.encode([best.text])[0] != read:
                raise UserError(
                    "The attribution reads the output as text, and its text has other tokens than this output. Force "
                    "fewer tokens, or choose another search."
                )
            first = len(given.before)
        check()
        source = "" if one.opened.run.reads_targets_only else one.opened.readable(one.sentence)
        found = one.opened.run.attribute(source, best.text, [method], against).as_json()
        return {"words": found["words"], "scores": found["scores"][method][first + step]}

    return (one.index,), call


def neighbors(studio: Studio, fields: Fields) -> tuple[Sequence[int], Call]:
    """Return the states of the training data nearest to a state; see `OneInput.neighbors`."""
    one, step = OneSentence.read(studio, fields), fields.integer("step", 0, LONGEST_PREFIX)
    state, count = fields.choice("state", KINDS, "decoder"), fields.integer("count", 1, MOST_STATES, 10)

    def call(check: Check) -> Any:
        require_unchanged(one)
        traced = one.traced(check)
        return one.opened.run.neighbors(one.sentence, step, state, count, traced=traced).as_json()

    return (one.index,), call


def difference(studio: Studio, fields: Fields) -> tuple[Sequence[int], Call]:
    """Return how the outputs of two runs for one sentence differ; see `seq2seq_lab.difference`."""
    index, other = studio.run_of(fields, "other")
    one = OneSentence.read(studio, fields)
    second = replace(one, index=index, opened=other)

    def call(check: Check) -> Any:
        require_one_task(one.opened.run, other.run)
        traces = one.traced(check), second.traced(check)
        return compared(one.opened.run, other.run, one.opened.readable(one.sentence), traces)

    return (one.index, index), call


def export(studio: Studio, fields: Fields) -> tuple[Sequence[int], Call]:
    """Return a page without a server for some sentences."""
    indices = [studio.run_of(fields)[0], *fields.optional("other", lambda: studio.run_of(fields, "other")[0])]
    opened = [studio.runs[index] for index in indices]
    search, given = search_of(fields), fields.texts("sentences", MOST_EXPORTED, LONGEST_TEXT)
    if not given:
        raise FieldError("sentences=[] is not allowed. Give one sentence or more.")

    def call(check: Check) -> str:
        require_one_task(opened[0].run, opened[-1].run)
        readable = {}
        for sentence in given:
            readable[sentence], *_ = [one.readable(sentence) for one in opened]
        return saved_page([(one.name, one.run) for one in opened], readable, search, check)

    return indices, call


QUESTIONS: dict[str, Question] = {
    "runs": runs,
    "sentences": sentences,
    "gold": gold,
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
        UserError: a run cannot be opened, produces neither texts nor classes, or has no such states.
    """
    from seq2seq_lab import api

    opened = [Opened(name, api.load(name, config_dir=config_dir)) for name in dict.fromkeys(folders)]
    for one in opened:
        if not one.run.has_trace:
            raise UserError(
                f"{one.name}: runs of {type(one.run.task).__name__} produce neither texts nor one class of a text, so the "
                "studio has nothing to show. Use python -m seq2seq_lab.predict RUN."
            )
    for one in opened if index else ():
        sentence = one.about["first"]["sentence"]
        for state in KINDS:
            if state != "context" or one.run.model.attends:
                one.run.neighbors(sentence, 0, state)
    return Studio(opened)
