"""`init_from=RUN`: what a new run takes from another run, and what is refused before any data is read."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import command_line
import pytest
import yaml
from omegaconf import DictConfig
from rewriting import rewrite

import seq2seq_lab.run
from seq2seq_lab.config import compose, extensions
from seq2seq_lab.config.command_line import parse_overrides
from seq2seq_lab.config.job_hash import compute_job_hash
from seq2seq_lab.files import sha256
from seq2seq_lab.launching import start
from seq2seq_lab.run import Job
from seq2seq_lab.runtime.ranks import Ranks
from seq2seq_lab.runtime.signals import StopSignals
from seq2seq_lab.training import checkpoint, provenance

ROOT = Path(__file__).parents[2]
DATA = (
    "dataset.train=150",
    "dataset.validation=16",
    "dataset.test=16",
    "dataset.test_compositional=0",
    "dataset.max_depth=2",
    "task.batch_size=32",
    "trainer.fast_dev_run=true",
    "trainer.device=cpu",
    "trainer.precision=fp32",
    "task.samples=0",
    "logger=none",
)
MODEL = (
    "encoder=bilstm",
    "attention=scaled_dot",
    "readout=deep",
    "tokenizer=bpe",
    "tokenizer.vocab_size=300",
    "initialization=xavier",
    "model.embedding_size=16",
    "model.hidden_size=12",
    "model.encoder_hidden_size=8",
    "model.attentional_size=20",
    "model.tied_embeddings=all",
    "model.dropout=0.2",
    "encoder.dropout=0.05",
)
INHERITED = (
    "model",
    "embedding",
    "encoder",
    "decoder",
    "attention",
    "readout",
    "initialization",
    "tokenizer",
)


def folders(parent: Path) -> list[Path]:
    return sorted(path.parent for path in parent.rglob("config.yaml") if ".hydra" not in path.parts)


def settings(folder: Path) -> Any:
    return yaml.safe_load((folder / "config.yaml").read_text())


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose model, tokenizer and sizes are not the default ones."""
    folder = tmp_path_factory.mktemp("origin") / "a run"
    assert command_line.run(*DATA, *MODEL, f"hydra.run.dir='{folder}'") == 0
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: Path) -> Path:
    """The working directory, which has the run as RUN."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "RUN").symlink_to(origin)
    return tmp_path


@pytest.fixture
def jobs(here: Path, monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """The jobs that the program starts; they do nothing."""
    started: list[Job] = []

    def run(job: Job, ranks: Ranks, stop: StopSignals) -> dict[str, Any]:
        started.append(job)
        return {}

    monkeypatch.setattr(seq2seq_lab.run, "experiment", run)
    return started


def composed(*lines: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The configuration of `init_from=RUN` with further settings, and the groups' choices."""
    composed = compose.compose_run(["init_from=RUN", *DATA, *lines])
    start.check_parts(composed.config)
    return composed.plain, composed.choices


