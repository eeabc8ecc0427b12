import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from seq2seq_lab.data.corpus import Corpus, Gold, ParallelText
from seq2seq_lab.data.grammar import Grammar, lexicon
from seq2seq_lab.data.grammar.phrase import Phrase, Word, gold, spell_french, text
from seq2seq_lab.data.grammar.rules import PAST, PEOPLE, PRESENT, Rules
from seq2seq_lab.errors import UserError

YAML = Path(__file__).parents[2] / "conf" / "dataset" / "grammar.yaml"
WORD = re.compile(r"\w+'|\w+|[.,]")


def make(**changed: int) -> Grammar:
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
    return [*gold_of(corpus.train), *gold_of(corpus.validation), *gold_of(corpus.tests["test"])]


@pytest.fixture(scope="module")
def french(golds: list[Gold]) -> list[str]:
    return [text(pair.target_words) for pair in golds]


def test_the_splits_have_the_sizes_and_languages_asked_for(corpus: Corpus) -> None:
    assert (corpus.source_language, corpus.target_language) == ("en", "fr")
    assert list(corpus.tests) == ["test"]
    assert [len(s) for s in (corpus.train, corpus.validation, corpus.tests["test"])] == [20000, 1000, 1000]


def test_no_source_comes_twice_within_or_across_splits(corpus: Corpus) -> None:
    sources = [*corpus.train.source, *corpus.validation.source, *corpus.tests["test"].source]
    assert len(set(sources)) == len(sources) == 22000


