"""Scores: what sacreBLEU is asked, and the traps around it."""

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
from sacrebleu.tokenizers.tokenizer_ter import TercomTokenizer

from seq2seq_lab.data.corpus import UNKNOWN
from seq2seq_lab.data.tokenizers import UNK, CharTokenizer, Tokenizer, WhitespaceTokenizer, WordTokenizer
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.scores import (
    SACREBLEU_SEED,
    Accuracy,
    Bleu,
    LengthBin,
    LowercasedTokenised,
    References,
    Score,
    accuracy_by_phenomenon,
    chrf,
    lowercased_tokens,
    moses_languages,
    paired_bootstrap,
    sentence_bleu,
    ter,
)

REFERENCES = ["the cat sat on the mat", "a dog runs in the park today"]
HYPOTHESES = ["the cat sat on a mat", "a dog runs in the park today"]


def test_bleu_by_hand() -> None:
    # n-gram matches 5+7, 3+6, 2+5, 1+4 of 6+7, 5+6, 4+5, 3+4; equal lengths, so no brevity penalty.
    expected = 100 * math.prod([12 / 13, 9 / 11, 7 / 9, 5 / 7]) ** 0.25
    score = Bleu(HYPOTHESES, REFERENCES).score()
    assert score.value == pytest.approx(expected)
    # The signature changes only with sacreBLEU's version.
    assert score.signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")


def test_bleu_minds_case_and_separates_punctuation() -> None:
    assert Bleu(["The cat sat here."], ["The cat sat here ."]).score().value == pytest.approx(100)
    assert Bleu(["the cat sat here."], ["The cat sat here."]).score().value < 80


def test_corpus_of_short_references_is_scored_with_effective_order_and_says_so() -> None:
    score = Bleu(["Jean aime Marie"], ["Jean aime Marie"]).score()
    assert score.value == pytest.approx(100)
    assert "eff:yes" in score.signature
    # Full stops are tokens: this reference has a 4-gram.
    assert "eff:no" in Bleu(["Jean aime Marie."], ["Jean aime Marie."]).score().signature


@pytest.mark.parametrize(
    ("language", "line", "tokens"),
    [
        (
            "fr",
            "Les vestes d'hiver, à l’arrière-plan.",
            "les vestes d&apos; hiver , à l&apos; arrière-plan .",
        ),
        ("en", "A man's “Big” hat (red).", "a man &apos;s &quot; big &quot; hat ( red ) ."),
        ("de", "Die Kids' Nr. 93 | 10.", "die kids &apos; nr . 93 &#124; 10."),
        ("fr", "", ""),
    ],
)
def test_moses_tokens(language: str, line: str, tokens: str) -> None:
    # Moses' rules; they change only with the version of sacremoses.
    assert lowercased_tokens([line], language) == [tokens]


def lowercased_tokenised_bleu(hypotheses: list[str], references: list[str], language: str) -> Score:
    papers = LowercasedTokenised(references, language)
    return papers.bleu(papers.tokens(hypotheses))


def test_lowercased_tokenised_bleu_by_hand() -> None:
    # The full stop is a token; n-gram matches 6 of 7, 4 of 6, 2 of 5, 1 of 4.
    expected = 100 * math.prod([6 / 7, 4 / 6, 2 / 5, 1 / 4]) ** 0.25
    score = lowercased_tokenised_bleu(["the CAT sat on a mat."], ["The cat sat on the mat."], "en")
    assert score.value == pytest.approx(expected)
    assert re.fullmatch(
        r"nrefs:1\|case:lc\|eff:no\|tok:none\|smooth:exp\|version:[\d.]+\|moses:sacremoses-[\d.]+-en",
        score.signature,
    )