def test_a_new_run_has_the_model_and_the_weights_of_the_run(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = []
    load = checkpoint.load_weights
    monkeypatch.setattr(
        checkpoint, "load_weights", lambda path, model: (loaded.append(path), load(path, model))
    )
    assert command_line.run("init_from=RUN", *DATA, "dataset.seed=7", "seed=3") == 0
    (folder,) = folders(here / "outputs")
    new, old = settings(folder), settings(here / "RUN")
    assert {name: new[name] for name in INHERITED} == {name: old[name] for name in INHERITED}
    assert (new["seed"], new["dataset"]["seed"], new["init_from"]) == (3, 7, "RUN")
    choices = [json.loads((path / "run.json").read_text())["choices"] for path in (folder, here / "RUN")]
    assert choices[0] == choices[1]
    assert loaded[0] == checkpoint.best(Path("RUN/checkpoints"))
    assert (folder / "tokenizer/source.json").read_bytes() == (
        here / "RUN/tokenizer/source.json"
    ).read_bytes()
    record = json.loads((folder / "run.json").read_text())
    assert record["weights"] == sha256(checkpoint.best(Path("RUN/checkpoints")) / "model.safetensors")
    assert provenance.differences(record, {**record, "weights": "others"}) == {
        "weights": "weights of init_from"
    }
    # It needs the other run no more once it has begun.
    (here / "RUN").unlink()
    assert command_line.run(f"resume={folder}") == 0
    assert "changed" not in json.loads((folder / "run.json").read_text())


def test_what_is_given_wins_and_what_follows_from_it_follows(here: Path) -> None:
    new, chosen = composed("model.dropout=0.3")
    assert (
        new["decoder"]["dropout"]
        == new["model"]["state_dropout"]
        == new["encoder"]["encoder_output_dropout"]
        == 0.3
    )
    assert new["encoder"]["dropout"] == 0.05  # which the run was given by itself
    assert chosen["attention"] == "scaled_dot"
    assert composed("init_from=null")[1]["attention"] == "additive"


def test_the_model_of_the_run_wins_over_that_of_an_experiment(here: Path) -> None:
    new, chosen = composed("experiment=multi30k_de_en", "dataset=grammar", "dataset.train=9")
    assert {name: new[name] for name in INHERITED} == {
        name: settings(here / "RUN")[name] for name in INHERITED
    }
    assert (chosen["experiment"], chosen["model"]) == ("multi30k_de_en", "attn")
    assert new["task"]["label_smoothing"] == 0.1  # the experiment's


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("model.hidden_size=20", ["model.hidden_size=20 (the run has 12)"]),
        ("decoder.hidden_size=20", ["decoder.hidden_size=20 (the run has 12)"]),
        ("encoder=gru", ["encoder.cell=gru (the run has lstm)"]),
        ("attention=additive", ["attention._target_=", "AdditiveAttention"]),
        ("model=luong", ["model.hidden_size=512 (the run has 12)"]),
        (
            "readout=linear model.tied_embeddings=none",
            ["readout._target_=", "model.tied_embeddings=none (the run has all)"],
        ),
        (
            "embedding.target.size=5 model.tied_embeddings=none",
            ["model.tied_embeddings=none (the run has all)"],
        ),
        ("tokenizer=char", ["tokenizer._target_=seq2seq_lab.data.tokenizers.CharTokenizer"]),
        ("tokenizer.lowercase=true", ["tokenizer.lowercase=True (the run has False)"]),
        ("tokenizer.vocab_size=400", ["tokenizer.vocab_size=400 (the run has 300)"]),
        (
            "-m attention=scaled_dot,additive",
            ["attention._target_=seq2seq_lab.models.attention.AdditiveAttention"],
        ),
    ],
)
def test_what_cannot_fit_is_refused_before_data_is_read(
    here: Path, capsys: pytest.CaptureFixture[str], given: str, named: list[str]
) -> None:
    before = sorted(here.iterdir())
    data = ("dataset=parallel", "dataset.train=not_there.tsv", "logger=none")
    assert command_line.run("init_from=RUN", *data, *given.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: init_from=RUN: ")
    for key in named:
        assert key in error
    assert sorted(here.iterdir()) == before


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("config.yaml", "config.yaml"),
        ("run.json", "run.json"),
        ("checkpoints", "no checkpoint"),
        ("tokenizer", ""),
    ],
)
def test_a_folder_that_lacks_something_is_refused(
    here: Path, origin: Path, capsys: pytest.CaptureFixture[str], missing: str, said: str
) -> None:
    shutil.copytree(origin, here / "copy")
    lost = here / "copy" / missing
    shutil.rmtree(lost) if lost.is_dir() else lost.unlink()
    assert command_line.run("init_from=copy", *DATA) == 2
    error = capsys.readouterr().err
    assert "init_from=copy" in error
    assert said in error
    assert not (here / "outputs").exists()


