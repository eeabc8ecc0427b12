"""The program from Python: the same run as the command line's, opened and looked at."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import command_line
import hydra
import numpy as np
import pytest
import torch
from hydra.core.global_hydra import GlobalHydra
from matplotlib.figure import Figure

import seq2seq_lab
from seq2seq_lab import LoadedTranslation, Translation, api, evaluate, predict
from seq2seq_lab.config import extensions
from seq2seq_lab.config.hydra_adapter import VERSION_BASE
from seq2seq_lab.config.run_folder import read_record, read_result
from seq2seq_lab.config.run_folders import named_folders
from seq2seq_lab.errors import ComponentError, UserError
from seq2seq_lab.launching.start import resume_run
from seq2seq_lab.run import Job
from seq2seq_lab.runtime.ranks import Ranks
from seq2seq_lab.runtime.signals import StopSignals
from seq2seq_lab.tasks.captions.loaded import LoadedCaptioner
from seq2seq_lab.tasks.classification.loaded import LoadedClassifier
from seq2seq_lab.tasks.language_model.loaded import LoadedLanguageModel

TINY = [
    "dataset.train=200",
    "dataset.validation=5",
    "dataset.test=20",
    "dataset.test_compositional=0",
    "dataset.max_depth=1",
    "model.embedding_size=32",
    "model.encoder_hidden_size=32",
    "model.hidden_size=32",
    "trainer.max_epochs=3",
    "task.batch_size=16",
    "task.samples=0",
    "trainer.device=cpu",
    "trainer.precision=fp32",
    "logger=none",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("api")


@pytest.fixture(scope="module")
def run(folder: Path) -> LoadedTranslation:
    """A small run with attention over subwords."""
    bpe = ["tokenizer=bpe", "tokenizer.vocab_size=320", "optimizer.lr=0.01"]
    settings = [*TINY, *bpe, f"cache_dir={folder / 'cache'}"]
    return seq2seq_lab.train(settings, folder=folder / "run")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Job]:
    """The runs that would have been trained, in a working directory of their own."""
    jobs: list[Job] = []

    def record(job: Job, ranks: Ranks, stop: StopSignals) -> dict[str, Any]:
        jobs.append(job)
        return {}

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("seq2seq_lab.run.experiment", record)
    monkeypatch.setattr(api, "load", lambda folder, config_dir, device: folder)
    return jobs


def test_importing_the_package_does_not_wait_for_torch() -> None:
    code = "import sys, seq2seq_lab; print('torch' in sys.modules, set(seq2seq_lab.__all__) <= set(dir(seq2seq_lab)))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "False True\n"
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = seq2seq_lab.nothing  # type: ignore[attr-defined]


PROGRAM_WITH_HYDRA = """
from dataclasses import dataclass
import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig

@dataclass
class Mine:
    run: str
    settings: list[str]

ConfigStore.instance().store(name="schema", node=Mine)

@hydra.main(config_path=".", config_name="config", version_base="1.3")
def main(config):
    import seq2seq_lab
    trained = seq2seq_lab.train(config.settings, folder="trained")
    loaded = seq2seq_lab.load(config.run)
    print(trained.result["status"], len(loaded.predict(["the king sleeps."])), HydraConfig.get().job.num)

