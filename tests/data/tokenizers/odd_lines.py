"""Difficult lines, and tokenizers configured by their YAML files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra.utils import get_class
from omegaconf import OmegaConf

from seq2seq_lab.data.tokenizers import Tokenizer

FOLDER = Path(__file__).parents[3] / "conf" / "tokenizer"
# The other files are variants of these.
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml") if "_target_" in OmegaConf.load(path))

ODD = [
    "The man who swam across the river sleeps.",
    "L'homme qui dort n'est pas là, aujourd’hui !",
    "« Qu'est-ce que c'est ? » (rien...)",
    '"Don\'t!" she said: "it\'s 3.5 o\'clock" -- well-known',
    "@@ a@@ b <eos> </s> x<unk> <pad> <sos> snake_case #1",
    "<eos>",
    "literal ￭ and ￭￭ and a￭b <￭> <<￭>> joiners￭ ￭too",
    "literal ▁ and ▁a▁ Ġ",
    "emoji 🙂👩‍👩‍👧 👍🏽 and 漢字 end",
    "combining cafe\u0301 n\u0303, \u0301first",
    "zero\u200bwidth",
    "'tis the dogs' day'",
    "",
    "Pourquoi\u202f? Oui\u00a0! \u00a0x 10\u00a0000",
    "tab\tand  two spaces ",
    " leads with a space",
    "\u00a0leads with a no-break space",
    "trails with one\u202f",
    "\t tab \t space\t",
    "line\u2028separator\u0085next",
    "file\x1cgroup \x1d\x1e !\x1f! unit",
    "nul \x00 and \ufeff mark",
    "   ",
    " ",
    "\t",
    "\u00a0",
]


def split_and_join(line: str) -> str:
    return " ".join(line.split())


def split_at_spaces(line: str) -> str:
    return " ".join(part for part in line.split(" ") if part)


# The decoded text of a line, if all tokens are known.
DECODED: dict[str, Callable[[str], str]] = {
    "bpe": str,
    "char": str,
    "char_whitespace": split_at_spaces,
    "spacy": split_and_join,
    "unigram": str,
    "whitespace": split_at_spaces,
    "word": split_and_join,
}


def make(name: str, **changes: Any) -> Tokenizer:
    """Return an untrained tokenizer with the options of its YAML file and those `changes` that it has."""
    if name == "spacy":
        pytest.importorskip("spacy")
    options = OmegaConf.to_container(OmegaConf.load(FOLDER / f"{name}.yaml"))
    kind = get_class(options.pop("_target_"))
    tokenizer = kind(**options | {key: value for key, value in changes.items() if key in options})
    tokenizer.use_languages("en")
    return tokenizer


def trained(name: str, lowercase: bool = False) -> Tokenizer:
    """Return a tokenizer that is trained on `ODD`."""
    tokenizer = make(name, lowercase=lowercase, min_frequency=1, vocab_size=320)
    tokenizer.train(ODD * 2)
    return tokenizer
