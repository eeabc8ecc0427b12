"""Given outputs that a trained model reads under teacher forcing."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seq2seq_lab.data.alignment_files import alignment_words
from seq2seq_lab.data.batching import Index
from seq2seq_lab.data.corpus import Gold, word_spans
from seq2seq_lab.data.tokenizers import Tokenizer
from seq2seq_lab.errors import UserError, require, require_list
from seq2seq_lab.metrics.alignment import WordLinks
from seq2seq_lab.metrics.attention import Units
from seq2seq_lab.metrics.significance import Clusters, clusters_of
from seq2seq_lab.runtime.compute import Compute
from seq2seq_lab.runtime.memory import evaluation_context

Read = Callable[[Any], tuple[Tensor, Tensor | None]]


@dataclass(frozen=True, kw_only=True)
class Forced:
    """N inputs with outputs, in batches.

    Attributes:
        sources: the inputs: lines of text or paths of files; empty texts for a model without a source.
        targets: the outputs as text.
        tokenizer: that of the outputs.
        source_tokenizer: that of the inputs; None if they are not text.
        plan: the indices of the examples of each batch.
        batch: returns the batch of some examples, with the fields of `data.batch.BatchOfTargets` that are read here.
        read: returns (logits_BTV or log-probabilities, weights_BTS or None) of a batch; row t belongs to output t.
        compute: the device and the precision of the model.
        clusters: the id of each example's cluster; None: the examples of one input are a cluster.
        without: returns a batch of other source ids, without their frame, each with the output of one pair; None if the
            inputs are not text.
    """

    sources: Sequence[str]
    targets: Sequence[str]
    tokenizer: Tokenizer
    source_tokenizer: Tokenizer | None
    plan: Sequence[Index]
    batch: Callable[[Index], Any]
    read: Read
    compute: Compute
    clusters: Sequence[int] | None = None
    without: Callable[[Sequence[Sequence[int]], int], Any] | None = None

    @cached_property
    def clusters_N(self) -> Clusters:
        """The id of each example's cluster, which confidence intervals resample."""
        return clusters_of(self.sources) if self.clusters is None else np.array(self.clusters, np.int64)

    def readings(self) -> Iterator[tuple[list[int], Any, Tensor, Tensor | None]]:
        """Yield for each batch (indices of its examples, the batch, logits_BTV, weights_BTS).

        The weights are None without attention, and if they are over the turns of a dialogue instead of its tokens.
        """
        for index in self.plan:
            batch = self.batch(index)
            with torch.no_grad(), evaluation_context(batch, self.compute.precision, self.compute.device):
                logits_BTV, weights_BTS = self.read(batch)
            reads_text = self.source_tokenizer is not None
            if weights_BTS is not None and reads_text and weights_BTS.shape[2] != max(batch.source_lengths):
                weights_BTS = None
            yield index.tolist(), batch, logits_BTV, weights_BTS

    def units(self, i: int) -> tuple[Units, Units]:
        """Return the units of the tokens of a pair of texts; see `metrics.attention`."""
        assert self.source_tokenizer is not None
        source, target = self.sources[i], self.targets[i]
        source_units = Units.of(source, self.source_tokenizer.spans(source), 1)
        return source_units, Units.of(target, self.tokenizer.spans(target), 0)

    def positions(self, model: Any, i: int) -> int:
        """Return the number of source positions of a pair that a model can attend to."""
        batch = self.batch(np.array([i]))
        with torch.no_grad(), evaluation_context(batch, self.compute.precision, self.compute.device):
            _, source = model.start(batch)
        return int(source.lengths_B[0])

    def cross_maps(self, model: Any, batch: Any) -> Tensor:
        """Return the cross-attention maps_BLATS of a Transformer for a batch."""
        with evaluation_context(batch, self.compute.precision, self.compute.device):
            maps: Tensor = model.attention_maps(batch, batch.inputs_BT)["cross"]
        return maps

    def word_links(
        self, i: int, source_spans: Sequence[tuple[int, int]], gold: Gold | None = None
    ) -> WordLinks:
        """Return the words of a pair with the source tokens of the given characters.

        Args:
            gold: the alignment whose words they are; None: the text between spaces.
        """
        source, target = self.sources[i], self.targets[i]
        words = (
            (alignment_words(source), alignment_words(target))
            if gold is None
            else (gold.source_words, gold.target_words)
        )
        spans = [word_spans(text, own) for text, own in zip((source, target), words, strict=True)]
        return WordLinks(source_spans, self.tokenizer.spans(target), *spans)


def check_pairs(sources: object, targets: object) -> None:
    """Refuse, as arguments of `forced`, anything but two lists of texts, or of paths and texts, of the same length.

    Raises:
        UserError: names the argument, or the lengths.
    """
    for name, given in (("sources", sources), ("targets", targets)):
        require_list(name, "texts", given, name)
    for name, given, kinds in (("sources", sources, (str, Path)), ("targets", targets, (str,))):
        texts = isinstance(given, Sequence) and all(isinstance(one, kinds) for one in given)
        require(texts, name, repr(given), "a list of texts")
    assert isinstance(sources, Sequence)
    assert isinstance(targets, Sequence)
    if len(sources) != len(targets):
        raise UserError(
            f"{len(sources):,} sources and {len(targets):,} targets are given. Give one target for each source."
        )
