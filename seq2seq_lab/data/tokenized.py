"""A tokenised corpus: ids in flat arrays, and the cache of such corpora."""

import errno
import hashlib
import importlib.metadata
import json
import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seq2seq_lab.config import extensions
from seq2seq_lab.data.corpus import Corpus, ParallelText
from seq2seq_lab.data.lines import Lines
from seq2seq_lab.data.progress import progress
from seq2seq_lab.data.tokenizers import EOS, SOS, UNK, Tokenizer, TokenizerPair, fit_tokenizers
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import sha256

# Increase it when a change of the code changes the ids of the same text and options, or the files.
FORMAT = 3
CHUNK = 10_000  # lines encoded, or sentences moved, at a time, to bound the memory
MANIFEST = "manifest.json"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """The N sentence pairs of one split, with `<sos>` and `<eos>` around each sentence.

    Sentence i is `source_tokens[source_offsets[i] : source_offsets[i + 1]]`; tokens are int32, the N + 1 offsets int64. The
    same holds for the target.
    """

    source_tokens: torch.Tensor
    source_offsets: torch.Tensor
    target_tokens: torch.Tensor
    target_offsets: torch.Tensor

    def __post_init__(self) -> None:
        assert len(self.source_offsets) == len(self.target_offsets)

    def __len__(self) -> int:
        return len(self.source_offsets) - 1

    @property
    def source_lengths(self) -> torch.Tensor:
        """The number of tokens of each source sentence, with `<sos>` and `<eos>`: int64, N."""
        return self.source_offsets.diff()

    @property
    def target_lengths(self) -> torch.Tensor:
        """The number of tokens of each target sentence, with `<sos>` and `<eos>`: int64, N."""
        return self.target_offsets.diff()

    def select(self, index: torch.Tensor) -> "TokenizedText":
        """Return the pairs with the numbers `index` (int64, any order, repeats allowed), in that order."""
        return TokenizedText(
            *_select(self.source_tokens, self.source_offsets, index),
            *_select(self.target_tokens, self.target_offsets, index),
        )


@dataclass(frozen=True, slots=True)
class TokenizedCorpus:
    """A corpus as ids, with the tokenizers fitted on its training split.

    Attributes:
        unknown_rate: the share of `<unk>` among the tokens of each split and side, without `<sos>` and `<eos>`. The keys are
            `train/source`, `validation/target`, `test/NAME/source` and so on.
        key: see `corpus_key`.
        from_cache: whether the ids were read from the cache.
    """

    train: TokenizedText
    validation: TokenizedText
    tests: dict[str, TokenizedText]
    tokenizers: TokenizerPair
    unknown_rate: dict[str, float]
    key: str
    from_cache: bool


class TrainingText:
    """The ids of the training pairs for each epoch.

    A stochastic tokenizer (BPE-dropout) draws a new segmentation for each epoch, a function of (`seed`, epoch). Pairs with
    more than `max_length` tokens on a side of `tokens` are left out.
    """

    def __init__(
        self, text: ParallelText, tokens: TokenizedText, tokenizers: TokenizerPair, max_length: int, seed: int
    ) -> None:
        """Raise `UserError` if no pair is short enough."""
        specials = 2  # <sos> and <eos>
        fitting = torch.maximum(tokens.source_lengths, tokens.target_lengths) - specials <= max_length
        self.left_out = len(tokens) - int(fitting.sum())
        if self.left_out == len(tokens):
            raise UserError(
                f"trainer.max_length={max_length}: all training pairs have more tokens. Increase it."
            )
        if self.left_out:
            logger.info(
                "%s training pairs of more than %s tokens are left out (trainer.max_length).",
                f"{self.left_out:,}",
                max_length,
            )
        self._sides = ((tokenizers.source, text.source), (tokenizers.target, text.target))
        self._stochastic = any(tokenizer.stochastic for tokenizer, _ in self._sides)
        self._seed = seed
        self._tokens = tokens
        self._drawn: tuple[int, TokenizedText] | None = None
        if self.left_out:
            index = fitting.nonzero().squeeze(1)
            self._tokens = tokens.select(index)
            if self._stochastic:
                source, target = (
                    (tokenizer, Lines.of(lines[i] for i in index.tolist()))
                    for tokenizer, lines in self._sides
                )
                self._sides = (source, target)

    def epoch(self, number: int) -> TokenizedText:
        """Return the ids of an epoch, counted from 0."""
        if not self._stochastic:
            return self._tokens
        if self._drawn is None or self._drawn[0] != number:
            self._drawn = None  # the ids of one epoch at a time
            logger.info("Drawing the tokens of epoch %d", number + 1)
            generator = np.random.default_rng((self._seed, number))
            source, target = (
                _flat(_encode_chunks(partial(tokenizer.sample, rng=generator), lines, "Drawing the tokens"))
                for tokenizer, lines in self._sides
            )
            self._drawn = number, TokenizedText(*source, *target)
        return self._drawn[1]


