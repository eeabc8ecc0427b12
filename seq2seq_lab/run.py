"""One experiment, from its configuration to its result."""

import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import nn

from seq2seq_lab import build
from seq2seq_lab.config.schema import ALIGNMENT_FIGURES, Config, Precision, TrainerConfig, flat_keys
from seq2seq_lab.data.corpus import Corpus, ParallelText
from seq2seq_lab.data.download import cache_folder
from seq2seq_lab.data.near_duplicates import with_near_duplicates
from seq2seq_lab.data.tokenized import TokenizedCorpus, TokenizedText, TrainingText, tokenize_corpus
from seq2seq_lab.data.tokenizers import TokenizerPair
from seq2seq_lab.data.vectors import coverage, read_vectors
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import read_finished_result, read_record, write_atomically
from seq2seq_lab.metrics.base import Metric
from seq2seq_lab.models.ensemble import Ensemble
from seq2seq_lab.models.seq2seq import Seq2Seq
from seq2seq_lab.reporting import run_report
from seq2seq_lab.runtime import console
from seq2seq_lab.runtime.device import (
    choose_device,
    choose_precision,
    keep_freed_memory,
    limit_primitive_cache,
    peak_memory,
    reset_peak_memory,
)
from seq2seq_lab.runtime.ranks import Ranks
from seq2seq_lab.search.base import Search
from seq2seq_lab.tasks.translation.evaluation import METRICS, Split, TranslationEvaluator, choose_samples
from seq2seq_lab.tasks.translation.task import TranslationTask
from seq2seq_lab.tracking import METRICS_FILE, FileTracker, Logger, NoTracker, Tracker, Trackers
from seq2seq_lab.training import checkpoint, provenance
from seq2seq_lab.training.profiling import no_profile, step_profile
from seq2seq_lab.training.trainer import Counted, Trainer, TrainState

log = logging.getLogger(__name__)

RESULT_FORMAT = 1
DEV_RUN_SENTENCES = 16
# What opening a run reads besides its checkpoint and its configuration.
READ_OF_A_RUN = ("tokenizer", "run.json", "result.json", METRICS_FILE)
NO_PROVENANCE = ("choices", "run_id")  # in run.json, not in result.json
KEPT_ATTENTION = 20  # sentences of each split whose attention a finished run keeps


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


def run(job: Job, ranks: Ranks) -> dict[str, Any]:
    """Run one experiment in its folder and return what stands in its `result.json`.

    The configuration has been checked. If the run fails or is interrupted, `run.log` and `result.json` record
    how it ended. Only rank 0 writes.

    Raises:
        UserError: the data or the checkpoint cannot be used.
    """
    if not ranks.main:
        return experiment(job, ranks)
    try:
        return experiment(job, ranks)
    except (Exception, KeyboardInterrupt) as error:
        record_end(job.folder, error)
        raise


def record_end(folder: Path, error: BaseException) -> None:
    """Record in `run.log` and `result.json` the error or the interrupt that ended a run.

    A finished result in the folder stays. Errors are not printed here: the command line prints them.
    """
    if isinstance(error, KeyboardInterrupt):
        if checkpoint.any_in(folder / "checkpoints"):
            log.warning("Interrupted. To resume: %s", run_report.resume_command(folder))
        status, text = "interrupted", "interrupted by the user; resume=RUN_FOLDER resumes the run"
    else:
        status, text = "failed", f"{type(error).__name__}: {error}"
        trace = None if isinstance(error, UserError) else error
        log.error("The run failed. %s", text, exc_info=trace, extra={"console": False})
    if read_finished_result(folder) is None:
        write_result(folder, {"format": RESULT_FORMAT, "status": status, "error": text})


