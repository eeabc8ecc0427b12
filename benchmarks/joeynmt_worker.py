"""Times JoeyNMT's own training step and search on the data of a benchmark, in an environment that has JoeyNMT.

    PYTHON benchmarks/joeynmt_worker.py DATA.npz SETTINGS.json

is started by `benchmarks.training --joeynmt PYTHON` and `benchmarks.decoding --joeynmt PYTHON`; it needs torch, numpy and
joeynmt 2.3, and nothing of this package. The model is JoeyNMT's recurrent one: a bidirectional GRU, additive attention
after the decoder's GRU, whose attention vector is fed into the next step, and an output layer over that vector. A step is
JoeyNMT's: `Batch`, `TrainManager._train_step`, its clipping and its Adam, in float32. A line "FIRST COUNT" on standard
input asks for so many updates from the given batch on, "FIRST COUNT BEAM" for the translation of so many batches by
`joeynmt.search` (1: greedy), each output as long as the batch's longest source; a line of JSON on standard output answers.
In between the process waits without computing, and it ends when its input does.
"""

import json
import resource
import sys
import tempfile
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

PAD, EOS = 1, 3  # the data's numbers of the special tokens, and JoeyNMT's
SPECIAL: dict[str, Any] = {
    **{
        "unk_token": "<unk>",
        "pad_token": "<pad>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "sep_token": None,
    },
    **{"unk_id": 0, "pad_id": PAD, "bos_id": 2, "eos_id": EOS, "sep_id": None, "lang_tags": []},
}


def main() -> None:
    """Build the model, say how many parameters it has, and answer requests for updates."""
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
            first, count, *beam = map(int, line.split())
            if beam:
                answer(translate(manager, data, first, count, beam[0], device))
            else:
                answer(measure(manager, data, first, count, device))
        manager.tb_writer.close()


def train_manager(settings: dict[str, Any], device: torch.device, folder: Path) -> TrainManager:
    """Return JoeyNMT's trainer with its recurrent model of the sizes given, as its configuration files build it."""
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
        "scheduling": "exponential",  # by epochs: of no effect here; torch no longer takes its plateau's arguments
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


def measure(
    manager: TrainManager, data: dict[str, Any], first: int, count: int, device: torch.device
) -> dict[str, float]:
    """Do `count` updates from batch `first` on, after one uncounted: target tokens, seconds, peak memory in bytes."""
    batches = data["batches"]
    update(manager, make_batch(data, batches[(first - 1) % len(batches)], device))
    tokens = 0
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = perf_counter()
    for number in range(first, first + count):
        batch = make_batch(data, batches[number % len(batches)], device)
        update(manager, batch)
        tokens += batch.ntokens
    if device.type == "cuda":
        torch.cuda.synchronize()
    seconds = perf_counter() - start
    return {"tokens": tokens, "seconds": seconds, "peak_bytes": peak_memory()}


def translate(
    manager: TrainManager, data: dict[str, Any], first: int, count: int, beam: int, device: torch.device
) -> dict[str, float]:
    """Translate `count` batches from batch `first` on: target tokens asked for, seconds, peak memory in bytes."""
    model, batches = manager.model.eval(), data["batches"]
    tokens, start = 0, perf_counter()
    for number in range(first, first + count):
        batch = make_batch(data, batches[number % len(batches)], device)
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
    if device.type == "cuda":
        torch.cuda.synchronize()
    return {"tokens": tokens, "seconds": perf_counter() - start, "peak_bytes": peak_memory()}


def peak_memory() -> int:
    """Return the most memory so far, in bytes: the GPU's, or the process's."""
    return torch.cuda.max_memory_allocated() or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def update(manager: TrainManager, batch: Batch) -> None:
    """Do one update as `TrainManager.train_and_validate` does."""
    manager.model.train()
    manager._train_step(batch)
    manager.clip_grad_fun(parameters=manager.model.parameters())
    if manager.scaler is None:
        manager.optimizer.step()
    else:
        manager.scaler.step(manager.optimizer)
        manager.scaler.update()
    manager.model.zero_grad()


def make_batch(data: dict[str, Any], index: Any, device: torch.device) -> Batch:
    """Return the batch of the given sentences, padded on both sides."""
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
    """Write one line of JSON for whoever asked."""
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    main()
