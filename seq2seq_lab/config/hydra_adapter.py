"""The only module that uses private APIs of Hydra, or that depends on its version; a test fails when Hydra changes one."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
import omegaconf
from hydra._internal.callbacks import Callbacks
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import get_args_parser
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobRuntime, JobStatus, run_job
from hydra.types import HydraContext, TaskFunction
from hydra.version import VersionBase
from omegaconf import DictConfig, OmegaConf

# Modules of the launchers and sweepers that Hydra registers as plugins.
PLUGIN_MODULES = ("hydra._internal.core_plugins.", "hydra_plugins.")
# Hydra 1.3 needs it to behave as 1.3; later versions deprecate it.
VERSION_BASE = {"version_base": "1.3"} if hydra.__version__.startswith("1.3.") else {}
# The state of Hydra: a process has one instance of each class.
STATE: tuple[type, ...] = (GlobalHydra, HydraConfig, JobRuntime, VersionBase)


def make_argument_parser() -> argparse.ArgumentParser:
    """Return the parser of Hydra's command line."""
    return get_args_parser()


def find_config_loader() -> ConfigLoader | None:
    """Return the loader that finds the configuration files, or None outside `initialized`."""
    instance = GlobalHydra.instance()
    return instance.config_loader() if instance.is_initialized() else None


@contextmanager
def _own_state() -> Iterator[None]:
    """Start with a new state of Hydra, and restore that of a program or notebook which uses Hydra itself."""
    instances = Singleton._instances
    outer = {kind: instances.pop(kind) for kind in STATE if kind in instances}
    try:
        yield
    finally:
        for kind in STATE:
            instances.pop(kind, None)
        instances.update(outer)


@contextmanager
def initialized(conf: Path, extensions: Path | None) -> Iterator[None]:
    """Initialize Hydra as its command line does, also within another program that uses Hydra.

    Args:
        conf: the folder of the primary configuration.
        extensions: a folder of further groups and values, or None.
    """
    with _own_state(), hydra.initialize_config_dir(str(conf), **VERSION_BASE):
        if extensions is not None:
            instance = GlobalHydra.instance().hydra
            assert instance is not None, "initialize_config_dir creates it"
            search_path = instance.config_loader.get_search_path()
            search_path.prepend("command-line", f"file://{extensions}", SearchPathQuery(provider="schema"))
            instance.config_loader = ConfigLoaderImpl(search_path)
        yield


def run_main(conf: Path, function: TaskFunction) -> None:
    """Run Hydra's own program with the arguments of `sys.argv`."""
    hydra.main(config_path=str(conf), config_name="config", **VERSION_BASE)(function)()


def register_resolver(name: str, resolver: Callable[..., object]) -> None:
    """Register a resolver, or replace one of the same name. OmegaConf 2.4 has renamed the function."""
    old = omegaconf.__version__.startswith("2.3.")
    register: Any = OmegaConf.register_new_resolver if old else OmegaConf.register_resolver
    register(name, resolver, replace=True)


def run_composed(node: DictConfig, function: TaskFunction) -> None:
    """Call a function with a composed configuration as `hydra.main` does, but without composing it again.

    Hydra creates the output folder with `.hydra/`, changes the working directory if asked to, and calls its callbacks.
    Must be called within `initialized`.
    """
    loader = find_config_loader()
    assert loader is not None, "called within initialized"
    callbacks = Callbacks(node)
    callbacks.on_run_start(config=node, config_name="config")
    context = HydraContext(config_loader=loader, callbacks=callbacks)
    returned = run_job(function, node, "hydra.run.dir", None, context)
    callbacks.on_run_end(config=node, config_name="config", job_return=returned)
    if returned.status is JobStatus.FAILED:
        raise returned._return_value  # the property `return_value` prints a line before it raises
