"""The presets of papers train as their papers say: the numbers are written out here once more."""

from typing import Any

import hydra
import pytest

from seq2seq_lab.config.compose import composer
from seq2seq_lab.config.schema import plain

ADAM = {
    "optimizer._target_": "torch.optim.Adam",
    "optimizer.lr": 1e-3,
    "optimizer.betas": [0.9, 0.999],
    "optimizer.eps": 1e-8,
    "optimizer.weight_decay": 0.0,
    "schedule._target_": "seq2seq_lab.training.schedules.Constant",
}
# Of the tutorials on Multi30k: what they have in common.
MULTI30K = ADAM | {
    "dataset.source": "de",
    "dataset.target": "en",
    "tokenizer._target_": "seq2seq_lab.data.tokenizers.SpacyTokenizer",
    "tokenizer.lowercase": True,
    "tokenizer.min_frequency": 2,
    "tokenizer.max_size": 10_000,
    "embedding.source.size": 256,
    "embedding.target.size": 256,
    "encoder.hidden_size": 512,
    "decoder.hidden_size": 512,
    "embedding.source.dropout": 0.5,
    "embedding.target.dropout": 0.5,
    "encoder.dropout": 0.5,
    "decoder.dropout": 0.5,
    "encoder.encoder_output_dropout": 0.0,
    "decoder.state_dropout": 0.0,
    "encoder.reverse": False,
    "teacher_forcing._target_": "seq2seq_lab.tasks.translation.teacher_forcing.Constant",
    "teacher_forcing.ratio": 0.5,
    "teacher_forcing.scope": "step",
    "task.batch_size": 128,
    "trainer.clip_norm": 1.0,
    "trainer.max_epochs": 10,
    "task.label_smoothing": 0.0,
    "task.r_drop": 0.0,
    "trainer.monitor": "val/loss_free_running",
}
TEXT_FILES = [f"dataset.{split}={split}.txt" for split in ("path", "validation", "test")]
PRESETS: dict[str, dict[str, Any]] = {
    "sutskever2014": MULTI30K
    | {
        "encoder.cell": "lstm",
        "encoder.bidirectional": False,
        "encoder.num_layers": 2,
        "decoder.num_layers": 2,
        "decoder.bridge": "copy",
        "initialization._target_": "seq2seq_lab.models.initialization.Uniform",
        "initialization.bound": 0.08,
    },
    "cho2014": MULTI30K
    | {
        "encoder.cell": "gru",
        "encoder.bidirectional": False,
        "encoder.num_layers": 1,
        "decoder._target_": "seq2seq_lab.models.decoders.FixedContextDecoder",
        "decoder.output": ["embedding", "state", "context"],
        "initialization.std": 0.01,
    },
    "bahdanau2015": MULTI30K
    | {
        "encoder.cell": "gru",
        "encoder.bidirectional": True,
        "encoder.num_layers": 1,
        "decoder._target_": "seq2seq_lab.models.decoders.AttendBeforeDecoder",
        "decoder.output": ["state", "context", "embedding"],
        "decoder.bridge": "tanh",
        "attention._target_": "seq2seq_lab.models.attention.AdditiveAttention",
        "attention.size": 512,
        "initialization.std": 0.01,
    },
    "shared_lstm": ADAM
    | {
        "dataset.source": "en",
        "dataset.target": "fr",
        "encoder.cell": "lstm",
        "encoder.num_layers": 2,
        "encoder.hidden_size": 100,
        "encoder.dropout": 0.1,  # between the layers, and nowhere else
        "embedding.source.dropout": 0.0,
        "embedding.target.dropout": 0.0,
        "encoder.encoder_output_dropout": 0.0,
        "decoder.state_dropout": 0.0,
        "model.share_layers": True,
        "embedding.source.size": 100,
        "embedding.source.frozen": True,
        "embedding.target.size": 300,
        "embedding.target.frozen": True,
        "trainer.max_epochs": 5,
        "trainer.validate_every": 0.1,
    },
    "tutorial_location": ADAM
    | {
        "dataset.source": "en",
        "dataset.target": "fr",
        "encoder.cell": "gru",
        "encoder.bidirectional": False,
        "encoder.hidden_size": 256,
        "decoder.rectified_input": True,
        "decoder.output": ["state"],
        "attention._target_": "seq2seq_lab.models.attention.LocationAttention",
        "embedding.source.dropout": 0.1,
        "embedding.target.dropout": 0.1,
        "decoder.state_dropout": 0.0,
        "teacher_forcing.ratio": 0.5,
        "teacher_forcing.scope": "sequence",
    },
    "lium_wmt17": ADAM
    | {
        "optimizer.lr": 4e-4,
        "optimizer.weight_decay": 1.5e-6,
        "dataset.source": "en",
        "dataset.target": "de",
        "tokenizer.joint": True,
        "tokenizer.vocab_size": 10_000,
        "tokenizer.lowercase": True,
        "embedding.source.size": 128,
        "encoder._target_": "seq2seq_lab.models.encoders.LayerNormGruEncoder",
        "encoder.cell": "gru",
        "encoder.bidirectional": True,
        "encoder.hidden_size": 256,
        "decoder._target_": "seq2seq_lab.models.decoders.AttendBetweenDecoder",
        "decoder.hidden_size": 256,
        "attention.size": 512,
        "initialization._target_": "seq2seq_lab.models.initialization.Lecun",
        "embedding.source.dropout": 0.3,
        "embedding.target.dropout": 0.0,
        "encoder.encoder_output_dropout": 0.5,
        "decoder.state_dropout": 0.5,
        "model.tied_embeddings": "none",
        "task.batch_size": 32,
        "trainer.clip_norm": 0.38,
        "trainer.monitor": "val/bleu_lowercased_tokenised",
    },
    "zaremba2014": {
        "decoder.cell": "lstm",
        "decoder.num_layers": 2,
        "decoder.hidden_size": 650,
        "decoder.dropout": 0.5,
        "decoder.state_dropout": 0.5,
        "decoder.locked_dropout": False,
        "embedding.target.size": 650,
        "embedding.target.dropout": 0.5,
        "model.tied_embeddings": "none",
        "model.scale_embeddings": False,
        "initialization._target_": "seq2seq_lab.models.initialization.Uniform",
        "initialization.bound": 0.05,
        "tokenizer.min_frequency": 1,
        "task.batch_size": 20,
        "task.carry_state": True,
        "task.chunk_length": 35,
        "optimizer._target_": "torch.optim.SGD",
        "optimizer.lr": 1.0,
        "optimizer.momentum": 0.0,
        "optimizer.weight_decay": 0.0,
        "schedule._target_": "seq2seq_lab.training.schedules.EpochDecay",
        "schedule.constant_epochs": 6,
        "schedule.factor": 1 / 1.2,
        "trainer.normalization": "examples",
        "trainer.clip_norm": 5.0,
        "trainer.max_epochs": 39,
        "trainer.monitor": "val/perplexity_per_word_carried",
    },
    "word_language_model": {
        "decoder.cell": "lstm",
        "decoder.num_layers": 2,
        "decoder.hidden_size": 200,
        "decoder.dropout": 0.2,
        "decoder.state_dropout": 0.2,
        "embedding.target.size": 200,
        "embedding.target.dropout": 0.2,
        "model.tied_embeddings": "none",
        "tokenizer.min_frequency": 1,
        "task.batch_size": 20,
        "task.carry_state": True,
        "task.chunk_length": 35,
        "optimizer._target_": "torch.optim.SGD",
        "optimizer.lr": 20.0,
        "schedule._target_": "seq2seq_lab.training.schedules.Plateau",
        "schedule.factor": 0.25,
        "schedule.patience": 0,
        "trainer.clip_norm": 0.25,
        "trainer.max_epochs": 40,
        "trainer.monitor": "val/perplexity_per_word_carried",
    },
}


@pytest.mark.parametrize("experiment", PRESETS)
def test_a_preset_matches_its_paper(experiment: str) -> None:
    with composer():
        files = TEXT_FILES if experiment in ("word_language_model", "zaremba2014") else []
        config = plain(hydra.compose("config", [f"experiment={experiment}", *files]))
    found = {key: node(config, key) for key in PRESETS[experiment]}
    assert found == PRESETS[experiment]


def node(config: dict[str, Any], dotted: str) -> Any:
    for name in dotted.split("."):
        config = config[name]
    return config