@pytest.mark.parametrize(("depth", "words"), [(0, 99), (1, 99), (2, 1), (3, 1), (4, 1), (6, 1)])
def test_english_determines_french_and_links(depth: int, words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # With few words to choose from and rare rules made common, the structures that one English sentence
    # can have soon come up.
    generator = random.Random(depth)
    rules = Rules(generator)
    monkeypatch.setattr(rules, "pick", lambda items: generator.choice(items[:words]))
    monkeypatch.setattr(rules, "chance", lambda: generator.random() ** generator.choice((1, 4)))
    translations: dict[tuple[str, ...], Gold] = {}
    repeated = 0
    for _ in range(12000):
        pair = gold(rules.sentence(depth))
        repeated += pair.source_words in translations
        assert translations.setdefault(pair.source_words, pair) == pair
    assert repeated > 300


def test_the_readings_that_would_have_another_translation_are_left_out() -> None:
    # Chance meets them too rarely, so each rule is asked for what it must not make.
    generator = random.Random(1)
    rules = Rules(generator)
    rules.chance = lambda: generator.betavariate(0.5, 0.5)
    places = {"near", "behind", "front", "on", "under", "in", "at"}
    clauses = {"that", "because", "when", "while", "soon", "but"}

    def english(phrase: Phrase) -> list[str]:
        return [word.form for word in phrase.english]

    for _ in range(2000):
        assert places.isdisjoint(english(rules.dative(lexicon.THIRD_SINGULAR, PAST, 4)))
        assert places.isdisjoint(english(rules.crossing(lexicon.THIRD_SINGULAR, PAST, 4)))
        assert (places | {"of"}).isdisjoint(english(rules.simple_pair(PEOPLE, 4).phrase))
        assert clauses.isdisjoint(english(rules.simple_clause(PAST, 4)))
        coordinated = english(rules.coordinated(PAST, 2))
        assert [coordinated[at + 1] for at, word in enumerate(coordinated) if word == ","] in (
            ["and"],
            ["but"],
        )


def test_no_english_form_has_two_translations() -> None:
    tables = [value for name, value in vars(lexicon).items() if name.isupper() and isinstance(value, list)]
    nouns = {row for table in tables for row in table if isinstance(row, lexicon.Noun)}
    adjectives = {row for table in tables for row in table if isinstance(row, lexicon.Adjective)}
    verbs = {row for table in tables for row in table if isinstance(row, lexicon.Verb)}
    assert len(nouns) > 60
    for rows, forms in (
        (nouns, lambda row: row.english),
        (adjectives, lambda row: (row.english,)),
        (verbs, lambda row: (row.english_present[0], row.english_present[1], row.english_past)),
    ):
        counts = Counter(form for row in rows for form in forms(row))
        assert [form for form, count in counts.items() if count > 1] == []


# Checked by hand. A pair may change, or leave the corpus, when a rule, a weight or the lexicon changes;
# its replacement is to be read by someone who knows both languages.
HAND_CHECKED = """
John heard Mary. | Jean a entendu Marie. | 0-0 1-1 1-2 2-3 3-4
I told John a story. | j'ai raconté une histoire à Jean. | 0-0 1-1 1-2 2-5 2-6 3-3 4-4 5-7
we told the hero his story. | nous avons raconté son histoire au héros. | 0-0 1-1 1-2 2-5 3-5 3-6 4-3 5-4 6-7
the computer scientist works. | l'informaticien travaille. | 0-0 1-1 2-1 3-2 4-3
he swam across a pond. | il a traversé un étang à la nage. \
| 0-0 1-1 1-2 1-5 1-6 1-7 2-1 2-2 2-5 2-6 2-7 3-3 4-4 5-8
this man ran across her street. | cet homme a traversé sa rue en courant. \
| 0-0 1-1 2-2 2-3 2-6 2-7 3-2 3-3 3-6 3-7 4-4 5-5 6-8
I prepare many old potatoes. | je prépare beaucoup de vieilles pommes de terre. \
| 0-0 1-1 2-2 2-3 3-4 4-5 4-6 4-7 5-8
he works at some small markets. | il travaille à de petits marchés. | 0-0 1-1 2-2 3-3 4-4 5-5 6-6
Lucy followed the old black hedgehog. | Lucie a suivi le vieux hérisson noir. \
| 0-0 1-1 1-2 2-3 3-4 4-6 5-5 6-7
I sang last year. | j'ai chanté l'année dernière. | 0-0 1-1 1-2 2-5 3-3 3-4 4-6
I said that she works. | j'ai dit qu'elle travaille. | 0-0 1-1 1-2 2-3 3-4 4-5 5-6
we often sang. | nous avons souvent chanté. | 0-0 1-2 2-1 2-3 3-4
this old bird ate. | ce vieil oiseau a mangé. | 0-0 1-1 2-2 3-3 3-4 4-5
James and Paul dance. | Jacques et Paul dansent. | 0-0 1-1 2-2 3-3 4-4
as soon as she works, Alice sings. | dès qu'elle travaille, Alice chante. \
| 0-0 0-1 1-0 1-1 2-0 2-1 3-2 4-3 5-4 6-5 7-6 8-7
a sad man in front of the museum smiled. | un homme triste devant le musée a souri. \
| 0-0 1-2 2-1 3-3 4-3 5-3 6-4 7-5 8-6 8-7 9-8
""".replace("\\\n", "")


@pytest.mark.parametrize("line", HAND_CHECKED.strip().splitlines())
def test_hand_checked_pairs(line: str, golds: list[Gold]) -> None:
    english, french, links = line.split(" | ")
    pair = {text(pair.source_words): pair for pair in golds}[english]
    assert text(pair.target_words) == french
    assert " ".join(f"{source}-{target}" for source, target in sorted(pair.links)) == links.strip()


def test_every_word_is_linked_and_stands_in_the_text_in_order(corpus: Corpus) -> None:
    for source, target, pair in zip(
        corpus.train.source, corpus.train.target, gold_of(corpus.train), strict=True
    ):
        assert {link[0] for link in pair.links} == set(range(len(pair.source_words)))
        assert {link[1] for link in pair.links} == set(range(len(pair.target_words)))
        assert source.replace(" ", "") == "".join(pair.source_words)
        assert target.replace(" ", "") == "".join(pair.target_words)
        stops = (len(pair.source_words) - 1, len(pair.target_words) - 1)
        assert stops in pair.links
        assert (source[-1], target[-1]) == (".", ".")


def test_words_are_written_plainly(golds: list[Gold]) -> None:
    capitals = {entry.english[0] for entry in (*lexicon.NAMES, *lexicon.CITIES)} | {"I", "Monday", "Saturday"}
    for pair in golds:
        assert all(word in capitals for word in pair.source_words if word != word.lower())
        assert all(re.fullmatch(r"[^\W\d_]+'?|[.,]", word) for word in pair.source_words + pair.target_words)
        assert WORD.findall(text(pair.target_words)) == list(pair.target_words)


def kinds(pair: Gold) -> set[tuple[int, int]]:
    """Return how many English and French words correspond in each group that the links hold together."""
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


def test_the_dative_moves_the_receiver_last(golds: list[Gold]) -> None:
    names = {entry.english[0] for entry in lexicon.NAMES}
    told = [
        pair
        for pair in golds
        if len(pair.source_words) == 6 and pair.source_words[1] == "told" and pair.source_words[2] in names
    ]
    assert len(told) > 20
    for pair in told:
        preposition, receiver = len(pair.target_words) - 3, len(pair.target_words) - 2
        assert pair.target_words[preposition] == "à"
        assert {target for source, target in pair.links if source == 2} == {preposition, receiver}


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
    ],
)
def test_elision_contraction_and_shapes_before_vowels(forms: str, expected: str) -> None:
    spelled = spell_french([Word(form, (form,)) for form in forms.split()])
    assert text([word.form.removeprefix("*") for word in spelled]) == expected


