"""One experiment, from its configuration to its result."""

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seq2seq_lab import build, checkpoint, showcase
from seq2seq_lab.checkpoint import write_atomically
from seq2seq_lab.config import Config, check, flat_keys
from seq2seq_lab.data.batching import BatchMaker
from seq2seq_lab.data.corpus import Corpus, ParallelText
from seq2seq_lab.data.download import cache_folder
from seq2seq_lab.data.tokenized import TokenizedCorpus, TokenizedText, corpus_key, tokenize_corpus
from seq2seq_lab.device import choose_device, choose_precision, peak_memory
from seq2seq_lab.errors import UserError
from seq2seq_lab.task import Split, TranslationEvaluator, TranslationTask, choose_samples
from seq2seq_lab.tracker import FileTracker, Trackers
from seq2seq_lab.trainer import Trainer, TrainState

log = logging.getLogger(__name__)

RESULT_FORMAT = 1
DEV_RUN_SENTENCES = 16


@dataclass(frozen=True)
class Job:
    """What a run is given.

    Attributes:
        config: the typed configuration.
        plain: the same as nested plain values, as it stands in the folder's `config.yaml`.
        choices: the chosen value of each config group.
        folder: the run folder, which is there and locked.
        resume: go on from the newest checkpoint in the folder.
    """

    config: Config
    plain: dict[str, Any]
    choices: dict[str, str]
    folder: Path
    resume: bool


def run(job: Job) -> dict[str, Any]:
    """Run one experiment in its folder and return what stands in its `result.json`.

    Raises:
        UserError: the configuration, the data or the checkpoint is not what it should be.
    """
    config, trainer_config, folder = job.config, job.config.trainer, job.folder
    check(config)
    build.check_parts(config)
    device = choose_device(trainer_config.device)
    precision = choose_precision(trainer_config.precision, device)

    corpus = build.dataset(config).load()
    tokenized = tokenize_corpus(corpus, build.tokenizer(config), config.tokenizer, cache_folder(config.cache_dir))
    tokenizers = tokenized.tokenizers
    tokenizers.save(folder / "tokenizer")
    train, validation, tests = splits(config, corpus, tokenized)

    torch.manual_seed(config.seed)
    model = build.model(config, tokenizers.source.size, tokenizers.target.size, tokenizers.joint).to(device)
    if config.init_from is not None and not job.resume:
        checkpoint.load_weights(best_checkpoint(Path(config.init_from)), model)
    machine = f"{device.type} in {precision.value}, {torch.get_num_threads()} threads"
    num_parameters = showcase.describe(model, corpus, tokenized, machine)

    search = build.search(config)
    evaluators = {
        split.prefix: TranslationEvaluator(
            model, split, tokenizers, search, trainer_config.eval_batch_size, trainer_config.length_bounds, device, precision
        )
        for split in (validation, *tests)
    }
    record = read_record(folder) if job.resume else {}
    logger = build.logger(config, folder, job.plain, flat_keys(job.plain, job.choices), record.get("run_id"))
    exit_code = 1
    try:
        write_record(folder, {"choices": job.choices, "run_id": logger.run_id})
        resumed = checkpoint.newest(folder / "checkpoints") if job.resume else None
        update = None if resumed is None else checkpoint.load_state(resumed)["train_state"]["update"]
        tracker = Trackers([FileTracker(folder, update), logger])
        samples = choose_samples(validation.text, trainer_config.samples)
        show = showcase.Showcase(
            folder, validation.text, tokenizers, tracker, samples, trainer_config.join_subwords
        )

        def validate(state: TrainState) -> dict[str, float]:
            evaluation = evaluators["val"](samples)
            show.validation(evaluation, state.update)
            return evaluation.values

        trainer = Trainer(
            task=TranslationTask(model, build.teacher_forcing(config), trainer_config.label_smoothing, config.seed),
            batches=BatchMaker(train, device),
            validate=validate,
            optimizer=build.optimizer(config, model),
            schedule=build.schedule(config),
            config=trainer_config,
            tracker=tracker,
            folder=folder / "checkpoints",
            seed=config.seed,
            device=device,
            precision=precision,
            identity={"data and tokenizer": corpus_key(corpus, config.tokenizer), "precision": precision.value},
        )
        if resumed is not None:
            trainer.load(resumed)
            log.info("Going on from update %s.", f"{trainer.state.update:,}")
        trainer.fit()

        state = trainer.state
        assert state.best is not None, "a run that ends has validated"
        best = folder / "checkpoints" / state.best
        checkpoint.load_weights(best, model)
        result: dict[str, Any] = {
            "format": RESULT_FORMAT,
            "status": "finished",
            "num_parameters": num_parameters,
            "best_checkpoint": state.best,
            "updates": state.update,
            "train/target_tokens_per_second": round(state.target_tokens_per_second, 1),
            "train/seconds": round(state.seconds, 1),
            "val/seconds": round(state.validation_seconds, 1),
            "peak_memory_mib": round(peak_memory(device) / 2**20),
            "device": device.type,
            "precision": precision.value,
            **state.best_values,
        }
        for split in (validation, *tests):
            evaluation = evaluators[split.prefix](())
            result |= showcase.evaluation_result(evaluation, split.prefix)
            rows = showcase.write_translations(
                folder / f"translations.{split.prefix.replace('/', '.')}.jsonl", split.text, evaluation
            )
            if split is not validation:
                tracker.metrics(evaluation.values, state.update)
                columns = ["source", "reference", "hypothesis", "sentence BLEU"]
                tracker.table(f"{split.prefix}/translations", columns, rows, state.update)
        tracker.artifact("checkpoint", "model", best, {"update": state.update, **state.best_values})
        tracker.summary(result)
        write_atomically(folder / "result.json", json.dumps(result, indent=2, ensure_ascii=False) + "\n")
        exit_code = 0
    finally:
        logger.finish(exit_code)
    showcase.say_result(result, tests[0].prefix, folder, logger.sync_command(), logger.url)
    return result


