"""A compact sequence of lines."""

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Self, SupportsIndex, overload

import numpy as np
import numpy.typing as npt

_BLOCK = 10_000  # lines whose offsets are converted to Python integers at a time


class Lines(Sequence[str]):
    """An immutable sequence of lines in one UTF-8 buffer; a line takes 8 bytes more than its text.

    A line may contain any character, including line breaks and NUL.
    """

    def __init__(self, buffer: bytes | bytearray, offsets: npt.NDArray[np.int64]) -> None:
        """Line i of N is `buffer[offsets[i] : offsets[i + 1]]`; the N + 1 offsets start at 0."""
        assert offsets[0] == 0
        assert offsets[-1] == len(buffer)
        self._buffer = buffer
        self._offsets = offsets

    @classmethod
    def of(cls, lines: Iterable[str]) -> "Lines":
        """Return the lines as `Lines`, without a copy if they already are.

        Raises `UnicodeEncodeError` for a lone surrogate, which UTF-8 cannot encode.
        """
        if isinstance(lines, Lines):
            return lines
        builder = LinesBuilder()
        for line in lines:
            builder.append(line)
        return builder.build()

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, index: SupportsIndex) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> Self: ...

    def __getitem__(self, index: SupportsIndex | slice) -> "str | Lines":
        if not isinstance(index, slice):
            position = range(len(self))[index]
            start, end = self._offsets[position : position + 2].tolist()
            return self._buffer[start:end].decode()
        first, stop, step = index.indices(len(self))
        if step != 1:
            return Lines.of(self[i] for i in range(first, stop, step))
        # A copy, so that a short slice does not keep or pickle the whole buffer.
        offsets = self._offsets[first : max(first, stop) + 1]
        return Lines(self._buffer[offsets[0] : offsets[-1]], offsets - offsets[0])

    def __iter__(self) -> Iterator[str]:
        for block in range(0, len(self), _BLOCK):
            for start, end in pairwise(self._offsets[block : block + _BLOCK + 1].tolist()):
                yield self._buffer[start:end].decode()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def digest(self) -> bytes:
        """Return the SHA-256 of the lines and their count."""
        digest = hashlib.sha256(len(self).to_bytes(8, "little"))
        digest.update(np.diff(self._offsets).astype("<i8").tobytes())
        digest.update(self._buffer)
        return digest.digest()


class LinesBuilder:
    """Collects lines and builds `Lines` from them."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._offsets = array("q", [0])

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def append(self, line: str) -> None:
        """Add a line. Raises `UnicodeEncodeError` for a lone surrogate, which UTF-8 cannot encode."""
        self._buffer += line.encode()
        self._offsets.append(len(self._buffer))

    def build(self) -> Lines:
        """Return the lines without copying the buffer; no line can be appended after this."""
        return Lines(self._buffer, np.frombuffer(self._offsets, np.int64))