def test_a_contraction_carries_the_links_of_both_parts() -> None:
    au, _ = spell_french([Word("à", ("at",)), Word("le/l'", ("the",)), Word("roi", ("king",))])
    assert au.form == "au"
    assert set(au.links) == {"at", "the"}


@pytest.mark.parametrize(
    "forbidden",
    [
        # a word that had to be elided or to change its shape before a vowel or a mute h
        r"\b(le|la|de|que|je|ce|ma|sa|beau|nouveau) [aeiouéèêâîôœAEIOUÉ]",
        r"\b(le|la|de|que|je|ce|ma|sa|beau|nouveau) (homme|histoire|hirondelle|huître|horloge|hôpi|hôte|H)",
        r"\b(un|ce|mon|son|notre|chaque|le) vieux (homme|oiseau|œuf|aspirateur|ami|hôtel|hôpital)\b",
        # one that had not to, before a consonant or an h aspiré
        r"('|\b(cet|bel|vieil|nouvel) )([bcdfgjklmnpqrstvw]|hibou|héros|hérisson|harpe|hache|hameau)",
        r"\b(mon|son) (harpe|hache)",
        # a contraction that was not made
        r"\b(à|de) les?\b",
        r"\bde (des|du|de)\b|\bde d'",
    ],
)
def test_the_corpus_has_no_form_that_french_forbids(forbidden: str, french: list[str]) -> None:
    assert [line for line in french if re.search(forbidden, line)] == []


def test_a_and_an_go_by_the_next_word(golds: list[Gold]) -> None:
    following: dict[str, set[str]] = {"a": set(), "an": set()}
    for pair in golds:
        for article, word in pairwise(pair.source_words):
            if article in following:
                following[article].add(word[0])
    assert following["an"] == set("aeiou")
    assert len(following["a"]) > 10
    assert following["a"].isdisjoint("aeiou")


def test_des_becomes_de_before_a_prenominal_adjective(golds: list[Gold]) -> None:
    plurals = {row.french[1] for row in lexicon.ANY_BEFORE + lexicon.NEW + lexicon.YOUNG}
    before = {form[0] for forms in plurals for form in forms}
    seen: Counter[str] = Counter()
    for pair in golds:
        for source, target in pair.links:
            # "of some" is one French word, "de"
            if pair.source_words[source] == "some" and pair.source_words[source - 1] not in ("of", "near"):
                word, following = pair.target_words[target : target + 2]
                seen[word] += 1
                assert (word == "des") == (following not in before and not following.startswith("ancien"))
    assert min(seen["de"], seen["des"]) > 100


@pytest.mark.parametrize(
    "wanted",
    [
        *(
            "d'anciens",
            "de vieux",
            "bel",
            "nouvel",
            "vieil",
            "cet homme",
            "ce héros",
            "mon histoire",
            "au",
            "aux",
        ),
        *(
            "la harpe",
            "le hibou",
            "l'hôtel",
            "l'ancien",
            "du",
            "qu'il",
            "j'ai",
            "d'Étienne",
            "l'œuf",
            "chevaux",
        ),
    ],
)
def test_the_corpus_shows_the_forms_that_are_easily_got_wrong(wanted: str, french: list[str]) -> None:
    assert any(re.search(rf"\b{wanted}\b", line) for line in french)


