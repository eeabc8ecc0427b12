"""Recorded configurations of earlier versions: their form of today, and their hashes."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from seq2seq_lab.config import schema
from seq2seq_lab.config.compose import composer, read_config
from seq2seq_lab.config.job_hash import compute_job_hash
from seq2seq_lab.config.run_folder import RUN_FORMAT, write_covered
from seq2seq_lab.config.slots import check_slot
from seq2seq_lab.config.upgrade import earlier, upgraded, upgraded_choices
from seq2seq_lab.data.labelled import PairCorpus
from seq2seq_lab.data.labelled_texts import LabelledTexts
from seq2seq_lab.launching.checks import KINDS, check_parts

# The configuration of a run at commit 105df50 of task=language_model encoder=gru, and its hash there.
LANGUAGE_MODEL = """
{seed: 1, init_from: null, cache_dir: null, study: {name: null, varies: [], number: null, changed: refuse},
task: {_target_: seq2seq_lab.tasks.language_model.task.LanguageModelTask, carry_state: false, chunk_length: 35,
    generated_length: 30},
model: {name: language_model, embedding_size: 24, encoder_hidden_size: 24, hidden_size: 24, num_layers: 2,
    attentional_size: 24, num_heads: 4, feedforward_size: 512, dropout: 0.3, state_dropout: 0.3, locked_dropout: true,
    tied_embeddings: target, scale_embeddings: true, bridge: tanh, reverse_source: false, share_layers: false},
embedding: {source: {path: null, size: 24, frozen: false, dropout: 0.3},
    target: {path: null, size: 24, frozen: false, dropout: 0.3}},
encoder: {_target_: seq2seq_lab.models.encoders.RecurrentEncoder, cell: gru, bidirectional: false, hidden_size: 24,
    num_layers: 2, reverse: false, dropout: 0.3, encoder_output_dropout: 0.2, locked_dropout: true},
decoder: null, attention: null, pooling: null,
readout: {_target_: seq2seq_lab.models.readouts.LinearReadout},
initialization: {_target_: seq2seq_lab.models.initialization.Default},
dataset: {_target_: seq2seq_lab.data.monolingual.Monolingual, path: null, encoding: null, column: null, language: en,
    validation_share: 0.05, test_share: 0.05, train: 200, validation: 20, test: 40, seed: 1, max_depth: 2},
tokenizer: {_target_: seq2seq_lab.data.tokenizers.WordTokenizer, joint: false, lowercase: false, min_frequency: 2,
    max_size: null},
teacher_forcing: null,
optimizer: {_target_: torch.optim.Adam, lr: 0.02, betas: [0.9, 0.98], eps: 1.0e-08, weight_decay: 0.0, fused: true},
schedule: {_target_: seq2seq_lab.training.schedules.OneCycle, warmup_share: 0.1, initial_factor: 0.04,
    final_factor: 4.0e-06, momentum: [0.85, 0.95]},
search: {_target_: seq2seq_lab.search.sampling.SamplingSearch, temperature: 1.0, top_k: null, top_p: 1.0, nbest: 1,
    seed: 1, min_length_factor: 0.0, max_length_factor: 2.0, max_length_extra: 10},
metric: {},
trainer: {max_epochs: 2, max_steps: null, batch_size: 20, batch_unit: sentences, micro_batches: 1, max_length: 200,
    pad_to: null, label_smoothing: 0.0, r_drop: 0.0, stop_at_eos: false, clip_norm: 1.0, max_skipped_steps: 10,
    validate_every: 1.0, validate_unit: epoch, eval_batch_size: 128, max_eval_length: 1000, monitor: null,
    monitor_mode: auto, patience: null, samples: 3, join_subwords: false, length_bounds: [6, 10, 14, 18],
    multi_reference: false, bleu_tokenizer: auto, device: cpu, devices: 1, threads: auto, backend: auto,
    start_timeout_seconds: 300.0, timeout_seconds: 100.0, max_restarts: 3, precision: fp32, test_precision: fp32,
    deterministic: false, checkpoint_every_steps: null, checkpoint_every_minutes: 10.0, keep_checkpoints: 3,
    log_every_steps: 1, profile: false, fast_dev_run: false, overfit_batches: 0},
logger: {_target_: seq2seq_lab.tracking.NoTracker}}
"""
HASH = "6eaa86bdb4"
CHOICES = {
    "task": "language_model",
    "encoder": "gru",
    "decoder": "None",
    "attention": "None",
    "search": "sampling",
}
# Settings that the version of the record did not have.
ADDED = {"trainer": ("pad_to", "bleu_tokenizer"), "dataset": ("encoding", "column")}


def recorded(folder: Path, config: dict[str, Any]) -> Path:
    """A run folder with the configuration and a record."""
    write_covered(folder, "run", "config.yaml", yaml.safe_dump(config, sort_keys=False))
    write_covered(folder, "run", "run.json", json.dumps({"format": RUN_FORMAT, "choices": CHOICES}))
    return folder


def opened(folder: Path) -> dict[str, Any]:
    """The configuration as every program reads it, checked like that of a new run."""
    with composer():
        node = read_config(folder)
        check_parts(schema.typed(node))
    return schema.plain(node)


def test_a_recorded_language_model_is_a_decoder_without_a_source(tmp_path: Path) -> None:
    config = opened(recorded(tmp_path, yaml.safe_load(LANGUAGE_MODEL)))
    assert config["encoder"] is None
    assert config["attention"] == {"_target_": "seq2seq_lab.models.attention.NoAttention"}
    assert config["decoder"] == {
        "_target_": "seq2seq_lab.models.decoders.AttendAfterDecoder",
        **{"cell": "gru", "hidden_size": 24, "num_layers": 2, "dropout": 0.3, "state_dropout": 0.2},
        **{"locked_dropout": True, "attentional_size": None, "input_feeding": False, "bridge": "zero"},
        "rectified_input": False,
    }
    assert config["model"]["cell"] == "gru"
    assert config["model"]["bridge"] == "zero"
    assert compute_job_hash(config) == HASH


def test_a_recorded_encoder_with_a_size_of_its_own_opens(tmp_path: Path) -> None:
    config = yaml.safe_load(LANGUAGE_MODEL)
    config["encoder"]["hidden_size"] = config["model"]["embedding_size"] = 16
    config["embedding"]["target"]["size"] = 16
    assert opened(recorded(tmp_path, config))["decoder"]["hidden_size"] == 16


def test_settings_added_later_do_what_the_recorded_run_did_and_keep_its_hash(tmp_path: Path) -> None:
    config = yaml.safe_load(LANGUAGE_MODEL)
    for section, names in ADDED.items():
        for name in names:
            del config[section][name]
    assert compute_job_hash(opened(recorded(tmp_path, config))) == HASH


def test_a_setting_with_another_value_changes_the_hash(tmp_path: Path) -> None:
    config = yaml.safe_load(LANGUAGE_MODEL)
    config["encoder"]["cell"] = "lstm"
    assert compute_job_hash(opened(recorded(tmp_path, config))) != HASH


def test_the_choices_of_a_recorded_language_model_are_those_of_today() -> None:
    now = CHOICES | {"encoder": "None", "decoder": "plain", "attention": "none"}
    assert upgraded_choices(CHOICES) == now
    assert upgraded_choices(now) == now
    transformer = now | {"decoder": "transformer"}
    assert upgraded_choices(transformer) == transformer


@pytest.mark.parametrize("task", ["translation", "classification"])
def test_the_encoder_of_another_task_stays(task: str) -> None:
    choices = {"task": task, "encoder": "gru"}
    assert upgraded_choices(choices) == choices


PAIRS = {
    "_target_": "seq2seq_lab.data.sentence_pairs.SentencePairs",
    **{
        "train": None,
        "validation": None,
        "test": None,
        "format": "auto",
        "delimiter": None,
        "encoding": None,
    },
    **{"columns": ["sentence1", "sentence2", "label"], "language": "en", "pairs": 300},
    **{"validation_share": 0.1, "test_share": 0.1, "seed": 1},
}


@pytest.mark.parametrize("added", [{}, {"group": None}])
def test_recorded_pairs_that_were_generated_keep_their_hash(added: dict[str, Any]) -> None:
    """The class also read files; the setting `group` was added first, and then all settings of files were removed."""
    now = upgraded({"dataset": PAIRS | added})["dataset"]
    kept = ("_target_", "pairs", "validation_share", "test_share", "seed")
    assert now == {key: PAIRS[key] for key in kept}
    with composer():
        check_slot("dataset", now, KINDS)
    assert earlier({"dataset": now})["dataset"] == PAIRS


def test_recorded_pairs_of_files_are_those_of_another_class() -> None:
    now = upgraded({"dataset": PAIRS | {"train": "snli.jsonl"}})["dataset"]
    with composer():
        check_slot("dataset", now, KINDS)
    assert (
        LabelledTexts(**{key: value for key, value in now.items() if key != "_target_"}).corpus_type
        is PairCorpus
    )
