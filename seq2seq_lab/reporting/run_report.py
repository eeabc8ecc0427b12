"""What a run shows of itself: tables at first, translations and heatmaps on its way, results at the end."""

import json
import logging
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from seq2seq_lab import plots
from seq2seq_lab.config import extensions
from seq2seq_lab.data.corpus import Corpus, Gold, ParallelText
from seq2seq_lab.data.near_duplicates import NEAR_DUPLICATES
from seq2seq_lab.data.tokenized import TokenizedCorpus
from seq2seq_lab.data.tokenizers import TokenizerPair
from seq2seq_lab.files import write_atomically
from seq2seq_lab.metrics.alignment import (
    Link,
    Span,
    attention_map,
    group_tokens,
    whitespace_words,
    word_spans,
)
from seq2seq_lab.metrics.base import Declarations
from seq2seq_lab.metrics.bleu import sentence_bleu
from seq2seq_lab.reporting import score_tables
from seq2seq_lab.runtime import console
from seq2seq_lab.search.base import Hypothesis
from seq2seq_lab.tasks.translation.evaluation import Evaluation, Split, source_lengths_in_words
from seq2seq_lab.tracking import METRICS_FILE, Tracker
from seq2seq_lab.tracking.files import read_metrics
from seq2seq_lab.training.profiling import components

if TYPE_CHECKING:
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)

MOST_UNKNOWN = 0.25  # share of unknown training tokens from which something is likely to be wrong
ROOM = 1.25  # output tokens that a heatmap of fixed size has room for, by those of the reference
LOSS_CURVES = {
    "train/loss": "training",
    "val/loss_teacher_forced": "validation, teacher-forced",
    "val/loss_free_running": "validation, free-running",
}
EXAMPLES = 3  # tokenised training pairs shown before training
# The files that the page of the comparison shows, and the names in them.
PAGE = {
    "examples": {
        "file": "translations.test.jsonl",
        "columns": {
            "input": "source",
            "reference": "reference",
            "output": "hypothesis",
            "score": "sentence_bleu",
        },
    },
    "heatmaps": {
        "file": "attention.test.jsonl",
        "columns": {
            "title": "source",
            "columns": "source_tokens",
            "rows": "target_tokens",
            "weights": "weights",
        },
    },
}
TRANSLATION_COLUMNS = ("source", "reference", "hypothesis", "sentence BLEU")


def describe(model: nn.Module, corpus: Corpus, tokenized: TokenizedCorpus, machine: str) -> None:
    """Say what is about to be trained."""
    console.print_and_log(console.parameter_table(component_parameters(model)))
    pair = tokenized.tokenizers
    tests = {f"test/{name}": len(text) for name, text in corpus.tests.items()}
    console.print_and_log(
        console.corpus_table(
            {"train": len(corpus.train), "validation": len(corpus.validation), **tests},
            {"source": pair.source.size, "target": pair.target.size},
            tokenized.unknown_rate,
        )
    )
    held_out = {
        "validation": corpus.validation,
        **{f"test/{name}": text for name, text in corpus.tests.items()},
    }
    near = {
        split: [
            (count := corpus.counts.get(f"{split.removeprefix('test/')}/{kind}", 0), count / len(text))
            for kind in NEAR_DUPLICATES
        ]
        for split, text in held_out.items()
    }
    if any(count for counts in near.values() for count, _ in counts):
        console.print_and_log(
            console.near_duplicates_table(near, [kind.replace("_", " ") for kind in NEAR_DUPLICATES])
        )
    sources, targets = corpus.train.source[:EXAMPLES], corpus.train.target[:EXAMPLES]
    source_tokens = map(pair.source.tokens, pair.source.encode(sources))
    target_tokens = map(pair.target.tokens, pair.target.encode(targets))
    console.print_and_log(console.pairs_table(list(zip(source_tokens, target_tokens, strict=True))))
    counts = [
        f"{count:,} {what.replace('_', ' ')}"
        for what, count in corpus.counts.items()
        if count and "/" not in what
    ]
    if counts:
        log.info("Found in the corpus: %s.", ", ".join(counts))
    leaks = corpus.counts.get("leaked_pairs", 0)
    if leaks and not corpus.counts.get("dropped_leaks", 0):
        log.warning(
            "%s of %s pairs of validation and test are training pairs too: scores over them say little. "
            "dataset=parallel can take such pairs out of training, dataset.on_leak=drop.",
            f"{leaks:,}",
            f"{sum(map(len, held_out.values())):,}",
        )
    for name, rate in tokenized.unknown_rate.items():
        if name.startswith("train/") and rate > MOST_UNKNOWN:
            log.warning(
                "%.0f%% of the tokens of %s are unknown: is this the text, and the tokenizer, that you meant?",
                100 * rate,
                name,
            )
    log.info("Computing on %s.", machine)


