"""`python -m seq2seq_lab.caption RUN_FOLDER IMAGE ...`: describe images with a trained run."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from seq2seq_lab.errors import Parser, UserError, print_visible, report_errors
from seq2seq_lab.evaluate import add_opening, open_run
from seq2seq_lab.plots import save_figure
from seq2seq_lab.translate import BATCHES, chunks, picture, use_utf8_output


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; see `parser`."""
    with report_errors():
        options = parser().parse_intermixed_args(arguments)
        use_utf8_output()
        caption(options)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    arguments = Parser(
        prog="python -m seq2seq_lab.caption",
        usage="%(prog)s FOLDER IMAGE ... [KEY=VALUE ...] [options]",
        description="Describe images with a trained run of task=captions. For each image, print its file and its caption, "
        "separated by a tab.",
        epilog="Example: python -m seq2seq_lab.caption outputs/DATE/TIME photos/*.jpg search=beam --attention overlay.png",
    )
    add_opening(arguments)
    arguments.add_argument(
        "inputs",
        nargs="+",
        metavar="IMAGE | KEY=VALUE",
        help="files of images, which are cropped and resized to the size of the training images; changes to the run's "
        "settings, such as search=beam search.size=10",
    )
    arguments.add_argument(
        "--attention",
        type=Path,
        metavar="FILE.png",
        help="draw the attention of each word over the image, one picture per image",
    )
    return arguments


def caption(options: argparse.Namespace) -> None:
    """Describe the images.

    Raises:
        UserError: a file cannot be read, or the run cannot be opened or has no attention to draw.
    """
    from seq2seq_lab.tasks.captions.task import CaptionTask

    files = [word for word in options.inputs if "=" not in word or Path(word).exists()]
    changes = [word for word in options.inputs if word not in files]
    if not files:
        raise UserError("No image is given. Name one or more files of images after the run folder.")
    run = open_run(options, changes, CaptionTask)
    number = 0
    for chunk in chunks(iter(files), BATCHES * run.config.trainer.eval_batch_size):
        for file, found in zip(chunk, run.caption(chunk), strict=True):
            print_visible(f"{file}\t{found.text}")
            if options.attention is not None and (found.words or found.attention_WYX is None):
                save_figure(run.plot_attention(found), picture(options.attention, number))
            number += 1
        sys.stdout.flush()


if __name__ == "__main__":
    main()