def test_lowercased_tokenised_bleu_hangs_on_the_language() -> None:
    hypothesis, reference = "Il aime eau et air", "Il aime l'eau et l'air"

    def expected(words: float, pairs: float) -> float:
        # No 3-gram of 3 and no 4-gram of 2 match: half and a quarter of one count; 5 tokens for 7.
        return 100 * math.exp(1 - 7 / 5) * math.prod([words, pairs, 0.5 / 3, 0.25 / 2]) ** 0.25

    french, english = (lowercased_tokenised_bleu([hypothesis], [reference], code) for code in ("fr", "en"))
    assert french.value == pytest.approx(expected(5 / 5, 2 / 4))  # l' eau: il aime, eau et
    assert english.value == pytest.approx(expected(3 / 5, 1 / 4))  # l 'eau: il aime
    assert french.signature.endswith("-fr")


def test_lowercased_tokenised_bleu_treats_both_sides_alike() -> None:
    reference = "« L’eau » <est> [là] & 'ici' | fin."
    same, other = "\"l'eau\" <EST> [Là] & 'Ici' | fin .", "\"l'eau\" <est> [là] &amp; 'ici' | fin."
    assert lowercased_tokenised_bleu([same], [reference], "fr").value == pytest.approx(100)
    assert lowercased_tokenised_bleu([other], [reference], "fr").value < 90


def test_lowercased_tokenised_bleu_of_short_references_and_of_lists_that_do_not_match() -> None:
    short = lowercased_tokenised_bleu(["jean aime marie"], ["Jean aime Marie"], "fr")
    assert short.value == pytest.approx(100)
    assert "eff:yes" in short.signature
    with pytest.raises(UserError, match="2 hypotheses for 1 references"):
        lowercased_tokenised_bleu(HYPOTHESES, REFERENCES[:1], "en")


def test_lowercased_tokenised_chrf_and_ter() -> None:
    papers = LowercasedTokenised(["Le chat dort."], "fr")
    tokens = papers.tokens(["le CHAT dort ."])
    assert (papers.chrf(tokens).value, papers.ter(tokens).value) == (pytest.approx(100), 0)
    tokens = papers.tokens(["Le chien dort."])
    assert papers.ter(tokens).value == pytest.approx(100 / 4)
    assert 0 < papers.chrf(tokens).value < 100
    for score in (papers.chrf(tokens, samples=10), papers.ter(tokens, samples=10)):
        assert re.match(r"nrefs:1\|case:lc\|", score.signature)
        assert re.search(r"\|moses:sacremoses-[\d.]+-fr$", score.signature)
        assert score.confidence is not None


def test_moses_has_rules_for_codes_of_languages_alone() -> None:
    known = moses_languages()
    assert {"cs", "de", "en", "fr"} <= known
    assert known.isdisjoint({"source", "target", "english", "xx", ""})


def translation_with_unknown(kind: type[Tokenizer], line: str, unknown: str) -> str:
    """Encode and decode a line with a tokenizer that has not learned one of its words."""
    tokenizer = kind(joint=False, lowercase=False, min_frequency=1, max_size=None)  # type: ignore[call-arg]
    tokenizer.train([line.replace(unknown, "chat")])
    (ids,) = tokenizer.encode([line])
    assert UNK in ids
    return tokenizer.decode(ids)


@pytest.mark.parametrize(
    ("kind", "line", "unknown"),
    [
        (WordTokenizer, "Un chien voit l'okapi.", "okapi"),
        (WordTokenizer, "Un chien (okapi), dit-il.", "okapi"),
        (WordTokenizer, "okapi dort.", "okapi"),
        (WhitespaceTokenizer, "Un chien voit okapi .", "okapi"),
        (CharTokenizer, "Un chien voit l'okzpi.", "z"),
    ],
)
@pytest.mark.parametrize(
    "tokenize",
    [
        Tokenizer13a(),  # type: ignore[no-untyped-call]
        TercomTokenizer(),
        lambda line: lowercased_tokens([line], "fr")[0],
        lambda line: lowercased_tokens([line], "de")[0],
    ],
    ids=["13a", "ter", "moses-fr", "moses-de"],
)
def test_an_unknown_word_is_scored_as_one_token_that_matches_nothing(
    kind: type[Tokenizer], line: str, unknown: str, tokenize: Callable[[str], str]
) -> None:
    translated = tokenize(translation_with_unknown(kind, line, unknown)).split()
    reference = tokenize(line).split()
    assert len(translated) == len(reference)
    differing = [pair for pair in zip(translated, reference, strict=True) if pair[0] != pair[1]]
    ((found, _),) = differing
    assert UNKNOWN in found


