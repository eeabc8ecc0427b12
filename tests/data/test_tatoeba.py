"""Tatoeba from a file and from a server on this machine: the split, the filters, the download."""

import functools
import gzip
import hashlib
import http.client
import http.server
import io
import socket
import threading
import time
import urllib.request
import zipfile
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from seq2seq_lab.config.slots import check_slot
from seq2seq_lab.data import download
from seq2seq_lab.data.near_duplicates import near_duplicates
from seq2seq_lab.data.tatoeba import Tatoeba
from seq2seq_lab.errors import UserError
from seq2seq_lab.launching.checks import KINDS
from seq2seq_lab.runtime import connectivity

DEFAULTS = Path(__file__).parents[2] / "conf" / "dataset" / "tatoeba.yaml"
PAIRS = [(f"Sentence {n // 2}.", f"Phrase\u202f{n} !") for n in range(2000)]


def tatoeba(**changes):
    """The data set with the defaults of its YAML file, the cache's folder aside."""
    arguments = OmegaConf.to_container(OmegaConf.load(DEFAULTS)) | {"cache_dir": None} | changes
    check_slot("dataset", arguments, KINDS)
    assert arguments.pop("_target_") == f"{Tatoeba.__module__}.{Tatoeba.__name__}"
    return Tatoeba(**arguments)


def table(pairs):
    return "".join(f"{english}\t{french}\n" for english, french in pairs).encode()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "eng-fra.txt"
    path.write_bytes(table(PAIRS))
    return path


def pairs_of(split):
    return list(zip(split.source, split.target, strict=True))


def test_every_pair_lands_once_and_all_translations_of_a_sentence_on_one_side(file):
    corpus = tatoeba(path=str(file), validation_share=0.1, test_share=0.2).load()
    splits = [corpus.train, corpus.validation, corpus.tests["test"]]
    assert sorted(pair for split in splits for pair in pairs_of(split)) == sorted(PAIRS)
    sentences = [set(split.source) for split in splits]
    assert sum(map(len, sentences)) == 1000
    assert 60 <= len(sentences[1]) <= 140
    assert 150 <= len(sentences[2]) <= 250
    for split in splits:
        chosen = set(pairs_of(split))
        assert pairs_of(split) == [pair for pair in PAIRS if pair in chosen]


def test_a_pair_never_changes_sides(file):
    before = tatoeba(path=str(file)).load()
    file.write_bytes(table([(f"New {n}.", "Neuf.") for n in range(500)] + PAIRS[::-1]))
    after = tatoeba(path=str(file)).load()
    for old, new in (
        (before.train, after.train),
        (before.validation, after.validation),
        (before.tests["test"], after.tests["test"]),
    ):
        assert set(pairs_of(old)) <= set(pairs_of(new))
    # Must never change, because scores of different splits cannot be compared.
    assert before.validation.source[0] == "Sentence 82."


def test_french_to_english_swaps_the_sides_and_keeps_the_split(file):
    forward, backward = (
        tatoeba(path=str(file)).load(),
        tatoeba(path=str(file), source="fr", target="en").load(),
    )
    assert (backward.source_language, backward.target_language) == ("fr", "en")
    assert forward.validation.source == backward.validation.target
    assert forward.validation.target == backward.validation.source


def test_long_pairs_are_dropped_everywhere_and_a_limit_keeps_the_first_training_pairs(file):
    long = [("One two three four.", "Un."), ("One.", "Un deux\u00a0trois quatre.")] * 50
    file.write_bytes(table(long + PAIRS + PAIRS[:10]))
    whole = tatoeba(path=str(file)).load()
    short = tatoeba(path=str(file), max_tokens=3, limit=20).load()
    assert short.counts["pairs_over_max_tokens"] == 100
    assert short.train.source == whole.train.source[100:120]
    assert pairs_of(short.validation) == [pair for pair in pairs_of(whole.validation) if pair not in long]
    assert pairs_of(short.tests["test"]) == [
        pair for pair in pairs_of(whole.tests["test"]) if pair not in long
    ]
    assert whole.counts["pairs_over_max_tokens"] == 0
    assert whole.counts["duplicate_pairs"] == 98 + 10
    assert whole.counts["leaked_pairs"] == 0


def test_a_gzipped_file_with_a_third_column_is_read(file, tmp_path):
    packed = tmp_path / "fra.txt.gz"
    packed.write_bytes(gzip.compress(table((english, f"{french}\tCC-BY") for english, french in PAIRS)))
    assert tatoeba(path=str(packed)).load() == tatoeba(path=str(file)).load()