def component_parameters(model: nn.Module) -> list[tuple[str, int, int]]:
    """Return (component, parameters, trainable ones) of a model, its decoder in parts.

    A tensor that components share counts for the first.
    """
    seen: set[int] = set()
    rows = []
    # The decoder at last: what stands in no part of it.
    for name, module in [*components(model), ("decoder", model.get_submodule("decoder"))]:
        own = list(module.parameters())
        new = [parameter for parameter in own if id(parameter) not in seen]
        seen.update(map(id, new))
        # A readout with no table but the target's gets a row of 0; a decoder that is all parts gets none.
        if new or (own and name != "decoder"):
            trainable = sum(parameter.numel() for parameter in new if parameter.requires_grad)
            rows.append((name, sum(parameter.numel() for parameter in new), trainable))
    return rows


class Showcase:
    """Shows the same few validation sentences at each validation.

    Args:
        samples: the sentences' numbers in the split.
        join: draw words instead of the tokenizer's subwords.
    """

    def __init__(
        self,
        folder: Path,
        text: ParallelText,
        tokenizers: TokenizerPair,
        tracker: Tracker,
        samples: Sequence[int],
        join: bool,
        declared: Declarations,
    ) -> None:
        self.folder = folder
        self.text = text
        self.tokenizers = tokenizers
        self.tracker = tracker
        self.samples = samples
        self.join = join
        self.declared = declared

    def validation(self, evaluation: Evaluation, update: int) -> None:
        """Log a validation's figures, show its sample translations, draw their attention."""
        self.tracker.log_metrics(evaluation.values, update)
        line = score_tables.values_line(evaluation.values, "val", self.declared)
        log.info("Validation at update %s: %s", f"{update:,}", line)
        rows = [(self.text.source[i], self.text.target[i], evaluation.translations[i]) for i in self.samples]
        if not rows:
            return
        console.print_and_log(console.sample_translations(rows))
        scored = [[*row, sentence_bleu(row[2], row[1])] for row in rows]
        self.tracker.log_table("val/translations", TRANSLATION_COLUMNS, scored, update)
        for number, i in enumerate(self.samples, start=1):
            path = self.folder / f"attention/sample_{number}_step_{update:08d}.png"
            figure = self.heatmap(i, evaluation.hypotheses[i], update)
            if figure is not None:
                plots.save_figure(figure, path)
                # A name for each sentence: W&B wants the pictures of one name to be of one size.
                self.tracker.log_images(f"val/attention/{number}", [path], [self.text.source[i]], update)

    def end(self, evaluation: Evaluation) -> None:
        """Draw the attention of the sample sentences once more, by the best checkpoint, and the curves of the training."""
        for number, i in enumerate(self.samples, start=1):
            figure = self.heatmap(i, evaluation.hypotheses[i], None)
            if figure is not None:
                save_for_print(figure, self.folder / f"attention/sample_{number}.png")
        rows = read_metrics(self.folder / METRICS_FILE)

        def curve(name: str) -> list[plots.Point]:
            return [(row["step"], row[name]) for row in rows if name in row]

        losses = {label: curve(name) for name, label in LOSS_CURVES.items()}
        save_for_print(plots.draw_curves(losses, {"BLEU": curve("val/bleu")}), self.folder / "curves.png")

    def heatmap(self, i: int, hypothesis: Hypothesis, update: int | None) -> "Figure | None":
        """Return the attention of a hypothesis as a picture; None where there is none, or no word to draw.

        A translation that is the reference gets the gold links outlined, where there are gold links.

        Args:
            i: the sentence's number in the split.
            update: of the training, named in the picture; the pictures of one sentence at all updates have one size. None
                makes a picture as large as the translation needs.
        """
        weights_TS = hypothesis.weights_TS
        if weights_TS is None:
            return None
        line, reference = self.text.source[i], self.text.target[i]
        drawn = attention_map(weights_TS, self.tokenizers, line, hypothesis.tokens, self.join)
        if not drawn.target_tokens:
            return None
        links: set[Link] = set()
        if self.text.gold is not None and drawn.output == reference:
            links = gold_links(self.text.gold[i], line, drawn.output, drawn.source_spans, drawn.target_spans)
        notes = ["outlined: gold alignment"] if links else []
        room = None
        if update is not None:
            notes.insert(0, f"update {update:,}")
            # A word has its row, or a token and <eos> theirs.
            own = (
                len(whitespace_words(reference))
                if self.join
                else 1 + len(self.tokenizers.target.encode([reference])[0])
            )
            room = math.ceil(ROOM * own) + 1
        return plots.draw_attention(
            drawn.weights_TS,
            drawn.source_tokens,
            drawn.target_tokens,
            line,
            links,
            room=room,
            note=", ".join(notes) or None,
        )


