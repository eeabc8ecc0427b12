"""Fonts of pictures: fonts for scripts, reports of characters without one, measured widths."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from matplotlib import font_manager

from seq2seq_lab.data.words import graphemes
from seq2seq_lab.plots import fonts
from seq2seq_lab.plots.fonts import Font, font_for

HINDI = "हिन्दी में एक किताब"
PLAIN = Font((fonts.SANS_SERIF,), 10)


@pytest.fixture(autouse=True)
def uncached() -> Iterator[None]:
    """Forget the fonts and reports of other tests."""
    fonts._reported.clear()
    for function in (fonts._families, fonts._regular_fonts, fonts._add_installed_fonts):
        function.cache_clear()
    yield
    for function in (fonts._families, fonts._regular_fonts, fonts._add_installed_fonts):
        function.cache_clear()


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The fonts of Matplotlib as the only installed ones."""
    folder = Path(matplotlib.get_data_path())
    entries = [one for one in font_manager.fontManager.ttflist if folder in Path(one.fname).parents]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", entries)
    find = font_manager.findSystemFonts
    monkeypatch.setattr(
        font_manager,
        "findSystemFonts",
        lambda fontpaths=None, **options: find(fontpaths, **options) if fontpaths else [],
    )
    return entries


def test_a_font_that_has_all_characters_is_the_only_one(shipped: object) -> None:
    for text in ("plain", "œuvre l’été ▁le „so“", "Жук", "שלום", "a\u200d\u200f\u2067b\x00"):
        assert font_for([text], 10).families == (fonts.SANS_SERIF,)


def test_a_script_that_the_font_lacks_is_drawn_with_another(shipped: object) -> None:
    assert font_for(["a Жук"], 10, "cmr10").families == ("cmr10", "DejaVu Sans")


def test_characters_without_a_font_are_reported_once_with_fonts_that_have_them(
    shipped: object, caplog: pytest.LogCaptureFixture
) -> None:
    for text in (HINDI, HINDI, "नमस्ते", "书", "ひらがな", "\ue000"):
        font_for([text], 10)
    first, chinese, private = caplog.messages
    assert "Devanagari (U+0902" in first
    assert "Noto Sans Devanagari" in first
    assert "apt install fonts-noto-core" in first
    assert "apt install fonts-noto-cjk" in chinese
    assert "U+E000" in private
    assert "nstall" not in private.partition("U+E000")[2]
    assert all(record.levelno == logging.WARNING for record in caplog.records)


