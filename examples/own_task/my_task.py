"""A custom task: tag each token of a sequence with whether it occurred earlier in the sequence."""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from seq2seq_lab.data.batching import Index
from seq2seq_lab.metrics.base import Array, Metric, digest, measure
from seq2seq_lab.metrics.loss import MeanLoss
from seq2seq_lab.models.encoders.base import Encoder
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.device import autocast, to_host
from seq2seq_lab.tasks.base import Counted, EpochPlan, Evaluation, Parts, StepInfo, Task, TaskData

PAD = 0
IGNORED = -100  # the tag of padding


@dataclass(frozen=True)
class Batch:
    """B sequences of at most S tokens, with a tag per token."""

    tokens_BS: Tensor
    lengths: tuple[int, ...]
    tags_BS: Tensor


class Sequences:
    """A split of random sequences."""

    def __init__(
        self, prefix: str, rng: np.random.Generator, count: int, *, symbols: int, longest: int
    ) -> None:
        self.prefix = prefix
        self.lengths = rng.integers(2, longest + 1, count)
        self.tokens = [rng.integers(1, symbols + 1, length) for length in self.lengths]
        self.tags = [
            np.array([token in row[:place] for place, token in enumerate(row)]) for row in self.tokens
        ]

    def batch(self, index: Index, device: torch.device) -> Batch:
        """Return the batch of the sequences of these indices."""
        tokens_BS = torch.full((len(index), int(self.lengths[index].max())), PAD)
        tags_BS = torch.full_like(tokens_BS, IGNORED)
        for row, i in enumerate(index):
            tokens_BS[row, : self.lengths[i]] = torch.from_numpy(self.tokens[i])
            tags_BS[row, : self.lengths[i]] = torch.from_numpy(self.tags[i])
        return Batch(tokens_BS.to(device), tuple(self.lengths[index].tolist()), tags_BS.to(device))


class Epoch(EpochPlan):
    """The steps of an epoch; the units are tokens."""

    def __init__(self, split: Sequences, order: Index, batch_size: int, device: torch.device) -> None:
        super().__init__([[order[i : i + batch_size]] for i in range(0, len(order), batch_size)])
        self.split, self.device = split, device

    def batch(self, index: Index) -> Batch:
        return self.split.batch(index, self.device)

    def count(self, step: int) -> int:
        return sum(int(self.split.lengths[index].sum()) for index in self.plan[step])


@dataclass(frozen=True)
class Training:
    """The training split, whose order in an epoch is a function of (seed, epoch)."""

    split: Sequences
    batch_size: int
    seed: int

    def epoch(self, number: int, device: torch.device) -> Epoch:
        """See `TrainingSplit`."""
        order = np.random.default_rng((self.seed, number)).permutation(len(self.split.tokens))
        return Epoch(self.split, order, self.batch_size, device)


class Tagger(nn.Module):
    """An encoder with a linear layer on its outputs."""

    def __init__(self, embedding: nn.Embedding, encoder: Encoder) -> None:
        super().__init__()
        self.embedding, self.encoder = embedding, encoder
        self.output = nn.Linear(encoder.sizes.encoder_output_size, 2)

    def forward(self, batch: Batch) -> Tensor:
        """Return logits_BSC of the C = 2 tags."""
        return self.output(self.encoder(self.embedding(batch.tokens_BS), batch.lengths).outputs_BSM)


@dataclass(frozen=True)
class Outputs:
    """What the metrics read: the predicted tags, the tags, and the summed loss and the number of tokens of each rank."""

    predictions: list[Array]
    tags: list[Array]
    losses: Mapping[str, Array]


class RepeatF1(Metric):
    """F1 of the tag "occurred earlier"."""

    name, label, higher_is_better, format = "repeat_f1", "F1 of repeats", True, ".3f"
    confidence, limits = True, (0.0, 1.0)

    def rows(self, outputs: Outputs) -> Array:
        pairs = zip(outputs.predictions, outputs.tags, strict=True)
        return np.array(
            [[(found & tags).sum(), found.sum(), tags.sum()] for found, tags in pairs], np.float64
        )

    def value(self, totals_K: Array) -> float:
        correct, predicted, real = totals_K
        return 2 * correct / max(1.0, predicted + real)


