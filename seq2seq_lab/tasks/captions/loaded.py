"""A trained model that describes images, in Python."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from seq2seq_lab.analysis.forced import Forced, check_pairs
from seq2seq_lab.analysis.questions import Question, ask_image
from seq2seq_lab.analysis.search_input import NO_ATTENTION, SearchInput
from seq2seq_lab.analysis.traced import TracedSource
from seq2seq_lab.data.batching import plan_evaluation
from seq2seq_lab.data.captions import png_address, rgb
from seq2seq_lab.data.local_files import composed
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.tokenizers import SOS, Tokenizer
from seq2seq_lab.models.seq2seq import EncodedModel
from seq2seq_lab.tasks.captions.data import CaptionBatches, CaptionExamples
from seq2seq_lab.tasks.captions.evaluation import Caption
from seq2seq_lab.tasks.loaded import Loaded


class ReadFile(NamedTuple):
    """A file of an image or of features, and its values in the shape that the model reads."""

    file: str | Path
    values: npt.NDArray[Any]


@dataclass(frozen=True, repr=False)
class LoadedCaptioner(Loaded):
    """A trained model that describes images; its predictions are `Caption`s."""

    reads = "files"
    options = frozenset({"nbest", "scores", "attention"})

    ask = staticmethod(ask_image)

    @property
    def attends(self) -> bool:
        """See `Loaded.attends`."""
        attends: bool = self.model.attends
        return attends

    def read_file(self, file: str | Path) -> ReadFile:
        """See `Loaded.read_file`."""
        return ReadFile(file, self.task.read(Path(file)))

    def nbest(self, inputs: Sequence[str | Path | ReadFile], first: int = 0) -> list[list[Caption]]:
        """Return all captions of each image that the search returns, the best first.

        Args:
            inputs: files of images, which are cropped at their center and resized to the size of the training images; files
                of features if the model reads features. They are paths, or results of `read_file`.
            first: the index of the first image; the draws of `search=sampling` depend on it.

        Raises:
            UserError: `inputs` is not a list, or a file cannot be read.
        """
        read = [one if isinstance(one, ReadFile) else self.read_file(one) for one in self.as_read(inputs)]
        if not read:
            return []
        images = np.stack([one.values for one in read])
        found = self.task.caption(self.model, images, self.compute, first)
        return [
            [replace(one, source=str(file)) for one in captions]
            for (file, _), captions in zip(read, found, strict=True)
        ]

    @property
    def output_tokenizer(self) -> Tokenizer:
        """See `Loaded.output_tokenizer`."""
        tokenizer: Tokenizer = self.task.tokenizer
        return tokenizer

    @torch.no_grad()
    def search_input(self, sentence: str, changes: Sequence[str] = ()) -> SearchInput:
        """See `Loaded.search_input`; the sentence is the path of an image."""
        images = self._images([sentence])
        examples = CaptionExamples(
            torch.from_numpy(images), torch.arange(1), Ragged.of([[]]), self.task.longest
        )
        batches, attends = CaptionBatches(examples, self.device), self.model.attends

        def describe(encoded: EncodedModel) -> tuple[TracedSource, list[list[int]]]:
            rows, columns = self.task.grid
            names = [f"{row}, {column}" for row in range(rows) for column in range(columns)]
            address = png_address(rgb(images[0]))
            source = TracedSource(text=str(sentence), grid=(rows, columns), image=address)
            if not attends:
                return source, []
            regions = replace(source, columns="regions", column_names=names, word_column_names=names)
            return regions, [[region] for region in range(len(names))]

        def maps(tokens: list[int]) -> dict[str, torch.Tensor]:
            inputs_1T = torch.tensor([[SOS, *tokens]], device=self.device)
            found: dict[str, torch.Tensor] = self.model.attention_maps(batches(np.array([0])), inputs_1T)
            return found

        return self.decoded_input(
            changes,
            lambda count: batches(np.zeros(count, np.int64)),
            describe,
            source_tokenizer=None,
            maps=maps,
            no_attention=None if attends else NO_ATTENTION,
        )

    def forced(self, sources: Sequence[str], targets: Sequence[str]) -> Forced:
        """See `Loaded.forced`; the sources are files of images."""
        check_pairs(sources, targets)
        images = self._images(sources) if sources else np.empty((0, *self.task.shape), np.uint8)
        targets = [*map(composed, targets)]
        captions = Ragged.of(self.task.tokenizer.encode(targets))
        examples = CaptionExamples(
            torch.from_numpy(images), torch.arange(len(images)), captions, self.task.longest
        )
        return self._forced(sources, targets, examples)

    def questions(self, split: Any, model: Any = None) -> Callable[[int], Question]:
        """See `Loaded.questions`; the source is the regions of the image, as the encoder returns them."""
        forced = self._forced([*split.text.names], [*split.text.captions], split.tokens)
        return partial(ask_image, self.model if model is None else model, forced)

    def _forced(self, sources: Sequence[str], targets: Sequence[str], examples: CaptionExamples) -> Forced:
        return Forced(
            sources=sources,
            targets=targets,
            tokenizer=self.task.tokenizer,
            source_tokenizer=None,
            plan=plan_evaluation(examples, self.task.eval_batch_size),
            batch=CaptionBatches(examples, self.device),
            read=lambda batch: EncodedModel(self.model, batch)(batch, batch.inputs_BT),
            compute=self.compute,
        )

    def _images(self, paths: Sequence[str | Path]) -> npt.NDArray[Any]:
        return np.stack([self.task.read(Path(path)) for path in paths])
