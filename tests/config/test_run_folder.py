"""The manifest of a run folder: what a damaged file leads to."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rewriting import crash_at_replacement

from seq2seq_lab import files
from seq2seq_lab.config import run_folder
from seq2seq_lab.config.run_folder import (
    RUN_FORMAT,
    check_run_files,
    cover,
    find_damage,
    read_result,
    write_covered,
)
from seq2seq_lab.data.tokenizers import WordTokenizer
from seq2seq_lab.errors import UserError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files of a run, in small."""
    tokenizer = WordTokenizer(joint=True, lowercase=False, min_frequency=1, max_size=None)
    tokenizer.train(["a b"])
    tokenizer.save(tmp_path / "tokenizer", "source")
    (tmp_path / "config.yaml").write_text("seed: 1\n")
    cover(tmp_path, "run", ["config.yaml", "tokenizer"])
    write_covered(tmp_path, "run", "run.json", json.dumps({"format": RUN_FORMAT, "choices": {}}))
    write_covered(tmp_path, "result", "result.json", json.dumps({"status": "finished"}))
    return tmp_path


def flipped(path: Path) -> Iterator[None]:
    """Flip one bit of each byte of a file in turn, and restore the file."""
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :])
        yield
    path.write_bytes(content)


@pytest.mark.parametrize(
    "name",
    ["config.yaml", "run.json", "tokenizer/source.json", "tokenizer/source.options.json", "manifest.json"],
)
def test_every_flipped_byte_is_found_and_its_file_is_named(folder: Path, name: str) -> None:
    check_run_files(folder)
    for _ in flipped(folder / name):
        assert find_damage(folder, "run") == {name: "is damaged"}
    (folder / name).unlink()
    with pytest.raises(UserError, match=name):
        check_run_files(folder)


def test_a_damaged_result_does_not_keep_a_run_from_being_opened(folder: Path) -> None:
    assert read_result(folder) == {"status": "finished"}
    for _ in flipped(folder / "result.json"):
        assert read_result(folder) == {"status": "damaged", "error": "result.json is damaged"}
    check_run_files(folder)
    (folder / "manifest.json").unlink()
    assert read_result(folder)["status"] == "damaged"


def test_a_crash_within_a_write_leaves_a_valid_folder(folder: Path) -> None:
    seen = set()
    for last in range(4):
        with crash_at_replacement(last):
            if last < 3:
                with pytest.raises(KeyboardInterrupt):
                    write_covered(folder, "run", "config.yaml", f"seed: {last}\n")
            else:
                write_covered(folder, "run", "config.yaml", f"seed: {last}\n")
        check_run_files(folder)
        seen.add((folder / "config.yaml").read_text())
    # Stopped before the file was written, after it, and not at all.
    assert seen == {"seed: 1\n", "seed: 2\n", "seed: 3\n"}
    assert len(run_folder.read_manifest(folder)["run"]["config.yaml"]) == 1
    (folder / "config.yaml").write_text("seed: 2\n")
    assert find_damage(folder, "run") == {"config.yaml": "is damaged"}


def test_a_file_that_the_manifest_does_not_list_is_damaged(folder: Path) -> None:
    cover(folder, "result", [])
    assert read_result(folder)["status"] == "damaged"


@pytest.mark.parametrize(
    "text", ['{"seed": 1, "seed": 2}', '{"a": [{"b": 1, "b": 1}]}', "[1]", "{", "\udcff"]
)
def test_an_object_with_a_repeated_key_or_no_object_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError, match=r"run\.json"):
        files.read_json_object(path)


def test_a_write_that_is_interrupted_leaves_no_temporary_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(path: Path) -> None:
        raise KeyboardInterrupt

    before = sorted(folder.iterdir())
    monkeypatch.setattr(files, "flush", interrupt)
    with pytest.raises(KeyboardInterrupt):
        files.write_atomically(folder / "config.yaml", "seed: 2\n")
    assert sorted(folder.iterdir()) == before


def test_processes_with_one_number_on_two_machines_write_to_different_temporary_files(tmp_path: Path) -> None:
    with files.temporary_path(tmp_path / "a") as one, files.temporary_path(tmp_path / "a") as other:
        assert one != other
        for path in (one, other):
            path.write_text(path.name)
