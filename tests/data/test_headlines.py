"""Generated reports: their headlines, the alignment of copied words, and names that training lacks."""

from random import Random

from seq2seq_lab.data.headlines import FACTS, Headlines, draw_report


def test_a_headline_is_that_of_the_fact_of_today() -> None:
    verbs = {fact.split()[0]: headline.split()[0] for fact, headline, _ in FACTS}
    for seed in range(100):
        gold = draw_report(Random(seed), False)
        facts = [one.split() for one in " ".join(gold.source_words).split(" .") if one]
        (today,) = (one for one in facts if one[-1] == "today")
        person, verb, *value = (word for word in today[:-1] if word != "the")
        assert [*gold.target_words] == [person, verbs[verb], *value]
        begin = [" ".join(one) for one in facts].index(" ".join(today))
        start = sum(len(one) + 1 for one in facts[:begin])
        for source, target in gold.links:
            assert start <= source < start + len(today)
            word = gold.source_words[source]
            assert gold.target_words[target] == verbs.get(word, word)
        assert {target for _, target in gold.links} == {*range(len(gold.target_words))}


def test_training_has_no_name_of_the_test() -> None:
    corpus = Headlines(train=200, validation=40, test=40, seed=1).load()
    names = [
        {word for line in text.source for word in line.split() if len(word) == 6 and word[:1].isupper()}
        for text in (corpus.train, corpus.tests["test"])
    ]
    cities = {"London", "Vienna", "Geneva", "Athens"}
    assert not (names[0] & names[1]) - cities
    assert len(names[1]) > 60
    assert corpus == Headlines(train=200, validation=40, test=40, seed=1).load()
