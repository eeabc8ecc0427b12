"""Reads the offline record of a W&B run back, for tests."""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_BLOCK = 32_768


@dataclass
class OfflineRun:
    """The content of one `run-*.wandb` file. Keys of several levels are joined with dots."""

    path: Path
    run_id: str = ""
    project: str = ""
    group: str = ""
    job_type: str = ""
    name: str = ""
    host: str = ""
    notes: str = ""
    tags: list[str] = field(default_factory=list)
    git_commit: str = ""
    resumed: bool = False
    config: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)  # name or glob -> MetricRecord
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    artifacts: list[Any] = field(default_factory=list)  # ArtifactRecord
    kinds: set[str] = field(default_factory=set)  # of records
    exit_code: int | None = None

    def values(self, name: str) -> list[Any]:
        """Return the values logged as `name`, in order."""
        return [row[name] for row in self.history if name in row]


def read_offline_runs(folder: Path) -> list[OfflineRun]:
    """Return the offline records below a run folder, oldest first (a resumed run has several)."""
    return [_read(path) for path in sorted(folder.glob("wandb/offline-run-*/run-*.wandb"))]


def read_offline_run(folder: Path) -> OfflineRun:
    """Return the one offline record below a run folder."""
    (run,) = read_offline_runs(folder)
    return run


def _read(path: Path) -> OfflineRun:
    from wandb.proto.wandb_internal_pb2 import Record

    run = OfflineRun(path)
    for data in _records(path.read_bytes()):
        record = Record.FromString(data)
        kind = record.WhichOneof("record_type")
        run.kinds.add(kind)
        if kind == "run":
            run.run_id, run.project, run.git_commit = (
                record.run.run_id,
                record.run.project,
                record.run.git.commit,
            )
            run.group, run.job_type, run.name = (
                record.run.run_group,
                record.run.job_type,
                record.run.display_name,
            )
            run.resumed = record.run.resume
            run.host = record.run.host
            run.notes = record.run.notes or run.notes
            run.tags = list(record.run.tags)
            run.config |= _items(record.run.config.update)
        elif kind == "config":
            run.config |= _items(record.config.update)
        elif kind == "metric":
            run.metrics[record.metric.name or record.metric.glob_name] = record.metric
        elif kind == "history":
            run.history.append(_items(record.history.item))
        elif kind == "summary":
            run.summary |= _items(record.summary.update)
        elif kind == "files":
            run.files += [file.path for file in record.files.files]
        elif kind == "artifact":
            run.artifacts.append(record.artifact)
        elif kind == "exit":
            run.exit_code = record.exit.exit_code
    return run


def _items(items: Any) -> dict[str, Any]:
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}


def _records(data: bytes) -> Iterator[bytes]:
    """Yield the records of a LevelDB log whose first block begins with W&B's 7 bytes."""
    assert data[:4] == b":W&B"
    position, record = 7, b""
    while position + 7 <= len(data):
        left_in_block = _BLOCK - position % _BLOCK
        if left_in_block < 7:  # too small for a chunk's header: padding
            position += left_in_block
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        record += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, last (2 is first, 3 middle)
            yield record
            record = b""
