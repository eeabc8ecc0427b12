"""Data sets of the Hugging Face hub, and local folders in their layout."""

import gzip
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from seq2seq_lab.data.download import check_reachable
from seq2seq_lab.data.headers import check_columns
from seq2seq_lab.data.local_files import UNPACKING_ERRORS, plain_suffix
from seq2seq_lab.data.progress import progress
from seq2seq_lab.data.tables import SUFFIXES, Pairs, Reader, Rows, candidate, value_of, with_class_names
from seq2seq_lab.data.text import SPLITS, OnBadPair, SplitName, usable_pairs
from seq2seq_lab.errors import STORAGE_REMEDIES, UserError

_BATCH = 1000  # rows converted at a time
_NAMES: dict[SplitName, tuple[str, ...]] = {split: (split,) for split in SPLITS}
_NAMES["validation"] = ("validation", "val", "dev")

Table = Callable[[Counter[str]], Rows]
"""Returns the rows of a table; see `Reader.rows`."""


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
    streams: dict[SplitName, Iterator[tuple[str, str]]] = {}
    for split, (place, found) in _open(hub, subset, None, remedy, reader).items():
        if isinstance(found, list):
            pairs = _file_pairs(found, reader, columns, counts)
        else:
            check_columns(f"dataset.hub={place}", columns, found.column_names, remedy)
            pairs = _candidates(found, place, columns)
        streams[split] = usable_pairs(pairs, place, on_bad_pair, counts)
    return streams


def hub_tables(
    hub: str,
    subset: str | None,
    names: Mapping[SplitName, str] | None,
    columns: Sequence[str],
    *,
    remedy: str,
    reader: Reader,
) -> dict[SplitName, list[Table]]:
    """Return the tables of each split of a data set; see `read_hub`.

    Args:
        names: the names of the splits in the data set; None: train, validation (or val, dev) and test, if it has them.
        columns: the columns that the rows have. Indices of classes are replaced by the names of the classes.
    """
    tables: dict[SplitName, list[Table]] = {}
    for split, (place, found) in _open(hub, subset, names, remedy, reader).items():
        if isinstance(found, list):
            tables[split] = [partial(reader.rows, file) for file in found]
        else:
            check_columns(f"dataset.hub={place}", columns, found.column_names, remedy)
            tables[split] = [partial(_rows, found.select_columns([*dict.fromkeys(columns)]), place)]
    return tables


def _open(
    hub: str, subset: str | None, names: Mapping[SplitName, str] | None, remedy: str, reader: Reader
) -> dict[SplitName, tuple[str, Any]]:
    """Return the place of each split for messages, and its list of files in a local folder or its rows."""
    folder = Path(hub).expanduser()
    given = f"dataset.hub={hub}" if subset is None else f"dataset.hub={hub}, dataset.hub_config={subset}"
    local = _split_files(folder, subset, given, remedy, reader) if folder.is_dir() else None
    splits: Any = _load_splits(hub, subset, given, remedy) if local is None else local
    if names is None:
        found = {
            split: next((one for one in known if one in splits), None) for split, known in _NAMES.items()
        }
        names = {split: name for split, name in found.items() if name is not None or split == "train"}  # type: ignore[misc]
    for split, name in names.items():
        if name not in splits:
            raise UserError(
                f"dataset.hub={hub} has no split {name or split}; it has {', '.join(map(str, splits))}. {remedy}"
            )
    return {split: (f"{hub} {name}", splits[name]) for split, name in names.items()}


