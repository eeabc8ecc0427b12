import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from seq2seq_lab.data.corpus import CONTENT_CLASSES, Corpus, Gold, ParallelText
from seq2seq_lab.data.grammar import Grammar, held_out, lexicon
from seq2seq_lab.data.grammar.clauses import Clauses
from seq2seq_lab.data.grammar.noun_kinds import ANIMALS, KINDS, PEOPLE
from seq2seq_lab.data.grammar.noun_phrases import PAST, nominal
from seq2seq_lab.data.grammar.phrase import (
    PHENOMENA,
    Phrase,
    Word,
    french_text,
    gold,
    spell_french,
)
from seq2seq_lab.data.grammar.verb_phrases import Clause, combinations
from seq2seq_lab.data.tokenizers import WordTokenizer
from seq2seq_lab.errors import UserError

YAML = Path(__file__).parents[2] / "conf" / "dataset" / "grammar.yaml"
ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJLMPSVÉâàçéèêîïôœùû' .,?-"


def make(**changed: float) -> Grammar:
    arguments = dict(OmegaConf.load(YAML))
    assert arguments.pop("_target_") == "seq2seq_lab.data.grammar.Grammar"
    return Grammar(**{**arguments, **changed})


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return make().load()


def gold_of(split: ParallelText) -> Sequence[Gold]:
    assert split.gold is not None
    return split.gold


@pytest.fixture(scope="module")
def golds(corpus: Corpus) -> list[Gold]:
    splits = (corpus.train, corpus.validation, *corpus.tests.values())
    return [pair for split in splits for pair in gold_of(split)]


def test_the_splits_are_disjoint_and_have_the_requested_sizes(corpus: Corpus) -> None:
    assert (corpus.source_language, corpus.target_language) == ("en", "fr")
    assert list(corpus.tests) == ["test", "test_compositional"]
    splits = (corpus.train, corpus.validation, *corpus.tests.values())
    assert [len(split) for split in splits] == [20000, 1000, 1000, 1000]
    assert len({source for split in splits for source in split.source}) == 23000


class Biased(random.Random):
    """Draws rare rules more often, and only the first few entries of a list."""

    def __init__(self, seed: int, words: int) -> None:
        super().__init__()
        self.plain = random.Random(seed)
        self.words = words

    def random(self) -> float:
        return self.plain.random() ** self.plain.choice((1, 4))

    def choice(self, items: Sequence[Any]) -> Any:
        return self.plain.choice(items[: self.words])


@pytest.mark.parametrize(("depth", "words"), [(0, 99), (1, 99), (2, 1), (2, 2), (3, 1), (4, 1), (6, 1)])
def test_english_determines_french_and_links(depth: int, words: int) -> None:
    # With few words and frequent rare rules, all structures of an English sentence soon occur.
    clauses = Clauses(Biased(depth, words))
    translations: dict[tuple[str, ...], Gold] = {}
    repeated = 0
    for _ in range(6000):
        pair = gold(clauses.sentence(depth))
        repeated += pair.source_words in translations
        assert translations.setdefault(pair.source_words, pair) == pair
    assert repeated > 100


