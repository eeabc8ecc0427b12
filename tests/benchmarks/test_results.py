"""docs/results.jsonl and what is generated from it: they agree; what is taken from a run or an evaluation, and what not."""

import functools
import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import seq2seq_lab
from benchmarks import results
from benchmarks.page import Part
from benchmarks.results import FIRST, LAST, Measured
from seq2seq_lab import evaluate
from seq2seq_lab.errors import UserError

PRESETS = sorted(results.EXPERIMENTS.glob("*.yaml"))
composed = functools.cache(results.composed)  # several lines have the same command
LINES = results.read_results(results.RESULTS)
CURRENT = results.current(LINES)
OLD_COMMITS = {  # that scored `<unk>` as three tokens
    line.commit for line in LINES if line.unknown
}
SETTINGS = (
    "trainer.max_epochs=1 trainer.samples=0 model.num_layers=1 model.embedding_size=8 model.hidden_size=8 "
    "model.encoder_hidden_size=4 dataset.validation_share=0.1 dataset.test_share=0.1"
)
COMMAND = f"python -m seq2seq_lab experiment=char_tatoeba dataset.path=FILE {SETTINGS}"
MACHINE = "2 cores of a test"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
ONE = Measured(
    experiment="preset",
    command="python -m seq2seq_lab experiment=preset dataset.path=DIR",
    commit=COMMIT,
    seed=1,
    settings={"seed": 1},
    machine=MACHINE,
    parameters=1234567,
    trainable_parameters=1234567,
    scores={"val/bleu": 31.0, "test/other/bleu": 20.0, "test/bleu": 30.0, "test/aer": 0.25},
    signatures={"val/bleu": "nrefs:1", "test/bleu": "nrefs:1", "test/chrf": "nc:6"},
    updates=3400,
    train_seconds=960.0,
    validation_seconds=90.0,
    target_tokens_per_second=7030.4,
    peak_memory_mib=2857,
)
HEADER = """\
#   python -m seq2seq_lab experiment=preset dataset.path=DIR
#
# Measured once, seed 1, on 2 cores of a test:
#   test            sacreBLEU 30.00, AER 0.250
#   test/other      sacreBLEU 20.00
#   validation      sacreBLEU 31.00
#   signatures      nrefs:1
#                   nc:6
#   parameters      1,234,567
#   updates         3,400
#   time            16.0 minutes of training, 1.5 of validation, 7,030 target tokens a second
#   peak memory     2.79 GiB
#   commit          0123456"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a preset that has ended, made small; copy it before changing it."""
    folder = tmp_path_factory.mktemp("finished")
    pairs = [f"It is {n}.\tC'est le {n} !\n" for n in range(200)]
    (folder / "pairs.txt").write_text("".join(pairs), "utf-8")
    own = f"dataset.path={folder}/pairs.txt cache_dir={folder}/cache logger=none trainer.device=auto"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seq2seq_lab.training.provenance.git_commit", lambda: COMMIT)
        patch.setattr("seq2seq_lab.training.provenance.git_is_dirty", lambda: False)
        seq2seq_lab.train(["experiment=char_tatoeba", *SETTINGS.split(), *own.split()], folder / "run")
    return folder / "run"


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def change(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), "utf-8")


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_header_of_a_preset_says_what_the_file_says(path: Path) -> None:
    text = path.read_text("utf-8")
    assert results.with_header(text, path.stem, LINES) == text, "run: python -m benchmarks.results headers"


@pytest.mark.parametrize(
    "part", results.PARTS, ids=lambda part: part.first.split(":")[0].removeprefix("<!-- ")
)
def test_a_generated_table_says_what_the_file_says(part: Part) -> None:
    text = part.page.read_text("utf-8")
    lines = results.PARTS[part](LINES)
    assert part.replaced(text, lines) == text, "run: python -m benchmarks.results headers"
    assert lines[1].startswith("|---"), lines


def test_the_page_has_a_row_for_every_preset() -> None:
    rows = [row for row in results.overview(LINES) if row.startswith("| `")]
    assert {row.split("`")[1] for row in rows} == {path.stem for path in PRESETS}