def test_bad_lines_are_an_error_by_default(file):
    file.write_bytes(table(PAIRS) + b"no tab\n")
    with pytest.raises(UserError, match=r"eng-fra\.txt line 2001: 1 columns instead of 2"):
        tatoeba(path=str(file)).load()
    assert tatoeba(path=str(file), on_bad_pair="drop").load().counts["dropped_pairs"] == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": "fra"}, r"dataset\.source=fra .*Did you mean 'fr'\?"),
        ({"source": "fr"}, r"dataset\.source=fr and dataset\.target=fr"),
        ({"validation_share": 0.0}, r"dataset\.validation_share=0\.0"),
        ({"validation_share": 0.5, "test_share": 0.5}, r"dataset\.test_share=0\.5"),
    ],
)
def test_wrong_arguments_are_refused_at_once(changes, message):
    with pytest.raises(UserError, match=message):
        tatoeba(**changes)


def test_a_missing_file_and_an_empty_split_are_errors(file, tmp_path):
    for path in (tmp_path, tmp_path / "eng-fra.tsv"):
        with pytest.raises(UserError, match=r"dataset\.path=.* contains eng-fra\.txt"):
            tatoeba(path=str(path)).load()
    file.write_bytes(b"Go.\tVa !\n")
    with pytest.raises(UserError, match=r"No pairs for .*dataset\.validation_share="):
        tatoeba(path=str(file)).load()


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def send_header(self, keyword, value):
        if keyword == "Content-Length":
            value = "abc" if "length.zip" in self.path else value
            value = str(int(value) + 1000) if "broken.zip" in self.path else value
        super().send_header(keyword, value)


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A folder, and the address under which a server on this machine offers it."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    folder = tmp_path / "server"
    folder.mkdir()
    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield folder, f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def pack(folder, member="data/eng-fra.txt", content=None):
    content = table(PAIRS) if content is None else content
    with zipfile.ZipFile(folder / "data.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data/other.txt", "not wanted")
        archive.writestr(member, content)
    return hashlib.sha256(content).hexdigest()


def with_field(packed, local, central, value):
    """An archive with another byte at these places of the headers of its last member."""
    changed = bytearray(packed)
    changed[packed.rindex(b"PK\3\4") + local] = value
    changed[packed.rindex(b"PK\1\2") + central] = value
    return bytes(changed)


def test_the_download_reads_one_member_and_is_kept(server, tmp_path, file):
    folder, address = server
    cache = tmp_path / "cache"
    data = tatoeba(url=f"{address}/data.zip", sha256=pack(folder), cache_dir=str(cache))
    corpus = data.load()
    assert corpus == tatoeba(path=str(file)).load()
    (kept,) = cache.iterdir()
    assert kept.read_bytes() == table(PAIRS)

    archive = folder / "data.zip"
    packed = archive.read_bytes()
    archive.unlink()
    assert data.load() == corpus, "the copy in the cache is used"
    kept.write_bytes(b"damaged")
    archive.write_bytes(packed)
    assert data.load() == corpus, "a damaged copy is fetched again"
    archive.unlink()
    assert tatoeba(url=data.url, sha256=data.sha256.upper(), cache_dir=str(cache)).load() == corpus


def test_the_path_in_the_archive_does_not_decide_the_destination(server, tmp_path):
    folder, address = server
    sha256 = pack(folder, member="../../escaped.txt")
    cache = tmp_path / "deep" / "cache"
    data = tatoeba(url=f"{address}/data.zip", member="../../escaped.txt", sha256=sha256, cache_dir=str(cache))
    assert len(data.load().train) > 0
    (escaped,) = tmp_path.rglob("*escaped.txt")
    assert escaped.parent == cache


def test_a_connection_that_is_reset_or_stalls_during_a_download_is_named(tmp_path, monkeypatch):
    class Response(io.BytesIO):
        def __init__(self, error):
            super().__init__(bytes(1000))
            self.headers, self.error = {"Content-Length": "2000"}, error

        def read(self, size):
            if block := super().read(size):
                return block
            raise self.error

    monkeypatch.setattr(download, "check_reachable", lambda url, remedy: None)
    for error in (ConnectionResetError("reset"), TimeoutError("timed out"), http.client.IncompleteRead(b"")):
        monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout, error=error: Response(error))
        with pytest.raises(
            UserError, match=r"dataset\.url=.* broke after 1,000 of 2,000 bytes \(.+\); run the command"
        ):
            tatoeba(url="http://x/data.zip", cache_dir=str(tmp_path)).load()


