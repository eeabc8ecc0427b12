"""The checks of the corpus of a custom data set."""

from collections.abc import Callable
from typing import Any

import pytest

from seq2seq_lab.data.corpus import Corpus, Gold, OneTestCorpus, ParallelText, load_corpus
from seq2seq_lab.data.labelled import LabelledCorpus, LabelledText, PairCorpus, TaggedCorpus
from seq2seq_lab.data.questions import Answer, QuestionCorpus, label_of
from seq2seq_lab.data.sentences import Sentences
from seq2seq_lab.errors import UserError


class Custom:
    def __init__(self, load: Callable[[], Any]) -> None:
        self.load = load


def pairs(count: int = 3, **columns: Any) -> ParallelText:
    return ParallelText(["a b"] * count, ["c d"] * count, **columns)


def gold(**changes: Any) -> Gold:
    return Gold(**{"source_words": ("a", "b"), "target_words": ("c", "d"), "links": {(0, 1)}, **changes})


def corpus(test: Any = None, tests: Any = None) -> Corpus:
    return Corpus("x", "y", pairs(), pairs(), {"test": test} if tests is None else tests)


@pytest.mark.parametrize(
    ("load", "named"),
    [
        (lambda: ParallelText(["a"] * 3, ["c"] * 2), "source: 3, target: 2"),
        (lambda: ParallelText((text for text in ["a"]), ["c"]), "source is of type generator"),
        (lambda: ParallelText(None, ["c"]), "source is of type NoneType"),  # type: ignore[arg-type]
        (lambda: pairs(gold=[gold()] * 2), "gold: 2"),
        (lambda: gold(target_classes=("NOUN",)), "has 1 values for the 2 words"),
        (lambda: corpus(tests=pairs()), "Custom: tests is of type ParallelText"),
        (lambda: corpus(tests={"validation": pairs()}), "'validation' is not allowed"),
        (lambda: corpus(tests={1: pairs()}), "1 is not allowed"),
        (lambda: corpus(["a b"]), "test is of type list"),
        (lambda: corpus(ParallelText(["a", ["a", "b"]], ["c"] * 2)), r"test, source\[1\]=.* is of type list"),
        (lambda: corpus(ParallelText(["a"] * 2, ["c", None])), r"test, target\[1\]=None"),
        (lambda: corpus(pairs(gold=[gold(), gold(), None])), r"test, gold\[2\]: None"),
        (lambda: corpus(pairs(gold=[gold(), gold(links={(0, 5)}), gold()])), r"gold\[1\]: .*\(0, 5\)"),
        (lambda: corpus(pairs(gold=[gold(possible={(-1, 0)})] * 3)), r"gold\[0\]: possible .*\(-1, 0\)"),
        (lambda: corpus(pairs(gold=[gold(links=[(0, 0)])] * 3)), r"gold\[0\]: links="),
        (lambda: corpus(pairs(gold=[gold(target_subjects=((0, 2),))] * 3)), r"target_subjects .*\(0, 2\)"),
        (lambda: corpus(pairs(gold=[gold(source_words=("a", "z"))] * 3)), r"test, gold\[0\]: .*'z'"),
        (
            lambda: OneTestCorpus("x", Sentences(["a"]), Sentences(["a", 1]), Sentences(["a"])),  # type: ignore[list-item]
            r"validation, lines\[1\]=1",
        ),
        (lambda: labelled(TaggedCorpus, "a b", "D N V"), r"test\[1\]: 2 words, but 3 tags: 'D N V'"),
        (lambda: labelled(TaggedCorpus, "a  b", "D N"), r"test\[1\]: .*single spaces"),
        (lambda: labelled(PairCorpus, "a b", "yes"), r"test\[1\]: 'a b' is not two texts"),
        (lambda: labelled(QuestionCorpus, "a b", "[]"), r"test\[1\]: 'a b' is not a question and a text"),
        (lambda: labelled(QuestionCorpus, "who?\ta b", "b"), r"test\[1\]: the label 'b'"),
        (lambda: labelled(QuestionCorpus, "who?\ta b", '[["b"]]'), r"test\[1\]: the label"),
        (lambda: labelled(QuestionCorpus, "who?\ta b", '[["b", "2"]]'), r"'b' has no first character: '2'"),
        (
            lambda: labelled(QuestionCorpus, "who?\ta b", '[["b", 1]]'),
            r"'b' is not in the text at character 1",
        ),
        (lambda: labelled(LabelledCorpus, "a b", "yes", frozenset((2,))), r"deciding=\[2\]"),
    ],
)
def test_an_invalid_corpus_is_refused_when_it_is_loaded(load: Callable[[], Any], named: str) -> None:
    with pytest.raises(UserError, match=named):
        load_corpus(Custom(load), object, "translation")


def labelled(kind: type[Any], text: str, label: str, deciding: frozenset[int] = frozenset()) -> Any:
    """Return a corpus with a valid example and this one in the test split."""
    valid = {
        TaggedCorpus: ("a b", "D N"),
        PairCorpus: ("a\tb", "yes"),
        QuestionCorpus: ("who?\ta b", label_of([Answer("b", 2)])),
        LabelledCorpus: ("a b", "yes"),
    }
    first, own = valid[kind]
    one = LabelledText([first], [own])
    return kind("x", one, one, LabelledText([first, text], [own, label], [frozenset((0,)), deciding]))


@pytest.mark.parametrize(
    ("kind", "text", "label"),
    [
        (TaggedCorpus, "a", "N"),
        (PairCorpus, "b\ta", "no"),
        (QuestionCorpus, "who?\ta b", "[]"),
        (LabelledCorpus, "", "yes"),
    ],
)
def test_a_valid_corpus_of_labels_is_accepted(kind: type[Any], text: str, label: str) -> None:
    found = labelled(kind, text, label)
    assert load_corpus(Custom(lambda: found), kind, "x") is found


def test_a_valid_corpus_is_accepted() -> None:
    found = corpus(pairs(gold=[gold(possible={(1, 0)}, target_subjects=((0, 1),))] * 3))
    assert load_corpus(Custom(lambda: found), Corpus, "translation") is found


def test_a_corpus_of_another_type_is_refused_with_the_data_sets_of_the_task() -> None:
    found = corpus(pairs())
    with pytest.raises(
        UserError, match=r"\(seq2seq_lab\.data\.questions\).*another data set: dataset=questions\.$"
    ):
        load_corpus(Custom(lambda: found), QuestionCorpus, "span")
    with pytest.raises(UserError, match=r"dataset=grammar, .*dataset=parallel,"):
        load_corpus(Custom(list), Corpus, "translation")
