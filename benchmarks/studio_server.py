"""Measure the server of the studio, and send it random requests.

    python -m benchmarks.studio_server [RUN] [--requests N] [--seconds S]

Starts `python -m seq2seq_lab.studio` in another process. Prints

- the time from the start to the first answer;
- the median time of a question that needs no model, and of a question whose trace the server has kept, which is converted to
  plain data and JSON and compressed; and the time of the conversion to plain data alone;
- how often each status code answers random requests (bodies, fields, tokens, hosts); a code of 500 or more is an error;
- the same for ten clients that ask different questions at the same time;
- the memory that test sentences add.

It fails if a status is 500 or more, or if an answer takes more than a minute or, with ten clients, does not come.
"""

import argparse
import http.client
import json
import random
import re
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

REPEATS = 30
CLIENTS = 10
SENTENCES = 1000
SECONDS = 60.0  # after which an answer is missing
VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        -1,
        0,
        3,
        10**30,
        0.5,
        -1e308,
        1e308,
        "",
        "a",
        "\ud800",
        "\u202e\0",
        "ünïcode 文",
        "a " * 9000,
    ),
    *(
        [],
        [1],
        ["a"],
        [[]],
        {},
        {"a": 1},
        {"kind": "uniform", "step": 0},
        {"kind": "weights", "weights": [2]},
    ),
    *("greedy", "beam", "sampling", "own", "occlusion", "decoder", "the king sleeps."),
)
FIELDS = (
    *(
        "run",
        "other",
        "sentence",
        "search",
        "size",
        "prefix",
        "change",
        "step",
        "against",
        "method",
        "state",
        "count",
    ),
    *("sentences", "page", "unknown"),
)
BODIES = (
    b"",
    b"null",
    b"[1]",
    b"{",
    b'{"run": NaN}',
    b'{"run": 1e999}',
    b"\xff\xfe",
    b"[" * 60_000,
    b" " * 70_000,
)
QUESTIONS = (
    "runs",
    "sentences",
    "trace",
    "alternatives",
    "contrast",
    "difference",
    "export",
    "none",
    "../alive",
)


class Client:
    """One connection to the studio at an address with its token."""

    def __init__(self, address: str) -> None:
        match = re.fullmatch(r"http://([\d.]+):(\d+)/\?token=(\w+)", address)
        assert match
        self._connection = http.client.HTTPConnection(match[1], int(match[2]), timeout=SECONDS)
        self._cookie = ""
        _, _, headers = self.send("GET", f"/?token={match[3]}")
        self._cookie = headers["Set-Cookie"].partition(";")[0]

    def send(
        self, method: str, path: str, body: bytes | None = None, **changed: str
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        """Return the status, the body and the headers of an answer."""
        headers = {"Cookie": self._cookie, "Content-Type": "application/json", "Accept-Encoding": "gzip"}
        for _ in range(2):  # the server closes a connection that is idle
            try:
                self._connection.request(method, path, body, {**headers, **changed})
                reply = self._connection.getresponse()
                return reply.status, reply.read(), reply.headers
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                self._connection.close()
        return 0, b"", http.client.HTTPMessage()

    def ask(self, name: str, **fields: Any) -> int:
        """Return the status of the answer to a question."""
        return self.send("POST", f"/api/{name}", json.dumps(fields).encode())[0]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", nargs="?", default="demo")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the ten clients")
    options = parser.parse_args(arguments)
    command = [sys.executable, "-m", "seq2seq_lab.studio", options.run, "--no-open"]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            address = process.stdout.readline().removeprefix("studio: ").strip()
            client = Client(address)
            sentences = [row[0] for row in json_of(client, "sentences", run=0)["rows"]]
            first = {"run": 0, "sentence": sentences[0], "search": "beam", "size": 5}
            assert client.ask("trace", **first) == 200
            print(f"first answer after {time.perf_counter() - start:.1f} s")
            refused = median_time(lambda: client.ask("sentences", run=-1))
            print(f"a question without a model: {1000 * refused:.1f} ms")
            kept, plain = (
                median_time(lambda: client.ask("trace", **first)),
                conversion_time(options.run, first),
            )
            print(
                f"a trace that is kept: {1000 * kept:.1f} ms, {1000 * plain:.1f} ms of them for its plain data"
            )
            report("random requests", random_requests(client, options.requests, sentences))
            report("ten clients", clients(address, options.seconds, sentences))
            before = memory(process.pid)
            for sentence in sentences[:SENTENCES]:
                status, body, _ = client.send(
                    "POST", "/api/trace", json.dumps({**first, "sentence": sentence}).encode()
                )
                assert status == 200, f"{sentence}: {status} {body.decode()}"
            print(f"{len(sentences[:SENTENCES]):,} sentences add {memory(process.pid) - before:.0f} MB")
        finally:
            process.terminate()


