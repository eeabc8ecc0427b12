"""Small models, built from conf/ as the program builds them, and random batches for them."""

from collections.abc import Sequence
from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig

from seq2seq_lab.config.compose import compose, composer
from seq2seq_lab.config.job_hash import without_hydra
from seq2seq_lab.config.schema import CONF_DIR, SLOTS, Config, plain, typed
from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.batching import BatchMaker
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.tokenized import TokenizedText
from seq2seq_lab.models.seq2seq import Seq2Seq, build_seq2seq
from seq2seq_lab.search.beam import BeamSearch
from seq2seq_lab.search.sampling import SamplingSearch

VOCABULARY = 13
PARTS = ("encoder", "decoder", "attention", "readout")
OTHERS = ("transformer", "transformer_post_norm", "convolutional", "features", "hierarchical", "pretrained")
HEADS = {"num_heads": 2, "feedforward_size": 7}
LENGTHS: dict[str, Any] = {"min_length_factor": 0.0, "max_length_factor": 1.0, "max_length_extra": 4}


def values_of(group: str) -> list[str]:
    """The values of a group: its files in conf/."""
    return sorted(path.stem for path in (CONF_DIR / group).glob("*.yaml"))


WITHOUT_ATTENTION = ("plain", "tutorial_plain", "context")  # values of decoder


def recurrent_values_of(group: str) -> list[str]:
    """The encoders of one sequence, or the decoders, with recurrent layers."""
    return [value for value in values_of(group) if value not in OTHERS]


@cache
def composed(override: str) -> DictConfig:
    with composer():
        return without_hydra(compose([override]))


def small_config(
    encoder: str = "bigru",
    decoder: str = "luong",
    attention: str = "additive",
    readout: str = "linear",
    **model: object,
) -> Config:
    """Return a configuration with these components. All sizes differ, and dropout is 0 unless `model` sets it."""
    return deepcopy(_config((encoder, decoder, attention, readout), tuple(model.items())))


@cache
def _config(parts: tuple[str, ...], model: tuple[tuple[str, object], ...]) -> Config:
    """Hydra composes once for each value of a group, as it takes its time; the parts are joined here."""
    node = deepcopy(composed("model=attn"))
    for group, value in zip(PARTS, parts, strict=True):
        node[group] = composed(f"{group}={value}")[group]
    sizes = (
        {"embedding_size": 6, "encoder_hidden_size": 4, "hidden_size": 10, "dropout": 0.0}
        | HEADS
        | dict(model)
    )
    node.model.update(sizes)
    config, values = deepcopy(_typed("model=attn")), plain(node)
    for name in SLOTS:
        setattr(config, name, values[name])
    for name, value in sizes.items():
        setattr(config.model, name, value)
    for side in ("source", "target"):
        for setting in ("size", "dropout"):
            setattr(getattr(config.embedding, side), setting, values["embedding"][side][setting])
    return config


@cache
def _typed(override: str) -> Config:
    return typed(composed(override))  # checked against the dataclasses once, as that takes its time too


def small_bundle(bundle: str, encoder: str, readout: str = "linear", **model: object) -> Config:
    """The configuration of a bundle of conf/model with this encoder and readout, without dropout, and of these sizes."""
    node = deepcopy(composed(f"model={bundle}"))
    node.encoder = composed(f"encoder={encoder}").encoder
    node.readout = composed(f"readout={readout}").readout
    node.model.update({"dropout": 0.0, "state_dropout": 0.0} | model)
    return typed(node)


def small_model(config: Config, seed: int = 0, vocabulary: int = VOCABULARY) -> Seq2Seq:
    torch.manual_seed(seed)
    return build_seq2seq(config, source_vocabulary=vocabulary, target_vocabulary=vocabulary, joint=True)


def batch_of(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Batch:
    """The batch of these sentences, given without `<sos>` and `<eos>`."""
    text = TokenizedText(Ragged.of(sources), Ragged.of(targets))
    return BatchMaker(text, torch.device("cpu"))(np.arange(len(sources)))


def random_sentences(lengths: Sequence[int], seed: int, vocabulary: int = VOCABULARY) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(4, vocabulary, (length,), generator=generator).tolist() for length in lengths]


def ragged_batch() -> Batch:
    """The batch of three pairs of random sentences, whose lengths differ."""
    return batch_of(random_sentences([3, 1, 5], seed=1), random_sentences([4, 2, 2], seed=2))


def beam_search(size: int, **settings: Any) -> BeamSearch:
    """A beam search for the most probable output, unless `settings` change it."""
    plain = {"length_penalty": 0.0, "length_offset": 5, "coverage_penalty": 0.0, "nbest": 1}
    return BeamSearch(size=size, **plain | LENGTHS | settings)


def sampling_search(**settings: Any) -> SamplingSearch:
    """A search that draws one output from the distribution of the model, unless `settings` change it."""
    plain = {"temperature": 1.0, "top_k": None, "top_p": 1.0, "nbest": 1, "seed": 1}
    return SamplingSearch(**plain | LENGTHS | settings)
