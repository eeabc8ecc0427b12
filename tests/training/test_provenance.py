"""What is recorded of a run besides its configuration, and what counts as a difference."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seq2seq_lab.config import extensions
from seq2seq_lab.config.schema import CONF_DIR, SLOTS
from seq2seq_lab.data.corpus import Corpus, ParallelText
from seq2seq_lab.errors import UserError
from seq2seq_lab.tasks.translation.task import pairs_record
from seq2seq_lab.training import provenance

TRAIN = ParallelText(["a", "b", "c"], ["x", "y", "z"])
HELD_OUT, TEST = ParallelText(["d"], ["w"]), ParallelText(["e", "f"], ["u", "v"])
CORPUS = Corpus("en", "fr", TRAIN, HELD_OUT, {"one": TEST, "two": HELD_OUT}, {"leaked_pairs": 2})


def config_of(**targets: str) -> Any:
    """Return a configuration whose slots name classes of this program, or those given."""
    known = {slot: {"_target_": f"seq2seq_lab.{slot}.Class"} for slot in SLOTS}
    return SimpleNamespace(
        init_from=None, metric={}, **known | {slot: {"_target_": target} for slot, target in targets.items()}
    )


def record_of(**changes: Any) -> dict[str, Any]:
    made = {"data": pairs_record(CORPUS), "components": {}, "source": "s", "commit": "0123456789"}
    return made | changes


@pytest.mark.parametrize(
    "other",
    [
        replace(CORPUS, train=ParallelText(["a", "b", "c"], ["x", "z", "y"])),
        replace(CORPUS, train=ParallelText(["b", "a", "c"], ["y", "x", "z"])),
        replace(CORPUS, validation=ParallelText(["d"], ["w."])),
        replace(CORPUS, tests={"one": TEST}),
        replace(CORPUS, tests={"one": TEST, "other": HELD_OUT}),
        replace(CORPUS, tests={"one": ParallelText(["e", "f"], ["u", "v "]), "two": HELD_OUT}),
    ],
)
def test_the_fingerprint_is_of_the_text_of_all_splits(other: Corpus) -> None:
    assert pairs_record(other)["fingerprint"] != pairs_record(CORPUS)["fingerprint"]
    assert provenance.differences(record_of(), record_of(data=pairs_record(other))).keys() == {"data"}


def test_the_record_of_the_data() -> None:
    found = pairs_record(CORPUS)
    assert found["sizes"] == {"train": 3, "validation": 1, "one": 2, "two": 1}
    assert found["counts"] == {"leaked_pairs": 2}
    assert found["tests"].keys() == {"one", "two"}
    again = pairs_record(replace(CORPUS, train=HELD_OUT, counts={}))
    assert again["tests"] == found["tests"]


def test_a_difference_names_what_changed() -> None:
    test = ParallelText(["e", "F"], ["u", "v"])
    fewer = pairs_record(replace(CORPUS, train=HELD_OUT, tests={"one": test, "two": HELD_OUT}))
    now = record_of(data=fewer, components={"a.py": "2", "b.py": "1"}, source="t")
    recorded = record_of(components={"a.py": "1", "b.py": "1", "c.py": "1"})
    assert provenance.differences(recorded, now) == {
        "data": "data (train: 3 examples, now 1; one: other examples)",
        "components": "custom components (a.py, c.py)",
        "source": "source of seq2seq_lab (recorded at commit 0123456)",
    }
    assert provenance.differences(now, now) == {}
    more = now | {"components": {**now["components"], "added.py": "1"}}
    assert provenance.differences(now, more) == {}  # the run did not use the new file
    assert provenance.differences(now | {"changed": ["source"]}, now).keys() == {"source"}


def test_ranks_with_other_data_or_code_are_refused() -> None:
    first, identity = record_of(machine={"device_name": "one"}), {"the data or the tokenizer": "key"}
    provenance.require_equal([(identity, first), (identity, record_of(machine={"device_name": "other"}))])
    fewer = record_of(data=pairs_record(replace(CORPUS, train=HELD_OUT)))
    for own_identity, own, named in (
        (identity, fewer, r"data \(train: 3 examples, now 1\)"),
        (identity, record_of(source="t"), "source of seq2seq_lab"),
        ({"the data or the tokenizer": "other"}, first, "the data or the tokenizer"),
    ):
        with pytest.raises(UserError, match=f"^Rank 2 differs from rank 0: {named}"):
            provenance.require_equal([(identity, first), (identity, first), (own_identity, own)])


def test_the_source_is_that_of_the_package_and_of_conf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, conf = tmp_path / "package", tmp_path / "conf"
    for name, text in (("a.py", "1"), ("models/b.py", "2"), ("page.html", "3")):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    conf.mkdir()
    (conf / "c.yaml").write_text("x: 1")
    monkeypatch.setattr(provenance, "PACKAGE", package)
    monkeypatch.setattr(provenance, "CONF_DIR", conf)
    first = provenance.source.__wrapped__()
    (package / "page.html").write_text("4")
    assert provenance.source.__wrapped__() == first
    found = {first}
    for path in (package / "a.py", package / "models" / "b.py", conf / "c.yaml"):
        path.write_text(f"{path.read_text()} ")
        found.add(provenance.source.__wrapped__())
    assert len(found) == 4
    # An installed package has conf/ inside.
    monkeypatch.setattr(provenance, "CONF_DIR", conf.rename(package / "conf"))
    assert provenance.source.__wrapped__() in found
    assert CONF_DIR.is_dir()


def test_components_are_the_files_of_the_folder_given_where_one_is_used(tmp_path: Path) -> None:
    for name in ("mine.py", "parts/helper.py", ".venv/lib/x.py", "venv/lib/python3.11/y.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"# {name}")
    mine = config_of(attention="mine.Mine")
    assert provenance.components(mine) == {}
    with extensions.using(tmp_path):
        assert provenance.components(config_of()) == {}
        assert provenance.components(config_of(logger="mine.Logger")) == {}
        before = provenance.components(mine)
        assert before.keys() == {"mine.py", "parts/helper.py"}
        (tmp_path / "parts" / "helper.py").write_text("x = 1")
        after = provenance.components(mine)
        assert [name for name in before if before[name] != after[name]] == ["parts/helper.py"]


def test_components_of_an_installed_module_that_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine_installed").mkdir()
    (tmp_path / "mine_installed" / "__init__.py").write_text("")
    (tmp_path / "mine_installed" / "attention.py").write_text("1")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("SEQ2SEQ_LAB_TRUST", "mine_installed")
    config = config_of(attention="mine_installed.attention.Mine")
    before = provenance.components(config)
    assert before.keys() == {"mine_installed.attention"}
    (tmp_path / "mine_installed" / "attention.py").write_text("2")
    assert provenance.components(config) != before
    sys.modules.pop("mine_installed")


def test_a_data_set_is_read_once_for_all_jobs() -> None:
    read: list[int] = []

    def read_data(config: Any) -> dict[str, Any]:
        read.append(config.dataset["seed"])
        return {"fingerprint": "f"}

    provenance.clear_cache()
    for seed in (1, 2, 1, 2):
        config = config_of()
        config.dataset["seed"] = seed
        assert provenance.current(config, read_data)["data"] == {"fingerprint": "f"}
    assert read == [1, 2]
    provenance.clear_cache()
    provenance.current(config, read_data)
    assert read == [1, 2, 2]
    provenance.clear_cache()