def json_of(client: Client, name: str, **fields: Any) -> Any:
    """Return the answer to a question."""
    import gzip

    status, body, headers = client.send("POST", f"/api/{name}", json.dumps(fields).encode())
    assert status == 200, body
    return json.loads(gzip.decompress(body) if headers.get("Content-Encoding") == "gzip" else body)


def median_time(work: Callable[[], object]) -> float:
    """Return the median time in seconds of a call."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def conversion_time(name: str, question: dict[str, Any]) -> float:
    """Return the median time in seconds of converting the trace of a question to plain data."""
    import seq2seq_lab
    from seq2seq_lab.reporting.studio_page import ChosenSearch, shown

    search = ChosenSearch(question["search"], question["size"])
    traced = seq2seq_lab.load(name).trace(question["sentence"], search=search.settings)
    return median_time(lambda: shown(traced))


def random_requests(client: Client, count: int, sentences: Sequence[str]) -> Counter[int]:
    """Return how often each status answers random requests; 0 is a connection that the server closed."""
    draw, found = random.Random(1), Counter[int]()
    for _ in range(count):
        kind = draw.random()
        path = f"/api/{draw.choice(QUESTIONS)}"
        if kind < 0.1:
            found[client.send("POST", path, draw.choice(BODIES))[0]] += 1
        elif kind < 0.2:
            changed = draw.choice(
                [{"Host": "evil.example"}, {"Cookie": "a=b"}, {"Origin": "null"}, {"Host": ""}]
            )
            found[
                client.send(draw.choice(["GET", "POST", "PUT"]), draw.choice(["/", path]), b"{}", **changed)[
                    0
                ]
            ] += 1
        else:
            fields = {name: draw.choice(VALUES) for name in draw.sample(FIELDS, draw.randrange(6))}
            if kind < 0.6:
                fields |= {"run": 0, "sentence": draw.choice(sentences), "search": "greedy"}
                fields[draw.choice(FIELDS)] = draw.choice(VALUES)
            found[client.send("POST", path, json.dumps(fields).encode())[0]] += 1
    return found


def clients(address: str, seconds: float, sentences: Sequence[str]) -> Counter[int]:
    """Return how often each status answers ten clients."""
    found, end = Counter[int](), time.monotonic() + seconds
    late: list[int] = []

    def ask(number: int) -> None:
        client, draw = Client(address), random.Random(number)
        while time.monotonic() < end:
            fields = {"sentence": draw.choice(sentences), "search": draw.choice(["greedy", "beam"])}
            try:
                found[client.ask("trace", page=str(number), run=0, **fields)] += 1
            except TimeoutError:
                late.append(number)
                return

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if late or found[0]:
        raise SystemExit(
            f"ten clients: {len(late)} answers took more than {SECONDS:.0f} s, {found[0]} are missing"
        )
    return found


def report(name: str, found: Counter[int]) -> None:
    """Print statuses, and fail if one is an error of the server."""
    print(f"{name}: {', '.join(f'{count:,} × {status}' for status, count in sorted(found.items()))}")
    if max(found, default=0) >= 500:
        raise SystemExit(f"{name}: the server failed")


def memory(process: int) -> float:
    """Return the resident memory of a process in MB."""
    text = Path(f"/proc/{process}/status").read_text()
    match = re.search(r"VmRSS:\s+(\d+) kB", text)
    assert match
    return int(match[1]) / 1000


if __name__ == "__main__":
    main()
