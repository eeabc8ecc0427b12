"""The report of translation: tables of the corpus, sample translations, heatmaps of attention, files of translations."""

import logging
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from seq2seq_lab import plots
from seq2seq_lab.data.corpus import Corpus, Gold, ParallelText
from seq2seq_lab.data.near_duplicates import NEAR_DUPLICATES
from seq2seq_lab.data.text import describe_counts
from seq2seq_lab.data.tokenized import TokenizedCorpus
from seq2seq_lab.data.tokenizers import TokenizerPair
from seq2seq_lab.files import write_atomically, write_json_lines
from seq2seq_lab.metrics.alignment import (
    AttentionMap,
    Link,
    Span,
    attention_map,
    group_tokens,
    word_spans,
)
from seq2seq_lab.metrics.bleu import SENTENCE_BLEU_NOTE, sentence_bleu
from seq2seq_lab.runtime import console, shades
from seq2seq_lab.search.base import Hypothesis
from seq2seq_lab.tasks.base import Report
from seq2seq_lab.tasks.decoded import DecodedEvaluation
from seq2seq_lab.tasks.splits import prefixes_of_tests
from seq2seq_lab.tasks.translation.evaluation import TranslationSplit, source_lengths_in_words
from seq2seq_lab.tracking import Tracker

if TYPE_CHECKING:
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)

UNKNOWN_WARNING = 0.25  # share of unknown training tokens that suggests the wrong text or tokenizer
ROOM = 1.25  # output tokens that fit in a heatmap of fixed size, relative to those of the reference
EXAMPLES = 3  # tokenized training pairs shown before training
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
        "note": SENTENCE_BLEU_NOTE,
    },
    "heatmaps": {
        "file": "attention.test.jsonl",
        "columns": {
            "title": "source",
            "columns": "source_tokens",
            "rows": "target_tokens",
            "weights": "weights",
            "links": "gold_links",
        },
    },
}
TRANSLATION_COLUMNS = ("source", "reference", "hypothesis", "sentence BLEU")


def describe(corpus: Corpus, tokenized: TokenizedCorpus) -> None:
    """Print tables of the corpus and of some tokenized pairs, and warn about problems of the data."""
    pair = tokenized.tokenizers
    held_out = {"validation": corpus.validation, **corpus.tests}
    _print_sizes(corpus, tokenized, held_out)
    _print_near_duplicates(corpus, held_out)
    sources, targets = corpus.train.source[:EXAMPLES], corpus.train.target[:EXAMPLES]
    source_tokens = map(pair.source.tokens, pair.source.encode(sources))
    target_tokens = map(pair.target.tokens, pair.target.encode(targets))
    pairs = [
        {"source": " ".join(source), "target": " ".join(target)}
        for source, target in zip(source_tokens, target_tokens, strict=True)
    ]
    console.print_and_log(console.records_table("tokenized pairs", pairs))
    _log_problems(corpus, tokenized, sum(map(len, held_out.values())))


def _print_sizes(corpus: Corpus, tokenized: TokenizedCorpus, held_out: Mapping[str, ParallelText]) -> None:
    """Print the pairs of each split, the share of unknown tokens on each side, and the size of the vocabularies."""
    sizes = {"source": tokenized.tokenizers.source.size, "target": tokenized.tokenizers.target.size}
    rates = tokenized.unknown_rate
    labels = prefixes_of_tests(corpus.tests)
    rows = []
    for name, text in {"train": corpus.train, **held_out}.items():
        key = f"test/{name}" if name in labels else name
        unknown = (f"{rates[f'{key}/{side}']:.2%}" for side in sizes)
        rows.append([labels.get(name, name), f"{len(text):,}", *unknown])
    vocabulary = ["vocabulary", "", *(f"{size:,} types" for size in sizes.values())]
    heads = ["split", "pairs", *(f"unknown in {side}" for side in sizes)]
    console.print_and_log(console.sectioned_table("corpus", heads, [rows, [vocabulary]]))


def _print_near_duplicates(corpus: Corpus, held_out: Mapping[str, ParallelText]) -> None:
    """Print how many pairs of each held-out split are near-duplicates of training pairs, by kind."""
    labels = prefixes_of_tests(corpus.tests)
    rows, total = [], 0
    for name, text in held_out.items():
        counts = [corpus.counts.get(f"{name}/{kind}", 0) for kind in NEAR_DUPLICATES]
        total += sum(counts)
        cells = (f"{count:,} ({count / len(text):.1%})" if count else "–" for count in counts)
        rows.append([labels.get(name, name), *cells])
    if total:
        heads = ["split", *(kind.replace("_", " ") for kind in NEAR_DUPLICATES)]
        console.print_and_log(console.sectioned_table("near-duplicates", heads, [rows]))