if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
def test_runs_are_trained_and_opened_within_a_program_that_uses_hydra(
    run: LoadedTranslation, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM_WITH_HYDRA)
    (tmp_path / "config.yaml").write_text("defaults: [schema, _self_]\n")
    settings = json.dumps([*TINY, "trainer.fast_dev_run=true"]).replace('"', "'")
    command = [sys.executable, "program.py", "--multirun", f"settings={settings}"]
    command += [f"run={run.folder},{run.folder}", "hydra.job.chdir=true", "hydra.sweep.dir=jobs"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "finished 1 0\n" in ended.stdout
    assert (
        "finished 1 1\n" in ended.stdout
    )  # the second job composes after the first one has used the package
    assert (tmp_path / "jobs" / "1" / "trained" / "result.json").is_file()


def test_runs_are_opened_in_a_notebook_that_uses_hydra(run: LoadedTranslation, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("mine: 1\n")
    hydra.initialize_config_dir(str(tmp_path), **VERSION_BASE)
    try:
        assert len(seq2seq_lab.load(run.folder).predict(["the king sleeps."])) == 1
        assert hydra.compose("config") == {"mine": 1}
    finally:
        GlobalHydra.instance().clear()


def test_a_trained_run_is_opened(run: LoadedTranslation, folder: Path) -> None:
    assert run.folder == folder / "run"
    assert run.result is not None
    assert run.result["status"] == "finished"
    assert run.result == json.loads((run.folder / "result.json").read_text())
    assert {"config.yaml", "run.json", "run.log"} <= {path.name for path in run.folder.iterdir()}
    assert not (run.folder / ".hydra").exists()
    assert run.config.dataset["train"] == 200
    assert not run.model.training
    assert "model=" not in repr(run)


def test_greedy_translations_are_those_of_the_runs_test(run: LoadedTranslation) -> None:
    rows = [json.loads(line) for line in (run.folder / "translations.test.jsonl").read_text().splitlines()]
    assert len(rows) == 20
    translations = run.predict([row["source"] for row in rows])
    assert [translation.text for translation in translations] == [row["hypothesis"] for row in rows]
    again = seq2seq_lab.load(run.folder, precision="auto")
    assert again.precision is run.precision
    assert [row["hypothesis"] for row in rows] == [t.text for t in again.predict([r["source"] for r in rows])]


def test_many_sentences_keep_their_order_and_scores(
    run: LoadedTranslation, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentences = [
        "Mary sleeps .",
        "John gave Mary a red book .",
        "Mary sleeps .",
        " \t",
        "",
        "the cat sees John .",
    ]
    for size in (run.task.eval_batch_size, 2):
        monkeypatch.setattr(run.task, "eval_batch_size", size)
        translations = run.predict(sentences, join_subwords=False)
        assert [translation.source for translation in translations] == sentences
        for translation in translations[:3] + translations[5:]:
            (alone,) = run.predict([translation.source], join_subwords=False)
            assert alone.text == translation.text
            assert alone.log_prob == pytest.approx(translation.log_prob, abs=1e-3)
            assert translation.log_prob < 0
            assert translation.attention is not None
            shape = (len(translation.target_tokens), len(translation.source_tokens))
            assert translation.attention.shape == shape
            np.testing.assert_allclose(translation.attention.sum(1), 1, rtol=1e-4)
            assert (translation.source_tokens[0], translation.source_tokens[-1]) == ("<sos>", "<eos>")
        assert translations[3] == Translation(
            source=" \t",
            text="",
            score=0.0,
            log_prob=0.0,
            source_tokens=[],
            target_tokens=[],
            attention=None,
        )
    assert run.predict([]) == []


def test_texts_are_read_in_unicode_nfc_as_files_are() -> None:
    run, accented = seq2seq_lab.load("demo"), "cafe\N{COMBINING ACUTE ACCENT}"
    (prediction,) = run.predict([accented])
    assert prediction.source == "café"
    assert run.trace(accented).source.text == "café"
    (scored,) = run.score(["where does the dog sleep?"], ["ou\N{COMBINING GRAVE ACCENT} dort le chien ?"])
    assert scored.tokens[:2] == ["où", "dort"]
    assert run.trace("the king sleeps.", prefix=["ou\N{COMBINING GRAVE ACCENT}"]).best.tokens[0].text == "où"


def test_words_over_subwords(run: LoadedTranslation) -> None:
    (tokens,), (words,) = (
        run.predict(["John sleeps ."], join_subwords=False),
        run.predict(["John sleeps ."]),
    )
    assert words.source_tokens == ["<sos>", "John", "sleeps", ".", "<eos>"]
    assert words.target_tokens == words.text.split() != []
    assert words.text == tokens.text
    assert len(tokens.source_tokens) > len(words.source_tokens)
    assert words.attention is not None
    assert words.attention.shape == (len(words.target_tokens), 5)


def test_a_plot_of_attention_shows_itself(run: LoadedTranslation) -> None:
    (translation,) = run.predict(["John sleeps ."], join_subwords=False)
    figure = run.plot_attention(translation)
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert labels == translation.source_tokens
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    words = run.plot_attention("John sleeps .")
    assert [label.get_text() for label in words.axes[0].get_xticklabels()][1:-1] == ["John", "sleeps", "."]
    with pytest.raises(UserError, match="empty"):
        run.plot_attention("  ")


def test_a_model_without_attention(folder: Path) -> None:
    settings = [*TINY, "model=vanilla", "trainer.fast_dev_run=true", f"cache_dir={folder / 'cache'}"]
    run = seq2seq_lab.train(settings, folder=folder / "vanilla")
    (translation,) = run.predict(["John sleeps ."])
    assert translation.attention is None
    assert len(translation.source_tokens) == 5
    with pytest.raises(UserError, match=r"no attention.*model=attn"):
        run.plot_attention(replace(translation, target_tokens=["Jean"]))


def test_a_plot_on_given_axes(run: LoadedTranslation) -> None:
    figure = Figure()
    axes = figure.subplots(1, 2)
    (translation,) = run.predict(["John sleeps ."])
    assert run.plot_attention(translation, ax=axes[1]) is figure
    assert len(figure.axes) == 2  # no color bar
    assert [label.get_text() for label in axes[1].get_yticklabels()] == translation.target_tokens
    assert translation.source in axes[1].get_title()
    assert not axes[0].images


def test_a_run_is_evaluated_from_python(run: LoadedTranslation, tmp_path: Path) -> None:
    assert run.result is not None
    opened = seq2seq_lab.load(run.folder, precision="auto")
    scores = opened.evaluate(output=tmp_path / "again")
    for key in ("test/bleu", "test/loss_teacher_forced"):
        assert scores[key] == pytest.approx(run.result[key], rel=1e-6)
    validated = opened.evaluate(validation=True, output=tmp_path / "validated")
    assert validated["val/bleu"] == pytest.approx(run.result["val/bleu"], rel=1e-6)
    assert "test/bleu" not in validated
    assert opened.evaluate(output=tmp_path / "twice")["test/bleu"] == scores["test/bleu"]
    assert read_result(tmp_path / "again")["test/bleu"] == scores["test/bleu"]
    with pytest.raises(UserError, match="already exists"):
        opened.evaluate(output=tmp_path / "again")
    beam = seq2seq_lab.load(run.folder, changes=["search=beam"]).evaluate(output=tmp_path / "beam")
    assert read_record(tmp_path / "beam")["choices"]["search"] == "beam"
    table = api.compare([tmp_path / "again", tmp_path / "beam"], by=["search"])
    assert {line.group.label for line in table.lines} == {"search=beam", "search=greedy"}
    assert f"{beam['test/bleu']:.2f}" in table._repr_html_()
    assert "search" in repr(table).splitlines()[0]


def test_runs_are_listed_and_the_newest_is_named(
    run: LoadedTranslation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for call in (lambda: seq2seq_lab.load("latest"), lambda: api.runs()):
        with pytest.raises(UserError, match="no run"):
            call()
    for number, folder in enumerate(("sweeps/why/0a", "outputs/x/second", "outputs/x/first")):
        copied = shutil.copytree(run.folder, folder)
        os.utime(Path(copied) / "run.json", (1000 - number, 1000 - number))
    os.utime("outputs/x/first/result.json")  # a run that ended last did not start last
    assert seq2seq_lab.load("latest").folder == tmp_path / "sweeps/why/0a"
    assert [entry.status for entry in api.runs(["latest"])] == ["finished"]
    assert len(api.runs()) == 3
    assert "outputs/x/first" in api.runs()._repr_html_()
    assert api.runs(statuses=["failed"]) == []
    assert named_folders(["init_from=latest", "resume=latest", "seed=1"]) == [
        "init_from=sweeps/why/0a",
        "resume=sweeps/why/0a",
        "seed=1",
    ]
    Path("latest").mkdir()  # a folder of this name is meant
    with pytest.raises(UserError, match=r"latest contains no run"):
        seq2seq_lab.load("latest")


def test_what_a_notebook_shows(run: LoadedTranslation) -> None:
    (one,) = run.predict(["John <b> sleeps ."])
    assert "John &lt;b&gt; sleeps ." in one._repr_html_()
    assert "attention" not in repr(one)
    shown = run._repr_html_()
    for part in (str(run.folder), "translation", run.checkpoint, "BLEU"):
        assert part in shown
        assert part in repr(run)


def test_the_curves(run: LoadedTranslation) -> None:
    updates, values = run.curve("val/bleu")
    assert updates == [13, 26, 39]
    assert [row["val/bleu"] for row in run.metrics() if "val/bleu" in row] == values
    with pytest.raises(UserError, match=r"no metric 'val/blue'\. Did you mean 'val/bleu'\?"):
        run.curve("val/blue")


def test_opening_leaves_the_callers_random_numbers_alone(run: LoadedTranslation) -> None:
    before = torch.get_rng_state()
    seq2seq_lab.load(run.folder)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda folder: seq2seq_lab.load("nowhere"), ["nowhere", "no config.yaml", "outputs/DATE/TIME"]),
        (
            lambda folder: seq2seq_lab.load(folder, device="gpu"),
            ["device='gpu'", "'cuda'", "auto, cuda, mps"],
        ),
        (lambda folder: seq2seq_lab.load(folder, precision="bf17"), ["precision='bf17'", "'bf16'"]),
        (lambda folder: seq2seq_lab.load(folder, config_dir="nowhere"), ["--config-dir=", "nowhere"]),
        (lambda folder: seq2seq_lab.load(folder).predict("a text"), ["list of texts", "['a text']"]),
        (
            lambda folder: seq2seq_lab.load(folder, changes="search=beam"),
            ["list of changes", "['search=beam']"],
        ),
        (lambda folder: api.compare(folder), ["list of folders", "folders=["]),
        (lambda folder: api.compare([folder], by="seed"), ["list of settings", "by=['seed']"]),
        (lambda folder: api.runs(str(folder)), ["list of folders", "folders=["]),
        (lambda folder: seq2seq_lab.load(folder).plot_attention(3), ["plot_attention takes one", "int"]),
        (lambda folder: seq2seq_lab.train("seed=1"), ["list of settings", "['seed=1']"]),
        (lambda folder: seq2seq_lab.train(folder=folder), ["already contains a run"]),
    ],
)
def test_invalid_arguments_are_refused(
    run: LoadedTranslation, monkeypatch: pytest.MonkeyPatch, call: Any, said: list[str]
) -> None:
    monkeypatch.chdir(run.folder.parent)
    before = sorted(run.folder.rglob("*"))
    with pytest.raises(UserError) as raised:
        call(run.folder)
    for fragment in said:
        assert fragment in str(raised.value)
    assert sorted(run.folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["attention=addtive"], ["attention=addtive", "'additive'"]),
        (["trainer.max_epoch=3"], ["'trainer.max_epochs'"]),
        (["model=vanilla", "attention=additive"], ["attention function is chosen", "attention=…"]),
        (["dataset._target_=os.system"], ["refused"]),
        (["+hydra.callbacks.x._target_=os.system"], ["refused"]),
        (["seed=1,2"], ["seed=1,2"]),
        (["hydra.mode=MULTIRUN"], ["hydra.mode=MULTIRUN"]),
        (["-m", "seed=1"], ["-m", "config_dir"]),
        (["resume=run"], ["resume=run", "command line"]),
    ],
)
def test_train_refuses_what_the_command_line_refuses(
    started: list[Job], tmp_path: Path, overrides: list[str], said: list[str]
) -> None:
    with pytest.raises(UserError) as raised:
        seq2seq_lab.train(overrides)
    for fragment in said:
        assert fragment in str(raised.value)
    assert started == []
    assert list(tmp_path.iterdir()) == []


