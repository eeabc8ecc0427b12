"""Real files in every encoding, delimiter, compression and format; what cannot be read is refused with a remedy."""

import bz2
import codecs
import csv
import gc
import gzip
import json
import lzma
import os
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas
import pyarrow
import pytest
from omegaconf import OmegaConf
from pyarrow import parquet

from seq2seq_lab.config.slots import check_slot
from seq2seq_lab.data import local_files
from seq2seq_lab.data.find_line import find_line
from seq2seq_lab.data.local_files import read_lines
from seq2seq_lab.data.parallel import Parallel
from seq2seq_lab.data.tables import json_rows
from seq2seq_lab.errors import UserError
from seq2seq_lab.launching.checks import KINDS

DEFAULTS = Path(__file__).parents[2] / "conf" / "dataset" / "parallel.yaml"
PAIRS = [
    ("Größe, 5 Meter", "size, 5 metres"),
    ("schöne Welt", "beautiful world"),
    ("Äpfel; Birnen", "apples"),
]
TABLE = "".join(f"{one}\t{other}\n" for one, other in PAIRS)
FRAME = pandas.DataFrame(PAIRS, columns=["de", "en"])
NAMED = {"columns": ["de", "en"]}
OBJECTS = [{"de": one, "en": other} for one, other in PAIRS]


def arrow_compressed(codec: str, data: bytes) -> bytes:
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, codec) as stream:
        stream.write(data)
    return bytes(sink.getvalue())


def parquet_file(rows: list[dict[str, Any]]) -> bytes:
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.Table.from_pylist(rows), sink)
    return bytes(sink.getvalue())


def dataset(path: Path, **changes: Any) -> Parallel:
    """The data set of a training file; the other splits are one further pair."""
    held_out = path.with_name("held_out.txt")
    held_out.write_text("v\tw\n", "utf-8")
    one = [str(held_out.with_suffix(".de")), str(held_out.with_suffix(".en"))]
    for file in one:
        Path(file).write_text("v\n", "utf-8")
    settings: Any = OmegaConf.to_container(OmegaConf.load(DEFAULTS))
    settings |= {"validation": one, "test": one, "train": str(path)} | changes
    check_slot("dataset", settings, KINDS)
    settings.pop("_target_")
    return Parallel(**settings)


def pairs(path: Path, content: bytes, **changes: Any) -> list[tuple[str, str]]:
    path.write_bytes(content)
    changes |= {"encoding": changes.get("encoding")}
    train = dataset(path, **changes).load().train
    return list(zip(train.source, train.target, strict=True))


def frame(**options: Any) -> bytes:
    return FRAME.to_csv(**{"index": False, "header": False} | options).encode()


def excel_text() -> bytes:
    """The "Unicode text" of Excel: UTF-16, tabs, and quotation marks around cells with commas or quotation marks."""
    rows = ("\t".join(f'"{cell}"' if "," in cell else cell for cell in pair) for pair in PAIRS)
    return "".join(f"{row}\r\n" for row in rows).encode("utf-16")