def _rows(split: Any, place: str, counts: Counter[str]) -> Rows:
    """Yield the rows of a split of the library `datasets`."""
    names = {column: one.names for column, one in split.features.items() if hasattr(one, "names")}
    batches = progress(split.iter(_BATCH), f"Reading {place}", -(-len(split) // _BATCH))
    rows = (
        dict(zip(batch, values, strict=True))
        for batch in batches
        for values in zip(*batch.values(), strict=True)
    )
    for index, row in enumerate(rows, start=1):
        yield f"{place} row {index}", with_class_names(row, names), ""


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
        raise UserError(f"{given} cannot be loaded: {str(error).rstrip('.')}. {remedy}") from error
    files = {str(split): [Path(file) for file in names] for split, names in found.items()}
    for file in itertools.chain.from_iterable(files.values()):
        if reader.format == "auto" and plain_suffix(file) not in SUFFIXES:
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
    import pyarrow
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # of httpx or httpx2

    # ValueError: the subset does not exist. RuntimeError: of hf_xet, and for data sets with a program.
    of_python = (OSError, ValueError, RuntimeError, *UNPACKING_ERRORS)
    of_libraries = (HTTPError, datasets.exceptions.DatasetsError, pyarrow.ArrowException)
    try:
        return _load(hub, subset, given, remedy).flatten()
    except UserError as error:
        raise UserError(f"{error} {Path.cwd()} has no folder {hub}.") from error
    except (*of_python, *of_libraries) as error:
        raise UserError(f"{given} cannot be loaded: {_reason(error, hub, remedy)}") from error


def _reason(error: Exception, hub: str, remedy: str) -> str:
    """Return why a data set of the hub cannot be loaded, and what to do.

    Args:
        remedy: for errors that are not of the connection, the disk or the cache.
    """
    import datasets
    from huggingface_hub.errors import HfHubHTTPError, HTTPError  # type: ignore[attr-defined]

    local = "or use a local copy with dataset.hub=FOLDER."
    copies = " and ".join(str(folder) for folder in _cached_copies(hub) if folder.is_dir())
    cause = error.__cause__ if isinstance(error, datasets.exceptions.DatasetGenerationError) else None
    failed = cause or error
    text = str(failed).rstrip(".")
    if isinstance(error, ConnectionError | HTTPError) and not isinstance(error, HfHubHTTPError):
        return f"the connection broke ({text}); run the command again, {local}"
    if isinstance(failed, OSError) and failed.errno in STORAGE_REMEDIES:
        return f"{text}. {STORAGE_REMEDIES[failed.errno]}."
    if copies and _is_damage(error):
        return f"{text}. If the cached copy is damaged, delete {copies} and run the command again, {local}"
    return f"{text}. {Path.cwd()} has no folder {hub}. {remedy}"


def _cached_copies(hub: str) -> list[Path]:
    """Return the folders that contain the downloaded files of a data set and its tables."""
    import datasets
    from huggingface_hub import constants

    return [
        Path(constants.HF_HUB_CACHE, f"datasets--{hub.replace('/', '--')}"),
        Path(datasets.config.HF_DATASETS_CACHE, hub.replace("/", "___")),
    ]


def _is_damage(error: Exception) -> bool:
    """Return whether an error is about the contents of a file of the cache."""
    import datasets
    import pyarrow

    if isinstance(error, datasets.exceptions.DatasetGenerationCastError):  # the columns of files differ
        return False
    generation = datasets.exceptions.DatasetGenerationError
    kinds = (generation, pyarrow.ArrowException, json.JSONDecodeError, gzip.BadGzipFile, *UNPACKING_ERRORS)
    # pyarrow also raises OSError itself. The subclasses are about access and the network.
    return isinstance(error, kinds) or type(error) is OSError


def _load(hub: str, subset: str | None, given: str, remedy: str) -> Any:
    import datasets
    from huggingface_hub import constants

    was_offline = datasets.config.HF_HUB_OFFLINE
    # Offline, the client reads only its cache. Online, it first tries the network for 23 s.
    datasets.config.HF_HUB_OFFLINE = True
    try:
        return datasets.load_dataset(hub, subset)
    except (ConnectionError, ValueError) as error:
        if _is_damage(error):
            raise
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
    for location, row, _ in _rows(split.select_columns([*dict.fromkeys(columns)]), name, Counter()):
        values = [value_of(row, column) for column in columns]
        source, target, problem = candidate(location, columns, values)
        if None in values:
            problem += (
                " (the library datasets reads empty cells and null, NA and nan of a CSV as None; to read them as text, "
                "download the files and set dataset.train=FILE)"
            )
        yield source, target, problem