def experiment(job: Job, ranks: Ranks) -> dict[str, Any]:
    """Run one experiment from its data to its result; see `run`."""
    config, settings, folder = job.config, job.config.trainer, job.folder
    if not all(ranks.gather(folder.is_dir())):
        raise UserError(
            f"{folder} is not there on every machine of this run. Put it on a file system that all of them share, with "
            f"hydra.run.dir=FOLDER."
        )
    record = read_record(folder) if job.resume else None
    limit_primitive_cache()
    device = choose_device(settings.device, ranks.gpu_index(settings.backend))
    ranks = ranks.with_backend(settings.backend, device)
    keep_freed_memory(device)
    reset_peak_memory(device)
    precision = ranks.broadcast(lambda: resolve_precision(settings.precision, device, record))
    test_precision = resolve_test_precision(settings.test_precision, precision, record, device)

    with ranks.main_first():
        corpus, tokenized = read_data(job)
    began = {"precision": precision.value, "test_precision": test_precision.value}
    began |= provenance.provenance(config, corpus, device, ranks.size)
    began = began if record is None else resumed_record(folder, record, began)
    tokenizers = tokenized.tokenizers
    text = TrainingText(corpus.train, tokenized.train, tokenizers, settings.max_length, config.seed)
    validation, *tests = splits(
        corpus, tokenized.validation, tokenized.tests, DEV_RUN_SENTENCES if settings.fast_dev_run else None
    )

    model = untrained_model(job, tokenized, ranks).to(device)
    check_lengths(model, text, (validation, *tests))
    machine = f"{device.type} in {precision.value}, {torch.get_num_threads()} threads"
    if ranks.size > 1:
        machine = f"{ranks.size} ranks, each {machine}"
    run_report.describe(model, corpus, tokenized, machine)

    evaluators = make_evaluators(
        settings,
        model,
        (validation, *tests),
        tokenizers,
        build.search(config),
        device=device,
        precisions={"val": precision, "test": test_precision},
        ranks=ranks,
        own_metrics=build.metrics(config),
    )
    resumed = ranks.broadcast(lambda: checkpoint.newest(folder / "checkpoints") if job.resume else None)
    with tracking(job, began, resumed, ranks) as (tracker, logger):
        tracker.declare_metrics(evaluators[0].declarations.directions())
        samples = choose_samples(validation.text, settings.samples)
        show = run_report.Showcase(
            folder,
            validation.text,
            tokenizers,
            tracker,
            samples,
            settings.join_subwords,
            evaluators[0].declarations,
        )

        def validate(state: TrainState, counted: Counted) -> dict[str, float]:
            evaluation = evaluators[0](samples, counted=counted)
            if ranks.main:
                show.validation(evaluation, state.update)
            return evaluation.values

        trainer = Trainer(
            task=TranslationTask(
                model,
                build.teacher_forcing(config),
                settings.label_smoothing,
                settings.r_drop,
                settings.stop_at_eos,
                config.seed,
            ),
            text=text.epoch,
            validate=validate,
            optimizer=build.optimizer(config, model),
            schedule=build.schedule(config),
            config=settings,
            tracker=tracker,
            folder=folder / "checkpoints",
            seed=config.seed,
            device=device,
            precision=precision,
            identity={"the data or the tokenizer": tokenized.key, "trainer.precision": precision.value},
            profile=step_profile(model, folder / "profile", device)
            if settings.profile and ranks.main
            else no_profile,
            ranks=ranks,
        )
        result = None
        if resumed is not None:
            trainer.load(resumed)
            result = read_finished_result(folder)
            ranks.barrier()  # until all have read what rank 0 may write anew
            if ranks.main:
                write_config(job)
            if result is not None and trainer.done:
                log.info("Nothing is left to train; trainer.max_epochs=N gives a finished run more epochs.")
        if result is None or not trainer.done:
            if ranks.main:
                # What lies there from before is not what the run comes to.
                (folder / "result.json").unlink(missing_ok=True)
            trainer.fit()
            assert trainer.state.best is not None, "a run that ends has validated"
            best = folder / "checkpoints" / trainer.state.best
            ranks.barrier()  # until rank 0 has written it
            checkpoint.load_weights(best, model)
            shown = (samples, *([] for _ in tests))
            with console.progress_bar("scoring, batches") as counted:
                scored = [
                    (evaluator.split, evaluator(kept(evaluator.split.text, more), True, counted))
                    for evaluator, more in zip(evaluators, shown, strict=True)
                ]
            result = training_result(trainer, model, began)
            if ranks.main:
                scores = run_report.show_scores(
                    scored, tokenizers, folder, tracker, trainer.state.update, evaluators[0].declarations
                )
                show.end(scored[0][1])
                result |= scores
                about = {"step": trainer.state.update, **best_scores(scores)}
                write_result(folder, result)
                parts = [best, *(folder / name for name in READ_OF_A_RUN)]
                tracker.log_artifact(f"checkpoint-{logger.run_id}", "model", parts, about)
                tracker.record_summary(summary(result))
    if ranks.main:
        run_report.say_result(result, folder, logger.sync_command(), logger.url)
    return result


