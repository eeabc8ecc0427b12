"""`hydra.job.chdir=true`: the input paths of a job are those of the directory in which the command was started."""

import contextlib
import os
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, read_write

from seq2seq_lab.config import schema as configuration
from seq2seq_lab.config.foreign import PATH_NAMES, texts
from seq2seq_lab.config.job_hash import without_hydra

# Environment variables that name folders of input.
VARIABLES = ("SEQ2SEQ_LAB_CACHE", "XDG_CACHE_HOME", "XDG_STATE_HOME", "HF_HOME")
# Settings that can be a name or an address instead of a path.
NAMES_OR_PATHS = frozenset(("hub", "url"))


def make_absolute(node: DictConfig) -> bool:
    """Make the input paths of a configuration and of the environment absolute if Hydra has changed the directory.

    Must be called in a job of Hydra. These are the paths of the package's own settings, and other texts that are the path
    of an existing file or folder.

    Returns:
        whether Hydra has changed the directory.
    """
    start = Path(HydraConfig.get().runtime.cwd)
    if Path.cwd() == start:
        return False
    with contextlib.chdir(start), read_write(node):
        for variable in VARIABLES:
            if value := os.environ.get(variable):
                os.environ[variable] = str(_absolute(value))
        plain = configuration.plain(without_hydra(node))
        for key, value in texts(plain, ""):
            names = key.split(".")
            slot = plain["metric"].get(names[1]) if names[0] == "metric" else plain[names[0]]
            target = slot.get("_target_", "") if isinstance(slot, dict) else ""
            is_custom = bool(target) and not target.startswith("seq2seq_lab.")
            if _is_input(names, value, is_custom):
                OmegaConf.update(node, key, str(_absolute(value)))
    return True


def _absolute(value: str) -> Path:
    return Path(value).expanduser().absolute()


def _is_input(names: list[str], value: str, is_custom: bool) -> bool:
    """Return whether a setting is an input path.

    Args:
        names: the parts of its dotted key.
        is_custom: whether it is a setting of a custom component.
    """
    if names[0] == "init_from" or names[-1] == "cache_dir":
        return True
    if names[0] in configuration.SLOTS or names[0] in ("embedding", "metric"):
        is_named = not PATH_NAMES.isdisjoint(names[1:])
        if is_named and not is_custom and NAMES_OR_PATHS.isdisjoint(names):
            return True
        looks_like_path = os.sep in value or Path(value).suffix != ""
        return names[-1] != "_target_" and (is_named or looks_like_path) and _exists(value)
    return False


def _exists(value: str) -> bool:
    try:
        return _absolute(value).exists()
    except (OSError, RuntimeError, ValueError):  # a long text, an unknown user, or a null character
        return False
