"""`analyze attribute`: which source words predictions depend on."""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from seq2seq_lab.analyze.common import (
    add_question,
    add_test_set,
    influences_of,
    open_for_test_set,
    print_record,
    require_float32,
    selected_test_set,
)
from seq2seq_lab.analyze.page import Drawing, add_pictures, write_pictures
from seq2seq_lab.data.corpus import ParallelText
from seq2seq_lab.errors import UserError, require, seed_number
from seq2seq_lab.metrics.degeneration import LEAST_REPEATS, longest_repeat
from seq2seq_lab.metrics.texts import named_groups
from seq2seq_lab.runtime.console import print_prose, progress_bar
from seq2seq_lab.runtime.direction import arrow
from seq2seq_lab.runtime.tables import TextTable, print_table

if TYPE_CHECKING:
    from seq2seq_lab.analysis.comparison import Explained
    from seq2seq_lab.analysis.questions import Question

NOTE = (
    "Means over the target tokens, of AP and AUC over the sentences; AER is a ratio of numbers of links. ±: 95% intervals "
    "(bootstrap over sentences). In the pictures of sentences each row is divided by its largest magnitude: blue is "
    "evidence for the token, red evidence against it; gold links are outlined. Below each panel are the shares of "
    "the magnitudes on <sos>, <eos> and punctuation."
)


def add_attribute(questions: Any) -> None:
    """Add the question `attribute`."""
    arguments = add_question(
        questions,
        "attribute",
        attribute,
        "which source words the predictions on a test set depend on, by several methods, and how faithful these are",
        "python -m seq2seq_lab.analyze attribute outputs/DATE/TIME --first 100 --methods attention,occlusion",
    )
    add_test_set(arguments)
    arguments.add_argument(
        "--methods",
        metavar="METHOD,…",
        help="attention, attention_norm, grad_x_input, grad_norm, integrated_gradients, integrated_gradients_unknown, "
        "smooth_grad, occlusion, occlusion_unknown, occlusion_removed, value_zeroing (default: those that the model has)",
    )
    arguments.add_argument(
        "--against",
        metavar="WORD",
        help="explain log p(token) − log p(WORD) instead of log p(token); runner-up: the most probable other token",
    )
    arguments.add_argument(
        "--delete",
        choices=["zero", "unknown", "removed"],
        default="zero",
        help="how words are deleted to measure faithfulness: embeddings of 0, of <unk>, or no tokens (default: zero)",
    )
    arguments.add_argument(
        "--random-weights",
        action="store_true",
        help="compare with the attributions of the model with random weights",
    )
    add_pictures(arguments, "the scores of each pair, deletion curves and the agreement of the methods")
    arguments.add_argument(
        "--counterfactuals",
        action="store_true",
        help="generated data: compare with what each reference word depends on (average precision and AUC)",
    )
    arguments.add_argument(
        "--outputs",
        action="store_true",
        help="explain the outputs of the run instead of the references, and compare loops with the other outputs",
    )
    arguments.add_argument(
        "--greedy", action="store_true", help="add the ceiling: a greedy search of the deletions"
    )
    arguments.add_argument(
        "--seed", type=seed_number, default=1, help="of noise and random orders (default: 1)"
    )
    arguments.add_argument(
        "--format",
        choices=["text", "jsonl"],
        default="text",
        help="text: a table of the methods; jsonl: the scores of each pair, then the means (default: text)",
    )


