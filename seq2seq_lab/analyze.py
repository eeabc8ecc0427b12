"""`python -m seq2seq_lab.analyze QUESTION RUN …`: ask a trained run about given texts."""

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seq2seq_lab.data.local_files import CONVERT_REMEDY, read_lines
from seq2seq_lab.data.text import new_counts
from seq2seq_lab.errors import Parser, UserError, did_you_mean, print_visible, report_errors, require
from seq2seq_lab.evaluate import add_opening, open_run
from seq2seq_lab.runtime.console import print_prose, progress_bar
from seq2seq_lab.runtime.tables import print_table

SCOPES = ("step", "all", "free")
CHUNK = 16  # batches that are read, processed and written together


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; see `parser`."""
    with report_errors():
        options = parser().parse_args(arguments)
        options.run(options)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    arguments = Parser(
        prog="python -m seq2seq_lab.analyze",
        description="Ask a trained run about given texts: how probable they are, what aligns, what changes an output.",
    )
    questions = arguments.add_subparsers(metavar="QUESTION", required=True, parser_class=Parser)
    add_score(questions)
    add_align(questions)
    add_intervene(questions)
    add_attribute(questions)
    return arguments


def add_question(
    questions: Any, name: str, run: Callable[[argparse.Namespace], None], about: str, example: str
) -> argparse.ArgumentParser:
    """Add a question, with the options for opening a run."""
    arguments: argparse.ArgumentParser = questions.add_parser(
        name, help=about, description=f"{about[0].upper()}{about[1:]}.", epilog=f"Example: {example}"
    )
    add_opening(arguments)
    arguments.set_defaults(run=run)
    return arguments


def add_score(questions: Any) -> None:
    """Add the question `score`."""
    arguments = add_question(
        questions,
        "score",
        score,
        "the log-probability (natural logarithm) of given outputs, by token, word and sentence",
        "python -m seq2seq_lab.analyze score outputs/DATE/TIME news.en news.fr --format tsv",
    )
    arguments.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="SOURCE TARGET: two files with one text (or path of an image) per line; of a language model only TARGET",
    )
    arguments.add_argument(
        "--format",
        choices=["text", "tsv", "jsonl"],
        default="text",
        help="text: a line per pair: its log-probability, its perplexity per token, the target; tsv: a row per token; "
        "jsonl: everything, an object per pair (default: text)",
    )
    arguments.add_argument(
        "--nbest",
        action="store_true",
        help="TARGET is an n-best list: lines `INDEX ||| TEXT ||| …` whose index is that of a source, from 0. Print its "
        "lines with the log-probability as another field, the most probable output of each source first",
    )


def score(options: argparse.Namespace) -> None:
    """Print the scores of given outputs; a summary goes to standard error.

    Raises:
        UserError: the files do not match, or an n-best list is malformed.
    """
    run = open_run(options, [])
    if options.nbest:
        rerank(run, options)
        return
    if options.format == "tsv":
        print("\t".join(("pair", "position", "token", "word", "log_prob", "rank", "entropy")))
    total = Totals()
    for first, sources, targets in pairs(run, options.files):
        for index, one in enumerate(run.score(sources, targets), first):
            total.add(one)
            for line in FORMATS[options.format](index, one):
                print_visible(line)
        sys.stdout.flush()
    print_visible(total, sys.stderr)


class Totals:
    """The sums over all pairs."""

    def __init__(self) -> None:
        self.texts = self.tokens = self.words = 0
        self.log_prob = 0.0

    def add(self, scored: Any) -> None:
        """Add a `ScoredText`."""
        self.texts += 1
        self.tokens += len(scored.tokens)
        self.words += len(scored.words) + 1
        self.log_prob += scored.log_prob

    def __str__(self) -> str:
        from seq2seq_lab.metrics.loss import perplexity

        if not self.texts:
            return "texts: 0"
        per_token, per_word = (perplexity(-self.log_prob / count) for count in (self.tokens, self.words))
        return (
            f"texts: {self.texts:,}, log-probability {self.log_prob:.4f}; perplexity {per_token:.4f} per token "
            f"({self.tokens:,}), {per_word:.4f} per word ({self.words:,}); the end of each text is counted"
        )


def as_text(index: int, scored: Any) -> Iterator[str]:
    """Yield the line of a pair."""
    yield f"{scored.log_prob:.4f}\t{scored.perplexity_per_token:.4f}\t{scored.target}"


def as_rows(index: int, scored: Any) -> Iterator[str]:
    """Yield a row of columns for each token."""
    for position, token in enumerate(scored.record()["tokens"]):
        word = "" if token["word"] is None else scored.words[token["word"]]
        numbers = (f"{token['log_prob']:.6f}", str(token["rank"]), f"{token['entropy']:.6f}")
        yield "\t".join((str(index), str(position), token["token"], word, *numbers))


def as_json(index: int, scored: Any) -> Iterator[str]:
    """Yield a JSON object."""
    yield json.dumps({"pair": index, **scored.record()}, ensure_ascii=False)


FORMATS: dict[str, Callable[[int, Any], Iterator[str]]] = {"text": as_text, "tsv": as_rows, "jsonl": as_json}


def pairs(run: Any, files: Sequence[str]) -> Iterator[tuple[int, list[str], list[str]]]:
    """Yield (index of the first pair, sources, targets) of the lines of SOURCE and TARGET; see `add_score`.

    Raises:
        UserError: the files have different numbers of lines, or a line cannot be read.
    """
    size = CHUNK * run.task.eval_batch_size
    if len(files) != (1 if run.reads_targets_only else 2):
        expected = "TARGET, the texts" if run.reads_targets_only else "SOURCE TARGET"
        raise UserError(f"{' '.join(files)}: give {expected}.")
    targets = numbered(files[-1])
    sources = numbered(files[0]) if len(files) == 2 else (("", "") for _ in itertools.count())
    first = 0
    while True:
        chunk = list(itertools.islice(targets, size))
        given = list(itertools.islice(sources, len(chunk) if len(files) == 1 else size))
        if len(chunk) != len(given):
            shorter = files[0] if len(given) < len(chunk) else files[-1]
            raise UserError(
                f"{files[0]} and {files[-1]} have different numbers of lines: {shorter} ends after "
                f"{first + min(len(given), len(chunk)):,}. Give a target for each source."
            )
        if not chunk:
            return
        for where, line in given if len(files) == 2 else chunk:
            run.check_input(line, where, run.longest_input)
        yield first, [line for _, line in given], [line for _, line in chunk]
        first += len(chunk)


def numbered(name: str) -> Iterator[tuple[str, str]]:
    """Yield (where it is, the line) for the lines of a file.

    Raises:
        UserError: the file does not exist, or a line is not UTF-8.
    """
    if not Path(name).is_file():
        raise UserError(f"{name} is not a file. Give a file with one text per line.")
    lines = read_lines(Path(name), new_counts(), show=False, remedy=CONVERT_REMEDY)
    for index, (line, problem) in enumerate(lines, start=1):
        if problem:
            raise UserError(f"{name}, line {index}: {problem}. Correct the line.")
        yield f"{name}, line {index}", line


def rerank(run: Any, options: argparse.Namespace) -> None:
    """Print the lines of an n-best list with their log-probability, the most probable output of each source first.

    Raises:
        UserError: a line is malformed, or names no source.
    """
    if run.reads_targets_only or len(options.files) != 2:
        raise UserError(f"{' '.join(options.files)}: --nbest needs SOURCE TARGET of a model with a source.")
    sources = [line for _, line in numbered(options.files[0])]
    listed = (
        read_entry(where, line, options.files[0], len(sources)) for where, line in numbered(options.files[1])
    )
    for index, entries in itertools.groupby(listed, key=lambda entry: entry[0]):
        texts = [(text, line) for _, text, line in entries]
        scored = run.score([sources[index]] * len(texts), [text for text, _ in texts])
        ranked = sorted(
            ((one.log_prob, line) for one, (_, line) in zip(scored, texts, strict=True)),
            key=lambda pair: -pair[0],
        )
        for log_prob, line in ranked:
            print_visible(f"{line} ||| {log_prob:.4f}")


def read_entry(where: str, line: str, sources: str, count: int) -> tuple[int, str, str]:
    """Return (index of the source, text, line) of a line of an n-best list."""
    fields = [field.strip() for field in line.split("|||")]
    if len(fields) < 2 or not fields[0].isdecimal():
        raise UserError(f"{where}: {line!r:.80} is not `INDEX ||| TEXT ||| …`. Correct the line.")
    if int(fields[0]) >= count:
        raise UserError(
            f"{where}: index {fields[0]} is not that of a source. {sources} has {count:,} lines, counted from 0."
        )
    return int(fields[0]), fields[1], line.rstrip()


def add_align(questions: Any) -> None:
    """Add the question `align`."""
    arguments = add_question(
        questions,
        "align",
        align,
        "word alignments of given sentence pairs, a line per pair: 0-0 1-2 (Pharaoh format, words between spaces)",
        "python -m seq2seq_lab.analyze align EN_FR news.en news.fr --reverse FR_EN --combine grow-diag",
    )
    arguments.add_argument(
        "files", nargs=2, metavar="FILE", help="SOURCE TARGET: files with one sentence per line"
    )
    arguments.add_argument(
        "--method",
        default="attention",
        help="attention, or a method of `attribute` such as occlusion (default: attention)",
    )
    arguments.add_argument(
        "--reading",
        choices=["emit", "read"],
        default="emit",
        help="the row of attention that aligns a token: emit: of the step that predicts it; read: of the step that reads "
        "it, which is better for Transformers (default: emit)",
    )
    arguments.add_argument(
        "--null",
        choices=["drop", "allow"],
        default="drop",
        help="drop: every word is linked, without regard to <sos> and <eos>; allow: a word has no link if one of them has "
        "its largest weight (default: drop)",
    )
    arguments.add_argument(
        "--threshold",
        type=float,
        metavar="P",
        help="link all words of at least this weight (default: the largest weight)",
    )
    for name in ("layer", "head"):
        arguments.add_argument(
            f"--{name}", type=int, help=f"the {name} of a Transformer, from 0 (default: as in `predict`)"
        )
    arguments.add_argument("--reverse", metavar="RUN", help="a run from the target to the source language")
    arguments.add_argument(
        "--combine",
        choices=["intersect", "union", "grow-diag", "grow-diag-final"],
        help="with --reverse: how the two directions are combined (default: grow-diag)",
    )


def align(options: argparse.Namespace) -> None:
    """Print the alignments of sentence pairs.

    Raises:
        UserError: the files do not match, or a model has no such attention.
    """
    from seq2seq_lab.analysis.align import Extraction, alignments, combined
    from seq2seq_lab.analysis.symmetrization import SYMMETRIZATIONS
    from seq2seq_lab.data.alignment_files import pharaoh

    if options.combine is not None and options.reverse is None:
        raise UserError(f"--combine={options.combine} needs --reverse RUN, a run in the other direction.")
    extraction = Extraction(
        options.method, options.reading, options.null, options.threshold, options.layer, options.head
    )
    run = open_run(options, [])
    reverse = None
    if options.reverse is not None:
        reverse = open_run(argparse.Namespace(**{**vars(options), "folder": options.reverse}), [])
    for _, sources, targets in pairs(run, options.files):
        found = alignments(run.model, run.forced(sources, targets), extraction)
        if reverse is not None:
            backward = alignments(reverse.model, reverse.forced(targets, sources), extraction)
            found = combined(found, backward, SYMMETRIZATIONS[options.combine or "grow-diag"])
        for links in found:
            print_visible(pharaoh(links))
        sys.stdout.flush()


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
        "gold alignments), word=J and mask=J (all weight on the J-th source word, or none), by default all but the last two",
    )
    arguments.add_argument(
        "--scopes",
        metavar="SCOPE,…",
        default="step,all,free",
        help="step: one step is changed and the original continues; all: every step, with the reference as input; free: "
        "every step of the search (default: all three)",
    )
    for name in ("layer", "head"):
        arguments.add_argument(
            f"--{name}", type=int, help=f"the only {name} of a Transformer to change, from 0"
        )
    arguments.add_argument(
        "--unseen",
        action="store_true",
        help="an attention function with a state computes it from the original weights (default: from the changed ones)",
    )
    arguments.add_argument("--seed", type=int, default=1, help="of the permutations (default: 1)")
    arguments.add_argument("--format", choices=["text", "jsonl"], default="text", help="(default: text)")


def add_test_set(arguments: argparse.ArgumentParser) -> None:
    """Add the options that select a test set and settings."""
    arguments.add_argument(
        "changes",
        nargs="*",
        metavar="KEY=VALUE",
        help="changes to the run's settings, such as dataset.test=… search=beam",
    )
    arguments.add_argument("--test", metavar="NAME", help="a test set of the data set (default: the first)")
    arguments.add_argument("--first", type=int, metavar="N", help="use the first N examples only")


def test_split(run: Any, options: argparse.Namespace) -> Any:
    """Return the test set that the options select.

    Raises:
        UserError: there is none with this name.
    """
    from seq2seq_lab.launching.evaluation import read_data

    require(options.first is None or options.first >= 1, "--first", options.first, "1 or more")
    splits = read_data(run, False).tests
    names = [split.prefix.removeprefix("test").removeprefix("/") or "test" for split in splits]
    if options.test is not None and options.test not in names:
        near = did_you_mean(options.test, names)
        raise UserError(f"--test={options.test} is not a test set.{near} Test sets: {', '.join(names)}.")
    split = splits[0 if options.test is None else names.index(options.test)]
    return split if options.first is None else split.first(options.first)


def intervene(options: argparse.Namespace) -> None:
    """Print the effects of changed attention weights.

    Raises:
        UserError: an unknown kind or scope, or a model without attention to text.
    """
    from seq2seq_lab.analysis import interventions

    scopes = options.scopes.split(",")
    for scope in scopes:
        require(scope in SCOPES, "--scopes", scope, ", ".join(SCOPES))
    run = open_run(options, options.changes)
    split = test_split(run, options)
    forced = run.forced([*split.text.source], [*split.text.target])
    gold = split.text.gold
    asked = (
        options.kinds.split(",")
        if options.kinds
        else [*interventions.BY_DEFAULT, *(["gold"] if gold else [])]
    )
    settings = {
        "layer": options.layer,
        "head": options.head,
        "seen": not options.unseen,
        "seed": options.seed,
    }
    found: list[Any] = []
    if forced_scopes := [scope for scope in scopes if scope != "free"]:
        measured = interventions.intervene(run.model, forced, asked, forced_scopes, gold=gold, **settings)
        found += interventions.effects(measured)
    if "free" in scopes:
        found += interventions.free(run, split.references(False), forced, asked, **settings)
    if options.format == "jsonl":
        for one in found:
            print_visible(json.dumps({"effect": type(one).__name__, **asdict(one)}, ensure_ascii=False))
        return
    print_effects([one for one in found if isinstance(one, interventions.Effect)])
    searches = [one for one in found if isinstance(one, interventions.SearchEffect)]
    if searches:
        rows = [
            [
                one.kind,
                f"{one.unchanged:.1%}",
                f"{one.bleu:.2f}",
                f"{one.difference:+.2f} ± {one.confidence:.2f}",
            ]
            for one in searches
        ]
        print_table(
            "Scope free: the outputs of the search",
            ["kind", "outputs kept", "BLEU", "difference"],
            rows,
            3,
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
        "smooth_grad, occlusion, occlusion_unknown, occlusion_removed, value_zeroing (default: all)",
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
    arguments.add_argument(
        "--counterfactuals",
        action="store_true",
        help="generated data: compare with what each reference word depends on (average precision and AUC)",
    )
    arguments.add_argument(
        "--greedy", action="store_true", help="add the ceiling: a greedy search of the deletions"
    )
    arguments.add_argument("--seed", type=int, default=1, help="of noise and random orders (default: 1)")
    arguments.add_argument(
        "--format",
        choices=["text", "jsonl"],
        default="text",
        help="text: a table of the methods; jsonl: the scores of each pair, then the means (default: text)",
    )


def attribute(options: argparse.Namespace) -> None:
    """Print attributions and their measures.

    Raises:
        UserError: an unknown method, or one that the model does not have.
    """
    import torch

    from seq2seq_lab.analysis import attributions, comparison

    methods = options.methods.split(",") if options.methods else [*attributions.METHODS]
    attributions.check_methods(methods)
    run = open_run(options, options.changes)
    split = test_split(run, options)
    forced = run.forced([*split.text.source], [*split.text.target])
    random_model = None
    if options.random_weights:
        torch.manual_seed(options.seed)
        random_model = run.task.model().to(run.device).eval()
    influences = None
    if options.counterfactuals:
        dataset = run.task.parts.dataset()
        if not hasattr(dataset, "influences"):
            raise UserError("--counterfactuals needs a generated data set, dataset=grammar. Leave it out.")
        influences = dataset.influences([*split.text.source], per_word=1, seed=options.seed)
    explained = []
    with progress_bar("Attributions") as advance:
        for one in comparison.explain(
            run.model,
            forced,
            methods,
            gold=split.text.gold,
            influences=influences,
            against=options.against,
            random_model=random_model,
            how=options.delete,
            greedy=options.greedy,
            seed=options.seed,
        ):
            explained.append(one)
            advance(len(explained), len(forced.targets))
            if options.format == "jsonl":
                print_visible(json.dumps(attribution_record(one), ensure_ascii=False))
    found = comparison.means(explained)
    if options.format == "jsonl":
        means = {name: {key: asdict(mean) for key, mean in own.items()} for name, own in found.items()}
        print_visible(json.dumps({"means": means}))
        return
    print_methods(found, options.delete)


def attribution_record(explained: Any) -> dict[str, Any]:
    """Return the attributions of a pair as values of JSON."""
    return {
        **{
            name: getattr(explained, name)
            for name in ("index", "source", "target", "words", "tokens", "against")
        },
        "scores": {name: one.scores_TU.tolist() for name, one in explained.attributions.items()},
        "gaps": {
            name: one.gap_T.tolist() for name, one in explained.attributions.items() if one.gap_T is not None
        },
    }


MEASURES = {
    "aer": "AER",
    "average_precision": "AP of influence",
    "auc": "AUC of influence",
    "area": "deletion area",
    "comprehensiveness": "comprehensive, 20%",
    "sufficiency": "sufficient, 20%",
    "tau_attention": "τ attention",
    "tau_random_weights": "τ random weights",
    "source_share": "share of source",
    "incomplete": "gap > 1%",
}


def print_methods(found: dict[str, dict[str, Any]], how: str) -> None:
    """Print the means of each method."""
    from seq2seq_lab.analysis.comparison import INSENSITIVE

    shown = [key for key in MEASURES if any(key in own for own in found.values())]
    rows = []
    for name, own in found.items():
        cells = [f"{own[key].value:.3f} ± {own[key].confidence:.3f}" if key in own else "–" for key in shown]
        rows.append([name, *cells])
    heads = ["method", *(MEASURES[key] for key in shown)]
    print_table(f"Attributions; words are deleted by: {how}; nats", heads, rows, len(shown))
    for name, own in found.items():
        if "tau_random_weights" in own and own["tau_random_weights"].value > INSENSITIVE:
            print_prose(
                f"{name} is insensitive to the model: its τ with random weights is above {INSENSITIVE}."
            )


def print_effects(effects: Sequence[Any]) -> None:
    """Print the effects of each scope as tables: the shares of predictions kept, and the mean changes."""
    classes = [*dict.fromkeys(one.word_class for one in effects)]
    for scope in dict.fromkeys(one.scope for one in effects):
        own = {(one.kind, one.word_class): one for one in effects if one.scope == scope}
        kinds = [*dict.fromkeys(kind for kind, _ in own)]
        shares = [
            [kind, *(with_interval(own.get((kind, name)), "kept", 100, 1) for name in classes)]
            for kind in kinds
        ]
        print_table(f"Scope {scope}: predictions kept, %", ["kind", *classes], shares, len(classes))
        means = [
            [
                kind,
                *(
                    with_interval(one, name, 1, 3)
                    for name in ("log_prob_change", "total_variation", "jensen_shannon")
                ),
                f"{one.left_out:,}",
            ]
            for kind in kinds
            if (one := own.get((kind, "all"))) is not None and one.log_prob_change is not None
        ]
        heads = ["kind", "change of log p", "total variation", "Jensen–Shannon", "tokens left out"]
        print_table(f"Scope {scope}: means over all tokens", heads, means, 4)
        limits = [(low, high) for low, high, *_ in max((one.by_largest for one in own.values()), key=len)]
        rows = []
        for kind in kinds:
            found = {(low, high): median for low, high, _, median in own[kind, "all"].by_largest}
            if found:
                rows.append([kind, *(f"{found[one]:.3f}" if one in found else "–" for one in limits)])
        heads = ["kind", *(f"{low}–{high}" for low, high in limits)]
        print_table(f"Scope {scope}: median total variation by the largest weight", heads, rows, len(limits))


def with_interval(effect: Any, name: str, scale: float, digits: int) -> str:
    """Return a mean of an effect with its 95% interval."""
    if effect is None:
        return "–"
    text = f"{scale * getattr(effect, name):.{digits}f}"
    half = effect.confidence.get(name)
    return text if half is None else f"{text} ± {scale * half:.{digits}f}"


if __name__ == "__main__":
    main()