def test_train_and_the_command_line_start_the_same_run(started: list[Job], tmp_path: Path) -> None:
    settings = ["attention=linear", "seed=3", "encoder=lstm"]
    seq2seq_lab.train(settings)
    assert command_line.run(*settings) == 0
    called, typed = started
    assert called.plain == typed.plain
    assert called.choices == typed.choices
    assert called.overrides == typed.overrides == tuple(settings)
    assert called.folder.parts[:-2] == typed.folder.parts[:-2] == (tmp_path / "outputs").parts
    assert (called.folder / "config.yaml").read_text() == (typed.folder / "config.yaml").read_text()
    seq2seq_lab.train(settings, folder="mine")
    assert started[2].folder == tmp_path / "mine"


def test_a_checkpoint_or_a_folder_instead_of_a_run_is_answered_with_the_right_call(
    run: LoadedTranslation,
) -> None:
    step = run.checkpoint
    with pytest.raises(UserError, match=rf"seq2seq_lab\.load\('.*', checkpoint='{step}'\)"):
        seq2seq_lab.load(run.folder / "checkpoints" / step)
    for runs in (run, str(run.folder), run.folder, [run.folder], None):
        with pytest.raises(UserError, match=r"ensemble\(\[seq2seq_lab\.load\(FOLDER\)"):
            seq2seq_lab.ensemble(runs)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: seq2seq_lab.load(None), "^folder=None"),  # type: ignore[arg-type]
        (lambda: seq2seq_lab.load(""), "^folder=''"),
        (lambda: seq2seq_lab.train(None), "^train takes a list of settings, not None"),  # type: ignore[arg-type]
        (lambda: seq2seq_lab.train([5]), "^overrides=5"),  # type: ignore[list-item]
        (lambda: seq2seq_lab.compare([]), "^folders="),
        (lambda: seq2seq_lab.load("demo").predict(5), "^predict takes a list of texts, not 5"),
        (lambda: seq2seq_lab.load("demo").show([]), "^sentences="),
        (lambda: seq2seq_lab.load("demo").show(None), "^sentences="),
    ],
)
def test_an_argument_of_another_type_is_named(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        call()


def test_the_folder_of_a_new_run_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file: File exists\. It is a file"):
        seq2seq_lab.train([*TINY, f"cache_dir={tmp_path}"], folder=tmp_path / "file")


def test_an_ensemble_takes_any_iterable_of_runs(run: LoadedTranslation) -> None:
    both = seq2seq_lab.ensemble(run for _ in range(2))
    assert both.predict(["the cat sleeps."])[0].text == run.predict(["the cat sleeps."])[0].text


SIZES = ("dataset.train=40", "dataset.validation=20", "dataset.test=20")
CAPTIONER = (
    "encoder.channels=[4,6]",
    "encoder.strides=[2,2]",
    "model.hidden_size=16",
    "model.embedding_size=16",
)


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        (["experiment=names", "dataset.names=80"], LoadedClassifier),
        (["experiment=language_model", *SIZES], LoadedLanguageModel),
        (["experiment=captions", *SIZES, *CAPTIONER], LoadedCaptioner),
    ],
)
def test_train_opens_the_run_of_any_task(settings: list[str], kind: type, tmp_path: Path) -> None:
    run = seq2seq_lab.train([*settings, "trainer.fast_dev_run=true", "logger=none"], folder=tmp_path / "run")
    assert type(run) is kind