def test_every_job_of_a_study_inherits_and_has_its_folder_by_what_it_computes(
    here: Path, jobs: list[Job]
) -> None:
    given = ["init_from=RUN", *DATA]
    assert command_line.run("-m", *given, "model.dropout=0.1,0.3") == 0
    assert [job.config.decoder["dropout"] for job in jobs] == [0.1, 0.3]
    for job in jobs:
        assert job.plain["attention"] == settings(here / "RUN")["attention"]
        assert job.folder.name == compute_job_hash(job.plain)
        # The settings of the run that it starts from are not its own.
        kept = (f"model.dropout={job.config.model.dropout}", f"study.name={job.config.study.name}")
        assert job.overrides is not None
        assert sorted(job.overrides) == sorted([*given, *kept])
    # A launcher that starts a command for each job hands over the settings as they have become.
    with compose.composer():
        inherited = compose.inherit(parse_overrides(given))
    once, twice = compose.compose_run(given), compose.compose_run([*inherited, *given])
    assert compute_job_hash(once.plain) == compute_job_hash(twice.plain)


def test_several_runs_to_start_from_have_one_model(
    here: Path, origin: Path, jobs: list[Job], capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(origin, here / "other")
    assert command_line.run("-m", "init_from=RUN,other", *DATA) == 0
    assert [job.config.init_from for job in jobs] == ["RUN", "other"]
    config = here / "other" / "config.yaml"
    rewrite(config, config.read_text().replace("attentional_size: 20", "attentional_size: 21"))
    assert command_line.run("-m", "init_from=RUN,other", *DATA) == 2
    assert "init_from=RUN,other" in capsys.readouterr().err
    assert len(jobs) == 2


def test_a_study_that_varies_a_setting_varies_it(here: Path, jobs: list[Job]) -> None:
    (here / "mine" / "study").mkdir(parents=True)
    (here / "mine" / "study" / "rates.yaml").write_text(
        "# @package _global_\nhydra:\n  mode: MULTIRUN\n  sweeper:\n    params:\n      model.dropout: 0.1,0.4\n"
    )
    assert command_line.run("--config-dir=mine", "study=rates", "init_from=RUN", *DATA) == 0
    assert [job.config.model.dropout for job in jobs] == [0.1, 0.4]


def test_an_experiment_can_name_the_run_and_is_composed_once_before_the_job(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "mine" / "experiment").mkdir(parents=True)
    (here / "mine" / "experiment" / "again.yaml").write_text("# @package _global_\ninit_from: RUN\n")
    composed_settings: list[list[str]] = []
    compose_one = compose.compose

    def counted(settings: Sequence[str]) -> DictConfig:
        composed_settings.append([*settings])
        return compose_one(settings)

    monkeypatch.setattr(compose, "compose", counted)
    with extensions.using(here / "mine"):
        composed = compose.compose_run(["experiment=again"])
        assert composed.plain["attention"] == settings(here / "RUN")["attention"]
        assert composed_settings.count(["experiment=again"]) == 1
        assert compose.compose_run(["experiment=again", "init_from=null"]).choices["attention"] == "additive"


def test_a_run_of_an_own_attention_function(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = f"--config-dir={ROOT / 'examples' / 'own_components'}"
    small = ("model.embedding_size=8", "model.hidden_size=8", "model.encoder_hidden_size=4")
    assert command_line.run(own, "attention=mine", *small, *DATA, "hydra.run.dir=mine") == 0
    assert command_line.run("init_from=mine", *DATA) == 2
    assert "attention=mine" in (error := capsys.readouterr().err)
    assert "--config-dir" in error
    with extensions.using(ROOT / "examples" / "own_components"):
        assert composed("init_from=mine")[0]["attention"] == settings(here / "mine")["attention"]


def test_pretrained_vectors_are_part_of_the_weights(here: Path) -> None:
    Path("en.txt").write_text("the" + " 0.5" * 8 + "\n")
    small = ("model.hidden_size=8", "model.encoder_hidden_size=4", "model.scale_embeddings=false")
    vectors = ("embedding.source.path=en.txt", "embedding.source.size=8", "embedding.source.frozen=true")
    assert command_line.run(*small, *vectors, *DATA, "hydra.run.dir=glove") == 0
    Path("en.txt").unlink()
    table = settings(here / "glove")["embedding"]["source"]
    assert composed("init_from=glove")[0]["embedding"]["source"] == {**table, "path": None}
