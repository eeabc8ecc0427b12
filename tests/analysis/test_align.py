"""Word alignments of given pairs: the attention's rows, heads and directions, other methods, and the program."""

import re
from pathlib import Path

import numpy as np
import pytest
from demo_models import SOURCES, TARGETS, demo, demo_with

import seq2seq_lab
from seq2seq_lab.analysis.align import Extraction, alignments, combined
from seq2seq_lab.analysis.symmetrization import SYMMETRIZATIONS
from seq2seq_lab.analyze import __main__ as analyze
from seq2seq_lab.data.alignment_files import pharaoh
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.alignment import read

SMALL = "dataset.train=40 dataset.validation=8 dataset.test=8 model.num_layers=1"
TINY = ("trainer.fast_dev_run=true", "logger=none")
KING = "0-0 1-1 2-2"


def test_the_attention_of_the_demo_aligns() -> None:
    run = demo()
    found = alignments(run.model, run.forced(SOURCES, TARGETS), Extraction())
    assert [pharaoh(links) for links in found[:2]] == [KING, "0-0 2-1 1-2 3-3 4-4 5-5"]
    for method in ("occlusion", "value_zeroing"):
        found = alignments(run.model, run.forced(SOURCES[:1], TARGETS[:1]), Extraction(method=method))
        assert pharaoh(found[0]) == KING
    assert alignments(run.model, run.forced([""], [""]), Extraction()) == [set()]


@pytest.mark.parametrize(
    "line", [["aer", "search=beam"], ["attribute", "search.size=2"], ["counterfactuals", "metric=rouge"]]
)
def test_settings_without_effect_are_refused(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    question, setting = line
    with pytest.raises(SystemExit):
        analyze.main([question, "demo", setting])
    assert f"{setting} has no effect on this call of analyze {question}" in capsys.readouterr().err


def test_a_reading_is_a_row_of_the_scored_attention() -> None:
    run = demo()
    (scored,) = run.score(SOURCES[:1], TARGETS[:1])
    forced = run.forced(SOURCES[:1], TARGETS[:1])
    (links,) = alignments(run.model, forced, Extraction(reading="read"))
    rows = read(scored.attention)[:3, 1:-1]
    words = np.stack([rows[:, 0], rows[:, 1], rows[:, 2] + rows[:, 3]], 1)  # "sleeps" and "."
    last = (rows[2] + read(scored.attention)[3, 1:-1]) / 2  # of "dort" and "."
    words[2] = [last[0], last[1], last[2] + last[3]]
    assert links == {(int(row.argmax()), target) for target, row in enumerate(words)}


def test_heads_thresholds_and_the_null_rule() -> None:
    run = demo_with("transformer", "scaled_dot")
    forced = run.forced(SOURCES, TARGETS)
    plain = alignments(run.model, forced, Extraction())
    heads = [alignments(run.model, forced, Extraction(layer=0, head=head)) for head in (0, 1)]
    assert heads[0] != heads[1]
    assert all(len(links) == len(target.split()) for links, target in zip(plain, TARGETS, strict=True))
    low, high = (alignments(run.model, forced, Extraction(threshold=p)) for p in (0.05, 0.6))
    assert sum(map(len, low)) > sum(map(len, high))
    assert all(fewer <= more for fewer, more in zip(high, low, strict=True))
    null = alignments(run.model, forced, Extraction(null="allow"))
    assert all(fewer <= more for fewer, more in zip(null, plain, strict=True))
    scores = [alignments(demo().model, forced, Extraction("occlusion", threshold=p)) for p in (0.5, 2.0)]
    assert sum(map(len, scores[0])) > sum(map(len, scores[1])) > 0
    for method, limit in (("attention", " and at most 1"), ("occlusion", "")):
        threshold = 2.0 if limit else 0.0
        with pytest.raises(UserError, match=rf"^threshold={threshold}: give a number above 0{limit}\.$"):
            alignments(run.model, run.forced([], []), Extraction(method, threshold=threshold))
    with pytest.raises(UserError, match=r"--layer=9 is not allowed"):
        alignments(run.model, forced, Extraction(layer=9, head=0))
    with pytest.raises(UserError, match=r"--head=0 is not allowed.* with --layer"):
        alignments(run.model, forced, Extraction(head=0))
    last = run.model.decoder.heads[0] - 1
    assert alignments(run.model, forced, Extraction(layer=last)) == plain  # the mean over its heads
    with pytest.raises(UserError, match=r"has no heads"):
        alignments(demo().model, demo().forced(SOURCES, TARGETS), Extraction(layer=0, head=0))
    with pytest.raises(UserError, match=r"--reading=read"):
        alignments(
            demo().model, demo().forced(SOURCES, TARGETS), Extraction(method="occlusion", reading="read")
        )
    plain_run = demo_with("plain", "none")
    with pytest.raises(UserError, match=r"no attention to words"):
        alignments(plain_run.model, plain_run.forced(SOURCES, TARGETS), Extraction())


def test_the_reverse_direction_is_turned() -> None:
    forward, backward = [{(0, 0), (1, 1)}], [{(0, 0), (2, 1)}]
    assert combined(forward, backward, SYMMETRIZATIONS["union"]) == [{(0, 0), (1, 1), (1, 2)}]
    assert combined(forward, backward, SYMMETRIZATIONS["intersect"]) == [{(0, 0)}]


def test_the_program_writes_pharaoh(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / "en", tmp_path / "fr"]
    for path, lines in zip(paths, (SOURCES, TARGETS), strict=True):
        path.write_text("\n".join(lines) + "\n", "utf-8")
    analyze.main(["align", "demo", *map(str, paths)])
    lines = capsys.readouterr().out.splitlines()
    run = demo()
    assert lines == [
        pharaoh(one) for one in alignments(run.model, run.forced(SOURCES, TARGETS), Extraction())
    ]
    assert lines == [one.alignment for one in run.score(SOURCES, TARGETS)]
    # As a stand-in for a run in the other direction; its vocabulary lacks the words.
    analyze.main(["align", "demo", *map(str, paths), "--reverse", "demo", "--combine", "intersect"])
    both = capsys.readouterr().out.splitlines()
    assert all({*one.split()} <= {*other.split()} for one, other in zip(both, lines, strict=True))
    with pytest.raises(SystemExit):
        analyze.main(["align", "demo", *map(str, paths), "--combine", "union"])
    assert "--combine=union needs --reverse" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "message"),
    [("--head", "--head=0 .*the model has no heads"), ("--layer", "--layer=0 .*the model has no heads")],
)
def test_a_model_without_heads_is_named_before_the_files_are_read(
    option: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        analyze.main(["align", "demo", "no_file", "no_file", option, "0"])
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("question", "task", "message"),
    [
        ("align", f"language_model {SMALL}", "align needs a run with text as its source"),
        ("score", "span", "SpanTask read no given outputs"),
    ],
)
def test_a_run_of_another_task_is_named_before_the_files_are_read(
    question: str, task: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seq2seq_lab.train([*f"task={task}".split(), *TINY], tmp_path / "run")
    with pytest.raises(SystemExit):
        analyze.main([question, str(tmp_path / "run"), "no_file", "no_file"])
    assert message in capsys.readouterr().err
