"""The evaluation splits of a translation corpus."""

import torch

from seq2seq_lab.data.corpus import Corpus, Dataset, ParallelText
from seq2seq_lab.data.find_line import find_line
from seq2seq_lab.data.tokenized import TokenizedText
from seq2seq_lab.errors import UserError
from seq2seq_lab.metrics.segmentation import BleuTokenizer, Segmentation, choose_segmentation


def segmentation_of(corpus: Corpus, setting: BleuTokenizer) -> Segmentation:
    """Return how the references of the validation and test splits are cut into words; see `choose_segmentation`."""
    references = [text.target for text in (corpus.validation, *corpus.tests.values())]
    return choose_segmentation(setting, corpus.target_language, references)


def check_lengths(
    name: str, text: ParallelText, tokens: TokenizedText, max_length: int, dataset: Dataset
) -> None:
    """Refuse held-out pairs that are too long.

    Args:
        max_length: the maximum number of tokens on a side, without `<sos>` and `<eos>`.
        dataset: the data set that the text comes from; the message names the line of its files.

    Raises:
        UserError: names the first of them.
    """
    lengths = torch.stack((tokens.source.lengths, tokens.target.lengths)) - 2
    too_long = (lengths > max_length).any(0).nonzero().squeeze(1)
    if not len(too_long):
        return
    pair = int(too_long[0])
    side = int(lengths[:, pair].argmax())
    sentence = (text.source, text.target)[side][pair]
    location = find_line(dataset, name, sentence) or f"pair {pair + 1}"
    remedy = "Shorten or remove them"
    if hasattr(dataset, "max_tokens") and text.gold is None:  # pairs with gold alignments cannot be excluded
        remedy += ", exclude pairs of more than N words from all splits with dataset.max_tokens=N"
    raise UserError(
        f"{name}: the {('source', 'target')[side]} of {location} has {int(lengths[side, pair]):,} tokens: "
        f"{sentence[:40]!r}…; task.max_eval_length={max_length}. Pairs of {name} that are too long: {len(too_long):,}. "
        f"{remedy}, or increase task.max_eval_length: the memory grows with the square of the length."
    )
