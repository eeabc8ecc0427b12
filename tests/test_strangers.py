"""The run of someone else is opened without harm, and one malformed run does not stop a comparison."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import command_line
import pytest
from malformed_runs import ESCAPE, MALFORMED, write_malformed
from omegaconf import OmegaConf
from programs import compare, runs
from rewriting import rewrite

from seq2seq_lab import api, evaluate, predict, word_vectors
from seq2seq_lab.analyze import __main__ as analyze
from seq2seq_lab.config import compose, foreign, job_hash
from seq2seq_lab.config.compose import compose_opened, compose_resumed, compose_run
from seq2seq_lab.config.run_folder import cover
from seq2seq_lab.errors import UserError, print_visible, visible
from seq2seq_lab.files import read_json_object, sha256
from seq2seq_lab.launching import reproduction
from seq2seq_lab.lesson import __main__ as lesson
from seq2seq_lab.reporting.runs import find_runs
from seq2seq_lab.training import checkpoint

SETTINGS = (
    *("model.embedding_size=8", "model.hidden_size=8", "model.encoder_hidden_size=4", "logger=none"),
    *("trainer.max_epochs=1", "task.batch_size=16", "task.samples=1"),
)
PAIRS = "".join(f"a small word{n}\tun petit mot{n}\n" for n in range(30))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, whose training files are outside of it."""
    folder = tmp_path_factory.mktemp("run")
    for name in ("train", "validation", "test"):
        (folder / f"{name}.tsv").write_text(PAIRS)
    files = [f"dataset.{name}={folder / name}.tsv" for name in ("train", "validation", "test")]
    assert command_line.run("dataset=parallel", *files, *SETTINGS, f"hydra.run.dir={folder / 'run'}") == 0
    return folder / "run"


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: Path) -> Path:
    """A copy of the run on the machine of someone else, with another list of runs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Path(shutil.copytree(run, tmp_path / "stranger"))


def replace_in_config(folder: Path, old: str, new: str) -> None:
    text = (folder / "config.yaml").read_text("utf-8")
    assert old in text
    rewrite(folder / "config.yaml", text.replace(old, new, 1))


def evaluate_run(*arguments: str) -> None:
    evaluate.evaluate(evaluate.parser().parse_intermixed_args(arguments))


def test_malformed_runs_are_left_out_with_a_reason_and_the_others_are_shown(
    stranger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = tmp_path / "tree"
    write_malformed(stranger, tree)
    found, skipped = find_runs([tree], for_page=True)
    assert sorted(one.folder.name for one in found) == ["escapes", "good"]
    for name, (_, reason) in MALFORMED.items():
        (line,) = [
            line
            for line in skipped
            if line.startswith((f"{tree / name}:", f"{tree / name}/", f"{tree / name} "))
        ]
        assert reason in line, name
    some = (str(tree / name) for name in ("good", "escapes", "deep run", "pickled array"))
    compare.main([*some, "--html", str(tmp_path / "page.html")])
    runs.main([str(tree)])
    printed = "".join(capsys.readouterr())
    assert (tmp_path / "page.html").is_file()
    assert "BLEU\\x1b]0;title\\x07" in printed
    assert not set(ESCAPE) & set("\x1b\x07\x9b\u202e") & set(printed)
    assert not (tree / "canary").exists()


def test_folders_that_cannot_be_searched_are_skipped(stranger: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    shutil.copytree(stranger, tree / "good")
    (tree / "good" / "all").symlink_to(tree)
    deep = tree / "deep"
    for _ in range(60):
        deep /= "d"
    deep.mkdir(parents=True)
    foreign.remember(tree / "good")
    assert [one.folder for one in find_runs([tree])[0]] == [tree / "good"]


def test_no_resolver_of_a_recorded_configuration_is_called(
    stranger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_USER", "secret")
    replace_in_config(stranger, "source: source", "source: ${oc.env:SECRET_OF_THE_USER}")
    for call in (
        lambda: evaluate_run(str(stranger)),
        lambda: api.load(stranger),
        lambda: compose_resumed(stranger, []),
        lambda: command_line.check(f"init_from={stranger}"),
        lambda: reproduction.reproduce(stranger),
    ):
        with pytest.raises(UserError, match=r"oc\.env"):
            call()
    assert not (stranger / "evaluations").exists()


def test_files_that_a_stranger_names_are_read_only_if_the_command_names_them(
    stranger: Path, tmp_path: Path
) -> None:
    private = tmp_path / "private.tsv"
    private.write_text(PAIRS)
    text = (stranger / "config.yaml").read_text("utf-8")
    test = next(line for line in text.splitlines() if line.startswith("  test: "))
    replace_in_config(stranger, test, f"  test: {private}")
    with pytest.raises(UserError, match=r"dataset\.test"):
        evaluate_run(str(stranger))
    with pytest.raises(UserError, match=r"dataset\.train=… dataset\.validation=…\."):
        evaluate_run(str(stranger), f"dataset.test={private}")
    assert not (stranger / "evaluations").exists()
    with pytest.raises(UserError, match=r"dataset\.test"):
        compose_resumed(stranger, [])
    with pytest.raises(UserError, match=r"dataset\.test"):
        reproduction.reproduce(stranger)
    assert api.load(stranger).predict(["a small word1"])  # it reads no data set
    evaluate_run(str(stranger), "dataset.train=null", "dataset.validation=null", f"dataset.test={private}")
    assert (stranger / "evaluations" / "1" / "result.json").is_file()


def test_a_model_does_not_read_files_that_a_stranger_names(stranger: Path, tmp_path: Path) -> None:
    (tmp_path / "private").write_text("x")
    replace_in_config(stranger, "\nsearch:\n", f"\nsearch:\n  path: {tmp_path / 'private'}\n")
    with pytest.raises(UserError, match=r"search\.path=.* not on the list of runs"):
        api.load(stranger)


def test_a_run_of_this_user_reads_its_files_while_they_are_unchanged(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    assert foreign.is_own(run)
    assert foreign.is_own(copy)
    config = api.load(copy).config
    foreign.check_inputs(copy, {"dataset": config.dataset}, [])
    assert config.dataset is not None
    path = Path(config.dataset["test"])
    content = path.read_text()
    path.write_text(content + "one more\tun de plus\n")
    try:
        with pytest.raises(UserError, match=r"dataset\.test=\S+: .*changed"):
            foreign.check_inputs(copy, {"dataset": config.dataset}, [])
        path.unlink()
        with pytest.raises(UserError, match=r"dataset\.test=\S+: not found\. .*dataset\.test=PATH"):
            foreign.check_inputs(copy, {"dataset": config.dataset}, [])
        foreign.check_inputs(copy, {"dataset": config.dataset}, ["dataset.test"])
        with pytest.raises(UserError, match="cannot change"):
            compose_resumed(copy, ["model.dropout=0.5"])
    finally:
        path.write_text(content)
    record = json.loads((copy / "run.json").read_text())
    rewrite(copy / "run.json", json.dumps({**record, "seed": 2}))
    assert not foreign.is_own(copy)


@pytest.mark.parametrize("several", [False, True])
def test_a_run_is_resumed_with_files_that_were_moved_but_not_with_others(
    several: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def files(folder: Path) -> list[str]:
        form = f"[{folder}/{{0}}.en,{folder}/{{0}}.fr]" if several else f"{folder}/{{0}}.tsv"
        return [f"dataset.{name}={form.format(name)}" for name in ("train", "validation", "test")]

    (tmp_path / "old").mkdir()
    for name in ("train", "validation", "test"):
        (tmp_path / f"old/{name}.tsv").write_text(PAIRS)
        for column, side in enumerate(("en", "fr")):
            lines = (line.split("\t")[column] for line in PAIRS.splitlines())
            (tmp_path / f"old/{name}.{side}").write_text("".join(f"{line}\n" for line in lines))
    run = tmp_path / "run"
    epochs = "trainer.max_epochs=2"
    command_line.run_until(
        3, "dataset=parallel", *files(tmp_path / "old"), *SETTINGS, epochs, f"hydra.run.dir={run}"
    )
    (tmp_path / "old").rename(tmp_path / "new")
    given = files(tmp_path / "new")
    if several:  # each file is a separate setting
        given = [
            f"dataset.{name}.{index}={tmp_path / f'new/{name}.{side}'}"
            for name in ("train", "validation", "test")
            for index, side in enumerate(("en", "fr"))
        ]
    changed = tmp_path / "new" / ("train.en" if several else "train.tsv")
    content = changed.read_text()
    changed.write_text(content.replace("small", "big"))
    assert command_line.run(f"resume={run}", *given) == 2
    assert "the run started with other data" in capsys.readouterr().err
    changed.write_text(content)
    assert command_line.run(f"resume={run}", *given) == 0
    assert str(tmp_path / "new") in (run / "config.yaml").read_text("utf-8")


def test_a_run_in_the_folder_of_its_data_does_not_change_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("train", "val", "test2016"):
        for language in ("de", "en"):
            Path(f"{name}.{language}").write_text("".join(f"a small word{n}\n" for n in range(30)))
    settings = ("dataset=multi30k", "dataset.path=.", *SETTINGS, "hydra.run.dir=first")
    assert command_line.run(*settings) == 0
    evaluate_run("first")
    assert command_line.run(*settings[:-1], "hydra.run.dir=second") == 0
    evaluate_run("first")
    Path("new.txt").write_text("x")
    with pytest.raises(UserError, match=r"dataset\.path=\.: .*changed"):
        evaluate_run("first")


@pytest.mark.parametrize("name", ["report.html", "metrics.jsonl", "tokenizer"])
def test_a_folder_with_files_that_a_run_would_replace_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine" / name
    file.parent.mkdir()
    file.write_text("mine")
    assert command_line.run(*SETTINGS, f"hydra.run.dir={file.parent}") == 2
    assert f"mine contains {name}, which a run would replace" in capsys.readouterr().err
    assert [*file.parent.iterdir()] == [file]
    assert file.read_text() == "mine"


@pytest.mark.parametrize("target", ["/", "link", "../other"])
def test_a_run_with_a_link_to_another_place_is_not_opened(target: str, stranger: Path) -> None:
    (stranger / "link").symlink_to(target)
    for call in (
        lambda: api.load(stranger),
        lambda: compose_resumed(stranger, []),
        lambda: command_line.check(f"init_from={stranger}"),
    ):
        with pytest.raises(UserError, match="link"):
            call()
    foreign.remember(stranger)
    assert api.load(stranger)


def test_a_stranger_chooses_neither_the_cache_nor_where_metrics_are_sent(
    stranger: Path, tmp_path: Path
) -> None:
    chosen = tmp_path / "chosen"
    text = (stranger / "config.yaml").read_text("utf-8")
    sent = "logger:\n  _target_: seq2seq_lab.tracking.wandb.WandbTracker\n  project: theirs\n  entity: them\n"
    text = text.partition("logger:\n")[0] + sent
    rewrite(stranger / "config.yaml", text.replace("cache_dir: null", f"cache_dir: {chosen}", 1))
    assert compose_opened(stranger, []).cache_dir is None
    named = [f"dataset.{name}={stranger.parent / name}" for name in ("train", "validation", "test")]
    resumed = compose_resumed(stranger, named).config
    assert resumed.cache_dir is None
    assert resumed.logger["_target_"] == "seq2seq_lab.tracking.NoTracker"
    mine = compose_resumed(stranger, [*named, "logger.project=mine"]).config
    assert mine.logger["project"] == "mine"
    assert mine.logger["entity"] is None
    assert not chosen.exists()


def test_a_resumed_run_can_have_another_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ["dataset=tatoeba", "dataset.path=a.tsv", f"cache_dir={tmp_path / 'lost'}"]
    before = compose_run(settings)
    assert before.config.dataset["cache_dir"] == str(tmp_path / "lost")
    monkeypatch.setattr(compose, "read_config", lambda _: OmegaConf.create(before.plain))
    monkeypatch.setattr(foreign, "check_inputs", lambda *_, **__: None)
    monkeypatch.setattr(foreign, "is_own", lambda _: True)
    for given in ("cache_dir", "dataset.cache_dir"):
        resumed = compose_resumed(tmp_path, [f"{given}={tmp_path / 'new'}"])
        assert resumed.config.dataset["cache_dir"] == str(tmp_path / "new")
        assert job_hash.compute_job_hash(resumed.plain) == job_hash.compute_job_hash(before.plain)


def test_a_model_of_another_size_than_the_weights_takes_no_memory(stranger: Path) -> None:
    text = (stranger / "config.yaml").read_text("utf-8")
    rewrite(stranger / "config.yaml", text.replace("hidden_size: 8", "hidden_size: 800000000"))
    with pytest.raises(UserError, match="weights"):
        api.load(stranger)
    replace_in_config(stranger, "num_layers: ", "num_layers: 1000000000 # ")
    with pytest.raises(UserError, match="num_layers"):
        api.load(stranger)


@pytest.mark.parametrize(
    ("old", "new", "key", "change"),
    [
        ("eval_batch_size: ", "eval_batch_size: 1000000000 # ", "task.eval_batch_size", "2"),
        ("max_length_extra: ", "max_length_extra: 1000000000 # ", "search.max_length_extra", "10"),
        ("max_length_factor: ", "max_length_factor: 150.0 # ", "search.max_length_factor", "2"),
    ],
)
def test_settings_that_need_much_memory_or_time_are_named(
    old: str, new: str, key: str, change: str, stranger: Path
) -> None:
    replace_in_config(stranger, old, new)
    with pytest.raises(UserError, match=rf"{key}=1.*{key}="):
        api.load(stranger)
    assert api.load(stranger, changes=[f"{key}={change}"]).predict(["a small word1"])
    assert api.load(stranger, changes=["search=greedy", "task.eval_batch_size=2"])
    foreign.remember(stranger)
    assert api.load(stranger)


def test_a_run_records_the_digests_of_the_files_that_it_names(run: Path) -> None:
    inputs = read_json_object(run / "run.json")["inputs"]
    assert inputs.keys() == {"dataset.train", "dataset.validation", "dataset.test"}
    assert all(len(digest) == 64 for digest in inputs.values())


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"dataset": {"path": "a", "source": "de", "limit": 3}}, {"dataset.path"}),
        (
            {"dataset": {"train": ["a", "b"], "test": {"news": "c"}}},
            {"dataset.train.0", "dataset.train.1", "dataset.test.news"},
        ),
        ({"dataset": {"hub": "bentrevett/multi30k"}}, set()),
        ({"dataset": {"hub": "them/theirs", "url": "https://example.org"}}, {"dataset.hub", "dataset.url"}),
        (
            {"embedding": {"source": {"path": "v.vec"}}, "init_from": "r"},
            {"embedding.source.path", "init_from"},
        ),
        ({"encoder": {"path": "bert", "_target_": "a/b"}}, {"encoder.path"}),
        ({"tokenizer": {"_target_": "x", "words": "/etc/passwd", "rules": "a/b/c"}}, {"tokenizer.words"}),
        ({"logger": {"path": "a"}, "dataset": {"cache_dir": "/tmp"}}, set()),
    ],
)
def test_what_a_configuration_names(config: dict[str, object], found: set[str]) -> None:
    assert foreign.named_inputs(config).keys() == found


def test_the_list_of_runs_may_be_impossible_to_write(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    foreign.remember(run)
    assert "list of your runs" in caplog.text
    assert not foreign.is_own(run)


@pytest.mark.parametrize(
    ("program", "line", "kind"),
    [
        *((compare.main, ["RUN", option], "file") for option in ("--csv", "--latex", "--html")),
        (compare.main, ["RUN", "--figures"], "folder"),
        *((predict.main, ["RUN", option], "file") for option in ("--attention", "--attention-maps")),
        (predict.main, ["RUN", "--export"], "folder"),
        (evaluate.main, ["RUN", "--output"], "folder"),
        (runs.main, ["RUN", "--animate"], "file"),
        (runs.main, ["RUN", "--reproduce", "--output"], "folder"),
        (word_vectors.main, ["FILE", "--picture"], "file"),
        *((analyze.main, [question, "RUN", "--html"], "file") for question in ("attribute", "intervene")),
        (analyze.main, ["attribute", "RUN", "--pictures"], "folder"),
        (lesson.main, ["check", "FILE", "--results"], "file"),
        (lesson.main, ["start", "1", "--output"], "folder"),
        (lesson.main, ["grade", "FOLDER", "--output"], "folder"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused_at_once(
    program: Callable[[list[str]], None],
    line: list[str],
    kind: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.png").mkdir()
    wrong = {
        "file": {"folder.png": "is a folder", "file/a.png": "is a file"},
        "folder": {"file": "is a file", "file/a": "is a file"},
    }
    for name, problem in wrong[kind].items():
        with pytest.raises(SystemExit) as end:
            program([*line, str(tmp_path / name)])
        assert end.value.code == 2
        error = capsys.readouterr().err
        assert f"argument {line[-1]}: " in error
        assert problem in error


def test_control_characters_are_visible_at_a_terminal_only(capfd: pytest.CaptureFixture[str]) -> None:
    assert (
        visible("a\x1b[2J\tb\nc\x9bd\u202ee\N{ZERO WIDTH JOINER}")
        == "a\\x1b[2J\tb\nc\\x9bd\\u202ee\N{ZERO WIDTH JOINER}"
    )
    print_visible("\x1b[2J")
    assert capfd.readouterr().out == "\x1b[2J\n"
    leader, follower = os.openpty()
    with os.fdopen(follower, "w") as terminal:
        print_visible("\x1b[2J", terminal)
        terminal.flush()
        assert os.read(leader, 100) == b"\\x1b[2J\r\n"
    os.close(leader)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("source.options.json", '{"a":' * 1000 + "1" + "}" * 1000),
        ("source.options.json", "[1]"),
        ("source.options.json", '{"class": 3, "options": {}, "languages": null}'),
        ("source.json", "not a vocabulary"),
        ("source.json", '{"model": ' * 1000),
    ],
)
def test_a_malformed_tokenizer_is_named(name: str, content: str, stranger: Path) -> None:
    (stranger / "tokenizer" / name).write_text(content)
    cover(stranger, "run", ["config.yaml", "run.json", "tokenizer"])
    with pytest.raises(UserError, match=name):
        api.load(stranger)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("precision", 5),
        ("test_precision", "fp99"),
        ("test_precision", None),
        ("machine", {"threads": "many", "ranks": 1}),
        ("machine", {"threads": 0, "ranks": 1}),
        ("machine", []),
        ("weights", 3),
        ("components", []),
    ],
)
def test_a_malformed_record_is_named_when_a_run_is_opened(key: str, value: object, stranger: Path) -> None:
    record = json.loads((stranger / "run.json").read_text("utf-8"))
    rewrite(stranger / "run.json", json.dumps({**record, key: value}))
    foreign.remember(stranger)  # otherwise the files that it names are refused first
    for call in (
        lambda: api.load(stranger),
        lambda: reproduction.reproduce(stranger),
    ):
        with pytest.raises(UserError, match=rf"run\.json is damaged: {key}="):
            call()


@pytest.mark.parametrize(
    "state", ["[]", "{}", '{"optimizer": {}, "task": {}, "best": "../../x"}', '{"optimizer": 3, "task": {}}']
)
def test_a_malformed_checkpoint_is_named(state: str, stranger: Path) -> None:
    for folder in (stranger / "checkpoints").iterdir():
        (folder / "state.json").write_text(state)
        digests = {file: sha256(folder / file) for file in checkpoint.FILES}
        (folder / "manifest.json").write_text(json.dumps({"format": checkpoint.FORMAT, "files": digests}))
    with pytest.raises(UserError, match=r"state\.json"):
        api.load(stranger)
