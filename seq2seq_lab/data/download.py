"""Downloads: the cache folder, a quick test of the network, and one file of an archive."""

import http.client
import logging
import os
import shutil
import tempfile
import urllib.request
import zipfile
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from seq2seq_lab import files
from seq2seq_lab.data.local_files import UNPACKING_ERRORS
from seq2seq_lab.data.progress import progress
from seq2seq_lab.errors import UserError
from seq2seq_lab.runtime.connectivity import find_connection_problem

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 10.0


def cache_folder(cache_dir: str | None) -> Path:
    """Return the folder of downloads and other cached data.

    It is `cache_dir`. If that is None, it is `$SEQ2SEQ_LAB_CACHE` or `$XDG_CACHE_HOME/seq2seq_lab`, the first whose variable
    is set, and otherwise `~/.cache/seq2seq_lab`.
    """
    if cache_dir is not None:
        return Path(cache_dir).expanduser()
    if own := os.environ.get("SEQ2SEQ_LAB_CACHE"):
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "seq2seq_lab"


def check_reachable(url: str, remedy: str) -> None:
    """Raise `UserError` with `remedy` if the server of `url`, or its proxy, accepts no connection.

    This takes a few seconds at most, less than the time-outs of the clients that fetch the data.
    """
    server = urlsplit(url)
    if server.scheme not in ("http", "https") or not server.hostname:
        raise UserError(f"{url} is not an http:// or https:// address. {remedy}")
    problem = find_connection_problem(url)
    if problem is not None:
        raise UserError(f"No network: {problem}. {remedy}")


def fetch_member(url: str, member: str, sha256: str, folder: Path, remedy: str) -> Path:
    """Return a local copy of one file of the zip archive at `url`, downloaded once into `folder`.

    The name of the copy contains `sha256`, in lower case, which is checked each time. The copy appears only when it is
    complete. Raises `UserError` with `remedy` if the download fails, or the archive has no such member, or its hash differs.
    """
    sha256 = sha256.lower()
    destination = folder / f"{sha256[:16]}-{PurePosixPath(member).name}"
    if destination.is_file():
        if files.sha256(destination) == sha256:
            return destination
        logger.warning("%s has changed since it was downloaded; it is downloaded again", destination)
    check_reachable(url, f"dataset.url={url} has to be downloaded. {remedy}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as temporary:
            archive, copy = Path(temporary, "archive"), Path(temporary, "member")
            _download(url, archive)
            with zipfile.ZipFile(archive) as opened:
                if member not in opened.namelist():
                    names = ", ".join(opened.namelist()[:12])
                    raise UserError(
                        f"dataset.member={member} is not in dataset.url={url}, which contains {names}. {remedy}"
                    )
                _unpack(opened, member, copy)
            if (actual := files.sha256(copy)) != sha256:
                raise UserError(
                    f"{member} in dataset.url={url} has the SHA-256 {actual} instead of dataset.sha256={sha256}. {remedy}"
                )
            copy.replace(destination)
    except (OSError, http.client.HTTPException, *UNPACKING_ERRORS) as error:
        raise UserError(f"dataset.url={url} cannot be fetched into {folder}: {error}. {remedy}") from error
    return destination


def _unpack(archive: zipfile.ZipFile, member: str, destination: Path) -> None:
    """Write a file of an archive to a path. Raises `BadZipFile` if it is encrypted, or compressed with another method."""
    try:
        with archive.open(member) as packed, destination.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked)
    except RuntimeError as error:
        raise zipfile.BadZipFile(f"{member}: {error}") from error


def _download(url: str, destination: Path) -> None:
    """Write the response of a server to a path. Raises `HTTPException` if the response is not complete."""
    with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response, destination.open("wb") as file:
        size = response.headers["Content-Length"]
        try:
            total = int(size) if size else None
        except ValueError as error:
            raise http.client.HTTPException(f"Content-Length={size!r} is not a number") from error

        def broken(reason: object = "") -> http.client.HTTPException:
            of = "" if total is None else f" of {total:,}"
            why = f" ({reason})" if reason else ""
            return http.client.HTTPException(
                f"the connection broke after {file.tell():,}{of} bytes{why}; run the command again"
            )

        def read() -> bytes:
            try:
                return bytes(response.read(1 << 16))
            except (OSError, http.client.HTTPException) as error:
                raise broken(error) from error

        for block in progress(iter(read, b""), f"Downloading {url}", total, file.tell):
            file.write(block)
        if total is not None and file.tell() < total:
            raise broken()
