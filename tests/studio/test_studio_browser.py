"""The page of the studio in a browser: every view by mouse and by keyboard, in a wide and a narrow window."""

import itertools
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from demo_models import demo, demo_with
from extras import needs
from studios import Client, serving

from seq2seq_lab.reporting.studio_page import recorded, recorded_gold
from seq2seq_lab.studio.opened import Opened
from seq2seq_lab.studio.questions import QUESTIONS, Studio, trace

pytestmark = [pytest.mark.slow, pytest.mark.browser, needs("playwright", "dev")]
SENTENCE = "the old king does not sleep."
WIDE, NARROW = (1280, "light"), (400, "dark")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    runs = [Opened("demo", demo()), Opened("random", demo_with("bahdanau", "additive"))]
    with serving(Studio(runs)) as one:
        yield one


@pytest.fixture(scope="module")
def chromium(browser: str) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(params=[WIDE, NARROW], ids=["wide", "narrow"])
def page(request: pytest.FixtureRequest, chromium: Any, client: Client) -> Iterator[Any]:
    """An open page. It fails if the browser reports an error, or if the page is wider than the window."""
    width, scheme = request.param
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    problems: list[str] = []
    page = context.new_page()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: message.type == "error" and problems.append(message.text))
    page.on("request", lambda sent: client_only(sent.url, client) or problems.append(sent.url))
    page.goto(f"http://127.0.0.1:{client.port}/?token={client.gate.token}")
    page.wait_for_selector("#words svg")
    assert "token" not in page.url
    ask(page, SENTENCE)
    yield page
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert problems == []
    context.close()


def client_only(url: str, client: Client) -> bool:
    return url.startswith((f"http://127.0.0.1:{client.port}/", "data:", "blob:"))


def ask(page: Any, sentence: str) -> None:
    page.fill("#sentence", sentence)
    page.press("#sentence", "Enter")
    settled(page)


def settled(page: Any) -> None:
    page.wait_for_selector("body:not([aria-busy])", state="attached")


def output(page: Any) -> str:
    return str(page.inner_text("#summary bdi"))


def test_by_mouse(page: Any) -> None:
    first = output(page)
    assert first == demo().trace(SENTENCE, search=["search=beam", "search.size=5"]).outputs[0].text
    numbers = page.inner_text("#summary .score")

    # Force another word, and take it back.
    page.click("#words g[aria-label^='roi,']")
    page.click("table.bars tbody tr:nth-child(2) button")
    settled(page)
    forced = output(page)
    assert forced != first
    assert "Forced" in page.inner_text("#versions")
    page.click("#undo")
    settled(page)
    assert (output(page), page.inner_text("#summary .score")) == (first, numbers)
    page.click("#redo")
    settled(page)
    assert output(page) == forced
    page.click("#history li:nth-child(2) button")
    settled(page)
    assert output(page) == first

    # Force a typed word, and a box of the tree.
    page.fill("#panel input", "reine")
    page.click("#panel form button")
    settled(page)
    assert "reine" in output(page)
    page.click("#undo")
    settled(page)
    page.locator("#tree g.node.kept").nth(2).click()
    settled(page)
    assert "Forced" in page.inner_text("#versions")
    page.click("#undo")
    settled(page)

    # Move attention to a word, and in the list of weights.
    page.click("#words g[aria-label='not']")
    settled(page)
    assert "Δ" in page.inner_text("#versions")
    page.click("#undo")
    settled(page)
    page.get_by_role("tab", name="Move attention").click()
    page.select_option("#panel select >> nth=0", "all")
    page.click("#panel button:has-text('apply')")
    settled(page)
    assert output(page) != first
    page.click("#undo")
    settled(page)

    # Two words at one step, the other run, and a test sentence.
    page.get_by_role("tab", name="Why this word?").click()
    page.wait_for_selector("#panel .shade")
    page.select_option("#other", "1")
    settled(page)
    page.wait_for_selector("#difference table")
    page.click("#examples summary")
    page.click("#picker tbody tr:nth-child(3) button")
    settled(page)
    assert page.input_value("#sentence") == page.inner_text("#picker tbody tr:nth-child(3) button")

    # The sentences of a pair of runs have a column more than those of one run, also after undo.
    last = f"#picker thead th:nth-child({page.locator('#picker thead th').count()})"
    page.select_option("#other", "")
    page.wait_for_selector(last, state="detached")
    page.click("#undo")
    page.wait_for_selector(last, state="attached")


