"""The tokens of spaCy's rules for a language."""

from collections.abc import Iterator, Mapping
from pkgutil import iter_modules
from typing import Any

from seq2seq_lab.data.tokenizers.vocabulary import (
    ESCAPED_JOINER,
    JOINER,
    JoinedTokenizer,
    is_word_letter,
)
from seq2seq_lab.errors import UserError, did_you_mean


class SpacyTokenizer(JoinedTokenizer):
    """spaCy's tokens, by the rules of each side's language (`spacy.blank`: no model is downloaded).

    Where two tokens touch, a joiner "￭" marks it: on the left one where that ends in a symbol and the right
    one begins with a letter or digit, and on the right one otherwise: `Don't (go)!` is
    `Do ￭n't (￭ go ￭) ￭!`. spaCy's tokens of white space are left out. Decoding then gives back the text but
    for unknown tokens and white space: each run of it becomes one space, and none is left at the ends.

    Without joiners the tokens are spaCy's own, those of white space included, and decoding puts a space
    between any two.
    """

    def __init__(
        self,
        joint: bool,
        lowercase: bool,
        min_frequency: int,
        max_size: int | None,
        joiners: bool,
        languages: Mapping[str, str] | None,
    ) -> None:
        """See `VocabularyTokenizer` for the bounds of the vocabulary.

        `languages` gives spaCy's language for a corpus's label; a label that is not in it is taken for spaCy's
        own. Raises `UserError` where spaCy is missing or has no such language.
        """
        super().__init__(joint, lowercase, min_frequency, max_size)
        self.joiners = joiners
        self.languages = dict(languages or {})
        _import_spacy()
        for label, language in self.languages.items():
            _language_class(language, label)

    def options(self) -> dict[str, object]:
        """The constructor's arguments, as plain values."""
        return super().options() | {"joiners": self.joiners, "languages": self.languages or None}

    def use_languages(self, *labels: str) -> None:
        """Take the rules for the corpus's language labels: one, or those of both sides if the tokenizer is joint.

        Raises:
            UserError: spaCy has no such language, or a joint tokenizer is to follow two.
        """
        super().use_languages(*labels)
        chosen = {label: self.languages.get(label, label) for label in labels}
        if len(set(chosen.values())) > 1:
            both = ", ".join(f"{label}: xx" for label in chosen)
            raise UserError(
                f"tokenizer.joint=true: one spaCy tokenizer cannot follow the rules of "
                f"{' and '.join(chosen.values())} at once. Set tokenizer.joint=false, or use spaCy's rules for "
                f"any language, tokenizer.languages='{{{both}}}'."
            )
        label, language = next(iter(chosen.items()))
        kind = _language_class(language, label)
        try:
            self._spacy = kind().tokenizer
        except ImportError as error:  # rules that need one more package
            raise UserError(
                f"tokenizer.languages: spaCy's language {language!r} cannot be used: {' '.join(str(error).split())}"
            ) from error

    def _pieces(self, line: str) -> Iterator[tuple[str, int, int]]:
        found = [(token.text, token.idx) for token in self._spacy(line)]
        if self.joiners:
            found = [(text, start) for text, start in found if not text.isspace()]
        last_letter, last_end = "", -1
        for number, (text, start) in enumerate(found):
            end = start + len(text)
            token = (text.lower() if self.lowercase else text).replace(JOINER, ESCAPED_JOINER)
            if self.joiners:
                if start == last_end and not _joins_on_the_left(last_letter, text[0]):
                    token = JOINER + token
                if number + 1 < len(found):
                    following, place = found[number + 1]
                    if place == end and _joins_on_the_left(text[-1], following[0]):
                        token += JOINER
            last_letter, last_end = text[-1], end
            yield token, start, end


def _joins_on_the_left(last: str, first: str) -> bool:
    """Whether the left of two tokens that touch carries the joiner: `last` and `first` are letters there."""
    return is_word_letter(first) and not is_word_letter(last)


def _import_spacy() -> Any:
    """The package, which is an extra of this one."""
    try:
        import spacy
    except ImportError as error:
        raise UserError(
            f"tokenizer=spacy needs spaCy, which cannot be imported ({error}). "
            "Install it with: pip install 'seq2seq_lab[spacy]'"
        ) from error
    return spacy


def _language_class(language: str, label: str) -> Any:
    """spaCy's class for a language; `label` is what the corpus calls it, for the message."""
    spacy = _import_spacy()
    try:
        return spacy.util.get_lang_class(language)
    except ImportError as error:
        known = [module.name for module in iter_modules(spacy.lang.__path__) if module.ispkg]
        raise UserError(
            f"tokenizer.languages: spaCy has no language {language!r}, for the corpus's {label!r}."
            # A label is any word: what is near to it in spelling is no better guess.
            f"{did_you_mean(language, known) if language != label else ''} Name both sides "
            f"with dataset.source and dataset.target (en, fr, …), or say which rules are for which label: "
            f"tokenizer.languages='{{{label}: en, …}}'. Allowed: {', '.join(known)}; xx is for any language."
        ) from error