def test_a_run_with_parts_of_ones_own(tmp_path: Path) -> None:
    examples = Path(__file__).parents[1] / "examples" / "own_components"
    settings = [*TINY, "attention=mine", "trainer.fast_dev_run=true"]
    run = seq2seq_lab.train(settings, folder=tmp_path / "run", config_dir=examples)
    (translation,) = run.predict(["John sleeps ."])
    assert translation.attention is not None
    with pytest.raises(UserError, match=r"my_attention\.CosineAttention is refused.*--config-dir FOLDER"):
        seq2seq_lab.load(run.folder)
    again = seq2seq_lab.load(run.folder, config_dir=examples)
    assert again.predict(["John sleeps ."])[0].text == translation.text


def test_runs_with_a_tokenizer_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shutil.copytree(Path(__file__).parents[1] / "examples" / "own_components", tmp_path / "own")
    settings = [*TINY, "tokenizer=chunks", "tokenizer.length=2", "trainer.fast_dev_run=true"]
    run = seq2seq_lab.train(settings, folder=tmp_path / "run", config_dir=folder)
    monkeypatch.chdir(tmp_path)
    again = seq2seq_lab.load("run", config_dir="own")
    monkeypatch.undo()
    assert repr(again).startswith("run: run, ")  # as given
    assert again.evaluate(output=tmp_path / "scores")
    assert json.loads((tmp_path / "scores" / "run.json").read_text())["evaluation"]["run"] == "run"
    assert again.trace("John sleeps .").best.text == again.predict(["John sleeps ."])[0].text
    (expected,), (found,) = (
        one.predict(["John sleeps ."]) for one in (run, seq2seq_lab.ensemble([run, again]))
    )
    assert found.text == expected.text
    with (folder / "my_encoder.py").open("a") as file:
        file.write("# changed\n")
    both = seq2seq_lab.ensemble([run, seq2seq_lab.load(tmp_path / "run", config_dir=folder)])
    both.evaluate(output=tmp_path / "both")
    before, now = json.loads((tmp_path / "both" / "run.json").read_text())["evaluation"]["components"]
    assert {file for file in before if before[file] != now[file]} == {"my_encoder.py"}
    with (folder / "my_tokenizer.py").open("a") as file:
        file.write("# changed\n")
    with pytest.raises(UserError, match="different vocabularies"):
        seq2seq_lab.ensemble([run, seq2seq_lab.load(tmp_path / "run", config_dir=folder)])
    said = (
        r"the tokenizer was \w+ and is now \w+\. Changed .* \(my_encoder\.py, my_tokenizer\.py\)\. Restore it"
    )
    with extensions.using(folder), pytest.raises(UserError, match=said):
        resume_run(tmp_path / "run", ["trainer.max_epochs=9"])