def read_data(job: Job) -> tuple[Corpus, TokenizedCorpus]:
    """Return the corpus of a job as text and as ids.

    Raises:
        UserError: it cannot be read, or has no gold alignments where `trainer.monitor` asks for them.
    """
    config = job.config
    fitted = inherited_tokenizers(job)
    corpus = build.dataset(config).load()
    sizes = {"train": len(corpus.train), "validation": len(corpus.validation)}
    sizes |= {name: len(text) for name, text in corpus.tests.items()}
    if 0 in sizes.values() or not corpus.tests:
        raise UserError(
            f"dataset={job.choices.get('dataset')} gave {sizes} pairs: training, validation and at least one test "
            f"set need some each. Give it more text (of your own: dataset=parallel dataset.train=FILE), or change how it is "
            f"split."
        )
    if config.trainer.monitor in ALIGNMENT_FIGURES and corpus.validation.gold is None:
        raise UserError(
            f"trainer.monitor={config.trainer.monitor} needs gold alignments, which this data set does not "
            f"have. Choose another figure, or dataset=grammar."
        )
    tokenized = tokenize_corpus(
        corpus, build.tokenizer(config), config.tokenizer, cache_folder(config.cache_dir), fitted
    )
    return with_near_duplicates(corpus, cache_folder(config.cache_dir)), tokenized


def make_evaluators(
    settings: TrainerConfig,
    model: Seq2Seq | Ensemble,
    splits: Sequence[Split],
    tokenizers: TokenizerPair,
    search: Search,
    *,
    device: torch.device,
    precisions: Mapping[str, Precision],
    ranks: Ranks,
    own_metrics: Sequence[Metric],
    replace_unknown: bool = False,
) -> list[TranslationEvaluator]:
    """Return an evaluator for each split.

    Args:
        precisions: by split, "val" and "test".
        own_metrics: added to those of translation.
    """
    return [
        TranslationEvaluator(
            model,
            split,
            tokenizers,
            search,
            batch_size=settings.eval_batch_size,
            length_bounds=settings.length_bounds,
            device=device,
            precision=precisions[split.prefix.partition("/")[0]],
            ranks=ranks,
            replace_unknown=replace_unknown,
            multi_reference=settings.multi_reference,
            metrics=(*METRICS, *own_metrics),
        )
        for split in splits
    ]


def untrained_model(job: Job, tokenized: TokenizedCorpus, ranks: Ranks) -> Seq2Seq:
    """Return the model a job starts with, and keep its tokenizers in the run folder; a resumed run has both.

    Weights that come from a file are rank 0's alone: training begins with its weights on every rank.

    Raises:
        UserError: pretrained vectors cannot be read or have another size than the configuration says.
    """
    config, tokenizers = job.config, tokenized.tokenizers
    torch.manual_seed(config.seed)
    model = build.model(config, tokenizers.source.size, tokenizers.target.size, tokenizers.joint)
    if not job.resume and ranks.main:
        tokenizers.save(job.folder / "tokenizer")
        if config.init_from is not None:
            checkpoint.load_weights(checkpoint.best(Path(config.init_from) / "checkpoints"), model)
        else:
            load_vectors(config, model, tokenized)
    return model


