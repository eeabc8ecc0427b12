"""Export a model of translation as a folder that a short program of plain PyTorch translates with."""

import json
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save
from torch import Tensor, nn

from seq2seq_lab.data.corpus import UNKNOWN
from seq2seq_lab.data.tokenizers import PAD, SOS, SPECIALS, UNK, TokenizerPair, WordTokenizer
from seq2seq_lab.data.tokenizers.vocabulary import ESCAPED_JOINER
from seq2seq_lab.errors import UserError, storage_errors
from seq2seq_lab.files import flush, temporary_path
from seq2seq_lab.models.attention import AdditiveAttention
from seq2seq_lab.models.decoders import AttendAfterDecoder
from seq2seq_lab.models.encoders import RecurrentEncoder
from seq2seq_lab.models.readouts import LinearReadout
from seq2seq_lab.models.recurrent import RecurrentLayers
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.search.base import Search
from seq2seq_lab.search.greedy import GreedySearch

COVERED = (
    "Exported are runs of task=translation with tokenizer=word, encoder=bigru or gru, decoder=luong, attention=additive, "
    "readout=linear, model.bridge=tanh and search=greedy: the default model, in any size. For another search, add "
    "search=greedy; for another model, use python -m seq2seq_lab.predict without --export."
)


class Module(NamedTuple):
    """A module of `torch.nn`: the name of its class, its arguments and its weights."""

    kind: str
    arguments: dict[str, int | bool]
    weights: dict[str, Tensor]


def export(
    model: nn.Module,
    tokenizers: TokenizerPair,
    search: Search,
    folder: Path,
    about: dict[str, str],
) -> None:
    """Write the files that `exported/README.md` describes to a new folder.

    Args:
        about: the run, the checkpoint and the languages, for the documentation.

    Raises:
        UserError: the folder exists or cannot be written, or the model is not covered. Then nothing is written.
    """
    if folder.exists() or folder.is_symlink():
        raise UserError(f"--export={folder} already exists. Choose another folder.")
    problem = next(problems(model, tokenizers, search), None)
    if problem is not None:
        raise UserError(f"--export: {problem} cannot be exported. {COVERED}")
    assert isinstance(model, Seq2Seq)
    assert isinstance(search, GreedySearch)
    modules = modules_of(model)
    config = {
        "modules": {name: [module.kind, module.arguments] for name, module in modules.items()},
        "layers": modules["decoder"].arguments["num_layers"],
        "max_length_factor": search.limits.max_length_factor,
        "max_length_extra": search.limits.max_length_extra,
        **about,
    }
    weights = {
        f"{name}.{weight}": tensor.detach().float().cpu().clone(memory_format=torch.contiguous_format)
        for name, module in modules.items()
        for weight, tensor in module.weights.items()
    }
    texts = resources.files(__package__).joinpath("exported")
    files = {
        "model.safetensors": save(weights),
        "config.json": as_json(config),
        "tokenizer.json": as_json(vocabulary(tokenizers)),
        "translate.py": texts.joinpath("translate.py").read_bytes(),
        "README.md": texts.joinpath("README.md").read_text("utf-8").format(**about).encode(),
    }
    with storage_errors(folder):
        write(folder, files)


def problems(model: nn.Module, tokenizers: TokenizerPair, search: Search) -> Iterator[str]:
    """Yield the parts of a run that the exported program does not compute, as settings or in words."""
    if not isinstance(model, Seq2Seq):
        yield "an ensemble"
        return
    for side in (tokenizers.source, tokenizers.target):
        if type(side) is not WordTokenizer:
            yield f"tokenizer={type(side).__name__}"
        elif side.lowercase:
            yield "tokenizer.lowercase=true"
        elif side.rules != WordTokenizer.rules:
            yield "a tokenizer of an earlier version"
        elif any(ESCAPED_JOINER in token for token in side.types):
            yield "a vocabulary with the character U+FFED"
    encoder, decoder, readout = model.encoder, model.decoder, model.readout
    if type(encoder) is not RecurrentEncoder or model.source_embedding is None:
        yield f"encoder={type(encoder).__name__}"
    elif encoder.layers.cell != "gru":
        yield f"encoder.cell={encoder.layers.cell}"
    elif encoder.reverse:
        yield "model.reverse_source=true"
    if type(decoder) is not AttendAfterDecoder:
        yield f"decoder={type(decoder).__name__}"
    elif decoder.layers.cell != "gru":
        yield f"decoder.cell={decoder.layers.cell}"
    elif type(decoder.attention) is not AdditiveAttention:
        yield f"attention={type(decoder.attention).__name__}"
    elif decoder.fed_size:
        yield "decoder.input_feeding=true"
    elif decoder.rectified_input:
        yield "decoder.rectified_input=true"
    elif decoder.bridge.kind != "tanh":
        yield f"model.bridge={decoder.bridge.kind}"
    if type(readout) is not LinearReadout:
        yield f"readout={type(readout).__name__}"
    if type(search) is not GreedySearch:
        yield f"search={type(search).__name__}"
    elif search.limits.min_length_factor:
        yield f"search.min_length_factor={search.limits.min_length_factor}"


