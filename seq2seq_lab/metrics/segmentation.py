"""How BLEU and TER cut the texts of a language into the words that they count."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Literal

from seq2seq_lab.data.languages import UNSPACED, language_code
from seq2seq_lab.data.words import is_divided, is_unspaced
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.sacrebleu_adapter import BLEU

log = logging.getLogger(__name__)

KEY = "task.bleu_tokenizer"
BleuTokenizer = Literal[
    "auto", "13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "flores101", "flores200", "none"
]
_BY_SPACES = ("13a", "intl", "none")  # those that leave text without spaces in one piece
_OF_LANGUAGE = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}
_INSTALL = {"ja-mecab": "'seq2seq_lab[ja]'", "ko-mecab": "'seq2seq_lab[ko]'"}
_READ = 1000  # references in which spaces are looked for


@dataclass(frozen=True)
class Segmentation:
    """How texts are cut into words.

    Attributes:
        bleu: sacreBLEU's tokenizer, one of `BleuTokenizer` but auto.
        ter: `spaces`: words are separated by spaces; `asian`: sacreBLEU's options `normalized` and `asian_support`, which
            cut ideographs apart; `letters`: as `data.words.words` cuts them, without shifts, for other scripts without
            spaces; `divided`: the same with shifts, for words between signs such as the Ethiopic wordspace.
    """

    bleu: str = "13a"
    ter: Literal["spaces", "asian", "letters", "divided"] = "spaces"


SPACED = Segmentation()


def choose_segmentation(
    setting: BleuTokenizer, language: str | None, references: Iterable[Sequence[str]]
) -> Segmentation:
    """Return how the references of a data set, and the outputs that are compared with them, are cut into words.

    The language decides; if it is not known, whether the references have spaces. Warns if it is not known, or if the
    tokenizer that was set does not cut such text.

    Args:
        setting: the value of `task.bleu_tokenizer`; `auto` lets the language decide.
        language: the label that the data set gives to the language.
        references: those of each split.

    Raises:
        UserError: a package or a model of the tokenizer is missing.
    """
    code = language_code(language)
    sample = [*islice(chain.from_iterable(references), _READ)]
    unspaced, divided = is_unspaced(sample), is_divided(sample)
    # "intl" separates words at all signs of punctuation of Unicode.
    other = "char" if unspaced or code in UNSPACED else "intl" if divided else "13a"
    bleu = _OF_LANGUAGE.get(code, other)
    if setting != "auto":
        bleu = setting
    if unspaced and bleu in _BY_SPACES:
        log.warning(
            "%s=%s counts text without spaces as one word, and the references have no spaces between words: BLEU is near 0 "
            "for most outputs. Set %s=auto.",
            *(KEY, bleu, KEY),
        )
    elif unspaced and setting == "auto" and code not in UNSPACED and bleu == "char":
        log.warning(
            "The references have no spaces between words, but their language is %r, which is not known to be written so: "
            "BLEU counts characters (tok:char), and TER letters. Give the data set the code of the language, for example "
            "dataset.target=zh, or choose a tokenizer: %s=zh|ja-mecab|char.",
            language,
            KEY,
        )
    _check_installed(bleu, language)
    if code in ("zh", "ja"):
        return Segmentation(bleu, "asian")
    if unspaced or code in UNSPACED:
        return Segmentation(bleu, "letters")
    return Segmentation(bleu, "divided" if divided else "spaces")


def _check_installed(bleu: str, language: str | None) -> None:
    try:
        BLEU(tokenize=bleu, force=True)
    except (ImportError, RuntimeError) as error:
        install = _INSTALL.get(bleu, "sentencepiece")
        raise UserError(
            f"{KEY}={bleu}, for language {language!r}, needs packages that are not installed. Install them with: "
            f"pip install {install}; or set another tokenizer, for example {KEY}=char."
        ) from error
    except OSError as error:  # the model is downloaded
        raise UserError(
            f"{KEY}={bleu}: the model of the tokenizer cannot be downloaded ({error}). Set another tokenizer, for example "
            f"{KEY}=char, or run `sacrebleu --tokenize {bleu}` once with a network."
        ) from error