FAILING = """
from seq2seq_lab.models.attention import AdditiveAttention

class Mine(AdditiveAttention):
    def score(self, query_BTQ, keys_BSK):
        return super().score(query_BTQ, keys_BSK)
"""


def test_an_open_run_names_the_component_that_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, run_folder = tmp_path / "own", tmp_path / "run"
    (own / "attention").mkdir(parents=True)
    (own / "attention" / "own.yaml").write_text("defaults: [additive, _self_]\n_target_: failing.Mine\n")
    (own / "failing.py").write_text(FAILING)
    settings = [*TINY, "attention=own", "trainer.fast_dev_run=true"]
    run = seq2seq_lab.train(settings, folder=run_folder, config_dir=own)

    def ends() -> None:
        raise LookupError("another sentence")

    with pytest.raises(LookupError, match="another sentence"):
        run.trace("John sleeps .", check=ends)
    (own / "failing.py").write_text(FAILING.replace("return super", "query_BTQ + keys_BSK[:, :, :-1]; super"))
    run = seq2seq_lab.load(run_folder, config_dir=own)
    said = f"attention=Mine failed: {own / 'failing.py'}, line 6: RuntimeError: "
    for call in (
        lambda: run.predict(["John sleeps ."]),
        lambda: run.trace("John sleeps .", search=["search=beam"]),
        lambda: run.evaluate(output=tmp_path / "scores"),
    ):
        with pytest.raises(ComponentError, match=f"^{re.escape(said)}.*, in score"):
            call()
    with pytest.raises(TypeError, match="unexpected keyword argument 'first_line'"):
        run.predict(["John sleeps ."], first_line=1)
    own.rename(tmp_path / "moved")
    with pytest.raises(TypeError, match="unexpected keyword argument 'first_line'"):
        run.predict(["John sleeps ."], first_line=1)
    (tmp_path / "moved").rename(own)
    (tmp_path / "lines").write_text("John sleeps .\n")
    words = [str(run_folder), "--config-dir", str(own), "--device=cpu", "search=beam"]
    for program, more in ((evaluate, []), (predict, [str(tmp_path / "lines")])):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            program.main([*words, *more])
        assert ended.value.code == 2
        assert f"error: {said}" in capsys.readouterr().err
    assert extensions.folder() is None