def load_vectors(config: Config, model: Seq2Seq, tokenized: TokenizedCorpus) -> None:
    """Set the embedding tables from the files of pretrained vectors, and say how much of the text they cover."""
    tokens, tokenizers = tokenized.train, tokenized.tokenizers
    for side, table, embedding, tokenizer, ids in (
        ("source", config.embedding.source, model.source_embedding, tokenizers.source, tokens.source_tokens),
        ("target", config.embedding.target, model.target_embedding, tokenizers.target, tokens.target_tokens),
    ):
        if table.path is not None:
            key, path = f"embedding.{side}.path", Path(table.path)
            words = read_vectors(path, key, tokenizer.tokens(range(tokenizer.size)))
            embedding.load_vectors(words)
            found = coverage(words, ids.bincount(minlength=tokenizer.size))
            log.info("%s: %s have a vector in %s.", key, found, path)


def check_lengths(model: Seq2Seq, text: TrainingText, held_out: Sequence[Split]) -> None:
    """Refuse sources with more positions than the model's attention can weigh.

    Raises:
        UserError: names the split, the length and the remedy.
    """
    texts = {"train": text.epoch(0), **{split.prefix: split.tokens for split in held_out}}
    for name, tokens in texts.items():
        model.check_length(int(tokens.source_lengths.max()), f"A source sentence of {name}")


@contextmanager
def tracking(
    job: Job, began: Mapping[str, Any], resumed: Path | None, ranks: Ranks
) -> Iterator[tuple[Tracker, Logger]]:
    """Open the run's own record of figures and its logger, and write `run.json`.

    Ranks other than 0 have none.

    Both are closed whatever happens, with exit code 1 after an error.

    Args:
        began: what the run began with, besides its configuration; of a resumed run, its `run.json`.
    """
    if not ranks.main:
        yield Trackers(()), NoTracker(job.folder, {}, {}, None)
        return
    run_id = began.get("run_id")
    update = None if resumed is None else checkpoint.load_state(resumed)["train_state"]["update"]
    logger = build.logger(job.config, job.folder, job.plain, flat_keys(job.plain, job.choices), run_id)
    opened: list[Tracker] = [logger]
    exit_code = 1
    try:
        noted = {"choices": job.choices, **began, "run_id": logger.run_id}
        write_atomically(job.folder / "run.json", json.dumps(noted, indent=2) + "\n")
        opened.append(FileTracker(job.folder, update))
        yield Trackers(opened), logger
        exit_code = 0
    finally:
        Trackers(opened).finish(exit_code)


def resolve_precision(wanted: Precision, device: torch.device, record: Mapping[str, Any] | None) -> Precision:
    """Return the precision; `auto` is measured once in the life of a run, since a measurement may waver."""
    if wanted is Precision.auto and record is not None:
        return Precision(record["precision"])
    return choose_precision(wanted, device)


def resolve_test_precision(
    wanted: Precision, precision: Precision, record: Mapping[str, Any] | None, device: torch.device
) -> Precision:
    """Return the precision of the test scores; for `auto` and for a run without a record of it that of training."""
    if record is not None:
        return recorded_test_precision(record)
    return precision if wanted is Precision.auto else choose_precision(wanted, device)


def recorded_test_precision(record: Mapping[str, Any]) -> Precision:
    """Return the precision of a run's test scores; earlier versions used that of training and did not record it."""
    return Precision(record.get("test_precision", record["precision"]))


