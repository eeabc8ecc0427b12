"""Base of tokenizers over bytes: every text has an encoding, and decoding returns the exact text."""

import logging
from collections.abc import Sequence
from typing import Annotated

import tokenizers
from tokenizers import decoders, normalizers, pre_tokenizers
from tokenizers.models import Model

from seq2seq_lab.config.type_checks import Within
from seq2seq_lab.data.corpus import UNKNOWN
from seq2seq_lab.data.languages import CASES
from seq2seq_lab.data.tokenizers.base import EOS, PAD, SOS, SPECIALS, UNK, Tokenizer, visible

NUM_BYTES = 256
VocabSize = Annotated[int, Within(len(SPECIALS) + NUM_BYTES)]
# GPT-2's expression, with marks, joiners and soft hyphens after the letter that they belong to. It is saved with the
# vocabulary: earlier runs keep GPT-2's own.
_MARKS = r"[\p{M}\x{200C}\x{200D}\x{00AD}\x{180E}\x{2060}\x{FEFF}]"
_WORDS = (
    rf"'(?:s|t|re|ve|m|ll|d)(?!{_MARKS})| ?(?:\p{{L}}{_MARKS}*)+| ?(?:\p{{N}}{_MARKS}*)+"
    r"| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
)
# Σ after a letter and not before one; marks and apostrophes may be between them, as in `str.lower`.
_INSIDE = r"[\p{M}\p{Cf}'’.:·]"
_FINAL_SIGMA = rf"(?<=\p{{L}}|\p{{L}}{_INSIDE})Σ(?!{_INSIDE}*\p{{L}})"

logger = logging.getLogger(__name__)


def byte_letters() -> dict[str, int]:
    """Return the byte of each letter in the library's vocabulary (GPT-2's table)."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    other = [byte for byte in range(NUM_BYTES) if byte not in own]
    return {chr(byte): byte for byte in own} | {chr(0x100 + i): byte for i, byte in enumerate(other)}


class ByteLevelTokenizer(Tokenizer):
    """Sequences of bytes within words.

    The first token of a word contains the space before it. A space is added before each line, and removed by `decode`: a
    word is the same type at the start of a line. A subclass trains one of the library's models.
    """

    def __init__(self, joint: bool, lowercase: bool, vocab_size: VocabSize) -> None:
        """Set the bounds of the vocabulary.

        Args:
            vocab_size: the greatest number of types, including the special tokens and the 256 bytes.
        """
        self.joint = joint
        self.lowercase = lowercase
        self.vocab_size = vocab_size

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the ids of each line, without `<sos>` and `<eos>`."""
        encodings = self._backend.encode_batch_fast(list(lines), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def spans(self, line: str) -> list[tuple[int, int]]:
        """Return the characters of `line`, as (start, end), of each id of `encode`.

        The spaces at the start of a token are not in its span. A character whose bytes are in several tokens is in the span
        of each.
        """
        spans = self.decode_spans(self.encode([line])[0])[1]
        if not self.lowercase:
            return spans
        # "İ" becomes two characters: `ends[k]` is the end in `line` of the first k lowercased characters.
        ends = [0, *(i + 1 for i, letter in enumerate(line) for _ in self._normalized(letter)[1:])]
        return [(ends[start + 1] - 1 if start < end else ends[end], ends[end]) for start, end in spans]

    def decode_spans(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        """Return the text of `decode`, and the (start, end) in it of each id; empty if an id adds no text.

        The spans are those of `spans`. A byte that is not part of a character, as a model may predict, becomes "�".
        """
        special = {PAD: b"", SOS: b"", EOS: b"", UNK: UNKNOWN.encode()}
        pieces = [special.get(i, self._bytes[i]) for i in ids]
        letters = b"".join(pieces).decode("utf-8", errors="surrogateescape")
        # The index in `letters` of each byte; an invalid byte is a lone surrogate.
        position = [i for i, letter in enumerate(letters) for _ in letter.encode("utf-8", "surrogateescape")]
        prefix = 1 if letters.startswith(" ") else 0
        spans = []
        byte = 0
        for piece in pieces:
            first = byte + len(piece) - len(piece.lstrip(b" "))
            byte += len(piece)
            if first < byte:
                spans.append((position[first] - prefix, position[byte - 1] + 1 - prefix))
            else:
                end = position[byte - 1] + 1 - prefix if byte else 0
                spans.append((end, end))
        text = "".join("�" if "\udc80" <= letter <= "\udcff" else letter for letter in letters)
        return text[prefix:], spans

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each id, with "▁" for a space and <0xF0> for a byte of a character."""
        return [_readable(self._bytes[i]) for i in ids]

    def _use_trained(self, backend: tokenizers.Tokenizer) -> None:
        """Set the vocabulary that has been trained. Log if it has fewer types than `vocab_size`."""
        self.use_backend(backend)
        if self.size < self.vocab_size:
            sizes = f"{self.vocab_size:,}", f"{self.size:,}"
            logger.info("tokenizer.vocab_size=%s: the training text gives only %s types.", *sizes)

    def use_backend(self, backend: tokenizers.Tokenizer) -> None:
        super().use_backend(backend)
        byte_of = byte_letters()
        self._bytes = [name.encode() for name in SPECIALS]
        self._bytes += [bytes(byte_of[letter] for letter in name) for name in self._names]

    def _around(self, model: Model) -> tokenizers.Tokenizer:
        """Return a new tokenizer of the library with `model`, which does not find the special tokens in the text."""
        backend = tokenizers.Tokenizer(model)
        prepend = normalizers.Prepend(" ")
        own = [normalizers.Replace(*letters) for letters in CASES.get(self.case, ())]
        own.append(normalizers.Replace(tokenizers.Regex(_FINAL_SIGMA), "ς"))
        lowercase = normalizers.Sequence([*own, normalizers.Lowercase(), prepend])
        backend.normalizer = lowercase if self.lowercase else prepend
        # add_prefix_space adds no space before a line that begins with one: decoding would not be exact.
        words = pre_tokenizers.Split(tokenizers.Regex(_WORDS), "isolated")
        to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([words, to_bytes])
        backend.decoder = decoders.ByteLevel()
        return backend

    def _normalized(self, text: str) -> str:
        """Return `text` as the library normalizes it: lowercased, and after a space unless it is empty."""
        normalized: str = self._backend.normalizer.normalize_str(text)
        return normalized


def _readable(piece: bytes) -> str:
    """Return `piece` with "▁" for a space, and the values of the bytes of incomplete characters."""
    return "".join(
        f"<0x{ord(letter) - 0xDC00:02X}>" if "\udc80" <= letter <= "\udcff" else visible(letter)
        for letter in piece.decode("utf-8", errors="surrogateescape").replace(" ", "▁")
    )
