"""`analyze aer`: the alignment error rate of attention, beside controls."""

import argparse
from typing import Any

from seq2seq_lab.analyze.common import (
    add_format,
    add_null,
    add_question,
    add_test_set,
    forced_pairs,
    open_for_test_set,
    print_record,
    selected_test_set,
)
from seq2seq_lab.errors import UserError, require, seed_number
from seq2seq_lab.runtime.console import print_prose
from seq2seq_lab.runtime.tables import print_table, with_interval


def add_aer(questions: Any) -> None:
    """Add the question `aer`."""
    arguments = add_question(
        questions,
        "aer",
        aer,
        "the alignment error rate of the attention on a test set with gold alignments, of each layer and both readings of a "
        "row, beside random parameters of attention, uniform weights, the diagonal and the best possible links",
        "python -m seq2seq_lab.analyze aer outputs/DATE/TIME --first 100",
    )
    add_test_set(arguments)
    arguments.add_argument(
        "--ibm1", action="store_true", help="add IBM model 1, trained on the training text of the data set"
    )
    add_null(arguments)
    arguments.add_argument(
        "--seed", type=seed_number, default=1, help="of the random parameters (default: 1)"
    )
    add_format(arguments)


def aer(options: argparse.Namespace) -> None:
    """Print alignment error rates.

    Raises:
        UserError: the test set has no gold alignments, or the model has no attention to words.
    """
    import torch

    from seq2seq_lab.analysis.controls import DRAWS, alignment_errors, training_words, with_random_attention
    from seq2seq_lab.analysis.extraction import RULES
    from seq2seq_lab.metrics.alignment import AER_ROWS, describe_rows

    run = open_for_test_set(options, searches=False)
    split = selected_test_set(run, options)
    gold = getattr(split.text, "gold", None)
    if gold is None:
        raise UserError(
            "aer needs gold alignments, which this test set does not have. Choose dataset=grammar, or set "
            "dataset.alignments."
        )
    random_models = []
    for draw in range(DRAWS):
        torch.manual_seed(options.seed + draw)
        random_models.append(with_random_attention(run.model, run.task.model().to(run.device)))
    random_models = [one for one in random_models if one is not None]
    if not random_models:
        require(
            options.seed == 1, "--seed", options.seed, "left out: the attention function has no parameters"
        )
    forced, _ = forced_pairs(run, split, "aer")
    train = training_words(run.task.corpus.train) if options.ibm1 else None
    found = alignment_errors(run.model, random_models, forced, gold=gold, train=train, null=options.null)
    if options.format == "jsonl":
        for one in found:
            print_record(one)
        return
    rows = [
        [
            one.weights,
            describe_rows(one.rows) if one.rows else "",
            with_interval(one.aer, one.confidence, ".3f"),
            "–" if one.soft is None else f"{one.soft:.3f}",
        ]
        for one in found
    ]
    heads = ["weights", "of", "AER ± 95% interval", "soft AER"]
    print_table(f"Alignment error rates of {len(gold):,} sentences", heads, rows, 2)
    print_prose(RULES[options.null])
    if options.ibm1:
        print_prose("IBM model 1: a word has no link if its most probable source word is the empty word.")
    if not random_models:
        print_prose("The attention function has no parameters that could be random.")
    if (chosen := (run.result or {}).get(AER_ROWS)) is not None:
        print_prose(f"The validation split selects {describe_rows(chosen)}.")
