"""The private APIs of Hydra that `hydra_adapter` uses, and what they have to do."""

import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hydra
import pytest
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.core.utils import JobRuntime
from hydra.types import RunMode
from omegaconf import Container, DictConfig, OmegaConf

from seq2seq_lab.config import hydra_adapter
from seq2seq_lab.config.schema import CONF_DIR
from seq2seq_lab.config.trust import check_hydra
from seq2seq_lab.errors import UserError


def test_the_parser_has_the_options_that_the_command_line_reads() -> None:
    parser = hydra_adapter.make_argument_parser()
    line = parser.parse_args(["--multirun", "--config-dir", "x", "--cfg", "job", "seed=1", "a=2"])
    assert (line.multirun, line.config_dir, line.cfg, line.overrides) == (True, "x", "job", ["seed=1", "a=2"])
    options = ("help", "hydra_help", "info", "run", "shell_completion", "resolve")
    names = ("config_path", "config_name", "experimental_rerun")
    assert not any(getattr(line, name) for name in (*options, *names))


def test_values_of_a_second_folder_are_found(tmp_path: Path) -> None:
    (tmp_path / "attention").mkdir()
    (tmp_path / "attention" / "mine.yaml").write_text("_target_: my_module.Mine\n")
    assert hydra_adapter.find_config_loader() is None
    with hydra_adapter.initialized(CONF_DIR, tmp_path):
        assert hydra_adapter.find_config_loader() is not None
        assert hydra.compose("config", ["attention=mine"]).attention._target_ == "my_module.Mine"


def test_threads_compose_one_after_the_other() -> None:
    def initialize(number: int) -> int:
        for _ in range(20):
            with hydra_adapter.initialized(CONF_DIR, None):
                assert hydra_adapter.find_config_loader() is not None
        return number

    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(initialize, range(4))] == [0, 1, 2, 3]


def test_the_state_of_a_program_around_this_one_is_restored(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("mine: 1\n")
    with hydra.initialize_config_dir(str(tmp_path), job_name="outer", **hydra_adapter.VERSION_BASE):
        outer = hydra.compose("other", return_hydra_config=True)
        HydraConfig.instance().set_config(outer)
        with hydra_adapter.initialized(CONF_DIR, None):
            assert not HydraConfig.initialized()
            assert hydra.compose("config").seed == 1
        assert hydra.compose("other") == {"mine": 1}
        assert HydraConfig.get().job.name == JobRuntime.instance().get("name") == "outer"
    Singleton._instances.pop(HydraConfig)
    assert hydra_adapter.find_config_loader() is None


def test_every_singleton_of_hydra_is_either_state_or_a_register_of_plugins_and_schemas() -> None:
    modules = [module for name, module in sys.modules.items() if name.startswith("hydra.")]
    singletons = {kind for module in modules for kind in vars(module).values() if type(kind) is Singleton}
    assert singletons == {*hydra_adapter.STATE, ConfigStore, Plugins, SourcesRegistry}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("job.name", "${hydra_override_dirname:}"),
        ("run.dir", "${hydra_override_dirname:}"),
        ("job.override_dirname", "${hydra_override_dirname:{}}"),
        ("job.override_dirname", "${hydra_override_dirname:}x"),
    ],
)
def test_only_the_text_that_hydra_1_4_gives_to_its_own_key_is_trusted(key: str, value: str) -> None:
    with hydra_adapter.initialized(CONF_DIR, None):
        node = hydra.compose("config", return_hydra_config=True).hydra
    node.job.override_dirname = "${hydra_override_dirname:}"
    check_hydra(node)
    OmegaConf.update(node, key, value)
    with pytest.raises(UserError, match=f"hydra.{key}="):
        check_hydra(node)


@pytest.mark.parametrize("setting", ["hydra.launcher=joblib", "hydra.sweeper=optuna"])
def test_a_launcher_and_a_sweeper_are_chosen_with_a_slash(setting: str) -> None:
    with hydra_adapter.initialized(CONF_DIR, None):
        node = hydra_adapter.compose([setting]).hydra
    with pytest.raises(UserError, match=f"{setting} is not allowed: .*hydra/"):
        check_hydra(node)


