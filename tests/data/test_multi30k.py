"""Multi30k from raw files, from a folder in the hub's layout, and without a network."""

import gzip
import json
import socket
import time
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from seq2seq_lab.config.slots import check_slot
from seq2seq_lab.data.multi30k import Multi30k
from seq2seq_lab.errors import UserError
from seq2seq_lab.launching.checks import KINDS

DEFAULTS = Path(__file__).parents[2] / "conf" / "dataset" / "multi30k.yaml"


def multi30k(**changes):
    """The data set with the defaults of its YAML file."""
    arguments = OmegaConf.to_container(OmegaConf.load(DEFAULTS)) | changes
    check_slot("dataset", arguments, KINDS)
    assert arguments.pop("_target_") == f"{Multi30k.__module__}.{Multi30k.__name__}"
    return Multi30k(**arguments)


def raw_files(folder, languages=("de", "en", "fr"), tests=("test_2016_flickr",)):
    for split, lines in (("train", 5), ("val", 2), *((test, 1) for test in tests)):
        for language in languages:
            text = "".join(f"{language} {split} {n}\n" for n in range(lines))
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8", newline="\n")


def hub_files(folder, change=lambda row: row):
    for split, lines in (("train", 5), ("val", 2), ("test", 1)):
        rows = [change({"en": f"en {split} {n}", "de": f"de {split} {n}"}) for n in range(lines)]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def hub_cache(tmp_path_factory, monkeypatch):
    """The cache of `datasets`, empty."""
    import datasets

    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    return cache


@pytest.fixture
def closed_hub(monkeypatch):
    """The address of the hub is a closed port of this machine."""
    from huggingface_hub import constants

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return port


def test_all_splits_and_test_sets_of_raw_files_are_read(tmp_path):
    raw_files(tmp_path, tests=("test_2016_flickr", "test_2017_mscoco"))
    corpus = multi30k(path=str(tmp_path), source="fr", target="de").load()
    assert (corpus.source_language, corpus.target_language) == ("fr", "de")
    assert corpus.train.source == [f"fr train {n}" for n in range(5)]
    assert corpus.train.target == [f"de train {n}" for n in range(5)]
    assert corpus.validation.source == ["fr val 0", "fr val 1"]
    assert {name: split.target for name, split in corpus.tests.items()} == {
        "test_2016_flickr": ["de test_2016_flickr 0"],
        "test_2017_mscoco": ["de test_2017_mscoco 0"],
    }
    assert not any(corpus.counts.values())


def test_gzipped_files_are_read_and_a_limit_keeps_the_first_training_pairs(tmp_path):
    raw_files(tmp_path, tests=("test",))
    for name in ("train.de", "test.en"):
        plain = tmp_path / name
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()
    corpus = multi30k(path=str(tmp_path), limit=1).load()
    assert (corpus.train.source, corpus.train.target) == (["de train 0"], ["en train 0"])
    assert (len(corpus.validation), len(corpus.tests["test"])) == (2, 1)


def test_unusual_lines_of_the_real_files_are_kept(tmp_path):
    raw_files(tmp_path)
    german = ["@@", '"in einer \tFontäne."', "a\u00a0b", "a\u2028b", "Ende"]
    (tmp_path / "train.de").write_text("\n".join(german), encoding="utf-8", newline="\n")
    corpus = multi30k(path=str(tmp_path)).load()
    assert corpus.train.source == german
    assert corpus.train.target == [f"en train {n}" for n in range(5)]


def test_bad_pairs_are_an_error_by_default(tmp_path):
    raw_files(tmp_path)
    (tmp_path / "val.en").write_text("\nen val 1\n")
    with pytest.raises(UserError, match=r"val\.en line 1: the sentence is empty"):
        multi30k(path=str(tmp_path)).load()
    corpus = multi30k(path=str(tmp_path), on_bad_pair="drop").load()
    assert (corpus.validation.source, corpus.validation.target) == (["de val 1"], ["en val 1"])
    assert corpus.counts["dropped_pairs"] == 1


@pytest.mark.parametrize("name", ["train.de", "val.en", "test_2016_flickr.de", "test_2016_flickr.en"])
def test_the_error_of_a_missing_file_lists_the_files_of_the_folder(tmp_path, name):
    raw_files(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(
        UserError, match=rf"dataset\.path=.*: {name} \(or compressed\) not found; .* contains .*train\.en"
    ):
        multi30k(path=str(tmp_path)).load()


def test_no_test_set_no_folder_and_an_empty_split_are_errors(tmp_path):
    with pytest.raises(UserError, match=r"folder .* not found"):
        multi30k(path=str(tmp_path / "gone")).load()
    raw_files(tmp_path, tests=())
    with pytest.raises(UserError, match=r"test\*\.de, test\*\.en"):
        multi30k(path=str(tmp_path)).load()
    raw_files(tmp_path)
    for language in ("de", "en"):
        (tmp_path / f"val.{language}").write_text("")
    with pytest.raises(UserError, match="validation has no pairs"):
        multi30k(path=str(tmp_path)).load()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": "dee"}, r"dataset\.source=dee .*Did you mean 'de'\?"),
        ({"target": "cs"}, r"dataset\.target=cs .*de, en, fr"),
        ({"target": "de"}, r"dataset\.source=de and dataset\.target=de"),
    ],
)
def test_wrong_arguments_are_refused_at_once(changes, message):
    with pytest.raises(UserError, match=message):
        multi30k(**changes)


