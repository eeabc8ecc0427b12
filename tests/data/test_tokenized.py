"""The tokenized corpus and its cache."""

import errno
import fcntl
import json
import logging
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch

from seq2seq_lab.data import build_lock, ragged, token_cache
from seq2seq_lab.data.corpus import Corpus, ParallelText
from seq2seq_lab.data.tokenized import (
    TokenizedCorpus,
    TokenizedText,
    corpus_key,
    short_pairs,
    tokenize_corpus,
    training_text,
)
from seq2seq_lab.data.tokenizers import EOS, SOS, UNK, BpeTokenizer, Tokenizer, WordTokenizer, base
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import lock_folder
from seq2seq_lab.runtime import heartbeat

CORPUS = Corpus(
    "en",
    "fr",
    train=ParallelText(["the cat sleeps", "", "a man"], ["le chat dort", "rien", "un homme"]),
    validation=ParallelText(["the man runs"], ["un homme"]),
    tests={"a/b": ParallelText(["cat"], ["chat"]), "empty": ParallelText([], [])},
)
OPTIONS = {"_target_": "WordTokenizer", "max_size": None}


def word() -> Tokenizer:
    return WordTokenizer(joint=False, lowercase=False, min_frequency=1, max_size=None)


def bpe() -> Tokenizer:
    return BpeTokenizer(joint=True, lowercase=False, vocab_size=300, min_frequency=1, dropout=0.0)


def never() -> Tokenizer:
    raise AssertionError("a tokenizer is created although the corpus is in the cache")


def texts(corpus: TokenizedCorpus) -> dict[str, TokenizedText]:
    return {"train": corpus.train, "validation": corpus.validation, **corpus.tests}


def assert_same(one: TokenizedCorpus, other: TokenizedCorpus) -> None:
    assert list(texts(one)) == list(texts(other))
    for name, text in texts(one).items():
        for side, field in product(("source", "target"), ("tokens", "offsets")):
            mine, theirs = (getattr(getattr(one, side), field) for one in (text, texts(other)[name]))
            assert mine.dtype == theirs.dtype
            assert torch.equal(mine, theirs), (name, side, field)
    assert one.unknown_rate == other.unknown_rate
    assert one.tokenizers.target.encode(["le chat"]) == other.tokenizers.target.encode(["le chat"])


def entry_of(cache: Path) -> Path:
    (entry,) = (path for path in (cache / "tokenized").iterdir() if path.suffix != ".lock")
    return entry


def test_tokens_are_flat_and_carry_sos_and_eos() -> None:
    corpus = tokenize_corpus(CORPUS, word, OPTIONS, None)
    train = corpus.train
    assert (train.source.tokens.dtype, train.source.offsets.dtype) == (torch.int32, torch.int64)
    assert len(train) == 3
    assert train.source.offsets.tolist() == [0, 5, 7, 11]
    assert train.source.lengths.tolist() == [5, 2, 4]
    assert train.target.lengths.tolist() == [5, 3, 4]
    assert train.source.tokens[5:7].tolist() == [SOS, EOS]
    (ids,) = corpus.tokenizers.target.encode(["le chat dort"])
    assert train.target.tokens[:5].tolist() == [SOS, *ids, EOS]
    assert list(corpus.tests) == ["a/b", "empty"]
    assert len(corpus.tests["empty"]) == 0
    assert not corpus.from_cache


def test_tokenizers_are_fitted_on_the_training_split_and_unknown_tokens_are_counted() -> None:
    corpus = tokenize_corpus(CORPUS, word, OPTIONS, None)
    assert corpus.validation.source.tokens.tolist()[3] == UNK
    assert corpus.unknown_rate == {
        "train/source": 0.0,
        "train/target": 0.0,
        "validation/source": pytest.approx(1 / 3),
        "validation/target": 0.0,
        "test/a/b/source": 0.0,
        "test/a/b/target": 0.0,
        "test/empty/source": 0.0,
        "test/empty/target": 0.0,
    }


