"""A custom task: tag each token of a sequence with whether it occurred earlier in the sequence."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from seq2seq_lab.config.type_checks import Count
from seq2seq_lab.data.batching import Index
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.base import Array, Metric
from seq2seq_lab.metrics.loss import MeanLoss
from seq2seq_lab.models.encoders.base import Encoder
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.device import to_host
from seq2seq_lab.runtime.memory import evaluation_context
from seq2seq_lab.tasks.base import Parts, StepInfo
from seq2seq_lab.tasks.evaluation import Evaluation, SplitEvaluator
from seq2seq_lab.tasks.examples import TensorExamples, TensorTask
from seq2seq_lab.tasks.loaded import Prediction
from seq2seq_lab.tasks.report import Examples, Report
from seq2seq_lab.tasks.settings import BatchSettings

TAGS = ("new", "repeated")


@dataclass(frozen=True)
class Sequences(TensorExamples):
    """N sequences of S tokens with a tag per token."""

    tokens_NS: Tensor
    tags_NS: Tensor

    @property
    def units(self) -> Tensor:  # the loss is the mean over tokens
        return torch.full((len(self),), self.tokens_NS.shape[1])


def draw(prefix: str, rng: np.random.Generator, count: int, symbols: int, length: int) -> Sequences:
    """Return random sequences."""
    tokens_NS = rng.integers(0, symbols, (count, length))
    tags_NS = [[token in row[:i] for i, token in enumerate(row)] for row in tokens_NS.tolist()]
    return Sequences(prefix, torch.from_numpy(tokens_NS), torch.tensor(tags_NS, dtype=torch.int64))


class Tagger(nn.Module):
    """An encoder with a linear layer on its outputs."""

    def __init__(self, embedding: nn.Embedding, encoder: Encoder) -> None:
        super().__init__()
        self.embedding, self.encoder = embedding, encoder
        self.output = nn.Linear(encoder.sizes.encoder_output_size, len(TAGS))

    def forward(self, batch: Sequences) -> Tensor:
        """Return logits_NSC of the C tags."""
        lengths = [batch.tokens_NS.shape[1]] * len(batch)
        return self.output(self.encoder(self.embedding(batch.tokens_NS), lengths).outputs_BSM)


def losses(logits_NSC: Tensor, batch: Sequences) -> Tensor:
    """Return the cross-entropy of each token, loss_NS."""
    return functional.cross_entropy(logits_NSC.float().transpose(1, 2), batch.tags_NS, reduction="none")


@dataclass(frozen=True)
class Outputs:
    """What the metrics read: the predicted tags, the tags, and the rows of `MeanLoss`."""

    predicted_NS: Array
    tags_NS: Array
    losses: dict[str, Array]


class RepeatF1(Metric):
    """F1 of the tag "repeated"."""

    name, label, higher_is_better, format = "repeat_f1", "F1 of repeats", True, ".3f"
    confidence, limits = True, (0.0, 1.0)

    def rows(self, outputs: Outputs) -> Array:
        found, real = outputs.predicted_NS == 1, outputs.tags_NS == 1
        return np.column_stack([(found & real).sum(1), found.sum(1), real.sum(1)]).astype(float)

    def value(self, totals_K: Array) -> float:
        correct, predicted, real = totals_K
        return 2 * correct / max(1.0, predicted + real)


class TagEvaluator(SplitEvaluator[tuple[Array, float]]):
    """Evaluates a model on a split. The result of a sequence is its predicted tags and its loss."""

    split: Sequences

    def score(self, index: Index, final: bool) -> list[tuple[Array, float]]:
        batch = self.split.batches(self.compute.device)(index)
        with evaluation_context(batch, self.compute.precision, self.compute.device):
            logits_NSC = self.model(batch)
        loss_N = to_host(losses(logits_NSC, batch).sum(1)).tolist()
        return [*zip(to_host(logits_NSC.argmax(-1)), loss_N, strict=True)]

    def outputs(self, results: Sequence[tuple[Array, float]]) -> Outputs:
        predicted_NS, loss_N = zip(*results, strict=True)
        rows = np.column_stack([loss_N, self.split.units])
        return Outputs(np.array(predicted_NS), self.split.tags_NS.numpy(), {"tagging": rows})


class RepeatTagging(TensorTask):
    """Tags each token with whether it occurred earlier in the sequence.

    Args:
        parts, seed: passed by the program.
        settings: `batch_size` and `eval_batch_size` of the group `task`.
        train, validation, test: the number of sequences of each split.
        symbols: size of the vocabulary.
        length: tokens of a sequence.
        data_seed: of the generated sequences.
    """

    uses = frozenset({"encoder", "initialization"})
    metrics = (MeanLoss("tagging", "loss"), RepeatF1())
    primary = "repeat_f1"
    unit = "tokens"
    evaluator_type = TagEvaluator

    def __init__(
        self,
        *,
        parts: Parts,
        seed: int,
        settings: BatchSettings,
        train: Count,
        validation: Count,
        test: Count,
        symbols: Count,
        length: Count,
        data_seed: int,
    ) -> None:
        rng, self.symbols = np.random.default_rng(data_seed), symbols
        sizes = {"train": train, "val": validation, "test": test}
        splits = {name: draw(name, rng, n, symbols, length) for name, n in sizes.items()}
        super().__init__(splits, parts=parts, seed=seed, settings=settings)

    def model(self) -> Tagger:
        model = Tagger(nn.Embedding(self.symbols, 16), self.parts.encoder(input_size=16))
        self.parts.initialization()(model)
        return model

    def loss(self, model: Tagger, batch: Sequences, step: StepInfo) -> Tensor:
        return losses(model(batch), batch).sum()

    def report(self, split: Sequences, evaluation: Evaluation, step: int | None) -> Report:
        """Show the tags of each sequence, of three at a validation."""
        outputs: Outputs = evaluation.outputs
        rows = [split.tokens_NS.numpy(), outputs.tags_NS, outputs.predicted_NS]
        correct_N = (outputs.predicted_NS == outputs.tags_NS).mean(1).tolist()
        inputs, tags, predicted = ([" ".join(map(str, row)) for row in rows_NS] for rows_NS in rows)
        limit = None if step is None else 3
        examples = Examples.of("tags", inputs, tags, outputs=predicted, scores=correct_N, limit=limit)
        return Report(examples=examples)

    def predict(self, model: Tagger, inputs: Sequence[str], compute: Compute) -> list[Prediction]:
        """Return the tags of lines such as "3 1 3".

        Raises:
            UserError: a line has no tokens, or one that is not in the vocabulary.
        """
        numbers = {str(number): number for number in range(self.symbols)}
        found = []
        for line in inputs:
            tokens = line.split()
            if not tokens or not numbers.keys() >= set(tokens):
                raise UserError(
                    f"The input {line!r} is not a sequence of this task. Allowed: numbers from 0 to "
                    f"{self.symbols - 1}, separated by spaces."
                )
            tokens_1S = torch.tensor([[numbers[token] for token in tokens]], device=compute.device)
            batch = Sequences("", tokens_1S, torch.zeros_like(tokens_1S))
            with evaluation_context(batch, compute.precision, compute.device):
                tags = model(batch)[0].argmax(-1).tolist()
            found.append(Prediction(source=line, text=" ".join(TAGS[tag] for tag in tags)))
        return found
