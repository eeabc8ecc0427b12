"""What the benchmarks train: the data, the reference models and the models of the package, and a training step of each."""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import hydra
import numpy as np
import torch
from torch import nn

from benchmarks import flops
from benchmarks.flops import Tokens
from benchmarks.reference import Bahdanau, Cho, Luong, Reference, Sizes, Sutskever
from seq2seq_lab.config import schema as config
from seq2seq_lab.config.compose import composer
from seq2seq_lab.config.schema import Config, Precision
from seq2seq_lab.data.batch import Batch
from seq2seq_lab.data.batching import BatchMaker, StepPlan
from seq2seq_lab.data.download import cache_folder
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.tokenized import TokenizedText, tokenize_corpus
from seq2seq_lab.data.tokenizers import EOS, PAD, SOS
from seq2seq_lab.errors import UserError
from seq2seq_lab.launching.checks import check_slots
from seq2seq_lab.models.seq2seq import build_seq2seq
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.device import autocast
from seq2seq_lab.runtime.ranks import Ranks
from seq2seq_lab.tasks.examples import ExamplePlan
from seq2seq_lab.tasks.parts import build_dataset, build_task, build_tokenizer
from seq2seq_lab.tasks.translation.loss import TrainingLoss
from seq2seq_lab.tasks.translation.task import TranslationTask
from seq2seq_lab.tasks.translation.teacher_forcing import Constant
from seq2seq_lab.training.parts import build_optimizer, build_schedule, trainer_settings
from seq2seq_lab.training.state import TrainState
from seq2seq_lab.training.step import TrainingStep

LEARNING_RATE = 1e-3
CLIP_NORM = 1.0
DROPOUT = 0.5
MULTI30K_PAIRS = 29_000
MULTI30K_VOCABULARIES = (7_853, 5_893)
ALONE = Ranks()


@dataclass(frozen=True, slots=True)
class Model:
    """A reference model, and the operations of its forward pass. The model bundle of the package has the same name."""

    title: str
    reference: type[Reference]
    forward_flops: Callable[[Sizes, Tokens], int]


MODELS = {
    "sutskever": Model(
        "Sutskever 2014: two LSTM layers on each side, fixed context", Sutskever, flops.sutskever
    ),
    "cho": Model("Cho 2014: GRU, the context at each step", Cho, flops.cho),
    "bahdanau": Model("Bahdanau 2014: GRU, additive attention before the step", Bahdanau, flops.bahdanau),
    "luong": Model(
        "Luong 2015: GRU, bilinear attention after the step, no input feeding", Luong, flops.luong
    ),
}


@dataclass(frozen=True, slots=True)
class Data:
    """Training pairs and the sizes of the vocabularies; `joint` if there is one for both sides."""

    name: str
    text: TokenizedText
    source_vocabulary: int
    target_vocabulary: int
    joint: bool = False

    def sizes(self, embedding: int = 256, hidden: int = 512) -> Sizes:
        """Return the sizes of a model for this data."""
        return Sizes(self.source_vocabulary, self.target_vocabulary, embedding, hidden)

    def tokens(self, step: StepPlan) -> Tokens:
        """Count the real tokens of a step."""
        index = torch.from_numpy(np.concatenate(step))
        source, target = self.text.lengths[index], self.text.units[index]
        return Tokens.of(source.tolist(), target.tolist())


def multi30k(folder: Path) -> Data:
    """Return Multi30k German to English in lowercased spaCy tokens, as in the tutorials."""
    settings = composed(
        *("dataset=multi30k", f"dataset.path='{folder}'"),
        *("tokenizer=spacy", "tokenizer.lowercase=true", "tokenizer.joiners=false"),
    )
    assert settings.tokenizer is not None
    corpus, cache = build_dataset(settings).load(), cache_folder(settings.cache_dir)
    tokenized = tokenize_corpus(corpus, build_tokenizer(settings), settings.tokenizer, cache)
    pair = tokenized.tokenizers
    name = "Multi30k de-en, lowercased spaCy tokens"
    return Data(name, tokenized.train, pair.source.size, pair.target.size)


def synthetic(pairs: int, seed: int) -> Data:
    """Return random ids whose source and target lengths have the distribution and the correlation of Multi30k's."""
    generator = np.random.default_rng(seed)
    source = np.clip(generator.gamma(8.87, 1.402, pairs).round(), 1, 44).astype(np.int64)
    spread = generator.normal(2.66, 2.08, pairs)
    target = np.clip((source * 0.84 + spread).round(), 4, 41).astype(np.int64)
    sides = []
    for lengths, vocabulary in zip((source, target), MULTI30K_VOCABULARIES, strict=True):
        offsets = np.concatenate([[0], (lengths + 2).cumsum()])
        tokens = generator.integers(PAD + 3, vocabulary, offsets[-1], dtype=np.int32)
        tokens[offsets[:-1]], tokens[offsets[1:] - 1] = SOS, EOS
        sides.append(Ragged(torch.from_numpy(tokens), torch.from_numpy(offsets)))
    name = f"{pairs:,} random pairs with Multi30k's lengths"
    return Data(name, TokenizedText(*sides), *MULTI30K_VOCABULARIES)


def random_plan(text: TokenizedText, batch_size: int, seed: int) -> list[StepPlan]:
    """Return the steps of an epoch as in the tutorials: full batches of sentences in random order.

    Raises:
        UserError: there are not enough sentences for one batch.
    """
    if len(text) < batch_size:
        raise UserError(
            f"--batch-size={batch_size}: there are only {len(text)} pairs. Choose a smaller batch."
        )
    order = np.random.default_rng(seed).permutation(len(text))
    return [[order[i : i + batch_size]] for i in range(0, len(text) - batch_size + 1, batch_size)]


