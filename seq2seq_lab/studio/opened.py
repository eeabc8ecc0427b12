"""A run of the studio: its examples, its images, and the thread of its model."""

import functools
import shutil
import tempfile
import weakref
from collections import deque
from pathlib import Path
from typing import Any

from seq2seq_lab.analysis.traced import Traced
from seq2seq_lab.config import extensions
from seq2seq_lab.data.captions import write_image
from seq2seq_lab.errors import UserError
from seq2seq_lab.launching.evaluation import read_data
from seq2seq_lab.reporting.runs import Run
from seq2seq_lab.reporting.studio_page import about, recorded, recorded_gold
from seq2seq_lab.studio.picker import examples
from seq2seq_lab.studio.workers import Worker

KEPT = 4  # answers about searches
LONGEST_NAME = 40  # characters
LONGEST_SENTENCE = 300  # tokens; the matrices of an answer grow with the square


class Opened:
    """A run of the studio.

    Attributes:
        name: as the user named it, shortened.
        run: what `seq2seq_lab.load` returns.
        worker: computes with its model.
        traced: the last questions about a search, with their answers.
    """

    def __init__(self, name: str, run: Any) -> None:
        self.name, self.run, self.worker = short(name), run, Worker(name)
        self.traced: deque[tuple[Any, Traced]] = deque(maxlen=KEPT)

    @functools.cached_property
    def examples(self) -> dict[str, Any]:
        """See `picker.examples`."""
        if self.run.reads_targets_only:
            return examples(UserError("A language model continues a beginning, and has no other input."))
        return examples(self._recorded)

    @functools.cached_property
    def gold(self) -> dict[str, Any]:
        """See `recorded_gold`."""
        return recorded_gold(self._recorded)

    @functools.cached_property
    def _recorded(self) -> Run | UserError:
        return recorded(self.run.folder)

    @property
    def about(self) -> dict[str, Any]:
        """What the page shows of the run, and the question that it starts with."""
        rows = self.examples["rows"]
        inputs = [row[0] for row in rows]
        sentence = next((one for one in inputs if one in self.gold), next(iter(inputs), ""))
        search = (self.run.config.search or {}).get("_target_", "").rpartition(".")[2]
        # The tree of a greedy search has one branch.
        first = {"sentence": sentence, "search": "beam" if search == "GreedySearch" else "own", "size": 5}
        return {**about(self.name, self.run), "first": first}

    def readable(self, text: str) -> str:
        """Return a text that the model can read; for the name of a test image its file.

        Raises:
            UserError: names the field; the text may have more than `LONGEST_SENTENCE` tokens.
        """
        if self.run.reads == "lines":
            self.run.check_input(text, "sentence", min(self.run.longest_input, LONGEST_SENTENCE))
            return text
        if text not in self._images:
            raise UserError(
                f"sentence={text[:80]} is not a test image of {self.name}. Choose one of the list."
            )
        stem = self._folder / str([*self._images].index(text))
        return str(write_image(stem, self._images[text]))

    @functools.cached_property
    def _images(self) -> dict[str, Any]:
        """The images of the first test set by their names."""
        with extensions.using_in_turn(self.run.opening.config_dir):
            split = read_data(self.run, False).tests[0]
        images = split.tokens.image_ICHW[split.tokens.image_N].numpy()
        return dict(zip(split.text.names, images, strict=True))

    @functools.cached_property
    def _folder(self) -> Path:
        """A folder for files of images; it is removed with the run, or when the process ends."""
        folder = tempfile.mkdtemp(prefix="seq2seq_lab_studio_")
        weakref.finalize(self, shutil.rmtree, folder)
        return Path(folder)


def short(name: str) -> str:
    """Return the name of a folder; of a long one its last two parts, without their middle if they are long too."""
    if len(name) <= LONGEST_NAME:
        return name
    last = "/".join(["…", *Path(name).parts[-2:]])
    half = LONGEST_NAME // 2
    return last if len(last) <= LONGEST_NAME else f"{last[: half - 1]}…{last[-half:]}"
