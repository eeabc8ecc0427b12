"""The private APIs of Hydra that `hydra_adapter` uses, and what they have to do."""

import subprocess
import sys
from pathlib import Path

import hydra
import pytest
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.core.utils import JobRuntime
from omegaconf import DictConfig, OmegaConf

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