def test_the_walks_are_not_empty() -> None:
    assert {"multi30k_de_en", "char_tatoeba"} <= {path.stem for path in PRESETS}
    assert {"multi30k_de_en", "char_tatoeba"} <= {line.experiment for line in CURRENT}
    assert any(line.evaluation for line in LINES)
    assert any(line.superseded for line in LINES)


@pytest.mark.parametrize("number", range(len(LINES)))
def test_command_of_a_line_gives_its_preset(number: int) -> None:
    line = LINES[number]
    for command in (line.command, *line.others):
        config, choices = composed(command)
        assert (choices["experiment"], config["seed"]) == (str(line.experiment), line.seed)
        assert not any(results.OWN_PATH.search(word) for word in shlex.split(command))
    assert line.scores
    assert set(line.signatures) <= set(line.scores)
    # The grammar's vocabulary is closed: every word of its test sets occurs in training.
    words = config["tokenizer"]["_target_"].endswith(("WordTokenizer", "SpacyTokenizer"))
    can_be_unknown = words and choices["dataset"] != "grammar"
    assert line.unknown in (("three tokens", None) if can_be_unknown else (None,))
    assert line.unknown or not can_be_unknown or line.commit not in OLD_COMMITS


@pytest.mark.parametrize("line", CURRENT, ids=lambda line: f"{line.experiment}-{line.seed}")
def test_a_preset_is_still_what_was_measured(line: Measured) -> None:
    """Who changes a preset measures it anew, or takes its line out."""
    assert len(line.settings) > 50 or line.note is not None
    results.check_command(line.command, str(line.experiment), line.settings)


def test_lines_are_such_as_add_writes() -> None:
    rebuilt: list[Measured] = []
    for line in LINES:
        rebuilt = results.with_line(rebuilt, line)
    assert rebuilt == LINES
    # Every figure was read from a run folder, or says that it was not.
    assert all(line.settings or line.note for line in LINES if not line.evaluation)


def test_header_shows_one_run() -> None:
    assert results.header([ONE], "") == HEADER.split("\n")


def test_header_leaves_out_what_is_not_known() -> None:
    bare = replace(ONE, parameters=None, updates=None, train_seconds=None, validation_seconds=None)
    bare = replace(bare, target_tokens_per_second=None, peak_memory_mib=None, signatures={})
    assert [line.split()[1] for line in results.header([bare], "")[3:]] == [
        *("test", "test/other", "validation", "commit")
    ]


def test_header_says_how_many_parameters_are_trained_where_some_are_not() -> None:
    text = "\n".join(results.header([replace(ONE, trainable_parameters=34567)], ""))
    assert "#   parameters      1,234,567, 34,567 of them trained\n" in text


def test_header_of_several_seeds_has_mean_and_deviation() -> None:
    runs = [
        replace(
            ONE, seed=seed, scores={"test/bleu": bleu}, peak_memory_mib=1024 * seed, train_seconds=60.0 * seed
        )
        for seed, bleu in ((1, 30.0), (2, 31.0), (3, 32.0))
    ]
    text = "\n".join(results.header([*runs, replace(ONE, seed=4, machine="an H200")], ""))
    assert "# Measured with seeds 1, 2, 3 (n=3, mean ± standard deviation), on 2 cores of a test:" in text
    assert "#   test            sacreBLEU 31.00 ± 1.00\n" in text
    assert "2.0 minutes of training" in text
    assert "3.00 GiB" in text
    # Times and scores of another machine stand for themselves.
    assert "# Measured once, seed 4, on an H200:\n#   test            sacreBLEU 30.00, AER" in text


def test_long_lines_are_wrapped_in_the_comment() -> None:
    lines = results.header([replace(ONE, machine="many cores " * 30)], "")
    assert all(line.startswith("#") and len(line) <= results.WIDTH for line in lines)


