"""The report of translation: tables of the corpus, sample translations, heatmaps of attention, files of translations."""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seq2seq_lab import plots
from seq2seq_lab.data.corpus import Corpus, Gold, ParallelText, word_spans
from seq2seq_lab.data.near_duplicates import NEAR_DUPLICATES
from seq2seq_lab.data.text import describe_counts
from seq2seq_lab.data.tokenized import TokenizedCorpus
from seq2seq_lab.data.tokenizers import TokenizerPair
from seq2seq_lab.data.words import is_unspaced
from seq2seq_lab.metrics.alignment import (
    AER_ROWS,
    AttentionMap,
    Link,
    Span,
    attention_map,
    best_rows,
    group_tokens,
)
from seq2seq_lab.metrics.bleu import SENTENCE_BLEU_NOTE, sentence_bleu
from seq2seq_lab.runtime import console, shades
from seq2seq_lab.runtime.tables import records_table, sectioned_table
from seq2seq_lab.tasks.decoded import DecodedEvaluation
from seq2seq_lab.tasks.report import Examples, Heatmap, Heatmaps, Picture, Report
from seq2seq_lab.tasks.splits import dotted, prefixes_of_tests
from seq2seq_lab.tasks.text import warn_if_mostly_unknown
from seq2seq_lab.tasks.translation.evaluation import TranslationSplit, source_length_in_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)

UNKNOWN_OF_OTHERS = 0.5  # of validation and test
SAMPLED = 100  # lines of a split
UNKNOWN_WARNING = 0.25  # share of unknown training tokens that suggests the wrong text or tokenizer
ROOM = 1.25  # output tokens that fit in a heatmap of fixed size, relative to those of the reference
SHORT = 10  # words of a sample whose attention is printed at the end, if there is one
EXAMPLES = 3  # tokenized training pairs shown before training
COLUMNS = {"input": "source", "reference": "reference", "output": "hypothesis", "score": "sentence_bleu"}
HEATMAP_KEYS = {
    "title": "source",
    "columns": "source_tokens",
    "rows": "target_tokens",
    "weights": "weights",
    "links": "gold_links",
}


def describe(corpus: Corpus, tokenized: TokenizedCorpus) -> None:
    """Print tables of the corpus and of some tokenized pairs, and warn about problems of the data.

    Of the training split of `corpus`, only the first pairs are needed.
    """
    pair = tokenized.tokenizers
    held_out = {"validation": corpus.validation, **corpus.tests}
    _print_sizes(corpus, tokenized, held_out)
    _print_near_duplicates(corpus, held_out)
    sources, targets = corpus.train.source[:EXAMPLES], corpus.train.target[:EXAMPLES]
    pairs = [
        {
            side: " ".join(one.tokens(one.encode([line])[0]))
            for side, one, line in (("source", both.source, source), ("target", both.target, target))
        }
        for source, target in zip(sources, targets, strict=True)
        for both in (pair.for_source(source),)
    ]
    console.print_and_log(records_table("tokenized pairs", pairs))
    _log_problems(corpus, tokenized, sum(map(len, held_out.values())))


def _print_sizes(corpus: Corpus, tokenized: TokenizedCorpus, held_out: Mapping[str, ParallelText]) -> None:
    """Print the pairs of each split, the share of unknown tokens on each side, and the size of the vocabularies."""
    types = {"source": tokenized.tokenizers.source.size, "target": tokenized.tokenizers.target.size}
    sizes = {"train": len(tokenized.train), **{name: len(text) for name, text in held_out.items()}}
    rates = tokenized.unknown_rate
    labels = prefixes_of_tests(corpus.tests)
    rows = []
    for name, size in sizes.items():
        key = f"test/{name}" if name in labels else name
        unknown = (f"{rates[f'{key}/{side}']:.2%}" for side in types)
        rows.append([labels.get(name, name), f"{size:,}", *unknown])
    vocabulary = ["vocabulary", "", *(f"{count:,} types" for count in types.values())]
    heads = ["split", "pairs", *(f"unknown in {side}" for side in types)]
    console.print_and_log(sectioned_table("corpus", heads, [rows, [vocabulary]]))
    for side in types:
        warn_if_mostly_unknown(rates[f"train/{side}"], f"{side} side of training")


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
        console.print_and_log(sectioned_table("near-duplicates", heads, [rows]))


