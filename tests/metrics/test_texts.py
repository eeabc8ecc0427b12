"""Metrics of texts: what sacreBLEU computes, under both conditions, by group and with several references."""

import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

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
from seq2seq_lab.metrics.accuracy import ExactMatch
from seq2seq_lab.metrics.base import Grouping, Metric
from seq2seq_lab.metrics.bleu import Bleu, sentence_bleu
from seq2seq_lab.metrics.chrf import Chrf
from seq2seq_lab.metrics.measurement import GroupValue, measure
from seq2seq_lab.metrics.significance import SEED
from seq2seq_lab.metrics.ter import Ter
from seq2seq_lab.metrics.texts import (
    References,
    TextMetric,
    TextOutputs,
    length_groups,
    lowercased_tokens,
    moses_languages,
)

pytestmark = pytest.mark.usefixtures("with_full_reports")


class Score(NamedTuple):
    value: float
    signature: str
    confidence: float | None


def outputs_of(
    hypotheses: Sequence[str], references: Sequence[str] | References, language: str | None = None
) -> TextOutputs:
    known = references if isinstance(references, References) else References(references)
    return TextOutputs(hypotheses, known, language)


def score(
    metric: Metric,
    hypotheses: Sequence[str],
    references: Sequence[str] | References,
    language: str | None = None,
    samples: int = 0,
) -> Score:
    outputs = outputs_of(hypotheses, references, language)
    clusters = outputs.references.clusters
    found = measure(
        [metric],
        outputs,
        clusters=clusters,
        examples="",
        final=samples > 0,
        samples=samples,
        also=[metric.name],
    )
    values = found.values
    return Score(values[metric.name], found.signatures[metric.name], values.get(f"{metric.name}_confidence"))


def bleu_by(
    groups: Any, hypotheses: Sequence[str], references: Sequence[str] | References, samples: int = 10
) -> list[GroupValue]:
    outputs = outputs_of(hypotheses, references)
    grouping = Grouping("kind", "kind", Bleu(), lambda _: groups)
    found = measure(
        [],
        outputs,
        clusters=outputs.references.clusters,
        examples="",
        final=True,
        samples=samples,
        groupings=[grouping],
    )
    return found.groups["bleu_by_kind"]


REFERENCES = ["the cat sat on the mat", "a dog runs in the park today"]
HYPOTHESES = ["the cat sat on a mat", "a dog runs in the park today"]


def test_bleu_by_hand() -> None:
    # n-gram matches 5+7, 3+6, 2+5, 1+4 of 6+7, 5+6, 4+5, 3+4; equal lengths, so no brevity penalty.
    expected = 100 * math.prod([12 / 13, 9 / 11, 7 / 9, 5 / 7]) ** 0.25
    found = score(Bleu(), HYPOTHESES, REFERENCES)
    assert found.value == pytest.approx(expected)
    # The signature changes only with sacreBLEU's version.
    assert found.signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")


def test_bleu_minds_case_and_separates_punctuation() -> None:
    assert score(Bleu(), ["The cat sat here."], ["The cat sat here ."]).value == pytest.approx(100)
    assert score(Bleu(), ["the cat sat here."], ["The cat sat here."]).value < 80


def test_short_references_are_scored_with_effective_order_in_the_signature() -> None:
    found = score(Bleu(), ["Jean aime Marie"], ["Jean aime Marie"])
    assert found.value == pytest.approx(100)
    assert "eff:yes" in found.signature
    # Full stops are tokens: this reference has a 4-gram.
    assert "eff:no" in score(Bleu(), ["Jean aime Marie."], ["Jean aime Marie."]).signature


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
    return score(Bleu(lowercased_tokenised=True), hypotheses, references, language)