def save_for_print(figure: "Figure", path: Path) -> None:
    """Write a figure as PNG, and beside it as PDF."""
    for ending in (".png", ".pdf"):
        plots.save_figure(figure, path.with_suffix(ending))


def gold_links(
    gold: Gold, source: str, target: str, columns: Sequence[Span], rows: Sequence[Span]
) -> set[Link]:
    """Return the (column, row) cells of a heatmap that gold links join; column 0 is `<sos>`."""
    source_groups = group_tokens(columns, word_spans(source, gold.source_words))
    target_groups = group_tokens(rows, word_spans(target, gold.target_words))
    return {
        (column + 1, row)
        for source_word, target_word in gold.links
        for column in source_groups[source_word]
        for row in target_groups[target_word]
    }


def show_scores(
    scored: Sequence[tuple[Split, Evaluation]],
    tokenizers: TokenizerPair,
    folder: Path,
    tracker: Tracker,
    update: int,
    declared: Declarations,
) -> dict[str, Any]:
    """Log the scores of validation split and test sets, write their translations, return what the result holds."""
    result: dict[str, Any] = {**declared.result(), "page": PAGE}
    for split, evaluation in scored:
        prefix, text = split.prefix, split.text
        result |= evaluation.measurement.result(prefix)
        name = prefix.replace("/", ".")
        rows = write_translations(folder / f"translations.{name}.jsonl", text, evaluation.translations)
        write_attention(folder / f"attention.{name}.jsonl", text, evaluation, tokenizers)
        write_scored_lines(folder / "scored", name, evaluation)
        score_tables.write_statistics(folder / "scored" / f"{name}.npz", evaluation.measurement)
        if prefix != "val":
            tracker.log_metrics(evaluation.values, update)
            tracker.log_table(f"{prefix}/translations", TRANSLATION_COLUMNS, rows, update)
    for key, grouping in declared.groupings.items():
        tests = {
            split.prefix: evaluation.measurement.groups[key]
            for split, evaluation in scored
            if split.prefix != "val" and key in evaluation.measurement.groups
        }
        if tests and grouping.ordered:
            picture = folder / f"{key}.png"
            save_for_print(plots.draw_groups(tests, grouping), picture)
            title = f"{grouping.declaration.label} by {grouping.label}"
            tracker.log_images(f"test/{key}", [picture], [title], update)
    return result


def write_translations(path: Path, text: ParallelText, translations: Sequence[str]) -> list[list[object]]:
    """Write every translation of a split as JSON lines; return the rows of `TRANSLATION_COLUMNS`."""
    rows: list[list[object]] = [
        [source, reference, hypothesis, round(sentence_bleu(hypothesis, reference), 2)]
        for source, reference, hypothesis in zip(text.source, text.target, translations, strict=True)
    ]
    names = [column.replace(" ", "_").lower() for column in TRANSLATION_COLUMNS]
    write_json_lines(
        path,
        (
            {**dict(zip(names, row, strict=True)), "source_words": words}
            for row, words in zip(rows, source_lengths_in_words(text), strict=True)
        ),
    )
    return rows


def write_scored_lines(folder: Path, name: str, evaluation: Evaluation) -> None:
    """Write hypotheses and references as the scores see them, a line each: `sacrebleu REFERENCES… -i HYPOTHESES`."""
    folder.mkdir(exist_ok=True)
    for kind, sides in evaluation.scored_lines.items():
        more = [f"references.{number}" for number in range(2, len(sides))]
        for side, lines in zip(("hypotheses", "references", *more), sides, strict=True):
            write_atomically(folder / f"{name}{kind}.{side}.txt", "".join(f"{line}\n" for line in lines))