def test_fonts_that_were_installed_after_the_list_of_matplotlib_are_found(
    shipped: list[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    known = [one for one in shipped if one.name == "cmr10"]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", known)
    assert font_for(["Жук"], 10, "cmr10").families == ("cmr10", "DejaVu Sans")
    assert {one.name for one in font_manager.fontManager.ttflist} > {"DejaVu Sans", "cmr10"}
    assert caplog.messages == []


def test_a_font_that_was_removed_is_not_chosen(shipped: list[Any]) -> None:
    removed = font_manager.FontEntry(fname="/nowhere/Cyrillic.ttf", name="Cyrillic", stretch="normal")
    shipped.append(removed)
    assert font_for(["Жук"], 10, "cmr10").families == ("cmr10", "DejaVu Sans")


@pytest.fixture
def pretended(shipped: list[Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that pretends that fonts with all characters are installed."""

    def pretend(*names: str) -> None:
        (file,) = [one.fname for one in shipped if one.name == "cmr10"]
        shipped[:] = [
            *[one for one in shipped if one.name == "DejaVu Sans"],
            *[font_manager.FontEntry(fname=file, name=name, stretch="normal", weight=400) for name in names],
        ]
        covered = fonts._covered
        monkeypatch.setattr(
            fonts,
            "_covered",
            lambda entry, wanted: set(wanted) if entry.name in names else covered(entry, wanted),
        )

    return pretend


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("这是一本书。", "Noto Sans CJK SC"),
        ("これは本です。", "Noto Sans CJK JP"),
        ("カー", "Noto Sans CJK JP"),
        ("한국어 漢字", "Noto Sans CJK KR"),
        ("ㄅㄆ 書", "Noto Sans CJK TC"),
        (HINDI + "।", "Noto Sans Devanagari"),
        ("නම", "Noto Sans Sinhala"),
    ],
)
def test_the_font_of_a_script_is_named_after_it(
    pretended: Callable[..., None], text: str, expected: str
) -> None:
    languages = [
        f"Noto {kind} CJK {end}"
        for kind in ("Sans Mono", "Serif", "Sans")
        for end in ("JP", "KR", "SC", "TC")
    ]
    pretended("Unifont", *languages, "Noto Serif Devanagari", "Noto Sans Devanagari", "Noto Sans Sinhala")
    assert font_for([text], 10).families == (fonts.SANS_SERIF, expected)


def test_letters_that_join_are_from_one_font(pretended: Callable[..., None]) -> None:
    pretended("Noto Sans Arabic", "Noto Sans")
    assert font_for(["كتاب ݣ a"], 10).families == ("Noto Sans Arabic", fonts.SANS_SERIF)
    assert font_for(["Ｆull"], 10).families == (fonts.SANS_SERIF, "Noto Sans")


def test_installed_fonts_have_the_scripts_that_they_are_named_after(caplog: pytest.LogCaptureFixture) -> None:
    fonts._add_installed_fonts()
    installed = {entry.name for entry in font_manager.fontManager.ttflist}
    texts = {
        "Devanagari": HINDI,
        "Thai": "นี่คือหนังสือ",
        "Tamil": "இது ஒரு",
        "CJK SC": "这是一本书。",
        "Khmer": "ខ្មែរ",
    }
    texts = {name: text for name, text in texts.items() if f"Noto Sans {name}" in installed}
    if not texts:
        pytest.skip("no Noto fonts")
    for name, text in texts.items():
        assert font_for([text], 10).families == (fonts.SANS_SERIF, f"Noto Sans {name}")
    assert caplog.messages == []


def test_a_letter_has_its_marks() -> None:
    assert graphemes("हिन्दी") in (["हि", "न्दी"], ["हि", "न्", "दी"])
    assert graphemes("👨‍👩‍👧e\u0301") == ["👨‍👩‍👧", "e\u0301"]


def test_texts_are_cut_between_letters_to_a_width(shipped: object) -> None:
    assert PLAIN.shorten("plain", 1.0) == "plain"
    wide, narrow = PLAIN.shorten("W" * 50, 1.0), PLAIN.shorten("i" * 50, 1.0)
    assert len(wide) < len(narrow)
    for text in (wide, narrow):
        assert text.endswith("…")
        assert 0.8 < PLAIN.width(text) <= 1.0
    marked = PLAIN.shorten("e\u0301" * 50, 1.0)
    assert graphemes(marked)[:-1] == ["e\u0301"] * (len(graphemes(marked)) - 1)
    assert PLAIN.shorten("W" * 50, 0.0) == "…"


def test_lines_break_at_spaces_and_in_words_that_are_too_long(shipped: object) -> None:
    assert PLAIN.wrap("", 1.0, 3) == []
    text = "several short words and then Donaudampfschifffahrtsgesellschaftskapitän"
    lines = PLAIN.wrap(text, 1.0, 20)
    assert all(PLAIN.width(line) <= 1.0 for line in lines)
    assert lines[0] == "several short"
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    short = PLAIN.wrap(text, 1.0, 2)
    assert short[0] == lines[0]
    assert len(short) == 2
    assert short[1].endswith("…")


def test_each_line_has_the_direction_of_the_text(shipped: object) -> None:
    lines = PLAIN.wrap("זה ספר GPU GPU GPU טוב", 0.7, 9)
    assert len(lines) > 2
    assert all(line.startswith("\u200f") for line in lines)
    assert PLAIN.width(lines[0]) == PLAIN.width(lines[0][1:]), "the mark has no width"
    assert PLAIN.wrap("a זה", 5, 9) == ["\u200ea זה"]