def test_the_readings_that_would_have_another_translation_are_left_out() -> None:
    # They are too rare in random sentences, so each rule is tested directly.
    clauses = Clauses(Biased(1, 99))
    verbs, nouns = clauses.verbs, clauses.nouns
    places = {"near", "behind", "front", "on", "under", "in", "at"}
    conjunctions = {"because", "when", "while", "soon", "but", "if"}
    she = nominal(next(entry for entry in lexicon.PRONOUNS if entry.english == ("she",)))
    clause = Clause(she, PAST, negated=False, question=False)
    not_clause = clause._replace(negated=True)

    def english(phrase: Phrase) -> list[str]:
        return [word.form for word in phrase.english]

    met: Counter[str] = Counter()
    for _ in range(1200):
        for phrase in (verbs.dative(clause, 4), verbs.crossing(clause, 4)):
            assert (places | {"who", "that"}).isdisjoint(english(phrase))
        assert (places | {"of", "who", "that"}).isdisjoint(english(nouns.simple_pair(PEOPLE, 4).phrase))
        assert conjunctions.isdisjoint(english(clauses.simple_clause(PAST, 4)))
        coordinated = english(clauses.coordinated(PAST, 2))
        assert [coordinated[at + 1] for at, word in enumerate(coordinated) if word == ","] in (
            ["and"],
            ["but"],
        )
        # One relative clause, at the end, with nothing inside or on its noun that could take it.
        related = english(verbs.with_relative_clause(PEOPLE, lexicon.MEETING, 4, lexicon.ANY.articles).phrase)
        assert sum(word in ("who", "that") for word in related) == 1
        assert {"of", "near"}.isdisjoint(related[: next(map(related.index, {"who", "that"} & {*related}))])
        predicate = clauses.predicate(clause, 4, human=True, asked=None)
        if "relative clause" in predicate.phenomena:
            met["relative clause"] += 1
            told = english(predicate)
            inside = told[next(at for at, word in enumerate(told) if word in ("who", "that")) :]
            assert {"and", "slowly", "yesterday", "last"}.isdisjoint(inside)
        # Determiners whose scope over "not" is open.
        assert {"some", "every", "and"}.isdisjoint(english(verbs.acting(not_clause, 1)))
        simple = english(clauses.simple_clause(PAST, 1))
        if "not" in simple:
            met["negation"] += 1
            assert {"some", "every"}.isdisjoint(simple)
    assert min(met["relative clause"], met["negation"]) > 10


def test_no_english_form_has_two_translations() -> None:
    nouns = nouns_of_lexicon()
    adjectives = {row for kind in KINDS for row in (*kind.before, *kind.after)}
    tables = [value for value in vars(lexicon).values() if isinstance(value, list)]
    verbs = {row for table in tables for row in table if isinstance(row, lexicon.Verb)}
    assert len(nouns) > 60
    for rows, forms in (
        (nouns, lambda row: row.english),
        (adjectives, lambda row: (row.english,)),
        (verbs, lambda row: (row.english_present[0], row.english_present[1], row.english_past[0])),
    ):
        counts = Counter(form for row in rows for form in forms(row))
        assert [form for form, count in counts.items() if count > 1] == []


# Read with "\n" as the only end of a line.
GOLDEN = [
    json.loads(line)
    for line in Path(__file__)
    .with_name("golden")
    .joinpath("grammar.jsonl")
    .read_text("utf-8")
    .strip()
    .split("\n")
]


def test_golden_pairs(corpus: Corpus) -> None:
    """Compare 50 pairs with the corpus of the default arguments. Someone who knows both languages has read each.

    A pair may change, or leave the file with its sentence, when a rule, a weight, the lexicon or an argument changes. Read
    any pair that you add.
    """
    pairs: dict[str, tuple[str, str, list[str]]] = {}
    for split in (corpus.train, corpus.validation, *corpus.tests.values()):
        assert split.phenomena is not None
        for source, target, pair, names in zip(
            split.source, split.target, gold_of(split), split.phenomena, strict=True
        ):
            pairs[source] = target, " ".join(f"{a}-{b}" for a, b in sorted(pair.links)), sorted(names)
    assert len(GOLDEN) == 50
    for line in GOLDEN:
        assert pairs[line["english"]] == (line["french"], line["alignment"], line["phenomena"])


def test_the_golden_pairs_show_every_phenomenon_and_their_combinations() -> None:
    shown = [set(pair["phenomena"]) for pair in GOLDEN]
    for phenomenon in PHENOMENA:
        assert sum(phenomenon in names for names in shown) >= 2, phenomenon
    for both in (
        {"negation", "clitic object"},
        {"negation", "passé composé with être"},
        {"negation", "question"},
        {"negation", "relative clause"},
        {"negation", "dative"},
        {"negation", "idiom"},
        {"clitic object", "question"},
        {"clitic object", "relative clause"},
        {"clitic object", "dative"},
        {"passé composé with être", "question"},
        {"passé composé with être", "relative clause"},
        {"passé composé with être", "coordination"},
        {"relative clause", "question"},
        {"relative clause", "number"},
    ):
        assert any(both <= names for names in shown), both


