"""The evaluation splits of a translation corpus."""

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
    """Refuse a held-out pair that is too long.

    Args:
        max_length: the maximum number of tokens on a side, without `<sos>` and `<eos>`.
        dataset: the data set that the text comes from; the message names the line of its files.

    Raises:
        UserError: names the pair.
    """
    for side in ("source", "target"):
        lengths = getattr(tokens, side).lengths - 2
        if len(lengths) and int(lengths.max()) > max_length:
            pair = int(lengths.argmax())
            sentence = getattr(text, side)[pair]
            location = find_line(dataset, name, sentence) or f"pair {pair + 1}"
            raise UserError(
                f"{name}: the {side} of {location} has {int(lengths.max()):,} tokens: {sentence[:40]!r}…; "
                f"task.max_eval_length={max_length}. Shorten or remove the pair, or increase "
                f"task.max_eval_length: the memory grows with the square of the length."
            )