def resumed_record(folder: Path, record: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `run.json` of a resumed run: what it began with, and under "changed" what differed since.

    Under "resumed_on" are the other machines (or numbers of threads, or versions of torch) that it was resumed on.

    Raises:
        UserError: the data differ.
    """
    now = {**now, "weights": record.get("weights")}  # those of init_from are read once
    differing = provenance.differences({**record, "changed": []}, now)
    if (unknown := differing.pop("record", None)) is not None:
        log.warning("%s has %s: changes since then cannot be detected.", folder / "run.json", unknown)
    if "data" in differing:
        raise UserError(
            f"resume={folder}: the run began with other {differing['data']}. Put the data back as they were, or start a "
            f"new run from its weights with init_from={folder}."
        )
    for what in differing.values():
        log.warning("The run is resumed with a change since it began: %s.", what)
    changed = sorted({*record.get("changed", ()), *differing})
    machines = list(record.get("resumed_on", ()))
    if "machine" in record and now["machine"] not in (record["machine"], *machines):
        machines.append(now["machine"])
    return {
        **record,
        **({"changed": changed} if changed else {}),
        **({"resumed_on": machines} if machines else {}),
    }


def inherited_tokenizers(job: Job) -> TokenizerPair | None:
    """Return the tokenizers of the run that `init_from` names: weights mean nothing without their vocabulary.

    A resumed run has them in its own folder.
    """
    if job.config.init_from is None:
        return None
    return TokenizerPair.load((job.folder if job.resume else Path(job.config.init_from)) / "tokenizer")


def splits(
    corpus: Corpus, validation: TokenizedText, tests: Mapping[str, TokenizedText], first: int | None
) -> list[Split]:
    """Return the validation split and the test splits, of each the `first` sentences (None: all).

    The first test set's figures are `test/…`, those of any further one `test/NAME/…`.
    """
    language = corpus.target_language
    made = [Split("val", corpus.validation, validation, language)]
    for name, text in corpus.tests.items():
        short = name.removeprefix("test_")
        prefix = f"test/{name if short in corpus.tests else short}" if len(made) > 1 else "test"
        made.append(Split(prefix, text, tests[name], language))
    return made if first is None else [first_sentences(split, first) for split in made]


def first_sentences(split: Split, count: int) -> Split:
    """Return the first sentences of a split."""
    text = split.text
    cut = ParallelText(
        text.source[:count],
        text.target[:count],
        None if text.gold is None else text.gold[:count],
        None if text.phenomena is None else text.phenomena[:count],
    )
    return replace(split, text=cut, tokens=split.tokens.select(torch.arange(min(count, len(text)))))


def kept(text: ParallelText, more: Sequence[int]) -> list[int]:
    """Return the sentences of a split whose attention a finished run keeps, `more` among them."""
    return [*dict.fromkeys([*choose_samples(text, KEPT_ATTENTION), *more])]


def training_result(trainer: Trainer, model: nn.Module, began: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `result.json` holds of the training; a throughput not measured (warm-up) is null.

    Args:
        began: what the run began with; see `tracking`.
    """
    state = trainer.state
    parameters = list(model.parameters())
    return {
        "format": RESULT_FORMAT,
        "status": "finished",
        "num_parameters": sum(parameter.numel() for parameter in parameters),
        "num_trainable_parameters": sum(p.numel() for p in parameters if p.requires_grad),
        "best_checkpoint": state.best,
        "updates": state.update,
        "train/target_tokens_per_second": round(state.target_tokens_per_second, 1) or None,
        "train/seconds": round(state.seconds, 1),
        "val/seconds": round(state.validation_seconds, 1),
        "peak_memory_mib": round(max(trainer.ranks.gather(peak_memory(trainer.device))) / 2**20),
        "device": trainer.device.type,
        "precision": trainer.precision.value,
        "test_precision": recorded_test_precision(began).value,
        "ranks": trainer.ranks.size,
        "provenance": {name: value for name, value in began.items() if name not in NO_PROVENANCE},
    }


def best_scores(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the validation figures of the best checkpoint as `best/…`.

    Under their own names, `val/…`, a logger's summary holds what it makes of the curve.
    """
    return {
        f"best/{name.removeprefix('val/')}": value
        for name, value in result.items()
        if name.startswith("val/") and name != "val/seconds"
    }


def summary(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result as a logger's summary has it."""
    others = {
        name: value
        for name, value in result.items()
        if not name.startswith("val/") and name not in ("provenance", "metrics", "page")
    }
    return {**others, "val_seconds": result["val/seconds"], **best_scores(result)}


def write_config(job: Job) -> None:
    """Write the run's own `config.yaml`; a resumed run's only once its checkpoint has been accepted."""
    write_atomically(job.folder / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(job.plain)))


def write_result(folder: Path, result: Mapping[str, Any]) -> None:
    """Write `result.json`. JSON has no infinity and no NaN: they are written as null."""
    plain = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in result.items()
    }
    text = json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False)
    write_atomically(folder / "result.json", text + "\n")
