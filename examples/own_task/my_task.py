"""A custom task: tag each token of a sequence with whether it occurred earlier in the sequence."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

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

PAD = 0
IGNORED = -100  # the tag of padding


@dataclass(frozen=True)
class Batch:
    """B sequences of at most S tokens, with a tag per token."""

    tokens_BS: Tensor
    lengths: tuple[int, ...]
    tags_BS: Tensor


@dataclass(frozen=True)
class Sequences:
    """Random sequences, with a tag per token."""

    tokens: list[npt.NDArray[np.int64]]
    tags: list[npt.NDArray[np.bool_]]

    @classmethod
    def drawn(cls, rng: np.random.Generator, count: int, symbols: int, longest: int) -> "Sequences":
        """Return `count` sequences of 2 to `longest` tokens."""
        tokens = [rng.integers(1, symbols + 1, rng.integers(2, longest + 1)) for _ in range(count)]
        return cls(tokens, [np.array([token in row[:i] for i, token in enumerate(row)]) for row in tokens])

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def lengths(self) -> Tensor:
        """The number of tokens of each sequence: int64, N."""
        return torch.tensor([len(row) for row in self.tokens])

    units = lengths  # the loss is the mean over tokens

    def batch(self, index: Index, device: torch.device) -> Batch:
        """Return the batch of the sequences of these indices."""
        tokens = [torch.from_numpy(self.tokens[i]) for i in index]
        tags = [torch.from_numpy(self.tags[i]).long() for i in index]
        tokens_BS = pad_sequence(tokens, batch_first=True, padding_value=PAD)
        tags_BS = pad_sequence(tags, batch_first=True, padding_value=IGNORED)
        return Batch(tokens_BS.to(device), tuple(map(len, tokens)), tags_BS.to(device))

    def first(self, count: int | None) -> "Sequences":
        """Return the first sequences; None: all."""
        return Sequences(self.tokens[:count], self.tags[:count])


def batches(sequences: Sequences, device: torch.device) -> Callable[[Index], Batch]:
    """Return what makes batches of the sequences."""
    return lambda index: sequences.batch(index, device)


def hash_of(sequences: Sequences) -> str:
    """Return a hash of the sequences."""
    return digest(row.tolist() for row in sequences.tokens)


@dataclass(frozen=True)
class Split:
    """A validation or test split."""

    prefix: str
    sequences: Sequences


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
    """What the metrics read: the predicted tags, the tags, and the loss and the number of tokens of each sequence."""

    predictions: list[npt.NDArray[np.bool_]]
    tags: list[npt.NDArray[np.bool_]]
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

    def sequences(self) -> dict[str, Sequences]:
        """Return the generated splits by prefix."""
        rng = np.random.default_rng(self.data_seed)
        return {
            prefix: Sequences.drawn(rng, size, self.symbols, self.longest)
            for prefix, size in self.sizes.items()
        }

    def data_record(self) -> dict[str, Any]:
        hashes = {prefix: hash_of(split) for prefix, split in self.sequences().items()}
        return {
            "fingerprint": digest(hashes.values()),
            "sizes": self.sizes,
            "tests": {"test": hashes["test"]},
            "counts": {},
        }

    def load(self, cache: Path, saved: Path | None, limit: int | None) -> TaskData:
        sequences, record = self.sequences(), self.data_record()
        train = TrainingExamples(
            lambda epoch: sequences["train"], batches, self.batch_size, "sentences", self.seed
        )
        validation, test = (Split(prefix, sequences[prefix].first(limit)) for prefix in ("val", "test"))
        return TaskData(
            train=train,
            validation=validation,
            tests=[test],
            record=record,
            identity={"the data": record["fingerprint"]},
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
        self, split: Split, model: Tagger, compute: Compute, also: Collection[str] = ()
    ) -> "TagEvaluator":
        return TagEvaluator(
            model,
            split,
            compute,
            plan=plan_evaluation(split.sequences, self.eval_batch_size),
            examples=hash_of(split.sequences),
            metrics=self.metrics,
            also=also,
        )


class TagEvaluator(SplitEvaluator[tuple[npt.NDArray[np.bool_], float]]):
    """Evaluates a model on a split. The result of a sequence is its predicted tags and its loss."""

    split: Split

    def score(self, index: Index, final: bool) -> list[tuple[npt.NDArray[np.bool_], float]]:
        batch = self.split.sequences.batch(index, self.compute.device)
        with evaluation_context(batch, self.compute.precision, self.compute.device):
            logits_BSC = self.model(batch).float()
        loss_BS = functional.cross_entropy(
            logits_BSC.transpose(1, 2), batch.tags_BS, ignore_index=IGNORED, reduction="none"
        )
        rows = zip(to_host(logits_BSC.argmax(-1)) == 1, to_host(loss_BS.sum(1)), batch.lengths, strict=True)
        return [(tags_S[:length], float(loss)) for tags_S, loss, length in rows]

    def outputs(self, results: Sequence[tuple[npt.NDArray[np.bool_], float]]) -> Outputs:
        loss_N = np.array([loss for _, loss in results])
        losses = {"tagging": np.column_stack([loss_N, self.split.sequences.lengths])}
        return Outputs([tags for tags, _ in results], self.split.sequences.tags, losses)
