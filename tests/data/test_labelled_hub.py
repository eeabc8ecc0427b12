"""Data sets of the hub for classification: a local data set that the library `datasets` has written."""

from pathlib import Path
from typing import Any

import pandas
import pytest
from data.test_labelled_texts import texts

from seq2seq_lab.data.hub import read_hub
from seq2seq_lab.data.labelled import LabelledCorpus, PairCorpus
from seq2seq_lab.data.tables import Reader
from seq2seq_lab.data.text import new_counts
from seq2seq_lab.errors import UserError

SENTENCES = {
    "train": [(f"a film of {i} hours", i % 2) for i in range(60)],
    "validation": [("fine", 1), ("dull", 0)],
    "test": [("new", -1), ("newer", -1)],
}


@pytest.fixture(params=["a folder", "the cache"])
def hub(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A data set with names of classes and hidden labels in its test split: a folder, and in the cache of the library."""
    return written(tmp_path, monkeypatch, request.param == "the cache", SENTENCES)


def written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: bool, splits: dict[str, list[tuple[str, int]]]
) -> str:
    """Write a data set with the library `datasets`, and return its name."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    named = datasets.ClassLabel(names=["negative", "positive"])
    features = datasets.Features(
        {
            **{name: datasets.Value("string") for name in ("sentence", "second")},
            **{"label": named, "film": datasets.Value("int64")},
        }
    )
    folder = tmp_path / "set"
    folder.mkdir()
    for split, rows in splits.items():
        columns = {
            "sentence": [text for text, _ in rows],
            "label": [label for _, label in rows],
            "second": [f"no {text}" for text, _ in rows],
            "film": [i // 5 for i in range(len(rows))],
        }
        datasets.Dataset.from_dict(columns, features).to_parquet(folder / f"{split}.parquet")
    if not cached:
        return str(folder)
    datasets.load_dataset(str(folder))
    (tmp_path / "cache" / "set").rename(tmp_path / "cache" / "owner___set")
    return "owner/set"


def load(hub: str | None, **changes: Any) -> LabelledCorpus:
    return texts(**{"hub": hub, "columns": ("sentence", "label")} | changes).load()


def rows_of(corpus: LabelledCorpus, split: str) -> list[tuple[str, str]]:
    return [*zip(corpus.splits[split].texts, corpus.splits[split].labels, strict=True)]


def test_official_splits_have_the_names_of_the_classes(hub: str, tmp_path: Path) -> None:
    corpus = load(hub, hub_splits=("train", None, "validation"))
    assert rows_of(corpus, "test") == [("fine", "positive"), ("dull", "negative")]
    assert len(corpus.train) + len(corpus.validation) == 60
    assert len(corpus.validation) > 0
    assert corpus.classes == ["negative", "positive"]
    own = tmp_path / "own.tsv"
    own.write_text("sentence\tlabel\nown\tpositive\n", "utf-8")
    corpus = load(hub, test=str(own))  # a file has priority over the split of the hub
    assert rows_of(corpus, "test") == [("own", "positive")]
    assert rows_of(corpus, "validation") == [("fine", "positive"), ("dull", "negative")]
    assert len(corpus.train) == 60


def test_the_names_of_classes_are_sides_of_pairs(hub: str) -> None:
    columns = ("sentence", "label")
    pairs = read_hub(hub, None, columns, on_bad_pair="error", counts=new_counts(), remedy="", reader=Reader())
    assert [*pairs["validation"]] == [("fine", "positive"), ("dull", "negative")]


def test_groups_of_the_hub_stay_together(hub: str) -> None:
    corpus = load(hub, hub_splits=("train", None, None), group="film")
    films = [{int(text.split()[3]) // 5 for text in split.texts} for split in corpus.splits.values()]
    assert sum(map(len, films)) == len(set.union(*films)) == 12


def test_a_split_of_hidden_labels_is_refused(hub: str) -> None:
    with pytest.raises(UserError, match=r"row 2: every label of the split is -1.*dataset\.hub_splits"):
        load(hub)


PAIR = ("sentence", "second", "label")


def test_pairs_of_the_hub(hub: str) -> None:
    corpus = load(hub, columns=PAIR, hub_splits=("train", None, "validation"))
    assert isinstance(corpus, PairCorpus)
    assert rows_of(corpus, "test") == [("fine\tno fine", "positive"), ("dull\tno dull", "negative")]
    with pytest.raises(UserError, match="every label of the split is -1"):
        load(hub, columns=PAIR)


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("columns", [PAIR, ("sentence", "label")])
def test_examples_with_a_hidden_label_are_left_out_and_counted(
    columns: tuple[str, ...], cached: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the pairs of SNLI without an agreed label."""
    splits = {
        "train": [("a", 0), ("b", -1), ("c", 1)],
        "validation": [("d", -1), ("e", 1)],
        "test": [("f", 0)],
    }
    hub = written(tmp_path, monkeypatch, cached, splits)
    corpus = load(hub, columns=columns)
    found = [(text.partition("\t")[0], label) for split in splits for text, label in rows_of(corpus, split)]
    assert found == [("a", "negative"), ("c", "positive"), ("e", "positive"), ("f", "negative")]
    assert corpus.counts["examples_without_label"] == 2
    if not cached:  # the same file, not through the layout of the hub
        files = {split: f"{hub}/{split}.parquet" for split in splits}
        assert load(None, columns=columns, **files) == corpus


def test_a_split_or_a_column_that_is_missing_is_named(hub: str) -> None:
    with pytest.raises(
        UserError, match=r"has no split dev; it has train, (validation, test|test, validation)"
    ):
        load(hub, hub_splits=("train", "dev", None))
    with pytest.raises(
        UserError, match=r"has no column text; it has sentence, (second, label|label, second), film"
    ):
        load(hub, hub_splits=("train", "validation", None), columns=("text", "label"))


def test_hidden_labels_without_names(tmp_path: Path) -> None:
    for split, labels in (("train", (1, -1)), ("test", (-1, -1))):
        rows = "".join(f'{{"text": "{split}", "label": {label}}}\n' for label in labels)
        (tmp_path / f"{split}.jsonl").write_text(rows, "utf-8")
    train, settings = str(tmp_path / "train.jsonl"), {"columns": ("text", "label")}
    with pytest.raises(UserError, match=r"test\.jsonl line 2: every label of the split is -1"):
        load(str(tmp_path), **settings, validation=train)
    corpus = load(str(tmp_path), **settings, validation=train, test=train)
    assert rows_of(corpus, "train") == [("train", "1")]
    assert rows_of(corpus, "test") == [("train", "1"), ("train", "-1")]  # in a file of yours, -1 is a label
    assert corpus.counts["examples_without_label"] == 1


def test_a_parquet_file_without_names_of_classes_has_no_hidden_labels(tmp_path: Path) -> None:
    path = tmp_path / "own.parquet"
    pandas.DataFrame({"text": ["bad", "so so", "good"], "label": [-1, 0, 1]}).to_parquet(path)
    corpus = load(None, columns=("text", "label"), **dict.fromkeys(SENTENCES, str(path)))
    assert rows_of(corpus, "train") == [("bad", "-1"), ("so so", "0"), ("good", "1")]
    assert "examples_without_label" not in corpus.counts


def test_a_damaged_file_of_the_hub_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path, monkeypatch, False, SENTENCES)
    damaged = Path(folder) / "train.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"train\.parquet cannot be read as Parquet"):
        load(folder)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"train": "a.tsv"}, r"dataset\.train=a\.tsv, dataset\.hub=a/b"),
        ({"columns": (1, 2)}, r"dataset\.columns=\[1, 2\]"),
        ({"format": "label_first"}, r"dataset\.format=label_first"),
        ({"hub": None, "train": "a.tsv", "hub_config": "x"}, r"dataset\.hub_config=x needs dataset\.hub"),
        ({"hub": None, "train": "a.tsv", "hub_splits": ("a", None, None)}, r"dataset\.hub_splits="),
    ],
)
def test_settings_that_cannot_be_combined_with_the_hub_are_refused(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(UserError, match=key):
        texts(**{"hub": "a/b"} | changes)