def test_header_is_put_below_the_description_and_replaced_there() -> None:
    text = "# @package _global_\n# By hand.\ndefaults:\n  - override /model: attn  # not this\n"
    new = f"# @package _global_\n# By hand.\n#\n{FIRST}\n#   %s\n#\n# Not yet measured.\n{LAST}\ndefaults:\n"
    once = results.with_header(text, "preset", [])
    assert once.startswith(new % "python -m seq2seq_lab experiment=preset")
    assert once.endswith("  - override /model: attn  # not this\n")
    assert results.with_header(once, "preset", []) == once
    measured = results.with_header(once, "preset", [ONE, replace(ONE, experiment="another")])
    assert f"# By hand.\n#\n{FIRST}\n{HEADER}\n{LAST}\ndefaults:\n" in measured
    # Without a line it keeps the command that it had.
    assert results.with_header(measured, "preset", []).startswith(new % ONE.command)
    with pytest.raises(UserError, match=r"no line .*end of what is measured"):
        results.with_header(once.replace(LAST, "#"), "preset", [])


def test_lines_are_sorted_and_replaced_by_experiment_and_seed(tmp_path: Path) -> None:
    second, other = replace(ONE, seed=2, command=f"{ONE.command} seed=2"), replace(ONE, experiment="a")
    lines: list[Measured] = []
    for line in (second, ONE, other, replace(ONE, commit="new")):
        lines = results.with_line(lines, line)
    assert lines == [other, replace(ONE, commit="new"), replace(ONE, superseded=True), second]
    results.write_results(tmp_path / "results.jsonl", lines)
    assert results.read_results(tmp_path / "results.jsonl") == lines
    with pytest.raises(UserError, match=r"seed 1 of preset was 'python.*a preset of its own"):
        results.with_line(lines, replace(second, command=f"{second.command} model.dropout=0.5"))


def test_a_run_is_read(run: Path) -> None:
    line = results.measured(run, COMMAND, MACHINE, None)
    result = json.loads((run / "result.json").read_text("utf-8"))
    assert (line.experiment, line.seed, line.commit, line.machine) == ("char_tatoeba", 1, COMMIT, MACHINE)
    assert line.scores["test/bleu"] == pytest.approx(result["test/bleu"], abs=1e-4)
    assert {"val/chrf", "test/bleu_lowercased_tokenised", "test/perplexity_free_running"} <= set(line.scores)
    assert not [name for name in line.scores if "seconds" in name or "signature" in name]
    assert line.signatures["test/bleu"] == result["test/bleu_signature"]
    assert set(line.signatures) < set(line.scores)
    assert (line.parameters, line.updates) == (result["num_parameters"], result["updates"])
    assert line.trainable_parameters == line.parameters
    assert (line.train_seconds, line.peak_memory_mib) == (result["train/seconds"], result["peak_memory_mib"])
    assert line.validation_seconds == result["val/seconds"]


def test_runs_that_say_nothing_are_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no run has finished there"):
        results.measured(tmp_path / "empty", COMMAND, MACHINE, None)
    config = run / "config.yaml"
    config.write_text(config.read_text("utf-8").replace("fast_dev_run: false", "fast_dev_run: true"), "utf-8")
    with pytest.raises(UserError, match="fast_dev_run=true measures nothing"):
        results.measured(run, COMMAND, MACHINE, None)
    change(run / "run.json", evaluation={"run": "outputs/run"})
    with pytest.raises(UserError, match="Give its command with --evaluation"):
        results.measured(run, COMMAND, MACHINE, None)
    change(run / "result.json", status="interrupted")
    with pytest.raises(UserError, match="no run has finished there"):
        results.measured(run, COMMAND, MACHINE, None)