def test_every_word_is_linked_and_in_the_text_in_order(corpus: Corpus) -> None:
    for source, target, pair in zip(
        corpus.train.source, corpus.train.target, gold_of(corpus.train), strict=True
    ):
        assert {link[0] for link in pair.links} == set(range(len(pair.source_words)))
        assert {link[1] for link in pair.links} == set(range(len(pair.target_words)))
        assert source.replace(" ", "") == "".join(pair.source_words)
        assert target.replace(" ", "") == "".join(pair.target_words)
        mark = source[-1]
        stops = (len(pair.source_words) - 1, len(pair.target_words) - 1)
        assert stops in pair.links
        assert mark in ".?"
        assert target[-2:] == (" ?" if mark == "?" else pair.target_words[-2][-1] + ".")


def test_the_word_tokenizer_decodes_every_sentence_exactly(corpus: Corpus) -> None:
    for lines in (corpus.train.source[:4000], corpus.train.target[:4000]):
        tokenizer = WordTokenizer(joint=False, lowercase=False, min_frequency=1, max_size=None)
        tokenizer.train(lines)
        assert [tokenizer.decode_spans(ids)[0] for ids in tokenizer.encode(lines)] == list(lines)
        assert set("".join(lines)) - set(ALPHABET) == set()


def kinds(pair: Gold) -> set[tuple[int, int]]:
    """Return how many English and French words correspond in each group of linked words."""
    groups = [({source}, {target}) for source, target in pair.links]
    for at in range(len(groups)):
        for later in range(at + 1, len(groups)):
            if groups[at][0] & groups[later][0] or groups[at][1] & groups[later][1]:
                groups[later][0].update(groups[at][0])
                groups[later][1].update(groups[at][1])
                groups[at] = (set(), set())
                break
    return {(len(sources), len(targets)) for sources, targets in groups if sources}


def test_the_four_kinds_of_correspondence_occur(golds: list[Gold]) -> None:
    found: Counter[tuple[int, int]] = Counter()
    for pair in golds[:4000]:
        for sources, targets in kinds(pair):
            found[min(sources, 2), min(targets, 2)] += 1
    assert min(found[kind] for kind in ((1, 1), (1, 2), (2, 1), (2, 2))) > 150