def write_attention(
    path: Path, text: ParallelText, evaluation: Evaluation, tokenizers: TokenizerPair
) -> None:
    """Write the attention of the hypotheses that have kept it as JSON lines, a row of weights a target token."""
    drawn = [
        (i, attention_map(one.weights_TS, tokenizers, text.source[i], one.tokens, False))
        for i, one in sorted(evaluation.hypotheses.items())
        if one.weights_TS is not None
    ]
    if drawn:
        write_json_lines(
            path,
            (
                {
                    "source": text.source[i],
                    "hypothesis": one.output,
                    "source_tokens": one.source_tokens,
                    "target_tokens": one.target_tokens,
                    "weights": [[round(float(weight), 3) for weight in row] for row in one.weights_TS],
                }
                for i, one in drawn
            ),
        )


def write_json_lines(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Write a file of one JSON object a line."""
    write_atomically(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def config_dir_option() -> list[str]:
    """Return the option that names the folder of own components, below the working directory by its relative path."""
    parts = extensions.folder()
    if parts is None:
        return []
    here = Path.cwd()
    return ["--config-dir", str(parts.relative_to(here) if parts.is_relative_to(here) else parts)]


def resume_command(folder: Path) -> str:
    """Return the command line that goes on with a run."""
    trust = config_dir_option()
    return shlex.join(["python", "-m", "seq2seq_lab", *trust, f"resume={folder}"])


def say_result(result: Mapping[str, Any], folder: Path, sync: str | None, url: str | None) -> None:
    """Print how a run ended: the main test scores, where its files are, and the commands to continue with.

    The tables of all scores go to the log of the run.
    """
    cwd = Path.cwd()
    shown = folder.relative_to(cwd) if folder.is_relative_to(cwd) else folder
    about = [f"{result['num_parameters']:,} parameters"]
    if (speed := result["train/target_tokens_per_second"]) is not None:
        about.append(f"{speed:,.0f} target tokens/s")
    if result["train/seconds"]:
        about.append(f"{result['train/seconds']:,.0f} s training")
        about.append(f"{result['val/seconds']:,.0f} s validation")
    facts = [("", f"{label}: {text}") for label, text in score_tables.signatures(result, everything=False)]
    facts += [("", ", ".join(about)), ("run folder", str(shown)), *files_of(folder)]
    if url:
        facts.append(("W&B", url))
    console.log_only(
        console.closing_summary(
            score_tables.score_tables(result, everything=True),
            score_tables.signatures(result, everything=True),
            {},
        )
    )
    commands = next_commands(folder, shown)
    if sync is not None:
        words = [word.removeprefix(f"{cwd}/") for word in shlex.split(sync)]
        commands["send the record to W&B"] = [*map(shlex.quote, words)]
    console.print_and_log(
        console.closing_summary(score_tables.score_tables(result, everything=False), facts, commands)
    )


def files_of(folder: Path) -> list[tuple[str, str]]:
    """Return what there is in a run folder, and the names of its files."""
    texts = sorted(path.name for path in folder.glob("translations.test*.jsonl"))
    kinds = {
        "pictures": ["curves.png", "bleu_by_length.png", "attention/"],
        "scores": ["result.json", "scored/"],
        "translations": texts if len(texts) == 1 else ["translations.*.jsonl"] * bool(texts),
        "log": ["run.log", "metrics.jsonl", "profile/trace.json.gz"],
    }
    there = {
        what: [name for name in names if "*" in name or (folder / name).exists()]
        for what, names in kinds.items()
    }
    return [(f"  {what}", ", ".join(names)) for what, names in there.items() if names]


def next_commands(folder: Path, shown: Path) -> dict[str, list[str]]:
    """Return commands to continue with after a run, by what they are for."""
    trust = config_dir_option()
    others = [path.parent for path in folder.parent.glob("*/result.json") if path.parent != folder]
    compared = [str(shown.parent)] if others else [str(shown), "OTHER_RUN_FOLDER"]
    words = {
        "translate sentences that you type": [".translate", str(shown), *trust],
        "score it with another search": [".evaluate", str(shown), "search=beam", *trust],
        "compare it with other runs": [".compare", *compared, "--html", "compare.html"],
        "train it longer": ["", *trust, f"resume={shown}", "trainer.max_epochs=N"],
    }
    return {
        purpose: ["python", "-m", f"seq2seq_lab{program}", *map(shlex.quote, rest)]
        for purpose, (program, *rest) in words.items()
    }