READ: dict[str, tuple[str, bytes, dict[str, Any]]] = {
    "UTF-16 with a mark": ("a.txt", TABLE.encode("utf-16"), {}),
    "UTF-16 of the other order": ("a.tsv", codecs.BOM_UTF16_BE + TABLE.encode("utf-16-be"), {}),
    "UTF-16 without a mark": ("a.tsv", TABLE.encode("utf-16-le"), {"encoding": "utf-16-le"}),
    "UTF-32 with a mark": ("a.tsv", TABLE.encode("utf-32"), {}),
    "Unicode text of Excel": ("a.txt", excel_text(), {}),
    "a mark overrides the key": ("a.tsv", TABLE.encode("utf-8-sig"), {"encoding": "cp1252"}),
    "cp1252": ("a.tsv", TABLE.encode("cp1252"), {"encoding": "cp1252"}),
    "semicolons": ("a.csv", frame(sep=";"), {}),
    "semicolons and names": ("a.csv", frame(sep=";", header=True), NAMED),
    "semicolons in cp1252": ("a.csv", frame(sep=";").decode().encode("cp1252"), {"encoding": "cp1252"}),
    "tabs in a csv": ("a.csv", frame(sep="\t"), {}),
    "bars": ("a.csv", frame(sep="|"), {"delimiter": "pipe"}),
    "several characters": ("a.txt", TABLE.replace("\t", " ||| ").encode(), {"delimiter": " ||| "}),
    "all cells of a tsv quoted": ("a.tsv", frame(sep="\t", quoting=csv.QUOTE_ALL), {}),
    "an index of pandas": ("a.csv", frame(index=True, header=True), NAMED),
    "an index without names": ("a.csv", frame(index=True), {"columns": [2, 3]}),
    "an array": ("a.json", json.dumps(OBJECTS).encode(), NAMED),
    "an array of many lines": ("a.json", json.dumps(OBJECTS, indent=1).encode(), NAMED),
    "an array in UTF-16": ("a.json", json.dumps(OBJECTS, ensure_ascii=False).encode("utf-16"), NAMED),
    "an array in an object": ("a.json", json.dumps({"version": 1, "data": OBJECTS}).encode(), NAMED),
    "objects with an array": ("a.json", "\n".join(json.dumps(one | {"x": [{}]}) for one in OBJECTS).encode(), NAMED),
    "Parquet": ("a.parquet", parquet_file(OBJECTS), NAMED),
    "nested Parquet": ("a.parquet", parquet_file([{"t": one} for one in OBJECTS]), {"columns": ["t.de", "t.en"]}),
    "gz without the suffix": ("a.tsv", gzip.compress(TABLE.encode()), {}),
    "bz2": ("a.tsv.bz2", bz2.compress(TABLE.encode()), {}),
    "xz of UTF-16": ("a.txt.xz", lzma.compress(TABLE.encode("utf-16")), {}),
    "zst": ("a.tsv.zst", arrow_compressed("zstd", TABLE.encode()), {}),
    "lz4": ("a.tsv.lz4", arrow_compressed("lz4", TABLE.encode()), {}),
    "the delimiter for Excel": ("a.csv", b"sep=;\r\n" + frame(sep=";", header=True), NAMED),
    "the delimiter for Excel without names": ("a.csv", b'"sep=|"\n' + frame(sep="|"), {}),
    "joined files with marks": ("a.tsv", b"".join(f"{one}\n".encode("utf-8-sig") for one in TABLE.splitlines()), {}),
    "two parts of zst": (
        "a.tsv.zst",
        arrow_compressed("zstd", TABLE[:20].encode()) + arrow_compressed("zstd", TABLE[20:].encode()),
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "content", "changes"), READ.values(), ids=READ)
def test_files_of_every_kind_are_read(
    tmp_path: Path, name: str, content: bytes, changes: dict[str, Any]
) -> None:
    assert pairs(tmp_path / name, content, **changes) == PAIRS


def test_a_quotation_with_a_comma_in_many_lines_is_no_quoting(tmp_path: Path) -> None:
    lines = [(f"第{i}行", f"แถว{i}") for i in range(300)]
    lines[150] = ('"3,000米"', "3,000")
    lines[280:] = [('"战争"是书', "ห")] * 20
    content = "".join("\t".join(pair) + "\n" for pair in lines).encode()
    assert pairs(tmp_path / "a.tsv", content) == lines


def test_an_empty_file_and_a_folder_are_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UserError, match=r"a\.tsv: train has no pairs\.$"):
        pairs(tmp_path / "a.tsv", b"")
    assert "quotation" not in caplog.text
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="folder is a folder; "):
        dataset(tmp_path / "folder").load()


def tar(folder: Path) -> bytes:
    (folder / "inside").write_text(TABLE, "utf-8")
    with tarfile.open(folder / "x.tar.gz", "w:gz") as archive:
        archive.add(folder / "inside", "inside")
    return (folder / "x.tar.gz").read_bytes()