@torch.no_grad()
def modules_of(model: Seq2Seq) -> dict[str, Module]:
    """Return the modules of a model by the names that the exported program uses."""
    encoder, decoder, readout = model.encoder, model.decoder, model.readout
    assert isinstance(encoder, RecurrentEncoder)
    assert isinstance(decoder, AttendAfterDecoder)
    assert isinstance(decoder.attention, AdditiveAttention)
    assert isinstance(decoder.bridge.hidden, nn.Sequential)
    assert isinstance(readout, LinearReadout)
    assert model.source_embedding is not None
    output = linear(readout.linear)
    bias_V = output.weights["bias"].clone()
    bias_V[[PAD, SOS]] = -torch.inf
    return {
        "source": table(model.embed_source(ids(model.source_embedding.weight))),
        "target": table(model.embed_target(ids(model.target_embedding.weight))),
        "encoder": recurrent(encoder.layers),
        "bridge": linear(decoder.bridge.hidden[0]),
        "decoder": recurrent(decoder.layers),
        "key": linear(decoder.attention.key),
        "query": linear(decoder.attention.query),
        "energy": linear(decoder.attention.energy),
        "combine": linear(decoder.combine),
        "readout": output._replace(weights={**output.weights, "bias": bias_V}),
    }


def ids(table_VE: Tensor) -> Tensor:
    """Return all ids of an embedding table."""
    return torch.arange(len(table_VE), device=table_VE.device)


def table(vectors_VE: Tensor) -> Module:
    """Return the embedding table of these vectors."""
    count, size = vectors_VE.shape
    return Module("Embedding", {"num_embeddings": count, "embedding_dim": size}, {"weight": vectors_VE})


def linear(layer: Any) -> Module:
    """Return a linear layer."""
    sizes = {name: getattr(layer, name) for name in ("in_features", "out_features")}
    return Module("Linear", {**sizes, "bias": layer.bias is not None}, layer.state_dict())


def recurrent(stack: RecurrentLayers) -> Module:
    """Return stacked layers of one GRU each as one GRU."""
    weights = {
        name.replace("_l0", f"_l{index}"): weight
        for index, layer in enumerate(stack.layers)
        for name, weight in layer.state_dict().items()
    }
    first: Any = stack.layers[0]
    sizes = {name: getattr(first, name) for name in ("input_size", "hidden_size", "bidirectional")}
    return Module("GRU", {**sizes, "num_layers": len(stack.layers)}, weights)


def vocabulary(tokenizers: TokenizerPair) -> dict[str, object]:
    """Return the content of tokenizer.json."""
    source, target = tokenizers.source, tokenizers.target
    assert isinstance(source, WordTokenizer)
    assert isinstance(target, WordTokenizer)
    words = {token: number for number, token in enumerate(source.types) if number >= len(SPECIALS)}
    shown = [UNKNOWN if number == UNK else token for number, token in enumerate(target.types)]
    return {"pattern": source.pattern, "source": words, "target": shown}


def as_json(content: dict[str, Any]) -> bytes:
    """Return an object as JSON in UTF-8."""
    return f"{json.dumps(content, ensure_ascii=False, indent=2)}\n".encode()


def write(folder: Path, files: dict[str, bytes]) -> None:
    """Write a folder under a temporary name and rename it."""
    with temporary_path(folder) as temporary:
        temporary.mkdir(parents=True)
        for name, content in files.items():
            (temporary / name).write_bytes(content)
            flush(temporary / name)