def attribute(options: argparse.Namespace) -> None:
    """Print attributions and their measures.

    Raises:
        UserError: an unknown method, one that the model does not have, another precision than float32, or `--outputs` of
            a run without outputs.
    """
    from seq2seq_lab.analysis import attributions, comparison

    require(
        not (options.outputs and options.counterfactuals),
        "--counterfactuals",
        True,
        "left out with --outputs: it is known for references only",
    )
    require_float32(options, "attributions, which are computed in float32")
    methods = [*dict.fromkeys(options.methods.split(","))] if options.methods else []
    attributions.check_methods(methods)
    run = open_for_test_set(options, searches=options.outputs)
    split = selected_test_set(run, options)
    groups, ended = groups_of_references(split), None
    if options.outputs:
        split, ended = with_outputs(run, split)
        groups = groups_of_outputs(run, split)
    questions = run.questions(split)
    methods = methods or attributions.methods_of(questions(0))
    explained = []
    with progress_bar("Attributions") as advance:
        for one in explained_pairs(run, split, questions, methods, options, ended):
            explained.append(one)
            advance(len(explained), len(split.text))
            if options.format == "jsonl":
                print_record(one.as_json())
    means = partial(comparison.means, clusters=run.clusters(split))
    found = means(explained)
    by_group = {
        name: {group: means([explained[i] for i in index]) for group, index in own.items()}
        for name, own in groups.items()
        if len(own) > 1
    }
    tables = [
        methods_table(found, options.delete),
        *source_shares(found),
        *group_tables(methods, by_group, groups),
    ]
    left_out = sum(one.left_out for one in explained)
    notes = [*notes_on(explained, options)]
    write_pictures(
        options, " ".join([NOTE, *notes]), tables, lambda: attributed_pictures(explained, methods, found)
    )
    if options.format == "jsonl":
        insensitive = comparison.insensitive(found)
        print_record({"means": found, "insensitive": insensitive, "groups": by_group, "left_out": left_out})
        return
    for table in tables:
        print_table(table.title, table.heads, table.rows, len(table.heads) - 1)
    for about in notes:
        print_prose(about)


def notes_on(explained: Sequence["Explained"], options: argparse.Namespace) -> Iterator[str]:
    """Yield what a reader of the table has to know."""
    from seq2seq_lab.analysis import comparison

    if options.random_weights:
        yield comparison.ABOUT_INSENSITIVE
    if left_out := sum(one.left_out for one in explained):
        what = f"target tokens that are the token of --against={options.against} itself"
        yield f"Left out of the measures: {left_out:,} {what}."
    if cut_off := sum(not one.ended for one in explained):
        yield f"Left out of the measures: <eos> of {cut_off:,} outputs that the length limit ended."
    if only_copied := sum(one.only_copied for one in explained):
        yield (
            f"The model can only copy {only_copied:,} target tokens. Without the word that is copied their log-probability "
            f"is that of the smallest number of float32, -87.3, which decides the means."
        )


def explained_pairs(
    run: Any,
    split: Any,
    questions: Callable[[int], "Question"],
    methods: Sequence[str],
    options: argparse.Namespace,
    ended: Sequence[bool] | None,
) -> Iterator["Explained"]:
    """Yield the attributions and the measures of each pair of a split.

    Args:
        questions: the pairs by index; see `Loaded.questions`.
        ended: see `comparison.explain`.
    """
    import torch

    from seq2seq_lab.analysis import comparison

    numbers = range(len(split.text))
    random_questions = None
    if options.random_weights:
        torch.manual_seed(options.seed)
        random_questions = [*map(run.questions(split, run.task.model().to(run.device).eval()), numbers)]
    return comparison.explain(
        map(questions, numbers),
        methods,
        gold=getattr(split.text, "gold", None),
        influences=influences_of(run, split, 1, options.seed) if options.counterfactuals else None,
        against=options.against,
        ended=ended,
        random_questions=random_questions,
        how=options.delete,
        greedy=options.greedy,
        seed=options.seed,
    )


def groups_of_references(split: Any) -> dict[str, dict[str, list[int]]]:
    """Return the examples of each phenomenon, if the data set has them."""
    phenomena = getattr(split.text, "phenomena", None)
    return {} if phenomena is None else {"phenomenon": named_groups(phenomena)}


def with_outputs(run: Any, split: Any) -> tuple[Any, list[bool]]:
    """Return the test set with the outputs of the run's search as targets, and whether each ended with `<eos>`.

    Raises:
        UserError: the test set has no pairs of texts.
    """
    if not isinstance(split.text, ParallelText):
        raise UserError("--outputs needs pairs of texts. Give a run of task=translation or task=dialogue.")
    source, clusters = [*split.text.source], split.text.clusters
    outputs = run.predict(source)
    text = ParallelText(source, [one.text for one in outputs], clusters=clusters)
    return replace(split, text=text), [one.ended for one in outputs]


def groups_of_outputs(run: Any, split: Any) -> dict[str, dict[str, list[int]]]:
    """Return which outputs are loops, in which a segment is repeated as in `metrics.degeneration`, and which are not."""
    ids = run.output_tokenizer.encode([*split.text.target])
    loops = [longest_repeat(tokens) >= LEAST_REPEATS for tokens in ids]
    return {"kind of output": named_groups(["loops" if loop else "other outputs"] for loop in loops)}


