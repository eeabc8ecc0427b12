"""Data sets of the Hugging Face hub, and local folders in their layout."""

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from seq2seq_lab.data.download import check_reachable
from seq2seq_lab.data.headers import check_columns
from seq2seq_lab.data.local_files import plain_name
from seq2seq_lab.data.progress import progress
from seq2seq_lab.data.tables import SUFFIXES, Pairs, Reader, candidate
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
    reader: Reader,
) -> dict[SplitName, Iterator[tuple[str, str]]]:
    """Return two columns of each split of a data set; validation and test may be missing.

    A local folder is read by `reader`, any other data set from the cache or the hub, in this order. The columns of nested
    values have dotted names. Raises `UserError` with `remedy` if the data set, the split train or a column does not exist.
    """
    folder = Path(hub).expanduser()
    given = f"dataset.hub={hub}" if subset is None else f"dataset.hub={hub}, dataset.hub_config={subset}"
    local = _split_files(folder, subset, given, remedy, reader) if folder.is_dir() else None
    splits: Any = _load_splits(hub, subset, given, remedy) if local is None else local
    streams: dict[SplitName, Iterator[tuple[str, str]]] = {}
    for split, names in _NAMES.items():
        name = next((name for name in names if name in splits), None)
        if name is not None:
            place = f"{hub} {name}"
            if local is not None:
                pairs = _file_pairs(local[name], reader, columns, counts)
            else:
                check_columns(f"dataset.hub={place}", columns, splits[name].column_names, remedy)
                pairs = _candidates(splits[name], place, columns)
            streams[split] = usable_pairs(pairs, place, on_bad_pair, counts)
    if "train" not in streams:
        raise UserError(f"dataset.hub={hub} has no split train; it has {', '.join(splits)}. {remedy}")
    return streams


def _split_files(
    folder: Path, subset: str | None, given: str, remedy: str, reader: Reader
) -> dict[str, list[Path]]:
    """Return the files of each split of a local folder, as the library `datasets` finds them.

    Raises:
        UserError: the folder has no such files, or files in another format.
    """
    import datasets

    try:
        found = datasets.load_dataset_builder(str(folder), subset).config.data_files or {}
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise UserError(f"{given} cannot be loaded: {error}. {remedy}") from error
    files = {str(split): [Path(file) for file in names] for split, names in found.items()}
    for file in itertools.chain.from_iterable(files.values()):
        if reader.format == "auto" and Path(plain_name(file.name)).suffix.lower() not in SUFFIXES:
            raise UserError(
                f"{given}: {file} is not one of {', '.join(SUFFIXES)}. Convert the files. {remedy}"
            )
    return files


def _file_pairs(
    files: Sequence[Path], reader: Reader, columns: tuple[str, str], counts: Counter[str]
) -> Pairs:
    """Yield two columns of the files of a split as candidates of `usable_pairs`."""
    for file in files:
        yield from reader.pairs(file, columns, columns, counts)


def _load_splits(hub: str, subset: str | None, given: str, remedy: str) -> Any:
    """Return the splits of a data set of the hub by name."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", hub):
        raise UserError(f"dataset.hub={hub} is neither a folder nor a data set name OWNER/NAME. {remedy}")

    import datasets

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
    row = 0
    for batch in progress(rows.iter(_BATCH), f"Reading {name}", -(-len(rows) // _BATCH)):
        for values in zip(*(batch[column] for column in columns), strict=True):
            row += 1
            source, target, problem = candidate(f"{name} row {row}", columns, values)
            if None in values:
                problem += (
                    " (the library datasets reads empty cells and null, NA and nan of a CSV as None; to read them as text, \
download the files and set dataset.train=FILE)"
                )
            yield source, target, problem