def test_lowercased_tokenised_bleu_by_hand() -> None:
    # The full stop is a token; n-gram matches 6 of 7, 4 of 6, 2 of 5, 1 of 4.
    expected = 100 * math.prod([6 / 7, 4 / 6, 2 / 5, 1 / 4]) ** 0.25
    found = lowercased_tokenised_bleu(["the CAT sat on a mat."], ["The cat sat on the mat."], "en")
    assert found.value == pytest.approx(expected)
    assert re.fullmatch(
        r"nrefs:1\|case:lc\|eff:no\|tok:none\|smooth:exp\|version:[\d.]+\|moses:sacremoses-[\d.]+-en",
        found.signature,
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
    chrf, ter = Chrf(lowercased_tokenised=True), Ter(lowercased_tokenised=True)
    same, other = ["le CHAT dort ."], ["Le chien dort."]
    reference = ["Le chat dort."]
    assert score(chrf, same, reference, "fr").value == pytest.approx(100)
    assert score(ter, same, reference, "fr").value == 0
    assert score(ter, other, reference, "fr").value == pytest.approx(100 / 4)
    assert 0 < score(chrf, other, reference, "fr").value < 100
    for metric in (chrf, ter):
        found = score(metric, [*same, *other], reference * 2, "fr", samples=10)
        assert re.match(r"nrefs:1\|case:lc\|", found.signature)
        assert re.search(r"\|moses:sacremoses-[\d.]+-fr$", found.signature)
        assert found.confidence is not None


def test_lowercased_tokens_are_only_scored_for_languages_with_rules() -> None:
    for metric in (Bleu(lowercased_tokenised=True), Chrf(lowercased_tokenised=True)):
        assert metric.unavailable(outputs_of(["a"], ["a"], "fr")) is None
        for language in ("target", None):
            assert metric.unavailable(outputs_of(["a"], ["a"], language)) is not None


def test_texts_with_unknown_words_replaced_are_scored_apart() -> None:
    replaced, plain = Bleu(unknown_replaced=True), outputs_of([f"a b c {UNKNOWN}"], ["a b c d"])
    assert replaced.unavailable(plain) is not None
    both = TextOutputs(
        plain.hypotheses, plain.references, "en", outputs_of(["a b c d"], plain.references, "en")
    )
    metrics = [Bleu(), replaced, Bleu(lowercased_tokenised=True, unknown_replaced=True)]
    values = measure(metrics, both, clusters=plain.references.clusters, examples="").values
    assert values["bleu"] < values["bleu_unknown_replaced"] == pytest.approx(100)
    assert values["bleu_lowercased_tokenised_unknown_replaced"] == pytest.approx(100)


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
    for metric in (Bleu(), Chrf()):
        found = score(metric, unknown, reference)
        assert found == score(metric, wrong, reference)
        assert found.value < 100
    assert score(Ter(), unknown, reference).value == pytest.approx(100 / 8)


def test_chrf() -> None:
    found = score(Chrf(), HYPOTHESES, REFERENCES)
    assert 80 < found.value < 100
    assert "nc:6|nw:0" in found.signature
    assert score(Chrf(), REFERENCES, REFERENCES).value == pytest.approx(100)


def test_sentence_bleu() -> None:
    score = partial(sentence_bleu, tokenizer="13a")
    assert score("Jean aime Marie", "Jean aime Marie") == pytest.approx(100)
    assert score("", "Jean aime Marie") == 0
    assert 0 < score("Jean aime Anne", "Jean aime Marie") < 100
    assert sentence_bleu("我爱你", "我爱他", tokenizer="char") > 0 == score("我爱你", "我爱他")


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


TEXT_METRICS = (Bleu(), Chrf(), Ter())


@pytest.mark.parametrize("metric", TEXT_METRICS, ids=lambda metric: metric.name)
def test_confidence_resamples_source_sentences(metric: TextMetric) -> None:
    def found(hypotheses: list[str], references: References) -> Score:
        return score(metric, hypotheses, references, samples=200)

    once = found(LONG_HYPOTHESES, References(LONG_REFERENCES))
    assert once == found(LONG_HYPOTHESES, References(LONG_REFERENCES, SOURCES))
    # The same pair three times is one observation, wherever its copies are.
    thrice = [*SOURCES, *SOURCES[::-1], *SOURCES]
    hypotheses = [*LONG_HYPOTHESES, *LONG_HYPOTHESES[::-1], *LONG_HYPOTHESES]
    references = [*LONG_REFERENCES, *LONG_REFERENCES[::-1], *LONG_REFERENCES]
    clustered = found(hypotheses, References(references, thrice))
    assert clustered.confidence == pytest.approx(once.confidence, rel=1e-5)
    independent = found(hypotheses, References(references))
    assert independent.confidence is not None
    assert once.confidence is not None
    assert independent.confidence < 0.75 * once.confidence
    assert clustered.value == pytest.approx(independent.value) == pytest.approx(once.value)


def test_given_clusters_replace_those_of_source_sentences() -> None:
    sources, clusters = ["un", "deux", "un", "trois", "quatre"], [7, 7, 7, 9, 9]
    references = References(LONG_REFERENCES, sources, clusters=clusters)
    assert references.clusters.tolist() == clusters
    assert references.lowercased_tokenised("en").clusters.tolist() == clusters
    assert References(LONG_REFERENCES, sources, True, clusters).clusters.tolist() == [7, 7, 9, 9]


@pytest.mark.parametrize("kind", [BLEU, CHRF, TER])
def test_values_and_intervals_are_those_of_sacrebleus_own_bootstrap(kind: Any) -> None:
    # sacreBLEU's private API is used in one module; this test fails when sacreBLEU changes it.
    metric = {BLEU: Bleu(), CHRF: Chrf(), TER: Ter()}[kind]
    found = score(metric, LONG_HYPOTHESES, LONG_REFERENCES, samples=100)
    own = kind().corpus_score(LONG_HYPOTHESES, [LONG_REFERENCES])
    assert found.value == own.score
    counts = np.array(kind()._extract_corpus_statistics(LONG_HYPOTHESES, [LONG_REFERENCES]), np.float32)
    generator = np.random.default_rng(SEED)
    resampled = np.sort(
        [
            kind()._compute_score_from_stats(counts[generator.choice(5, size=5)].sum(0)).score
            for _ in range(100)
        ]
    )
    assert found.confidence == (resampled[97] - resampled[2]) / 2


def test_sentences_of_one_source_are_scored_once_against_all_their_references() -> None:
    sources = ["un", "deux", "un", "trois", "un"]
    references = References(LONG_REFERENCES, sources, multiple=True)
    streams = [
        [LONG_REFERENCES[0], LONG_REFERENCES[1], LONG_REFERENCES[3]],
        [LONG_REFERENCES[2], None, None],
        [LONG_REFERENCES[4], None, None],
    ]
    hypotheses = [LONG_HYPOTHESES[i] for i in (0, 1, 3)]
    for metric, scorer in zip(TEXT_METRICS, (BLEU(), CHRF(), TER()), strict=True):
        found = score(metric, LONG_HYPOTHESES, references)
        expected = scorer.corpus_score(hypotheses, streams)  # type: ignore[arg-type]
        assert found.value == pytest.approx(expected.score)
        assert found.signature == str(scorer.get_signature())
        assert found.signature.startswith("nrefs:var|")
        if metric.name != "ter":
            assert scorer.corpus_score(hypotheses, references.padded()).score == pytest.approx(found.value)
    assert references.padded()[1:] == [[LONG_REFERENCES[i], *streams[0][1:]] for i in (2, 4)]
    english = score(Bleu(lowercased_tokenised=True), LONG_HYPOTHESES, references, "en")
    assert english.signature.startswith("nrefs:var|case:lc")
    sums = references.sum_of_scored(np.array([[1.0], [2], [3], [4], [5]]))
    assert sums.tolist() == [[9], [2], [4]]
    with pytest.raises(UserError, match="3 hypotheses for 5 references"):
        score(Bleu(), hypotheses, references)


def test_examples_are_identified_by_pairs_and_by_how_they_are_scored() -> None:
    pairs = References(LONG_REFERENCES, SOURCES)
    assert pairs.examples == References(LONG_REFERENCES, SOURCES).examples
    for other in (
        References(LONG_REFERENCES, SOURCES, multiple=True),
        References(LONG_REFERENCES, SOURCES[::-1]),
    ):
        assert other.examples != pairs.examples


def test_lists_that_do_not_match_are_refused() -> None:
    with pytest.raises(UserError, match="2 hypotheses for 1 references"):
        score(Chrf(), HYPOTHESES, REFERENCES[:1])
    with pytest.raises(UserError, match="hypothesis"):
        outputs_of([], []).scored  # noqa: B018


def test_lengths_are_grouped_with_the_upper_bound() -> None:
    assert length_groups([6, 7, 18, 19], [6, 18]) == {"≤6": [0], "7–18": [1, 2], ">18": [3]}
    assert length_groups([5, 1], []) == {"all": [0, 1]}


def test_bleu_by_group_is_that_of_the_sentences_of_the_group() -> None:
    hypotheses = ["a b c d", "e f g h", "i j k l", "m n o p"]
    references = ["a b c d", "e f g h", "i j k x", "m n o p"]
    first, second = bleu_by({"x": [0], "y": [1, 2]}, hypotheses, references)
    assert (first.group, first.count, first.value) == ("x", 1, pytest.approx(100))
    assert second.value == pytest.approx(score(Bleu(), hypotheses[1:3], references[1:3]).value)


def test_the_interval_of_a_group_resamples_its_source_sentences() -> None:
    hypotheses = ["a b c d e", "f g h i x", "k l m n o", "p q r x t"] * 3
    references = ["a b c d e", "f g h i j", "k l m n o", "p q r s t"] * 3
    sources = [f"source {i % 4}" for i in range(12)]
    members = [i for i in range(12) if i % 4 != 2]
    groups = {"short": members, "long": [2, 6, 10]}
    short, long = bleu_by(groups, hypotheses, References(references, sources), samples=100)
    alone = score(
        Bleu(),
        [hypotheses[i] for i in members],
        References([references[i] for i in members], [sources[i] for i in members]),
        samples=100,
    )
    assert short.confidence == alone.confidence
    assert short.confidence is not None
    assert short.confidence > 0
    assert long.confidence is None  # one source sentence


def test_bleu_is_not_defined_for_groups_of_short_references() -> None:
    found = bleu_by(
        {"short": [0], "none": [], "long": [1]},
        ["Jean aime Marie", "a b c d e"],
        ["Jean aime Marie", "v w x y z"],
    )
    assert found == [
        GroupValue("short", 1, None),
        GroupValue("none", 0, None),
        GroupValue("long", 1, 0.0),
    ]
    # A short output for a long reference scores 0 and is not left out.
    assert bleu_by({"all": [0]}, ["a b c"], ["a b c d e"])[0].value == 0
    assert bleu_by({"all": [0]}, ["a b c"], ["a b c"])[0].value is None


def test_exact_match() -> None:
    references = References(["a b", "c", "d", "e"], ["1", "2", "3", "1"], multiple=True)
    rows = ExactMatch().rows(outputs_of(["e", "c", "D", "x"], references))
    assert rows.tolist() == [[1, 1], [1, 1], [0, 1]]
    assert ExactMatch().value(rows.sum(0)) == pytest.approx(2 / 3)
    spaced = References(["a  b ", "c"])  # a tokenizer writes single spaces
    assert ExactMatch().rows(outputs_of(["a b", "c d"], spaced))[:, 0].tolist() == [1, 0]
