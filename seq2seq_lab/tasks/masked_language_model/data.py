"""Texts with masked tokens, pairs of sentences, and their batches.

All draws are functions of a seed, an epoch and the position in the data, not of the order of the batches: a resumed run
continues with the masks of the uninterrupted one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from seq2seq_lab.config.type_checks import Share
from seq2seq_lab.data.batching import Index
from seq2seq_lab.data.labelled import AnyLabelledCorpus, LabelledText, PairCorpus, TaggedCorpus
from seq2seq_lab.data.lines import Lines
from seq2seq_lab.data.questions import QuestionCorpus
from seq2seq_lab.data.ragged import Ragged
from seq2seq_lab.data.sentences import SentenceCorpus, Sentences
from seq2seq_lab.data.tokenizers import EOS, SPECIALS, UNK, Tokenizer
from seq2seq_lab.data.tokenizers.turns import TURN
from seq2seq_lab.errors import UserError, require
from seq2seq_lab.models.masked_language_model import MASK
from seq2seq_lab.runtime.counter_rng import uniform
from seq2seq_lab.runtime.device import on_device
from seq2seq_lab.tasks.tagging.data import IGNORED, TaggedTokens, blocks, counts_by_text

MASKED = "<mask>"  # a masked word in a text
PLACEHOLDER = "mask"  # a tokenizer reads it in the place of a masked word


@dataclass(frozen=True, kw_only=True)
class Masking:
    """Which tokens of a text are predicted, and what the model reads in their place (Devlin 2019, §3.1 and §A.1).

    Attributes:
        share: the share of the tokens of a text that are predicted; at least one is.
        masked: the share of these that are replaced by the mask.
        random: the share of these that are replaced by a token drawn from the vocabulary; the others stay as they are.

    Raises:
        UserError: a value is out of range.
    """

    share: float
    masked: Share
    random: Share

    def __post_init__(self) -> None:
        require(0 < self.share <= 1, "task.mask_share", self.share, "above 0 and at most 1")
        total = self.masked + self.random
        require(total <= 1, "task.masked + task.random", total, "at most 1")


@dataclass(frozen=True, slots=True)
class MaskedTokens(TaggedTokens):
    """Texts with masked tokens. The label of a token is the token to predict, `IGNORED` where none is predicted.

    Attributes:
        follows: of pairs of sentences, 1 if the second is the next sentence, else 0: int64, N. None of single texts.
    """

    follows: Tensor | None = None

    def select(self, index: Tensor) -> "MaskedTokens":
        """Return some texts, in the order of the index."""
        follows = None if self.follows is None else self.follows[index]
        return MaskedTokens(self.tokens.select(index), self.labels.select(index), follows)


def is_predictable(ids: Tensor) -> Tensor:
    """Return which tokens may be predicted."""
    return (ids != EOS) & (ids != UNK)


def mask(
    tokens: Ragged, masking: Masking, size: int, *, seed: int, epoch: int, follows: Tensor | None = None
) -> MaskedTokens:
    """Return texts with masked tokens, a function of (seed, epoch, text, position).

    The number of predicted tokens of a text of n tokens is max(1, round(share · n)), as in the program of Devlin 2019.
    Tokens that the vocabulary lacks and the `<eos>` between two sentences are not predicted and do not count.

    Args:
        size: the size of the vocabulary.
        follows: see `MaskedTokens`.
    """
    read, labels = torch.empty_like(tokens.tokens), torch.empty_like(tokens.tokens)
    for first, block in blocks(tokens):
        ids, start = block.tokens, int(tokens.offsets[first])
        row = torch.repeat_interleave(torch.arange(len(block)), block.lengths)
        position, text = torch.arange(len(ids)) - block.offsets[row], first + row
        draw = uniform(seed, epoch, text, position, 0).masked_fill(~is_predictable(ids), 2.0)
        order = draw.argsort(stable=True)
        order = order[row[order].argsort(stable=True)]  # by text, then by draw
        rank = torch.empty_like(order)
        rank[order] = position
        words = counts_by_text(block, is_predictable)
        count = (masking.share * words.double()).round().long().clamp(min=1).minimum(words)
        chosen = rank < count[row]
        kind = uniform(seed, epoch, text, position, 1)
        other = uniform(seed, epoch, text, position, 2).double() * (size - len(SPECIALS))
        replaced = torch.where(kind < masking.masked + masking.random, len(SPECIALS) + other.int(), ids)
        replaced = torch.where(kind < masking.masked, MASK, replaced)
        read[start : start + len(ids)] = torch.where(chosen, replaced, ids)
        labels[start : start + len(ids)] = ids.masked_fill(~chosen, IGNORED)
    return MaskedTokens(Ragged(read, tokens.offsets), Ragged(labels, tokens.offsets), follows)


@dataclass(frozen=True, slots=True)
class NextSentences:
    """Pairs of sentences, drawn again in each epoch (Devlin 2019, §3.1).

    Every sentence that another one of its document follows is the first of a pair. The second is, with probability ½, the
    one after it, else one of another document.

    Attributes:
        documents: the number of the document of each sentence, whose sentences follow each other: int64, N.
        places: the index of each sentence in the text; indices without a sentence are allowed: int64, N. None: 0 to N - 1.

    Raises:
        UserError: there is one document only, or no document has two sentences.
    """

    documents: Tensor
    places: Tensor | None = None

    def __post_init__(self) -> None:
        several = bool((self.documents != self.documents[0]).any())
        if not (several and len(self.firsts)):
            raise UserError(
                "task.next_sentence=true needs two documents or more in each split, and one of two sentences. In a text, "
                "separate documents by empty lines; or use other data, such as dataset=sentence_pairs."
            )

    @property
    def firsts(self) -> Tensor:
        """The first sentence of each pair."""
        followed = self.documents[1:] == self.documents[:-1]
        if self.places is not None:
            followed &= self.places.diff() == 1
        return followed.nonzero().squeeze(1)

    def draw(self, seed: int, epoch: int) -> tuple[Tensor, Tensor]:
        """Return the second sentence of each pair, and 1 if it is the next one, else 0, a function of (seed, epoch)."""
        firsts = self.firsts
        _, document, sizes = torch.unique_consecutive(self.documents, return_inverse=True, return_counts=True)
        start, size = (sizes.cumsum(0) - sizes)[document[firsts]], sizes[document[firsts]]
        follows = (uniform(seed, epoch, firsts, 0) < 0.5).long()
        other = (uniform(seed, epoch, firsts, 1).double() * (len(document) - size)).long()
        other += size * (other >= start)
        return torch.where(follows == 1, firsts + 1, other), follows


def joined(tokens: Ragged, firsts: Tensor, seconds: Tensor) -> Ragged:
    """Return pairs of sentences, each as the first, `<eos>`, and the second."""
    with_eos = Ragged(
        torch.cat([tokens.tokens, tokens.tokens.new_tensor([EOS])]),
        torch.cat([tokens.offsets, tokens.offsets[-1:] + 1]),
    )
    between = torch.full_like(firsts, len(tokens))
    found = with_eos.select(torch.stack([firsts, between, seconds], dim=1).flatten())
    return Ragged(found.tokens, found.offsets[::3])


@dataclass(frozen=True, slots=True)
class MaskedBatch:
    """B texts.

    Attributes:
        source_BS: token ids and masks, padded if the lengths differ.
        source_lengths: the real lengths, on the host.
        position_N: the N tokens to predict, as indices of the flat `source_BS`, in the order of the texts.
        label_N: the tokens to predict.
        counts: the number of tokens to predict of each text, on the host.
        count_B: the same, on the device.
        follows_B: see `MaskedTokens`.
    """

    source_BS: Tensor
    source_lengths: tuple[int, ...]
    position_N: Tensor
    label_N: Tensor
    counts: tuple[int, ...]
    count_B: Tensor
    follows_B: Tensor | None


class MaskedBatches:
    """Creates the batches of texts, whose tokens are in the memory of the device."""

    def __init__(self, texts: MaskedTokens, device: torch.device) -> None:
        self.device = device
        self._lengths, self._units = texts.lengths.numpy(), texts.units.numpy()
        self._labels, self._follows = texts.labels, texts.follows
        self._tokens = texts.tokens.to(device)

    def __call__(self, index: Index) -> MaskedBatch:
        """Return the batch of the given texts, in their order."""
        lengths, counts = self._lengths[index], self._units[index]
        width = int(lengths.max())
        label_BS = self._labels.padded(torch.from_numpy(index), width, IGNORED).numpy()
        chosen_BS = label_BS != IGNORED
        follows = None if self._follows is None else on_device(self._follows[index].numpy(), self.device)
        return MaskedBatch(
            source_BS=self._tokens.padded(on_device(index, self.device), width),
            source_lengths=tuple(lengths.tolist()),
            position_N=on_device(np.flatnonzero(chosen_BS), self.device),
            label_N=on_device(label_BS[chosen_BS], self.device),
            counts=tuple(counts.tolist()),
            count_B=on_device(counts, self.device),
            follows_B=follows,
        )


def sentences_of(corpus: AnyLabelledCorpus) -> SentenceCorpus:
    """Return the texts of a labelled corpus. The tags of words are kept.

    The two texts of a pair become the sentences of a document, and so do a question and its text.
    """
    train, validation, test = (_sentences(corpus, split) for split in corpus.splits.values())
    return SentenceCorpus(corpus.language, train, validation, test, corpus.counts)


def _sentences(corpus: AnyLabelledCorpus, text: LabelledText) -> Sentences:
    if isinstance(corpus, PairCorpus | QuestionCorpus):
        pairs = [line.split(TURN) for line in text.texts]
        documents = [number for number, pair in enumerate(pairs) for _ in pair]
        return Sentences(Lines.of(line for pair in pairs for line in pair), documents=documents)
    return Sentences(text.texts, tags=text.labels if isinstance(corpus, TaggedCorpus) else None)


def encode_masked(tokenizer: Tokenizer, line: str) -> list[int]:
    """Return the tokens of a text in which `<mask>` is written for each masked word, or of two with a tab between them."""
    ids: list[int] = []
    for sentence in line.split(TURN):
        parts, text, spans = sentence.split(MASKED), "", list[tuple[int, int]]()
        for i, part in enumerate(parts):
            text += part
            if i < len(parts) - 1:
                spans.append((len(text), len(text) + len(PLACEHOLDER)))
                text += PLACEHOLDER
        found = [*zip(tokenizer.spans(text), tokenizer.encode([text])[0], strict=True)]
        masked = [(start, end, MASK) for start, end in spans]
        kept = [
            (start, end, token)
            for (start, end), token in found
            if not any(start < last and first < end for first, last in spans)
        ]
        ids += ([EOS] if ids else []) + [token for *_, token in sorted(kept + masked)]
    return ids


def shown_tokens(tokenizer: Tokenizer, ids: Iterable[int]) -> list[str]:
    """Return the texts of tokens, one by one, with `<mask>` for a masked one."""
    return [MASKED if token == MASK else tokenizer.tokens([token])[0] for token in ids]


def fill(line: str, words: Sequence[str]) -> str:
    """Return a text with words in the place of its masks."""
    first, *others = line.split(MASKED)
    return first + "".join(word + part for word, part in zip(words, others, strict=True))


def tag_matrix(tokens: Ragged, tags: Ragged, size: int, count: int) -> npt.NDArray[np.bool_]:
    """Return for each of `size` types which of `count` tags it has in a text; a tag is at the first token of a word."""
    found = np.zeros((size, count), np.bool_)
    tagged = tags.tokens != IGNORED
    found[tokens.tokens[tagged].numpy(), tags.tokens[tagged].numpy()] = True
    return found