def test_a_typed_sentence_is_kept_when_a_setting_changes(page: Any) -> None:
    page.fill("#sentence", "where is the dog?")
    page.select_option("#search", "greedy")
    settled(page)
    assert page.input_value("#sentence") == "where is the dog?"
    assert output(page) == demo().trace("where is the dog?", search=["search=greedy"]).outputs[0].text


def test_a_page_without_a_server_is_saved(page: Any) -> None:
    page.click("#export summary")
    with page.expect_download() as download:
        page.click("#export button:has-text('save as one page')")
    assert download.value.suggested_filename == "studio.html"


def test_the_gold_alignment_of_a_recorded_output_is_drawn(page: Any) -> None:
    assert page.query_selector_all("#words .gold") == []
    ask(page, next(iter(recorded_gold(recorded(demo().folder)))))
    assert len(page.query_selector_all("#words .gold")) >= 5
    page.click("#map summary")
    assert "gold alignment" in page.inner_text("#map table")


def test_by_keyboard(page: Any) -> None:
    first = output(page)

    def press(*keys: str) -> None:
        for key in keys:
            page.keyboard.press(key)
        settled(page)

    def focus(name: str) -> None:
        """Press Tab until an element has the focus."""
        for _ in range(60):
            page.keyboard.press("Tab")
            label = page.evaluate(
                "document.activeElement.dataset.name ?? document.activeElement.ariaLabel ?? document.activeElement.id"
            )
            if label.startswith(name):
                return
        raise AssertionError(f"Tab does not reach {name}")

    focus("output")
    press("ArrowRight", "ArrowRight", "Enter")
    assert page.inner_text("#step-head").startswith("Step 3 ")
    assert page.evaluate("document.activeElement.dataset.name") == "output 2"
    focus("node")
    press("ArrowRight", "ArrowDown")
    assert "pruned" in page.inner_text("#tree-note") or "rank" in page.inner_text("#tree-note")
    focus("map")
    press("ArrowDown", "ArrowRight", "Enter")
    focus("next step")
    press("Enter")
    focus("tab-next")
    focus("next")
    press("ArrowDown", "Enter")
    assert "Forced" in page.inner_text("#versions")
    press("Control+z")
    assert output(page) == first
    focus("a word to force")
    page.keyboard.type("reine")
    press("Enter")
    assert "reine" in output(page)
    press("Control+z")
    assert output(page) == first
    page.get_by_role("tab", name="Move attention").click()
    page.focus("#panel input[type=range]")
    press("End")
    assert "Δ" in page.inner_text("#versions")
    press("Control+z")
    assert "Δ" not in page.inner_text("#versions")


@pytest.mark.parametrize("page", [WIDE], indirect=True)
@pytest.mark.parametrize("newer", ["where is the dog?", SENTENCE], ids=["asked", "known"])
def test_the_newest_sentence_is_shown(page: Any, monkeypatch: pytest.MonkeyPatch, newer: str) -> None:
    """The server ends an older question when it gets a newer one. The page does not show an answer to an older question."""
    begun, go_on = threading.Event(), threading.Event()
    expected = demo().trace(newer).outputs[0].text

    def slow(studio: Studio, fields: Any) -> Any:
        runs, call = trace(studio, fields)

        def waiting(check: Any) -> Any:
            begun.set()
            while not go_on.wait(0.01):
                check()
            return call(check)

        return runs, waiting

    with monkeypatch.context() as patch, page.expect_response("**/api/trace") as older:
        patch.setitem(QUESTIONS, "trace", slow)
        page.fill("#sentence", "the young queen sees the dog.")
        page.press("#sentence", "Enter")
        assert begun.wait(20)
        patch.undo()
        ask(page, newer)
        assert output(page) == expected
        go_on.set()
    older.value.finished()
    settled(page)
    assert older.value.status == (200 if newer == SENTENCE else 204)
    assert (page.input_value("#sentence"), output(page)) == (newer, expected)