def test_a_split_of_unknown_words_only_keeps_its_sentences() -> None:
    unknown = replace(CORPUS, validation=ParallelText(["dogs bark", "loudly"], ["chiens", "très fort"]))
    corpus = tokenize_corpus(unknown, word, OPTIONS, None)
    assert corpus.validation.source.lengths.tolist() == [4, 3]
    assert corpus.validation.target.lengths.tolist() == [3, 4]
    assert corpus.unknown_rate["validation/source"] == corpus.unknown_rate["validation/target"] == 1


def test_the_size_of_chunks_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tokenize_corpus(CORPUS, word, OPTIONS, None)
    for name, size in (("CHUNK", 2), ("CHUNK_CHARACTERS", 12)):
        monkeypatch.setattr(ragged, name, size)
        assert_same(tokenize_corpus(CORPUS, word, OPTIONS, None), whole)


def test_long_lines_are_encoded_in_smaller_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ragged, "CHUNK", 3)
    monkeypatch.setattr(ragged, "CHUNK_CHARACTERS", 6)
    sizes = list[int]()

    def encode(lines: Sequence[str]) -> list[list[int]]:
        sizes.append(len(lines))
        return [[len(line)] for line in lines]

    ids = ragged.Ragged.unframed(encode, ["a", "b", "c", "d", "eeeee", "ffffffff", "g"], "")
    assert sizes == [3, 2, 1, 1]
    assert ids.tokens.tolist() == [1, 1, 1, 1, 5, 8, 1]


def test_select() -> None:
    train = tokenize_corpus(CORPUS, word, OPTIONS, None).train
    chosen = train.select(torch.tensor([2, 0, 1, 2]))
    assert len(chosen) == 4
    for place, index in enumerate([2, 0, 1, 2]):
        for side in ("source", "target"):
            new, old = getattr(chosen, side), getattr(train, side)
            assert torch.equal(
                new.tokens[new.offsets[place] : new.offsets[place + 1]],
                old.tokens[old.offsets[index] : old.offsets[index + 1]],
            )
    assert chosen.source.tokens.dtype == torch.int32
    assert len(train.select(torch.tensor([], dtype=torch.int64))) == 0


@pytest.mark.parametrize("make", [word, bpe])
def test_the_second_call_reads_the_cache(make: Callable[[], Tokenizer], tmp_path: Path) -> None:
    first = tokenize_corpus(CORPUS, make, OPTIONS, tmp_path)
    second = tokenize_corpus(CORPUS, never, OPTIONS, tmp_path)
    assert (first.from_cache, second.from_cache) == (False, True)
    assert_same(second, first)
    assert entry_of(tmp_path).name == corpus_key(CORPUS, OPTIONS)


def with_train(source: list[str], target: list[str]) -> Corpus:
    return replace(CORPUS, train=ParallelText(source, target))


@pytest.mark.parametrize(
    ("corpus", "options"),
    [
        (CORPUS, {**OPTIONS, "max_size": 10}),
        (with_train(["the cat sleeps", "", "a man"], ["le chat dort", "rien", "un  homme"]), OPTIONS),
        (with_train(["the cat sleepsa", "", " man"], ["le chat dort", "rien", "un homme"]), OPTIONS),
        (with_train(["", "the cat sleeps", "a man"], ["le chat dort", "rien", "un homme"]), OPTIONS),
        (with_train(["le chat dort", "rien", "un homme"], ["the cat sleeps", "", "a man"]), OPTIONS),
        (replace(CORPUS, validation=ParallelText(["the man run"], ["un homme"])), OPTIONS),
        (replace(CORPUS, validation=ParallelText([], [])), OPTIONS),
        (replace(CORPUS, tests={**CORPUS.tests, "a/b": ParallelText(["cat"], ["chats"])}), OPTIONS),
        (replace(CORPUS, tests={"ab": CORPUS.tests["a/b"], "empty": CORPUS.tests["empty"]}), OPTIONS),
        (replace(CORPUS, tests={name: CORPUS.tests[name] for name in ("empty", "a/b")}), OPTIONS),
    ],
)
def test_other_text_or_options_have_another_key(corpus: Corpus, options: dict[str, object]) -> None:
    assert corpus_key(corpus, options) != corpus_key(CORPUS, OPTIONS)