@pytest.mark.parametrize(
    ("forms", "expected"),
    [
        ("le/l' homme", "l'homme"),
        ("le/l' *héros", "le héros"),
        ("la/l' *harpe", "la harpe"),
        ("de/d' le/l' roi", "du roi"),
        ("de/d' le/l' *hibou", "du hibou"),
        ("de/d' le/l' oiseau", "de l'oiseau"),
        ("de/d' les œufs", "des œufs"),
        ("de/d' des œufs", "d'œufs"),
        ("de/d' des lacs", "de lacs"),
        ("de/d' de/d' anciens rois", "d'anciens rois"),
        ("de/d' de/d' petits lacs", "de petits lacs"),
        ("de/d' Étienne", "d'Étienne"),
        ("de/d' Henri", "d'Henri"),
        ("à le/l' château", "au château"),
        ("à le/l' hôtel", "à l'hôtel"),
        ("à les écoles", "aux écoles"),
        ("à la/l' école", "à l'école"),
        ("ce/cet homme", "cet homme"),
        ("ce/cet *héros", "ce héros"),
        ("ma/mon histoire", "mon histoire"),
        ("ma/mon vieille histoire", "ma vieille histoire"),
        ("un beau/bel aspirateur", "un bel aspirateur"),
        ("un vieux/vieil *hérisson", "un vieux hérisson"),
        ("le/l' nouveau/nouvel hôtel", "le nouvel hôtel"),
        ("de/d' le/l' ancien lycée", "de l'ancien lycée"),
        ("parce que/qu' il dort", "parce qu'il dort"),
        ("que/qu' le/l' *héros dort", "que le héros dort"),
        ("je/j' écris", "j'écris"),
        ("je/j' dors", "je dors"),
        ("beaucoup_de/d' oiseaux".replace("_", " "), "beaucoup d'oiseaux"),
        ("si il dort", "s'il dort"),
        ("si elle dort", "si elle dort"),
        ("si Hélène dort", "si Hélène dort"),
        ("que/qu' *onze rois", "que onze rois"),
        ("de/d' *huit rois", "de huit rois"),
        ("je/j' ne/n' la/l' ai pas vue", "je ne l'ai pas vue"),
        ("il ne/n' me/m' aime pas", "il ne m'aime pas"),
        ("il ne/n' le/l' voit pas", "il ne le voit pas"),
        ("elle ne/n' a pas vu de/d' homme", "elle n'a pas vu d'homme"),
        ("elle ne/n' a pas vu de/d' *héros", "elle n'a pas vu de héros"),
        ("où est-ce que/qu' elle dort ?", "où est-ce qu'elle dort ?"),
    ],
)
def test_elision_contraction_and_shapes_before_vowels(forms: str, expected: str) -> None:
    spelled = spell_french([Word(form, (form,)) for form in forms.split()])
    assert french_text([word.form.removeprefix("*") for word in spelled]) == expected


def test_a_contraction_carries_the_links_of_both_parts() -> None:
    au, _ = spell_french([Word("à", ("at",)), Word("le/l'", ("the",)), Word("roi", ("king",))])
    assert au.form == "au"
    assert set(au.links) == {"at", "the"}


def test_every_french_word_has_a_class(golds: list[Gold]) -> None:
    """It depends on the use of the word: "le" is an article or a pronoun, "suis" is follow or am."""
    classes: dict[str, set[str]] = {}
    for pair in golds:
        assert pair.target_classes is not None
        for word, of_word in zip(pair.target_words, pair.target_classes, strict=True):
            classes.setdefault(word, set()).add(of_word)
    assert set.union(*classes.values()) == CONTENT_CLASSES | {
        *("ADP", "AUX", "CCONJ", "DET", "PART", "PRON", "PUNCT", "SCONJ")
    }
    several = {word: of_word for word, of_word in classes.items() if len(of_word) > 1}
    assert several["le"] == several["les"] == several["l'"] == {"DET", "PRON"}
    assert several["que"] == several["qu'"] == {"SCONJ", "PRON"}
    assert several["suis"] == {"AUX", "VERB"}
    assert several["des"] == {"ADP", "DET"}  # of the, and the plural of a
    functions = {word for word, of_word in classes.items() if not of_word <= CONTENT_CLASSES}
    assert len(functions) < 80 < 300 < len(classes)


@pytest.mark.parametrize(
    ("words", "classes"),
    [
        ("où est-ce que Julie a travaillé ?", "PRON PART SCONJ PROPN AUX VERB PUNCT"),
        ("la chanteuse et Paul l' ont aimée .", "DET NOUN CCONJ PROPN PRON AUX VERB PUNCT"),
        ("elle voit l' ami heureux lentement .", "PRON VERB DET NOUN ADJ ADV PUNCT"),
    ],
)
def test_the_classes_of_a_sentence(golds: list[Gold], words: str, classes: str) -> None:
    (first, *_) = (pair.target_classes for pair in golds if " ".join(pair.target_words) == words)
    assert first == tuple(classes.split())


