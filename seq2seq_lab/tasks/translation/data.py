"""The evaluation splits of a translation corpus."""

from collections.abc import Mapping
from dataclasses import fields, replace

import torch

from seq2seq_lab.data.corpus import Corpus, Dataset, ParallelText
from seq2seq_lab.data.tables import find_line
from seq2seq_lab.data.tokenized import TokenizedText
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.segmentation import Segmentation, choose_segmentation
from seq2seq_lab.tasks.translation.evaluation import TranslationSplit


def evaluation_splits(
    corpus: Corpus,
    validation: TokenizedText,
    tests: Mapping[str, TokenizedText],
    segmentation: Segmentation,
    limit: int | None = None,
) -> list[TranslationSplit]:
    """Return the validation split and the test splits; see `prefixes_of_tests`.

    Args:
        segmentation: see `segmentation_of`.
        limit: the number of sentences of each split; None for all.
    """
    language = corpus.target_language
    splits = [TranslationSplit("val", corpus.validation, validation, language, segmentation)]
    for name, prefix in prefixes_of_tests(corpus).items():
        splits.append(TranslationSplit(prefix, corpus.tests[name], tests[name], language, segmentation))
    return splits if limit is None else [_first_sentences(split, limit) for split in splits]


def segmentation_of(corpus: Corpus, setting: str) -> Segmentation:
    """Return how the references of the validation and test splits are cut into words; see `choose_segmentation`."""
    references = [text.target for text in (corpus.validation, *corpus.tests.values())]
    return choose_segmentation(setting, corpus.target_language, references)


def prefixes_of_tests(corpus: Corpus) -> dict[str, str]:
    """Return the prefix of the metrics of each test set: `test` for the first one, `test/NAME` for the others."""
    prefixes: dict[str, str] = {}
    for name in corpus.tests:
        short = name.removeprefix("test_")
        prefixes[name] = f"test/{name if short in corpus.tests else short}" if prefixes else "test"
    return prefixes


def check_lengths(
    name: str, text: ParallelText, tokens: TokenizedText, max_length: int, dataset: Dataset
) -> None:
    """Refuse a held-out pair that is too long.

    Args:
        max_length: the maximum number of tokens on a side, without `<sos>` and `<eos>`.
        dataset: the data set that the text comes from; the message names the line of its files.

    Raises:
        UserError: names the pair.
    """
    for side in ("source", "target"):
        lengths = getattr(tokens, side).lengths - 2
        if len(lengths) and int(lengths.max()) > max_length:
            pair = int(lengths.argmax())
            sentence = getattr(text, side)[pair]
            place = find_line(dataset, name, sentence) or f"pair {pair + 1}"
            raise UserError(
                f"{name}: the {side} of {place} has {int(lengths.max()):,} tokens: {sentence[:40]!r}…; "
                f"trainer.max_eval_length={max_length}. Shorten or remove the pair, or increase "
                f"trainer.max_eval_length: the memory grows with the square of the length."
            )


def _first_sentences(split: TranslationSplit, count: int) -> TranslationSplit:
    text = split.text
    columns = {field.name: getattr(text, field.name) for field in fields(text)}
    cut = replace(text, **{name: column and column[:count] for name, column in columns.items()})
    return replace(split, text=cut, tokens=split.tokens.select(torch.arange(min(count, len(text)))))
