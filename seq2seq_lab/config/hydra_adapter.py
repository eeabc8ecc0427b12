"""The only module that uses private APIs of Hydra, or that depends on its version; a test fails when Hydra changes one."""

import argparse
import hashlib
import pickle
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
import omegaconf
from hydra._internal import defaults_list
from hydra._internal.callbacks import Callbacks
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra._internal.utils import get_args_parser
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.core.config_store import ConfigNode, ConfigStore
from hydra.core.default_element import InputDefault
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.core.utils import JobRuntime, JobStatus, configure_log, run_job
from hydra.plugins.config_source import ConfigResult
from hydra.types import HydraContext, RunMode, TaskFunction
from hydra.version import VersionBase
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

# Modules of the launchers and sweepers that Hydra registers as plugins.
PLUGIN_MODULES = ("hydra._internal.core_plugins.", "hydra_plugins.")
# Hydra 1.3 needs it to behave as 1.3; later versions deprecate it.
VERSION_BASE = {"version_base": "1.3"} if hydra.__version__.startswith("1.3.") else {}
# The state of Hydra: a process has one instance of each class.
STATE: tuple[type, ...] = (GlobalHydra, HydraConfig, JobRuntime, VersionBase)
# Settings that Hydra reads while it composes.
READ_BY_HYDRA = ("hydra", "hydra.searchpath", "hydra.job", "hydra.job.env_copy")
# Composed choices of groups, pickled. The keys name the choices and what Hydra has read for them.
TEMPLATES: dict[tuple[str, ...], tuple[bytes, list[ConfigNode]]] = {}
MAX_TEMPLATES = 1000  # of about 30 kB
# What Hydra has read from a file, pickled. The keys name the file, its time and its size.
PARSED: dict[tuple[str, int, int], bytes] = {}


class _Repository(ConfigRepository):
    """Hydra's repository of configuration files, which parses a file again only if it has changed."""

    def load_config(self, config_path: str) -> ConfigResult | None:
        source = self._find_object_source(config_path, ObjectType.CONFIG)
        if source is None or source.scheme() not in ("file", "pkg"):
            return super().load_config(config_path)
        file = Path(source.path, source._normalize_file_name(config_path))
        status = file.stat() if source.scheme() == "file" else None  # files of packages do not change
        key = (str(file), status.st_mtime_ns, status.st_size) if status else (str(file), 0, 0)
        if key not in PARSED:
            PARSED[key] = pickle.dumps(super().load_config(config_path))
        result: ConfigResult = pickle.loads(PARSED[key])
        return result


class _Loader(ConfigLoaderImpl):
    """Hydra's loader with a `_Repository`."""

    def __init__(self, search_path: ConfigSearchPath) -> None:
        super().__init__(search_path)
        self.repository = _Repository(search_path)


class _JobLoader(_Loader):
    """The loader of the jobs of a multirun, which composes them with `compose`."""

    def load_configuration(
        self,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        from_shell: bool = True,
        validate_sweep_overrides: bool = True,
    ) -> DictConfig:
        # A launcher may have sent it to a process without `initialized`.
        if config_name == "config" and run_mode is RunMode.RUN and GlobalHydra.instance().is_initialized():
            return compose(overrides)
        return super().load_configuration(
            config_name, overrides, run_mode, from_shell, validate_sweep_overrides
        )


def make_argument_parser() -> argparse.ArgumentParser:
    """Return the parser of Hydra's command line."""
    return get_args_parser()


def find_config_loader() -> ConfigLoader | None:
    """Return the loader that finds the configuration files, or None outside `initialized`."""
    instance = GlobalHydra.instance()
    return instance.config_loader() if instance.is_initialized() else None


def files_by_package(settings: Sequence[str], group: str) -> dict[str, list[str]]:
    """Return the files of a group that these settings and the files they choose name, by the key that they write to.

    A file that another one of the group includes is left out. Must be called within `initialized`.
    """
    loader = find_config_loader()
    assert loader is not None, "called within initialized"
    found: dict[str, list[str]] = {}
    for one in loader.compute_defaults_list("config", list(settings), RunMode.RUN).defaults:
        included = (one.parent or "").startswith(f"{group}/")
        if (one.config_path or "").startswith(f"{group}/") and not included:
            found.setdefault(one.package, []).append(f"{one.config_path}.yaml")
    return found


def compose(settings: Sequence[str], mode: RunMode = RunMode.RUN) -> DictConfig:
    """Return what `hydra.compose` returns for these settings, with Hydra's own section. Must be called within `initialized`.

    Hydra reads about 100 files for each configuration. Here it does so once for each set of chosen values of groups; other
    keys are set in a copy. Hydra itself composes settings with a prefix, a changed search path, folders of the user, and
    settings that are not valid.

    Args:
        mode: for a multirun, settings with several values are recorded and have no effect.

    Raises:
        HydraException, OmegaConfBaseException: from Hydra.
    """
    overrides = OverridesParser.create().parse_overrides(list(settings))
    single = [override for override in overrides if not override.is_sweep_override()]
    valid = mode is RunMode.MULTIRUN or len(single) == len(overrides)
    if VERSION_BASE and valid and all(map(_is_assignment, overrides)):  # later versions record other things
        choices = [str(override.input_line) for override in single if _is_choice(override)]
        node = _compose_choices(choices)
        if node is not None:
            try:
                _assign(node, overrides, [override for override in single if not _is_choice(override)])
            except OmegaConfBaseException:
                pass
            else:
                return node
    instance = GlobalHydra.instance().hydra
    assert instance is not None, "called within initialized"
    return instance.compose_config("config", list(settings), mode, from_shell=False)