@pytest.mark.usefixtures("closed_hub")
def test_a_folder_in_the_layout_of_the_hub_is_loaded_by_datasets(tmp_path, hub_cache):
    hub_files(tmp_path)
    corpus = multi30k(hub=str(tmp_path), source="en", target="de", limit=4).load()
    assert corpus.train.source == [f"en train {n}" for n in range(4)]
    assert corpus.train.target == [f"de train {n}" for n in range(4)]
    assert corpus.validation.target == ["de val 0", "de val 1"]
    assert corpus.tests["test"].source == ["en test 0"]
    assert list(hub_cache.iterdir())


@pytest.mark.usefixtures("hub_cache")
@pytest.mark.parametrize(
    ("value", "message"), [("", "empty"), (None, "None is not text"), ("a\nb", "line break")]
)
def test_bad_rows_of_the_hub_are_bad_pairs(tmp_path, value, message):
    hub_files(tmp_path, lambda row: row | {"de": value} if row["en"] == "en train 2" else row)
    with pytest.raises(UserError, match=rf"train\.jsonl line 3 de: .*{message}"):
        multi30k(hub=str(tmp_path)).load()
    corpus = multi30k(hub=str(tmp_path), on_bad_pair="drop").load()
    assert corpus.train.target == ["en train 0", "en train 1", "en train 3", "en train 4"]
    assert corpus.counts["dropped_pairs"] == 1


@pytest.mark.usefixtures("hub_cache")
def test_other_columns_or_splits_are_refused(tmp_path):
    hub_files(tmp_path, lambda row: {"en": row["en"], "cs": row["de"]})
    with pytest.raises(UserError, match="line 1 has no column de; it has en, cs"):
        multi30k(hub=str(tmp_path)).load()
    hub_files(tmp_path)
    (tmp_path / "val.jsonl").unlink()
    with pytest.raises(UserError, match="has no split validation"):
        multi30k(hub=str(tmp_path)).load()


@pytest.mark.usefixtures("hub_cache")
def test_without_a_network_the_error_comes_at_once_and_names_the_option(closed_hub):
    start = time.monotonic()
    with pytest.raises(UserError, match=rf"No network: 127\.0\.0\.1:{closed_hub} .*dataset\.path=FOLDER"):
        multi30k().load()
    assert time.monotonic() - start < 5, "the hub client's own time-out is 23 s"


@pytest.mark.usefixtures("hub_cache", "closed_hub")
def test_a_forbidden_network_is_not_tried(monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"HF_HUB_OFFLINE.*dataset\.path=FOLDER"):
        multi30k().load()


def test_a_mistyped_folder_is_no_data_set_of_the_hub():
    with pytest.raises(UserError, match="neither a folder nor a data set name"):
        multi30k(hub="some/missing/folder").load()


@pytest.mark.usefixtures("closed_hub")
def test_a_copy_in_the_cache_is_used_without_a_network(tmp_path, hub_cache):
    import datasets

    folder = tmp_path / "multi30k"
    folder.mkdir()
    hub_files(folder)
    datasets.load_dataset(str(folder))
    # The cache names a hub's data set OWNER___NAME; the rest of the layout is that of a local one.
    (hub_cache / "multi30k").rename(hub_cache / "bentrevett___multi30k")

    corpus = multi30k().load()
    assert corpus.train.source == [f"de train {n}" for n in range(5)]
    assert datasets.config.HF_HUB_OFFLINE is False


@pytest.mark.corpora
@pytest.mark.parametrize(
    ("source", "target", "found"),
    [
        ("de", "en", {"duplicate_pairs": 3, "leaked_sources": 1}),
        ("en", "fr", {"duplicate_pairs": 5, "leaked_pairs": 1, "leaked_sources": 1}),
        ("fr", "de", {"duplicate_pairs": 6, "leaked_sources": 3}),
    ],
)
def test_the_real_files(corpora, source, target, found):
    corpus = multi30k(path=str(corpora / "multi30k"), source=source, target=target).load()
    assert (len(corpus.train), len(corpus.validation)) == (29_000, 1_014)
    assert {name: len(split) for name, split in corpus.tests.items()} == {"test_2016_flickr": 1_000}
    assert {key: count for key, count in corpus.counts.items() if count} == found
    for language, lines in ((source, corpus.train.source), (target, corpus.train.target)):
        raw = (corpora / "multi30k" / f"train.{language}").read_bytes().decode()
        assert "\n".join(lines) + "\n" == raw
    if source == "de":
        assert [n for n, line in enumerate(corpus.train.source, 1) if line == "@@"] == [16_510, 16_664]
        assert "\t" in corpus.train.source[7_365]
        assert sum("\u00a0" in line for line in corpus.train.source) == 44