def test_an_unknown_word_costs_bleu_chrf_and_ter_one_word() -> None:
    reference = ["le vieux chien noir dort dans la rue"]
    unknown, wrong = (
        [reference[0].replace("noir", word)] for word in (UNKNOWN, "\N{CJK UNIFIED IDEOGRAPH-4E00}")
    )
    for score in (Bleu(unknown, reference).score().value, chrf(unknown, reference).value):
        assert score < 100
    assert Bleu(unknown, reference).score() == Bleu(wrong, reference).score()
    assert chrf(unknown, reference) == chrf(wrong, reference)
    assert ter(unknown, reference).value == pytest.approx(100 / 8)


def test_chrf() -> None:
    score = chrf(HYPOTHESES, REFERENCES)
    assert 80 < score.value < 100
    assert "nc:6|nw:0" in score.signature
    assert chrf(REFERENCES, REFERENCES).value == pytest.approx(100)


def test_sentence_bleu() -> None:
    assert sentence_bleu("Jean aime Marie", "Jean aime Marie") == pytest.approx(100)
    assert sentence_bleu("", "Jean aime Marie") == 0
    assert 0 < sentence_bleu("Jean aime Anne", "Jean aime Marie") < 100


SOURCES = ["un", "deux", "trois", "quatre", "cinq"]
LONG_REFERENCES = [f"{word} cats sat on the mat and slept" for word in ("the", "two", "big", "red", "old")]
LONG_HYPOTHESES = [
    "the cats sat on the mat and slept",
    "two dogs sat on the mat and slept",
    "big cats ran to the mat and slept",
    "a red cat sat on a mat",
    "old cats sat on the mat",
]
OTHER_HYPOTHESES = [
    "the cat sat on the mat and slept",
    "two cats sat on the mat and slept",
    "big cats ran to a mat and slept",
    "red cats sat on a mat and slept",
    "old dogs sat on the mat",
]


def scorers() -> dict[str, Callable[[list[str], References], Score]]:
    return {
        "bleu": lambda hypotheses, references: Bleu(hypotheses, references).score(samples=200),
        "chrf": lambda hypotheses, references: chrf(hypotheses, references, samples=200),
        "ter": lambda hypotheses, references: ter(hypotheses, references, samples=200),
    }


@pytest.mark.parametrize("name", scorers())
def test_confidence_resamples_source_sentences(name: str) -> None:
    score = scorers()[name]
    once = score(LONG_HYPOTHESES, References(LONG_REFERENCES))
    assert once == score(LONG_HYPOTHESES, References(LONG_REFERENCES, SOURCES))
    # The same pair three times is one observation, wherever its copies are.
    thrice = [*SOURCES, *SOURCES[::-1], *SOURCES]
    hypotheses = [*LONG_HYPOTHESES, *LONG_HYPOTHESES[::-1], *LONG_HYPOTHESES]
    references = [*LONG_REFERENCES, *LONG_REFERENCES[::-1], *LONG_REFERENCES]
    clustered = score(hypotheses, References(references, thrice))
    assert clustered.confidence == pytest.approx(once.confidence, rel=1e-5)
    independent = score(hypotheses, References(references))
    assert independent.confidence is not None
    assert once.confidence is not None
    assert independent.confidence < 0.75 * once.confidence
    assert clustered.value == pytest.approx(independent.value) == pytest.approx(once.value)