SCRIPTS = {
    "Hindi": "राजा सोता है।\tle roi dort\n",
    "Thai": "กษัตริย์ชราไม่นอน\tราชินีร้องเพลง\n",
    "Chinese": "国王睡觉。\t王后唱歌。\n",
    "Japanese": "王様は寝ます。\tネコは歌う。\n",
    "Korean": "왕은 잔다.\t고양이는 노래한다.\n",
    "Russian": "король спит\tкошка поёт\n",
    "Arabic": "الملك نائم\tالقطة تغني\n",
}
REFUSED: dict[str, tuple[str, bytes | Callable[[Path], bytes], dict[str, Any], str]] = {
    "cp1252": ("a.tsv", TABLE.encode("cp1252"), {}, r"line 1: byte 3 .*dataset\.encoding=cp1252"),
    "UTF-16": ("a.tsv", TABLE.encode("utf-16-le"), {}, r"dataset\.encoding=utf-16-le"),
    "UTF-16 of the other order": ("a.tsv", TABLE.encode("utf-16-be"), {}, r"dataset\.encoding=utf-16-be"),
    **{
        f"UTF-16 of {language} in {encoding}": (
            "a.tsv", (text * 20).encode(encoding), {}, rf"UTF-16 without .*dataset\.encoding={encoding}"
        )
        for language, text in SCRIPTS.items()
        for encoding in ("utf-16-le", "utf-16-be")
    },
    "half a character": ("a.tsv", TABLE.encode("utf-16")[:-1], {}, "UTF-16.*complete copy"),
    "a wrong byte": ("a.tsv", b"a\t\x81\n", {"encoding": "cp1252"}, r"line 1: byte 3 is not CP1252"),
    "an unknown encoding": ("a.tsv", b"", {"encoding": "utf-61"}, r"dataset\.encoding=utf-61 "),
    "no text encoding": ("a.tsv", b"", {"encoding": "base64"}, r"dataset\.encoding=base64 "),
    "ends of old Macs": ("a.tsv", TABLE.replace("\n", "\r").encode(), {}, "carriage returns"),
    "ends of old Macs after a mark": ("a.tsv", TABLE.replace("\n", "\r").encode("utf-8-sig"), {}, "carriage returns"),
    "names": ("a.csv", frame(header=True), {}, r"line 1 .*'de', 'en'.*dataset\.columns=\[de,en\]"),
    "names in words": ("a.tsv", ("Source text\tTarget\n" + TABLE).encode(), {}, r"dataset\.columns=\["),
    "names of pandas": ("a.csv", frame(index=True, header=True), {}, r"dataset\.columns=\[de,en\]"),
    "numbers of pandas": ("a.csv", frame(index=True), {}, r"numbers \(0, 1, 2\).*dataset\.columns=\[2,3\]"),
    "a name twice": ("a.csv", b"de,de\nx,y\n", {"columns": ["de", "de"]}, "several columns de"),
    "two delimiters": ("a.csv", b"a, b;c\nd, e;f\n", {}, r"',' and ';'.*dataset\.delimiter="),
    "other delimiters": ("a.tsv", b"a;b\nc;d\n", {}, r"line 1 has 1 columns.*dataset\.delimiter="),
    "a delimiter of objects": ("a.jsonl", b"", {"delimiter": "tab"}, r"dataset\.delimiter='tab'.*a\.jsonl has no columns"),
    "a long delimiter": ("a.csv", b"", {"delimiter": "||"}, r"dataset\.delimiter='\|\|'.*dataset\.format=tsv"),
    "a space before quotes": ("a.csv", b'"a", "b"\n', {}, "line 1: not RFC 4180 .*space"),
    "columns of JSON": ("a.json", FRAME.to_json().encode(), NAMED, "de and en are .*records"),
    "lists as columns": ("a.json", json.dumps(FRAME.to_dict("list")).encode(), NAMED, "de and en are .*records"),
    "UTF-32": ("a.tsv", TABLE.encode("utf-32-le"), {}, "UTF-32.*dataset.encoding=utf-32-le"),
    "UTF-32 of the other order": ("a.tsv", TABLE.encode("utf-32-be"), {}, "UTF-32.*dataset.encoding=utf-32-be"),
    "UTF-16 of the other order without a mark": ("a.tsv", TABLE.encode("utf-16-be"), {}, "UTF-16.*utf-16-be"),
    "ISO-2022": ("a.tsv", "a\t私は犬\n".encode("iso2022_jp"), {}, "line 1: .*dataset.encoding=iso2022_jp"),
    "no objects": ("a.json", b'[["a", "b"]]', NAMED, "element 1: not a JSON object"),
    "half of Parquet": ("a.parquet", parquet_file(OBJECTS)[:-9], NAMED, "Parquet.*complete copy"),
    "Parquet as CSV": ("a.csv", parquet_file(OBJECTS), NAMED, r"Parquet file.*\.parquet"),
    "columns of Parquet": ("a.parquet", parquet_file(OBJECTS), {}, "has no column source; it has de, en"),
    "half of zst": ("a.tsv.zst", arrow_compressed("zstd", TABLE.encode())[:-4], {}, "to its end"),
    "half of xz": ("a.tsv.xz", lzma.compress(TABLE.encode())[:-9], {}, "to its end"),
    "half of bz2": ("a.tsv.bz2", bz2.compress(TABLE.encode())[:-9], {}, "to its end"),
    "a plain file as bz2": ("a.tsv.bz2", TABLE.encode(), {}, r"\.bz2.*rename"),
    "compressed twice": ("a.tsv.gz", gzip.compress(gzip.compress(TABLE.encode())), {}, "compressed. Unpack"),
    "a workbook": ("a.csv", b"PK\x03\x04" + bytes(20), {}, "Excel.*CSV"),
    "tar": ("a.tsv.gz", tar, {}, "tar archive. Unpack"),
    "a page": ("a.tsv", b"\n <!DOCTYPE html>\n", {}, "plain text"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "content", "changes", "remedy"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_is_refused_with_a_remedy(
    tmp_path: Path,
    name: str,
    content: bytes | Callable[[Path], bytes],
    changes: dict[str, Any],
    remedy: str,
) -> None:
    made = content if isinstance(content, bytes) else content(tmp_path)
    with pytest.raises(UserError, match=f"(?s){remedy}"):
        pairs(tmp_path / name, made, **changes)


@pytest.mark.parametrize("language", SCRIPTS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_texts_of_every_script_are_not_taken_for_another_encoding(
    language: str, encoding: str, tmp_path: Path
) -> None:
    text = SCRIPTS[language] * 20
    expected = [tuple(SCRIPTS[language].strip().split("\t"))] * 20
    assert pairs(tmp_path / "a.tsv", text.encode(encoding)) == expected
    # One NUL in text of letters is not UTF-16; its line is bad, and the others are read.
    odd = text.replace("\t", "\0\t", 1).encode(encoding)
    assert pairs(tmp_path / "b.tsv", odd, on_bad_pair="drop") == expected[1:]


def test_letters_whose_bytes_are_ends_of_lines_are_read(tmp_path: Path) -> None:
    long = "മലയാളം ഭാഷ " * 30
    assert pairs(tmp_path / "a.tsv", f"{long.strip()}\tx\n".encode("utf-16")) == [(long.strip(), "x")]


def test_marks_of_joined_files_are_removed(tmp_path: Path) -> None:
    for encoding in ("utf-8-sig", "utf-16", "utf-32"):
        assert pairs(tmp_path / f"{encoding}.tsv", "a b\tc\n".encode(encoding) * 2) == [("a b", "c")] * 2


def test_a_bad_line_of_a_file_with_a_mark_has_its_number_and_can_be_dropped(tmp_path: Path) -> None:
    marked = codecs.BOM_UTF8 + TABLE.encode() + b"caf\xe9\tx\n"
    with pytest.raises(UserError, match=rf"a\.tsv line {TABLE.count(chr(10)) + 1}: byte 4 is not UTF-8"):
        pairs(tmp_path / "a.tsv", marked)
    assert pairs(tmp_path / "a.tsv", marked, on_bad_pair="drop") == PAIRS


@pytest.mark.parametrize("as_written", [False, True])
def test_a_file_in_utf_16_that_is_not_read_to_its_end_is_closed(tmp_path: Path, as_written: bool) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("a\nb\n".encode("utf-16"))
    lines = read_lines(path, Counter(), as_written=as_written)
    assert next(lines) == ("a", "")
    del lines
    gc.collect()  # an error of a generator is a warning of pytest, and fails the test


def test_a_text_with_the_letters_of_a_tar_archive_is_read(tmp_path: Path) -> None:
    line = "a" * 256 + "gustar\tx"
    assert line.index("ustar") == 257
    assert pairs(tmp_path / "a.tsv", f"{line}\n".encode()) == [tuple(line.split("\t"))]


def test_what_is_not_a_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.tsv")
    (tmp_path / "folder.tsv").mkdir()
    for name, kind in (("pipe.tsv", "pipe"), ("folder.tsv", "folder")):
        with pytest.raises(UserError, match=rf"dataset\.train={tmp_path}.*is a {kind}"):
            dataset(tmp_path / name).load()


def test_json_lines_are_read_one_by_one(tmp_path: Path) -> None:
    def lines() -> Iterator[tuple[str, str]]:
        for number in range(3):
            yield json.dumps({"a": [{"b": number}]}), ""
        raise AssertionError("read too far")

    rows = json_rows(tmp_path, lines())
    assert [next(rows)[1] for _ in range(3)] == [{"a": [{"b": number}]} for number in range(3)]


@pytest.mark.parametrize("start", ['{"a": 1', "[", "[1]", '{"a": 1\n{"a": 2}\n{"a": 3'])
def test_json_lines_whose_first_line_is_wrong_are_read_one_by_one(tmp_path: Path, start: str) -> None:
    def lines() -> Iterator[tuple[str, str]]:
        for text in (*start.splitlines(), *['{"a": 0}'] * 200):
            yield text, ""
        raise AssertionError("read too far")

    rows = json_rows(tmp_path, lines())
    location, _, wrong = next(rows)
    assert location == f"{tmp_path} line 1"
    assert "not" in wrong
    assert not next(rows)[2]


@pytest.mark.parametrize("text", ['[\n{"a": 1}\n]', '{"data": [\n{"a": 1}\n]}', '[{"a": 1},\n{"a": 2}\n]'])
def test_an_array_whose_second_line_is_an_object_is_an_array(tmp_path: Path, text: str) -> None:
    rows = [*json_rows(tmp_path, iter([(line, "") for line in text.splitlines()]))]
    assert [(row["a"], wrong) for _, row, wrong in rows] == [(n + 1, "") for n in range(len(rows))]  # type: ignore[call-overload]


def test_quotation_marks_of_a_corpus_with_tabs_are_text(tmp_path: Path) -> None:
    for row in ('"ja", "nein"\tb\n"c"\td\n', '"Ja"\t"Yes"\nnein, nein\tno\n'):
        content = row.encode()
        assert pairs(tmp_path / "a.tsv", content)[0] == tuple(row.splitlines()[0].split("\t"))
    assert pairs(tmp_path / "a.tsv", b'"a ""b"""\tc\n', format="tsv") == [('"a ""b"""', "c")]
    assert pairs(tmp_path / "a.tsv", b'"a ""b"""\tc\n') == [('a "b"', "c")]


def test_null_in_a_local_folder_of_the_hub_is_text(tmp_path: Path) -> None:
    rows = [("null", "NA"), ("nan", "None"), ("x", "N/A")]
    pandas.DataFrame(rows, columns=["de", "en"]).to_csv(tmp_path / "train.csv", index=False)
    one = dataset(tmp_path / "unused", train=None, hub=str(tmp_path), **NAMED)
    train = one.load().train
    assert list(zip(train.source, train.target, strict=True)) == rows


def test_parts_of_a_split_are_read_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "hub" / "data"
    folder.mkdir(parents=True)
    for number, row in enumerate(OBJECTS):
        (folder / f"train-{number:05}-of-00003.parquet").write_bytes(parquet_file([row]))
    one = dataset(tmp_path / "unused", train=None, hub=str(folder.parent), **NAMED)
    train = one.load().train
    assert list(zip(train.source, train.target, strict=True)) == PAIRS
    assert find_line(one, "train", "beautiful world") == f"{folder / 'train-00001-of-00003.parquet'} row 1"


def test_names_that_are_used_as_an_example_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert pairs(tmp_path / "a.csv", frame(header=True), columns=[1, 2]) == [("de", "en"), *PAIRS]
    assert "names of the columns" in caplog.text


def test_utf8_that_is_read_in_another_encoding_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert pairs(tmp_path / "a.tsv", TABLE.encode(), encoding="latin-1") != PAIRS
    assert "valid UTF-8" in caplog.text


def test_small_splits_are_reported_with_a_better_share(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("".join(f"Satz {n}\tsentence {n}\n" for n in range(400)), "utf-8")
    dataset(path, validation=None, test=None).load()
    assert "dataset.validation_share=0.13 dataset.test_share=0.13" in caplog.text
    assert "best checkpoint" in caplog.text
    caplog.clear()
    dataset(path, validation=None, test=None, validation_share=0.2, test_share=0.2).load()
    assert "share" not in caplog.text
    dataset(path, validation=None, test=None, validation_share=0.2, test_share=0.01).load()
    (message,) = caplog.messages
    assert message.startswith("test has ")
    assert "example dataset.test_share=0.13, or" in message
    assert "best checkpoint" not in message
    caplog.clear()
    path.write_text("".join(f"Satz {n}\tsentence {n}\n" for n in range(100)), "utf-8")
    dataset(path, validation=None, test=None, validation_share=0.2, test_share=0.2).load()
    assert "Give more data" in caplog.text
    assert "share" not in caplog.text


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_line_that_does_not_fit_into_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    monkeypatch.setattr(local_files, "LONGEST_LINE", 1 << 20)
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(("short\n" + "x" * (3 << 20)).encode(encoding)))
    with pytest.raises(UserError, match=r"a\.txt\.gz line 2 is longer than 1 MiB"):
        list(read_lines(path, Counter()))


def test_a_line_is_found_in_every_format(tmp_path: Path) -> None:
    for name, content, changes in (READ["Parquet"], READ["semicolons in cp1252"], READ["UTF-16 with a mark"]):
        (tmp_path / name).write_bytes(content)
        place = find_line(dataset(tmp_path / name, **changes), "train", "schöne Welt")
        assert place in (f"{tmp_path / name} line 2", f"{tmp_path / name} row 2")