def test_the_package_uses_nothing_that_hydra_or_omegaconf_deprecate() -> None:
    code = "import sys; from seq2seq_lab.launching.cli import main; main()"
    command = [sys.executable, "-W", "error", "-c", code, "--cfg", "job", "seed=2"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_plugins_of_hydra_and_of_the_package_are_in_the_allowed_modules() -> None:
    found = Plugins.instance().discover()
    modules = {
        f"{plugin.__module__}." for plugin in found if plugin.__name__.endswith(("Launcher", "Sweeper"))
    }
    modules = {module for module in modules if not module.startswith("hydra.plugins.")}
    assert len(modules) >= 4
    assert all(module.startswith(hydra_adapter.PLUGIN_MODULES) for module in modules)


def test_a_composed_run_has_the_folder_the_record_and_the_error_of_hydras_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    seen: list[tuple[int, str, Path]] = []

    def run(node: DictConfig) -> None:
        seen.append((node.seed, HydraConfig.get().runtime.output_dir, Path.cwd()))
        raise KeyError("fault")

    with hydra_adapter.initialized(CONF_DIR, None):
        settings = ["seed=7", "hydra.run.dir=out", "hydra.job.chdir=true"]
        node = hydra.compose("config", settings, return_hydra_config=True)
        with pytest.raises(KeyError, match="fault"):
            hydra_adapter.run_composed(node, run)
    assert seen == [(7, str(tmp_path / "out"), tmp_path / "out")]
    assert list(Path("out").iterdir()) == []  # Hydra must not write to a folder that is not locked
    assert Path.cwd() == tmp_path
    assert "Error executing job" not in capsys.readouterr().err


def test_a_defaults_list_can_contain_the_choice_of_a_group(tmp_path: Path) -> None:
    tasks = ("translation", "captions")
    (tmp_path / "attention" / "of").mkdir(parents=True)
    (tmp_path / "attention" / "mine.yaml").write_text("defaults: [{of@_here_: '${task}'}]\n")
    for task in tasks:
        (tmp_path / "attention" / "of" / f"{task}.yaml").write_text(f"_target_: mine.{task}\n")
    with hydra_adapter.initialized(CONF_DIR, tmp_path):
        found = [hydra_adapter.compose([f"task={task}", "attention=mine"]) for task in tasks]
    assert [node.attention._target_ for node in found] == ["mine.translation", "mine.captions"]


def by_hydra(settings: list[str], mode: RunMode = RunMode.RUN) -> DictConfig:
    """Compose with Hydra alone."""
    with hydra.initialize_config_dir(str(CONF_DIR), **hydra_adapter.VERSION_BASE):
        instance = GlobalHydra.instance().hydra
        assert instance is not None
        return instance.compose_config("config", settings, mode, from_shell=False)


def described(node: Any) -> Any:
    """Return everything that OmegaConf stores for a node, without the time that Hydra has resolved."""
    content = node._content if isinstance(node, Container) else node._value()
    if isinstance(content, dict):
        content = {key: described(item) for key, item in content.items()}
    elif isinstance(content, list):
        content = [described(item) for item in content]
    metadata = {name: value for name, value in vars(node._metadata).items() if name != "resolver_cache"}
    return type(node), metadata, content


@pytest.mark.parametrize(
    "line",
    [
        "",
        "seed=3 trainer.max_epochs=2 seed=4",
        "trainer.max_epochs=2 attention=dot encoder=bilstm model=attn trainer.threads=auto",
        "model.hidden_size=32 model.encoder_hidden_size=${model.hidden_size} model.hidden_size=48",
        "metric=[accuracy] task=translation trainer.monitor=val/accuracy",
        "task=captions embedding={source:{size:3},target:{size:4}} embedding.source.size=5",
        "embedding.source.size=5 embedding={source:{size:3}}",
        "logger=none 'logger={}' hydra.run.dir='a b/${now:%Y}' hydra.job.chdir=true hydra/launcher=local",
        "hydra.job.config.override_dirname.kv_sep=- +study.x=1 model.dropout=0",
        "hydra.job.env_copy=[HOME] seed=2",
        "hydra.job.config.override_dirname.exclude_keys=[seed] seed=2 task=dialogue",
        "study=attention hydra.mode=RUN study.name=x trainer.patience=null model.dropout=0.25",
        "trainer={max_epochs:3} optimizer.lr=1e-3 'init_from=\"a=b,c\"'",
    ],
)
def test_composed_choices_with_assignments_are_what_hydra_composes(line: str) -> None:
    settings = shlex.split(line)
    with hydra_adapter.initialized(CONF_DIR, None):
        first, again = hydra_adapter.compose(settings), hydra_adapter.compose(settings)
    assert described(first) == described(again) == described(by_hydra(settings))


@pytest.mark.parametrize(
    "line",
    [
        "hydra.mode=MULTIRUN",
        "seed=1,2 attention=dot,additive encoder=gru model.dropout=0 hydra.sweep.dir=a hydra.mode=MULTIRUN",
        "study=attention seed=range(1,3) 'trainer.max_epochs=choice(1,2)' +study.x=1,2",
        "task=captions,dialogue metric=[accuracy] logger=none",
    ],
)
def test_a_multirun_is_composed_as_hydra_composes_it(line: str) -> None:
    settings = shlex.split(line)
    with hydra_adapter.initialized(CONF_DIR, None):
        composed = hydra_adapter.compose(settings, RunMode.MULTIRUN)
    assert described(composed) == described(by_hydra(settings, RunMode.MULTIRUN))


def test_the_jobs_of_a_multirun_are_those_of_hydras_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = [
        *shlex.split("seed=1,2 attention=dot,additive model.dropout=0"),
        f"hydra.sweep.dir={tmp_path}",
        "hydra.job.name=x",  # Hydra names it by the file of the function
    ]
    jobs: list[Any] = []

    def run(node: DictConfig) -> None:
        jobs.append((described(node), described(HydraConfig.get())))
        OmegaConf.resolve(node)

    with hydra_adapter.initialized(CONF_DIR, None):
        hydra_adapter.run_multirun(settings, run)
    ours, jobs = jobs, []
    with hydra_adapter._own_state():
        monkeypatch.setattr(sys, "argv", ["seq2seq_lab", "--multirun", *settings, "hydra.mode=MULTIRUN"])
        hydra_adapter.run_main(CONF_DIR, run)
    assert len(jobs) == 4
    assert ours == jobs


def test_an_edited_file_of_the_users_folder_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "attention").mkdir()
    for score in (1, 2):
        (tmp_path / "attention" / "mine.yaml").write_text(f"score: {score}\n")
        with hydra_adapter.initialized(CONF_DIR, tmp_path):
            assert hydra_adapter.compose(["attention=mine"]).attention.score == score
            hydra_adapter.compose(["attention=mine"]).attention.score = 3


