"""A small training run and its scores, on one rank or several. `test_ranks` starts it in separate processes."""

import atexit
import logging
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hydra
import torch
from omegaconf import OmegaConf
from torch import nn

from seq2seq_lab.config import schema as config
from seq2seq_lab.config.compose import composer
from seq2seq_lab.config.schema import Config, Precision
from seq2seq_lab.data.batching import BatchMaker
from seq2seq_lab.data.grammar import Grammar
from seq2seq_lab.data.tokenized import TokenizedCorpus, tokenize_corpus
from seq2seq_lab.data.tokenizers import WordTokenizer
from seq2seq_lab.errors import UserError
from seq2seq_lab.launching.launch import join_ranks
from seq2seq_lab.models.seq2seq import build_seq2seq
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.ranks import Ranks
from seq2seq_lab.runtime.signals import StopSignals
from seq2seq_lab.search.greedy import GreedySearch
from seq2seq_lab.tasks.base import StepInfo
from seq2seq_lab.tasks.decoded import DecodedEvaluation
from seq2seq_lab.tasks.examples import TrainingExamples
from seq2seq_lab.tasks.parts import build_task
from seq2seq_lab.tasks.translation.evaluation import TranslationEvaluator, TranslationSplit
from seq2seq_lab.tracking import Trackers
from seq2seq_lab.training.parts import build_optimizer, build_schedule, trainer_settings
from seq2seq_lab.training.profiling import no_profile
from seq2seq_lab.training.trainer import Trainer

CPU = torch.device("cpu")
GRAMMAR = Grammar(
    train=37, validation=11, test=1, test_compositional=0, held_out_share=0.1, seed=1, max_depth=2
)
SETTINGS = (
    *("logger=none", "trainer.device=cpu", "optimizer=sgd", "optimizer.lr=0.5", "schedule=constant"),
    "task.label_smoothing=0.1",
    *("model.embedding_size=8", "model.hidden_size=8", "model.encoder_hidden_size=4", "model.dropout=0"),
)


@dataclass(frozen=True)
class Trained:
    """What came of a training.

    Attributes:
        losses: of each step, in nats a token.
        norms: of each step's gradient.
        weights: after the last.
        sentences: that this rank has seen, by their numbers.
        seeds: that dropout's masks were drawn with.
        evaluation: of the validation split, by the trained model; on ranks other than 0 it has the values alone.
    """

    losses: list[float]
    norms: list[float]
    weights: torch.Tensor
    sentences: list[int]
    seeds: set[int]
    evaluation: DecodedEvaluation


def word() -> WordTokenizer:
    return WordTokenizer(joint=False, lowercase=False, min_frequency=1, max_size=None)


def composed(overrides: tuple[str, ...]) -> Any:
    """Return the configuration of a case, once for all ranks."""
    with composer():
        return OmegaConf.to_container(hydra.compose("config", [*SETTINGS, *overrides]), resolve=True)


def train(case: Any, ranks: Ranks, spoiled: int | None = None) -> Trained:
    """Train for an epoch in float64 and score the validation split.

    Args:
        spoiled: the step whose loss is NaN on rank 1.
    """
    corpus = GRAMMAR.load()
    tokenized: TokenizedCorpus = tokenize_corpus(corpus, word, {}, None)
    whole: Any = OmegaConf.merge(OmegaConf.structured(Config), case)
    settings = config.typed(whole)
    pair, compute = tokenized.tokenizers, Compute(CPU, Precision.fp32, ranks)
    torch.manual_seed(1 + ranks.rank)  # all begin with rank 0's weights all the same
    model = build_seq2seq(settings, pair.source.size, pair.target.size, joint=False).double()
    sentences: list[int] = []
    seeds: set[int] = set()
    task = build_task(settings)
    loss = task.loss

    def noting(model: Any, batch: Any, step: StepInfo) -> Any:
        sentences.extend(batch.index_B.tolist())
        seeds.add(torch.initial_seed())
        factor = math.nan if ranks.rank == 1 and step.step == spoiled else 1.0
        return loss(model, batch, step) * factor

    task.loss = noting  # type: ignore[method-assign]
    trainer = Trainer(
        task=task,
        model=model,
        data=TrainingExamples(
            tokenized.train,
            BatchMaker,
            batch_size=settings.task["batch_size"],
            unit=settings.task["batch_unit"],
            seed=1,
        ),
        validate=lambda step, counted: {},
        optimizer=build_optimizer(settings, model),
        schedule=build_schedule(settings),
        settings=trainer_settings(settings, task),
        tracker=Trackers(()),
        folder=Path(),
        seed=1,
        identity={},
        profile=no_profile,
        stop=StopSignals(None),
        compute=compute,
    )
    losses, norms = [], []
    for number in range(trainer.epoch_steps):
        assert trainer.plan is not None
        trainer.state.step = trainer.state.position = number
        result = trainer.step(trainer.plan, trainer.state)
        losses.append(float(result.loss_sum) / result.units)
        norms.append(float(result.norm))
    split = TranslationSplit("val", corpus.validation, tokenized.validation)
    search = GreedySearch(min_length_factor=0.0, max_length_factor=1.0, max_length_extra=3)
    evaluate = TranslationEvaluator(
        model,
        split,
        pair,
        compute,
        search=search,
        batch_size=2,
        samples=[0, 4],
    )
    return Trained(
        losses,
        norms,
        nn.utils.parameters_to_vector(model.parameters()).detach(),
        sentences,
        seeds,
        evaluate(),
    )


def on_a_rank(cases: list[Any]) -> list[Trained]:
    """Train each of the cases together with the other ranks."""
    with join_ranks() as ranks:
        return [train(case, ranks) for case in cases]


def not_finite_on_rank_1(case: Any, step: int) -> Trained:
    """Train together with the other ranks; the loss of rank 1 is NaN in one step."""
    with join_ranks() as ranks:
        return train(case, ranks, step)


def refused_on_rank_1() -> None:
    """Fail on one rank while the other waits for it."""
    with join_ranks() as ranks:
        logging.getLogger("seq2seq_lab").warning("of rank %s", ranks.rank)
        if ranks.rank == 1:
            raise UserError("key=value is not allowed: this rank will not. Choose another.")
        ranks.barrier()


def aborted_at_its_end() -> str:
    """Return something from a process that would not end well."""
    atexit.register(os._exit, 7)
    return "done"