def test_what_is_wrong_with_a_download_is_an_error_and_leaves_nothing(server, tmp_path):
    folder, address = server
    cache = tmp_path / "cache"
    sha256 = pack(folder)
    packed = (folder / "data.zip").read_bytes()
    (folder / "cut.zip").write_bytes(packed[: len(packed) // 2])
    (folder / "flipped.zip").write_bytes(packed.replace(packed[100:110], bytes(10), 1))
    for name in ("length.zip", "broken.zip"):
        (folder / name).write_bytes(packed)
    (folder / "encrypted.zip").write_bytes(with_field(packed, 6, 8, 1))
    (folder / "method.zip").write_bytes(with_field(packed, 8, 10, 99))
    with zipfile.ZipFile(folder / "lzma.zip", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("data/eng-fra.txt", table(PAIRS))
    content = (folder / "lzma.zip").read_bytes()
    (folder / "lzma.zip").write_bytes(content[:100] + bytes(60) + content[160:])
    for changes, message in (
        ({"sha256": "0" * 64}, rf"has the SHA-256 {sha256} instead of dataset\.sha256=0000"),
        (
            {"member": "data/eng-fra.tsv"},
            r"dataset\.member=.* which contains data/other\.txt, data/eng-fra\.txt",
        ),
        ({"url": f"{address}/gone.zip"}, r"dataset\.url=.*404"),
        ({"url": f"{address}/cut.zip"}, r"dataset\.url=.*not a zip file"),
        ({"url": f"{address}/flipped.zip"}, r"dataset\.url="),
        ({"url": f"{address}/length.zip"}, r"dataset\.url=.*: Content-Length='abc' is not a number"),
        (
            {"url": f"{address}/broken.zip"},
            rf"dataset\.url=.* broke after {len(packed):,} of {len(packed) + 1000:,} bytes; run the command again",
        ),
        ({"url": f"{address}/encrypted.zip"}, r"dataset\.url=.*: data/eng-fra.txt: .*encrypted"),
        ({"url": f"{address}/method.zip"}, r"dataset\.url=.*: data/eng-fra.txt: .*compression method"),
        ({"url": f"{address}/lzma.zip"}, r"dataset\.url="),
        ({"url": "data.zip"}, r"not an http:// or https:// address.*dataset\.url=data\.zip"),
    ):
        arguments = {"url": f"{address}/data.zip", "sha256": sha256, "cache_dir": str(cache)} | changes
        with pytest.raises(UserError, match=message) as refused:
            tatoeba(**arguments).load()
        assert "dataset.path=FILE" in str(refused.value)
        assert not cache.exists() or not list(cache.iterdir())


@pytest.fixture
def closed_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_without_a_network_the_error_comes_at_once_and_names_the_option(tmp_path, monkeypatch, closed_port):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    start = time.monotonic()
    with pytest.raises(
        UserError, match=rf"No network: 127\.0\.0\.1:{closed_port} .*dataset\.url=.*\.path=FILE"
    ):
        tatoeba(url=f"http://127.0.0.1:{closed_port}/data.zip", cache_dir=str(tmp_path)).load()
    assert time.monotonic() - start < 3


def test_a_name_service_that_hangs_is_given_up(monkeypatch):
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    released = threading.Event()

    def hang(*_, **__):
        released.wait(1)
        raise TimeoutError

    monkeypatch.setattr(connectivity.socket, "create_connection", hang)
    monkeypatch.setattr(connectivity, "PROBE_SECONDS", 0.05)
    start = time.monotonic()
    with pytest.raises(UserError, match=r"no answer within 0\.05 s.*remedy"):
        download.check_reachable("https://example.invalid/", "remedy")
    assert time.monotonic() - start < 0.8
    released.set()


def test_behind_a_proxy_the_proxy_is_tried(monkeypatch, closed_port):
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{closed_port}")
    with pytest.raises(UserError, match=f"127.0.0.1:{closed_port} cannot be reached"):
        download.check_reachable("https://example.invalid/data.zip", "")


def test_the_cache_folder_follows_the_option_then_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("SEQ2SEQ_LAB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert download.cache_folder(None) == tmp_path / ".cache" / "seq2seq_lab"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert download.cache_folder(None) == tmp_path / "xdg" / "seq2seq_lab"
    monkeypatch.setenv("SEQ2SEQ_LAB_CACHE", str(tmp_path / "own"))
    assert download.cache_folder(None) == tmp_path / "own"
    assert download.cache_folder(str(tmp_path / "given")) == tmp_path / "given"


@pytest.mark.corpora
def test_the_real_file(corpora):
    path = corpora / "tatoeba" / "eng-fra.txt"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == tatoeba().sha256
    corpus = tatoeba(path=str(path)).load()
    splits = [corpus.train, corpus.validation, corpus.tests["test"]]
    assert sum(map(len, splits)) == 135_842
    assert len(set().union(*(split.source for split in splits))) == 93_549
    assert all(1_200 <= len(split) <= 1_500 for split in splits[1:])
    odd = sum("\u00a0" in french or "\u202f" in french for split in splits for french in split.target)
    assert odd == 6_337
    assert not any(corpus.counts.values())
    counts = near_duplicates(corpus.train, corpus.tests)
    assert len(corpus.tests["test"]) == 1_267
    assert counts == {
        "test/source_in_train": 35,
        "test/reference_in_train": 113,
        "test/source_within_one_word": 527,
        "test/shared_source": 650,
    }
