"""spaCy's rules: joiners, languages, and the error without spaCy."""

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
def test_adjacent_tokens_have_joiners(line: str, expected: list[str]) -> None:
    assert english(line) == expected


def test_without_joiners_the_tokens_are_exactly_spacys() -> None:
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
        return make("spacy", joint=joint, min_frequency=1, languages=languages)

    return fit_tokenizers(untrained, ParallelText(["don't"], ["aujourd'hui l'ami"]), labels)


def test_each_side_follows_the_rules_of_its_language(tmp_path: Path) -> None:
    pair = fitted(None, ("en", "it"))
    assert pair.source.spans("l'ami don't") == [(0, 5), (6, 8), (8, 11)]
    assert pair.target.spans("l'ami") == [(0, 2), (2, 5)]
    pair.save(tmp_path)
    again = TokenizerPair.load(tmp_path)
    assert again.source.spans("l'ami don't") == [(0, 5), (6, 8), (8, 11)]
    assert again.target.spans("l'ami") == [(0, 2), (2, 5)]
    assert again.source.options() == again.target.options() == pair.source.options()


def test_labels_can_be_mapped_to_languages() -> None:
    pair = fitted({"left": "it", "right": "en"}, ("left", "right"))
    assert pair.source.spans("l'ami") == [(0, 2), (2, 5)]
    assert pair.target.spans("l'ami") == [(0, 5)]


@pytest.mark.parametrize("label", ["klingon", "en-US", "", "../x"])
def test_an_unknown_language_names_the_key_to_set(label: str) -> None:
    with pytest.raises(UserError, match=r"tokenizer.languages: .*dataset.source .*languages='.* de, "):
        fitted(None, (label, "en"))


def test_a_language_that_does_not_exist_is_refused_before_there_is_a_corpus() -> None:
    with pytest.raises(UserError, match=r"'frr'.*Did you mean 'fr'"):
        make("spacy", languages={"french": "frr"})


def test_a_language_that_needs_another_package_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sudachipy", None)
    with pytest.raises(UserError, match=r"tokenizer.languages.*'ja'.*(?i:sudachipy)"):
        fitted(None, ("ja", "en"))


def test_one_tokenizer_cannot_follow_two_languages() -> None:
    with pytest.raises(UserError, match=r"tokenizer.joint=true.*en and it.*'\{en: xx, it: xx\}'"):
        fitted(None, ("en", "it"), joint=True)
    pair = fitted({"en": "xx", "it": "xx"}, ("en", "it"), joint=True)
    assert pair.source is pair.target


def test_without_spacy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(UserError, match=r"pip install 'seq2seq_lab\[spacy\]'"):
        SpacyTokenizer(
            joint=False, lowercase=False, min_frequency=1, max_size=None, joiners=True, languages=None
        )


@pytest.mark.corpora
@pytest.mark.parametrize(("language", "size"), [("de", 7853), ("en", 5893)])
def test_the_vocabulary_of_multi30k_has_the_known_size(corpora: Path, language: str, size: int) -> None:
    """The sizes of spaCy 3.8; another release may cut a few words differently."""
    lines = (corpora / "multi30k" / f"train.{language}").read_bytes().decode().split("\n")[:-1]
    tokenizer = make("spacy", lowercase=True, joiners=False)
    tokenizer.use_languages(language)
    tokenizer.train(lines)
    assert tokenizer.size == size
