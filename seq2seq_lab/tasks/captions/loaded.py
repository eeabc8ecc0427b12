"""A trained model that describes images, in Python."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from seq2seq_lab.data.captions import read_image
from seq2seq_lab.tasks.captions.evaluation import Caption
from seq2seq_lab.tasks.loaded import Loaded


@dataclass(frozen=True, repr=False)
class LoadedCaptioner(Loaded):
    """A trained model that describes images; its predictions are `Caption`s."""

    reads = "files"
    options = frozenset({"nbest", "scores", "attention"})

    def nbest(self, inputs: Sequence[str | Path], first: int = 0) -> list[list[Caption]]:
        """Return all captions of each image that the search returns, the best first.

        Args:
            inputs: files of images, which are cropped at their center and resized to the size of the training images.
            first: the index of the first image; the draws of `search=sampling` depend on it.

        Raises:
            UserError: `inputs` is not a list, or a file cannot be read.
        """
        self.check_list(inputs)
        if not inputs:
            return []
        images = [read_image(Path(path), *self.task.size) for path in inputs]
        found = self.task.caption(self.model, np.stack(images), self.compute, first)
        return [
            [replace(one, source=str(path)) for one in captions]
            for path, captions in zip(inputs, found, strict=True)
        ]