@pytest.mark.parametrize(
    ("words", "agreement"),
    [
        ("où est-ce que Julie a travaillé ?", "- - - f.sg sg m.sg -"),
        ("la chanteuse et Paul l' ont aimée .", "f.sg f.sg - m.sg sg pl f.sg -"),
        ("elle voit l' ami heureux lentement .", "sg sg m.sg m.sg m.sg - -"),
    ],
)
def test_the_gender_and_number_of_a_sentence(golds: list[Gold], words: str, agreement: str) -> None:
    (first, *_) = (pair.target_agreement for pair in golds if " ".join(pair.target_words) == words)
    assert first == tuple("" if one == "-" else one for one in agreement.split())


def test_nouns_and_what_agrees_with_them_have_gender_and_number(golds: list[Gold]) -> None:
    """Set phrases do too, such as "la semaine dernière"; words inside a compound, such as "à dents", do not."""
    agreement: dict[str, set[str]] = {}
    for pair in golds:
        rows = zip(pair.target_words, pair.target_classes or (), pair.target_agreement or (), strict=True)
        for word, of_word, agrees in rows:
            agreement.setdefault(f"{word} {of_word}", set()).add(agrees)
    assert agreement["les DET"] == {"m.pl", "f.pl"}
    assert agreement["la DET"] == {"f.sg"}
    assert agreement["la PRON"] == {"sg"}
    assert agreement["dernière ADJ"] == {"f.sg"}
    assert agreement["héros NOUN"] == {"m.sg", "m.pl"}
    assert agreement["dents NOUN"] == {""}
    assert agreement["machines NOUN"] == {"f.pl"}


def test_lengths_are_spread_and_the_test_split_has_long_sentences(corpus: Corpus) -> None:
    # The full stop is a word of Gold; figures without it.
    for split in (corpus.train, corpus.validation, corpus.tests["test"]):
        lengths = [len(pair.source_words) - 1 for pair in gold_of(split)]
        assert min(lengths) == 2
        assert 9.5 <= sum(lengths) / len(lengths) <= 11.5
        assert 0.97 * len(lengths) < sum(length <= 30 for length in lengths)
    assert 150 <= sum(length > 18 for length in lengths) <= 180


def test_each_phenomenon_occurs_in_the_test_split(corpus: Corpus) -> None:
    shown = corpus.tests["test"].phenomena
    assert shown is not None
    counts = Counter(name for names in shown for name in names)
    assert set(counts) == PHENOMENA
    assert min(counts.values()) >= 50
    # Difficult constructions are not too frequent.
    for name in (
        "negation",
        "clitic object",
        "question",
        "passé composé with être",
        "relative clause",
        "number",
    ):
        assert counts[name] <= 150, name
    for split in (corpus.train, corpus.validation, *corpus.tests.values()):
        assert split.phenomena is not None
        assert len(split.phenomena) == len(split)


# The words that a pair with a phenomenon must contain, in English and French.
SIGNS = {
    "negation": (r"\bnot\b", r"\bpas\b"),
    "clitic object": (r"\b(him|me|us|them)\b|\bher( |[.,?])", r"\b(le|la|les|lui|leur|nous|me) |\b[lm]'"),
    "question": (r"\?$", r" \?$"),
    "passé composé with être": (r"", r"\b(suis|est|sommes|sont) "),
    "relative clause": (r"\b(who|that)\b", r"\b(qui|que)\b|\bqu'"),
    "number": (r"\b(two|three|t[ew]\w+|fou\w+|fi[fv]\w+|si\w+|se\w+|e[il]\w+|ni\w+|thi\w+)\b", r""),
    "idiom": (r"\b(swim|swims|swam|run|runs|ran|walk|walks|walked) across\b", r"\btravers.*(nage|courant|pied)"),
    "dative": (r"\b(t[eo]l[ld]s?|g[ia]ves?|show(s|ed)?|sen[dt]s?|s[eo]l[ld]s?)\b", r"\b(à|aux?|lui|leur|me|nous)\b|\bm'"),
    "coordination": (r"\band\b|\bbut\b", r"\bet\b|\bmais\b"),
    "subordinate clause": (r"\bthat\b|\bbecause\b|\bwhen\b|\bsoon\b|\bif\b|\bwhile\b", r"\bqu|\bsi\b|\bs'"),
}  # fmt: skip


