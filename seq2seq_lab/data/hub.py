"""Data sets of the Hugging Face hub, or local folders in their layout."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seq2seq_lab.data.download import check_reachable
from seq2seq_lab.data.progress import progress
from seq2seq_lab.data.tables import candidate
from seq2seq_lab.errors import UserError

_BATCH = 1000  # rows converted at a time


def load_splits(hub: str, subset: str | None, remedy: str) -> Any:
    """Return the splits of a data set by name, nested columns as dotted names.

    They are a local folder's, else the cached copy's, else the hub's. Raises `UserError` with `remedy` where
    none can be had.
    """
    if not Path(hub).expanduser().is_dir() and not re.fullmatch(r"[\w.-]+/[\w.-]+", hub):
        raise UserError(f"dataset.hub={hub} is neither a folder nor a data set OWNER/NAME. {remedy}")

    import datasets

    given = f"dataset.hub={hub}" if subset is None else f"dataset.hub={hub}, dataset.hub_config={subset}"
    try:
        return _load(hub, subset, given, remedy).flatten()
    except UserError:
        raise
    # ValueError is a sub-set that is not there.
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise UserError(f"{given} cannot be loaded: {error}. {remedy}") from error


def _load(hub: str, subset: str | None, given: str, remedy: str) -> Any:
    import datasets
    from huggingface_hub import constants

    folder = Path(hub).expanduser()
    if folder.is_dir():
        return datasets.load_dataset(str(folder), subset)
    was_offline = datasets.config.HF_HUB_OFFLINE
    # Offline the client looks in its cache alone, at once; online it tries the network for 23 s first.
    datasets.config.HF_HUB_OFFLINE = True
    try:
        return datasets.load_dataset(hub, subset)
    except (ConnectionError, ValueError) as error:
        if was_offline or constants.HF_HUB_OFFLINE:
            raise UserError(
                f"{given} is not in the cache, and HF_HUB_OFFLINE forbids the network. {remedy}"
            ) from error
    finally:
        datasets.config.HF_HUB_OFFLINE = was_offline
    check_reachable(constants.ENDPOINT, f"{given} is not in the cache either. {remedy}")
    return datasets.load_dataset(hub, subset)


def hub_pairs(split: Any, name: str, columns: tuple[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield two columns of one of the splits of `load_splits` as candidates for `usable_pairs`."""
    rows = split.select_columns(list(dict.fromkeys(columns)))
    number = 0
    for batch in progress(rows.iter(_BATCH), f"Reading {name}", -(-len(rows) // _BATCH)):
        for values in zip(*(batch[column] for column in columns), strict=True):
            number += 1
            yield candidate(f"{name} row {number}", columns, values)
