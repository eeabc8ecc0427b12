"""Files of word alignments: Pharaoh (`0-0 1-2`, possible links `0?1` or `0p1`) and WPT (`sentence source target [S|P]`)."""

import logging
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from seq2seq_lab.data.corpus import Gold, ParallelText
from seq2seq_lab.data.local_files import find_file, read_lines
from seq2seq_lab.errors import UserError

logger = logging.getLogger(__name__)

Link: TypeAlias = tuple[int, int]
Links: TypeAlias = frozenset[Link]
Base = Literal[0, 1]
AlignmentFiles = str | tuple[str, str]
"""One file, or a file of sure links and a file of possible ones."""

_PHARAOH = re.compile(r"(\d+)([-?p])(\d+)", re.ASCII)
_WPT = re.compile(r"(\d+)\s+(\d+)\s+(\d+)(?:\s+([SP])(?:\s+\S+)?)?", re.ASCII)


class _Entry(NamedTuple):
    """A link as it is in a file: `where` names the file and the line."""

    where: str
    text: str
    sentence: int
    link: Link
    sure: bool


def pharaoh(links: Collection[Link], possible: Collection[Link] = ()) -> str:
    """Return (source word, target word) links as `0-0 1-2`, in the order of the target.

    Args:
        possible: further links that are possible but not sure, which are written as `0p1`.
    """
    marks = {**dict.fromkeys(possible, "p"), **dict.fromkeys(links, "-")}
    return " ".join(f"{link[0]}{marks[link]}{link[1]}" for link in sorted(marks, key=lambda link: link[::-1]))


def alignment_words(line: str) -> tuple[str, ...]:
    """Return the words that the links of a file count: the text between spaces or tabs."""
    return tuple(re.findall(r"[^ \t]+", line))


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignmentReader:
    """Reads files of word alignments.

    Attributes:
        base: the number of the first word of a sentence in Pharaoh files. None: the one with which all links are in their
            sentences; an error if this is true of both. WPT files count from 1.
        is_reversed: the files have (target, source) links.
    """

    base: Base | None = None
    is_reversed: bool = False

    def read(
        self, path: Path, sizes: Sequence[tuple[int, int]], possible: Path | None = None
    ) -> list[tuple[Links, Links]]:
        """Return the sure links S and the other possible links P without S of each sentence pair, counted from 0.

        A link that a file marks as sure and as possible is sure. A link of a WPT file with position 0 (no word) is left out,
        with a warning.

        Args:
            sizes: the number of words of the source and the target of each pair.
            possible: a file with all possible links; their marks are ignored, and the links of `path` must be among them.

        Raises:
            UserError: names the file, the line and the link: a line in another format, a link outside its sentence or of
                another base, a sure link that is not possible; or a file with another number of lines.
        """
        sure = self._links(path, sizes)
        if possible is not None:
            others = self._links(possible, sizes)
            known = {(entry.sentence, entry.link) for entry in others}
            for entry in sure:
                if entry.sure and (entry.sentence, entry.link) not in known:
                    raise UserError(
                        f"{entry.where}: the link {entry.text} is sure, but not among the possible links of {possible}. "
                        "Every sure link is possible: add it there, or remove it here."
                    )
            sure += [entry._replace(sure=False) for entry in others]
        found: list[tuple[set[Link], set[Link]]] = [(set(), set()) for _ in sizes]
        for entry in sure:
            found[entry.sentence][not entry.sure].add(entry.link)
        return [(frozenset(links), frozenset(more - links)) for links, more in found]

    def _links(self, path: Path, sizes: Sequence[tuple[int, int]]) -> list[_Entry]:
        """Return the links of a file, (source, target) from 0."""
        entries, is_wpt = _entries(path, len(sizes))
        if is_wpt and self.base == 0:
            raise UserError(
                f"dataset.alignment_base=0: {path} has lines `sentence source target`, a format that counts from 1. Leave "
                "dataset.alignment_base out."
            )
        if is_wpt:
            entries = _without_null(entries, path)
        if self.is_reversed:
            entries = [entry._replace(link=entry.link[::-1]) for entry in entries]
        base = 1 if is_wpt else self.base
        if base is None:
            base = _found_base(entries, sizes, path)
        outside = _outside(entries, sizes, base)
        if outside is not None:
            turned = [entry._replace(link=entry.link[::-1]) for entry in entries]
            raise _outside_error(outside, sizes, base, self, _outside(turned, sizes, base) is None)
        return [entry._replace(link=(entry.link[0] - base, entry.link[1] - base)) for entry in entries]


def _entries(path: Path, sentences: int) -> tuple[list[_Entry], bool]:
    """Return the links of a file as they are, and whether it is a WPT file. The first line with text shows the format."""
    entries: list[_Entry] = []
    is_wpt: bool | None = None
    number = 0
    for number, (line, problem) in enumerate(read_lines(path, Counter(), show=False), start=1):
        where = f"{path} line {number}"
        if problem:
            raise UserError(f"{where}: {problem}.")
        if not line.strip():
            continue
        if is_wpt is None:
            is_wpt = _WPT.fullmatch(line.strip()) is not None
        entries += _wpt(line.strip(), where, sentences) if is_wpt else _pharaoh(line, where, number - 1)
    if not is_wpt and number != sentences:
        raise UserError(
            f"{path} has {number:,} lines, and its test set {sentences:,} pairs. Give one line of links for each pair, an "
            "empty one for a pair without links."
        )
    return entries, bool(is_wpt)


def _pharaoh(line: str, where: str, sentence: int) -> Iterator[_Entry]:
    for text in line.split():
        match = _PHARAOH.fullmatch(text)
        if match is None:
            raise UserError(
                f"{where}: {text!r} is not a link. Write sure links as 0-1 and possible ones as 0?1 or 0p1, or each "
                "link in its own line, as `sentence source target [S|P]`."
            )
        yield _Entry(where, text, sentence, (int(match[1]), int(match[3])), match[2] == "-")