# Gender and number of what may stand before a noun, and after it; a dot leaves it open.
BEFORE = {
    "ms": "un le ce cet du au petit grand beau bel vieil nouveau nouvel ancien",
    "fs": "une la cette ma sa petite grande belle vieille nouvelle ancienne",
    "mp": "petits grands beaux nouveaux anciens",
    "fp": "petites grandes belles vieilles nouvelles anciennes",
    ".p": "les des ces mes nos ses deux trois aux jeunes",
    ".s": "chaque notre mon son jeune",
    "m.": "vieux",
}
AFTER = {
    "ms": "noir blanc intelligent oublié cassé fermé",
    "fs": "noire blanche intelligente oubliée cassée fermée heureuse",
    "mp": "noirs blancs intelligents oubliés cassés fermés",
    "fp": "noires blanches intelligentes oubliées cassées fermées heureuses",
    ".p": "tristes célèbres rouges étranges",
    ".s": "triste célèbre rouge étrange",
    "m.": "heureux",
}


def test_articles_and_adjectives_agree_with_their_noun(golds: list[Gold]) -> None:
    nouns: dict[str, set[str]] = {}
    for table in vars(lexicon).values():
        for noun in table if isinstance(table, list) else ():
            if isinstance(noun, lexicon.Noun) and len(noun.french[0]) == 1:
                for form, number in zip(noun.french, "sp", strict=True):
                    nouns.setdefault(form[0].removeprefix("*"), set()).add("mf"[noun.gender] + number)
    before, after = (
        {word: mark for mark, words in marks.items() for word in words.split()} for marks in (BEFORE, AFTER)
    )
    met: Counter[str] = Counter()
    for pair in golds:
        french = pair.target_words
        for position in range(1, len(french) - 1):
            if french[position] not in nouns:
                continue
            for marks, neighbour in ((before, french[position - 1]), (after, french[position + 1])):
                if neighbour in marks:
                    met[neighbour] += 1
                    agree = any(re.fullmatch(marks[neighbour], mark) for mark in nouns[french[position]])
                    assert agree, f"{neighbour} / {french[position]}: {text(french)}"
    assert set(met) == set(before) | set(after)


@pytest.mark.parametrize(
    ("verb", "person", "tense", "english", "french"),
    [
        ("see", lexicon.FIRST_SINGULAR, PRESENT, "see", "vois"),
        ("see", lexicon.THIRD_SINGULAR, PRESENT, "sees", "voit"),
        ("see", lexicon.FIRST_PLURAL, PRESENT, "see", "voyons"),
        ("see", lexicon.THIRD_PLURAL, PRESENT, "see", "voient"),
        ("see", lexicon.FIRST_SINGULAR, PAST, "saw", "ai vu"),
        ("see", lexicon.THIRD_SINGULAR, PAST, "saw", "a vu"),
        ("see", lexicon.FIRST_PLURAL, PAST, "saw", "avons vu"),
        ("see", lexicon.THIRD_PLURAL, PAST, "saw", "ont vu"),
    ],
)
def test_verbs_agree_in_both_languages(verb: str, person: int, tense: int, english: str, french: str) -> None:
    (entry,) = [entry for entry in lexicon.MEETING if entry.english_present[0] == (verb,)]
    rules = Rules(random.Random(1))
    rules.chance = lambda: 0.99  # no adverb
    phrase = rules.verb(entry, person, tense)
    assert " ".join(word.form for word in phrase.english) == english
    assert " ".join(word.form for word in phrase.french) == french


def test_subjects_agree_with_their_verbs(golds: list[Gold]) -> None:
    third = {row.english_present[1][0] for row in lexicon.MEETING + lexicon.INTRANSITIVE}
    bare = {row.english_present[0][0] for row in lexicon.MEETING + lexicon.INTRANSITIVE}
    checked: Counter[str] = Counter()
    for pair in golds:
        source, target = text(pair.source_words), text(pair.target_words)
        if source.startswith("we "):
            assert re.match(r"nous \w+ons\b", target), target
        elif source.startswith("I "):
            assert re.match(r"j'ai\b|j'\w+[es]\b|je \w+[es]\b", target), target
        elif match := re.match(r"(he|she) (\w+)", source):
            assert match[2] not in bare
            assert re.match(r"(il|elle) (?!(ai|avons|ont) )\w+(?<!ons)(?<!nt)\b", target), target
        elif match := re.match(r"[A-Z]\w+ and [A-Z]\w+ (\w+)", source):
            assert match[1] not in third
            assert re.match(r"\w+ et \w+ (ont|\w+ent) ", target.replace(".", " ")), target
        else:
            continue
        checked[source.split()[0]] += 1
    assert min(checked[word] for word in ("we", "I", "he", "she", "Mary")) > 5


