"""What `run.json` and `result.json` record of a run."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seq2seq_lab.config import foreign
from seq2seq_lab.config.run_folder import cover, folder_marks, read_result, write_covered
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import finite, set_file_aside
from seq2seq_lab.models.embedding import count_trained
from seq2seq_lab.runtime.device import peak_memory
from seq2seq_lab.tracking import METRICS_FILE
from seq2seq_lab.training import provenance
from seq2seq_lab.training.schedules import differ_before
from seq2seq_lab.training.trainer import Trainer

log = logging.getLogger(__name__)

RESULT_FORMAT = 1
NO_PROVENANCE = (
    "format",
    "choices",
    "overrides",
    "run_id",
    "folder",
    "copy_of",
    foreign.INPUTS,
)  # in run.json, not in result.json


def resumed_record(
    folder: Path, record: Mapping[str, Any], now: Mapping[str, Any], newest: str
) -> dict[str, Any]:
    """Return the `run.json` of a resumed run: the original record with the differences from now.

    The names of the parts that differ are added to "changed"; a different machine is added to "resumed_on". A copy of the
    folder of a run becomes another run: it has no id yet, and "copy_of" names the original.

    Args:
        newest: the name of the checkpoint from which it is resumed.

    Raises:
        UserError: the data differ.
    """
    differing = provenance.differences({**record, "changed": []}, now)
    if "data" in differing:
        raise UserError(
            f"resume={folder}: the run started with other {differing['data']}. Restore the data, or start a new run from "
            f"its weights with init_from={folder}."
        )
    for what in differing.values():
        log.warning("Changed since the run started: %s.", what)
    changed = sorted({*record.get("changed", ()), *differing})
    machines = list(record.get("resumed_on", ()))
    if now["machine"] not in (record["machine"], *machines):
        machines.append(now["machine"])
    copied = {}
    if (marks := record.get("folder")) and set(marks).isdisjoint(folder_marks(folder)):
        origin = record.get("run_id")
        log.info("%s is a copy of the run %s. If it trains further, it gets a new id.", folder, origin or "")
        copied = {"run_id": None, "copy_of": {"run_id": origin, "checkpoint": newest}}
    return {
        **record,
        **({"changed": changed} if changed else {}),
        **({"resumed_on": machines} if machines else {}),
        **copied,
    }


def with_extension(folder: Path, record: Mapping[str, Any], trainer: Trainer) -> dict[str, Any]:
    """Return the `run.json` of a run that is resumed, with its change of length if the rates so far were of the old length.

    The change is added to "extended": the step, and the number of steps of the run before and after.
    """
    # The file has the settings of the last start; those of this start are not yet written.
    before = foreign.load_config(folder / "config.yaml").trainer
    step = trainer.state.step
    totals = trainer.steps_of(before.max_epochs, before.get("max_steps")), trainer.total
    if totals[0] == totals[1] or not differ_before(trainer.step.schedule, step, totals, trainer.state.scores):
        return dict(record)
    log.warning(
        "The run had a length of %s steps and now has %s. The learning rates of its first %s steps stay those of the first "
        "length.",
        *(f"{count:,}" for count in (*totals, step)),
    )
    return {**record, "extended": [*record.get("extended", ()), {"step": step, "steps": [*totals]}]}


def training_result(trainer: Trainer, start_record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `result.json` records of the training. The throughput of a run shorter than the warm-up is null."""
    state, unit = trainer.state, trainer.task.unit
    device, ranks = trainer.compute.device, trainer.compute.ranks
    parameters = list(trainer.model.parameters())
    return {
        "format": RESULT_FORMAT,
        "status": "finished" if trainer.guards.divergence(state) is None else "diverged",
        "num_parameters": sum(parameter.numel() for parameter in parameters),
        "num_trainable_parameters": count_trained(parameters, trainer.model.modules()),
        "best_checkpoint": state.best,
        "monitor": trainer.settings.monitor,
        **({"lost_checkpoints": state.lost} if state.lost else {}),
        "steps": state.step,
        "train/skipped_steps": state.skipped,
        "unit": unit,
        f"train/{unit}_per_second": round(state.units_per_second, 1) or None,
        "train/seconds": round(state.seconds, 1),
        "val/seconds": round(state.validation_seconds, 1),
        "peak_memory_mib": round(max(ranks.gather(peak_memory(device))) / 2**20),
        "device": device.type,
        "precision": trainer.compute.precision.value,
        "test_precision": start_record["test_precision"],
        "ranks": ranks.size,
        "provenance": {name: value for name, value in start_record.items() if name not in NO_PROVENANCE},
    }


def remove_result(folder: Path) -> None:
    """Remove the `result.json` of a run that continues or starts again; a damaged one is set aside."""
    result = read_result(folder)
    if result.get("status") == "damaged":
        set_file_aside(folder / "result.json", f"is not used ({result['error']})")
    (folder / "result.json").unlink(missing_ok=True)


def write_result(folder: Path, result: Mapping[str, Any]) -> None:
    """Write `result.json`. Infinities and NaN are written as null."""
    text = json.dumps(finite(result), indent=2, ensure_ascii=False, allow_nan=False)
    found = [*folder.glob("*.jsonl"), *folder.glob("attention/*.jsonl")]
    tables = [str(path.relative_to(folder)) for path in found if path.name != METRICS_FILE]
    cover(folder, "result", ["result.json", "scored", *tables])
    write_covered(folder, "result", "result.json", text + "\n")