@pytest.mark.parametrize("page", [WIDE], indirect=True)
def test_the_newest_question_is_sent_again_if_an_older_one_came_later(page: Any) -> None:
    sent = []

    def answer(route: Any) -> None:
        sent.append(route.request.url)
        if len(sent) == 1:
            route.fulfill(status=204)
        else:
            route.continue_()

    page.route("**/api/trace", answer)
    ask(page, "where is the dog?")
    page.unroute("**/api/trace")
    assert len(sent) == 2
    assert output(page) == demo().trace("where is the dog?").outputs[0].text


def test_the_address_has_the_state_without_the_token(page: Any, client: Client) -> None:
    page.click("#words g[aria-label^='roi,']")
    page.click("table.bars tbody tr:nth-child(2) button")
    settled(page)
    forced, address = output(page), page.url
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector("#words svg")
    assert output(page) == forced
    assert client.gate.token not in address

    # A part of the address only.
    page.goto("about:blank")
    page.goto(address[: address.index("sentence=") + len("sentence=") + 6])
    page.wait_for_selector("#words svg")
    settled(page)
    assert "not complete" in page.inner_text("#problem")
    ask(page, SENTENCE)
    assert not page.is_visible("#problem")
    shown = output(page)
    page.goto(address.partition("sentence=")[0] + "sentence=%22the")  # the same document
    page.wait_for_selector("#problem:has-text('not complete')")
    assert output(page) == shown


def test_the_link_to_the_output_keeps_the_version(page: Any) -> None:
    page.click("#words g[aria-label^='roi,']")
    page.click("table.bars tbody tr:nth-child(2) button")
    settled(page)
    forced, versions, address = output(page), page.locator("#history li").count(), page.url
    page.evaluate("document.querySelector('#skip').click()")
    settled(page)
    assert (output(page), page.locator("#history li").count(), page.url) == (forced, versions, address)


@pytest.mark.parametrize("page", [WIDE], indirect=True)
def test_back_and_forward_of_the_browser_show_the_versions(page: Any) -> None:
    ask(page, "where is the dog?")
    page.locator("#tree g.node.kept").nth(2).click()
    settled(page)
    shown = page.inner_text("#history")
    for name, sentence in (
        ("back", "where is the dog?"),
        ("back", SENTENCE),
        ("forward", "where is the dog?"),
    ):
        page.evaluate(f"history.{name}()")
        page.wait_for_function("text => document.querySelector('#sentence').value === text", arg=sentence)
        page.wait_for_selector(f"#history li:has-text('{sentence}') [aria-current]")
        settled(page)
    assert page.inner_text("#history") == shown
    assert "forced “" in shown


@pytest.mark.parametrize("page", [WIDE], indirect=True)
def test_a_wrong_address_shows_the_first_sentence_and_says_so(page: Any, client: Client) -> None:
    for wrong in ("run=7", "tab=attentio", "step=0&prefi", "sentence=null", "step=x"):
        page.goto("about:blank")
        page.goto(f"http://127.0.0.1:{client.port}/#{wrong}")
        page.wait_for_selector("#words svg")
        settled(page)
        assert "not complete" in page.inner_text("#problem")
        assert page.input_value("#sentence")


@pytest.mark.parametrize("page", [WIDE], indirect=True)
def test_an_empty_size_changes_nothing(page: Any) -> None:
    numbers = page.inner_text("#summary .score")
    page.fill("#size", "")
    page.press("#size", "Tab")
    settled(page)
    assert (page.input_value("#size"), page.inner_text("#summary .score")) == ("5", numbers)
    assert page.inner_text("#history li:last-child").startswith("size 5")


def test_an_address_pasted_into_the_open_page_is_shown(page: Any) -> None:
    page.click("#words g[aria-label^='roi,']")
    page.click("table.bars tbody tr:nth-child(2) button")
    settled(page)
    forced, address = output(page), page.url
    page.click("#undo")
    settled(page)
    assert output(page) != forced
    page.goto(address)  # the same document: only its fragment changes
    page.wait_for_function("text => document.querySelector('#summary bdi').innerText === text", arg=forced)


