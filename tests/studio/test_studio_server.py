"""The server of the studio: who may use it, and what it refuses."""

import importlib
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from demo_models import demo, demo_with
from studios import Client, Reply, serving

import seq2seq_lab
from seq2seq_lab.analysis.plain import plain
from seq2seq_lab.errors import UserError
from seq2seq_lab.reporting import studio_page
from seq2seq_lab.reporting.runs import read_finished
from seq2seq_lab.studio import questions, server, workers
from seq2seq_lab.studio.gate import Gate
from seq2seq_lab.studio.opened import Opened
from seq2seq_lab.studio.questions import Studio

SENTENCE = "the old king does not sleep."
GREEDY = {"run": 0, "sentence": SENTENCE, "search": "greedy"}


@pytest.fixture(scope="module")
def studio() -> Studio:
    return Studio([Opened("demo", demo())])


@pytest.fixture(scope="module")
def client(studio: Studio) -> Iterator[Client]:
    with serving(studio, "hub.example.org") as one:
        yield one


def test_nothing_is_sent_without_the_cookie(client: Client) -> None:
    for method, path in (
        ("GET", "/"),
        ("GET", "/studio.js"),
        ("GET", "/none"),
        ("POST", "/api/runs"),
        ("PUT", "/"),
    ):
        reply = client.send(method, path, Cookie="")
        assert reply.status == 403
        assert "terminal" in reply.text
    assert client.send("GET", "/", Cookie=f"{client.cookie}0").status == 403
    assert client.send("GET", "/?token=0", Cookie="").status == 403
    assert client.send("GET", "/?token=%ff%00&a=1", Cookie="").status == 403


def test_the_token_is_exchanged_for_a_strict_cookie(client: Client) -> None:
    token = client.gate.token
    reply = client.send("GET", f"/?token={token}", Cookie="")
    assert reply.status == 200
    assert "HttpOnly" in reply.headers["set-cookie"]
    assert "SameSite=Strict" in reply.headers["set-cookie"]
    assert token not in reply.text + reply.headers["set-cookie"]
    assert len(token) == len(client.gate.token) == 32
    assert client.gate.token not in reply.text + reply.headers["set-cookie"]
    assert client.send("GET", f"/?token={token}", Cookie="").status == 403  # it was used
    assert client.send("GET", f"/?token={token}").status == 200  # this browser has the cookie
    assert client.send("GET", f"/?token={client.gate.token}", Cookie="").status == 200


@pytest.mark.parametrize("other", ['prefs={"theme": "dark"}', "a=b c", "theme", "x@y=1", "schön=1"])
def test_cookies_of_other_programs_do_not_matter(client: Client, other: str) -> None:
    for cookie in (f"{other}; {client.cookie}", f"{client.cookie};{other}"):
        assert client.send("GET", "/", Cookie=cookie).status == 200
    assert client.send("GET", "/", Cookie=other).status == 403


def test_a_new_token_is_announced() -> None:
    announced: list[str] = []
    gate = Gate(80, announce=announced.append)
    headers = {"host": "localhost"}
    assert gate.reply(f"token={gate.token}", headers) is not None
    assert announced == [gate.token]


@pytest.mark.parametrize("attends", [True, False])
def test_the_states_of_a_run_are_computed_at_the_start(
    attends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = demo_with("luong", "additive") if attends else demo_with("plain", "none")
    asked: list[str] = []
    monkeypatch.setattr(type(run), "neighbors", lambda own, sentence, step, state: asked.append(state))
    monkeypatch.setattr("seq2seq_lab.api.load", lambda *_, **options: run)
    questions.open_studio(["a run"], None, index=True)
    assert asked == ["decoder", *(["context"] if attends else []), "encoder"]


def test_the_page_runs_no_inline_script_and_names_no_other_host(client: Client) -> None:
    page = client.send("GET", "/")
    assert page.status == 200
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "access-control-allow-origin" not in page.headers
    assert "<script>" not in page.text
    for name in (studio_page.STYLE, studio_page.SHARED, studio_page.SCRIPT):
        assert client.send("GET", f"/{name}").text == studio_page.file_of(name)
        assert "//" not in page.text.replace("://", "//").partition(f'="{name}"')[0][-60:]


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "127.0.0.1@evil.example", "[::1", ":", "a:b"]
)
def test_other_hosts_are_refused(client: Client, host: str) -> None:
    reply = client.send("GET", "/", Host=host)
    assert reply.status == 403
    assert "--allow-host" in reply.text


