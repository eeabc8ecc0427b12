"""The test scores of a run as tables."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from seq2seq_lab.metrics.scores import LengthBin
from seq2seq_lab.runtime import console

if TYPE_CHECKING:
    from rich.table import Table

MAIN_MEASURES = {  # of the closing table, in this order, by their names in `result.json`
    "bleu": "BLEU",
    "chrf": "chrF",
    "ter": "TER",
    "bleu_lowercased_tokenised": "BLEU, lowercased tokens",
    "bleu_unknown_replaced": "BLEU, unknown replaced",
    "aer": "AER (oracle, diagonal)",
    "loss_teacher_forced": "loss, teacher-forced",
    "loss_free_running": "loss, free-running",
}
HARDEST = 3  # phenomena of the closing table
# scores shown with their signatures
SIGNED = (
    *("bleu", "chrf", "ter"),
    *("bleu_lowercased_tokenised", "chrf_lowercased_tokenised", "ter_lowercased_tokenised"),
)


def score_tables(result: Mapping[str, Any], everything: bool) -> list["Table"]:
    """Return the test scores of a result as tables: all sentences, and BLEU by source length; a column or row a test set.

    Args:
        everything: show all measures and phenomena, not only the main measures and the hardest phenomena.
    """
    splits = list(dict.fromkeys(split_of(name) for name in result if name.startswith("test/")))
    splits = [split for split in splits if f"{split}/bleu" in result]
    named = dict(MAIN_MEASURES)
    if everything:
        measures = [name.rpartition("/")[2] for name, value in result.items() if is_score(name, value)]
        named |= {name: name.replace("_", " ") for name in measures if name not in named}
    rows = [
        [label, *(score_cell(result, split, name) for split in splits)]
        for name, label in named.items()
        if any(f"{split}/{name}" in result for split in splits)
    ]
    sections = [rows, phenomenon_rows(result, splits, None if everything else HARDEST)]
    tables = [console.sectioned_table("results", ["± 95% interval", *splits], sections)]
    bins = {split: [LengthBin(**row) for row in result[f"{split}/bleu_by_length"]] for split in splits}
    lengths = [
        [
            [split, *("–" if one.bleu is None else f"{one.bleu:.2f}" for one in row)],
            ["  sentences", *(f"{one.count:,}" for one in row)],
        ]
        for split, row in bins.items()
    ]
    heads = [one.label for one in next(iter(bins.values()), [])]
    tables.append(console.sectioned_table("BLEU by source length in words", ["", *heads], lengths))
    return tables


def split_of(name: str) -> str:
    """Return the split of a figure's name: `test/other` of `test/other/bleu`."""
    return name.rpartition("/")[0]


def is_score(name: str, value: object) -> bool:
    """Return whether an entry of a result is a test score that has its own row in the table."""
    return (
        name.startswith("test/")
        and (value is None or isinstance(value, float))
        and not name.endswith(("_confidence", "/aer_oracle", "/aer_diagonal"))
    )


def score_cell(result: Mapping[str, Any], split: str, name: str) -> str:
    """Return a score as text, with its interval if it has one; AER with that of an oracle and of a diagonal."""
    value = result.get(f"{split}/{name}")
    if value is None:
        return "–"
    if name == "aer" and f"{split}/aer_oracle" in result:
        return f"{value:.3f} ({result[f'{split}/aer_oracle']:.3f}, {result[f'{split}/aer_diagonal']:.3f})"
    if (confidence := result.get(f"{split}/{name}_confidence")) is not None:
        return f"{value:.2f} ± {confidence:.2f}"
    return f"{value:.3f}" if value < 10 else f"{value:,.2f}"


def phenomenon_rows(result: Mapping[str, Any], splits: Sequence[str], most: int | None) -> list[list[str]]:
    """Return the share of exact translations by phenomenon, a row each: the `most` hardest of the first test set, or all."""
    found = {
        split: {row["phenomenon"]: row for row in result.get(f"{split}/accuracy_by_phenomenon", [])}
        for split in splits
    }
    names = sorted(
        dict.fromkeys(name for rows in found.values() for name in rows),
        key=lambda name: next(rows[name]["accuracy"] for rows in found.values() if name in rows),
    )

    def cell(row: Mapping[str, Any] | None) -> str:
        return "–" if row is None else f"{row['accuracy']:.1%} of {row['count']:,}"

    return [[f"exact: {name}", *(cell(found[split].get(name)) for split in splits)] for name in names[:most]]


def signatures(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the scores that have a signature, and their signatures."""
    return [(name, result[f"test/{name}_signature"]) for name in SIGNED if f"test/{name}_signature" in result]
