"""Near-duplicates: what is counted equals what comparing all pairs counts."""

import logging
import random
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from seq2seq_lab.data import near_duplicates as module
from seq2seq_lab.data.corpus import Corpus, ParallelText
from seq2seq_lab.data.near_duplicates import near_duplicates, with_near_duplicates, words


def text(*pairs: tuple[str, str]) -> ParallelText:
    return ParallelText([source for source, _ in pairs], [target for _, target in pairs])


def test_words_are_normalized() -> None:
    assert words("I'm  SURE he can’t (really) go!") == ["i", "am", "sure", "he", "cannot", "really", "go"]
    assert words("Don't; won't") == ["do", "not", "will", "not"]
    assert words("L'homme cafe\u0301\u00a0!") == ["l", "homme", "caf\u00e9"]
    assert words("…") == []


def test_a_mark_is_part_of_its_letter() -> None:
    """Without its vowel signs, the second sentence would be the first one."""
    train = text(("वह किताब है", "a"))
    assert near_duplicates(train, {"test": text(("वह कताबी है", "b"))})["test"]["source_in_train"] == []


def test_case_is_folded_by_the_rules_of_the_language(tmp_path: Path) -> None:
    train, test = text(("ıssız bir ada", "a")), text(("ISSIZ BİR ADA", "b"))
    assert near_duplicates(train, {"test": test}, ("tr", "en"))["test"]["source_in_train"] == [0]
    for language, number in (("en", 0), ("tr", 1), ("en", 0)):
        corpus = with_near_duplicates(Corpus(language, "en", train, test, {"test": test}), tmp_path)
        assert corpus.counts["test/source_in_train"] == number


def test_in_a_script_without_spaces_a_near_copy_differs_in_one_letter() -> None:
    train = text(("我喜欢吃苹果。", "a"), ("ฉันรักเธอ", "b"))
    held_out = text(("我喜欢吃香果！", "c"), ("我不喜欢吃苹果", "d"), ("ฉันรกเธอ", "e"), ("他讨厌面包", "f"))
    assert near_duplicates(train, {"test": held_out})["test"]["source_within_one_word"] == [0, 1, 2]