class RepeatTagging(Task):
    """Tags each token with whether it occurred earlier in the sequence.

    Args:
        symbols: size of the vocabulary.
        longest: tokens of the longest sequence.
        data_seed: of the generated sequences.
    """

    uses = frozenset({"encoder", "initialization"})
    settings = ("batch_size", "eval_batch_size")
    metrics = (MeanLoss("tagging", "loss"), RepeatF1())
    primary = "repeat_f1"
    unit = "tokens"

    def __init__(
        self,
        *,
        parts: Parts,
        seed: int,
        batch_size: int,
        eval_batch_size: int,
        train: int,
        validation: int,
        test: int,
        symbols: int,
        longest: int,
        data_seed: int,
    ) -> None:
        self.parts, self.seed, self.data_seed = parts, seed, data_seed
        self.symbols, self.longest = symbols, longest
        self.batch_size, self.eval_batch_size = batch_size, eval_batch_size
        self.sizes = {"train": train, "val": validation, "test": test}

    def splits(self, limit: int | None = None) -> dict[str, Sequences]:
        """Return the generated splits by prefix."""
        return {
            prefix: Sequences(
                prefix,
                np.random.default_rng((self.data_seed, number)),
                size if limit is None or prefix == "train" else min(size, limit),
                symbols=self.symbols,
                longest=self.longest,
            )
            for number, (prefix, size) in enumerate(self.sizes.items())
        }

    def data_record(self) -> dict[str, Any]:
        hashes = {
            prefix: hashlib.sha256(np.concatenate(split.tokens).tobytes()).hexdigest()
            for prefix, split in self.splits().items()
        }
        return {
            "fingerprint": digest(hashes.values()),
            "sizes": self.sizes,
            "tests": {"test": hashes["test"]},
            "counts": {},
        }

    def load(self, cache: Path, saved: Path | None, limit: int | None) -> TaskData:
        splits, record = self.splits(limit), self.data_record()
        training = Training(splits["train"], self.batch_size, self.seed)
        return TaskData(
            training, splits["val"], [splits["test"]], record, {"the data": record["fingerprint"]}
        )

    def model(self) -> Tagger:
        embedding = nn.Embedding(self.symbols + 1, 16, padding_idx=PAD)
        model = Tagger(embedding, self.parts.encoder(input_size=16))
        self.parts.initialization()(model)
        return model

    def loss(self, model: Tagger, batch: Batch, step: StepInfo) -> Tensor:
        logits_NC = model(batch).flatten(0, 1)
        return functional.cross_entropy(
            logits_NC, batch.tags_BS.flatten(), ignore_index=IGNORED, reduction="sum"
        )

    def evaluator(
        self, split: Sequences, model: Tagger, compute: Compute, also: Collection[str] = ()
    ) -> "TagEvaluator":
        return TagEvaluator(self, split, model, compute, also)


class TagEvaluator:
    """Evaluates a model on a split; each rank evaluates its share of the batches."""

    def __init__(
        self, task: RepeatTagging, split: Sequences, model: Tagger, compute: Compute, also: Collection[str]
    ) -> None:
        self.task, self.split, self.model, self.compute, self.also = task, split, model, compute, also
        plan = np.array_split(np.arange(len(split.tokens)), -(-len(split.tokens) // task.eval_batch_size))
        self.plan = plan[compute.ranks.rank :: compute.ranks.size]

    @torch.no_grad()
    def __call__(self, final: bool = False, counted: Counted | None = None) -> Evaluation:
        self.model.eval()
        predictions: dict[int, Array] = {}
        loss_sum, tokens = 0.0, 0
        for done, index in enumerate(self.plan, start=1):
            batch = self.split.batch(index, self.compute.device)
            with autocast(self.compute.precision, self.compute.device):
                logits_BSC = self.model(batch)
            loss = functional.cross_entropy(
                logits_BSC.float().flatten(0, 1),
                batch.tags_BS.flatten(),
                ignore_index=IGNORED,
                reduction="sum",
            )
            loss_sum, tokens = loss_sum + float(loss), tokens + sum(batch.lengths)
            found_BS = to_host(logits_BSC.argmax(-1)) == 1
            predictions |= {
                int(i): row[:length] for i, row, length in zip(index, found_BS, batch.lengths, strict=True)
            }
            if counted is not None:
                counted(done, len(self.plan))
        shares = self.compute.ranks.gather((predictions, loss_sum, tokens))
        every = {i: row for share, _, _ in shares for i, row in share.items()}
        outputs = Outputs(
            [every[i] for i in range(len(self.split.tokens))],
            self.split.tags,
            {"tagging": np.array([[loss, count] for _, loss, count in shares])},
        )
        measurement = measure(
            self.task.metrics,
            outputs,
            clusters=np.arange(len(self.split.tokens)),
            examples=digest(row.tolist() for row in self.split.tokens),
            final=final,
            also=self.also,
        )
        values = {f"{self.split.prefix}/{name}": value for name, value in measurement.values.items()}
        return Evaluation(values, measurement)
