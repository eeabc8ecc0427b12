"""Translates with JoeyNMT's search, in an environment that has JoeyNMT 2.3; see `benchmarks.decoding --joeynmt`.

    PYTHON benchmarks/joeynmt_worker.py DATA.npz SETTINGS.json

needs torch, numpy and joeynmt, and nothing of this package. The model is JoeyNMT's recurrent one with random weights: a
bidirectional GRU, and additive attention after the decoder's GRU with input feeding, in float32. A line "FIRST COUNT BEAM"
on standard input translates COUNT batches from batch FIRST on with `joeynmt.search` (beam 1: greedy), each output as long
as the longest source of its batch. The first batch is translated once before, unmeasured. The answer is a line of JSON on
standard output.
"""

import json
import sys
from pathlib import Path
from time import perf_counter, process_time
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from joeynmt.batch import Batch  # type: ignore[import-not-found]
from joeynmt.model import build_model  # type: ignore[import-not-found]
from joeynmt.search import search  # type: ignore[import-not-found]
from joeynmt.vocabulary import Vocabulary  # type: ignore[import-not-found]

PAD, EOS = 1, 3  # as in the data and in JoeyNMT
SPECIAL = SimpleNamespace(
    unk_token="<unk>",
    pad_token="<pad>",
    bos_token="<s>",
    eos_token="</s>",
    sep_token=None,
    unk_id=0,
    pad_id=PAD,
    bos_id=2,
    eos_id=EOS,
    sep_id=None,
    lang_tags=[],
)


def main() -> None:
    """Build the model, write an empty answer, and answer requests."""
    arrays = np.load(sys.argv[1])
    data = {name: arrays[name] for name in arrays.files}
    settings = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    torch.set_num_threads(settings["threads"])
    device = torch.device(settings["device"])
    model = new_model(settings).to(device).eval()
    answer({})
    for line in sys.stdin:
        first, count, beam = map(int, line.split())
        answer(translate(model, data, first=first, count=count, beam=beam, device=device))


def new_model(settings: dict[str, Any]) -> Any:
    """Return JoeyNMT's recurrent model of the given sizes, as its configuration files build it."""
    source, target = (
        Vocabulary([f"{side}{i}" for i in range(settings[f"{side}_vocabulary"] - 4)], SPECIAL)
        for side in ("source", "target")
    )
    part = {
        "type": "recurrent",
        "rnn_type": "gru",
        "embeddings": {"embedding_dim": settings["embedding"]},
        "hidden_size": settings["hidden"],
        "num_layers": 1,
    }
    decoder = {"attention": "bahdanau", "init_hidden": "bridge", "input_feeding": True}
    return build_model(
        {"encoder": {**part, "bidirectional": True}, "decoder": {**part, **decoder}}, source, target
    )


def translate(
    model: Any, data: dict[str, Any], *, first: int, count: int, beam: int, device: torch.device
) -> dict[str, float]:
    """Translate `count` batches from batch `first` on: real target tokens, seconds."""
    indices = range(first, first + count)
    batches = [new_batch(data, data["batches"][index % len(data["batches"])], device) for index in indices]
    search_batch(model, batches[0], beam)
    # As `benchmarks.machine.seconds` measures the package.
    clock = process_time if device.type == "cpu" and torch.get_num_threads() == 1 else perf_counter
    start = clock()
    for batch in batches:
        search_batch(model, batch, beam)
    seconds = clock() - start
    return {"tokens": sum(int(batch.src_length.sum()) for batch in batches), "seconds": seconds}


def search_batch(model: Any, batch: Batch, beam: int) -> None:
    """Translate a batch; every output has the length of its longest source."""
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


def new_batch(data: dict[str, Any], index: Any, device: torch.device) -> Batch:
    """Return the batch of the given sentences, padded and sorted by length as in `joeynmt.prediction`."""
    tokens, offsets = data["tokens"], data["offsets"]
    lengths = offsets[index + 1] - offsets[index]
    rows = np.full((len(index), int(lengths.max())), PAD, dtype=np.int64)
    for row, start, length in zip(rows, offsets[index], lengths, strict=True):
        row[:length] = tokens[start : start + length]
    source, lengths = torch.from_numpy(rows), torch.from_numpy(lengths)
    batch = Batch(source, lengths, None, None, None, torch.from_numpy(index), device, PAD, EOS)
    batch.sort_by_src_length()
    return batch


def answer(values: dict[str, float]) -> None:
    """Write one line of JSON."""
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    main()
