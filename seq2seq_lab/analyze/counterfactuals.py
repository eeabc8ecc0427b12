"""`analyze counterfactuals`: whether the outputs change where the references of changed sources change."""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

from seq2seq_lab.analyze.common import (
    add_question,
    add_test_set,
    influences_of,
    open_for_test_set,
    print_record,
    selected_test_set,
)
from seq2seq_lab.errors import require, seed_number
from seq2seq_lab.runtime.console import progress_bar
from seq2seq_lab.runtime.tables import print_table

HEADS = {
    "recall": "recall",
    "agreement_recall": "agreement",
    "precision": "precision",
    "correct": "correct outputs",
}


def add_counterfactuals(questions: Any) -> None:
    """Add the question `counterfactuals`."""
    arguments = add_question(
        questions,
        "counterfactuals",
        counterfactuals,
        "whether the outputs on generated data depend on what they should depend on: one source word is replaced, and the "
        "words of the output that change are compared with the words of the reference that change",
        "python -m seq2seq_lab.analyze counterfactuals outputs/DATE/TIME --first 100",
    )
    add_test_set(arguments)
    arguments.add_argument(
        "--per-word",
        type=int,
        default=1,
        metavar="N",
        help="replace each source word at most N times (default: 1)",
    )
    arguments.add_argument(
        "--seed", type=seed_number, default=1, help="of the choice of replacements (default: 1)"
    )
    arguments.add_argument(
        "--format",
        choices=["text", "jsonl"],
        default="text",
        help="text: a table; jsonl: an object for each sentence with its changed versions and outputs, then one for each "
        "row of the table (default: text)",
    )


def counterfactuals(options: argparse.Namespace) -> None:
    """Print the measures of the changes of outputs.

    Raises:
        UserError: the data set does not know what its references depend on.
    """
    from seq2seq_lab.analysis.counterfactual import Changes
    from seq2seq_lab.analysis.dependence import dependences

    require(options.per_word >= 1, "--per-word", options.per_word, "1 or more")
    run = open_for_test_set(options, searches=True)
    split = selected_test_set(run, options)
    influences = influences_of(run, split, options.per_word, options.seed)
    counts: list[Changes] = []
    with progress_bar("Counterfactuals") as advance:
        for record in changed_outputs(run, split.text.source, influences):
            counts.append(Changes(**record["counts"]))
            advance(len(counts), len(influences))
            if options.format == "jsonl":
                print_record(record)
    found = dependences(counts, split.text.phenomena)
    if options.format == "jsonl":
        for one in found:
            print_record(one)
        return
    rows = []
    for one in found:
        cells = [one.means[name].text(".1%") if name in one.means else "–" for name in HEADS]
        rows.append([one.group, f"{one.sentences:,}", f"{one.counterfactuals:,}", *cells])
    heads = ["sentences with", "sentences", "replacements", *HEADS.values()]
    print_table("Words that change when one source word is replaced, ± 95% intervals", heads, rows, 6)


def changed_outputs(run: Any, sources: Sequence[str], influences: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yield for each sentence its output, its changed versions with theirs, and the counts of changed words."""
    from seq2seq_lab.analysis.counterfactual import count_changes

    size = run.task.eval_batch_size
    for first in range(0, len(sources), size):
        chunk = [*zip(sources, influences, strict=True)][first : first + size]
        lines = [
            line
            for source, one in chunk
            for line in (source, *(change.source for change in one.counterfactuals))
        ]
        outputs = iter([found[0].text for found in run.nbest(lines, with_attention=False)])
        for index, (source, one) in enumerate(chunk, first):
            output, *others = (next(outputs) for _ in range(1 + len(one.counterfactuals)))
            yield {
                "index": index,
                "source": source,
                "output": output,
                "counterfactuals": [
                    {"source": change.source, "reference": change.target, "output": other}
                    for change, other in zip(one.counterfactuals, others, strict=True)
                ],
                "counts": count_changes(one, output, others)._asdict(),
            }