def test_the_time_is_that_of_each_configuration() -> None:
    settings = ["hydra.run.dir=${now:%H-%M-%S-%f}"]
    with hydra_adapter.initialized(CONF_DIR, None):
        folders = [hydra_adapter.compose(settings).hydra.run.dir for _ in range(2)]
        caches = [OmegaConf.get_cache(hydra_adapter.compose(settings)) for _ in range(2)]
    assert folders[0] != folders[1]
    assert caches == [{}, {}]  # Hydra has resolved the day and the second


@pytest.mark.parametrize(
    "line",
    [
        "attention=none trainer.max_epoch=3",
        "attention=no trainer.max_epochs=3",
        "trainer.max_epochs=many model.dropout=0",
        "trainer.max_epochs=1,2",
        "seed=1 ~trainer.foo",
        "schedule={warmup_steps:3} seed=3",
        "dataset=sentiment seed=[1,2]",
    ],
)
def test_errors_are_those_of_hydra(line: str) -> None:
    with hydra_adapter.initialized(CONF_DIR, None), pytest.raises(Exception, match=r".") as error:
        hydra_adapter.compose(line.split())
    with pytest.raises(Exception, match=r".") as expected:
        by_hydra(line.split())
    assert (type(error.value), str(error.value)) == (type(expected.value), str(expected.value))


def test_changes_of_files_and_of_the_store_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "conf"
    shutil.copytree(CONF_DIR, conf)
    store = ConfigStore.instance()
    monkeypatch.setattr(store, "repo", {**store.repo, "attention": {}})
    for epochs in (7, 8):
        file = conf / "trainer" / "default.yaml"
        file.write_text(re.sub("max_epochs: .*", f"max_epochs: {epochs}", file.read_text("utf-8")), "utf-8")
        for score in (1, 2):
            store.store(group="attention", name="stored", node={"score": score})
            with hydra_adapter.initialized(conf, None):
                node = hydra_adapter.compose(["attention=stored", "seed=3"])
            assert (node.trainer.max_epochs, node.attention.score) == (epochs, score)