def _log_problems(corpus: Corpus, tokenized: TokenizedCorpus, held_out: int) -> None:
    if counts := describe_counts(corpus.counts):
        log.info("Counted in the corpus: %s.", counts)
    leaks = corpus.counts.get("leaked_pairs", 0)
    if leaks and not corpus.counts.get("dropped_leaks", 0):
        log.warning(
            "%s of %s pairs of validation and test are also training pairs, which makes their scores too high. With "
            "dataset=parallel, dataset.on_leak=drop removes training pairs with a source of validation or test.",
            f"{leaks:,}",
            f"{held_out:,}",
        )
    for name, rate in tokenized.unknown_rate.items():
        if rate <= (UNKNOWN_WARNING if name.startswith("train/") else UNKNOWN_OF_OTHERS):
            continue
        split, _, side = name.rpartition("/")
        text = corpus.splits[split.removeprefix("test/")]
        lines = getattr(text, side)[:SAMPLED]
        remedy = "Check the text and the tokenizer"
        if is_unspaced(lines):
            remedy = "It has no spaces between words: choose tokenizer=bpe or char"
        log.warning("%.0f%% of the tokens of %s are unknown. %s.", 100 * rate, name, remedy)


@dataclass(frozen=True)
class TranslationReport:
    """The report of the evaluation of a split.

    Args:
        join: draw attention over words instead of subwords.
    """

    split: TranslationSplit
    evaluation: DecodedEvaluation
    tokenizers: TokenizerPair
    join: bool

    def validation(self, step: int) -> Report:
        """Return the samples of a validation and their attention."""
        samples = self.evaluation.samples
        return Report(
            examples=self._examples(samples),
            pictures=self._pictures("sample", samples, step),
        )

    def end(self) -> Report:
        """Return all translations, the kept attention weights and the scored lines."""
        prefix, evaluation = self.split.prefix, self.evaluation
        shown: dict[str, Any] = {}
        if prefix == "val":
            samples = evaluation.samples
            shown = {"lines": self._attention_lines(), "pictures": self._pictures("sample", samples, None)}
            if (rows := best_rows(evaluation.values)) is not None:
                shown["entries"] = {AER_ROWS: rows}
        elif prefix == "test":
            worst = [one.pair for one in evaluation.worst]
            shown = {"pictures": self._pictures("worst", worst, None)}
        if prefix != "val":
            shown["worst"] = self._worst()
        return Report(
            examples=self._examples(range(len(evaluation.texts))),
            heatmaps=self.heatmaps(sorted(evaluation.hypotheses)),
            files=scored_files(dotted(prefix), evaluation),
            **shown,
        )

    def _examples(self, indices: Sequence[int]) -> Examples:
        text, rows = self.split.text, []
        for i in indices:
            source, reference, hypothesis = text.source[i], text.target[i], self.evaluation.texts[i]
            score = sentence_bleu(hypothesis, reference, tokenizer=self.split.segmentation.bleu)
            row: dict[str, Any] = {"source": source, "reference": reference, "hypothesis": hypothesis}
            row |= {"sentence_bleu": round(score, 2), "source_words": source_length_in_words(text, i)}
            if text.phenomena is not None:
                row["phenomena"] = ", ".join(sorted(text.phenomena[i]))
            rows.append(row)
        return Examples(name="translations", rows=rows, columns=COLUMNS, note=SENTENCE_BLEU_NOTE)

    def _worst(self) -> list[dict[str, Any]]:
        """Return the entries of the worst outputs; `attention` is the file with their weights."""
        file, rows = f"attention.{dotted(self.split.prefix)}.jsonl", []
        for one in self.evaluation.worst:
            texts = {
                "source": self.split.text.source[one.pair],
                "reference": self.split.text.target[one.pair],
                "hypothesis": self.evaluation.texts[one.pair],
            }
            rows.append({**texts, **one.record(file if self._attention(one.pair, False)[0] else None)})
        return rows

    def _attention_lines(self) -> list[str]:
        """Return the attention of a short sample as lines: of the first correct one if there is one."""
        drawn = [self._attention(i, True) for i in self.evaluation.samples]
        shown = [(one, links) for one, links in drawn if one is not None and one.target_tokens]
        shown.sort(key=lambda pair: (not pair[1], max(SHORT, len(pair[0].target_tokens))))
        for one, links in shown[:1]:
            title = f"attention (darker: higher weight{'; [ ]: gold alignment' if links else ''})"
            matrix = shades.shade_matrix(one.source_tokens, one.target_tokens, one.weights_TS.tolist(), links)
            return [title, *matrix]
        return []

    def _pictures(self, kind: str, indices: Sequence[int], step: int | None) -> list[Picture]:
        """Return the heatmaps of some sentences as figures, without those that have none."""
        return [
            Picture(
                file=f"attention/{kind}_{n}",
                figure=figure,
                title=self.split.text.source[i],
                logged=None if step is None else f"attention/{n}",
            )
            for n, i in enumerate(indices, start=1)
            if (figure := self.figure(i, step)) is not None
        ]

    def figure(self, i: int, step: int | None) -> "Figure | None":
        """Return the attention of a hypothesis as a figure; None without attention or without a token.

        Gold links are outlined if the translation equals the reference.

        Args:
            i: the index of the sentence in the split.
            step: shown in the figure; all figures of a sentence then have the same size. None for a figure that is as
                large as the translation needs.
        """
        line, reference, tokenizer = (
            self.split.text.source[i],
            self.split.text.target[i],
            self.tokenizers.target,
        )
        drawn, links = self._attention(i, self.join)
        if drawn is None or not drawn.target_tokens:
            return None
        notes = ["outlined: gold alignment"] if links else []
        room = None
        if step is not None:
            notes.insert(0, f"step {step:,}")
            # A row per word, or per token with <eos>.
            own = len(tokenizer.units(reference)) if self.join else 1 + len(tokenizer.encode([reference])[0])
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

    def _attention(self, i: int, join: bool) -> tuple[AttentionMap | None, set[Link]]:
        """Return the kept attention of a sentence, and the gold links between its cells if the output is the reference."""
        hypothesis, text = self.evaluation.hypotheses.get(i), self.split.text
        if hypothesis is None or hypothesis.weights_TS is None:
            return None, set()
        line = text.source[i]
        drawn = attention_map(
            hypothesis.weights_TS, self.tokenizers.for_source(line), line, hypothesis.tokens, join
        )
        links: set[Link] = set()
        if text.gold is not None and drawn.output == text.target[i]:
            links = gold_links(text.gold[i], line, drawn.output, drawn.source_spans, drawn.target_spans)
        return drawn, links

    def heatmaps(self, indices: Sequence[int]) -> Heatmaps:
        """Return the attention weights of some sentences, with a row of weights per target token."""
        maps = []
        for i in indices:
            drawn, links = self._attention(i, False)
            if drawn is not None:
                maps.append(
                    Heatmap(
                        title=self.split.text.source[i],
                        columns=drawn.source_tokens,
                        rows=drawn.target_tokens,
                        weights=drawn.weights_TS.tolist(),
                        links=sorted(links),
                    )
                )
        return Heatmaps(maps=maps, keys=HEATMAP_KEYS)


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


def scored_files(name: str, evaluation: DecodedEvaluation) -> dict[str, str]:
    """Return the scored hypotheses and references, one per line, for `sacrebleu REFERENCES… -i HYPOTHESES`, by file."""
    files = {}
    for kind, sides in evaluation.scored_lines.items():
        more = [f"references.{index}" for index in range(2, len(sides))]
        for side, lines in zip(("hypotheses", "references", *more), sides, strict=True):
            files[f"scored/{name}{kind}.{side}.txt"] = "".join(f"{line}\n" for line in lines)
    return files
