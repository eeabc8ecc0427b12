"""Sentences with tags: what the generated ones look like, and how files are read."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from seq2seq_lab.data.corpus import load_corpus
from seq2seq_lab.data.labelled import LabelledCorpus
from seq2seq_lab.data.tagged import Tagged, read_tagged
from seq2seq_lab.errors import UserError

CONLL_2003 = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O
# # I-VP O

Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER

"""
CONLL_U = """# sent_id = 1
# text = du pain à 10 000 euros
1-2\tdu\t_\t_\t_
1\tde\tde\tADP\t_
2\tle\tle\tDET\t_
3\tpain\tpain\tNOUN\t_
3.1\tvu\tvoir\tVERB\t_
4\t10 000\t10 000\tNUM\t_
5\t#\t#\tSYM\t_

"""


def tagged(**changes: Any) -> Tagged:
    settings = {
        **dict.fromkeys(("train", "validation", "test", "encoding")),
        **{"word_column": 1, "tag_column": -1, "language": "en", "sentences": 60},
        **{"validation_share": 0.2, "test_share": 0.2, "seed": 1, "max_depth": 2},
    }
    return Tagged(**settings | changes)


def read(path: Path, text: str, columns: tuple[int, int] = (1, -1)) -> list[tuple[str, str]]:
    path.write_text(text, "utf-8")
    return [*read_tagged(path, columns, None, Counter())]


def test_generated_sentences_have_forms_whose_tag_depends_on_the_context() -> None:
    corpus = tagged(sentences=400).load()
    assert corpus.language == "fr"
    tags: dict[str, set[str]] = {}
    for split in corpus.splits.values():
        for line, labels in zip(split.texts, split.labels, strict=True):
            for word, tag in zip(line.split(" "), labels.split(" "), strict=True):
                tags.setdefault(word, set()).add(tag)
    assert {"DET.m.pl", "DET.f.pl", "PRON.pl"} <= tags["les"]
    assert {"SCONJ", "PRON"} <= tags["que"]
    assert tags["."] == {"PUNCT"}
    assert {"NOUN.f.sg", "ADJ.m.pl", "VERB.sg"} <= {*corpus.classes}
    assert tagged(sentences=400).load() == corpus


def test_columns_of_conll_2003(tmp_path: Path) -> None:
    assert read(tmp_path / "eng.train", CONLL_2003) == [
        ("EU rejects #", "B-ORG O O"),
        ("Peter Blackburn", "B-PER I-PER"),
    ]
    assert read(tmp_path / "eng.train", CONLL_2003, (1, 2))[1] == ("Peter Blackburn", "NNP NNP")


def test_columns_of_conll_u(tmp_path: Path) -> None:
    counts = Counter[str]()
    path = tmp_path / "fr.conllu"
    path.write_text(CONLL_U, "utf-8")
    assert [*read_tagged(path, (2, 4), None, counts)] == [("de le pain 10_000 #", "ADP DET NOUN NUM SYM")]
    assert counts["words_with_spaces"] == 1


def test_json_lines(tmp_path: Path) -> None:
    rows = [{"tokens": ["a", "b"], "tags": ["X", "Y"]}, {"tokens": ["c"], "tags": ["X"]}]
    assert read(tmp_path / "a.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows)) == [
        ("a b", "X Y"),
        ("c", "X"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.conll", "EU B-ORG\nrejects\n", "line 2: 1 columns instead of 2"),
        ("a.conll", "EU\n\n", "line 1: 1 columns instead of 2"),
        ("a.conll", "EU B-ORG\n\na b O\n", "line 3: 3 columns instead of 2"),
        ("a.conll", "EU\tB ORG\n\n", "white space"),
        ("a.conll", "\u200b O\n\n", "not usable"),
        ("a.jsonl", '{"tokens": ["a"], "tags": ["X", "Y"]}\n', "line 1: 1 tokens and 2 tags"),
        (
            "a.jsonl",
            '{"tokens": "a b", "tags": ["X", "Y"]}\n',
            "line 1: `tokens` and `tags` are not two lists",
        ),
        ("a.jsonl", '{"tokens": ["a"], "tags": [3]}\n', "not lists of texts"),
        ("a.jsonl", '{"tokens": ["a"]\n', "line 1: not JSON"),
    ],
)
def test_a_damaged_file_is_refused_by_line(name: str, text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        read(tmp_path / name, text)


@pytest.mark.parametrize("end", ["", "\n\n"])
def test_a_file_without_empty_lines_between_sentences_is_refused(end: str, tmp_path: Path) -> None:
    path = tmp_path / "words.conll"
    assert len(read(path, "EU B-ORG\n" * 500 + end)) == 1  # a long sentence
    assert len(read(path, "EU B-ORG\n" * 501 + "\nEU B-ORG\n" + end)) == 2
    with pytest.raises(UserError, match=r"words\.conll has 501 words.*empty line after each sentence"):
        read(path, "EU B-ORG\n" * 501 + end)


def test_given_files_are_the_splits_and_missing_ones_are_taken_from_train(tmp_path: Path) -> None:
    files = {}
    for name, count in (("train", 100), ("test", 3)):
        files[name] = str(tmp_path / f"{name}.txt")
        Path(files[name]).write_text("".join(f"{name}{i} X\n.{name}{i} Y\n\n" for i in range(count)), "utf-8")
    corpus = tagged(**files).load()
    assert [line.split()[0] for line in corpus.test.texts] == ["test0", "test1", "test2"]
    assert len(corpus.train) + len(corpus.validation) == 100
    assert 5 < len(corpus.validation) < 40
    assert corpus.classes == ["X", "Y"]


def test_a_tag_of_the_test_split_alone_is_a_class(tmp_path: Path) -> None:
    for name, tags in (("train", "X Y"), ("test", "X Z")):
        rows = [f"{word} {tag}\n" for word, tag in zip("ab", tags.split(), strict=True)]
        (tmp_path / name).write_text("".join([*rows, "\n"]), "utf-8")
    files = {
        name: str(tmp_path / one)
        for name, one in (("train", "train"), ("validation", "test"), ("test", "test"))
    }
    assert tagged(**files).load().classes == ["X", "Y", "Z"]


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"word_column": 0}, r"dataset\.word_column=0"),
        ({"validation": "a.conll"}, r"dataset\.train"),
        ({"train": "nothing.conll"}, r"dataset\.train=nothing"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(UserError, match=key):
        tagged(**changes).load()


def test_classification_refuses_tags() -> None:
    with pytest.raises(UserError, match="TaggedCorpus"):
        load_corpus(tagged(), LabelledCorpus, "classification")