def test_a_pair_shows_its_phenomena(corpus: Corpus) -> None:
    train = corpus.train
    assert train.phenomena is not None
    named: Counter[str] = Counter()
    for source, target, names in zip(train.source, train.target, train.phenomena, strict=True):
        named.update(names)
        for name in names & SIGNS.keys():
            english, french = SIGNS[name]
            assert re.search(english, source), (name, source)
            assert re.search(french, target), (name, target)
        # These show in one word.
        assert ("negation" in names) == (" not " in source), source
        assert ("question" in names) == source.endswith("?"), source
        assert ("idiom" in names) == (" across " in source), source
    assert set(named) == PHENOMENA


def test_only_the_compositional_test_has_held_out_combinations(corpus: Corpus) -> None:
    arguments = OmegaConf.load(YAML)
    held = held_out(random.Random(arguments.seed), arguments.held_out_share)
    every = [combination for kind in combinations() for combination in kind]
    assert len(every) == len(set(every)) > 1000
    assert 0.08 < len(held) / len(every) < 0.12
    # Search the plain sentences: an adjective with at most one other before its noun, or a verb with its object after a
    # determiner.
    plural = {noun.english[0]: noun.english[1] for noun in nouns_of_lexicon()}
    verb_forms = {
        row.english_present[0]: {
            row.english_present[0][0],
            row.english_present[1][0],
            row.english_past[0][-1],
        }
        for row in verbs_of_lexicon()
    }
    adjectives = "|".join({first[0] for first, _ in every if first not in verb_forms})
    subjects = "|".join(entry.english[0] for entry in (*lexicon.PRONOUNS, *lexicon.NAMES))
    determiners = {row.english[0] for articles in lexicon.ANY.articles for row in articles}
    before = "|".join({*determiners, adjectives})  # "alarm clock" is no "clock"
    patterns = []
    for first, noun in held:
        heads = "|".join(" ".join(form) for form in (noun, plural[noun]))
        if first in verb_forms:
            starts = "|".join(verb_forms[first])
            across = " across" if first[0] in ("swim", "run", "walk") else ""
            patterns.append(rf"(?:{starts}){across} (?:the|an?|my|our|his|this|these|some|any) (?:{heads})\b")
            patterns.append(
                rf"(?:{before}) (?:{heads}) that (?:{subjects}) (?:(?:do|does|did) not )?(?:{starts})\b"
            )
        else:
            patterns.append(rf"{first[0]} (?:(?:{adjectives}) )?(?:{heads})\b")
    found = re.compile(r"\b(?:" + "|".join(patterns) + ")")
    other = [*corpus.train.source, *corpus.validation.source, *corpus.tests["test"].source]
    assert [line for line in other if found.search(line)] == []
    compositional = corpus.tests["test_compositional"].source
    assert sum(found.search(line) is not None for line in compositional) > 500
    trained = {word for pair in gold_of(corpus.train) for word in pair.source_words}
    assert {word for combination in held for forms in combination for word in forms} <= trained
    for pair in gold_of(corpus.tests["test_compositional"]):
        assert set(pair.source_words) <= trained


def nouns_of_lexicon() -> set[lexicon.Noun]:
    return {noun for kind in KINDS for noun in kind.nouns}


def test_each_word_keeps_a_combination_however_many_are_held_out() -> None:
    for seed in range(20):
        held = held_out(random.Random(seed), 0.5)
        assert len(held) > 400
        for every in combinations():
            shown = {words for combination in every if combination not in held for words in combination}
            assert shown == {words for combination in every for words in combination}


def verbs_of_lexicon() -> set[lexicon.Verb]:
    tables = [value for value in vars(lexicon).values() if isinstance(value, list)]
    rows = {row for table in tables for row in table if isinstance(row, lexicon.Verb)}
    return rows | {verb for verb, _ in (*lexicon.SWIMMING, *lexicon.RUNNING)}


