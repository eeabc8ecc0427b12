"""Measures training steps and search of JoeyNMT on the data of a benchmark, in an environment that has JoeyNMT.

    PYTHON benchmarks/joeynmt_worker.py DATA.npz SETTINGS.json

`benchmarks.training --joeynmt PYTHON` and `benchmarks.decoding --joeynmt PYTHON` start it. It needs torch, numpy and joeynmt
2.3, and nothing of this package. The model is the recurrent one of JoeyNMT: a bidirectional GRU, additive attention after
the step of the decoder's GRU, and input feeding. A training step uses JoeyNMT's `Batch`, `TrainManager._train_step`, its
clipping and its Adam, in float32. A line "BEAM FIRST COUNT" on standard input requests the translation of COUNT batches from
batch FIRST on by `joeynmt.search` (1: greedy), where each output has the length of the batch's longest source; if BEAM is 0,
COUNT training steps. The answer is a line of JSON on standard output. The process waits between requests, and ends with its
input.
"""

import json
import resource
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from joeynmt.batch import Batch  # type: ignore[import-not-found]
from joeynmt.config import parse_train_args  # type: ignore[import-not-found]
from joeynmt.model import build_model  # type: ignore[import-not-found]
from joeynmt.search import search  # type: ignore[import-not-found]
from joeynmt.training import TrainManager  # type: ignore[import-not-found]
from joeynmt.vocabulary import Vocabulary  # type: ignore[import-not-found]

PAD, EOS = 1, 3  # of the data and of JoeyNMT
SPECIAL: dict[str, Any] = {
    **{"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"},
    **{"unk_id": 0, "pad_id": PAD, "bos_id": 2, "eos_id": EOS},
    **{"sep_token": None, "sep_id": None, "lang_tags": []},
}


def main() -> None:
    """Build the model, report the number of its parameters, and answer requests."""
    arrays = np.load(sys.argv[1])
    data = {name: arrays[name] for name in arrays.files}
    settings = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    torch.set_num_threads(settings["threads"])
    torch.manual_seed(settings["seed"])
    device = torch.device(settings["device"])
    with tempfile.TemporaryDirectory() as folder:
        manager = train_manager(settings, device, Path(folder))
        answer({"parameters": sum(parameter.numel() for parameter in manager.model.parameters())})
        for line in sys.stdin:
            beam, first, count = map(int, line.split())
            batches = (make_batch(data, number, device) for number in range(first - 1, first + count))
            answer(translate(manager, batches, beam) if beam else train(manager, batches))
        manager.tb_writer.close()


def train_manager(settings: dict[str, Any], device: torch.device, folder: Path) -> TrainManager:
    """Return the trainer of JoeyNMT with its recurrent model, as its configuration files build it."""
    source, target = (
        Vocabulary(
            [f"{side}{i}" for i in range(settings[f"{side}_vocabulary"] - 4)], SimpleNamespace(**SPECIAL)
        )
        for side in ("source", "target")
    )
    part = {
        "type": "recurrent",
        "rnn_type": "gru",
        "embeddings": {"embedding_dim": settings["embedding"], "dropout": settings["dropout"]},
        "hidden_size": settings["hidden"],
        "num_layers": 1,
        "dropout": 0.0,
    }
    decoder = {"attention": "bahdanau", "init_hidden": "bridge", "input_feeding": True, "hidden_dropout": 0.0}
    model = build_model(
        {"encoder": {**part, "bidirectional": True}, "decoder": {**part, **decoder}}, source, target
    )
    model.loss_function = ("crossentropy", 0.0)
    training = {
        "optimizer": "adam",
        "learning_rate": settings["learning_rate"],
        "clip_grad_norm": settings["clip_norm"],
        "normalization": "tokens",
        "scheduling": "exponential",  # per epoch: no effect here; its plateau schedule needs an older torch
        "batch_type": "sentence",
        "batch_size": settings["batch_size"],
        "early_stopping_metric": "loss",
    }
    return TrainManager(
        rank=0,
        model=model.to(device),
        model_dir=folder,
        device=device,
        autocast={"device_type": device.type, "enabled": False},
        train_args=parse_train_args(training),
    )


def train(manager: TrainManager, batches: Iterator[Batch]) -> dict[str, float]:
    """Train on the batches after the first, which is not measured."""
    train_step(manager, next(batches))
    tokens, start = 0, now()
    for batch in batches:
        train_step(manager, batch)
        tokens += batch.ntokens
    return {"tokens": tokens, "seconds": now() - start, "peak_bytes": peak_memory()}


def translate(manager: TrainManager, batches: Iterator[Batch], beam: int) -> dict[str, float]:
    """Translate the batches after the first; a beam of 1 is greedy search."""
    model = manager.model.eval()
    next(batches)
    tokens, start = 0, now()
    for batch in batches:
        batch.sort_by_src_length()  # as `joeynmt.prediction` does
        longest = int(batch.src_length.max())
        outputs, _, _ = search(
            model=model,
            batch=batch,
            beam_size=beam,
            beam_alpha=0.6 if beam > 1 else -1,
            max_output_length=longest,
            min_output_length=longest,
        )
        assert outputs.shape == (len(batch.src), longest), outputs.shape
        tokens += int(batch.src_length.sum())
    return {"tokens": tokens, "seconds": now() - start, "peak_bytes": peak_memory()}


def now() -> float:
    """Return the time at which a GPU has computed everything."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return perf_counter()


def peak_memory() -> int:
    """Return the peak memory of the GPU or of the process in bytes."""
    return torch.cuda.max_memory_allocated() or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def train_step(manager: TrainManager, batch: Batch) -> None:
    """Train one step, as `TrainManager.train_and_validate` does."""
    manager.model.train()
    manager._train_step(batch)
    manager.clip_grad_fun(parameters=manager.model.parameters())
    if manager.scaler is None:
        manager.optimizer.step()
    else:
        manager.scaler.step(manager.optimizer)
        manager.scaler.update()
    manager.model.zero_grad()


def make_batch(data: dict[str, Any], number: int, device: torch.device) -> Batch:
    """Return a batch, padded on both sides; after the last batch the first one follows."""
    index = data["batches"][number % len(data["batches"])]
    source, lengths = padded(data["source_tokens"], data["source_offsets"], index)
    target, _ = padded(data["target_tokens"], data["target_offsets"], index)
    return Batch(source, lengths, None, target, None, torch.from_numpy(index), device, PAD, EOS)


def padded(tokens: Any, offsets: Any, index: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (ids, padded to the longest sentence; lengths)."""
    lengths = offsets[index + 1] - offsets[index]
    rows = np.full((len(index), int(lengths.max())), PAD, dtype=np.int64)
    for row, start, length in zip(rows, offsets[index], lengths, strict=True):
        row[:length] = tokens[start : start + length]
    return torch.from_numpy(rows), torch.from_numpy(lengths)


def answer(values: dict[str, float]) -> None:
    """Print an answer as one line of JSON."""
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    main()
