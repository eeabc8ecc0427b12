"""Output to the terminal and to run.log."""

import io
import logging
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType

from seq2seq_lab.runtime import console, shades
from seq2seq_lab.runtime.tables import parameter_table, records_table, sectioned_table


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("seq2seq_lab.runtime.console.time.monotonic", clock)
    return clock


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], io.StringIO]:
    """Replace the console with one that writes to memory, as a terminal or a file."""

    def make(terminal: bool) -> io.StringIO:
        buffer = io.StringIO()
        screen = Console(
            file=buffer,
            force_terminal=terminal,
            force_interactive=terminal,
            width=100,
            markup=False,
            emoji=False,
            highlight=False,
        )
        monkeypatch.setattr(console, "console", lambda: screen)
        return buffer

    return make


def rendered(renderable: RenderableType) -> str:
    # A console with markup on: the tables must not depend on ours.
    buffer = io.StringIO()
    Console(file=buffer, width=100, force_terminal=False, color_system=None).print(renderable)
    return buffer.getvalue()


def cells(text: str, first: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.strip("│┃ ").startswith(first)]
    return [cell.strip() for cell in line.strip("│┃").replace("┃", "│").split("│")]


def test_console_is_one_and_literal(capsys: pytest.CaptureFixture[str]) -> None:
    console.console.cache_clear()
    assert console.console() is console.console()
    assert console.console().width == 100
    console.console().print("[bold] :smile: [/x]")
    assert capsys.readouterr().out == "[bold] :smile: [/x]\n"


def test_parameter_table_adds_up() -> None:
    text = rendered(parameter_table([("encoder", 1_234_567, 1_000), ("decoder", 1, 1)]))
    assert cells(text, "encoder") == ["encoder", "1,234,567", "1,000"]
    assert cells(text, "total") == ["total", "1,234,568", "1,001"]


ODD = "[bold] [/x] :smile: \\[red]"


def test_markup_in_tokens_and_sentences_is_shown_as_it_is() -> None:
    assert cells(rendered(records_table("pairs", [{"source": ODD}])), "source")[1] == ODD
    assert cells(rendered(parameter_table([(ODD, 1, 1)])), "[bold]")[0] == ODD
    end = rendered(
        console.closing_summary(
            [sectioned_table("scores", ["", ODD], [[[ODD, ODD]]])], [(ODD, "x")], {ODD: [ODD]}
        )
    )
    assert f"{ODD}:\n{ODD}\n" in f"{end}\n"
    assert f"│ {ODD} │ {ODD} │" in end


def test_control_characters_do_not_reach_the_terminal() -> None:
    text = rendered(records_table("pairs", [{"source": "\x1b[31m \n \x00 \udcff é \u202f"}]))
    assert cells(text, "source")[1] == "\\x1b[31m \\n \\x00 \\udcff é \u202f".strip()


def test_the_closing_summary_has_tables_facts_and_commands(
    screen: Callable[[bool], io.StringIO], tmp_path: Path
) -> None:
    out = screen(False)
    path = "outputs/" + "x" * 150
    table = sectioned_table(
        "scores", ["", "test", "other"], [[["BLEU", "37.62", "–"]], [["exact: idiom", "1", "2"]]]
    )
    with console.setup_logging(tmp_path / "run.log"):
        console.log_only("only in the log")
        console.print_and_log(
            console.closing_summary(
                [table], [("folder", path), ("", "signature")], {"translate": ["python", path]}
            )
        )
    log = (tmp_path / "run.log").read_text("utf-8")
    for text in (out.getvalue(), log):
        assert cells(text, "BLEU") == ["BLEU", "37.62", "–"]
        assert f"folder  {path}" in text.splitlines()
        assert "signature" in text.splitlines()
        assert text.splitlines()[-3:] == ["translate:", "python \\", f" {path}"]
        assert text.count("exact: idiom") == 1
    assert "only in the log" in log
    assert "only in the log" not in out.getvalue()


def test_a_path_is_one_line_and_what_is_too_long_is_below_its_label(
    screen: Callable[[bool], io.StringIO],
) -> None:
    out = screen(True)
    path, signature = Path("a b/" + "c " * 60 + "d"), "nrefs:1|" + "x" * 80
    facts: list[tuple[str, str | Path]] = [("of lowercased tokens", signature), ("written to", path)]
    facts.append(("about", "word " * 30))
    console.console().print(console.closing_summary([], facts, {}), soft_wrap=True)
    lines = out.getvalue().splitlines()
    assert lines[:4] == ["of lowercased tokens", f"  {signature}", "written to", f"  {path}"]
    assert len(lines) == 6


