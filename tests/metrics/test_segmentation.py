"""How the words of a language are found for BLEU and TER."""

import logging
import random
import sys
import time
from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.lib_ter import translation_edit_rate
from sacrebleu.metrics.ter import TER

from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.bleu import Bleu
from seq2seq_lab.metrics.degeneration import LengthRatio
from seq2seq_lab.metrics.edits import edit_distance
from seq2seq_lab.metrics.sacrebleu_adapter import translation_edits
from seq2seq_lab.metrics.segmentation import SPACED, Segmentation, choose_segmentation
from seq2seq_lab.metrics.ter import Ter
from seq2seq_lab.metrics.texts import References, TextOutputs

CHINESE = ["孩子看见书和旧汽车。", "老师买红色的花和苹果。"]
THAI = ["เด็กชอบรถเก่า", "ครูกินปลาและแอปเปิ้ล"]


@pytest.mark.parametrize(
    ("setting", "language", "references", "expected", "warned"),
    [
        ("auto", "zh", CHINESE, Segmentation("zh", "asian"), False),
        ("auto", "zho_Hans", CHINESE, Segmentation("zh", "asian"), False),
        ("auto", "Chinese", CHINESE, Segmentation("zh", "asian"), False),
        ("auto", "th", THAI, Segmentation("char", "letters"), False),
        ("auto", "target", CHINESE, Segmentation("char", "letters"), True),
        ("auto", "de", THAI, Segmentation("char", "letters"), True),
        ("auto", None, THAI, Segmentation("char", "letters"), True),
        ("13a", "zh", CHINESE, Segmentation("13a", "asian"), True),
        ("char", "zh", CHINESE, Segmentation("char", "asian"), False),
        ("zh", "target", CHINESE, Segmentation("zh", "letters"), False),
        ("auto", "hi", ["हिन्दी में एक किताब है।"], SPACED, False),
        ("auto", "target", ["abcdef", "a dog ."], SPACED, False),
        ("auto", "target", ["今天 天气 很 好 。"], SPACED, False),
        ("auto", "fr", [], SPACED, False),
        ("auto", "am", ["ሰላም፡ለዓለም፡ሁሉ።"], Segmentation("intl", "divided"), False),
        ("auto", "am", ["ሰላም ለዓለም ሁሉ።"], SPACED, False),
    ],
)
def test_the_language_decides(
    setting: str,
    language: str | None,
    references: list[str],
    expected: Segmentation,
    warned: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert choose_segmentation(setting, language, [references]) == expected
    assert ("task.bleu_tokenizer" in caplog.text) is warned


@pytest.mark.parametrize(
    ("setting", "language", "module", "command"),
    [
        ("auto", "ja", "MeCab", "pip install 'seq2seq_lab[ja]'"),
        ("auto", "kor", "mecab_ko", "pip install 'seq2seq_lab[ko]'"),
        ("flores200", "th", "sentencepiece", "pip install sentencepiece"),
    ],
)
def test_a_missing_package_is_named_with_its_command(
    setting: str, language: str, module: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    for name in [name for name in sys.modules if name.startswith("sacrebleu.tokenizers.tokenizer_")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(UserError, match=r"task\.bleu_tokenizer=") as error:
        choose_segmentation(setting, language, [["a"]])
    assert command in str(error.value)


def test_scores_and_signatures_are_those_of_sacrebleu() -> None:
    hypotheses = ["孩子看见旧汽车。", "老师买花和苹果。"]
    outputs = TextOutputs(hypotheses, References(CHINESE, segmentation=Segmentation("zh", "asian")), "zh")
    for metric, scorer in ((Bleu(), BLEU(trg_lang="zh")), (Ter(), TER(normalized=True, asian_support=True))):
        expected = scorer.corpus_score(hypotheses, [CHINESE])
        assert metric.value(metric.rows(outputs).sum(0)) == pytest.approx(expected.score)
        assert metric.signature(outputs) == str(scorer.get_signature())
    assert 0 < LengthRatio().value(LengthRatio().rows(outputs).sum(0)) < 1
    assert Bleu(lowercased_tokenised=True).unavailable(outputs)
    assert "tok:zh" in outputs.references.examples


def test_signs_between_words_separate_them_for_all_scores() -> None:
    references = ["ሰላም፡ለዓለም፡ሁሉ፡ሰው።"]
    segmentation = choose_segmentation("auto", "am", [references])
    outputs = TextOutputs(["ሰላም፡ለዓለም፡ሁሉ፡ውሻ።"], References(references, segmentation=segmentation))
    assert Ter().value(Ter().rows(outputs).sum(0)) == pytest.approx(100 / 4)
    assert str(Ter().signature(outputs)).endswith("|words:divided")
    assert Bleu().value(Bleu().rows(outputs).sum(0)) > 50


def test_ter_of_other_scripts_without_spaces_counts_letters() -> None:
    outputs = TextOutputs(["เด็กชอบรถ"], References(THAI[:1], segmentation=Segmentation("char", "letters")))
    missing = 4  # เ ก่ า, where the mark belongs to its letter, is 3 of 12 letters
    value = Ter().value(Ter().rows(outputs).sum(0))
    assert 0 < value < 100 * missing / 12
    assert str(Ter().signature(outputs)).endswith("|words:letters|shifts:no")


def test_ter_of_letters_is_that_of_lowercased_text_as_sacrebleus() -> None:
    references = References(["ผมชอบ iPhone มาก"], segmentation=Segmentation("char", "letters"))
    outputs = TextOutputs(["ผมชอบ IPHONE มาก"], references)
    assert Ter().value(Ter().rows(outputs).sum(0)) == 0
    assert "|case:lc|" in str(Ter().signature(outputs))


@settings(max_examples=25)
@given(st.lists(st.sampled_from("กขคง"), max_size=9), st.lists(st.sampled_from("กขคง"), max_size=9))
def test_ter_of_letters_is_the_edit_distance_of_every_path(output: list[str], reference: list[str]) -> None:
    @cache
    def slow(left: int, right: int) -> int:
        if not (left and right):
            return left + right
        same = output[left - 1] == reference[right - 1]
        return min(
            slow(left - 1, right) + 1, slow(left, right - 1) + 1, slow(left - 1, right - 1) + (not same)
        )

    assert edit_distance(output, reference) == slow(len(output), len(reference))


@pytest.mark.parametrize(("letters", "longest"), [("ab", 12), ("abcdefgh", 15), ("ab", 45)])
def test_the_edits_of_ter_are_those_of_sacrebleu(letters: str, longest: int) -> None:
    random = Random(1)

    def text() -> list[str]:
        return [random.choice(letters) for _ in range(random.randint(longest // 2, longest))]

    for _ in range(60 if longest < 20 else 4):  # beyond 25 words, sacreBLEU does not search all alignments
        output, reference = text(), text()
        cut = random.randrange(len(output))
        for other in (reference, output[cut:] + output[:cut], []):
            assert translation_edits(output, other) == translation_edit_rate(output, other)[0]


def test_ter_of_letters_with_several_references() -> None:
    references = References(
        ["กขคง", "กขค"], ["a", "a"], multiple=True, segmentation=Segmentation("char", "letters")
    )
    rows = Ter().rows(TextOutputs(["กขคจ", "ก"], references))
    assert rows.tolist() == [[1, 3.5]]


def test_ter_of_many_bad_sentences_without_spaces_is_fast() -> None:
    draw = random.Random(1)
    texts = [["".join(draw.choices(THAI[0], k=100)) for _ in range(100)] for _ in range(2)]
    outputs = TextOutputs(texts[0], References(texts[1], segmentation=Segmentation("char", "letters")))
    start = time.process_time()
    Ter().rows(outputs)
    assert time.process_time() - start < 10  # sacreBLEU needs a second for one of them