def splits(
    config: Config, corpus: Corpus, tokenized: TokenizedCorpus
) -> tuple[TokenizedText, Split, list[Split]]:
    """Return the training tokens, the validation split and the test splits.

    The first test set's figures are `test/…`, those of any further one `test/NAME/…`.
    """
    train, longest = tokenized.train, config.trainer.max_length
    fitting = (train.source_lengths <= longest) & (train.target_lengths <= longest)
    left_out = len(train) - int(fitting.sum())
    if left_out:
        log.info("%s training pairs of more than %s tokens are left out (trainer.max_length).", left_out, longest)
        train = train.select(fitting.nonzero().squeeze(1))
    if not len(train):
        raise UserError(f"No training pair is left: all have more than trainer.max_length={longest} tokens.")
    names = list(corpus.tests)
    made = [Split("val", corpus.validation, tokenized.validation)] + [
        Split("test" if name == names[0] else f"test/{name}", corpus.tests[name], tokenized.tests[name]) for name in names
    ]
    if config.trainer.fast_dev_run:
        made = [first_sentences(split, DEV_RUN_SENTENCES) for split in made]
    return train, made[0], made[1:]


def first_sentences(split: Split, count: int) -> Split:
    """Return the first sentences of a split."""
    text = split.text
    cut = ParallelText(text.source[:count], text.target[:count], None if text.gold is None else text.gold[:count])
    return Split(split.prefix, cut, split.tokens.select(torch.arange(min(count, len(text)))))


def best_checkpoint(folder: Path) -> Path:
    """Return the best checkpoint of a finished run, else the newest of one that was cut off.

    Raises:
        UserError: the folder holds no checkpoint.
    """
    result = folder / "result.json"
    if result.is_file():
        return folder / "checkpoints" / json.loads(result.read_text("utf-8"))["best_checkpoint"]
    return checkpoint.newest(folder / "checkpoints")


def read_record(folder: Path) -> dict[str, Any]:
    """Return what a run notes of itself besides its configuration: the groups' choices, the logger's run id."""
    record: dict[str, Any] = json.loads((folder / "run.json").read_text("utf-8"))
    return record


def write_record(folder: Path, record: dict[str, Any]) -> None:
    """Write what `read_record` reads."""
    write_atomically(folder / "run.json", json.dumps(record, indent=2) + "\n")
