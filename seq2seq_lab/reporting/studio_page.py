"""The page of the studio: its files for the server, and pages without a server."""

import html
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

from seq2seq_lab.analysis.difference import difference
from seq2seq_lab.analysis.plain import plain
from seq2seq_lab.analysis.traced import Traced
from seq2seq_lab.config.run_folders import DEMO, is_demo
from seq2seq_lab.errors import UserError, require
from seq2seq_lab.files import write_atomically
from seq2seq_lab.reporting.frame import as_json, packed, read
from seq2seq_lab.reporting.runs import Run, read_finished
from seq2seq_lab.tasks.loaded import Opening

PAGE, STYLE, SCRIPT, SHARED = "studio.html", "studio.css", "studio.js", "shared.js"
MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
STYLES = ("base.css", "studio/studio.css")
COMMON = ("theme.js", "parts.js", "weights.js")  # scripts of all pages
# The modules of the page, each after those that it imports.
MODULES = ("ask", "draw", "words", "tree", "map", "step", "picker", "compare", "main")
IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./(\w+)\.js";$', re.M)
EXPORT = re.compile(r"^export ((?:async )?function|const|class) (\w+)", re.M)
UNREAD = re.compile(
    r"^ +|^/\*.*?\*/\n| // .*?$|^\n|(?<=[{;,])\n|\n(?= *})", re.M | re.S
)  # white space, comments
# Spaces around operators and inside braces; the texts of the page have none of these between spaces.
SPACED = re.compile(r" (=>?|===|!==|&&|\|\||\?\?|\?|:|[<>]=?|\*|\+) |(?<=\{) | (?=\})|(?<=\)) (?=\{)")
UNREAD_STYLE = re.compile(r"\s*([{};])\s*|(?<=:)\s+")  # white space

# The settings of the searches that the page offers; {} is their size. `own`: the search of the run.
SEARCHES: dict[str, tuple[str, ...]] = {
    "own": (),
    "greedy": ("search=greedy",),
    "beam": ("search=beam", "search.size={}", "search.nbest={}"),
    "sampling": ("search=sampling", "search.nbest={}"),
}
UNSIZED = ("own", "greedy")
TITLE = "Studio"
FAINT = 0.01  # a smaller weight has no link
DIGITS = 4  # after the decimal point, of attention weights
HEIGHT = 900  # pixels, of the page in a notebook


def file_of(name: str) -> str | None:
    """Return the text of a file of the page for the server; None if there is none."""
    return _files().get(name)


def media_type(name: str) -> str:
    """Return the type of a file of the page."""
    return MEDIA_TYPES[name[name.rindex(".") :]]


@cache
def _files() -> dict[str, str]:
    links = f'<link rel="stylesheet" href="{STYLE}">'
    scripts = f'<script src="{SHARED}"></script>\n<script src="{SCRIPT}"></script>'
    return {
        PAGE: _page(TITLE, links, scripts),
        STYLE: style(),
        SHARED: shared(),
        SCRIPT: bundle(),
    }


