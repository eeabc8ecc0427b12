"""Files of the user: find them, unpack them, and read their lines in any encoding."""

import bz2
import codecs
import gzip
import io
import logging
import lzma
import re
import unicodedata
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from encodings.aliases import aliases
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from seq2seq_lab.data.progress import progress
from seq2seq_lab.errors import STORAGE_REMEDIES, UserError, did_you_mean, storage_errors

logger = logging.getLogger(__name__)

LONGEST_LINE = 1 << 28
"""Bytes, or characters of an encoding of several bytes, of the longest line that is read into memory."""

DATASET_REMEDY = "set dataset.encoding, for example dataset.encoding=cp1252 for a file of Windows or Excel"
CONVERT_REMEDY = "convert the file to UTF-8, for example with `iconv -f CP1252 -t UTF-8`"
UNPACKING_ERRORS = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)  # of damaged compressed files
_REPLACE = "Replace the file with a complete copy"

# The longest first: the mark of UTF-32 begins with that of UTF-16.
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


_ISO_2022 = re.compile(rb"\x1b\$[@-B(-/]")  # begins Japanese, Chinese or Korean characters


def _arrow(codec: str, file: BinaryIO) -> BinaryIO:
    import pyarrow

    return cast(BinaryIO, pyarrow.CompressedInputStream(file, codec))