def test_lengths_are_spread_and_the_test_split_has_long_sentences(golds: list[Gold], corpus: Corpus) -> None:
    # The full stop is a word of Gold; figures without it.
    lengths = [len(pair.source_words) - 1 for pair in golds]
    assert min(len(pair.source_words) for pair in golds) == 3
    assert 9.5 <= sum(lengths) / len(lengths) <= 11.5
    assert 0.97 * len(lengths) < sum(length <= 30 for length in lengths)
    assert sum(len(pair.source_words) - 1 > 18 for pair in gold_of(corpus.tests["test"])) >= 150


def test_more_depth_makes_longer_sentences() -> None:
    longest = []
    means = []
    for depth in (0, 1, 2, 4, 6):
        golds = gold_of(make(train=2000, validation=1, test=1, max_depth=depth).load().train)
        lengths = [len(pair.source_words) for pair in golds]
        longest.append(max(lengths))
        means.append(sum(lengths) / len(lengths))
    assert longest == sorted(set(longest))
    assert means == sorted(set(means))


def test_every_word_of_the_lexicon_is_met_often_enough_to_learn(corpus: Corpus) -> None:
    for words in ("source_words", "target_words"):
        counts = Counter(word for pair in gold_of(corpus.train) for word in getattr(pair, words))
        assert 300 <= len(counts) <= 450
        rare = {word: count for word, count in counts.items() if count < 30}
        assert rare == {}


def test_a_million_sentences_can_be_derived() -> None:
    # A part of the grammar at depth 1, where no two derivations give the same words:
    # article + person, then a verb of meeting in one of two tenses, then article + person or animal.
    articles = [len({row.english for row in lexicon.DETERMINERS[number]}) for number in (0, 1)]
    people = len(lexicon.PEOPLE) * sum(articles)
    objects = (len(lexicon.PEOPLE) + len(lexicon.ANIMALS)) * sum(articles)
    assert people * len(lexicon.MEETING) * 2 * objects >= 10**6


def test_the_same_arguments_give_the_same_corpus() -> None:
    random.seed(7)
    first = make(train=500, validation=50, test=50).load()
    state = random.getstate()
    second = make(train=500, validation=50, test=50).load()
    assert random.getstate() == state
    assert first == second
    assert make(train=500, validation=50, test=50, seed=2).load().train.source != first.train.source


def test_the_corpus_does_not_depend_on_hash_randomisation() -> None:
    program = (
        "from seq2seq_lab.data.grammar import Grammar\n"
        "split = Grammar(200, 1, 1, 1, 4).load().train\n"
        "print([ascii(pair) for pair in zip(split.source, split.target)])\n"
        "print([sorted(pair.links) for pair in split.gold])"
    )
    folder = YAML.parents[2]
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=folder,
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


@pytest.mark.parametrize("key", ["train", "validation", "test"])
@pytest.mark.parametrize("size", [0, -5])
def test_a_size_below_one_is_refused_by_name(key: str, size: int) -> None:
    with pytest.raises(UserError, match=rf"dataset\.{key}={size} .*1 or more"):
        make(**{key: size})


def test_a_negative_depth_is_refused() -> None:
    with pytest.raises(UserError, match=r"dataset\.max_depth=-1 .*0 or more"):
        make(max_depth=-1)


def test_more_sentences_than_the_grammar_surely_has_are_refused() -> None:
    with pytest.raises(UserError, match=r"dataset\.train=1000000000.*make them smaller"):
        make(train=10**9)


def test_a_grammar_that_is_used_up_is_an_error_and_no_endless_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seq2seq_lab.data.grammar.MOST_REPEATS", 20)
    with pytest.raises(UserError, match=r"ask for 100002 different sentences.*raise dataset\.max_depth"):
        make(train=100_000, validation=1, test=1, max_depth=0).load()
