"""`analyze measures`: how sharp and how monotone attention is, of each layer and head of a Transformer."""

import argparse
from typing import Any

from seq2seq_lab.analyze.common import (
    add_format,
    add_question,
    add_test_set,
    forced_pairs,
    open_for_test_set,
    print_record,
    selected_test_set,
)
from seq2seq_lab.runtime.console import print_prose
from seq2seq_lab.runtime.tables import print_table

SHOWN = {
    "entropy": "entropy",
    "sharpness": "largest",
    "unused": "unused",
    "monotonicity": "forward",
    "tau": "τ",
    "mass_sos": "<sos>",
    "mass_eos": "<eos>",
    "mass_punctuation": "punct.",
}


def add_measures(questions: Any) -> None:
    """Add the question `measures`."""
    arguments = add_question(
        questions,
        "measures",
        measures,
        "the measures of attention on a test set under teacher forcing, for a Transformer of each layer and head",
        "python -m seq2seq_lab.analyze measures outputs/DATE/TIME --first 100",
    )
    add_test_set(arguments)
    add_format(arguments)


def measures(options: argparse.Namespace) -> None:
    """Print the measures of attention.

    Raises:
        UserError: the test set has no pairs of texts, or the model has no attention to words.
    """
    from seq2seq_lab.analysis.head_measures import measures_of_heads

    run = open_for_test_set(options, searches=False)
    split = selected_test_set(run, options)
    forced, _ = forced_pairs(run, split, "measures")
    found = measures_of_heads(run.model, forced)
    if options.format == "jsonl":
        for one in found:
            print_record(one)
        return
    rows = []
    for one in found:
        values = [one.values[f"attention_{name}"] for name in SHOWN]
        names = [] if one.layer is None else [str(one.layer), "mean" if one.head is None else str(one.head)]
        rows.append([*names, *("–" if mean is None else f"{mean.value:.3f}" for mean in values)])
    heads = [*([] if found[0].layer is None else ["--layer", "--head"]), *SHOWN.values()]
    print_table(f"Attention in {len(forced.targets):,} pairs", heads, rows, len(SHOWN))
    print_prose("--format jsonl also has the other measures, and 95% intervals over sentences.")
