"""spaCy's rule-based tokens of a language."""

from collections.abc import Iterator, Mapping
from pkgutil import iter_modules
from typing import Any

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.data.languages import lowercase
from seq2seq_lab.data.tokenizers.vocabulary import (
    ESCAPED_JOINER,
    JOINER,
    JoinedTokenizer,
    MaxSize,
    is_word_letter,
)
from seq2seq_lab.errors import UserError, did_you_mean


class SpacyTokenizer(JoinedTokenizer):
    """spaCy's tokens, by the rules of each side's language (`spacy.blank`: no model is downloaded).

    Where no space separates two tokens, one has a joiner "￭": the left one if it ends in a symbol and the right one begins
    with a letter or digit, else the right one. `Don't (go)!` is `Do ￭n't (￭ go ￭) ￭!`. Tokens of white space are left out.
    Decoding returns the text except for unknown tokens and white space: each run of it becomes one space, and none remains
    at the ends.

    Without joiners the tokens are exactly spaCy's, and decoding puts a space between any two.
    """

    def __init__(
        self,
        *,
        joint: bool,
        lowercase: bool,
        min_frequency: Count,
        max_size: MaxSize | None,
        joiners: bool,
        languages: Mapping[str, str] | None,
    ) -> None:
        """Set the bounds of the vocabulary, and the languages.

        Args:
            joint, lowercase, min_frequency, max_size: see `VocabularyTokenizer`.
            joiners: whether tokens have joiners.
            languages: spaCy's language for a label of the corpus. Another label is itself the name of a language.

        Raises:
            UserError: spaCy is not installed, or has no such language.
        """
        super().__init__(joint, lowercase, min_frequency, max_size)
        self.joiners = joiners
        self.languages = dict(languages) if languages else None
        _import_spacy()
        for label, language in (self.languages or {}).items():
            _language_class(language, label)

    def use_languages(self, *labels: str) -> None:
        """Use the rules for the labels of the corpus: one, or those of both sides if the tokenizer is joint.

        Raises:
            UserError: spaCy has no such language, or the tokenizer is joint and the languages differ.
        """
        super().use_languages(*labels)
        chosen = {label: (self.languages or {}).get(label, label) for label in labels}
        if len(set(chosen.values())) > 1:
            both = ", ".join(f"{label}: xx" for label in chosen)
            raise UserError(
                f"tokenizer.joint=true: the sides have different languages, {' and '.join(chosen.values())}. Set "
                f"tokenizer.joint=false, or use the rules for any language: tokenizer.languages='{{{both}}}'."
            )
        label, language = next(iter(chosen.items()))
        kind = _language_class(language, label)
        try:
            self._spacy = kind().tokenizer
        except ImportError as error:  # some rules need another package
            raise UserError(
                f"tokenizer.languages: spaCy's language {language!r} cannot be used: {' '.join(str(error).split())}"
            ) from error

    def pieces(self, line: str) -> Iterator[tuple[str, int, int]]:
        found = [(token.text, token.idx) for token in self._spacy(line)]
        if self.joiners:
            found = [(text, start) for text, start in found if not text.isspace()]
        last_letter, last_end = "", -1
        for index, (text, start) in enumerate(found):
            end = start + len(text)
            token = (lowercase(text, self.case) if self.lowercase else text).replace(JOINER, ESCAPED_JOINER)
            if self.joiners:
                if start == last_end and not _joins_on_the_left(last_letter, text[0]):
                    token = JOINER + token
                if index + 1 < len(found):
                    following, position = found[index + 1]
                    if position == end and _joins_on_the_left(text[-1], following[0]):
                        token += JOINER
            last_letter, last_end = text[-1], end
            yield token, start, end


def _joins_on_the_left(last: str, first: str) -> bool:
    """Return whether the left of two adjacent tokens has the joiner; `last` and `first` are the adjacent characters."""
    return is_word_letter(first) and not is_word_letter(last)


def _import_spacy() -> Any:
    try:
        import spacy
    except ImportError as error:
        raise UserError(
            f"tokenizer=spacy needs spaCy, which cannot be imported ({error}). Install it with: "
            " pip install 'seq2seq_lab[spacy]'"
        ) from error
    return spacy


def _language_class(language: str, label: str) -> Any:
    """Return spaCy's class for a language; `label` is the corpus's name of it."""
    spacy = _import_spacy()
    try:
        return spacy.util.get_lang_class(language)
    except ImportError as error:
        known = [module.name for module in iter_modules(spacy.lang.__path__) if module.ispkg]
        # A label can be any word: a suggestion for it would be a wrong guess.
        hint = did_you_mean(language, known) if language != label else ""
        raise UserError(
            f"tokenizer.languages: spaCy has no language {language!r} for the label {label!r}.{hint} Set dataset.source and "
            f"dataset.target to languages, or choose rules for the label: tokenizer.languages='{{{label}: en, …}}'. Values: "
            f"{', '.join(known)}; xx is for any language."
        ) from error
