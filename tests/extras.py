"""Marks tests that need an optional package; the reason of a skipped test names the extra that installs it."""

import importlib.util

import pytest

from seq2seq_lab.config.schema import Config


def needs(package: str, extra: str) -> pytest.MarkDecorator:
    """Return the mark of tests that are skipped without a package."""
    reason = f"{package} is not installed (pip install 'seq2seq_lab[{extra}]')"
    return pytest.mark.skipif(not is_installed(package), reason=reason)


def is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


needs_plotly = needs("plotly", "compare")
needs_workspaces = needs("wandb_workspaces", "dashboard")


def lacks_spacy(config: Config) -> bool:
    """Return whether the tokenizer of a configuration needs spaCy, and spaCy is not installed."""
    tokenizer = config.tokenizer
    uses_spacy = tokenizer is not None and tokenizer["_target_"].endswith(".SpacyTokenizer")
    return uses_spacy and not is_installed("spacy")
