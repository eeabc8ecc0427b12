"""The tokenizer of a pretrained encoder."""

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import tokenizers

from seq2seq_lab.data.tokenizers.base import EOS, SOS, SPECIALS, UNK, Tokenizer
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import sha256

FILE = "tokenizer.json"
SHIFT = len(SPECIALS)  # from the ids of the file to those of the program, which begin with the special tokens


class PretrainedTokenizer(Tokenizer):
    """The tokenizer in the folder of a pretrained encoder. Its vocabulary is fixed.

    `<sos>` and `<eos>` stand for the tokens that the file puts before and after a text, such as [CLS] and [SEP], and `<unk>`
    for its unknown token. Every other id is the id of the file plus 4.

    Args:
        files: the SHA-256 of the files of the encoder, see `read_hashes`.
        framed: `encode` returns `<sos>` and `<eos>` around each line; their spans are empty.
    """

    joint = False

    def __init__(self, files: dict[str, str], framed: bool) -> None:
        self.files = files
        self.framed = framed

    @classmethod
    def read(cls, path: str | None, framed: bool) -> "PretrainedTokenizer":
        """Read the tokenizer of a folder.

        Raises:
            UserError: the folder has no `tokenizer.json`, or one that does not put one token before and one after a text.
        """
        folder = check_folder(path, FILE)
        made = cls(read_hashes(folder), framed)
        try:
            backend = tokenizers.Tokenizer.from_file(str(folder / FILE))
        except Exception as error:  # the library raises no other type
            raise UserError(
                f"encoder.path={path}: {FILE} cannot be read: {error}. Replace it with a complete copy."
            ) from error
        made.use_backend(backend)
        if len(frame := made._backend.encode("").ids) != 2:
            raise UserError(
                f"encoder.path={path}: its tokenizer adds {len(frame)} special tokens to a text, and encoder=pretrained "
                f"needs one before and one after it. Choose a BERT-style encoder."
            )
        return made

    def train(self, lines: Iterable[str]) -> None:
        """Do nothing: the vocabulary is that of the file."""

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        rows = [one.ids for one in self._backend.encode_batch_fast(list(lines), add_special_tokens=False)]
        before, after = ([SOS], [EOS]) if self.framed else ([], [])
        return [[*before, *(UNK if i == self._unknown else i + SHIFT for i in row), *after] for row in rows]

    def spans(self, line: str) -> list[tuple[int, int]]:
        offsets = self._backend.encode(line, add_special_tokens=False).offsets
        # The tokens of some models contain the space before a word.
        spans = [(end - len(line[start:end].lstrip()), end) for start, end in offsets]
        return [(0, 0), *spans, (len(line), len(line))] if self.framed else spans

    def decode_spans(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        text, spans = "", []
        for count in range(1, len(ids) + 1):
            start, text = len(text), self._text(ids[:count])
            spans.append((min(start, len(text)), len(text)))
        return text, spans

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return [SPECIALS[i] if i < SHIFT else self._backend.id_to_token(i - SHIFT) or "" for i in ids]

    @property
    def size(self) -> int:
        return self._size

    @property
    def special_ids(self) -> tuple[int, int, int, int]:
        """The ids in the file of `SPECIALS`; 0 for `<pad>`, which a model masks, and for an `<unk>` that does not occur."""
        sos, eos = self._backend.encode("").ids
        return self._unknown or 0, 0, sos, eos

    def check_saved(self, saved: Tokenizer, folder: Path) -> None:
        before = saved.files if isinstance(saved, PretrainedTokenizer) else {}
        changed = sorted(name for name, _ in before.items() ^ self.files.items())
        if changed:
            raise UserError(
                f"encoder.path: the files of the encoder ({', '.join(dict.fromkeys(changed))}) are not those that the run "
                f"{folder.parent} was trained with. Restore them."
            )

    def _text(self, ids: Sequence[int]) -> str:
        own = [self._unknown if i == UNK else i - SHIFT for i in ids]
        text: str = self._backend.decode(
            [i for i in own if i is not None and i >= 0], skip_special_tokens=False
        )
        return text

    def use_backend(self, backend: tokenizers.Tokenizer) -> None:
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = True  # the name of a special token in a text is text
        unknown = getattr(backend.model, "unk_token", None)
        self._unknown: int | None = None if unknown is None else backend.token_to_id(unknown)
        # The ids of added tokens may leave gaps.
        self._size = max(backend.get_vocab().values(), default=-1) + 1 + SHIFT
        super().use_backend(backend)


def check_folder(path: str | None, file: str) -> Path:
    """Return the folder of a pretrained encoder.

    Raises:
        UserError: the folder does not exist, or does not contain the file.
    """
    needed = (
        "Give a folder with config.json, model.safetensors and tokenizer.json, as save_pretrained writes it."
    )
    if path is None:
        raise UserError(f"encoder.path=null: encoder=pretrained needs an encoder. {needed}")
    folder = Path(path).expanduser()
    if not (folder / file).is_file():
        problem = f"no {file} in this folder" if folder.is_dir() else "no such folder"
        raise UserError(f"encoder.path={path}: {problem}. {needed}")
    return folder


def read_hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of the files of an encoder: configuration, weights and tokenizer, by name."""
    paths = [
        path for name in ("config.json", "model*.safetensors*", FILE) for path in sorted(folder.glob(name))
    ]
    return {path.name: _sha256(path, path.stat().st_mtime_ns) for path in paths}


@cache
def _sha256(path: Path, modified: int) -> str:
    """Return the SHA-256 of a file, which may be large: each version is read once."""
    return sha256(path)
