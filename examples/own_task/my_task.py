"""A custom task: tag each token of a sequence with whether it occurred earlier in the sequence."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from seq2seq_lab.data.batching import Index, plan_evaluation
from seq2seq_lab.metrics.base import Array, Metric, digest
from seq2seq_lab.metrics.loss import MeanLoss
from seq2seq_lab.models.encoders.base import Encoder
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.device import to_host
from seq2seq_lab.runtime.memory import evaluation_context
from seq2seq_lab.tasks.base import Parts, StepInfo, Task, TaskData
from seq2seq_lab.tasks.evaluation import SplitEvaluator
from seq2seq_lab.tasks.examples import TrainingExamples
from seq2seq_lab.tasks.loaded import Prediction

Tags = npt.NDArray[np.bool_]
TAGS = ("new", "repeated")


@dataclass(frozen=True)
class Sequences:
    """A split, or a batch, of N sequences of S tokens with a tag per token; its metrics have the prefix `prefix`."""

    prefix: str
    tokens_NS: Tensor
    tags_NS: Tensor

    @classmethod
    def drawn(
        cls, prefix: str, rng: np.random.Generator, count: int, symbols: int, length: int
    ) -> "Sequences":
        """Return random sequences."""
        tokens_NS = rng.integers(0, symbols, (count, length))
        tags_NS = [[token in row[:i] for i, token in enumerate(row)] for row in tokens_NS.tolist()]
        return cls(prefix, torch.from_numpy(tokens_NS), torch.tensor(tags_NS, dtype=torch.int64))

    @property
    def lengths(self) -> Tensor:
        """The number of tokens of each sequence: int64, N."""
        return torch.full(self.tokens_NS.shape[:1], self.tokens_NS.shape[1])

    units = lengths  # the loss is the mean over tokens

    def __getitem__(self, index: Any) -> "Sequences":
        return replace(self, tokens_NS=self.tokens_NS[index], tags_NS=self.tags_NS[index])

    def batches(self, device: torch.device) -> Callable[[Index], "Sequences"]:
        """Return what makes batches on a device."""
        there = replace(self, tokens_NS=self.tokens_NS.to(device), tags_NS=self.tags_NS.to(device))
        return lambda index: there[torch.from_numpy(index)]

    @property
    def hash(self) -> str:
        """Identifies the sequences."""
        return digest(self.tokens_NS.tolist())


class Tagger(nn.Module):
    """An encoder with a linear layer on its outputs."""

    def __init__(self, embedding: nn.Embedding, encoder: Encoder) -> None:
        super().__init__()
        self.embedding, self.encoder = embedding, encoder
        self.output = nn.Linear(encoder.sizes.encoder_output_size, 2)

    def forward(self, batch: Sequences) -> Tensor:
        """Return logits_NSC of the C = 2 tags."""
        lengths = [batch.tokens_NS.shape[1]] * len(batch.tokens_NS)
        return self.output(self.encoder(self.embedding(batch.tokens_NS), lengths).outputs_BSM)


def losses(logits_NSC: Tensor, batch: Sequences) -> Tensor:
    """Return the cross-entropy of each token, loss_NS."""
    return functional.cross_entropy(logits_NSC.float().transpose(1, 2), batch.tags_NS, reduction="none")


@dataclass(frozen=True)
class Outputs:
    """What the metrics read: the predicted tags, the tags, and the rows of `MeanLoss`."""

    predicted_NS: Tags
    tags_NS: Tags
    losses: dict[str, Array]


class RepeatF1(Metric):
    """F1 of the tag "occurred earlier"."""

    name, label, higher_is_better, format = "repeat_f1", "F1 of repeats", True, ".3f"
    confidence, limits = True, (0.0, 1.0)

    def rows(self, outputs: Outputs) -> Array:
        found, real = outputs.predicted_NS, outputs.tags_NS
        return np.column_stack([(found & real).sum(1), found.sum(1), real.sum(1)]).astype(float)

    def value(self, totals_K: Array) -> float:
        correct, predicted, real = totals_K
        return 2 * correct / max(1.0, predicted + real)


class TagEvaluator(SplitEvaluator[tuple[Tags, float]]):
    """Evaluates a model on a split. The result of a sequence is its predicted tags and its loss."""

    split: Sequences

    def score(self, index: Index, final: bool) -> list[tuple[Tags, float]]:
        batch = self.split.batches(self.compute.device)(index)
        with evaluation_context(batch, self.compute.precision, self.compute.device):
            logits_NSC = self.model(batch)
        loss_N = to_host(losses(logits_NSC, batch).sum(1)).tolist()
        return [*zip(to_host(logits_NSC.argmax(-1)) == 1, loss_N, strict=True)]

    def outputs(self, results: Sequence[tuple[Tags, float]]) -> Outputs:
        predicted_NS, loss_N = zip(*results, strict=True)
        rows = np.column_stack([loss_N, self.split.lengths])
        return Outputs(np.array(predicted_NS), self.split.tags_NS.numpy() == 1, {"tagging": rows})


class RepeatTagging(Task):
    """Tags each token with whether it occurred earlier in the sequence.

    Args:
        train, validation, test: the number of sequences of each split.
        symbols: size of the vocabulary.
        length: tokens of a sequence.
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
        length: int,
        data_seed: int,
    ) -> None:
        self.parts, self.seed, self.symbols = parts, seed, symbols
        self.batch_size, self.eval_batch_size = batch_size, eval_batch_size
        self.sizes, rng = {"train": train, "val": validation, "test": test}, np.random.default_rng(data_seed)
        self.splits = {name: Sequences.drawn(name, rng, n, symbols, length) for name, n in self.sizes.items()}

    def data_record(self) -> dict[str, Any]:
        hashes = {name: split.hash for name, split in self.splits.items()}
        tests = {"test": hashes["test"]}
        return {"fingerprint": digest(hashes.values()), "sizes": self.sizes, "tests": tests, "counts": {}}

    def load(self, cache: Path, saved: Path | None, limit: int | None) -> TaskData:
        train, record = self.splits["train"], self.data_record()
        return TaskData(
            train=TrainingExamples(
                lambda epoch: train, Sequences.batches, self.batch_size, "sentences", self.seed
            ),
            validation=self.splits["val"][:limit],
            tests=[self.splits["test"][:limit]],
            record=record,
            identity={"the data": record["fingerprint"]},
        )

    def model(self) -> Tagger:
        model = Tagger(nn.Embedding(self.symbols, 16), self.parts.encoder(input_size=16))
        self.parts.initialization()(model)
        return model

    def loss(self, model: Tagger, batch: Sequences, step: StepInfo) -> Tensor:
        return losses(model(batch), batch).sum()

    def predict(self, model: Tagger, inputs: Sequence[str], compute: Compute) -> list[Prediction]:
        """Return the tags of lines such as "3 1 3"."""
        found = []
        for line in inputs:
            tokens_1S = torch.tensor([[*map(int, line.split())]], device=compute.device)
            batch = Sequences("", tokens_1S, torch.zeros_like(tokens_1S))
            with evaluation_context(batch, compute.precision, compute.device):
                tags = model(batch)[0].argmax(-1).tolist()
            found.append(Prediction(source=line, text=" ".join(TAGS[tag] for tag in tags)))
        return found

    def evaluator(
        self, split: Sequences, model: Tagger, compute: Compute, also: Collection[str] = ()
    ) -> TagEvaluator:
        plan = plan_evaluation(split, self.eval_batch_size)
        return TagEvaluator(
            model, split, compute, plan=plan, examples=split.hash, metrics=self.metrics, also=also
        )