def test_what_an_open_run_builds_later_may_be_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SEQ2SEQ_LAB_CACHE", str(tmp_path / "cache"))
    folder = shutil.copytree(Path(__file__).parents[1] / "examples" / "own_components", tmp_path / "own")
    (folder / "my_search.py").write_text(
        "from seq2seq_lab.search.greedy import GreedySearch\n\n\nclass Mine(GreedySearch):\n    pass\n"
    )
    (folder / "search").mkdir()
    (folder / "search" / "mine.yaml").write_text(
        "_target_: my_search.Mine\nmin_length_factor: 0.0\nmax_length_factor: 1.0\nmax_length_extra: 2\n"
    )
    tiny = [one for one in TINY if "max_depth" not in one and "compositional" not in one]
    settings = [*tiny, "dataset=reversal", "search=mine", "trainer.max_epochs=1"]
    seq2seq_lab.train(settings, folder=tmp_path / "run", config_dir=folder)
    run = seq2seq_lab.load(tmp_path / "run", config_dir=folder)
    (text,) = (one.text for one in run.predict(["1 2 3"]))
    assert run.trace("1 2 3").best.text == text
    assert run.plot_attention("1 2 3").axes
    assert run.neighbors("1 2 3", step=0, count=2).neighbors
    assert run.evaluate(output=tmp_path / "scores")["test/bleu"] == run.result["test/bleu"]
    assert [one.text for one in seq2seq_lab.ensemble([run, run]).predict(["1 2 3"])] == [text]
    assert extensions.folder() is None
    assert "changed since" not in caplog.text
    with (folder / "my_search.py").open("a") as file:
        file.write("# changed\n")
    (folder / "unrelated.py").touch()
    edited = seq2seq_lab.load(tmp_path / "run", config_dir=folder)
    stores = tmp_path / "run" / "states"
    before = {*stores.iterdir()}
    assert edited.neighbors("1 2 3", step=0, count=2).neighbors
    assert len({*stores.iterdir()} - before) == 1  # states of the code before are not used
    said = f"{tmp_path / 'run'}: changed since the run started: custom components (my_search.py)."
    assert caplog.text.count(said) == 1
    (folder / "my_dataset.py").write_text("raise RuntimeError('the disk is not mounted')\n")
    changed = seq2seq_lab.load(tmp_path / "run", config_dir=folder)
    assert [one.text for one in changed.predict(["1 2 3"])] == [text]
    with pytest.raises(
        ComponentError, match=r"my_dataset\.py, line 1: RuntimeError: the disk is not mounted"
    ):
        changed.evaluate(output=tmp_path / "other")
    caplog.clear()
    # Without the folder, a run is opened with another search, and its data set is refused when it is read.
    with pytest.raises(UserError, match=r"my_search\.Mine is refused.*--config-dir FOLDER"):
        seq2seq_lab.load(tmp_path / "run")
    other = seq2seq_lab.load(tmp_path / "run", changes=["search=greedy"])
    assert len(other.predict(["1 2 3"])) == 1
    shutil.rmtree(tmp_path / "run" / "states")
    assert "changed since" not in caplog.text  # the run uses no file of the folder
    for _ in range(2):
        with pytest.raises(UserError, match=r"my_dataset\.Reversal is refused.*--config-dir FOLDER"):
            other.neighbors("1 2 3", step=0)