def test_the_variants_of_a_long_training_sentence_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their size is the square of its length."""
    hash_sentences = module._hash
    lengths = []

    def noting(sentences: Sequence[module.Words]) -> module.Hashes:
        lengths.extend(map(len, sentences))
        return hash_sentences(sentences)

    monkeypatch.setattr(module, "_hash", noting)
    train = text(("a " * 100_000, "b"), ("a b c d", "e"), ("a b c d e", "e"), ("a b", "e"))
    found = near_duplicates(train, {"test": text(("a b c", "f"))})
    assert found["test"]["source_within_one_word"] == [0]
    assert set(lengths) == {2, 3, 4}


def test_long_sources_are_similar_only_if_they_are_equal() -> None:
    """The memory for their variants grows with the square of their length."""
    line = " ".join("abcdefghij" * (module.LONGEST // 10))
    train = text((line, "x"), (f"{line} k", "x"))
    other = line[:-1] + "z"
    found = near_duplicates(train, {"test": text((other, "y"), (f"{line} z", "y"), (f"{line} k", "y"))})[
        "test"
    ]
    assert found["source_within_one_word"] == [0, 2]
    assert found["source_in_train"] == [2]


def test_the_hash_of_a_variant_is_that_of_the_same_words() -> None:
    sentences = [("a", "b", "a", "c"), (), ("a",), ("b", "a"), ("d",) * (module.LONGEST + 1)]
    found = module._hash(sentences)
    of = dict(zip(sentences, found.whole_N.tolist(), strict=True))
    assert len({*of.values()}) == len(sentences)
    replaced = [one for sentence in sentences for one in module._replace_one(sentence)]
    deleted = [one for sentence in sentences for one in module._delete_one(sentence)]
    assert [*found.deleted_P] == [*module._hash(deleted).whole_N]
    variants = [*zip(found.sentence_P.tolist(), found.word_P.tolist(), strict=True)]
    assert [module._replace(sentences[n], i) for n, i in variants] == replaced
    assert [module._delete(sentences[n], i) for n, i in variants] == deleted
    # Two sentences that differ in one word have a common variant.
    same = module._hash([("a", "x", "c"), ("a", "y", "c")]).replaced_P.reshape(2, 3)
    assert (same[0] == same[1]).tolist() == [False, True, False]


def test_sentences_with_the_same_hash_by_chance_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_find_known", lambda hashes, known: [*range(len(hashes))])
    test_counts_equal_a_comparison_of_all_pairs()


def test_what_is_counted() -> None:
    train = text(("I'm here.", "Je suis là."), ("We sleep all day.", "Nous dormons."), ("Go!", "Va !"))
    held_out = {
        "validation": text(
            ("I am here!", "je suis ici"),  # the source, after normalization
            ("We sleep all night", "Nous dormons"),  # a replaced word; the reference
            ("We all sleep all day", "a"),  # an inserted word
            ("We sleep day", "b"),  # a deleted word
            ("All we sleep day", "c"),  # the words of a training source in another order
            ("Stop!", "d"),  # one word instead of another: nothing in common
        ),
        "test": text(("We run all night", "va"), ("We run all night", "x"), ("we run all night", "y")),
    }
    assert near_duplicates(train, held_out) == {
        "validation": {
            "source_in_train": [0],
            "reference_in_train": [1],
            "source_within_one_word": [0, 1, 2, 3],
            "shared_source": [],
        },
        "test": {
            "source_in_train": [],
            "reference_in_train": [0],
            "source_within_one_word": [],
            "shared_source": [0, 1],
        },
    }
    assert near_duplicates(text(), held_out) == {
        "validation": {"shared_source": []},
        "test": {"shared_source": [0, 1]},
    }


def within_one_word(one: list[str], other: list[str]) -> bool:
    """Compare two sentences word by word, with the definition only."""
    if one == other:
        return True
    shorter, longer = sorted((one, other), key=len)
    if not shorter or len(longer) == 1:
        return False
    if len(longer) - len(shorter) == 1:
        return any(longer[:i] + longer[i + 1 :] == shorter for i in range(len(longer)))
    return len(longer) == len(shorter) and sum(a != b for a, b in zip(one, other, strict=True)) == 1


def test_counts_equal_a_comparison_of_all_pairs() -> None:
    generator = random.Random(1)

    def sentences(count: int) -> list[str]:
        return [" ".join(generator.choices("abcde", k=generator.randrange(6))) for _ in range(count)]

    train = ParallelText(sentences(60), sentences(60))
    held_out = {name: ParallelText(sentences(80), sentences(80)) for name in ("validation", "test")}
    found = near_duplicates(train, held_out)
    for name, split in held_out.items():
        near = {
            i
            for (i, one), other in product(enumerate(split.source), train.source)
            if within_one_word(one.split(), other.split())
        }
        assert found[name]["source_within_one_word"] == sorted(near)
        assert 0 < len(near) < 80
        assert found[name]["source_in_train"] == [
            i for i, one in enumerate(split.source) if one in train.source
        ]
        assert found[name]["reference_in_train"] == [
            i for i, one in enumerate(split.target) if one in train.target
        ]


def test_counts_are_kept_by_the_text(tmp_path, monkeypatch, caplog) -> None:  # type: ignore[no-untyped-def]
    train, validation = text(("a b", "c d")), text(("a b", "x"))
    corpus = Corpus("en", "fr", train, validation, {"test": validation}, {"leaked_pairs": 0})
    counted = with_near_duplicates(corpus, tmp_path)
    assert counted.counts["leaked_pairs"] == 0
    assert counted.counts["test/source_in_train"] == 1
    assert counted.tests["test"].similarity == ["in training"]
    assert counted.train.similarity is None
    calls = []

    def find(*arguments: object) -> module.Found:
        calls.append(arguments)
        return {name: {kind: [] for kind in module.NEAR_DUPLICATES} for name in ("validation", "test")}

    monkeypatch.setattr(module, "near_duplicates", find)
    assert with_near_duplicates(corpus, tmp_path) == counted
    assert not calls
    (entry,) = (tmp_path / "near_duplicates").glob("*.json")
    entry.write_text(entry.read_text().replace("0", "2", 1))
    with_near_duplicates(corpus, tmp_path)
    assert len(calls) == 1
    calls.clear()
    other = Corpus("en", "fr", train, text(("a c", "x")), {"test": validation})
    with_near_duplicates(other, tmp_path)
    assert len(calls) == 1
    (tmp_path / "file").touch()
    with caplog.at_level(logging.WARNING):
        with_near_duplicates(other, tmp_path / "file")
    assert "cannot be written" in caplog.text


def test_processes_that_need_the_same_counts_find_them_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = Corpus("en", "fr", text(("a b", "c d")), text(("a b", "x")), {"test": text(("a", "b"))})
    find, calls = module.near_duplicates, []
    second = Thread(target=with_near_duplicates, args=(corpus, tmp_path))

    def slow(*arguments: Any) -> module.Found:
        calls.append(arguments)
        if len(calls) == 1:
            second.start()
            second.join(0.5)  # it would end if it did not wait
            assert second.is_alive()
        return find(*arguments)

    monkeypatch.setattr(module, "near_duplicates", slow)
    with_near_duplicates(corpus, tmp_path)
    second.join(60)
    assert len(calls) == 1


def test_each_held_out_pair_has_its_similarity(tmp_path: Path) -> None:
    train = text(("we sleep all day", "a"), ("go home", "b"))
    test = text(("We sleep all day!", "c"), ("we sleep all night", "d"), ("they run", "e"))
    corpus = Corpus("en", "fr", train, text(("go home", "f")), {"test": test})
    found = with_near_duplicates(corpus, tmp_path)
    assert found.tests["test"].similarity == ["in training", "within one word", "other"]
    assert found.validation.similarity == ["in training"]
    alone = with_near_duplicates(Corpus("en", "fr", text(), test, {"test": test}), tmp_path)
    assert alone.tests["test"].similarity is None