# suffix: how such a file begins, what opens it
_COMPRESSIONS: dict[str, tuple[re.Pattern[bytes], Callable[[BinaryIO], BinaryIO]]] = {
    ".gz": (re.compile(rb"\x1f\x8b\x08"), lambda file: cast(BinaryIO, gzip.open(file))),  # noqa: SIM115
    ".bz2": (re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"), lambda file: cast(BinaryIO, bz2.open(file))),  # noqa: SIM115
    ".xz": (re.compile(rb"\xfd7zXZ\0"), lambda file: cast(BinaryIO, lzma.open(file))),  # noqa: SIM115
    ".zst": (re.compile(rb"\x28\xb5\x2f\xfd"), partial(_arrow, "zstd")),
    ".lz4": (re.compile(rb"\x04\x22\x4d\x18"), partial(_arrow, "lz4")),
}
COMPRESSED = tuple(_COMPRESSIONS)
"""The suffixes of compressed files."""

# How a file begins that has no lines of text, and what to do with it.
_NO_TEXT = {
    rb"PK\x03\x04": "a ZIP archive or a workbook of Excel. Unpack it, or save the sheet as CSV",
    rb"\xd0\xcf\x11\xe0": "a document of Office. Save the sheet as CSV",
    rb".{257}ustar(\0|  \0)": "a tar archive. Unpack it",
    rb"7z\xbc\xaf\x27\x1c|Rar!": "an archive. Unpack it",
    rb"PAR1": "a Parquet file, which needs the suffix .parquet",
    rb"ARROW1|\xff\xff\xff\xff.\0\0\0\x10\0\0\0": "an Arrow file. Convert it to Parquet",
    rb"SQLite format 3": "a database. Export a table as CSV",
    rb"\x89HDF|\x89PNG|\xff\xd8\xff|GIF8|%PDF-|\x93NUMPY|\x80[\x02-\x05][\x8ac}\]]": "no text. Give a file of text",
    rb"(?i)\s*(<!doctype html|<html|<\?xml|<tmx|<xliff|\{\\rtf)": "a page or an XML document. Convert it to plain text",
}


def open_content(file: io.BufferedReader, name: str, suffix: str = "") -> BinaryIO:
    """Return the text of an open file, which is unpacked if it begins as a compressed file does.

    Args:
        name: the name of the file for errors.
        suffix: of the name of the file; that of another compression is an error.

    Raises:
        OSError: the file is not compressed, but its suffix is that of a compressed file.
        UserError: the content is not text.
    """
    start = file.peek(16)
    packed = next((key for key, (magic, _) in _COMPRESSIONS.items() if magic.match(start)), "")
    if suffix in _COMPRESSIONS and suffix != packed:
        raise OSError(f"it does not begin as a {suffix} file does; rename it if it is not compressed")
    return _COMPRESSIONS[packed][1](file) if packed else cast(BinaryIO, file)


def refuse_binary(start: bytes, name: str) -> None:
    """Raise `UserError` for the content of a file that has no lines of text."""
    if any(magic.match(start) for magic, _ in _COMPRESSIONS.values()):
        raise UserError(f"{name} is compressed. Unpack it.")
    for magic, kind in _NO_TEXT.items():
        if re.match(magic, start, re.DOTALL):
            raise UserError(f"{name} is {kind}.")


def read_lines(
    path: Path,
    counts: Counter[str],
    show: bool = True,
    encoding: str | None = None,
    remedy: str = DATASET_REMEDY,
    as_written: bool = False,
) -> Iterator[tuple[str, str]]:
    r"""Yield (text, "") for each line of a plain or compressed file, ("", problem) for a line that cannot be decoded.

    Only "\n" ends a line: U+2028, U+0085 and a lone "\r" are part of it. A byte order mark at the start of a line and
    the "\r" of "\r\n" are removed and counted; a line that is not in NFC is converted and counted. Compression is
    recognized by the content of the file.

    Args:
        show: show a progress bar.
        encoding: the name of the encoding; None for UTF-8. A byte order mark overrides it.
        remedy: what to do with a file that is not in UTF-8.
        as_written: do not convert lines to NFC.

    Raises:
        UserError: the file cannot be read, such as a truncated archive, is not text, has a line that does not fit into
            memory, or the encoding does not exist.
    """
    with storage_errors(path):
        try:
            with (
                path.open("rb") as file,
                closing(open_content(file, str(path), path.suffix.lower())) as stream,
            ):
                size = path.stat().st_size
                decode = _decode_as_written if as_written else decode_lines
                # An unfinished decoder is closed before its stream.
                with closing(decode(stream, str(path), counts, encoding, remedy)) as lines:
                    yield from progress(lines, f"Reading {path.name}", size, file.tell) if show else lines
        except UNPACKING_ERRORS as error:
            raise UserError(f"{path} cannot be read to its end: {error}. {_REPLACE}.") from error
        except OSError as error:
            if error.errno in STORAGE_REMEDIES:
                raise
            raise UserError(f"{path} cannot be read to its end: {error}. {_REPLACE}.") from error


def decode_lines(
    stream: BinaryIO,
    name: str,
    counts: Counter[str],
    encoding: str | None = None,
    remedy: str = CONVERT_REMEDY,
) -> Generator[tuple[str, str], None, None]:
    """Yield the same as `read_lines` for the content of an open file."""
    for text, problem in _decode_as_written(stream, name, counts, encoding, remedy):
        yield compose(text, counts), problem


def _decode_as_written(
    stream: BinaryIO, name: str, counts: Counter[str], encoding: str | None, remedy: str
) -> Generator[tuple[str, str], None, None]:
    """Yield the same as `decode_lines`, but lines that are not in NFC as they are."""
    check_encoding(encoding)
    if not hasattr(stream, "peek"):
        stream = cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, stream)))
    start = cast(io.BufferedReader, stream).peek(512)[:512]
    refuse_binary(start, name)
    mark = next((mark for mark in _MARKS if start.startswith(mark)), b"")
    if mark:
        counts["byte_order_marks"] += 1
        encoding = _MARKS[mark]
    elif encoding is None:
        _refuse_wide(start, name, remedy)
    encoding = codecs.lookup(encoding or "utf-8").name
    if encoding == "utf-8-sig":
        stream.read(len(mark))
        encoding = "utf-8"
    narrow = "\n".encode(encoding) == b"\n"
    if narrow and start.count(b"\r") > 1 and b"\n" not in start:
        raise UserError(
            f"{name}: its lines end in carriage returns. Convert them, for example with `tr '\\r' '\\n'`."
        )
    if not narrow:
        yield from _decode_wide(stream, name, counts, encoding, remedy)
        return
    doubtful = 0  # lines with other than ASCII characters that are valid UTF-8 as well
    # Text mode would not report the line of a wrong byte.
    for line_number, raw in enumerate(iter(partial(stream.readline, LONGEST_LINE), b""), start=1):
        if len(raw) == LONGEST_LINE and not raw.endswith(b"\n"):
            raise _long_line(name, line_number)
        if raw.endswith(b"\r\n"):
            raw = raw[:-2] + b"\n"
            counts["carriage_returns"] += 1
        if encoding == "utf-8" and raw.startswith(codecs.BOM_UTF8):  # of files that were joined
            raw = raw[len(codecs.BOM_UTF8) :]
            counts["byte_order_marks"] += 1
        if encoding == "utf-8" and _ISO_2022.search(raw):
            yield (
                "",
                "text in ISO-2022, not UTF-8; set dataset.encoding, for example dataset.encoding=iso2022_jp",
            )
            continue
        try:
            text = raw.removesuffix(b"\n").decode(encoding)
        except UnicodeDecodeError as error:
            hint = f"; {remedy}" if encoding == "utf-8" else "; set another dataset.encoding"
            yield "", f"byte {error.start + 1} is not {encoding.upper()} ({error.reason}{hint})"
        else:
            doubtful += encoding != "utf-8" and not raw.isascii() and _is_utf8(raw)
            yield text, ""
    if doubtful:
        logger.warning(
            "%s: %s lines with characters that are not ASCII are also valid UTF-8, but were read with "
            "dataset.encoding=%s. If letters are wrong, set dataset.encoding=null.",
            name,
            f"{doubtful:,}",
            encoding,
        )


