"""Names and sentences with labels: what the generated ones look like, and how files are read."""

import gzip
import re
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from seq2seq_lab.data.corpus import Corpus, load_corpus
from seq2seq_lab.data.labelled import LabelledCorpus, collect_labelled
from seq2seq_lab.data.names import LANGUAGES, Names, Spelling
from seq2seq_lab.data.sentiment import NEGATIVE, POSITIVE, Sentiment
from seq2seq_lab.errors import UserError


def names(path: Path | None = None, number: int = 400, validation_share: float = 0.2) -> Names:
    return Names(
        path=None if path is None else str(path),
        encoding=None,
        names=number,
        validation_share=validation_share,
        test_share=0.2,
        seed=1,
    )


def sentiment(path: Path | None = None) -> Sentiment:
    return Sentiment(
        path=None if path is None else str(path),
        encoding=None,
        reviews=300,
        validation_share=0.2,
        test_share=0.2,
        seed=1,
    )


def pairs_of(corpus: LabelledCorpus) -> list[tuple[str, str]]:
    return [pair for split in corpus.splits.values() for pair in zip(split.texts, split.labels, strict=True)]


def test_generated_names_are_the_same_each_time_and_evenly_many() -> None:
    corpus = names().load()
    assert pairs_of(corpus) == pairs_of(names().load())
    assert Counter(label for _, label in pairs_of(corpus)) == dict.fromkeys(LANGUAGES, 50)
    assert corpus.classes == sorted(LANGUAGES)


VOWEL = "[aeiou]"
RULES = {
    "Alu": rf"([bdfgklmnprstv]?{VOWEL}){{2,3}}",
    "Berk": rf"([bdfgklmnprstv]{VOWEL}[klnrst]){{1,2}}",
    "Cassi": rf"([bdfgklmnprstv]{VOWEL}(ll|nn|ss|tt)?){{1,2}}(o|i|a|ino|ello)",
    "Dorun": r"([^aeiouy][aou][nr]?){2,3}|([^aeiouy][eiy][nr]?){2,3}",
    "Fjell": rf"((fj|gr|kn|sk|st|tr|br){VOWEL}(l|n|rg)?){{1,2}}(sen|ard|vik)",
    "Hoshi": rf"((k|m|n|s|t|h|sh|ts|ky|r){VOWEL}n?){{2,3}}",
}


@pytest.mark.parametrize("language", RULES)
def test_names_follow_the_rules_of_their_language(language: str) -> None:
    random = Random(5)
    drawn = {LANGUAGES[language].draw(random) for _ in range(200)}
    assert len(drawn) > 50
    assert all(re.fullmatch(RULES[language], name.lower()) and name[0].isupper() for name in drawn)


def test_more_names_than_a_language_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = Spelling(("b",), (("a",),), ("", "n"), ("",), (1,))  # Ba, Ban
    monkeypatch.setitem(LANGUAGES, "Tiny", tiny)
    with pytest.raises(UserError, match=r"dataset\.names=90"):
        names(number=90).load()


def test_names_of_files_are_split_by_name(tmp_path: Path) -> None:
    shared = [f"Same{i}" for i in range(60)]
    (tmp_path / "Dutch.txt").write_text("\n".join([*shared, "Aalders", "Aalders"]), "utf-8")
    (tmp_path / "Czech.txt").write_text("\n".join([*shared, "Žák"]), "utf-8")
    corpus = names(tmp_path).load()
    assert corpus.classes == ["Czech", "Dutch"]
    assert Counter(pairs_of(corpus)) == dict.fromkeys(
        [(name, label) for name in shared for label in ("Czech", "Dutch")]
        + [("Aalders", "Dutch"), ("Žák", "Czech")],
        1,
    )
    seen = [set(split.texts) for split in corpus.splits.values()]
    assert sum(map(len, seen)) == len(set.union(*seen))  # a name is in one split


def test_dropped_duplicates_and_names_of_several_languages_are_counted(tmp_path: Path) -> None:
    shared = [f"Same{i}" for i in range(60)]
    (tmp_path / "Dutch.txt").write_text("\n".join([*shared, "Aalders", "Aalders ", "Aalders"]), "utf-8")
    (tmp_path / "Czech.txt").write_text("\n".join([*shared, "Z\u030cák", "Žák", "Same3"]), "utf-8")
    (tmp_path / "Irish.txt").write_text("\n".join([*shared[:5], "Byrne"]), "utf-8")
    assert names(tmp_path).load().counts == {
        "composed_lines": 1,
        "dropped_duplicates": 4,
        "dropped_duplicates/Dutch": 2,
        "dropped_duplicates/Czech": 2,
        "names_of_several_languages": 60,
    }
    assert names().load().counts == {}