def test_a_run_of_an_unknown_preset_is_refused(run: Path) -> None:
    change(run / "run.json", choices={"experiment": "mine"})
    with pytest.raises(UserError, match=r"experiment=mine is no preset\. Allowed: .*char_tatoeba"):
        results.measured(run, COMMAND, MACHINE, None)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("seq2seq-lab experiment=char_tatoeba", "begins with `python -m seq2seq_lab`"),
        ("python -m seq2seq_lab", "the run had experiment=char_tatoeba"),
        (COMMAND.replace("FILE", "/home/me/pairs.txt"), "path=/home/me/pairs.txt is a path of this machine"),
        (COMMAND.replace("hidden_size=8", "hidden_size=16"), "model.hidden_size=16, and the run had 8"),
        (f"{COMMAND} seed=2", "gives seed=2, and the run had 1"),
        (f"{COMMAND} attention=dot", r"attention\._target_=.*Dot.*, and the run had .*ScaledDot"),
        (f"{COMMAND} trainer.bacth_size=3", "trainer.bacth_size"),
    ],
)
def test_a_command_that_does_not_give_the_run_is_refused(run: Path, command: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        results.measured(run, command, MACHINE, None)


def test_settings_that_came_after_the_run_do_not_matter(run: Path) -> None:
    config = run / "config.yaml"
    text = re.sub(r"^  patience: .*\n", "", config.read_text("utf-8"), flags=re.MULTILINE)
    assert text != config.read_text("utf-8")
    config.write_text(text, "utf-8")
    assert results.measured(run, COMMAND, MACHINE, None).seed == 1


def test_the_commit_is_the_runs_or_is_said(tmp_path: Path) -> None:
    clean, dirty, none = (
        {"commit": commit, "dirty": changed}
        for commit, changed in ((COMMIT, False), (COMMIT, True), (None, None))
    )
    assert results.commit_of(tmp_path, clean, None) == COMMIT
    assert results.commit_of(tmp_path, clean, COMMIT[:7]) == COMMIT
    assert results.commit_of(tmp_path, dirty, "abcdef0") == "abcdef0"
    assert results.commit_of(tmp_path, {}, "abcdef0") == "abcdef0"
    with pytest.raises(UserError, match=r"--commit=abcdef0: .* was run at 0123456"):
        results.commit_of(tmp_path, clean, "abcdef0")
    with pytest.raises(UserError, match=r"was run with changes to 0123456.*--commit=HASH"):
        results.commit_of(tmp_path, dirty, None)
    with pytest.raises(UserError, match="names no commit"):
        results.commit_of(tmp_path, none, None)
    with pytest.raises(UserError, match="7 to 40 hexadecimal digits"):
        results.commit_of(tmp_path, none, "main")


def test_the_tool_adds_writes_headers_and_checks(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, presets = tmp_path / "results.jsonl", tmp_path / "experiment"
    file.write_text("", "utf-8")
    presets.mkdir()
    (presets / "char_tatoeba.yaml").write_text("# By hand.\ndefaults: []\n", "utf-8")
    monkeypatch.setattr(results, "RESULTS", file)
    monkeypatch.setattr(results, "EXPERIMENTS", presets)
    part = results.part(tmp_path / "results.md", "presets")
    monkeypatch.setattr(results, "PARTS", {part: results.overview})
    part.page.write_text(f"{part.first}\n{part.last}\n", "utf-8")
    results.main(["add", str(run), "--command", COMMAND, "--machine", MACHINE])
    assert [line.seed for line in results.read_results(file)] == [1]
    with pytest.raises(SystemExit, match=r"^error: char_tatoeba\.yaml, results\.md: not what"):
        results.main(["check"])
    results.main(["headers"])
    results.main(["check"])
    assert "| `char_tatoeba` | " in part.page.read_text("utf-8")
    assert f"on {MACHINE}:" in (presets / "char_tatoeba.yaml").read_text("utf-8")
    assert (
        "Now: python -m benchmarks.results headers\nchar_tatoeba.yaml\nresults.md\n"
        in capsys.readouterr().out
    )


def test_a_score_with_unknown_words_is_marked_and_explained() -> None:
    marked = replace(ONE, experiment="words", unknown="three tokens")
    page = results.overview([ONE, marked])
    assert "| `preset` | 1 | 30.00 |" in page[2]
    assert "| `words` | 1 | 30.00 ‡ |" in page[3]
    assert page[5].startswith("‡ Scored with `<unk>` as three tokens")
    assert "‡" not in "".join(results.overview([ONE]))
    assert "scores          scored with `<unk>` as three tokens" in "\n".join(results.header([marked], ""))


def test_a_superseded_line_is_shown_among_the_earlier_runs_alone() -> None:
    old = replace(
        ONE, superseded=True, note="twice the dropout", scores={"val/bleu": 21.5, "test/bleu": 20.5}
    )
    assert (
        "| `experiment=preset` | greedy | twice the dropout | 21.50 | – | 20.50 | – | 0123456 |"
        in results.earlier([ONE, old])
    )
    assert len(results.earlier([ONE])) == 2  # the head of the table
    assert "20.50" not in "".join(
        [*results.overview([ONE, old]), *results.header(results.current([ONE, old]), "")]
    )


def evaluation_of(run: Path, command: str) -> Path:
    evaluate.main([str(run), *command.split()])
    (folder,) = (run / "evaluations").iterdir()
    return folder


def test_an_evaluation_is_added_and_shown(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("seq2seq_lab.training.provenance.git_commit", lambda: "f" * 40)
    monkeypatch.setattr("seq2seq_lab.training.provenance.git_is_dirty", lambda: False)
    folder = evaluation_of(run, "search=beam search.size=2 --device cpu")
    file = tmp_path / "results.jsonl"
    results.write_results(file, [ONE])
    monkeypatch.setattr(results, "RESULTS", file)
    add = ["add", str(folder), "--command", COMMAND, "--machine", MACHINE, "--evaluation"]
    results.main([*add, "python -m seq2seq_lab.evaluate RUN search=beam search.size=2"])
    (line,) = (line for line in results.read_results(file) if line.evaluation)
    result = json.loads((folder / "result.json").read_text("utf-8"))
    assert line.scores["test/bleu"] == pytest.approx(result["test/bleu"], abs=1e-4)
    assert (line.commit, line.seed, line.experiment) == ("f" * 40, 1, "char_tatoeba")
    assert line.train_seconds is None
    shown = "\n".join(results.evaluations([ONE, line]))
    half = result["test/bleu_confidence"]
    bleu = f"{result['test/bleu']:.2f} ± {half:.2f}"
    assert f" | 1 | `search=beam search.size=2` | {bleu} | " in shown
    assert "`char_tatoeba`" not in "".join(results.overview([ONE, line])), (
        "an evaluation is no run of the preset"
    )
    for evaluation, message in (
        ("python -m seq2seq_lab.evaluate RUN search=beam search.size=3", "gives search="),
        ("python -m seq2seq_lab.evaluate RUN --with RUN search=beam search.size=2", "has 1 times --with"),
        ("seq2seq-lab-evaluate RUN", "does not begin with"),
    ):
        with pytest.raises(SystemExit, match=message):
            results.main([*add, evaluation])
    with pytest.raises(SystemExit, match="no evaluation was written there"):
        results.main(["add", str(run), *add[2:], "python -m seq2seq_lab.evaluate RUN"])
    capsys.readouterr()


def test_copied_figures_of_an_evaluation_have_a_note() -> None:
    copied = replace(ONE, evaluation="python -m seq2seq_lab.evaluate RUN search=beam", note="Copied by hand.")
    lines = results.evaluations([copied, replace(copied, seed=2, note=None)])
    assert "| 0123456 ¹ |" in lines[2]
    assert "| 0123456 |" in lines[3]
    assert "¹ Copied by hand." in lines


def test_a_run_of_no_preset_takes_the_place_of_one_with_another_logger() -> None:
    old = replace(ONE, experiment=None, command="python -m seq2seq_lab model=vanilla logger=none")
    new = replace(old, command="python -m seq2seq_lab model=vanilla", commit="new")
    assert results.current(results.with_line([old], new)) == [new]


def test_the_two_runs_of_the_readme_have_the_same_groups_of_sentences() -> None:
    attn, vanilla = (runs[0] for runs in results.main_runs(LINES).values())
    name = "test/accuracy_by_phenomenon"
    renamed = [vanilla.groups[name][0] | {"phenomenon": "another"}, *vanilla.groups[name][1:]]
    with pytest.raises(UserError, match="scored over different groups of sentences"):
        results.grammar([attn, replace(vanilla, groups=vanilla.groups | {name: renamed})])


def test_the_two_runs_of_the_readme_are_asked_for_by_command() -> None:
    with pytest.raises(
        UserError, match=r"no run of `model=vanilla`\. Run python -m seq2seq_lab model=vanilla and add"
    ):
        results.readme([line for line in LINES if "model=vanilla" not in line.command])