@pytest.mark.parametrize("host", ["127.0.0.1:1", "localhost:9", "LOCALHOST", "[::1]:80", "hub.example.org"])
def test_these_hosts_are_allowed(client: Client, host: str) -> None:
    assert client.send("GET", "/", Host=host).status == 200


@pytest.mark.parametrize(
    ("origin", "host", "status"),
    [
        ("http://127.0.0.1:1", "127.0.0.1:1", 200),
        ("https://hub.example.org", "127.0.0.1:1", 200),
        ("http://127.0.0.1:2", "127.0.0.1:1", 403),
        ("http://localhost:1", "127.0.0.1:1", 403),
        ("http://evil.example", "127.0.0.1:1", 403),
        ("null", "127.0.0.1:1", 403),
        ("http://[", "127.0.0.1:1", 403),
    ],
)
def test_other_origins_are_refused(client: Client, origin: str, host: str, status: int) -> None:
    assert client.send("GET", "/", Origin=origin, Host=host).status == status


def test_bodies_are_limited(client: Client) -> None:
    assert client.ask("trace", b"x" * (server.LONGEST_BODY + 1)).status == 413
    assert client.send("POST", "/api/trace", b"{}").status == 415
    assert client.send("GET", "/api/trace").status == 405
    assert client.ask("none", {}).status == 404
    assert client.send("GET", "/run.json").status == 404


BAD: list[tuple[Any, str]] = [
    (b"", "JSON"),
    (b"\xff", "JSON"),
    (b"[" * 60_000, "JSON"),
    (b"[]", "object"),
    (b'{"run": 0, "sentence": "a", "run": NaN}', "JSON"),
    (b'{"sentence": "a", "run": ' + b"9" * 5000 + b"}", "JSON"),
    (b'{"sentence": "a", "run": 1e999}', "run"),
    ({"sentence": SENTENCE}, "run"),
    ({**GREEDY, "run": -1}, "run"),
    ({**GREEDY, "run": 1}, "run"),
    ({**GREEDY, "run": True}, "run"),
    ({**GREEDY, "sentence": None}, "sentence"),
    ({**GREEDY, "sentence": ["a"]}, "sentence"),
    ({**GREEDY, "sentence": "\ud800"}, "sentence"),
    ({**GREEDY, "sentence": "a\nb"}, "sentence"),
    ({**GREEDY, "sentence": "a " * 30_000}, "sentence"),
    ({**GREEDY, "sentence": "a " * 5_000}, "sentence"),
    ({**GREEDY, "sentence": "a " * 301}, "301 tokens; the limit is 300"),
    ({**GREEDY, "sentense": "a"}, "sentense"),
    ({**GREEDY, "search": "breadth"}, "search"),
    ({**GREEDY, "search": {"a": 1}}, "search"),
    ({**GREEDY, "search": "beam", "size": 0}, "size"),
    ({**GREEDY, "search": "beam", "size": 1e308}, "size"),
    ({**GREEDY, "prefix": [-1]}, "prefix"),
    ({**GREEDY, "prefix": [10**9]}, "prefix"),
    ({**GREEDY, "prefix": {}}, "prefix"),
    ({**GREEDY, "prefix": [[1]]}, "prefix"),
    ({**GREEDY, "change": []}, "change"),
    ({**GREEDY, "change": {"kind": "none", "step": 0}}, "none"),
    ({**GREEDY, "change": {"kind": "uniform", "step": -1}}, "step"),
    ({**GREEDY, "change": {"kind": "weights", "step": 0}}, "weights"),
    ({**GREEDY, "change": {"kind": "weights", "step": 0, "weights": [1e308]}}, "weights"),
    ({**GREEDY, "change": {"kind": "weights", "step": 0, "weights": [0.5, 0.5]}}, "weights"),
    ({**GREEDY, "page": 1}, "page"),
]


