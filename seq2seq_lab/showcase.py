"""What a run shows of itself: tables before training, translations and heatmaps during it, results after it."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from seq2seq_lab import plots, report
from seq2seq_lab.alignment import group_tokens, join_subwords, whitespace_words
from seq2seq_lab.checkpoint import write_atomically
from seq2seq_lab.data.corpus import Corpus, ParallelText
from seq2seq_lab.data.tokenized import TokenizedCorpus
from seq2seq_lab.data.tokenizers import TokenizerPair
from seq2seq_lab.scores import Score, sentence_bleu
from seq2seq_lab.search.base import Hypothesis
from seq2seq_lab.task import Evaluation
from seq2seq_lab.tracker import Tracker

log = logging.getLogger(__name__)


def describe(model: nn.Module, corpus: Corpus, tokenized: TokenizedCorpus, machine: str) -> int:
    """Say what is about to be trained, and return the number of parameters."""
    rows = component_parameters(model)
    report.say(report.parameter_table(rows))
    pair = tokenized.tokenizers
    splits = {"train": corpus.train, "validation": corpus.validation, **{f"test/{k}": v for k, v in corpus.tests.items()}}
    report.say(
        report.corpus_table(
            {name: len(text) for name, text in splits.items()},
            {"source": pair.source.size, "target": pair.target.size},
            tokenized.unknown_rate,
        )
    )
    examples = list(zip(corpus.train.source[:3], corpus.train.target[:3], strict=True))
    report.say(
        report.pairs_table(
            [
                (pair.source.tokens(pair.source.encode([s])[0]), pair.target.tokens(pair.target.encode([t])[0]))
                for s, t in examples
            ]
        )
    )
    for what, count in corpus.counts.items():
        log.info("%s: %s", what, f"{count:,}")
    log.info("Computing on %s.", machine)
    return sum(parameters for _, parameters, _ in rows)


def component_parameters(model: nn.Module) -> list[tuple[str, int, int]]:
    """Return (component, parameters, trainable ones); a tensor that components share counts for the first."""
    seen: set[int] = set()
    rows = []

    def count(name: str, module: nn.Module, below: Sequence[str]) -> None:
        for child in below:
            count(f"{name}.{child}", module.get_submodule(child), ())
        new = [p for p in module.parameters() if id(p) not in seen]
        seen.update(map(id, new))
        if new or not below:
            trainable = sum(p.numel() for p in new if p.requires_grad)
            rows.append((name, sum(p.numel() for p in new), trainable))

    for name, child in model.named_children():
        if any(True for _ in child.parameters()):
            count(name, child, [n for n, c in child.named_children() if name == "decoder" and any(True for _ in c.parameters())])
    return rows


class Showcase:
    """Shows the same few validation sentences at each validation, and writes what the test gave.

    Args:
        samples: the sentences' numbers in the split.
        join: draw words instead of the tokenizer's subwords.
    """

    def __init__(
        self, folder: Path, text: ParallelText, tokenizers: TokenizerPair, tracker: Tracker, samples: Sequence[int], join: bool
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
        self.tracker.table(
            "val/translations",
            ["source", "reference", "hypothesis", "sentence BLEU"],
            [[*row, sentence_bleu(row[2], row[1])] for row in rows],
            update,
        )
        drawn = [
            (path, rows[n][0])
            for n, i in enumerate(self.samples)
            if (path := self.draw(i, evaluation.hypotheses[i], f"attention/sample_{n + 1}_step_{update:08d}.png", update))
        ]
        if drawn:
            self.tracker.images("val/attention", [path for path, _ in drawn], [caption for _, caption in drawn], update)

    def draw(self, i: int, hypothesis: Hypothesis, name: str, update: int) -> Path | None:
        """Draw the attention of a hypothesis, if the model attends; return the picture's path."""
        if hypothesis.weights_TS is None:
            return None
        source, target = self.tokenizers.source, self.tokenizers.target
        line = self.text.source[i]
        weights_TS = hypothesis.weights_TS
        rows = target.tokens(hypothesis.tokens) + ["<eos>"] * (len(weights_TS) - len(hypothesis.tokens))
        columns = ["<sos>", *source.tokens(source.encode([line])[0]), "<eos>"]
        if self.join:
            output, output_spans = target.decode_spans(hypothesis.tokens)
            source_words, target_words = whitespace_words(line), whitespace_words(output)
            source_groups = group_tokens(source.spans(line), source_words)
            target_groups = group_tokens(output_spans, target_words)
            weights_TS = join_subwords(
                weights_TS,
                [[0], *([token + 1 for token in group] for group in source_groups), [weights_TS.shape[1] - 1]],
                target_groups,
            ) if target_words else weights_TS[:0]
            columns = ["<sos>", *(line[a:b] for a, b in source_words), "<eos>"]
            rows = [output[a:b] for a, b in target_words]
        if not rows:
            return None
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        plots.save_figure(plots.attention_heatmap(weights_TS, columns, rows, f"update {update:,}: {line}"), path)
        return path


def figures_line(values: Mapping[str, float]) -> str:
    """Return the figures of an evaluation on one line, without their prefix."""
    return "  ".join(f"{name.split('/')[-1].replace('_', ' ')} {value:.3f}" for name, value in values.items())


def write_translations(path: Path, text: ParallelText, evaluation: Evaluation) -> list[list[object]]:
    """Write every translation of a split as JSON lines and return the rows (source, reference, hypothesis, BLEU)."""
    rows: list[list[object]] = [
        [source, reference, hypothesis, round(sentence_bleu(hypothesis, reference), 2)]
        for source, reference, hypothesis in zip(text.source, text.target, evaluation.translations, strict=True)
    ]
    names = ("source", "reference", "hypothesis", "sentence_bleu")
    write_atomically(path, "".join(json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) + "\n" for row in rows))
    return rows


def evaluation_result(evaluation: Evaluation, prefix: str) -> dict[str, Any]:
    """Return what `result.json` holds of an evaluation."""
    return {
        **evaluation.values,
        **evaluation.signatures,
        f"{prefix}/bleu_by_length": [asdict(length_bin) for length_bin in evaluation.by_length],
    }


def say_result(result: Mapping[str, Any], prefix: str, folder: Path, sync: str | None, url: str | None) -> None:
    """Print the closing table: scores, where the files are, how to look at them."""
    scores: dict[str, float | int | str | Score] = {"parameters": result["num_parameters"]}
    for name, value in result.items():
        if name.startswith(f"{prefix}/") and isinstance(value, float):
            signature = result.get(f"{name}_signature")
            scores[name] = value if signature is None else Score(value, signature)
    scores["target tokens/s"] = int(result["train/target_tokens_per_second"])
    for length_bin in result[f"{prefix}/bleu_by_length"]:
        high = length_bin["high"]
        label = f"{length_bin['low']}–{high} words" if high is not None else f"{length_bin['low']} words and more"
        value = "–" if length_bin["bleu"] is None else f"{length_bin['bleu']:.2f}"
        scores[f"BLEU, {label}"] = f"{value} ({length_bin['count']} sentences)"
    files = [
        (what, folder / name)
        for what, name in (
            ("run folder", "."),
            ("scores", "result.json"),
            ("translations", "translations.test.jsonl"),
            ("attention", "attention"),
            ("log", "run.log"),
        )
        if (folder / name).exists()
    ]
    if url:
        scores["W&B"] = url
    commands = [f"python -m seq2seq_lab resume={folder} trainer.max_epochs=N     # train longer"]
    report.say(report.result_table(scores, files, [*([sync] if sync else []), *commands]))
