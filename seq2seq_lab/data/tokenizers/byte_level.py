"""What tokenizers over bytes share: every text has an encoding and comes back exactly."""

from collections.abc import Sequence

import tokenizers
from tokenizers import decoders, normalizers, pre_tokenizers
from tokenizers.models import Model

from seq2seq_lab.data.corpus import UNKNOWN
from seq2seq_lab.data.tokenizers.base import EOS, PAD, SOS, SPECIALS, UNK, Tokenizer, visible
from seq2seq_lab.errors import UserError

NUM_BYTES = 256


def byte_letters() -> dict[str, int]:
    """The letter that stands for each byte in the library's vocabulary (GPT-2's table), to the byte."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    other = [byte for byte in range(NUM_BYTES) if byte not in own]
    return {chr(byte): byte for byte in own} | {chr(0x100 + i): byte for i, byte in enumerate(other)}


class ByteLevelTokenizer(Tokenizer):
    """Sequences of bytes within words.

    A word's first token holds the space before it. One space is put before each line, and taken away by
    `decode`, so that a word is the same type at the start of a line. A subclass trains one of the library's
    models.
    """

    def __init__(self, joint: bool, lowercase: bool, vocab_size: int) -> None:
        """`vocab_size` bounds the types, the specials and the 256 bytes included; a small corpus may give fewer.

        Raises `UserError` if there is no room for these.
        """
        smallest = len(SPECIALS) + NUM_BYTES
        if vocab_size < smallest:
            raise UserError(
                f"tokenizer.vocab_size={vocab_size} must be {smallest} or more: "
                f"the {len(SPECIALS)} specials and the {NUM_BYTES} bytes are always types."
            )
        self.joint = joint
        self.lowercase = lowercase
        self.vocab_size = vocab_size

    def options(self) -> dict[str, object]:
        """The constructor's arguments, as plain values."""
        return {"joint": self.joint, "lowercase": self.lowercase, "vocab_size": self.vocab_size}

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The ids of each line, without `<sos>` and `<eos>`."""
        encodings = self._backend.encode_batch_fast(list(lines), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def spans(self, line: str) -> list[tuple[int, int]]:
        """The characters of `line`, as (start, end), that each id of `encode` stands for.

        The spaces that begin a token are not in its span. Where a character's bytes are spread over several
        tokens, it is in the span of each.
        """
        spans = self.decode_spans(self.encode([line])[0])[1]
        if not self.lowercase:
            return spans
        # Lowercased, "İ" is two characters: `ends[k]` is where the first k lowercased ones end in `line`.
        ends = [0, *(i + 1 for i, letter in enumerate(line) for _ in self._normalized(letter)[1:])]
        return [(ends[start + 1] - 1 if start < end else ends[end], ends[end]) for start, end in spans]

    def decode_spans(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        """The text of `decode`, and the (start, end) in it of each id; empty where an id adds no text.

        Spans are cut as in `spans`. A byte that belongs to no character, as a model may produce, is "�".
        """
        written = {PAD: b"", SOS: b"", EOS: b"", UNK: UNKNOWN.encode()}
        pieces = [written.get(number, self._bytes[number]) for number in ids]
        letters = b"".join(pieces).decode("utf-8", errors="surrogateescape")
        # The place in `letters` of each byte; an undecodable byte is one lone surrogate there.
        place = [i for i, letter in enumerate(letters) for _ in letter.encode("utf-8", "surrogateescape")]
        prefix = 1 if letters.startswith(" ") else 0
        spans = []
        byte = 0
        for piece in pieces:
            first = byte + len(piece) - len(piece.lstrip(b" "))
            byte += len(piece)
            if first < byte:
                spans.append((place[first] - prefix, place[byte - 1] + 1 - prefix))
            else:
                end = place[byte - 1] + 1 - prefix if byte else 0
                spans.append((end, end))
        text = "".join("�" if "\udc80" <= letter <= "\udcff" else letter for letter in letters)
        return text[prefix:], spans

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """The text of each id, a space as "▁" and a part of a character as its bytes: <0xF0>."""
        return [_readable(self._bytes[number]) for number in ids]

    def _use(self, backend: tokenizers.Tokenizer) -> None:
        super()._use(backend)
        byte_of = byte_letters()
        vocabulary = backend.get_vocab(with_added_tokens=False)
        names = sorted(vocabulary, key=vocabulary.__getitem__)[len(SPECIALS) :]
        self._bytes = [name.encode() for name in SPECIALS]
        self._bytes += [bytes(byte_of[letter] for letter in name) for name in names]

    def _around(self, model: Model) -> tokenizers.Tokenizer:
        """The library's tokenizer around `model`.

        A trained one finds the specials' names in the text; one made anew has them as ids only.
        """
        backend = tokenizers.Tokenizer(model)
        prepend = normalizers.Prepend(" ")
        lowercase = normalizers.Sequence([normalizers.Lowercase(), prepend])
        backend.normalizer = lowercase if self.lowercase else prepend
        # Its own add_prefix_space leaves out the space before a line that begins with one: not exact.
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        return backend

    def _normalized(self, text: str) -> str:
        """`text` as the library lowercases it, after the space it puts in front (not in front of nothing)."""
        normalized: str = self._backend.normalizer.normalize_str(text)
        return normalized


def _readable(piece: bytes) -> str:
    """`piece` with spaces as "▁", and bytes that are no whole character as numbers."""
    return "".join(
        f"<0x{ord(letter) - 0xDC00:02X}>" if "\udc80" <= letter <= "\udcff" else visible(letter)
        for letter in piece.decode("utf-8", errors="surrogateescape").replace(" ", "▁")
    )