def test_a_compressed_copy_of_a_file_of_names_is_not_read_too(tmp_path: Path) -> None:
    for language in ("Dutch", "Czech"):
        lines = "\n".join(f"{language}{i}" for i in range(60))
        (tmp_path / f"{language}.txt").write_text(lines, "utf-8")
        (tmp_path / f"{language}.txt.gz").write_bytes(gzip.compress(lines.encode()))
    corpus = names(tmp_path).load()
    assert sum(map(len, corpus.splits.values())) == 120
    assert corpus.counts["names_of_several_languages"] == 0


def test_a_folder_without_languages_and_bad_lines_are_refused(tmp_path: Path) -> None:
    (tmp_path / "Dutch.txt").write_text("Aalders\n")
    with pytest.raises(UserError, match=r"dataset\.path"):
        names(tmp_path).load()
    (tmp_path / "Czech.txt").write_text("Novak\n\nDvorak\n")
    with pytest.raises(UserError, match=r"Czech\.txt line 2"):
        names(tmp_path).load()


def test_the_deciding_words_of_a_review_give_its_label() -> None:
    corpus = sentiment().load()
    kinds = Counter[str]()
    for split in corpus.splits.values():
        assert split.deciding is not None
        for text, label, deciding in zip(split.texts, split.labels, split.deciding, strict=True):
            words = [word for place, word in enumerate(text.split()) if place in deciding]
            (opinion,) = [word for word in words if word != "not"]
            positive = (opinion in POSITIVE) != ("not" in words)
            assert (label == "positive") == positive
            assert ("not" in text.split()) == ("not" in words)
            kinds["negated"] += "not" in words
            kinds["other opinion"] += sum(word in (*POSITIVE, *NEGATIVE) for word in text.split()) > 1
    assert kinds["negated"] > 50
    assert kinds["other opinion"] > 50


def write_sst2(folder: Path, name: str, lines: list[str]) -> None:
    (folder / name).write_text("sentence\tlabel\n" + "".join(f"{line}\n" for line in lines), "utf-8")


def test_files_of_sst2(tmp_path: Path) -> None:
    write_sst2(tmp_path, "train.tsv", [f"a film of {i} hours \t{i % 2}" for i in range(50)])
    write_sst2(tmp_path, "dev.tsv", ["fine \t1", "dull \t0"])
    corpus = sentiment(tmp_path).load()
    assert list(zip(corpus.test.texts, corpus.test.labels, strict=True)) == [
        ("fine", "positive"),
        ("dull", "negative"),
    ]
    assert len(corpus.train) + len(corpus.validation) == 50
    assert corpus.train.deciding is None


def test_what_is_changed_and_repeated_in_files_of_sst2_is_counted(tmp_path: Path) -> None:
    write_sst2(
        tmp_path, "train.tsv", [f"a film of {i} hours \t{i % 2}" for i in range(50)] + ["cafe\u0301\t1"]
    )
    write_sst2(tmp_path, "dev.tsv", ["fine \t1", "caf\u00e9 \t1"])
    corpus = sentiment(tmp_path).load()
    assert corpus.counts["composed_lines"] == 1
    assert corpus.counts["leaked_pairs"] + ("caf\u00e9" in corpus.validation.texts) == 1


@pytest.mark.parametrize("line", ["", "no label", "a film\t2", "\t1", "\u200b\t1", "a\0b\t1", "a\rb\t1"])
def test_a_line_of_another_format_is_refused(tmp_path: Path, line: str) -> None:
    write_sst2(tmp_path, "train.tsv", ["a film\t1", line])
    write_sst2(tmp_path, "dev.tsv", ["fine\t1"])
    with pytest.raises(UserError, match=r"train\.tsv line 3"):
        sentiment(tmp_path).load()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"train\.tsv not found"):
        sentiment(tmp_path).load()


def test_an_empty_split_is_refused() -> None:
    with pytest.raises(UserError, match="test"):
        collect_labelled("en", [("train", ("a", "b", None)), ("validation", ("c", "b", None))], {})


def test_a_corpus_of_another_type_is_refused() -> None:
    with pytest.raises(UserError, match="task=translation"):
        load_corpus(names(), Corpus, "translation")


@pytest.mark.parametrize(("key", "made"), [("validation_share", lambda: names(validation_share=0.9))])
def test_values_out_of_range_are_refused(key: str, made: object) -> None:
    with pytest.raises(UserError, match=key):
        made()  # type: ignore[operator]