def _is_assignment(override: Override) -> bool:
    changed = override.type is OverrideType.CHANGE
    return changed and override.package is None and override.key_or_group not in READ_BY_HYDRA


def _is_choice(override: Override) -> bool:
    """Return whether a setting chooses the value of a group, decided as in Hydra's `Overrides`."""
    loader = find_config_loader()
    assert isinstance(loader, ConfigLoaderImpl), "called within initialized"
    return not isinstance(override.value(), dict) and loader.repository.group_exists(override.key_or_group)


def _compose_choices(choices: Sequence[str]) -> DictConfig | None:
    """Return the configuration of these values of groups, or None with a folder of the user, whose files may change."""
    loader = find_config_loader()
    assert loader is not None, "called within initialized"
    folders = [Path(source.path) for source in loader.get_sources() if source.scheme() == "file"]
    if len(folders) > 1:
        return None
    files = sorted(folders[0].rglob("*.yaml"))
    stored = list(_find_stored(ConfigStore.instance().repo))
    state = repr([*((str(path), path.stat().st_mtime_ns) for path in files), *map(id, stored)])
    key = (*choices, hashlib.sha256(state.encode()).hexdigest())
    if key not in TEMPLATES:
        node = hydra.compose("config", list(choices), return_hydra_config=True)
        OmegaConf.clear_cache(node)  # Hydra has resolved the time
        if len(TEMPLATES) == MAX_TEMPLATES:
            TEMPLATES.clear()
        TEMPLATES[key] = (pickle.dumps(node), stored)  # the nodes are kept so that their ids stay unique
    node = pickle.loads(TEMPLATES[key][0])
    assert isinstance(node, DictConfig)
    return node


def _find_stored(repository: Mapping[str, Any]) -> Iterator[ConfigNode]:
    """Iterate over the nodes of Hydra's store."""
    for item in repository.values():
        if isinstance(item, ConfigNode):
            yield item
        else:
            yield from _find_stored(item)


def _assign(node: DictConfig, overrides: Sequence[Override], keys: Sequence[Override]) -> None:
    """Set keys of a configuration of choices, and record all settings and the process in its section of Hydra.

    Raises:
        OmegaConfBaseException: a key that does not exist, or a value of a wrong type.
    """
    for override in keys:
        OmegaConf.update(node, override.key_or_group, override.value(), merge=True)
    section = node.hydra
    section.overrides.hydra = [override.input_line for override in overrides if override.is_hydra_override()]
    others = [override for override in overrides if not override.is_hydra_override()]
    section.overrides.task = [override.input_line for override in others]
    form = section.job.config.override_dirname
    named = [str(one.input_line) for one in others if one.key_or_group not in form.exclude_keys]
    section.job.override_dirname = re.sub("=", form.kv_sep, form.item_sep.join(sorted(named)))
    section.runtime.cwd = str(Path.cwd())


_ONE_AT_A_TIME = threading.RLock()
"""Hydra's state is that of the process, and the studio has threads."""


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
def _choices_only_for_interpolations() -> Iterator[None]:
    """Let Hydra collect the choices for interpolations in defaults lists only where a list has one.

    Hydra does so for each file, which takes a third of the time of a composition.
    """
    name = "_create_interpolation_map"
    create = getattr(defaults_list, name)

    def create_if_read(overrides: object, entries: Sequence[InputDefault], self_added: bool) -> DictConfig:
        read = any(entry.is_interpolation() for entry in entries)
        node: DictConfig = create(overrides, entries, self_added) if read else OmegaConf.create({})
        return node

    setattr(defaults_list, name, create_if_read)
    try:
        yield
    finally:
        setattr(defaults_list, name, create)


@contextmanager
def initialized(conf: Path, extensions: Path | None) -> Iterator[None]:
    """Initialize Hydra as its command line does, also within another program that uses Hydra.

    Args:
        conf: the folder of the primary configuration.
        extensions: a folder of further groups and values, or None.
    """
    with (
        _ONE_AT_A_TIME,
        _own_state(),
        _choices_only_for_interpolations(),
        hydra.initialize_config_dir(str(conf), **VERSION_BASE),
    ):
        instance = GlobalHydra.instance().hydra
        assert instance is not None, "initialize_config_dir creates it"
        search_path = instance.config_loader.get_search_path()
        if extensions is not None:
            search_path.prepend("command-line", f"file://{extensions}", SearchPathQuery(provider="schema"))
        instance.config_loader = _Loader(search_path)
        yield


def run_main(conf: Path, function: TaskFunction) -> None:
    """Run Hydra's own program with the arguments of `sys.argv`."""
    hydra.main(config_path=str(conf), config_name="config", **VERSION_BASE)(function)()


def run_multirun(settings: Sequence[str], function: TaskFunction) -> None:
    """Run the jobs of a multirun with Hydra's sweeper and launcher, as `hydra.main` does.

    Hydra composes the whole configuration for each job and twice for the multirun; here `compose` does. Must be called
    within `initialized`.
    """
    loader = find_config_loader()
    assert loader is not None, "called within initialized"
    node = compose([*settings, "hydra.mode=MULTIRUN"], RunMode.MULTIRUN)
    configure_log(node.hydra.hydra_logging, node.hydra.verbose)
    callbacks = Callbacks(node)
    callbacks.on_multirun_start(config=node, config_name="config")
    context = HydraContext(config_loader=_JobLoader(loader.get_search_path()), callbacks=callbacks)
    sweeper = Plugins.instance().instantiate_sweeper(
        config=node, hydra_context=context, task_function=function
    )
    sweeper.sweep(arguments=list(node.hydra.overrides.task))
    callbacks.on_multirun_end(config=node, config_name="config")


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