@pytest.mark.parametrize("question", ["difference", "export", "neighbors", "alternatives", "contrast"])
def test_every_question_limits_the_tokens_of_a_sentence(client: Client, question: str) -> None:
    sentence = "a " * 301
    own: dict[str, Any] = {"difference": {"other": 0}, "contrast": {"against": 5, "method": "attention"}}
    body = {**GREEDY, "sentence": sentence, "step": 0, **own.get(question, {})}
    if question in ("difference", "export"):
        del body["step"]
    if question == "export":
        body = {"run": 0, "search": "greedy", "sentences": [sentence]}
    reply = client.ask(question, body)
    assert (reply.status, "the limit is 300" in reply.text) == (422, True)


@pytest.mark.parametrize(("body", "named"), BAD, ids=range(len(BAD)))
def test_a_bad_request_names_the_field(client: Client, body: Any, named: str) -> None:
    reply = client.ask("trace", body)
    assert 400 <= reply.status < 500
    assert named in reply.text
    assert "Traceback" not in reply.text


def test_a_run_computes_one_answer_at_a_time_and_refuses_when_its_queue_is_full(
    client: Client, studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, begun = threading.Event(), threading.Event()

    def call(check: workers.Check) -> str:
        begun.set()
        assert free.wait(20)
        return "done"

    monkeypatch.setitem(questions.QUESTIONS, "slow", lambda studio, fields: ((0,), call))
    replies: list[int] = []
    ask = lambda page: replies.append(client.ask("slow", {"page": str(page)}).status)  # noqa: E731
    threads = [threading.Thread(target=ask, args=(0,))]
    threads[0].start()
    assert begun.wait(20)
    threads += [threading.Thread(target=ask, args=(page,)) for page in range(1, workers.QUEUE + 1)]
    for thread in threads[1:]:
        thread.start()
    while len(studio.runs[0].worker) < workers.QUEUE:
        threading.Event().wait(0.01)
    full = client.ask("slow", {"page": "other"})
    assert full.status == 429
    assert full.headers["retry-after"] == "1"
    assert client.ask("sentences", {"run": 0}).status == 200  # needs no model
    free.set()
    for thread in threads:
        thread.join()
    assert replies == [200] * (workers.QUEUE + 1)


def test_a_newer_question_of_a_page_ends_the_older_one(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()

    def call(check: workers.Check) -> str:
        begun.set()
        while True:  # the search
            check()
            threading.Event().wait(0.01)

    monkeypatch.setitem(questions.QUESTIONS, "trace", lambda studio, fields: ((0,), call))
    replies: list[Reply] = []
    thread = threading.Thread(target=lambda: replies.append(client.ask("trace", {"page": "a"})))
    thread.start()
    assert begun.wait(20)
    monkeypatch.setitem(questions.QUESTIONS, "trace", lambda studio, fields: ((0,), lambda check: "new"))
    assert client.ask("trace", {"page": "a"}).text == "new"
    thread.join()
    assert [(reply.status, reply.text) for reply in replies] == [(204, "")]


def test_a_worker_continues_after_a_request_that_nobody_waits_for() -> None:
    free, begun = threading.Event(), threading.Event()
    worker = workers.Worker("test")

    def call(check: workers.Check) -> str:
        begun.set()
        assert free.wait(20)
        return "done"

    running, waiting = (worker.submit((page, ""), call, []) for page in "ab")
    assert begun.wait(20)
    assert not running.cancel()
    assert waiting.cancel()
    free.set()
    assert worker.submit(("b", ""), lambda check: "new", []).result(20) == "new"


def test_an_error_of_the_program_is_logged_and_not_shown(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def call(check: workers.Check) -> str:
        raise KeyError("a secret")

    monkeypatch.setitem(questions.QUESTIONS, "broken", lambda studio, fields: ((0,), call))
    reply = client.ask("broken", {})
    assert reply.status == 500
    assert "secret" not in reply.text
    assert "a secret" in caplog.text


def answer(client: Client, name: str, **body: Any) -> Any:
    reply = client.ask(name, body)
    assert reply.status == 200, reply.text
    return json.loads(reply.text)


def as_sent(value: Any) -> Any:
    return json.loads(json.dumps(value))


def test_the_answers_are_those_of_the_methods(client: Client) -> None:
    run, beam = demo(), {"search": "beam", "size": 3}
    search = ["search=beam", "search.size=3", "search.nbest=3"]
    body = {"run": 0, "sentence": SENTENCE, **beam}
    traced = run.trace(SENTENCE, search=search)
    found = answer(client, "trace", **body)
    assert found == as_sent(studio_page.shown(traced))
    assert found["outputs"][0] == as_sent(plain(traced.best))
    assert [one["log_probs"] for one in found["outputs"]] == [one.log_probs for one in traced.outputs]

    prefix = [traced.best.tokens[0].id, "petite"]
    forced = run.trace(SENTENCE, prefix, search=search)
    assert answer(client, "trace", **body, prefix=prefix) == as_sent(studio_page.shown(forced))

    change = {"kind": "word=1", "step": 2, "scope": "from"}
    changed = run.trace(SENTENCE, change=change, search=search)
    assert answer(client, "trace", **body, change=change) == as_sent(studio_page.shown(changed))

    found = answer(client, "alternatives", **body, step=2)
    assert found == as_sent([plain(one) for one in run.alternatives(traced, 2)])

    against = traced.steps[2].top[1].id
    given = {"step": 2, "against": against, "method": "occlusion"}
    explained = run.attribute(SENTENCE, traced.best.text, ["occlusion"], against).as_json()
    found = answer(client, "contrast", **body, **given)
    assert found == as_sent({"words": explained["words"], "scores": explained["scores"]["occlusion"][2]})


def test_a_contrast_of_a_language_model_is_of_the_word_after_the_beginning(tmp_path: Path) -> None:
    seq2seq_lab.train(
        [
            *("task=language_model", "tokenizer=whitespace", "logger=none", "trainer.device=cpu"),
            *("dataset.train=20", "dataset.validation=4", "dataset.test=4"),
            *("trainer.max_epochs=1", "task.samples=0"),
        ],
        tmp_path / "run",
    )
    run = seq2seq_lab.load(tmp_path / "run")
    sentence = "le roi"
    traced = run.trace(sentence, search=["search=greedy"])
    against = traced.steps[0].top[1].id
    explained = run.attribute("", traced.best.text, ["occlusion"], against).as_json()
    assert len(explained["scores"]["occlusion"]) == 2 + len(traced.best.tokens)
    assert not Opened("run", run).examples["rows"]  # their inputs would be the ungrammatical sentences
    with serving(Studio([Opened("run", run)])) as own:
        body = {"run": 0, "sentence": sentence, "search": "greedy", "size": 1, "step": 0, "against": against}
        found = answer(own, "contrast", **body, method="occlusion")
    assert found == as_sent({"words": explained["words"], "scores": explained["scores"]["occlusion"][2]})


@pytest.mark.parametrize(
    ("question", "fields"),
    [("contrast", {"against": 5, "method": "occlusion"}), ("neighbors", {"state": "decoder", "count": 1})],
)
def test_what_ignores_a_change_of_attention_refuses_it(
    client: Client, question: str, fields: dict[str, Any]
) -> None:
    body = {"run": 0, "sentence": SENTENCE, "search": "greedy", "size": 1, "step": 0, **fields}
    reply = client.ask(question, {**body, "change": {"kind": "uniform", "step": 2, "scope": "from"}})
    assert reply.status == 422
    assert "Undo the change first." in reply.text


@pytest.mark.parametrize(
    ("task", "shown"),
    [
        *((task, True) for task in ("translation", "captions", "classification", "language_model")),
        *((task, False) for task in ("tagging", "span", "masked_language_model")),
    ],
)
def test_runs_without_anything_to_show_are_refused(
    task: str, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module(f"seq2seq_lab.tasks.{task}.loaded")
    (kind,) = (one for name, one in vars(module).items() if name.startswith("Loaded") and name != "Loaded")
    run = object.__new__(kind)
    object.__setattr__(run, "task", None)
    monkeypatch.setattr("seq2seq_lab.api.load", lambda *_, **options: run)
    if shown:
        assert questions.open_studio(["a run"], None, index=False).runs[0].run is run
        return
    with pytest.raises(UserError, match="the studio has nothing to show"):
        questions.open_studio(["a run"], None, index=False)


def test_a_contrast_of_other_tokens_than_those_of_the_text_is_refused(client: Client) -> None:
    run = demo()
    traced = run.trace(SENTENCE, search=["search=greedy"])
    joined = run.tokenizers.target.encode(["roi."])[0][-1]  # at the beginning of a text, "." is another token
    body = {"run": 0, "sentence": SENTENCE, "search": "greedy", "size": 1, "prefix": [joined]}
    fields = {"step": 0, "against": traced.steps[0].token, "method": "occlusion"}
    reply = client.ask("contrast", {**body, **fields})
    assert (reply.status, "other tokens than this output" in reply.text) == (422, True)


def test_the_gold_alignment_is_the_recorded_one(client: Client) -> None:
    first, *_ = (row for row in read_finished(demo().folder, for_page=True).heatmaps if row.get("links"))
    found = answer(client, "gold", run=0, sentence=first["title"])
    assert found == as_sent({"tokens": first["rows"], "links": first["links"]})
    assert [token.text for token in demo().trace(first["title"]).best.tokens] == found["tokens"]
    assert answer(client, "gold", run=0, sentence=SENTENCE) is None


def test_the_neighbors_are_those_of_the_method(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tests/analysis/test_neighbors.py` tests the method."""
    calls: list[tuple[Any, ...]] = []

    class Found:
        def as_json(self) -> list[str]:
            return ["found"]

    def method(run: Any, sentence: str, step: int, state: str, count: int, **options: Any) -> Found:
        calls.append((sentence, step, state, count, options["traced"].best.text))
        return Found()

    monkeypatch.setattr(type(demo()), "neighbors", method)
    assert answer(client, "neighbors", **GREEDY, step=2, state="context", count=3) == ["found"]
    assert calls == [(SENTENCE, 2, "context", 3, demo().trace(SENTENCE).best.text)]


def test_the_difference_is_that_of_the_method(client: Client, studio: Studio) -> None:
    runs = demo(), demo_with("bahdanau", "additive")
    with serving(Studio([studio.runs[0], Opened("other", runs[1])])) as both:
        found = answer(both, "difference", run=0, other=1, sentence=SENTENCE, search="greedy")
        expected = seq2seq_lab.difference(*runs, SENTENCE, search=["search=greedy"]).as_json()
        assert found == as_sent({**expected, **{name: found[name] for name in ("a", "b")}})
        assert found["b"]["text"] == expected["b"]["outputs"][0]["text"]
        page = both.ask("export", {"run": 0, "other": 1, "sentences": [SENTENCE], "search": "greedy"})
        assert page.status == 200
        assert "saved-answers" in page.text
        page = both.ask("export", {"run": 1, "other": None, "sentences": [SENTENCE], "search": "greedy"})
        assert page.status == 200


@pytest.mark.parametrize("question", ["difference", "export"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_runs_of_different_tasks_are_refused(studio: Studio, question: str, order: tuple[int, int]) -> None:
    """The tasks are compared first: the other run may be unable to read the sentence."""
    captions: Any = SimpleNamespace(reads="files", folder=Path("a_run"), task_name="captioning")
    body = {"run": order[0], "other": order[1], "search": "greedy"}
    asked = {"sentences": [SENTENCE]} if question == "export" else {"sentence": SENTENCE}
    with serving(Studio([studio.runs[0], Opened("captions", captions)])) as both:
        reply = both.ask(question, {**body, **asked})
    assert reply.status == 422
    assert "a_run" in reply.text
    assert {"captioning", "translation"} <= {*re.findall(r"\w+", reply.text)}


def test_a_search_ends_between_two_steps() -> None:
    calls: list[int] = []

    def check() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise workers.Superseded

    with pytest.raises(workers.Superseded):
        demo().trace(SENTENCE, check=check)
    assert len(calls) == 3
    assert demo().trace(SENTENCE, check=None).best.tokens