def _decode_wide(
    stream: BinaryIO, name: str, counts: Counter[str], encoding: str, remedy: str
) -> Iterator[tuple[str, str]]:
    """Yield the lines of an encoding in which a line feed is not the single byte 10, such as UTF-16."""
    text = io.TextIOWrapper(cast(io.BufferedReader, stream), encoding, errors="surrogatepass", newline="\n")
    try:
        for line_number, line in enumerate(iter(partial(text.readline, LONGEST_LINE), ""), start=1):
            if len(line) == LONGEST_LINE and not line.endswith("\n"):
                raise _long_line(name, line_number)
            if line.startswith("\ufeff"):  # of files that were joined
                line = line[1:]
                counts["byte_order_marks"] += 1
            if line.endswith("\r\n"):
                line = line[:-2]
                counts["carriage_returns"] += 1
            else:
                line = line.removesuffix("\n")
            if re.search("[\ud800-\udfff]", line):
                yield "", f"half a surrogate pair, which is not {encoding.upper()}"
            else:
                yield line, ""
    except UnicodeError as error:
        raise UserError(
            f"{name} is not a file in {encoding.upper()}: {error}. {_REPLACE}, or {remedy}."
        ) from error
    finally:
        text.detach()


def check_encoding(encoding: str | None) -> None:
    """Raise `UserError` for an encoding that Python does not have; None is UTF-8."""
    try:
        "\n".encode(encoding or "utf-8")
    except (LookupError, UnicodeError) as error:
        known = sorted({*aliases, *aliases.values()})
        raise UserError(
            f"dataset.encoding={encoding} is not an encoding of text.{did_you_mean(str(encoding), known)} Values: null for "
            f"UTF-8, utf-16, cp1252, latin-1, shift_jis, gb18030, and the others of Python's module codecs."
        ) from error


