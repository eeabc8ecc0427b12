"""What a run shows of itself: tables at first, translations and heatmaps on its way, results at the end."""

import json
import logging
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from seq2seq_lab import own_parts, plots, report
from seq2seq_lab.alignment import Link, Span, attention_map, group_tokens, word_spans
from seq2seq_lab.data.corpus import Corpus, Gold, ParallelText
from seq2seq_lab.data.near_duplicates import NEAR_DUPLICATES
from seq2seq_lab.data.tokenized import TokenizedCorpus
from seq2seq_lab.data.tokenizers import TokenizerPair
from seq2seq_lab.files import write_atomically
from seq2seq_lab.profiling import components
from seq2seq_lab.scores import sentence_bleu
from seq2seq_lab.search.base import Hypothesis
from seq2seq_lab.task import Evaluation, Split, source_lengths_in_words
from seq2seq_lab.tracker import Tracker

log = logging.getLogger(__name__)

MOST_UNKNOWN = 0.25  # share of unknown training tokens from which something is likely to be wrong
EXAMPLES = 3  # tokenised training pairs shown before training
# scores shown with their signatures
SIGNED = (
    *("bleu", "chrf", "ter"),
    *("bleu_lowercased_tokenised", "chrf_lowercased_tokenised", "ter_lowercased_tokenised"),
)
TRANSLATION_COLUMNS = ("source", "reference", "hypothesis", "sentence BLEU")


def describe(model: nn.Module, corpus: Corpus, tokenized: TokenizedCorpus, machine: str) -> None:
    """Say what is about to be trained."""
    report.say(report.parameter_table(component_parameters(model)))
    pair = tokenized.tokenizers
    tests = {f"test/{name}": len(text) for name, text in corpus.tests.items()}
    report.say(
        report.corpus_table(
            {"train": len(corpus.train), "validation": len(corpus.validation), **tests},
            {"source": pair.source.size, "target": pair.target.size},
            tokenized.unknown_rate,
        )
    )
    sources, targets = corpus.train.source[:EXAMPLES], corpus.train.target[:EXAMPLES]
    source_tokens = map(pair.source.tokens, pair.source.encode(sources))
    target_tokens = map(pair.target.tokens, pair.target.encode(targets))
    report.say(report.pairs_table(list(zip(source_tokens, target_tokens, strict=True))))
    counts = [
        f"{count:,} {what.replace('_', ' ')}"
        for what, count in corpus.counts.items()
        if count and "/" not in what
    ]
    if counts:
        log.info("Found in the corpus: %s.", ", ".join(counts))
    for name, text in {"validation": corpus.validation, **corpus.tests}.items():
        near = [
            f"{what.replace('_', ' ')} {count:,} ({count / len(text):.1%})"
            for what in NEAR_DUPLICATES
            if (count := corpus.counts.get(f"{name}/{what}", 0))
        ]
        if near:
            log.info("Near-duplicates, %s, of %s pairs: %s.", name, f"{len(text):,}", ", ".join(near))
    leaks = corpus.counts.get("leaked_pairs", 0)
    if leaks and not corpus.counts.get("dropped_leaks", 0):
        held_out = len(corpus.validation) + sum(map(len, corpus.tests.values()))
        log.warning(
            "%s of %s pairs of validation and test are training pairs too: scores over them say little. "
            "dataset=parallel can take such pairs out of training, dataset.on_leak=drop.",
            f"{leaks:,}",
            f"{held_out:,}",
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
    ) -> None:
        self.folder = folder
        self.text = text
        self.tokenizers = tokenizers
        self.tracker = tracker
        self.samples = samples
        self.join = join

    def validation(self, evaluation: Evaluation, update: int) -> None:
        """Log a validation's figures, show its sample translations, draw their attention."""
        self.tracker.metrics(evaluation.values, update)
        log.info("Validation at update %s: %s", f"{update:,}", figures_line(evaluation.values))
        rows = [(self.text.source[i], self.text.target[i], evaluation.translations[i]) for i in self.samples]
        if not rows:
            return
        report.say(report.sample_translations(rows))
        scored = [[*row, sentence_bleu(row[2], row[1])] for row in rows]
        self.tracker.table("val/translations", TRANSLATION_COLUMNS, scored, update)
        for number, i in enumerate(self.samples, start=1):
            path = self.folder / f"attention/sample_{number}_step_{update:08d}.png"
            if self.draw(i, evaluation.hypotheses[i], path, update):
                # A name for each sentence: W&B wants the pictures of one name to be of one size.
                self.tracker.images(f"val/attention/{number}", [path], [self.text.source[i]], update)

    def draw(self, i: int, hypothesis: Hypothesis, path: Path, update: int) -> bool:
        """Draw the attention of a hypothesis; False where there is none, or no word to draw.

        A translation that is the reference gets the gold links outlined, where there are gold links.
        """
        weights_TS = hypothesis.weights_TS
        if weights_TS is None:
            return False
        line = self.text.source[i]
        drawn = attention_map(weights_TS, self.tokenizers, line, hypothesis.tokens, self.join)
        if not drawn.target_tokens:
            return False
        links: set[Link] = set()
        if self.text.gold is not None and drawn.output == self.text.target[i]:
            links = gold_links(self.text.gold[i], line, drawn.output, drawn.source_spans, drawn.target_spans)
        title = f"update {update:,}: {line}"
        figure = plots.attention_heatmap(
            drawn.weights_TS, drawn.source_tokens, drawn.target_tokens, title, links
        )
        plots.save_figure(figure, path)
        return True


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