@pytest.mark.parametrize("page", [WIDE], indirect=True)
def test_a_cell_of_the_chosen_row_is_dragged(page: Any) -> None:
    page.select_option("#map select", "tokens")
    canvas = page.locator("#map canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    for across, down in itertools.product((0.3, 0.4, 0.5), range(10, int(box["height"]), 10)):
        x, y = box["x"] + across * box["width"], box["y"] + down
        page.mouse.move(x, y)
        if page.inner_text("#map .values").startswith("1: "):
            break
    page.mouse.down()
    page.mouse.move(x + 60, y, steps=5)
    page.mouse.up()
    settled(page)
    assert page.inner_text("#history li:last-child").startswith("changed attention: weights at step 1")


@pytest.mark.parametrize("page", [WIDE], indirect=True)
def test_pointing_at_a_word_marks_it_in_the_heatmap(page: Any) -> None:
    canvas, pixels = page.locator("#map canvas"), "canvas => canvas.toDataURL()"
    before = canvas.evaluate(pixels)
    for word in ("roi,", "king"):
        page.hover(f"#words g[aria-label^='{word}']")
        assert canvas.evaluate(pixels) != before
        page.hover("h2 >> nth=0")
        assert canvas.evaluate(pixels) == before


@pytest.mark.parametrize("page", [WIDE], indirect=True)
def test_a_run_that_refuses_the_sentence_shows_a_test_sentence(page: Any) -> None:
    other = "where is the dog?"

    def refuse(route: Any) -> None:
        body = json.loads(route.request.post_data)
        if (body["run"], body["sentence"]) == (0, other):
            route.fulfill(status=202, body="Choose another.")
        else:
            route.continue_()

    page.route("**/api/trace", refuse)
    page.select_option("#run", "1")
    page.wait_for_selector("#facts:has-text('random')")
    ask(page, other)
    page.select_option("#run", "0")
    page.wait_for_selector("#facts:has-text('demo')")
    assert page.input_value("#run") == "0"
    assert page.input_value("#sentence") not in ("", other)
    assert not page.is_visible("#problem")


@pytest.mark.parametrize("page", [WIDE], indirect=True)
def test_a_run_of_images_has_no_command(page: Any) -> None:
    def images(route: Any) -> None:
        text, image = route.fetch().json()
        route.fulfill(json=[text, {**image, "reads": "Image"}])

    page.route("**/api/runs", images)
    page.reload()
    page.wait_for_selector("#facts:has-text('demo')")
    command = page.get_by_role("button", name="copy as command")
    assert command.is_visible()
    page.select_option("#run", "1")
    page.wait_for_selector("#facts:has-text('random')")
    assert not command.is_visible()


@pytest.mark.parametrize("page", [WIDE], indirect=True)
def test_unknown_white_space_is_seen(page: Any) -> None:
    def unknown(route: Any) -> None:
        answer = route.fetch().json()
        answer["source"]["unknown_words"] = ["zebra", "\t", " "]
        route.fulfill(json=answer)

    page.route("**/api/trace", unknown)
    ask(page, "where is the dog?")
    assert r"Not in the vocabulary: “zebra”, “\t”, “ ”." in page.inner_text("#versions")


@pytest.mark.parametrize("page", [WIDE], indirect=True)
def test_a_saved_page_opens_from_a_file(page: Any, tmp_path: Any) -> None:
    spaced = "where  is the dog?"  # an option without a value has its white space collapsed
    demo().show([SENTENCE, spaced]).save(tmp_path / "saved.html")
    first = output(page)
    saved = page.context.new_page()
    saved.goto((tmp_path / "saved.html").as_uri())
    saved.wait_for_selector("#words svg")
    assert output(saved) == first
    saved.select_option("#saved", index=1)
    settled(saved)
    assert output(saved) != first
    assert saved.input_value("#saved") == spaced
    assert not saved.is_visible("#problem")
    assert not saved.is_visible("#undo >> xpath=ancestor::main")
    saved.close()


def test_the_page_continues_when_the_server_is_back(chromium: Any) -> None:
    studio = Studio([Opened("demo", demo())])
    with serving(studio) as one:
        page = chromium.new_context().new_page()
        page.goto(f"http://127.0.0.1:{one.port}/?token={one.gate.token}")
        page.wait_for_selector("#words svg")
    page.wait_for_selector("#down", timeout=3000)
    assert "--port" in page.inner_text("#down")
    with serving(studio, port=one.port) as again:
        page.wait_for_selector("#down:has-text('started again')")
        opened = page.context.new_page()
        opened.goto(f"http://127.0.0.1:{again.port}/?token={again.gate.token}")
        page.wait_for_selector("#down", state="hidden")
        ask(page, SENTENCE)
        assert page.input_value("#sentence") == SENTENCE
        assert not page.is_visible("#problem")
    page.context.close()
