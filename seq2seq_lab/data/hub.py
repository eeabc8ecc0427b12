"""Data sets of the Hugging Face hub, and local folders in their layout."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seq2seq_lab.data.download import check_reachable
from seq2seq_lab.data.progress import progress
from seq2seq_lab.data.tables import candidate, check_columns
from seq2seq_lab.data.text import SPLITS, OnBadPair, SplitName, usable_pairs
from seq2seq_lab.errors import UserError

_BATCH = 1000  # rows converted at a time
_NAMES: dict[SplitName, tuple[str, ...]] = {split: (split,) for split in SPLITS}
_NAMES["validation"] = ("validation", "val", "dev")


def read_hub(
    hub: str,
    subset: str | None,
    columns: tuple[str, str],
    *,
    on_bad_pair: OnBadPair,
    counts: Counter[str],
    remedy: str,
) -> dict[SplitName, Iterator[tuple[str, str]]]:
    """Return two columns of each split of a data set; validation and test may be missing.

    The data set is read from a local folder, the cache or the hub, in this order. The columns of nested values have
    dotted names. Raises `UserError` with `remedy` if the data set, the split train or a column does not exist.
    """
    splits = _load_splits(hub, subset, remedy)
    streams: dict[SplitName, Iterator[tuple[str, str]]] = {}
    for split, names in _NAMES.items():
        name = next((name for name in names if name in splits), None)
        if name is not None:
            place = f"{hub} {name}"
            check_columns(f"dataset.hub={place}", columns, splits[name].column_names, remedy)
            streams[split] = usable_pairs(
                _candidates(splits[name], place, columns), place, on_bad_pair, counts
            )
    if "train" not in streams:
        raise UserError(f"dataset.hub={hub} has no split train; it has {', '.join(splits)}. {remedy}")
    return streams


def _load_splits(hub: str, subset: str | None, remedy: str) -> Any:
    """Return the splits of a data set by name."""
    if not Path(hub).expanduser().is_dir() and not re.fullmatch(r"[\w.-]+/[\w.-]+", hub):
        raise UserError(f"dataset.hub={hub} is neither a folder nor a data set name OWNER/NAME. {remedy}")

    import datasets

    given = f"dataset.hub={hub}" if subset is None else f"dataset.hub={hub}, dataset.hub_config={subset}"
    try:
        return _load(hub, subset, given, remedy).flatten()
    except UserError:
        raise
    # ValueError: the subset does not exist.
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise UserError(f"{given} cannot be loaded: {error}. {remedy}") from error


def _load(hub: str, subset: str | None, given: str, remedy: str) -> Any:
    import datasets
    from huggingface_hub import constants

    folder = Path(hub).expanduser()
    if folder.is_dir():
        return datasets.load_dataset(str(folder), subset)
    was_offline = datasets.config.HF_HUB_OFFLINE
    # Offline, the client reads only its cache. Online, it first tries the network for 23 s.
    datasets.config.HF_HUB_OFFLINE = True
    try:
        return datasets.load_dataset(hub, subset)
    except (ConnectionError, ValueError) as error:
        if was_offline or constants.HF_HUB_OFFLINE:
            raise UserError(
                f"{given} is not in the cache, and HF_HUB_OFFLINE disables the network. {remedy}"
            ) from error
    finally:
        datasets.config.HF_HUB_OFFLINE = was_offline
    check_reachable(constants.ENDPOINT, f"{given} is not in the cache. {remedy}")
    return datasets.load_dataset(hub, subset)


def _candidates(split: Any, name: str, columns: tuple[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield two columns of a split as candidates of `usable_pairs`."""
    rows = split.select_columns(list(dict.fromkeys(columns)))
    number = 0
    for batch in progress(rows.iter(_BATCH), f"Reading {name}", -(-len(rows) // _BATCH)):
        for values in zip(*(batch[column] for column in columns), strict=True):
            number += 1
            yield candidate(f"{name} row {number}", columns, values)