def _refuse_wide(start: bytes, name: str, remedy: str) -> None:
    """Raise `UserError` for the start of a file in UTF-32 or UTF-16 without a byte order mark.

    The highest byte of a character of UTF-32 is NUL, and the one after it mostly; of UTF-16 in Latin letters, the higher
    one mostly.
    """
    found = None
    for encoding, size, places in (
        ("utf-32-le", 4, (2, 3)),
        ("utf-32-be", 4, (0, 1)),
        ("utf-16-le", 2, (1,)),
        ("utf-16-be", 2, (0,)),
    ):
        most = max(2, len(start) / size * (0.9 if size == 4 else 1 / 3))
        if found is None and all(start[place::size].count(0) > most for place in places):
            found = encoding
    found = found or _utf_16_of_other_scripts(start)
    if found is not None:
        action = (
            f"set dataset.encoding={found}" if remedy is DATASET_REMEDY else remedy.replace("CP1252", found)
        )
        raise UserError(
            f"{name} is not in UTF-8. It seems to be in {found[:6].upper()} without a byte order mark: {action}."
        )


def _utf_16_of_other_scripts(start: bytes) -> str | None:
    """Return the form of UTF-16 that the start of a file in letters that are not Latin seems to have; None for another file.

    The higher byte of spaces, line feeds and punctuation is NUL. That of letters is mostly the same in one script, or the
    bytes are not UTF-8, as in Chinese.
    """
    start = start[: len(start) // 2 * 2]
    for encoding, place in (("utf-16-le", 1), ("utf-16-be", 0)):
        high, low = start[place::2], start[1 - place :: 2]
        if high.count(0) <= 4 * low.count(0):
            continue
        text = start.decode(encoding, "replace")
        strange = sum(unicodedata.category(c) in ("Cc", "Cn", "Co") and c not in "\r\n\t" for c in text)
        one_script = max(high.count(byte) for byte in {*high} - {0}) * 2 > len(high) if any(high) else True
        if 20 * strange <= len(text) and (
            one_script or not any(_is_utf8(start[: -cut or None]) for cut in range(4))
        ):
            return encoding
    return None


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _long_line(name: str, line_number: int) -> UserError:
    return UserError(
        f"{name} line {line_number} is longer than {LONGEST_LINE >> 20} MiB and cannot be a sentence. Give a file of text "
        "with one example per line."
    )


def compose(text: str, counts: Counter[str]) -> str:
    """Return a text in Unicode NFC, and count it if it was not."""
    if unicodedata.is_normalized("NFC", text):
        return text
    counts["composed_lines"] += 1
    return composed(text)


def composed(text: str) -> str:
    """Return a text in Unicode NFC, in which all texts of data sets are read."""
    return unicodedata.normalize("NFC", text)


def list_folder(folder: Path) -> str:
    """Return the names of the first files in a folder, for an error message."""
    if not folder.is_dir():
        return f"folder {folder} not found"
    names = sorted(entry.name for entry in folder.iterdir())
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return f"{folder} contains {', '.join(names[:12]) or 'nothing'}{more}"


def find_file(key: str, value: str) -> Path:
    """Return the path of the file that a configuration key names. Raises `UserError` if it does not exist."""
    path = Path(value).expanduser()
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise UserError(
            f"{key}={value}: {path} is a pipe or a device, and the file is read more than once. Write the text to a file "
            f"first, plain or compressed ({', '.join(COMPRESSED)})."
        )
    if path.is_dir():
        raise UserError(f"{key}={value}: {path} is a folder; {list_folder(path)}. Give the path of a file.")
    if not path.is_file():
        folder = path.parent
        names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
        raise UserError(
            f"{key}={value}: file {path} not found; {list_folder(folder)}.{did_you_mean(path.name, names)} Give the "
            f"path of a file, plain or compressed ({', '.join(COMPRESSED)})."
        )
    return path


def plain_name(name: str) -> str:
    """Return the name of a file without the suffix of a compression."""
    return next((name[: -len(one)] for one in COMPRESSED if name.lower().endswith(one)), name)


def plain_suffix(file: str | Path) -> str:
    """Return the suffix of a file in lower case, without that of a compression."""
    return Path(plain_name(str(file))).suffix.lower()


def find_packed(path: Path) -> Path:
    """Return the path of a file, or of a compressed file of this name if only that exists."""
    packed = (path.with_name(path.name + suffix) for suffix in COMPRESSED)
    return path if path.is_file() else next((one for one in packed if one.is_file()), path)