def test_paired_bootstrap_is_the_two_sided_test_of_sacrebleus_samples() -> None:
    third = [*LONG_HYPOTHESES[:4], "old cats lay on the mat"]
    metric = BLEU(references=[LONG_REFERENCES])
    draws = np.random.default_rng(SACREBLEU_SEED).choice(len(SOURCES), size=(500, len(SOURCES)))

    def scores(hypotheses: list[str]) -> Any:
        counts: Any = np.array(metric._extract_corpus_statistics(hypotheses, None))
        of_samples = [metric._compute_score_from_stats(list(counts[rows].sum(0))).score for rows in draws]
        return metric._compute_score_from_stats(list(counts.sum(0))).score, np.array(of_samples)

    score, resampled = scores(LONG_HYPOTHESES)
    expected = []
    for hypotheses in (OTHER_HYPOTHESES, third):
        other, others = scores(hypotheses)
        differences = others - resampled
        greater = np.abs(differences - differences.mean()) >= abs(other - score)
        expected.append((greater.sum() + 1) / 501)
    assert 0.05 < min(expected) < max(expected) < 0.9
    for references in (LONG_REFERENCES, References(LONG_REFERENCES, SOURCES)):
        found_p = paired_bootstrap(LONG_HYPOTHESES, [OTHER_HYPOTHESES, third], references, 500)
        assert found_p == pytest.approx(expected)


def test_paired_bootstrap_of_a_system_against_itself() -> None:
    assert paired_bootstrap(LONG_HYPOTHESES, [LONG_HYPOTHESES], LONG_REFERENCES, 100) == [1]


def test_paired_bootstrap_resamples_source_sentences() -> None:
    once = paired_bootstrap(LONG_HYPOTHESES, [OTHER_HYPOTHESES], LONG_REFERENCES, 500)
    references = References(LONG_REFERENCES * 8, SOURCES * 8)
    assert paired_bootstrap(LONG_HYPOTHESES * 8, [OTHER_HYPOTHESES * 8], references, 500) == once
    assert paired_bootstrap(LONG_HYPOTHESES * 8, [OTHER_HYPOTHESES * 8], LONG_REFERENCES * 8, 500) < once


def test_sentences_of_one_source_are_scored_once_against_all_their_references() -> None:
    sources = ["un", "deux", "un", "trois", "un"]
    references = References(LONG_REFERENCES, sources, multiple=True)
    streams = [
        [LONG_REFERENCES[0], LONG_REFERENCES[1], LONG_REFERENCES[3]],
        [LONG_REFERENCES[2], None, None],
        [LONG_REFERENCES[4], None, None],
    ]
    hypotheses = [LONG_HYPOTHESES[i] for i in (0, 1, 3)]
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF()), ("ter", TER())):
        found = scorers()[name](LONG_HYPOTHESES, references)
        expected = metric.corpus_score(hypotheses, streams)  # type: ignore[arg-type]
        assert found.value == pytest.approx(expected.score)
        assert found.signature == str(metric.get_signature())
        assert found.signature.startswith("nrefs:var|")
        if name != "ter":
            assert metric.corpus_score(hypotheses, references.padded()).score == pytest.approx(found.value)
    bins = Bleu(LONG_HYPOTHESES, references).by_length([3, 9, 3, 3, 3], [5])
    assert [one.count for one in bins] == [2, 1]
    assert references.padded()[1:] == [[LONG_REFERENCES[i], *streams[0][1:]] for i in (2, 4)]
    papers = LowercasedTokenised(LONG_REFERENCES, "en", sources, multiple=True)
    assert papers.bleu(papers.tokens(LONG_HYPOTHESES)).signature.startswith("nrefs:var|case:lc")
    with pytest.raises(UserError, match="3 hypotheses for 5 references"):
        Bleu(hypotheses, references)


