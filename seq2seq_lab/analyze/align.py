"""`analyze align`: word alignments of given sentence pairs."""

import argparse
import sys
from typing import Any

from seq2seq_lab.analyze.common import add_null, add_question, pairs, require_float32
from seq2seq_lab.errors import UserError, print_visible
from seq2seq_lab.evaluate import open_run


def add_align(questions: Any) -> None:
    """Add the question `align`."""
    arguments = add_question(
        questions,
        "align",
        align,
        "word alignments of given sentence pairs, a line per pair: 0-0 1-2 (Pharaoh format, words between spaces)",
        "python -m seq2seq_lab.analyze align EN_FR news.en news.fr --reverse FR_EN --combine grow-diag",
    )
    arguments.add_argument(
        "files", nargs=2, metavar="FILE", help="SOURCE TARGET: files with one sentence per line"
    )
    arguments.add_argument(
        "--method",
        default="attention",
        help="attention, or a method of `attribute` such as occlusion (default: attention)",
    )
    arguments.add_argument(
        "--reading",
        choices=["emit", "read"],
        default="emit",
        help="the row of attention that aligns a token: emit: of the step that predicts it; read: of the step that reads "
        "it, which is better for Transformers (default: emit)",
    )
    add_null(arguments)
    arguments.add_argument(
        "--threshold",
        type=float,
        metavar="P",
        help="link all words of at least this weight, with --method this score (default: the largest one)",
    )
    arguments.add_argument(
        "--layer", type=int, help="the layer of a Transformer, from 0 (default: as in `predict`)"
    )
    arguments.add_argument(
        "--head", type=int, help="with --layer: its head, from 0 (default: the mean over its heads)"
    )
    arguments.add_argument("--reverse", metavar="RUN", help="a run from the target to the source language")
    arguments.add_argument(
        "--combine",
        choices=["intersect", "union", "grow-diag", "grow-diag-final"],
        help="with --reverse: how the two directions are combined (default: grow-diag)",
    )


def align(options: argparse.Namespace) -> None:
    """Print the alignments of sentence pairs.

    Raises:
        UserError: the files do not match, or a model has no such attention.
    """
    from seq2seq_lab.analysis.align import Extraction, alignments, combined
    from seq2seq_lab.analysis.symmetrization import SYMMETRIZATIONS
    from seq2seq_lab.data.alignment_files import pharaoh

    if options.combine is not None and options.reverse is None:
        raise UserError(f"--combine={options.combine} needs --reverse RUN, a run in the other direction.")
    if options.method != "attention":
        require_float32(options, f"--method={options.method}, which is computed in float32")
    extraction = Extraction(
        options.method, options.reading, options.null, options.threshold, options.layer, options.head
    )
    run = open_run(options, [])
    reverse = None
    if options.reverse is not None:
        reverse = open_run(argparse.Namespace(**{**vars(options), "folder": options.reverse}), [])
    for one in (run, reverse):
        if one is not None:  # runs and options that cannot be used are refused before the files are read
            alignments(one.model, one.forced([], []), extraction)
    for _, sources, targets in pairs(run, options.files):
        found = alignments(run.model, run.forced(sources, targets), extraction)
        if reverse is not None:
            backward = alignments(reverse.model, reverse.forced(targets, sources), extraction)
            found = combined(found, backward, SYMMETRIZATIONS[options.combine or "grow-diag"])
        for links in found:
            print_visible(pharaoh(links))
        sys.stdout.flush()