def test_the_compositional_test_does_not_change_the_other_splits() -> None:
    sizes = {"train": 300, "validation": 20, "test": 20}
    without, few, many = (make(**sizes, test_compositional=size).load() for size in (0, 5, 400))
    assert list(without.tests) == ["test"]
    assert list(few.tests) == list(many.tests) == ["test", "test_compositional"]
    assert without.train == few.train == many.train
    assert without.tests["test"] == many.tests["test"]
    assert make(**sizes, test_compositional=0, held_out_share=0).load().train != without.train


def test_more_depth_makes_longer_sentences() -> None:
    longest = []
    means = []
    for depth in (0, 1, 2, 4, 6):
        golds = gold_of(
            make(train=1000, validation=1, test=1, test_compositional=0, max_depth=depth).load().train
        )
        lengths = [len(pair.source_words) for pair in golds]
        longest.append(max(lengths))
        means.append(sum(lengths) / len(lengths))
    assert longest == sorted(set(longest))
    assert means == sorted(set(means))


def test_every_word_of_the_lexicon_occurs_often_enough_to_learn(corpus: Corpus) -> None:
    # A participle that agrees is one of four forms; the word tokenizer keeps what comes twice.
    participles = {form for row in (*verbs_of_lexicon(), lexicon.BIRTH, lexicon.DEATH)
                   for forms in row.participle for form in forms}  # fmt: skip
    for words, most in (("source_words", 450), ("target_words", 600)):
        counts = Counter(word for pair in gold_of(corpus.train) for word in getattr(pair, words))
        assert 300 <= len(counts) <= most
        rare = {w: count for w, count in counts.items() if count < (2 if w in participles else 6)}
        assert rare == {}


def test_a_million_sentences_can_be_derived() -> None:
    # A part of the grammar at depth 1, whose derivations all give different words:
    # article + person, then a verb of meeting in one of two tenses, then article + person or animal.
    articles = [len({row.english for row in lexicon.ANY.all[number]}) for number in (0, 1)]
    people = len(PEOPLE.nouns) * sum(articles)
    objects = (len(PEOPLE.nouns) + len(ANIMALS.nouns)) * sum(articles)
    assert people * len(lexicon.MEETING) * 2 * objects >= 10**6


def test_the_same_arguments_give_the_same_corpus() -> None:
    random.seed(7)
    first = make(train=500, validation=50, test=50, test_compositional=50).load()
    state = random.getstate()
    second = make(train=500, validation=50, test=50, test_compositional=50).load()
    assert random.getstate() == state
    assert first == second
    assert (
        make(train=500, validation=50, test=50, test_compositional=50, seed=2).load().train.source
        != first.train.source
    )


def test_more_sentences_than_the_grammar_has_are_refused() -> None:
    with pytest.raises(UserError, match=r"dataset\.train=1000000000: "):
        make(train=10**9)


@pytest.mark.parametrize("changed", [{"held_out_share": 0}, {"max_depth": 0}])
def test_a_compositional_test_without_held_out_combinations_is_refused(changed: dict[str, int]) -> None:
    with pytest.raises(UserError, match=r"dataset\.test_compositional=1000"):
        make(**changed)


@pytest.mark.parametrize(
    "changed",
    [
        {"test_compositional": 50, "held_out_share": 1e-9},
        {"train": 100_000, "test_compositional": 0, "max_depth": 0},
    ],
)
def test_too_few_sentences_are_an_error(monkeypatch: pytest.MonkeyPatch, changed: dict[str, float]) -> None:
    monkeypatch.setattr("seq2seq_lab.data.grammar.MOST_REPEATS", 20)
    with pytest.raises(UserError, match=r"dataset\.max_depth"):
        make(**{"train": 10, "validation": 1, "test": 1, **changed}).load()