def test_a_command_is_continued_between_its_words() -> None:
    folder = "outputs/2026-11-22/16-08-21-123456"
    assert console.wrap_command(["python", "-m", "seq2seq_lab.evaluate", folder, "search=beam"]) == [
        f"python -m seq2seq_lab.evaluate {folder} search=beam"
    ]
    words = ["wandb", "sync", *(f"{folder}/wandb/offline-run-20261122_16082{n}-51d3938c" for n in (1, 2))]
    lines = console.wrap_command(words)
    assert len(lines) == 3
    assert max(map(len, lines)) <= 80
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == words


def test_the_terminal_gets_colors_and_the_log_plain_text(
    screen: Callable[[bool], io.StringIO], tmp_path: Path
) -> None:
    out = screen(True)
    with console.setup_logging(tmp_path / "run.log"):
        console.print_and_log(parameter_table([("encoder", 1, 1)]))
        console.print_and_log("[bold] text")
    assert "\x1b[" in out.getvalue()
    log = (tmp_path / "run.log").read_text(encoding="utf-8")
    assert "\x1b" not in log
    assert "│ encoder" in log
    assert "[bold] text" in log


def test_logging_goes_to_both_and_is_removed(
    screen: Callable[[bool], io.StringIO], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = screen(False)
    root = logging.getLogger()
    package = logging.getLogger("seq2seq_lab")
    monkeypatch.setattr(package, "level", logging.WARNING)
    before = (list(root.handlers), root.level, package.level)
    for run in ("one", "two"):
        with console.setup_logging(tmp_path / f"{run}.log"):
            logging.getLogger("seq2seq_lab.training.trainer").info("[/x] run %s %s", run, "z" * 150)
            logging.getLogger("other").info("hidden")
            logging.getLogger("other").warning("careful")
    logging.getLogger("seq2seq_lab.training.trainer").warning("after")
    assert (list(root.handlers), root.level, package.level) == before
    z = "z" * 150
    assert out.getvalue().splitlines() == [
        f"[/x] run one {z}",
        "WARNING: careful",
        f"[/x] run two {z}",
        "WARNING: careful",
    ]
    lines = (tmp_path / "two.log").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("20")
    assert lines[0].endswith(f"INFO seq2seq_lab.training.trainer: [/x] run two {z}")


def test_logging_is_removed_after_an_error_and_appends(
    screen: Callable[[bool], io.StringIO], tmp_path: Path
) -> None:
    screen(False)
    handlers = list(logging.getLogger().handlers)

    def failing_run() -> None:
        with console.setup_logging(tmp_path / "run.log"):
            logging.getLogger("seq2seq_lab").info("started")
            raise RuntimeError

    for _ in range(2):
        with pytest.raises(RuntimeError):
            failing_run()
    assert logging.getLogger().handlers == handlers
    assert len((tmp_path / "run.log").read_text(encoding="utf-8").splitlines()) == 2


def test_progress_in_plain_lines(screen: Callable[[bool], io.StringIO], clock: Clock) -> None:
    out = screen(False)
    with console.Progress(
        total=10_000, completed=1_000, epochs=6, plain_seconds=10, unit="words"
    ) as progress:
        assert progress.due(), "the first step is shown at once"
        progress.show(step=1_001, epoch=1, loss=9.0, throughput=0.0, best="")
        clock.now += 9.9
        assert not progress.due()
        clock.now += 0.1
        assert progress.due()
        progress.show(step=2_000, epoch=3, loss=2.34567, throughput=5500.6, best="best val/bleu 12.30")
        assert not progress.due()
        logging.getLogger("seq2seq_lab").warning("in between")
    # 1,000 steps in 10 s: the other 8,000 take 80 s.
    assert out.getvalue().split("\n", 1)[1] == (
        "epoch 3/6  step 2,000/10,000  loss 2.346  best val/bleu 12.30  5,501 words/s  0:01:20 left\n"
    )


def test_progress_before_the_first_step_and_past_the_end(
    screen: Callable[[bool], io.StringIO], clock: Clock
) -> None:
    out = screen(False)
    with console.Progress(total=10, completed=5, epochs=2, plain_seconds=0, unit="words") as progress:
        progress.show(step=5, epoch=1, loss=float("nan"), throughput=0.0, best="")
        clock.now += 60
        progress.show(step=11, epoch=1, loss=0.0, throughput=0.0, best="")
    first, last = out.getvalue().splitlines()
    assert first.endswith("loss nan  warming up  ? left")
    assert last.endswith("0:00:00 left")


def test_progress_bar_lives_with_log_lines(
    screen: Callable[[bool], io.StringIO], clock: Clock, tmp_path: Path
) -> None:
    out = screen(True)
    with (
        console.setup_logging(tmp_path / "run.log"),
        console.Progress(total=100, completed=0, epochs=1, plain_seconds=10, unit="words") as progress,
    ):
        progress.show(step=1, epoch=1, loss=9.0, throughput=0.0, best="")
        assert not progress.due()
        clock.now += 0.25
        assert progress.due()
        progress.show(step=50, epoch=1, loss=1.0, throughput=1000.0, best="")
        position = out.tell()
        logging.getLogger("seq2seq_lab").info("validation [x]")
    text = out.getvalue()
    assert "step 50/100" in text[:position]
    # The log line replaces the bar, which is drawn again below it.
    erased, after = text[position:].split("validation [x]\n", 1)
    assert erased.endswith("\x1b[2K")
    assert "step 50/100" in after
    assert text.endswith("\x1b[?25h"), "the cursor is shown again"
    assert "step" not in (tmp_path / "run.log").read_text(encoding="utf-8")


def test_validation_is_counted_at_most_once_an_interval(
    screen: Callable[[bool], io.StringIO], clock: Clock
) -> None:
    out = screen(False)
    with console.Progress(total=100, completed=0, epochs=2, plain_seconds=10, unit="words") as progress:
        progress.show(step=50, epoch=1, loss=1.0, throughput=0.0, best="")
        for done in range(1, 101):
            clock.now += 0.25
            progress.show_validation(50, 1, "", done, 100)
    assert out.getvalue().splitlines()[1:] == [
        "epoch 1/2  step 50/100  validating 40/100  0:00:10 left",
        "epoch 1/2  step 50/100  validating 80/100  0:00:20 left",
    ]


@pytest.mark.parametrize("width", [80, 120])
def test_the_bar_is_long_and_nothing_is_cut(
    width: int, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    screen = Console(file=out, force_terminal=True, force_interactive=True, width=width, color_system=None)
    monkeypatch.setattr(console, "console", lambda: screen)
    with console.Progress(total=12_345, completed=0, epochs=12, plain_seconds=10, unit="words") as progress:
        clock.now += 3000
        progress.show(6_000, 10, 12.345, 12_345.0, "best val/loss_free_running 1.234")
        before = out.tell()
        clock.now += 1
        progress.show_validation(6_000, 10, "best val/bleu 33.10", 40, 100)
    shown = out.getvalue()
    assert "epoch 10/12  loss 12.345  best val/loss_free_running 1.234  12,345 words" in shown[:before]
    assert "epoch 10/12  validating 40/100  best val/bleu 33.10" in shown[before:]
    bars = [line for line in shown.splitlines() if "━" in line]
    assert all("step 6,000/12,345  0:5" in line for line in bars[-1:])
    assert bars[-1].count("━") >= (width - 45) // 2  # half of the steps are done


def test_a_quiet_console_prints_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    console.console.cache_clear()
    monkeypatch.setattr(console.console(), "quiet", True)
    with (
        console.setup_logging(tmp_path / "run.log"),
        console.Progress(total=1, completed=0, epochs=1, plain_seconds=0, unit="words") as progress,
    ):
        progress.show(step=1, epoch=1, loss=0.0, throughput=0.0, best="")
        console.print_and_log("table")
        logging.getLogger("seq2seq_lab").warning("line")
    assert capsys.readouterr().out == ""
    console.console.cache_clear()


def test_a_notebook_shows_a_table_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[object] = []
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda segments, text: shown.append(text))
    console.print_and_log("a table")
    assert len(shown) <= 1


ARABIC, HEBREW = "هذا كتاب جميل.", ["זה", "ספר", "טוב"]


def test_columns_are_as_wide_as_what_a_terminal_shows() -> None:
    words = [
        "plain",
        "नमस्ते दुनिया",
        "这是一本书",
        "สวัสดี",
        ARABIC,
        "👨‍👩‍👧",
        "e\u0301",
        "\u202eabc",
        "\x1b[31m",
    ]
    table = sectioned_table("t", ["word", "number"], [[[word, "1"] for word in words]])
    lines = rendered(table).splitlines()[1:]
    assert {cell_len(line) for line in lines} == {cell_len(lines[0])}
    assert cells(rendered(table), "\\u202eabc") == ["\\u202eabc", "1"]
    assert cells(rendered(table), "\\x1b") == ["\\x1b[31m", "1"]


def test_a_column_from_right_to_left_does_not_move_the_columns_beside_it() -> None:
    (record,) = [
        line for line in rendered(records_table("t", [{"a": ARABIC}])).splitlines() if ARABIC in line
    ]
    assert f"\u2067{ARABIC}" in record
    assert record.index("\u2069") < record.rindex("│"), "the border is outside the isolate"
    long = f"{ARABIC} GPU " * 20
    folded = [line for line in rendered(records_table("t", [{"a": long}])).splitlines() if "\u2067" in line]
    assert len(folded) > 2
    assert all(line.count("\u2067") == line.count("\u2069") == 1 for line in folded)
    assert "\u2066" not in rendered(records_table("t", [{"a": "plain", "b": "书"}]))


def test_a_matrix_has_columns_from_right_to_left() -> None:
    lines = shades.shade_matrix(["<sos>", *HEBREW], ["a", "bb"], [[0, 0.9, 0, 0.3], [0.9, 0, 0, 0]], [(1, 0)])
    head, first, second = (line.replace("\u2067", "").replace("\u2069", "") for line in lines)
    assert head == "   טוב  ספר  זה  <sos>"
    assert first == " a ▒▒▒  ··· [██] ·····"
    assert second == "bb ···  ···  ··  █████"
    assert lines[0].count("\u2067") == 3


def test_the_log_keeps_isolates_of_rendered_text_only(tmp_path: Path) -> None:
    with console.setup_logging(tmp_path / "run.log"):
        console.log_only(shades.text_lines(shades.shade_words(["\u2066\x1b", *HEBREW], [1.0] * 4)))
        logging.getLogger("seq2seq_lab").info("a \u2067 b")
    log = (tmp_path / "run.log").read_text("utf-8")
    assert all(f"\u2067{word}\u2069" in log for word in HEBREW)
    assert "\\u2066\\x1b" in log
    assert "a \\u2067 b" in log


def test_shaded_words_from_right_to_left_begin_at_the_right() -> None:
    text = shades.ShadedText([*HEBREW, "GPU"], [1.0, 0.5, 0.0, 0.25], "סוג", [])
    words, below, caption = rendered(shades.text_lines(shades.shade_texts([text]))).splitlines()
    words = words.replace("\u2067", "").replace("\u2069", "")
    assert (words, below) == ("GPU טוב ספר זה".rjust(100), "▒▒▒ ··· ▓▓▓ ██".rjust(100))
    assert caption == "  → \u2067סוג\u2069"


def test_lines_of_shades_fit_on_the_console() -> None:
    text = shades.ShadedText(["书" * 6] * 30, [0.5] * 30, "class", [])
    lines = rendered(shades.text_lines(shades.shade_texts([text]))).splitlines()
    assert max(map(cell_len, lines)) <= console.PLAIN_WIDTH
    assert [cell_len(line) for line in lines[:-1:2]] == [cell_len(line) for line in lines[1::2]]


def test_a_long_word_is_cut_in_a_matrix_and_in_lines() -> None:
    for word in ("x" * 500 + "⁇", "书" * 300 + "⁇"):
        head, row = shades.shade_matrix(["a", word], ["b" * 500], [[0.0, 1.0]])
        assert cell_len(head) == cell_len(row) <= 100
        assert head.endswith(f"{word[-3:-1]}⁇")
        assert "…" in head
        assert "…" in row
        shown, below = shades.shade_words([word], [0.5])
        assert cell_len(shown) == cell_len(below) <= shades.LONGEST_WORD


def test_the_shade_of_a_weight_that_is_not_a_number_is_a_question_mark() -> None:
    assert shades.shade(float("nan"), "ab") == "??"
