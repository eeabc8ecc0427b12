"""A corpus as ids in flat arrays, and the folder that keeps such corpora between runs."""

import errno
import hashlib
import json
import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path

import tokenizers
import torch
from safetensors.torch import load_file, save_file

from seq2seq_lab.data.corpus import Corpus, ParallelText
from seq2seq_lab.data.tokenizers import EOS, SOS, UNK, Tokenizer, TokenizerPair, fit_tokenizers
from seq2seq_lab.errors import UserError
from seq2seq_lab.files import sha256

# Raise it when a change of the code gives other ids for the same text and options, or other files.
FORMAT = 1
CHUNK = 10_000  # lines encoded at a time: bounds the Python lists that exist at once
MANIFEST = "manifest.json"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """The N sentence pairs of one split, each sentence as `<sos>` … `<eos>`, one after another.

    Sentence i is `source_tokens[source_offsets[i] : source_offsets[i + 1]]`; tokens are int32, the N + 1
    offsets int64. The target likewise.
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
        """Tokens of each source sentence, `<sos>` and `<eos>` included: int64, N."""
        return self.source_offsets.diff()

    @property
    def target_lengths(self) -> torch.Tensor:
        """Tokens of each target sentence, `<sos>` and `<eos>` included: int64, N."""
        return self.target_offsets.diff()

    def select(self, index: torch.Tensor) -> "TokenizedText":
        """The pairs numbered `index` (int64, any order, repeats allowed), in that order."""
        return TokenizedText(
            *_select(self.source_tokens, self.source_offsets, index),
            *_select(self.target_tokens, self.target_offsets, index),
        )


@dataclass(frozen=True, slots=True)
class TokenizedCorpus:
    """A corpus as ids, with the tokenizers fitted on its training split.

    `unknown_rate` is the share of `<unk>` among the tokens of each split and side, `<sos>` and `<eos>` not
    counted; its keys are `train/source`, `validation/target`, `test/NAME/source` and so on. `from_cache`
    says whether the ids were read, not made.
    """

    train: TokenizedText
    validation: TokenizedText
    tests: dict[str, TokenizedText]
    tokenizers: TokenizerPair
    unknown_rate: dict[str, float]
    from_cache: bool


def tokenize_corpus(
    corpus: Corpus,
    make: Callable[[], Tokenizer],
    options: Mapping[str, object],
    cache: Path | None,
    fitted: TokenizerPair | None = None,
) -> TokenizedCorpus:
    """Fit tokenizers on the training split and encode every split, or read the result of an earlier call.

    `make` gives an untrained tokenizer and `options` says as plain (JSON) values all that it was configured
    with; where `fitted` is given, these tokenizers are used and none is fitted. Entries are
    `cache`/tokenized/KEY; None keeps nothing. Jobs may share a cache: an entry appears whole or not at all,
    and one that is damaged is logged and made anew.
    """
    if cache is None:
        return _build(corpus, make, fitted)
    entry = cache / "tokenized" / corpus_key(corpus, options, fitted)
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"The cache folder {cache} cannot be written ({error.strerror}). Set cache_dir=FOLDER to another one."
        ) from error
    found = _read(entry, corpus)
    if found is not None:
        logger.info("Tokenised corpus read from %s", entry)
        return found
    built = _build(corpus, make, fitted)
    if _publish(built, entry):
        return built
    logger.info("Another job has written %s first; its files are used", entry)
    return _read(entry, corpus) or built


def corpus_key(corpus: Corpus, options: Mapping[str, object], fitted: TokenizerPair | None = None) -> str:
    """SHA-256, in hexadecimal, of all that the tokenised corpus follows from.

    That is the text of every split, the options, the tokenizers if they are `fitted` already, the format of
    the entry and the version of the `tokenizers` library. Lengths stand before texts, so that no two corpora
    run together alike.
    """
    digest = hashlib.sha256()

    def add(text: str) -> None:
        data = text.encode("utf-8")
        digest.update(len(data).to_bytes(8, "little") + data)

    add(json.dumps([FORMAT, tokenizers.__version__, dict(options)], sort_keys=True))
    if fitted is not None:
        with tempfile.TemporaryDirectory() as folder:
            fitted.save(Path(folder))
            add(json.dumps(_hashes(Path(folder)), sort_keys=True))
    for name, text in _splits(corpus).items():
        add(name)
        add(str(len(text)))
        for line in chain(text.source, text.target):
            add(line)
    return digest.hexdigest()


def _splits(corpus: Corpus) -> dict[str, ParallelText]:
    tests = {f"test/{name}": text for name, text in corpus.tests.items()}
    return {"train": corpus.train, "validation": corpus.validation, **tests}


def _build(corpus: Corpus, make: Callable[[], Tokenizer], fitted: TokenizerPair | None) -> TokenizedCorpus:
    pair = fit_tokenizers(make, corpus.train) if fitted is None else fitted
    texts = [
        TokenizedText(*_encode(pair.source, text.source), *_encode(pair.target, text.target))
        for text in _splits(corpus).values()
    ]
    return _assemble(corpus, texts, pair, from_cache=False)


def _assemble(
    corpus: Corpus, texts: Sequence[TokenizedText], pair: TokenizerPair, from_cache: bool
) -> TokenizedCorpus:
    unknown_rate = {}
    for name, text in zip(_splits(corpus), texts, strict=True):
        for side, tokens in (("source", text.source_tokens), ("target", text.target_tokens)):
            unknown = int((tokens == UNK).sum())
            unknown_rate[f"{name}/{side}"] = unknown / max(1, len(tokens) - 2 * len(text))
    train, validation, *tests = texts
    named = dict(zip(corpus.tests, tests, strict=True))
    return TokenizedCorpus(train, validation, named, pair, unknown_rate, from_cache)


def _encode(tokenizer: Tokenizer, lines: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """The tokens (int32) of all `lines`, each between `<sos>` and `<eos>`, and their offsets (int64)."""
    tokens = [torch.zeros(0, dtype=torch.int32)]
    lengths = [torch.zeros(1, dtype=torch.int64)]
    for start in range(0, len(lines), CHUNK):
        chunk = [[SOS, *ids, EOS] for ids in tokenizer.encode(lines[start : start + CHUNK])]
        tokens.append(torch.tensor(list(chain.from_iterable(chunk)), dtype=torch.int32))
        lengths.append(torch.tensor([len(ids) for ids in chunk], dtype=torch.int64))
    return torch.cat(tokens), torch.cat(lengths).cumsum(0)


def _select(
    tokens: torch.Tensor, offsets: torch.Tensor, index: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The tokens and offsets of the sentences numbered `index`."""
    lengths = offsets.diff()[index]
    chosen = torch.cat([offsets.new_zeros(1), lengths.cumsum(0)])
    moved = torch.repeat_interleave(offsets[index] - chosen[:-1], lengths)
    return tokens[moved + torch.arange(len(moved), device=moved.device)], chosen