@dataclass(frozen=True)
class ChosenSearch:
    """A search of the page.

    Attributes:
        name: one of `SEARCHES`.
        size: the number of hypotheses.
    """

    name: str
    size: int

    @property
    def settings(self) -> list[str]:
        """Its settings, for `Loaded.trace`."""
        return [setting.format(self.size) for setting in SEARCHES[self.name]]

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a question that choose it."""
        return {"search": self.name, **({} if self.name in UNSIZED else {"size": self.size})}


def about(name: str, run: Any) -> dict[str, Any]:
    """Return what the page shows of a run; see `seq2seq_lab.load`.

    Args:
        name: as the user named it.
    """
    return {
        "name": name,
        "code": opening_code(run),
        "facts": str(run).removeprefix(f"run: {run.opening.folder}, "),
        "reads": "Image" if run.reads == "files" else "Beginning" if run.reads_targets_only else "Sentence",
        "searches": None if run.config.search is None else SEARCHES,
    }


def opening_code(run: Any) -> str:
    """Return the Python expression that opens a run as it was opened; of an ensemble, each of its runs."""
    loads = [*map(_loading_code, run.opening.each)]
    return loads[0] if len(loads) == 1 else f"seq2seq_lab.ensemble([{', '.join(loads)}])"


def _loading_code(opening: Opening) -> str:
    given = {
        "config_dir": None if opening.config_dir is None else str(opening.config_dir),
        "precision": opening.precision,
        "changes": [*opening.changes],
        "checkpoint": opening.checkpoint,
    }
    unset: dict[str, object] = {"config_dir": None, "precision": "fp32", "changes": [], "checkpoint": None}
    options = [f"{name}={value!r}" for name, value in given.items() if value != unset[name]]
    folder = DEMO if is_demo(Path(opening.folder)) else opening.folder
    return f"seq2seq_lab.load({', '.join([repr(folder), *options])})"


def compared(run_a: Any, run_b: Any, sentence: str, traces: tuple[Traced, Traced]) -> dict[str, Any]:
    """Return how the outputs of two runs differ as values of JSON, see `Difference`; of the traces the outputs only."""
    found = difference(run_a, run_b, sentence, traces=traces)
    names = ("words", "attention", "no_attention", "parting", "log_probs")
    a, b = ({"text": one.best.text, "words": one.best.words} for one in traces)
    return {"a": a, "b": b, **{name: plain(getattr(found, name)) for name in names}}


def recorded(folder: Path) -> Run | UserError:
    """Return what a run recorded, or the error that says why it cannot be read."""
    try:
        return read_finished(folder, for_page=True)
    except UserError as error:
        return error


def recorded_gold(run: Run | UserError) -> dict[str, dict[str, Any]]:
    """Return the gold alignments of the outputs that a run recorded with their attention, by input; see `recorded`.

    Returns:
        "tokens": those of the output; "links": pairs of a column of the attention weights and a token.
    """
    if isinstance(run, UserError):
        return {}
    return {
        row["title"]: {"tokens": row["rows"], "links": row["links"]}
        for row in run.heatmaps
        if row.get("links")
    }


def saved_page(
    runs: Sequence[tuple[str, Any]],
    sentences: Mapping[str, str],
    search: ChosenSearch,
    check: Callable[[], None] | None = None,
) -> str:
    """Return a page without a server that shows the search of one or two runs for some sentences.

    The numbers of the page are those of `trace` and `difference`; attention weights are rounded to `DIGITS`.

    Args:
        runs: the name and the opened run of one or two runs.
        sentences: what the models read, by the texts that the page shows.
        check: see `OneInput.trace`.

    Raises:
        UserError: a sentence cannot be read.
    """
    first = {
        "run": 0,
        "other": 1 if len(runs) == 2 else None,
        "sentence": next(iter(sentences)),
        **search.fields,
    }
    gold, answers = [recorded_gold(recorded(run.folder)) for _, run in runs], []
    for given, sentence in sentences.items():
        fields = {"sentence": given, **search.fields}
        traces = [run.trace(sentence, search=search.settings, check=check) for _, run in runs]
        for index, traced in enumerate(traces):
            answers.append({"name": "trace", "body": {"run": index, **fields}, "answer": reduced(traced)})
            if given in gold[index]:
                body = {"run": index, "sentence": given}
                answers.append({"name": "gold", "body": body, "answer": gold[index][given]})
        if len(runs) == 2:
            (_, run_a), (_, run_b) = runs
            answer = compared(run_a, run_b, sentence, (traces[0], traces[1]))
            answer["attention"] = rounded(answer["attention"])
            answers.append({"name": "difference", "body": {"run": 0, "other": 1, **fields}, "answer": answer})
    saved = {
        "runs": [about(name, run) for name, run in runs],
        "sentences": [*sentences],
        "first": first,
        "answers": answers,
    }
    data = f'<script type="text/plain" id="saved-answers">{packed(as_json(saved))}</script>'
    styles = f"<style>\n{style()}</style>"
    scripts = f"{data}\n<script>\n{shared()}</script>\n<script>\n{bundle()}</script>"
    return _page(f"{TITLE}: {first['sentence']}", styles, scripts)


def shown(traced: Traced) -> dict[str, Any]:
    """Return what the page shows of a search, as values of JSON.

    Only the best output has attention, without the links below `FAINT`: a long sentence has many of them.
    """
    best, *others = traced.outputs
    best = replace(best, links=[one for one in best.links if one.weight >= FAINT])
    without: dict[str, Any] = {"attention": None, "word_attention": None, "margins": {}, "links": []}
    return replace(traced, outputs=[best, *(replace(one, **without) for one in others)]).as_json()


def reduced(traced: Traced) -> dict[str, Any]:
    """Return what `shown` returns, with attention weights rounded to `DIGITS`; no other number is."""
    found = shown(traced)
    best = found["outputs"][0]
    for kind in ("attention", "word_attention"):
        best[kind] = rounded(best[kind])
    best["margins"] = {name: rounded([row])[0] for name, row in best["margins"].items()}
    return found


def rounded(rows: Any) -> Any:
    """Return rows of weights, rounded to `DIGITS`; None instead of none."""
    if rows is None:
        return None
    return [[None if one is None else round(one, DIGITS) for one in row] for row in rows]


@dataclass(frozen=True)
class SavedPage:
    """A page without a server, which a notebook shows.

    Attributes:
        html: its text.
    """

    html: str

    def save(self, path: str | Path) -> None:
        """Write the page to a file."""
        write_atomically(Path(path), self.html)

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{html.escape(self.html)}" width="100%" height="{HEIGHT}" style="border: 0"></iframe>'


def show(run: Any, sentences: str | Path | Sequence[str], search: str, size: int) -> SavedPage:
    """Return the page of a run for some sentences, or files; see `Loaded.show`.

    Raises:
        UserError: no sentences, or an unknown search.
    """
    given = [sentences] if isinstance(sentences, str | Path) else sentences
    lines = [*given] if isinstance(given, Iterable) else []
    if run.reads == "files":
        lines = [str(one) for one in lines]
    texts = lines != [] and all(isinstance(one, str) for one in lines)
    require(texts, "sentences", repr(sentences), "one or more sentences")
    search = search if run.config.search is not None else "own"
    require(search in SEARCHES, "search", search, ", ".join(SEARCHES))
    return SavedPage(
        saved_page([(run.folder.name, run)], dict(zip(lines, lines, strict=True)), ChosenSearch(search, size))
    )


def _page(title: str, head: str, scripts: str) -> str:
    return Template(read("studio/studio.html")).substitute(
        title=html.escape(title), head=head, scripts=scripts
    )


def shared() -> str:
    """Return the scripts that the page shares with other pages."""
    return _small("".join(map(read, COMMON)))


def style() -> str:
    """Return the style of the page without white space."""
    return UNREAD_STYLE.sub(r"\1", "".join(map(read, STYLES)))


def bundle() -> str:
    """Return the modules of the page as one script; each is a function that returns what it exports."""
    return '"use strict";\n' + "".join(map(_module, MODULES))


def _module(name: str) -> str:
    text = read(f"studio/{name}.js")
    exports = ", ".join(found[2] for found in EXPORT.finditer(text))
    text = IMPORT.sub(r"const \1 = \2_js;", text)
    text = EXPORT.sub(r"\1 \2", text)
    return f"const {name}_js = (() => {{\n{_small(text)}return {{ {exports} }};\n}})();\n"


def _small(script: str) -> str:
    return SPACED.sub(r"\1", UNREAD.sub("", script))