def _wpt(line: str, where: str, sentences: int) -> Iterator[_Entry]:
    match = _WPT.fullmatch(line)
    if match is None:
        raise UserError(f"{where}: {line!r} is not `sentence source target [S|P [confidence]]`.")
    if not 1 <= int(match[1]) <= sentences:
        raise UserError(
            f"{where}: {line!r} is a link of sentence {int(match[1])}, and the test set has the pairs 1 to {sentences:,}."
        )
    yield _Entry(where, line, int(match[1]) - 1, (int(match[2]), int(match[3])), match[4] != "P")


def _without_null(entries: Sequence[_Entry], path: Path) -> list[_Entry]:
    """Return the links of a WPT file without those of position 0, which marks a word without a translation."""
    kept = [entry for entry in entries if 0 not in entry.link]
    for entry in entries:
        if entry.link == (0, 0):
            raise UserError(
                f"{entry.where}: {entry.text!r} links no word. The first word of a sentence is 1; add 1 to all positions if "
                "they count from 0."
            )
    if len(kept) < len(entries):
        logger.warning(
            "%s: %s links of position 0, which marks a word without a translation, are left out. If the file counts words "
            "from 0, add 1 to all positions.",
            path,
            f"{len(entries) - len(kept):,}",
        )
    return kept


def _outside(entries: Sequence[_Entry], sizes: Sequence[tuple[int, int]], base: int) -> _Entry | None:
    """Return the first link outside its sentence."""
    for entry in entries:
        if not all(
            0 <= word - base < size for word, size in zip(entry.link, sizes[entry.sentence], strict=True)
        ):
            return entry
    return None


def _found_base(entries: Sequence[_Entry], sizes: Sequence[tuple[int, int]], path: Path) -> Base:
    """Return the base with which all links are in their sentences; if there is none, that of the smallest number."""
    if not entries:
        return 0
    inside = [_outside(entries, sizes, base) is None for base in (0, 1)]
    if all(inside):
        raise UserError(
            f"{path}: all links are in their sentences if the first word is 0, and also if it is 1. Set "
            "dataset.alignment_base=0 or dataset.alignment_base=1."
        )
    return 0 if inside[0] or (not inside[1] and any(0 in entry.link for entry in entries)) else 1


def _outside_error(
    entry: _Entry, sizes: Sequence[tuple[int, int]], base: int, reader: AlignmentReader, fits_turned: bool
) -> UserError:
    source, target = sizes[entry.sentence]
    remedy = "Give the alignments of this text, whose words are separated by spaces."
    if fits_turned:
        value = str(not reader.is_reversed).lower()
        remedy = f"All links fit in the other direction: set dataset.alignments_reversed={value}."
    return UserError(
        f"{entry.where}: the link {entry.text} is outside its sentence pair, with source words {base} to "
        f"{source - 1 + base} and target words {base} to {target - 1 + base} (first word {base}, links of (source, target), "
        f"dataset.alignments_reversed={str(reader.is_reversed).lower()}). {remedy}"
    )


Alignments = AlignmentFiles | Mapping[str, AlignmentFiles]


def with_alignments(
    texts: Mapping[str, ParallelText],
    given: Alignments | None,
    reader: AlignmentReader,
    dropped: Collection[str] = (),
) -> dict[str, ParallelText]:
    """Return the held-out splits with the gold alignments of files.

    Args:
        texts: the held-out splits with their own files, by name: `validation` and those of the test sets.
        given: the value of `dataset.alignments`: the files of the only test set, or of each split by its name.
        dropped: the splits that lost pairs.

    Raises:
        UserError: a name that is not such a split, a split that lost pairs, or see `AlignmentReader.read`.
    """
    if given is None:
        return dict(texts)
    names = ", ".join(texts) or "none: set dataset.test=FILE"
    if not isinstance(given, Mapping):
        tests = [name for name in texts if name != "validation"]
        if len(tests) != 1:
            raise UserError(
                f"dataset.alignments={given}: there are {len(tests)} test sets with their own files, and one is needed. "
                f"Give {{SPLIT: FILE, …}}. Splits: {names}."
            )
        given = {tests[0]: given}
    result = dict(texts)
    for name, files in given.items():
        key = f"dataset.alignments.{name}"
        if name not in texts:
            raise UserError(
                f"{key}={files}: {name} is not a held-out split with its own file. Splits: {names}."
            )
        if name in dropped:
            raise UserError(
                f"{key}={files}: pairs of {name} were dropped, and the lines of the alignments no longer match. Remove "
                "these pairs and their links from the files, or set dataset.on_bad_pair=error and dataset.max_tokens=null."
            )
        result[name] = _aligned(texts[name], key, files, reader)
    return result


def _aligned(text: ParallelText, key: str, files: AlignmentFiles, reader: AlignmentReader) -> ParallelText:
    listed = [files] if isinstance(files, str) else [*files] if isinstance(files, list | tuple) else []
    if not (1 <= len(listed) <= 2 and all(isinstance(file, str) for file in listed)):
        raise UserError(f"{key}={files}: give one file of links, or [SURE_FILE,POSSIBLE_FILE].")
    words = [
        (alignment_words(source), alignment_words(target))
        for source, target in zip(text.source, text.target, strict=True)
    ]
    links = reader.read(
        find_file(key, listed[0]),
        [(len(source), len(target)) for source, target in words],
        find_file(key, listed[1]) if len(listed) == 2 else None,
    )
    golds = [Gold(*pair, *both) for pair, both in zip(words, links, strict=True)]
    return replace(text, gold=golds)