def test_the_key_depends_on_the_format_and_not_on_the_order_of_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = corpus_key(CORPUS, OPTIONS)
    assert corpus_key(CORPUS, dict(reversed(OPTIONS.items()))) == key
    monkeypatch.setattr(token_cache, "FORMAT", token_cache.FORMAT + 1)
    assert corpus_key(CORPUS, OPTIONS) != key


def test_the_key_depends_on_spacy_only_for_its_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    spacy = {**OPTIONS, "_target_": "seq2seq_lab.data.tokenizers.SpacyTokenizer"}
    before = corpus_key(CORPUS, OPTIONS), corpus_key(CORPUS, spacy)
    version = token_cache._version
    monkeypatch.setattr(token_cache, "_version", lambda name: "0" if name == "spacy" else version(name))
    assert corpus_key(CORPUS, OPTIONS) == before[0]
    assert corpus_key(CORPUS, spacy) != before[1]


@pytest.mark.parametrize(
    ("line", "language", "lowercase", "differs"),
    [
        ("a small house, l'été", "en", True, False),
        ("हिन्दी", "hi", False, True),
        ("a\u2060b", "en", False, True),
        ("🇩🇪", "en", False, True),
        ("ΟΔΟΣ", "el", True, True),
        ("ΟΔΟΣ", "el", False, False),
        ("ev", "tr", True, True),
        ("a <unk> b", "en", False, True),
        ("a <UNK> b", "en", False, False),
        ("a <UNK> b", "en", True, True),
    ],
)
def test_only_texts_whose_tokens_have_changed_have_another_key_than_in_earlier_versions(
    line: str, language: str, lowercase: bool, differs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = replace(with_train([line], ["x"]), source_language=language)
    options = {**OPTIONS, "lowercase": lowercase}
    key = corpus_key(corpus, options)
    monkeypatch.setattr(token_cache, "changes_of", lambda *_: [])
    assert (corpus_key(corpus, options) != key) is differs


FILES = ["manifest.json", "6.offsets.npy", "tokenizer/source.json", "1.tokens.npy"]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("damage", [flip, truncate, Path.unlink])
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_entry_is_logged_and_written_again(
    file: str, damage: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = tokenize_corpus(CORPUS, word, OPTIONS, tmp_path)
    damage(entry_of(tmp_path) / file)
    with caplog.at_level(logging.WARNING):
        second = tokenize_corpus(CORPUS, word, OPTIONS, tmp_path)
    assert "damaged" in caplog.text
    assert not second.from_cache
    assert_same(second, first)
    assert tokenize_corpus(CORPUS, never, OPTIONS, tmp_path).from_cache
    assert entry_of(tmp_path).name == corpus_key(CORPUS, OPTIONS)


def test_an_entry_whose_vocabulary_is_too_large_to_be_read_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch:  # an earlier version wrote it
        patch.setattr(base, "MAX_VOCABULARY_BYTES", 0)
        patch.setattr(WordTokenizer, "serialized", lambda tokenizer: tokenizer._backend.to_str().encode())
        tokenize_corpus(CORPUS, word, OPTIONS, tmp_path)
        with caplog.at_level(logging.WARNING):
            assert not tokenize_corpus(CORPUS, word, OPTIONS, tmp_path).from_cache
    assert "source.json is larger than" in caplog.text
    assert tokenize_corpus(CORPUS, never, OPTIONS, tmp_path).from_cache


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), OSError("8 requested and 0 written")]
)
def test_a_full_disk_is_reported_and_leaves_no_entry(
    error: OSError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", fail)
        with pytest.raises(UserError, match=f"cache_dir={tmp_path} .*{error.args[-1]}"):
            tokenize_corpus(CORPUS, word, OPTIONS, tmp_path)
    assert [path.suffix for path in (tmp_path / "tokenized").iterdir()] == [".lock"]
    assert not tokenize_corpus(CORPUS, word, OPTIONS, tmp_path).from_cache


def test_the_files_of_a_killed_job_are_not_used(tmp_path: Path) -> None:
    first = tokenize_corpus(CORPUS, word, OPTIONS, tmp_path)
    entry = entry_of(tmp_path)
    entry.rename(entry.with_name("unfinished.x"))
    assert not tokenize_corpus(CORPUS, word, OPTIONS, tmp_path).from_cache
    (entry / "manifest.json").unlink()
    second = tokenize_corpus(CORPUS, word, OPTIONS, tmp_path)
    assert not second.from_cache
    assert_same(second, first)


def test_what_a_killed_job_has_left_is_removed_an_hour_later(tmp_path: Path) -> None:
    old, locked, new = (tmp_path / "tokenized" / f"unfinished.{name}" for name in ("old", "locked", "new"))
    for folder in (old, locked, new):
        folder.mkdir(parents=True)
        (folder / "0.tokens.npy").write_bytes(b"half")
    for folder in (old, locked):
        os.utime(folder, (0, 0))
    with lock_folder(locked):  # by a job that is still writing
        os.utime(locked, (0, 0))
        tokenize_corpus(CORPUS, word, OPTIONS, tmp_path)
    assert [folder.exists() for folder in (old, locked, new)] == [False, True, True]


def test_an_old_folder_of_another_user_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "tokenized" / "unfinished.old"
    old.mkdir(parents=True)
    os.utime(old, (0, 0))
    open_file = Path.open

    def refusing(path: Path, *arguments: Any, **named: Any) -> Any:
        if path.parent == old:
            raise PermissionError(errno.EACCES, "Permission denied")
        return open_file(path, *arguments, **named)

    monkeypatch.setattr(Path, "open", refusing)
    tokenize_corpus(CORPUS, word, OPTIONS, tmp_path)
    assert old.exists()


@pytest.fixture
def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that does not support locks."""

    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)


@pytest.mark.usefixtures("without_locks")
def test_without_locks_an_old_folder_may_be_in_use_and_stays(tmp_path: Path) -> None:
    old = tmp_path / "tokenized" / "unfinished.old"
    old.mkdir(parents=True)
    (old / ".lock").touch()
    os.utime(old, (0, 0))
    tokenize_corpus(CORPUS, word, OPTIONS, tmp_path)
    assert old.exists()


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", refused)
    with pytest.raises(UserError, match=f"cache_dir={tmp_path} .*Permission denied"):
        tokenize_corpus(CORPUS, never, OPTIONS, tmp_path)


@pytest.mark.usefixtures("without_locks")
def test_without_locks_the_second_of_two_writers_uses_the_files_of_the_first(tmp_path: Path) -> None:
    winners: list[TokenizedCorpus] = []

    def slow() -> Tokenizer:
        if not winners:
            winners.append(tokenize_corpus(CORPUS, word, OPTIONS, tmp_path))
        return word()

    loser = tokenize_corpus(CORPUS, slow, OPTIONS, tmp_path)
    assert (winners[0].from_cache, loser.from_cache) == (False, True)
    assert_same(loser, winners[0])
    assert json.loads((entry_of(tmp_path) / "manifest.json").read_text())


def _job(cache: Path, barrier: Barrier, results: "SimpleQueue[tuple[bool, list[int]]]") -> None:
    made = []

    def slow() -> Tokenizer:
        made.append(word())
        time.sleep(0.2)
        return made[-1]

    barrier.wait(60)
    corpus = tokenize_corpus(CORPUS, slow, OPTIONS, cache)
    results.put((bool(made), corpus.train.source.tokens.tolist()))


def test_one_of_two_processes_at_once_tokenizes_the_corpus(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(2)
    results: SimpleQueue[tuple[bool, list[int]]] = context.SimpleQueue()
    jobs = [context.Process(target=_job, args=(tmp_path, barrier, results)) for _ in range(2)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(60)
    assert [job.exitcode for job in jobs] == [0, 0]
    (one, ids), (other, same) = results.get(), results.get()
    assert one is not other
    assert ids == same
    assert tokenize_corpus(CORPUS, never, OPTIONS, tmp_path).from_cache
    assert entry_of(tmp_path).name == corpus_key(CORPUS, OPTIONS)


def test_a_process_that_waits_for_another_makes_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ranks of a run may wait, one for the lock and the others for this rank: the watch must not end them."""
    heart = heartbeat.Heartbeat()
    monkeypatch.setattr(build_lock, "heartbeat", heart)
    monkeypatch.setattr(build_lock, "BEAT_SECONDS", 0.01)
    heart.beat("reading the data")
    entry = tmp_path / "tokenized" / corpus_key(CORPUS, OPTIONS)
    entry.parent.mkdir()
    job = Thread(target=tokenize_corpus, args=(CORPUS, word, OPTIONS, tmp_path))
    with build_lock.build_lock(entry):
        job.start()
        _wait_until(lambda: heart.waits)
        assert heart.activity == "reading the data, waiting for another process"
        beats = heart.beats
        _wait_until(lambda: heart.beats > beats + 3)
        assert heart.waits
        assert not entry.exists()
    job.join(60)
    assert (heart.activity, heart.waits) == ("reading the data", False)
    assert entry.exists()


def _wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_lock_of_another_user_does_not_prevent_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_file = Path.open

    def refusing(path: Path, *arguments: Any, **named: Any) -> Any:
        if path.suffix == ".lock":
            raise PermissionError(errno.EACCES, "Permission denied")
        return open_file(path, *arguments, **named)

    monkeypatch.setattr(Path, "open", refusing)
    tokenize_corpus(CORPUS, word, OPTIONS, tmp_path)
    assert tokenize_corpus(CORPUS, never, OPTIONS, tmp_path).from_cache


class Stochastic(WordTokenizer):
    """Words, each doubled at random."""

    stochastic = True

    def sample(self, lines: Sequence[str], rng: np.random.Generator) -> list[list[int]]:
        return [[i for i in ids for _ in range(1 + rng.integers(2))] for ids in self.encode(lines)]


def training(make: Callable[[], Tokenizer], max_length: int, seed: int = 1) -> Any:
    corpus = tokenize_corpus(CORPUS, make, OPTIONS, None)
    return training_text(CORPUS.train, short_pairs(corpus.train, max_length), corpus.tokenizers, seed)


def stochastic() -> Tokenizer:
    return Stochastic(joint=False, lowercase=False, min_frequency=1, max_size=None)


def test_an_epoch_of_a_stochastic_tokenizer_is_a_function_of_seed_and_number() -> None:
    draw = training(stochastic, 9)
    epochs = [draw(number) for number in range(8)]
    assert len({tuple(epoch.source.tokens.tolist()) for epoch in epochs}) > 1
    again = training(stochastic, 9)(3)
    assert torch.equal(again.target.tokens, epochs[3].target.tokens)
    assert torch.equal(again.source.offsets, epochs[3].source.offsets)
    other = training(stochastic, 9, seed=2)
    assert any(not torch.equal(other(n).source.tokens, epochs[n].source.tokens) for n in range(8))


def test_long_pairs_are_left_out_of_every_epoch() -> None:
    draw = training(stochastic, 2)
    assert len(CORPUS.train) == 3
    for text in (training(word, 2), draw(0), draw(1)):
        assert len(text) == 2  # without "the cat sleeps"
        assert text.lengths[0] == 2  # the empty line: <sos> and <eos>
    for make in (word, stochastic):
        with pytest.raises(UserError, match=r"task\.max_length=0"):
            training(make, 0)


def test_the_ids_of_the_cache_are_not_copied_if_long_pairs_are_left_out(tmp_path: Path) -> None:
    tokenize_corpus(CORPUS, word, OPTIONS, tmp_path)
    corpus = tokenize_corpus(CORPUS, word, OPTIONS, tmp_path)
    text = short_pairs(corpus.train, 2)
    assert len(text) == 2
    assert text.source.tokens.data_ptr() == corpus.train.source.tokens.data_ptr()
    assert text.target.tokens.data_ptr() == corpus.train.target.tokens.data_ptr()


def test_the_languages_are_part_of_the_key() -> None:
    assert corpus_key(replace(CORPUS, target_language="de"), OPTIONS) != corpus_key(CORPUS, OPTIONS)