def _files(tests: Mapping[str, object]) -> list[str]:
    """The file of each split. Test sets by number: their names may hold what a file name may not."""
    names = ["train", "validation", *(f"test-{number}" for number in range(len(tests)))]
    return [f"{name}.safetensors" for name in names]


def _read(entry: Path, corpus: Corpus) -> TokenizedCorpus | None:
    """The entry's corpus, or None where there is none. A damaged entry is logged and taken away."""
    if not entry.exists():
        return None
    try:
        if json.loads((entry / MANIFEST).read_text(encoding="utf-8")) == _hashes(entry):
            texts = [TokenizedText(**load_file(entry / file)) for file in _files(corpus.tests)]
            return _assemble(corpus, texts, TokenizerPair.load(entry / "tokenizer"), from_cache=True)
        reason = "its files are not those of its manifest"
    except (FileNotFoundError, UnicodeDecodeError, json.JSONDecodeError) as error:
        reason = str(error)
    logger.warning("The tokenised corpus %s is damaged (%s) and is made anew", entry, reason)
    # Another job that saw the damage may have taken the entry away already.
    with (
        tempfile.TemporaryDirectory(prefix="damaged.", dir=entry.parent) as temporary,
        suppress(FileNotFoundError),
    ):
        entry.rename(Path(temporary) / "entry")
    return None


def _publish(built: TokenizedCorpus, entry: Path) -> bool:
    """Write `built` beside `entry` and rename it to it; False where another job's entry is there already."""
    with tempfile.TemporaryDirectory(prefix="unfinished.", dir=entry.parent) as temporary:
        folder = Path(temporary) / "entry"
        built.tokenizers.save(folder / "tokenizer")
        texts = [built.train, built.validation, *built.tests.values()]
        for file, text in zip(_files(built.tests), texts, strict=True):
            save_file({field.name: getattr(text, field.name) for field in fields(text)}, folder / file)
        (folder / MANIFEST).write_text(json.dumps(_hashes(folder), indent=2), encoding="utf-8")
        try:
            folder.rename(entry)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return False
    return True


def _hashes(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file below `folder` but the manifest's, by its path in `folder`."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / MANIFEST]
    return {path.relative_to(folder).as_posix(): sha256(path) for path in files}
