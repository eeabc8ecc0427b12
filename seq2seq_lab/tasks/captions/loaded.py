"""A trained model that describes images, in Python."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seq2seq_lab.data.captions import read_image
from seq2seq_lab.errors import UserError
from seq2seq_lab.tasks.captions.evaluation import Caption
from seq2seq_lab.tasks.captions.report import draw_caption
from seq2seq_lab.tasks.loaded import Loaded, displayed

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class LoadedCaptioner(Loaded):
    """A trained model that describes images."""

    def caption(self, paths: Sequence[str | Path]) -> list[Caption]:
        """Return a caption of each image.

        Args:
            paths: files of images, which are cropped at their center and resized to the size of the training images.

        Raises:
            UserError: `paths` is not a list, or a file cannot be read.
        """
        if isinstance(paths, str | Path):
            raise UserError(f"caption takes a list of files, not one file. Write [{str(paths)!r}].")
        if not paths:
            return []
        images = [read_image(Path(path), *self.task.size) for path in paths]
        return self.task.caption(self.model, np.stack(images), self.compute)

    def plot_attention(self, caption: Caption) -> "Figure":
        """Return the attention of each word over the image as a figure, which a notebook displays.

        Raises:
            UserError: the model does not attend, or the caption is empty.
        """
        if caption.attention_WYX is None:
            raise UserError(
                f"The model of {self.folder} has no attention to plot. Train one that has, for example "
                f"attention=additive."
            )
        if not caption.words:
            raise UserError("An empty caption has no attention to plot.")
        return displayed(draw_caption(caption, {}))
