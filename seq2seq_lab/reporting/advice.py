"""Advice for a result: the kinds of wrong outputs, and the next steps with their reasons."""

import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from seq2seq_lab.config import extensions
from seq2seq_lab.data.corpus import UNKNOWN
from seq2seq_lab.data.licences import GENERATED, NOT_KNOWN
from seq2seq_lab.metrics.base import Declarations
from seq2seq_lab.reporting import baselines
from seq2seq_lab.reporting.runs import Run
from seq2seq_lab.reporting.score_tables import first_split

FEW = 5  # with fewer wrong outputs, a group leads to no advice


@dataclass(frozen=True)
class Advice:
    """A next step.

    Attributes:
        reason: the step and why to take it.
        command: the command for it, if there is one.
        reading: the document that explains it, if there is one.
    """

    reason: str
    command: str = ""
    reading: str = ""


def advise(run: Run) -> Iterator[Advice]:
    """Yield the advice for a result, the most useful first."""
    result = run.result
    if result["status"] == "diverged":
        yield Advice(
            "The training has diverged: its loss is far above that of a uniform guess. Use a lower learning rate.",
            reading="docs/reliability.md",
        )
    if still_improving(run):
        doubled = [
            f"{key}={2 * int(value)}"
            for key in ("trainer.max_epochs", "trainer.max_steps")
            if (value := run.settings.get(key, "null")).isdigit()
        ]
        monitor = run.declared.metrics[result["monitor"].removeprefix("val/")].label
        yield Advice(
            f"{monitor} on the validation split was the best at the last validation. Train longer.",
            training_command(run, *doubled),
        )
    if run.settings.get("attention") == "none" and run.settings.get("task") == "translation":
        yield Advice(
            "This model has no attention. Compare it with one that has.",
            training_command(run, "model=attn", without=("attention", "decoder")),
            "docs/tutorial.md, lesson 1",
        )
    yield from by_group(run)
    if loops := result.get(f"{first_split(result)}/loops"):
        words = [
            "seq2seq_lab.evaluate",
            result.get("run", str(run.folder)),
            *extensions.option(),
            "search=beam",
        ]
        yield Advice(
            f"{loops:.2%} of the outputs repeat a segment. See whether a beam avoids it.",
            f"python -m {shlex.join(words)}",
            "docs/tutorial.md, lesson 6",
        )
    if run.is_evaluation:
        return
    others = [seed for seed in ("1", "2", "3") if seed != run.seed][:2]
    yield Advice(
        "One run does not show how much a score depends on the seed. Train two more.",
        training_command(run, "-m", f"seed={','.join(others)}"),
        "docs/studies.md",
    )


def training_command(run: Run, *changes: str, without: Collection[str] = ()) -> str:
    """Return the command that started the run, with changed settings; empty if its settings are not recorded.

    Args:
        without: keys of settings to leave out.
    """
    given = run.recorded["overrides"]
    if given == "unknown":
        return ""
    replaced = {change.partition("=")[0] for change in changes} | {*without}
    words = [] if given == "none" else shlex.split(given)
    own = [word for word in words if word.partition("=")[0] not in replaced]
    return shlex.join(["python", "-m", "seq2seq_lab", *extensions.option(), *own, *changes])


def still_improving(run: Run) -> bool:
    """Return whether the last of three or more validations was the best, in a run of a whole number of epochs."""
    if run.is_evaluation:
        return False
    key = run.result["monitor"]
    values = [row[key] for row in run.metrics if key in row]
    one = run.declared.metrics.get(key.removeprefix("val/"))
    if len(values) < 3 or one is None or not run.settings["trainer.max_epochs"].isdigit():
        return False
    mode = run.settings.get("trainer.monitor_mode", "auto")
    sign = 1 if mode == "max" or (mode == "auto" and one.higher_is_better) else -1
    return all(sign * values[-1] > sign * value for value in values[:-1])


def by_group(run: Run) -> Iterator[Advice]:
    """Yield the group of examples with the highest error rate, for each grouping by a share of correct outputs."""
    for key, grouping in run.declared.groupings.items():
        rows = [
            row for row in run.result.get(f"{first_split(run.result)}/{key}", ()) if row["value"] is not None
        ]
        one = grouping.declaration
        is_share = one.higher_is_better and [*(one.limits or ())] == [0.0, 1.0]
        if grouping.ordered or not is_share or not rows:
            continue
        worst = min(rows, key=lambda row: row["value"])
        wrong = worst["count"] * (1 - worst["value"])
        if wrong >= FEW:
            yield Advice(
                f"The error rate is highest for examples with {worst['group']}: {wrong:.0f} of {worst['count']:,} "
                f"are wrong ({1 - worst['value']:.0%}). Read their outputs and attention, and compare with another setting.",
                reading="docs/tutorial.md, lesson 2",
            )


def defects(run: Run) -> Iterator[str]:
    """Yield the counts of outputs of `first_split` that loop, reach the length limit, or have unknown words."""
    split, total = first_split(run.result), len(run.examples)
    for name, text in (("loops", "are loops"), ("at_limit", "were ended by the length limit")):
        if share := run.result.get(f"{split}/{name}"):
            yield f"{share:.2%} of the outputs {text}."
    unknown = sum(UNKNOWN in row["output"] for row in run.examples)
    if unknown:
        yield f"{unknown:,} of {total:,} outputs contain {UNKNOWN}, a word that the vocabulary does not have."


def against_baseline(result: Mapping[str, Any], declared: Declarations) -> str:
    """Return the best trivial baseline on `first_split` by the primary metric; empty without one."""
    split = first_split(result)
    if (found := baselines.best(result, declared, split)) is None:
        return ""
    label, key = found
    value = declared.metrics[declared.primary].text(result[f"{key}/{split}/{declared.primary}"])
    return f"The best trivial baseline ({label}) has {value}."


def licence(settings: Mapping[str, str]) -> str:
    """Return the licence of the data set of a run, if this package knows it."""
    from seq2seq_lab.data import (
        analogies,
        dialogue,
        formal,
        g2p,
        grammar,
        headlines,
        monolingual,
        multi30k,
        names,
        questions,
        scan,
        scenes,
        sentence_pairs,
        sentiment,
        tagged,
        tatoeba,
    )

    known = {
        f"{one.__module__}.{one.__qualname__}": one.licence
        for one in (
            grammar.Grammar,
            formal.Formal,
            g2p.GraphemeToPhoneme,
            scan.Scan,
            scenes.Scenes,
            analogies.AnalogyText,
            dialogue.Dialogue,
            headlines.Headlines,
            names.Names,
            questions.Questions,
            sentence_pairs.SentencePairs,
            sentiment.Sentiment,
            tagged.Tagged,
            monolingual.Monolingual,
            tatoeba.Tatoeba,
            multi30k.Multi30k,
        )
    }
    found = known.get(settings.get("dataset._target_", ""), NOT_KNOWN)
    # The training split is a file of the user or, of generated data, a number of examples or null.
    train = settings.get("dataset.train", "null")
    own_files = settings.get("dataset.path", "null") != "null" or not (train == "null" or train.isdigit())
    return NOT_KNOWN if found == GENERATED and own_files else found


def limits(run: Run) -> str:
    """Return the uses that the model was not trained for."""
    train = run.record["data"]["sizes"].get("train")
    size = f"{train:,} training examples" if train else "its training examples"
    return (
        f"Trained on {size} of one data set: its scores hold for data of the same kind. Words outside its vocabulary are "
        f"unknown to it. The interval does not include the variation between seeds."
    )