def group_tables(
    methods: Sequence[str],
    by_group: Mapping[str, Mapping[str, Mapping[str, Mapping[str, Any]]]],
    groups: Mapping[str, Mapping[str, Sequence[int]]],
) -> Iterator[TextTable]:
    """Yield one measure of each method by group of examples: the first of `BY_GROUP` that was computed.

    Args:
        by_group: the means of each group, by the name of the grouping.
        groups: the examples of each group.
    """
    for name, found in by_group.items():
        measured = {key for own in found.values() for of_method in own.values() for key in of_method}
        for measure in [key for key in BY_GROUP if key in measured][:1]:
            rows = [
                [
                    f"{group} ({len(groups[name][group]):,})",
                    *(
                        own[method][measure].text(".3f") if measure in own[method] else "–"
                        for method in methods
                    ),
                ]
                for group, own in found.items()
            ]
            yield TextTable(f"{MEASURES[measure]} by {name} (number of examples)", ["", *methods], rows)


def source_shares(found: Mapping[str, Mapping[str, Any]]) -> list[TextTable]:
    """Return the share of the source along the outputs as a table, for the methods that have it."""
    from seq2seq_lab.analysis.comparison import THIRDS

    keys = [f"source_share_{part}" for part in THIRDS]
    rows = [
        [name, *(own[key].text(".3f") if key in own else "–" for key in keys)]
        for name, own in found.items()
        if any(key in own for key in keys)
    ]
    heads = ["method", *(part.replace("_", " ") for part in THIRDS)]
    return [TextTable("Share of source along the output", heads, rows)] if rows else []


def attributed_pictures(
    explained: Sequence[Any], methods: Sequence[str], found: dict[str, dict[str, Any]]
) -> Iterator[Drawing]:
    """Yield the deletion curves, the agreement of the methods, and the scores of each pair."""
    from seq2seq_lab.analysis import comparison, faithfulness
    from seq2seq_lab.plots.attention import column_shares
    from seq2seq_lab.plots.attributions import Panel, draw_agreement, draw_attributions
    from seq2seq_lab.plots.curves import Series, draw_series

    percents = [*faithfulness.PERCENTS]
    curves = []
    for name, own in found.items():
        means = [own[key] for percent in percents if (key := f"drop_{percent}") in own]
        if len(means) == len(percents):
            values, errors = [mean.value for mean in means], [mean.confidence or 0.0 for mean in means]
            curves.append(Series(name, percents, values, errors))
    if curves:
        title, drop = "Deletion in the order of the scores", "drop of log p, nats"
        yield Drawing("deletion", title, draw_series(curves, "deleted words, %", drop, title))
    tau_MM, title = comparison.agreement(explained, methods), "Kendall's τ of the methods"
    yield Drawing("agreement", title, draw_agreement(methods, tau_MM, title))
    for one in explained:
        panels = [
            Panel(name, own.scores_TU, column_shares(own.scores_TU, one.words))
            for name, own in one.attributions.items()
        ]
        title = arrow(one.source, one.target)
        figure = draw_attributions(panels, one.words, one.tokens, title, one.gold_cells)
        yield Drawing(f"pair_{one.index}", title, figure)


MEASURES = {
    "aer": "AER",
    "average_precision": "AP of influence",
    "auc": "AUC of influence",
    "area": "deletion area",
    "comprehensiveness_20": "comprehensive, 20%",
    "sufficiency_20": "sufficient, 20%",
    "tau_attention": "τ attention",
    "tau_random_weights": "τ random weights",
    "source_share": "share of source",
    "incomplete": "gap > 1%",
}


# By group of examples one of these is shown: the first one that was computed.
BY_GROUP = ("average_precision", "aer", "source_share", "area")


def methods_table(found: dict[str, dict[str, Any]], how: str) -> TextTable:
    """Return the means of each method as a table, and whether it is insensitive to the model."""
    from seq2seq_lab.analysis.comparison import insensitive

    shown = [key for key in MEASURES if any(key in own for own in found.values())]
    rows = []
    marks = insensitive(found)
    for name, own in found.items():
        cells = [own[key].text(".3f") if key in own else "–" for key in shown]
        mark = {True: "yes", False: "no", None: "–"}[marks.get(name)]
        rows.append([name, *cells, *([mark] if marks else [])])
    heads = ["method", *(MEASURES[key] for key in shown), *(["insensitive"] if marks else [])]
    return TextTable(f"Attributions; words are deleted by: {how}; nats", heads, rows)