def tokenize_corpus(
    corpus: Corpus,
    make: Callable[[], Tokenizer],
    options: Mapping[str, object],
    cache: Path | None,
    fitted: TokenizerPair | None = None,
) -> TokenizedCorpus:
    """Fit tokenizers on the training split and encode every split, or read the result of an earlier call.

    Jobs may share a cache: an entry `cache`/tokenized/KEY appears only when it is complete, and a damaged entry is logged
    and written again.

    Args:
        make: returns an untrained tokenizer.
        options: the configuration of the tokenizer, as plain (JSON) values.
        cache: the folder of the cache, or None for no cache.
        fitted: tokenizers to use. If they are given, none is fitted.
    """
    key = corpus_key(corpus, options, fitted)
    if cache is None:
        return _build(corpus, make, fitted, key)
    entry = cache / "tokenized" / key
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cache_dir={cache} cannot be written ({error.strerror}). Set cache_dir=FOLDER to another folder."
        ) from error
    found = _read(entry, corpus)
    if found is not None:
        logger.info("Tokenised corpus read from %s", entry)
        return found
    built = _build(corpus, make, fitted, key)
    if _publish(built, entry):
        return built
    logger.info("Another job has already written %s; its files are used", entry)
    return _read(entry, corpus) or built


def tokenize_text(text: ParallelText, tokenizers: TokenizerPair, name: str) -> TokenizedText:
    """Return the ids of a split; `name` is for the progress bar."""
    return TokenizedText(
        *_flat(_encode_chunks(tokenizers.source.encode, text.source, f"Tokenising {name}, source")),
        *_flat(_encode_chunks(tokenizers.target.encode, text.target, f"Tokenising {name}, target")),
    )


def corpus_key(corpus: Corpus, options: Mapping[str, object], fitted: TokenizerPair | None = None) -> str:
    """Return the SHA-256, in hexadecimal, of everything that determines the tokenised corpus.

    This is the text of every split, the labels of the languages, the options, `fitted` tokenizers, the format of the entry,
    the versions of the libraries, and the user's Python files if the tokenizer is an extension.
    """
    digest = hashlib.sha256()

    def add(text: str) -> None:
        data = text.encode("utf-8")
        digest.update(len(data).to_bytes(8, "little") + data)

    languages = (corpus.source_language, corpus.target_language)
    code = extensions.fingerprint(str(options.get("_target_", "")).rpartition(".")[0])
    versions = [_version(library) for library in ("tokenizers", "spacy")]
    add(json.dumps([FORMAT, versions, code, languages, dict(options)], sort_keys=True))
    if fitted is not None:
        with tempfile.TemporaryDirectory() as folder:
            fitted.save(Path(folder))
            add(json.dumps(_hashes(Path(folder)), sort_keys=True))
    for name, text in _splits(corpus).items():
        add(name)
        for side in (text.source, text.target):
            digest.update(Lines.of(side).digest())
    return digest.hexdigest()


def _version(library: str) -> str | None:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def _splits(corpus: Corpus) -> dict[str, ParallelText]:
    tests = {f"test/{name}": text for name, text in corpus.tests.items()}
    return {"train": corpus.train, "validation": corpus.validation, **tests}


def _build(
    corpus: Corpus, make: Callable[[], Tokenizer], fitted: TokenizerPair | None, key: str
) -> TokenizedCorpus:
    languages = (corpus.source_language, corpus.target_language)
    pair = fit_tokenizers(make, corpus.train, languages) if fitted is None else fitted
    texts = [tokenize_text(text, pair, name) for name, text in _splits(corpus).items()]
    return _assemble(corpus, texts, pair, key, from_cache=False)


def _assemble(
    corpus: Corpus, texts: Sequence[TokenizedText], pair: TokenizerPair, key: str, from_cache: bool
) -> TokenizedCorpus:
    unknown_rate = {}
    for name, text in zip(_splits(corpus), texts, strict=True):
        for side, tokens in (("source", text.source_tokens), ("target", text.target_tokens)):
            unknown = int((tokens == UNK).sum())
            unknown_rate[f"{name}/{side}"] = unknown / max(1, len(tokens) - 2 * len(text))
    train, validation, *tests = texts
    named = dict(zip(corpus.tests, tests, strict=True))
    return TokenizedCorpus(train, validation, named, pair, unknown_rate, key, from_cache)


