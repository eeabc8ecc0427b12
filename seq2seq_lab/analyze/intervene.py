"""`analyze intervene`: what changed attention weights change."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
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
from seq2seq_lab.analyze.page import Drawing, add_pictures, write_pictures
from seq2seq_lab.errors import UserError, require, seed_number
from seq2seq_lab.runtime.console import print_prose
from seq2seq_lab.runtime.tables import TextTable, print_table, with_interval

SCOPES = ("step", "all", "free")
NOTE = "Effects of changed attention weights on the predictions, ± 95% intervals (bootstrap over sentences)."
NOT_FREE = "Scope free leaves out the kind gold, whose weights are those of the tokens of the reference."


def add_intervene(questions: Any) -> None:
    """Add the question `intervene`."""
    arguments = add_question(
        questions,
        "intervene",
        intervene,
        "what changed attention weights change in the predictions on a test set",
        "python -m seq2seq_lab.analyze intervene outputs/DATE/TIME --kinds uniform,permute --scopes step --first 100",
    )
    add_test_set(arguments)
    arguments.add_argument(
        "--kinds",
        metavar="KIND,…",
        help="uniform, permute, zero_out_max, only_max, keep_max_uniform_others, zero_out, previous, gold (if the data has "
        "gold alignments), word=J and mask=J (all weight on the source word with index J, from 0, or none), by default all "
        "but these two; weights, a given matrix, in Python only (run.intervene)",
    )
    arguments.add_argument(
        "--scopes",
        metavar="SCOPE,…",
        default="step,all,free",
        help="step: one step is changed and the original continues; all: every step, with the reference as input; free: "
        "every step of the search (default: all three)",
    )
    add_layer_and_head(arguments)
    arguments.add_argument(
        "--unseen",
        action="store_true",
        help="an attention function with a state computes it from the original weights (default: from the changed ones)",
    )
    add_pictures(arguments, "the total variation by the largest attention weight")
    arguments.add_argument("--seed", type=seed_number, default=1, help="of the permutations (default: 1)")
    add_format(arguments)


def add_layer_and_head(arguments: argparse.ArgumentParser) -> None:
    """Add the options that select which weights are changed."""
    for name in ("layer", "head"):
        arguments.add_argument(
            f"--{name}", type=int, help=f"the only {name} of a Transformer to change, from 0"
        )


def intervene(options: argparse.Namespace) -> None:
    """Print the effects of changed attention weights.

    Raises:
        UserError: an unknown kind or scope, a kind without a scope, or a model without attention to text.
    """
    from seq2seq_lab.analysis import interventions

    scopes = options.scopes.split(",")
    for scope in scopes:
        require(scope in SCOPES, "--scopes", scope, ", ".join(SCOPES))
    if {*scopes} == {"free"}:
        require(
            options.pictures is None,
            "--pictures",
            options.pictures,
            "only with the scope step or all, which it shows",
        )
    run = open_for_test_set(options, searches="free" in scopes)
    split = selected_test_set(run, options)
    forced, gold = forced_pairs(run, split, options.question)
    asked = (
        options.kinds.split(",")
        if options.kinds
        else [*interventions.BY_DEFAULT, *(["gold"] if gold else [])]
    )
    without_gold = "free" in scopes and "gold" in asked
    if without_gold and {*asked} == {"gold"} and {*scopes} == {"free"}:
        raise UserError(f"--kinds=gold --scopes=free: {NOT_FREE} Add another kind or scope, such as step.")
    if "permute" not in asked:
        require(
            options.seed == 1, "--seed", options.seed, "only with the kind permute, which alone is random"
        )
    if options.unseen:
        require_state(run.model, scopes)
    settings = {
        "layer": options.layer,
        "head": options.head,
        "seen": not options.unseen,
        "seed": options.seed,
    }
    found: list[Any] = []
    if forced_scopes := [scope for scope in scopes if scope != "free"]:
        measured = interventions.intervene(
            run.model,
            forced,
            asked,
            forced_scopes,
            gold=gold,
            permutations=interventions.PERMUTATIONS,
            **settings,
        )
        found += interventions.effects(measured)
    if "free" in scopes:
        found += interventions.free(run, split.references(False), forced, asked, **settings)
    effects = [one for one in found if isinstance(one, interventions.Effect)]
    tables = [*effect_tables(effects)]
    if searches := [one for one in found if isinstance(one, interventions.SearchEffect)]:
        tables.append(search_table(searches))
    note = f"{NOTE} {NOT_FREE}" if without_gold else NOTE
    write_pictures(options, note, tables, lambda: variation_pictures(effects))
    if options.format == "jsonl":
        for one in found:
            print_record({"effect": type(one).__name__, **asdict(one)})
        return
    for table in tables:
        print_table(table.title, table.heads, table.rows, len(table.heads) - 1)
    if without_gold:
        print_prose(NOT_FREE)


def require_state(model: Any, scopes: Sequence[str]) -> None:
    """Refuse `--unseen` if no state of an attention function follows from changed weights.

    Raises:
        UserError: the scope is `step` only, or the model has no such attention function.
    """
    from seq2seq_lab.models.attention import StatefulAttention

    if {*scopes} == {"step"}:
        raise UserError(
            "--unseen has no effect in the scope step, after which the original state continues. Add the scope all or "
            "free, or leave it out."
        )
    if not any(isinstance(one, StatefulAttention) for one in model.modules()):
        raise UserError(
            "--unseen has no effect: the attention function of the model has no state, as coverage has. Leave it out."
        )


def variation_pictures(effects: Sequence[Any]) -> Iterator[Drawing]:
    """Yield a picture for each scope of the median total variation by the largest weight."""
    from seq2seq_lab.plots.curves import Series, draw_series

    for scope in dict.fromkeys(one.scope for one in effects):
        series = [
            Series(
                one.kind,
                [(low + high) / 2 for low, high, *_ in one.by_largest],
                [median for *_, median in one.by_largest],
                [0.0] * len(one.by_largest),
            )
            for one in effects
            if one.scope == scope and one.word_class == "all" and one.by_largest
        ]
        if series:
            title = f"Changed attention, scope {scope}"
            figure = draw_series(series, "largest attention weight", "median total variation", title)
            yield Drawing(f"variation_{scope}", title, figure)


def effect_tables(effects: Sequence[Any]) -> Iterator[TextTable]:
    """Yield the effects of each scope as tables: the shares of predictions kept, and the mean changes."""
    classes = [*dict.fromkeys(one.word_class for one in effects)]
    for scope in dict.fromkeys(one.scope for one in effects):
        own = {(one.kind, one.word_class): one for one in effects if one.scope == scope}
        kinds = [*dict.fromkeys(kind for kind, _ in own)]
        shares = [
            [kind, *(mean_text(own.get((kind, name)), "kept", 100, ".1f") for name in classes)]
            for kind in kinds
        ]
        yield TextTable(f"Scope {scope}: predictions kept, %", ["kind", *classes], shares)
        means = [
            [
                kind,
                *(
                    mean_text(one, name, 1, ".3f")
                    for name in ("log_prob_change", "total_variation", "jensen_shannon")
                ),
                f"{one.tokens:,}",
                f"{one.left_out:,}",
            ]
            for kind in kinds
            if (one := own[kind, "all"]).kept is None or one.log_prob_change is not None
        ]
        heads = ["kind", "change of log p", "total variation", "Jensen–Shannon", "tokens", "left out"]
        yield TextTable(f"Scope {scope}: means over all tokens", heads, means)
        limits = sorted({(low, high) for one in own.values() for low, high, *_ in one.by_largest})
        rows = []
        for kind in kinds:
            found = {(low, high): median for low, high, _, median in own[kind, "all"].by_largest}
            if found:
                rows.append([kind, *(f"{found[one]:.3f}" if one in found else "–" for one in limits)])
        heads = ["kind", *(f"{low}–{high}" for low, high in limits)]
        if rows:
            yield TextTable(f"Scope {scope}: median total variation by the largest weight", heads, rows)


def search_table(searches: Sequence[Any]) -> TextTable:
    """Return the effects on the outputs of the search as a table."""
    rows = [
        [
            one.kind,
            *(
                [
                    f"{one.unchanged:.1%}",
                    f"{one.bleu:.2f}",
                    with_interval(one.difference, one.confidence, "+.2f"),
                ]
                if one.sentences
                else ["–"] * 3
            ),
            f"{one.sentences:,}",
            f"{one.left_out:,}",
        ]
        for one in searches
    ]
    heads = ["kind", "outputs kept", "BLEU", "difference", "sentences", "left out"]
    return TextTable("Scope free: the outputs of the search", heads, rows)


def mean_text(effect: Any, name: str, scale: float, form: str) -> str:
    """Return a mean of an effect with its 95% interval."""
    mean = None if effect is None else getattr(effect, name)
    if mean is None:
        return "–"
    half = effect.confidence.get(name)
    return with_interval(scale * mean, None if half is None else scale * half, form)
