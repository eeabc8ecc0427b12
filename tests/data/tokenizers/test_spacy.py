"""spaCy's rules: joiners, languages, and what happens without spaCy."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("spacy")

from odd_lines import make

from seq2seq_lab.data.corpus import ParallelText
from seq2seq_lab.data.tokenizers import SpacyTokenizer, TokenizerPair, fit_tokenizers
from seq2seq_lab.errors import UserError


def english(line: str, **changes: object) -> list[str | None]:
    tokenizer = make("spacy", min_frequency=1, **changes)
    tokenizer.train([line])
    return [tokenizer._backend.id_to_token(number) for number in tokenizer.encode([line])[0]]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Don't (go)!", ["Do", "￭n't", "(￭", "go", "￭)", "￭!"]),
        ("well-known  3.5\u00a0km", ["well", "￭-￭", "known", "3.5", "km"]),
        ("a￭b ￭", ["a", "￭<￭>￭", "b", "<￭>"]),
    ],
)
def test_joiners_stand_where_tokens_touch(line: str, expected: list[str]) -> None:
    assert english(line) == expected


def test_without_joiners_the_tokens_are_spacys_own() -> None:
    assert english("Don't  (go)!", joiners=False, lowercase=True) == [
        "do",
        "n't",
        " ",
        "(",
        "go",
        ")",
        "!",
    ]


def fitted(languages: dict[str, str] | None, labels: tuple[str, str], joint: bool = False) -> TokenizerPair:
    def untrained() -> SpacyTokenizer:
        return SpacyTokenizer(joint, False, 1, None, True, languages)

    return fit_tokenizers(untrained, ParallelText(["don't"], ["aujourd'hui l'ami"]), labels)


def test_each_side_follows_the_rules_of_its_language(tmp_path: Path) -> None:
    pair = fitted(None, ("en", "fr"))
    assert pair.source.spans("l'ami don't") == [(0, 5), (6, 8), (8, 11)]
    assert pair.target.spans("l'ami") == [(0, 2), (2, 5)]
    pair.save(tmp_path)
    again = TokenizerPair.load(tmp_path)
    assert again.source.spans("l'ami don't") == [(0, 5), (6, 8), (8, 11)]
    assert again.target.spans("l'ami") == [(0, 2), (2, 5)]
    assert again.source.options() == again.target.options() == pair.source.options()


def test_labels_may_stand_for_other_languages() -> None:
    pair = fitted({"left": "fr", "right": "en"}, ("left", "right"))
    assert pair.source.spans("l'ami") == [(0, 2), (2, 5)]
    assert pair.target.spans("l'ami") == [(0, 5)]


@pytest.mark.parametrize("label", ["klingon", "en-US", "", "../x"])
def test_a_label_that_is_no_language_names_the_key_to_set(label: str) -> None:
    with pytest.raises(
        UserError, match=r"tokenizer.languages: .*dataset.source .*languages='.*Allowed: .* de, "
    ):
        fitted(None, (label, "en"))


def test_a_language_that_does_not_exist_is_refused_before_there_is_a_corpus() -> None:
    with pytest.raises(UserError, match=r"'frr'.*Did you mean 'fr'"):
        make("spacy", languages={"french": "frr"})


def test_a_language_that_needs_another_package_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sudachipy", None)
    with pytest.raises(UserError, match=r"tokenizer.languages.*'ja'.*(?i:sudachipy)"):
        fitted(None, ("ja", "en"))


def test_one_tokenizer_cannot_follow_two_languages() -> None:
    with pytest.raises(UserError, match=r"tokenizer.joint=true.*en and fr.*'\{en: xx, fr: xx\}'"):
        fitted(None, ("en", "fr"), joint=True)
    pair = fitted({"en": "xx", "fr": "xx"}, ("en", "fr"), joint=True)
    assert pair.source is pair.target


def test_without_spacy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(UserError, match=r"pip install 'seq2seq_lab\[spacy\]'"):
        SpacyTokenizer(False, False, 1, None, True, None)


@pytest.mark.corpora
@pytest.mark.parametrize(("language", "size"), [("de", 7853), ("en", 5893)])
def test_vocabulary_of_multi30k_is_the_one_known(corpora: Path, language: str, size: int) -> None:
    """The sizes that spaCy 3.8 gives; another release may cut a few words otherwise."""
    lines = (corpora / "multi30k" / f"train.{language}").read_bytes().decode().split("\n")[:-1]
    tokenizer = make("spacy", lowercase=True, joiners=False)
    tokenizer.use_languages(language)
    tokenizer.train(lines)
    assert tokenizer.size == size