def figures_line(values: Mapping[str, float]) -> str:
    """Return the figures of an evaluation on one line."""
    figures = {name.rpartition("/")[2]: value for name, value in values.items()}
    shown = [f"BLEU {figures['bleu']:.2f}", f"chrF {figures['chrf']:.2f}"]
    if "aer" in figures:
        shown.append(f"AER {figures['aer']:.3f}")
    for mode in ("teacher_forced", "free_running"):
        loss, perplexity = figures[f"loss_{mode}"], figures[f"perplexity_{mode}"]
        shown.append(f"{mode.replace('_', '-')} loss {loss:.3f} (perplexity {perplexity:.4g})")
    return ", ".join(shown)


def show_scores(
    scored: Sequence[tuple[Split, Evaluation]],
    tokenizers: TokenizerPair,
    folder: Path,
    tracker: Tracker,
    update: int,
) -> dict[str, Any]:
    """Log the scores of validation split and test sets, write their translations, return what the result holds."""
    result: dict[str, Any] = {}
    for split, evaluation in scored:
        prefix, text = split.prefix, split.text
        result |= evaluation.values | evaluation.signatures
        result[f"{prefix}/bleu_by_length"] = [asdict(length_bin) for length_bin in evaluation.by_length]
        if evaluation.by_phenomenon:
            result[f"{prefix}/accuracy_by_phenomenon"] = [asdict(row) for row in evaluation.by_phenomenon]
        name = prefix.replace("/", ".")
        rows = write_translations(folder / f"translations.{name}.jsonl", text, evaluation.translations)
        write_attention(folder / f"attention.{name}.jsonl", text, evaluation, tokenizers)
        write_scored_lines(folder / "scored", name, evaluation)
        if prefix != "val":
            tracker.metrics(evaluation.values, update)
            tracker.table(f"{prefix}/translations", TRANSLATION_COLUMNS, rows, update)
            picture = folder / f"bleu_by_length.{name}.png"
            plots.save_figure(plots.bleu_by_length_plot({prefix: evaluation.by_length}), picture)
            tracker.images(f"{prefix}/bleu_by_length", [picture], ["BLEU by source length"], update)
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


def scores_by_split(result: Mapping[str, Any]) -> list[dict[str, dict[str, float | str]]]:
    """Return the test scores of a result as `report.result_table` shows them.

    They are the figures of all sentences, with their 95% confidence where it was measured, BLEU by source length, and exact
    translations by phenomenon.
    """
    figures: dict[str, dict[str, float | str]] = {}
    lengths: dict[str, dict[str, float | str]] = {}
    phenomena: dict[str, dict[str, float | str]] = {}
    for name, value in result.items():
        split, _, measure = name.rpartition("/")
        if split.partition("/")[0] != "test":
            continue
        if measure.endswith("_confidence"):
            continue
        if isinstance(value, float):
            confidence = result.get(f"{name}_confidence")
            shown = value if confidence is None else f"{value:.2f} ± {confidence:.2f}"
            figures.setdefault(measure, {})[split] = shown
        elif measure == "bleu_by_length":
            for row in value:
                low, high, bleu = row["low"], row["high"], row["bleu"]
                words = f"{low}–{high}" if high is not None else f"{low} or more"
                score = "–" if bleu is None else f"{bleu:.2f}"
                cells = lengths.setdefault(f"bleu, {words} words", {})
                cells[split] = f"{score} ({row['count']:,} sentences)"
        elif measure == "accuracy_by_phenomenon":
            for row in value:
                cells = phenomena.setdefault(f"exact, {row['phenomenon']}", {})
                cells[split] = f"{row['accuracy']:.1%} ({row['count']:,} sentences)"
    return [figures, lengths, phenomena]


def resume_command(folder: Path) -> str:
    """Return the command line that goes on with a run."""
    parts = own_parts.folder()
    trust = [] if parts is None else ["--config-dir", str(parts)]
    return shlex.join(["python", "-m", "seq2seq_lab", *trust, f"resume={folder}"])


def signatures(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what each score's signature is called, and the signature."""
    return [
        (f"{name} signature", result[f"test/{name}_signature"])
        for name in SIGNED
        if f"test/{name}_signature" in result
    ]


def say_result(result: Mapping[str, Any], folder: Path, sync: str | None, url: str | None) -> None:
    """Print the closing table: the test scores, where the files are, how to look at them."""
    shown = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    facts: list[tuple[str, str | Path]] = [
        *signatures(result),
        ("parameters", f"{result['num_parameters']:,}"),
    ]
    if (speed := result["train/target_tokens_per_second"]) is not None:
        facts.append(("target tokens/s", f"{speed:,.0f}"))
    training, validation = result["train/seconds"], result["val/seconds"]
    if training:
        facts.append(("training", f"{training:,.0f} s, and {validation:,.0f} s of validation"))
    if url:
        facts.append(("W&B", url))
    translations = sorted(path.name for path in folder.glob("translations.test*.jsonl"))
    named = [
        ("run folder", "."),
        ("scores", "result.json"),
        ("curves", "metrics.jsonl"),
        *(("translations", name) for name in translations),
        ("lines for sacrebleu", "scored"),
        ("attention pictures", "attention"),
        ("BLEU by length", "bleu_by_length.test.png"),
        ("log", "run.log"),
        ("trace of some updates", "profile/trace.json.gz"),
    ]
    facts += [(what, shown / name) for what, name in named if (folder / name).exists()]
    commands = [f"{resume_command(shown)} trainer.max_epochs=N  # train longer"]
    if sync is not None:
        look = f"wandb leet {shlex.quote(str(shown / 'wandb'))}  # look at the curves, in the terminal"
        commands = [look, f"{sync}  # send the record to W&B", *commands]
    report.say(report.result_table(scores_by_split(result), facts, commands))