@pytest.mark.parametrize("score", [Bleu, chrf])
def test_lists_that_do_not_match_are_refused(score) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UserError, match="2 hypotheses for 1 references"):
        score(HYPOTHESES, REFERENCES[:1])
    with pytest.raises(UserError, match="no sentence"):
        score([], [])


def test_bins_hold_their_upper_bound() -> None:
    hypotheses = ["a b c d", "e f g h", "i j k l", "m n o p"]
    references = ["a b c d", "e f g h", "i j k x", "m n o p"]
    first, middle, last = Bleu(hypotheses, references).by_length([6, 7, 18, 19], [6, 18])
    assert (first.low, first.high, first.count, first.label) == (0, 6, 1, "≤6")
    assert (middle.low, middle.high, middle.count, middle.label) == (7, 18, 2, "7–18")
    assert (last.low, last.high, last.count, last.label) == (19, None, 1, ">18")
    assert first.bleu == pytest.approx(100)
    assert middle.bleu == pytest.approx(Bleu(hypotheses[1:3], references[1:3]).score().value)


def test_the_interval_of_a_bin_resamples_its_source_sentences() -> None:
    hypotheses = ["a b c d e", "f g h i x", "k l m n o", "p q r x t"] * 3
    references = ["a b c d e", "f g h i j", "k l m n o", "p q r s t"] * 3
    sources = [f"source {i % 4}" for i in range(12)]
    lengths = [3, 3, 9, 3] * 3
    short, long = Bleu(hypotheses, References(references, sources)).by_length(lengths, [5], samples=100)
    members = [i for i, length in enumerate(lengths) if length == 3]
    alone = Bleu(
        [hypotheses[i] for i in members],
        References([references[i] for i in members], [sources[i] for i in members]),
    )
    assert short.confidence == alone.score(100).confidence
    assert short.confidence is not None
    assert short.confidence > 0
    assert long.confidence == 0  # one source sentence
    assert Bleu(hypotheses, references).by_length(lengths, [5])[0].confidence is None


def test_bins_without_meaning_have_no_score() -> None:
    bins = Bleu(["Jean aime Marie", "a b c d e"], ["Jean aime Marie", "v w x y z"]).by_length([3, 9], [3, 6])
    assert bins[0] == LengthBin(0, 3, count=1, bleu=None)
    assert bins[1] == LengthBin(4, 6, count=0, bleu=None)
    assert bins[2] == LengthBin(7, None, count=1, bleu=0.0)


def test_short_output_for_a_long_reference_scores_zero_and_is_not_left_out() -> None:
    (only,) = Bleu(["a b c"], ["a b c d e"]).by_length([5], [])
    assert only == LengthBin(0, None, count=1, bleu=0.0)
    assert only.label == "all"


@pytest.mark.parametrize("bounds", [[6, 6], [9, 6], [0, 6]])
def test_bounds_must_rise_and_be_positive(bounds: list[int]) -> None:
    with pytest.raises(UserError, match="bounds="):
        Bleu(HYPOTHESES, REFERENCES).by_length([6, 7], bounds)


def test_bins_need_a_length_a_sentence() -> None:
    with pytest.raises(UserError, match="1 source lengths for 2 hypotheses"):
        Bleu(HYPOTHESES, REFERENCES).by_length([6], [6])


def test_accuracy_by_phenomenon_counts_a_sentence_for_all_it_shows() -> None:
    phenomena = [frozenset({"negation", "question"}), frozenset({"negation"}), frozenset[str]()]
    rows = accuracy_by_phenomenon(["a b", "c", "d"], ["a b", "C", "d"], phenomena)
    assert rows == [Accuracy("negation", 2, 0.5), Accuracy("question", 1, 1.0)]
    with pytest.raises(UserError, match="2 hypotheses for 3"):
        accuracy_by_phenomenon(["a", "b"], ["a", "b", "c"], phenomena)
