"""`analyze adversary`: how far attention weights can move while the predictions stay."""

import argparse
from collections.abc import Sequence
from typing import Any

from seq2seq_lab.analyze.common import (
    add_format,
    add_question,
    add_test_set,
    forced_pairs,
    open_for_test_set,
    print_record,
    require_float32,
    selected_test_set,
)
from seq2seq_lab.analyze.intervene import add_layer_and_head
from seq2seq_lab.errors import require, seed_number
from seq2seq_lab.runtime.console import print_prose, progress_bar
from seq2seq_lab.runtime.tables import print_table, with_interval


def add_adversary(questions: Any) -> None:
    """Add the question `adversary`."""
    arguments = add_question(
        questions,
        "adversary",
        adversary,
        "how much the attention weights of one step can differ while its prediction stays almost the same, on a test set",
        "python -m seq2seq_lab.analyze adversary outputs/DATE/TIME --first 100",
    )
    add_test_set(arguments)
    add_layer_and_head(arguments)
    arguments.add_argument(
        "--limit",
        type=float,
        default=0.01,
        help="largest total variation of the prediction (default: 0.01)",
    )
    arguments.add_argument(
        "--steps", type=int, default=500, help="steps of Adam for each token (default: 500)"
    )
    arguments.add_argument("--seed", type=seed_number, default=1, help="of the first weights (default: 1)")
    add_format(arguments)


def adversary(options: argparse.Namespace) -> None:
    """Print how far the adversary moves the attention weights, by class of words.

    Raises:
        UserError: an option out of range, or a model without attention to text.
    """
    from seq2seq_lab.analysis.adversary import adversarial_attention

    require(0 < options.limit < 1, "--limit", options.limit, "a number between 0 and 1")
    require(options.steps >= 1, "--steps", options.steps, "1 or more")
    require_float32(options, "the adversary, which is computed in float32")
    run = open_for_test_set(options, searches=False)
    forced, gold = forced_pairs(run, selected_test_set(run, options), options.question)
    with progress_bar("Adversary, steps of the decoder") as counted:
        found = adversarial_attention(
            run.model,
            forced,
            gold=gold,
            limit=options.limit,
            steps=options.steps,
            seed=options.seed,
            counted=counted,
            layer=options.layer,
            head=options.head,
        )
    if options.format == "jsonl":
        for one in found:
            print_record(one)
        return
    print_divergences(found, options.limit)


def print_divergences(found: Sequence[Any], limit: float) -> None:
    """Print a row for each class of words, with the medians by the largest weight."""
    limits = [(low, high) for low, high, *_ in found[0].by_largest]
    rows = []
    for one in found:
        medians = {(low, high): f"{median:.3f}" for low, high, _, median in one.by_largest}
        mean = with_interval(one.divergence, one.confidence, ".3f")
        rows.append([one.word_class, f"{one.tokens:,}", mean, *(medians.get(each, "–") for each in limits)])
    heads = ["words", "tokens", "mean ± 95%", *(f"{low}–{high}" for low, high in limits)]
    title = f"Divergence of weights with the same prediction (total variation ≤ {limit:g})"
    print_table(title, heads, rows, len(heads) - 1)
    print_prose(
        "Jensen–Shannon divergence in nats, between 0 and 0.693: the mean, and the median by the largest weight. The search "
        "can miss larger divergences."
    )
