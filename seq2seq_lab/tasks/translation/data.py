"""The evaluation splits of a translation corpus."""

from collections.abc import Mapping
from dataclasses import fields, replace

import torch

from seq2seq_lab.data.corpus import Corpus
from seq2seq_lab.data.tokenized import TokenizedText
from seq2seq_lab.tasks.translation.evaluation import Split


def evaluation_splits(
    corpus: Corpus, validation: TokenizedText, tests: Mapping[str, TokenizedText], limit: int | None = None
) -> list[Split]:
    """Return the validation split and the test splits; see `prefixes_of_tests`.

    Args:
        limit: the number of sentences of each split; None for all.
    """
    language = corpus.target_language
    splits = [Split("val", corpus.validation, validation, language)]
    for name, prefix in prefixes_of_tests(corpus).items():
        splits.append(Split(prefix, corpus.tests[name], tests[name], language))
    return splits if limit is None else [_first_sentences(split, limit) for split in splits]


def prefixes_of_tests(corpus: Corpus) -> dict[str, str]:
    """Return the prefix of the metrics of each test set: `test` for the first one, `test/NAME` for the others."""
    prefixes: dict[str, str] = {}
    for name in corpus.tests:
        short = name.removeprefix("test_")
        prefixes[name] = f"test/{name if short in corpus.tests else short}" if prefixes else "test"
    return prefixes


def _first_sentences(split: Split, count: int) -> Split:
    text = split.text
    columns = {field.name: getattr(text, field.name) for field in fields(text)}
    cut = replace(text, **{name: column and column[:count] for name, column in columns.items()})
    return replace(split, text=cut, tokens=split.tokens.select(torch.arange(min(count, len(text)))))