def _log_problems(corpus: Corpus, tokenized: TokenizedCorpus, held_out: int) -> None:
    if counts := describe_counts(corpus.counts):
        log.info("Counted in the corpus: %s.", counts)
    leaks = corpus.counts.get("leaked_pairs", 0)
    if leaks and not corpus.counts.get("dropped_leaks", 0):
        log.warning(
            "%s of %s pairs of validation and test are also training pairs, which makes their scores too high. With "
            "dataset=parallel, dataset.on_leak=drop removes such pairs from training.",
            f"{leaks:,}",
            f"{held_out:,}",
        )
    for name, rate in tokenized.unknown_rate.items():
        if name.startswith("train/") and rate > UNKNOWN_WARNING:
            log.warning(
                "%.0f%% of the tokens of %s are unknown. Check the text and the tokenizer.", 100 * rate, name
            )


class TranslationReport(Report):
    """Shows the same few validation sentences at each validation, and writes the files of the final evaluation.

    Args:
        join: draw attention over words instead of subwords.
    """

    page = PAGE

    def __init__(self, folder: Path, tokenizers: TokenizerPair, tracker: Tracker, join: bool) -> None:
        self.folder = folder
        self.tokenizers = tokenizers
        self.tracker = tracker
        self.join = join

    def validation(self, split: TranslationSplit, evaluation: DecodedEvaluation, step: int) -> None:
        """Show sample translations and draw their attention."""
        text, samples = split.text, evaluation.samples
        rows = [(text.source[i], text.target[i], evaluation.texts[i]) for i in samples]
        if not rows:
            return
        records = [dict(zip(TRANSLATION_COLUMNS[:3], row, strict=True)) for row in rows]
        console.print_and_log(console.records_table("translations", records))
        scored = [[*row, sentence_bleu(row[2], row[1], tokenizer=split.segmentation.bleu)] for row in rows]
        self.tracker.log_table("val/translations", TRANSLATION_COLUMNS, scored, step)
        for number, i in enumerate(samples, start=1):
            path = self.folder / f"attention/sample_{number}_step_{step:08d}.png"
            figure = self.heatmap(text, i, evaluation.hypotheses[i], step)
            if figure is not None:
                plots.save_figure(figure, path)
                # One name per sentence, because W&B expects pictures of one name to have one size.
                self.tracker.log_images(f"val/attention/{number}", [path], [text.source[i]], step)
        drawn = self._attention_rows(text, {i: evaluation.hypotheses[i] for i in samples})
        if drawn:
            path = self.folder / f"attention/step_{step:08d}.jsonl"
            path.parent.mkdir(exist_ok=True)  # empty outputs have weights and no picture
            write_json_lines(path, drawn)

    def end(self, evaluations: Sequence[tuple[TranslationSplit, DecodedEvaluation]], step: int) -> None:
        """Write the translations, attention weights and scored lines, and draw the attention of the samples."""
        for split, evaluation in evaluations:
            name, text = split.prefix.replace("/", "."), split.text
            rows = write_translations(self.folder / f"translations.{name}.jsonl", split, evaluation)
            if drawn := self._attention_rows(text, evaluation.hypotheses):
                write_json_lines(self.folder / f"attention.{name}.jsonl", drawn)
            write_scored_lines(self.folder / "scored", name, evaluation)
            if split.prefix == "val":
                self._draw_samples(split, evaluation)
            else:
                self.tracker.log_table(f"{split.prefix}/translations", TRANSLATION_COLUMNS, rows, step)
            if split.prefix == "test":
                self._draw_worst(split, evaluation)

    def worst_outputs(self, split: TranslationSplit, evaluation: DecodedEvaluation) -> list[dict[str, Any]]:
        """See `Report.worst_outputs`; `attention` is the file with the weights."""
        text, file = split.text, f"attention.{split.prefix.replace('/', '.')}.jsonl"
        return [
            {
                "source": text.source[one.pair],
                "reference": text.target[one.pair],
                "hypothesis": evaluation.texts[one.pair],
                **one.record(file if self._has_attention(evaluation, one.pair) else None),
            }
            for one in evaluation.worst
        ]

    def _has_attention(self, evaluation: DecodedEvaluation, pair: int) -> bool:
        hypothesis = evaluation.hypotheses.get(pair)
        return hypothesis is not None and hypothesis.weights_TS is not None

    def _draw_samples(self, split: TranslationSplit, evaluation: DecodedEvaluation) -> None:
        self._show_attention(split.text, evaluation)
        for number, i in enumerate(evaluation.samples, start=1):
            figure = self.heatmap(split.text, i, evaluation.hypotheses[i], None)
            if figure is not None:
                plots.save_for_print(figure, self.folder / f"attention/sample_{number}.png")

    def _draw_worst(self, split: TranslationSplit, evaluation: DecodedEvaluation) -> None:
        for number, one in enumerate(evaluation.worst, start=1):
            hypothesis = evaluation.hypotheses.get(one.pair)
            figure = None if hypothesis is None else self.heatmap(split.text, one.pair, hypothesis, None)
            if figure is not None:
                plots.save_for_print(figure, self.folder / f"attention/worst_{number}.png")

    def _show_attention(self, text: ParallelText, evaluation: DecodedEvaluation) -> None:
        """Print the attention of a sample that is not too wide: of the first correct one if there is one."""
        drawn = [self._attention(text, i, evaluation.hypotheses[i], True) for i in evaluation.samples]
        shown = [
            (one, links)
            for one, links in drawn
            if one is not None and one.target_tokens and _width(one) <= console.PLAIN_WIDTH
        ]
        for one, links in sorted(shown, key=lambda pair: not pair[1])[:1]:
            title = f"attention (darker: higher weight{'; [ ]: gold alignment' if links else ''})"
            matrix = shades.shade_matrix(one.source_tokens, one.target_tokens, one.weights_TS.tolist(), links)
            console.print_and_log(shades.text_lines([title, *matrix]))

    def heatmap(
        self, text: ParallelText, i: int, hypothesis: Hypothesis, step: int | None
    ) -> "Figure | None":
        """Return a picture of the attention of a hypothesis; None without attention or without a token.

        Gold links are outlined if the translation equals the reference.

        Args:
            i: the number of the sentence in the text.
            step: shown in the picture; all pictures of a sentence then have the same size. None for a picture that is as
                large as the translation needs.
        """
        line, reference = text.source[i], text.target[i]
        drawn, links = self._attention(text, i, hypothesis, self.join)
        if drawn is None or not drawn.target_tokens:
            return None
        notes = ["outlined: gold alignment"] if links else []
        room = None
        if step is not None:
            notes.insert(0, f"step {step:,}")
            # A row per word, or per token with <eos>.
            own = (
                len(self.tokenizers.target.units(reference))
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

    def _attention(
        self, text: ParallelText, i: int, hypothesis: Hypothesis, join: bool
    ) -> tuple[AttentionMap | None, set[Link]]:
        """Return the attention of a hypothesis, and the gold links between its cells if it equals the reference."""
        if hypothesis.weights_TS is None:
            return None, set()
        line = text.source[i]
        drawn = attention_map(hypothesis.weights_TS, self.tokenizers, line, hypothesis.tokens, join)
        links: set[Link] = set()
        if text.gold is not None and drawn.output == text.target[i]:
            links = gold_links(text.gold[i], line, drawn.output, drawn.source_spans, drawn.target_spans)
        return drawn, links

    def _attention_rows(
        self, text: ParallelText, hypotheses: Mapping[int, Hypothesis]
    ) -> list[dict[str, object]]:
        """Return the attention weights of hypotheses for JSON, with a row of weights per target token."""
        rows: list[dict[str, object]] = []
        for i, hypothesis in sorted(hypotheses.items()):
            drawn, links = self._attention(text, i, hypothesis, False)
            if drawn is not None:
                rows.append(
                    {
                        "source": text.source[i],
                        "hypothesis": drawn.output,
                        "source_tokens": drawn.source_tokens,
                        "target_tokens": drawn.target_tokens,
                        "weights": [[round(float(weight), 3) for weight in row] for row in drawn.weights_TS],
                        "gold_links": sorted(links),
                    }
                )
        return rows


def _width(drawn: AttentionMap) -> int:
    """Return the width of `shades.shade_matrix` in columns."""
    return sum(cell_len(token) + 2 for token in drawn.source_tokens) + max(map(cell_len, drawn.target_tokens))


def gold_links(
    gold: Gold, source: str, target: str, columns: Sequence[Span], rows: Sequence[Span]
) -> set[Link]:
    """Return the (column, row) cells of a heatmap that correspond to gold links; column 0 is `<sos>`."""
    source_groups = group_tokens(columns, word_spans(source, gold.source_words))
    target_groups = group_tokens(rows, word_spans(target, gold.target_words))
    return {
        (column + 1, row)
        for source_word, target_word in gold.links
        for column in source_groups[source_word]
        for row in target_groups[target_word]
    }


def write_translations(
    path: Path, split: TranslationSplit, evaluation: DecodedEvaluation
) -> list[list[object]]:
    """Write all translations of a split as JSON lines; return the rows of `TRANSLATION_COLUMNS`."""
    text, score = split.text, partial(sentence_bleu, tokenizer=split.segmentation.bleu)
    rows: list[list[object]] = [
        [source, reference, hypothesis, round(score(hypothesis, reference), 2)]
        for source, reference, hypothesis in zip(text.source, text.target, evaluation.texts, strict=True)
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


def write_scored_lines(folder: Path, name: str, evaluation: DecodedEvaluation) -> None:
    """Write the scored hypotheses and references, one per line, for `sacrebleu REFERENCES… -i HYPOTHESES`."""
    folder.mkdir(exist_ok=True)
    for kind, sides in evaluation.scored_lines.items():
        more = [f"references.{number}" for number in range(2, len(sides))]
        for side, lines in zip(("hypotheses", "references", *more), sides, strict=True):
            write_atomically(folder / f"{name}{kind}.{side}.txt", "".join(f"{line}\n" for line in lines))