def _encode_chunks(
    encode: Callable[[Sequence[str]], list[list[int]]], lines: Sequence[str], description: str
) -> Iterator[list[list[int]]]:
    """Yield the ids of `lines`, in chunks."""
    starts = range(0, len(lines), CHUNK)
    for start in progress(starts, description, len(starts)):
        yield encode(lines[start : start + CHUNK])


def _flat(chunks: Iterable[list[list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the tokens (int32) of all lines, each between `<sos>` and `<eos>`, and their offsets (int64)."""
    # Growing buffers need half the memory of lists of arrays, which have to be joined.
    tokens, lengths = bytearray(), bytearray(8)
    for chunk in chunks:
        length = np.fromiter(map(len, chunk), np.int64, len(chunk)) + 2
        framed = chain.from_iterable((SOS, *ids, EOS) for ids in chunk)
        tokens += np.fromiter(framed, np.int32, int(length.sum())).tobytes()
        lengths += length.tobytes()
    return _tensor(tokens, np.int32), _tensor(lengths, np.int64).cumsum(0)


def _tensor(buffer: bytearray, dtype: type[np.integer[Any]]) -> torch.Tensor:
    # torch refuses an empty buffer.
    return torch.from_numpy(np.frombuffer(buffer, dtype) if buffer else np.empty(0, dtype))


def _select(
    tokens: torch.Tensor, offsets: torch.Tensor, index: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the tokens and offsets of the sentences with the numbers `index`."""
    lengths = offsets.diff()[index]
    chosen = torch.cat([offsets.new_zeros(1), lengths.cumsum(0)])
    moved = tokens.new_empty(int(chosen[-1]))
    for start in range(0, len(index), CHUNK):
        part = slice(start, start + CHUNK)
        first, end = int(chosen[start]), int(chosen[min(start + CHUNK, len(index))])
        shift = torch.repeat_interleave(offsets[index[part]] - chosen[:-1][part], lengths[part])
        moved[first:end] = tokens[shift + torch.arange(first, end, device=tokens.device)]
    return moved, chosen


def _names(tests: Mapping[str, object]) -> list[str]:
    """Return the name of the files of each split. Test sets have numbers, because not every name is a file name."""
    return ["train", "validation", *(f"test-{number}" for number in range(len(tests)))]


def _load(entry: Path, name: str) -> TokenizedText:
    """Return the arrays of a split, mapped into memory: processes share them, and load only what they read."""
    # Copy-on-write, because torch needs writable arrays.
    paths = {field.name: entry / f"{name}.{field.name}.npy" for field in fields(TokenizedText)}
    return TokenizedText(
        **{key: torch.from_numpy(np.load(path, mmap_mode="c")) for key, path in paths.items()}
    )


def _read(entry: Path, corpus: Corpus) -> TokenizedCorpus | None:
    """Return the corpus of an entry, or None if there is none. A damaged entry is logged and removed."""
    if not entry.exists():
        return None
    try:
        if json.loads((entry / MANIFEST).read_text(encoding="utf-8")) == _hashes(entry):
            texts = [_load(entry, name) for name in _names(corpus.tests)]
            return _assemble(
                corpus, texts, TokenizerPair.load(entry / "tokenizer"), entry.name, from_cache=True
            )
        reason = "its files do not match its manifest"
    except (FileNotFoundError, UnicodeDecodeError, json.JSONDecodeError) as error:
        reason = str(error)
    logger.warning("The tokenised corpus %s is damaged (%s) and is written again", entry, reason)
    # Another job may have removed the entry already.
    with (
        tempfile.TemporaryDirectory(prefix="damaged.", dir=entry.parent) as temporary,
        suppress(FileNotFoundError),
    ):
        entry.rename(Path(temporary) / "entry")
    return None


def _publish(built: TokenizedCorpus, entry: Path) -> bool:
    """Write `built` to a temporary folder and rename it to `entry`; return False if another job has written it."""
    with tempfile.TemporaryDirectory(prefix="unfinished.", dir=entry.parent) as temporary:
        folder = Path(temporary) / "entry"
        built.tokenizers.save(folder / "tokenizer")
        texts = [built.train, built.validation, *built.tests.values()]
        for name, text in zip(_names(built.tests), texts, strict=True):
            for field in fields(text):
                np.save(folder / f"{name}.{field.name}.npy", getattr(text, field.name).numpy())
        (folder / MANIFEST).write_text(json.dumps(_hashes(folder), indent=2), encoding="utf-8")
        try:
            folder.rename(entry)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return False
    return True


def _hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file in `folder` except the manifest, by its relative path."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / MANIFEST]
    return {path.relative_to(folder).as_posix(): sha256(path) for path in files}
