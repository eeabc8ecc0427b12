"""Properties of readers, batching and configurations, for inputs that hypothesis draws, the same ones in each run."""

import gzip
import json
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seq2seq_lab.config.compose import compose_run
from seq2seq_lab.data.batching import deal, plan_epoch
from seq2seq_lab.data.parallel import Parallel
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.text import find_problem, new_counts, read_parallel
from seq2seq_lab.data.tokenized import TokenizedText
from seq2seq_lab.errors import UserError

every = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])

sentences = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
usable = sentences.filter(lambda text: not find_problem(text))
pairs = st.lists(st.tuples(usable, usable), min_size=1, max_size=8)
raw_lines = st.lists(st.binary(max_size=12) | sentences.map(str.encode), max_size=6).map(b"\n".join)


def composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def refusal(function: Callable[[], object]) -> str:
    """Return the message of the `UserError` that a function raises, or an empty string."""
    try:
        function()
    except UserError as error:
        return str(error)
    return ""


def parallel(train: Path, held_out: Path) -> Parallel:
    return Parallel(
        train=str(train),
        validation=str(held_out),
        test=str(held_out),
        format="auto",
        delimiter=None,
        encoding=None,
        columns=None,
        alignments=None,
        alignment_base=None,
        alignments_reversed=False,
        hub=None,
        hub_config=None,
        source="source",
        target="target",
        validation_share=0.1,
        test_share=0.1,
        on_bad_pair="error",
        on_duplicate="keep",
        on_leak="keep",
        max_tokens=None,
        limit=None,
    )


@every
@given(pairs, st.booleans(), st.booleans(), st.booleans())
def test_lines_that_are_written_are_read(
    written: list[tuple[str, str]], windows: bool, marked: bool, packed: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{side}{'.gz' if packed else ''}" for side in ("source", "target")]
        for path, lines in zip(paths, zip(*written, strict=True), strict=True):
            end = "\r\n" if windows else "\n"
            data = ("\ufeff" if marked else "").encode() + "".join(line + end for line in lines).encode()
            path.write_bytes(gzip.compress(data) if packed else data)
        counts = new_counts()
        found = list(read_parallel(paths[0], paths[1], "error", counts))
    # A mark at the start of a line that has none in front of it is removed as one of the file.
    first = [text.removeprefix("" if marked else "\ufeff") for text in written[0]]
    assert found == [tuple(map(composed, pair)) for pair in (first, *written[1:])]
    assert counts["carriage_returns"] == (2 * len(written) if windows else 0)


@every
@given(raw_lines, raw_lines)
def test_any_bytes_are_read_or_refused_with_their_line(source: bytes, target: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = Path(folder) / "source", Path(folder) / "target"
        for path, data in zip(paths, (source, target), strict=True):
            path.write_bytes(data)
        found: list[tuple[str, str]] = []
        problem = refusal(lambda: found.extend(read_parallel(*paths, "error", new_counts())))
    if problem:
        assert str(paths[0]) in problem or str(paths[1]) in problem
    elif not source.startswith((b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")):  # UTF-16 and UTF-32
        assert len(found) == source.count(b"\n") + bool(source.rpartition(b"\n")[2])


@every
@given(pairs.filter(lambda drawn: drawn[0] != ("source", "target")))
def test_pairs_that_are_written_as_json_lines_are_read(written: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        train, held_out = Path(folder) / "train.jsonl", Path(folder) / "test.tsv"
        rows = [json.dumps({"source": source, "target": target}) for source, target in written]
        train.write_text("\n".join(rows), "utf-8")
        held_out.write_text("v\tw\n", "utf-8")
        corpus = parallel(train, held_out).load()
    found = list(zip(corpus.train.source, corpus.train.target, strict=True))
    assert found == [tuple(map(composed, pair)) for pair in written]


@every
@given(st.sampled_from([".tsv", ".csv", ".jsonl"]), raw_lines)
def test_any_table_is_read_or_refused(suffix: str, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        train, held_out = Path(folder) / f"train{suffix}", Path(folder) / "test.tsv"
        train.write_bytes(data)
        held_out.write_text("v\tw\n", "utf-8")
        problem = refusal(parallel(train, held_out).load)
    assert not problem or "train" in problem


@every
@given(
    lengths=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), max_size=60),
    size=st.integers(1, 40),
    unit=st.sampled_from(["sentences", "tokens"]),
    ranks=st.integers(1, 5),
    micro_batches=st.integers(1, 4),
    epoch=st.integers(0, 3),
)
def test_an_epoch_has_every_example_once_on_any_number_of_ranks(
    lengths: list[tuple[int, int]], size: int, unit: str, ranks: int, micro_batches: int, epoch: int
) -> None:
    text = TokenizedText(
        Ragged.of([[5] * source for source, _ in lengths]), Ragged.of([[5] * target for _, target in lengths])
    )
    plan = plan_epoch(text, size, unit, seed=1, epoch=epoch)  # type: ignore[arg-type]
    dealt: Counter[int] = Counter()
    for step in plan:
        chosen = np.concatenate(step)
        units = len(chosen) if unit == "sentences" else int(text.units[torch.from_numpy(chosen)].sum())
        assert units <= size or len(chosen) == 1
        for rank in range(ranks):
            for batches in deal(step, rank, ranks, micro_batches).values():
                dealt.update(int(i) for batch in batches for i in batch)
                assert all(len(set(text.lengths[torch.from_numpy(batch)].tolist())) == 1 for batch in batches)
    assert dealt == Counter(range(len(lengths)))
    again = plan_epoch(text, size, unit, seed=1, epoch=epoch)  # type: ignore[arg-type]
    assert [[batch.tolist() for batch in step] for step in again] == [
        [batch.tolist() for batch in step] for step in plan
    ]


values = st.sampled_from(
    ["0", "-1", "1", "0.5", "1e9", "null", "true", "auto", "x", "[1,2]", "'a b'", "{a: 1}", "nan"]
)
keys = st.sampled_from(
    [
        *(
            "task.batch_size",
            "trainer.max_epochs",
            "trainer.threads",
            "trainer.precision",
            "trainer.patience",
        ),
        *(
            "model.dropout",
            "model.hidden_size",
            "model.bridge",
            "seed",
            "dataset.seed",
            "study.name",
            "init_from",
        ),
        *(
            "attention",
            "encoder",
            "task",
            "logger",
            "search.size",
            "embedding.source.path",
            "optimizer.lr",
            "nothing",
        ),
    ]
)


@settings(every, max_examples=20)
@given(st.lists(st.tuples(keys, values), min_size=1, max_size=3, unique_by=lambda pair: pair[0]))
def test_any_overrides_compose_or_are_refused_with_a_key(drawn: list[tuple[str, str]]) -> None:
    overrides = [f"{key}={value}" for key, value in drawn]
    problem = refusal(lambda: compose_run(overrides))
    assert not problem or any(key.rpartition(".")[2] in problem for key, _ in drawn), (overrides, problem)
