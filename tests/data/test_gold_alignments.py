"""`dataset.alignments`: gold links of test sets, with the pairs that they belong to."""

import logging

import pytest
from omegaconf import OmegaConf

from seq2seq_lab.config.slots import check_slot
from seq2seq_lab.config.upgrade import upgraded
from seq2seq_lab.data.multi30k import Multi30k
from seq2seq_lab.data.parallel import Parallel
from seq2seq_lab.errors import UserError
from seq2seq_lab.launching.checks import KINDS
from tests.data.test_multi30k import DEFAULTS as MULTI30K
from tests.data.test_parallel import DEFAULTS as PARALLEL

TRAIN = "".join(f"eins {i}\tone {i}\n" for i in range(20))
TEST = "ein Haus\ta house\nzwei  rote Häuser\ttwo red houses\nein Haus\ta house\n"
LINKS = "0-0 1-1\n0-0 1-1 2?2\n0-1 1-0\n"


def settings_of(defaults, **changes):
    settings = OmegaConf.to_container(OmegaConf.load(defaults)) | changes
    check_slot("dataset", settings, KINDS)
    settings.pop("_target_")
    return settings


@pytest.fixture
def parallel(tmp_path):
    for name, text in (("train.tsv", TRAIN), ("test.tsv", TEST), ("links", LINKS)):
        (tmp_path / name).write_text(text, encoding="utf-8")

    def make(**changes):
        files = {"train": "train.tsv", "validation": "test.tsv", "test": "test.tsv", "alignments": "links"}

        def absolute(value):
            if isinstance(value, dict):
                return {key: absolute(one) for key, one in value.items()}
            if isinstance(value, list):
                return [absolute(one) for one in value]
            return value and str(tmp_path / value)

        paths = {key: absolute(changes.pop(key, value)) for key, value in files.items()}
        return Parallel(**settings_of(PARALLEL, **paths, **changes))

    return make


def test_one_file_belongs_to_the_only_test_set(parallel) -> None:
    corpus = parallel().load()
    assert corpus.validation.gold is None
    gold = corpus.tests["test"].gold
    assert gold[1].source_words == ("zwei", "rote", "Häuser")
    assert gold[1].target_words == ("two", "red", "houses")
    assert (gold[1].links, gold[1].possible) == ({(0, 0), (1, 1)}, {(2, 2)})


def test_files_of_several_splits(parallel) -> None:
    two = {"a": "test.tsv", "b": "test.tsv"}
    corpus = parallel(test=two, alignments={"b": ["links", "links"], "validation": "links"}).load()
    assert corpus.tests["a"].gold is None
    assert corpus.tests["b"].gold[2].links == corpus.validation.gold[2].links == {(0, 1), (1, 0)}


def test_dropped_repeats_take_their_links_along(parallel) -> None:
    test = parallel(on_duplicate="drop").load().tests["test"]
    assert len(test) == len(test.gold) == 2
    assert [len(gold.source_words) for gold in test.gold] == [2, 3]


def test_a_reversed_file_of_base_1(parallel, tmp_path) -> None:
    (tmp_path / "turned").write_text("1-1\n3p2\n2-1\n")
    gold = parallel(alignments="turned", alignments_reversed=True).load().tests["test"].gold
    assert gold[1].possible == {(1, 2)}
    assert gold[2].links == {(0, 1)}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"test": {"a": "test.tsv", "b": "test.tsv"}}, "there are 2 test sets .*Splits: validation, a, b"),
        ({"alignments": {"tests": "links"}}, "alignments.tests=.*is not a held-out split.*validation, test"),
        ({"alignments": {"train": "links"}}, "train is not a held-out split"),
        ({"test": None, "test_share": 0.4}, "there are 0 test sets .*Splits: validation"),
        ({"max_tokens": 2}, "alignments.test=.*pairs of test were dropped.*max_tokens=null"),
        ({"alignments": "missing"}, "alignments.test=.*missing not found"),
        ({"alignments": {"test": ["links", "links", "links"]}}, "give one file of links, or"),
        ({"alignment_base": 1}, "links line 1: the link 0-0 is outside"),
    ],
)
def test_errors_name_the_key(parallel, changes, named) -> None:
    with pytest.raises(UserError, match=named):
        parallel(**changes).load()


def test_a_bad_pair_that_is_dropped_is_an_error(parallel, tmp_path, caplog) -> None:
    (tmp_path / "test.tsv").write_text(TEST + "\tnothing\n", encoding="utf-8")
    with caplog.at_level(logging.ERROR), pytest.raises(UserError, match="pairs of test were dropped"):
        parallel(on_bad_pair="drop", validation="train.tsv").load()
    (tmp_path / "links").write_text(LINKS + "\n")
    with pytest.raises(UserError, match="pairs of test were dropped"):
        parallel(on_bad_pair="drop", validation="train.tsv").load()


def test_multi30k(tmp_path) -> None:
    for split in ("train", "val", "test_2016", "test_2017"):
        for language in ("de", "en"):
            (tmp_path / f"{split}.{language}").write_text(f"{language} {split}\n")
    (tmp_path / "links").write_text("0-1 1p0\n")
    files = {"test_2017": str(tmp_path / "links"), "validation": str(tmp_path / "links")}
    settings = settings_of(MULTI30K, path=str(tmp_path), alignments=files)
    corpus = Multi30k(**settings).load()
    assert corpus.tests["test_2016"].gold is None
    assert corpus.validation.gold[0].links == {(0, 1)}
    (gold,) = corpus.tests["test_2017"].gold
    assert (gold.links, gold.possible, gold.source_words) == ({(0, 1)}, {(1, 0)}, ("de", "test_2017"))
    with pytest.raises(UserError, match="there are 2 test sets"):
        Multi30k(**settings | {"alignments": str(tmp_path / "links")}).load()


@pytest.mark.parametrize("defaults", [PARALLEL, MULTI30K])
def test_runs_that_were_recorded_before_the_keys_open(defaults) -> None:
    now = OmegaConf.to_container(OmegaConf.load(defaults))
    before = {key: value for key, value in now.items() if not key.startswith("alignment")}
    assert upgraded({"dataset": before})["dataset"] == now
