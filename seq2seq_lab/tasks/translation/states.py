"""The stored states of a run of translation on its training data."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seq2seq_lab.analysis.neighbors import (
    VERSION,
    StateKind,
    Store,
    open_store,
    selected,
    states,
    token_pairs,
    write_store,
)
from seq2seq_lab.config import foreign
from seq2seq_lab.config.run_folders import output_parent
from seq2seq_lab.data.batching import BatchMaker, Index, plan_evaluation
from seq2seq_lab.data.download import cache_folder
from seq2seq_lab.data.tokenized import TokenizedText, tokenize_text
from seq2seq_lab.errors import UserError
from seq2seq_lab.runtime.console import progress_bar
from seq2seq_lab.runtime.memory import evaluation_context


def training_states(run: Any, kind: StateKind, limit: int) -> Store:
    """Return the states of a run on its training data, which are computed and stored at the first call.

    The files are in `states` in the run folder, for the run of the package in the cache. The name of their folder follows
    from the checksums of the checkpoints, of the data and of the files of custom components.

    Args:
        run: a `LoadedTranslation`.
        limit: the largest number of states.

    Raises:
        UserError: the training data are not those of the run, or the files cannot be written.
    """
    fingerprint = str(foreign.read_opened_record(run.folder)["data"]["fingerprint"])
    followed = [VERSION, kind, limit, fingerprint, run.opening.checksums, run.precision.value]
    if codes := [one.code for one in run.opening.each if one.code]:
        followed.append(codes)
    name = hashlib.sha256(json.dumps(followed).encode()).hexdigest()[:16]
    folder = output_parent(run.folder, cache_folder(run.config.cache_dir)) / "states" / f"{kind}-{name}"
    if not folder.is_dir():
        _write(run, kind, limit, fingerprint, folder)
    return open_store(folder)


def _write(run: Any, kind: StateKind, limit: int, fingerprint: str, folder: Path) -> None:
    train, found = run.task.training_pairs()
    if found != fingerprint:
        raise UserError(
            f"{run.folder}: the training data are not those that the run was trained on (data.fingerprint in run.json). "
            f"Restore them, and open the run without changes of dataset."
        )
    every = tokenize_text(train, run.tokenizers, "train")
    lengths = (every.source.lengths if kind == "encoder" else every.target.lengths - 1).numpy()
    chosen = selected(lengths, limit)
    text = every.select(torch.from_numpy(chosen))
    sentences = [(train.source[i], train.target[i]) for i in chosen.tolist()]
    rows = [
        token_pairs(kind, source.tolist(), target.tolist())
        for source, target in zip(
            *(torch.split(side.tokens, side.lengths.tolist()) for side in (text.source, text.target)),
            strict=True,
        )
    ]
    with progress_bar("Training states") as advance:
        parts = _parts(run, kind, text, plan_evaluation(text, run.task.eval_batch_size))
        write_store(folder, sentences, rows=rows, parts=parts, all_states=int(lengths.sum()), advance=advance)


def _parts(
    run: Any, kind: StateKind, text: TokenizedText, plan: Sequence[Index]
) -> Iterator[tuple[list[int], Tensor]]:
    batches = BatchMaker(text, run.device)
    for index in plan:
        batch = batches(index)
        with torch.no_grad(), evaluation_context(batch, run.precision, run.device):
            yield index.tolist(), states(run.model, batch, kind)