class Loop:
    """The training step of a reference: mean loss over real tokens, fused Adam, clipping, no logging."""

    def __init__(self, model: Reference, data: Data, device: torch.device, seed: int) -> None:
        self.model = model.to(device).train()
        self.batches = BatchMaker(data.text, device)
        self.loss = nn.CrossEntropyLoss(ignore_index=PAD)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, fused=True)
        self.device = device
        self.generator = random.Random(seed)

    def train_step(self, step: StepPlan, ratio: float, precision: Precision) -> torch.Tensor:
        """Train one step; return its mean loss on the device."""
        self.optimizer.zero_grad(set_to_none=True)
        batches = [self.batches(index) for index in step]
        tokens = sum(batch.target_tokens for batch in batches)
        total = torch.zeros((), device=self.device)
        for batch in batches:
            with autocast(precision, self.device):
                loss = self.batch_loss(batch, ratio) * (batch.target_tokens / tokens)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP_NORM)
        self.optimizer.step()
        return total

    def batch_loss(self, batch: Batch, ratio: float) -> torch.Tensor:
        """Return the mean loss over the real tokens of a batch."""
        target_UB = batch.target_BU.t()
        logits_TBV = self.model(batch.source_BS.t(), batch.source_lengths, target_UB, ratio, self.generator)
        return self.loss(logits_TBV.flatten(0, 1), target_UB[1:].flatten())


class Package:
    """The training step of the package; the teacher forcing mask is drawn per step, as in `Loop`."""

    def __init__(self, settings: Config, data: Data, device: torch.device, ranks: Ranks = ALONE) -> None:
        torch.manual_seed(settings.seed)
        self.model = build_seq2seq(settings, data.source_vocabulary, data.target_vocabulary, joint=data.joint)
        self.model.to(device)
        task = build_task(settings)
        assert isinstance(task, TranslationTask)
        self.task = task
        self.batches = BatchMaker(data.text, device, task.settings.pad_to or 1)
        self.units = data.text.units.numpy()
        self.state = TrainState()
        self.step = TrainingStep(
            task=task,
            model=self.model,
            optimizer=build_optimizer(settings, self.model),
            schedule=build_schedule(settings),
            settings=trainer_settings(settings, task),
            seed=settings.seed,
            total=1,  # the schedule is constant
            compute=Compute(device, Precision.fp32, ranks),
        )

    def train_step(self, step: StepPlan, ratio: float, precision: Precision) -> torch.Tensor:
        """Train one step; return its mean loss on the device."""
        self.task.training_loss = TrainingLoss(
            Constant(ratio, "step"),
            label_smoothing=0.0,
            r_drop=0.0,
            stop_at_eos=False,
            coverage_loss=0.0,
            seed=self.step.seed,
        )
        self.step.compute = replace(self.step.compute, precision=precision)
        result = self.step(ExamplePlan([step], self.units, self.batches), self.state)
        self.state.step += 1
        return result.loss_sum / result.units


def package(
    name: str,
    data: Data,
    device: torch.device,
    *overrides: str,
    sizes: Sizes,
    dropout: float = DROPOUT,
    batch_size: int = 128,
    seed: int = 1,
    ranks: Ranks = ALONE,
) -> Package:
    """Return a model bundle of the package that trains as its reference does."""
    settings = package_config(name, sizes, dropout, batch_size, seed, *overrides)
    return Package(settings, data, device, ranks)


def package_config(
    name: str, sizes: Sizes, dropout: float, batch_size: int, seed: int, *overrides: str
) -> Config:
    """Return the configuration of a model bundle that trains as its reference does."""
    attentional = f"model.attentional_size={sizes.hidden}" if name.startswith("luong") else ""
    words = (
        f"model={name} model.embedding_size={sizes.embedding} model.hidden_size={sizes.hidden} {attentional} "
        f"model.encoder_hidden_size={sizes.hidden} model.dropout={dropout} model.state_dropout=0 logger=none "
        f"optimizer.lr={LEARNING_RATE} optimizer.betas=[0.9,0.999] schedule=constant seed={seed} "
        f"task.batch_size={batch_size} trainer.clip_norm={CLIP_NORM}"
    )
    return composed(*words.split(), *overrides)


def composed(*overrides: str) -> Config:
    """Return the configuration of a command line with these overrides."""
    with composer():
        settings = config.typed(hydra.compose("config", list(overrides)))
    config.check(settings)
    check_slots(settings)
    return settings


def num_parameters(model: nn.Module) -> int:
    """Return the number of trained parameters."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


# From names of weights in a reference to names in the package.
RENAMED = (
    (r"^(source|target)_embedding\.", r"\1_embedding.table."),
    (r"^(encoder|decoder)\.(\w+)_l(\d)(_reverse)?$", r"\1.layers.layers.\3.\2_l0\4"),
    (r"^bridge\.", "decoder.bridge.hidden.0."),
    (r"^(attention|combine)\.", r"decoder.\1."),
    (r"^output\.", "readout.linear."),
)


def copy_weights(reference: nn.Module, package: nn.Module) -> None:
    """Copy the weights of a reference into the model of the package."""
    weights = {}
    for name, weight in reference.state_dict().items():
        for pattern, replacement in RENAMED:
            name = re.sub(pattern, replacement, name)
        weights[name] = weight
    package.load_state_dict(weights)
