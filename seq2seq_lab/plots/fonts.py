"""The fonts of pictures: installed fonts for the scripts of their texts, and the measured widths of texts.

Matplotlib draws a character with the first font of a list that has it, and shapes and orders the letters of a text. It does
not look for fonts that have the characters of a text.
"""

import functools
import logging
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import regex

from seq2seq_lab.data.words import graphemes
from seq2seq_lab.runtime.direction import direction, has_right_to_left

if TYPE_CHECKING:
    from matplotlib.font_manager import FontEntry

log = logging.getLogger(__name__)

SANS_SERIF = "sans-serif"  # Matplotlib's default
_INVISIBLE = regex.compile(r"[\s\p{Cc}\p{Cf}\p{Cs}\p{Default_Ignorable_Code_Point}]")
# Scripts, and the end of the names of their fonts.
_CJK = {"Hani": "SC", "Hira": "JP", "Kana": "JP", "Hang": "KR", "Bopo": "TC"}
_SEPARATE = ("Latn", "Grek", "Cyrl", "Zyyy")
_SHARED = ("Zyyy", "Zinh")  # characters of several scripts
# In the names of other designs.
_UNLIKE = ("Serif", "Mono", "Display", "Looped", "Kufi", "Nastaliq", "Rashi", "UI")
_EMOJI = regex.compile(r"\p{Emoji}")
_FONTS = {
    **dict.fromkeys(("Latn", "Grek", "Cyrl"), "Noto Sans"),
    "Hani": "Noto Sans CJK",
    "Zyyy": "Noto Sans Symbols",
    "Emoji": "Noto Emoji or Symbola",
}
_LABELS = {
    "Hani": "Chinese, Japanese and Korean",
    "Zyyy": "symbols",
    "Emoji": "emoji",
    "Zzzz": "private or unassigned characters",
}
_MARKS = {"ltr": "\u200e", "rtl": "\u200f"}  # letters without width
_reported: set[str] = set()  # the scripts without a font that this process has reported


@dataclass(frozen=True)
class Font:
    """The fonts and the size of texts.

    Attributes:
        families: their names; the first one that has a character draws it.
        size: in points.
    """

    families: tuple[str, ...]
    size: float

    def width(self, text: str) -> float:
        """Return the width of a line of text in inches."""
        from matplotlib.font_manager import FontProperties
        from matplotlib.textpath import text_to_path

        style = FontProperties(family=list(self.families), size=self.size)
        with missing_glyphs_as_boxes():
            width, _, _ = text_to_path.get_text_width_height_descent(text, style, False)
        return float(width) / 72

    def shorten(self, text: str, most: float) -> str:
        """Return a text cut to a width of `most` inches; … replaces the rest."""
        if self.width(text) <= most:
            return text
        letters = graphemes(text)
        low, high = 0, len(letters) - 1  # how many letters fit
        while low < high:
            middle = (low + high + 1) // 2
            if self.width("".join(letters[:middle]) + "…") <= most:
                low = middle
            else:
                high = middle - 1
        return "".join(letters[:low]) + "…"

    def wrap(self, text: str, most: float, lines: int) -> list[str]:
        """Return a text in lines of at most `most` inches, broken at spaces, or between letters where there is none.

        Args:
            lines: the largest number of lines; … replaces the rest.
        """
        wrapped = [""]
        for piece in regex.findall(r"\S+\s*", text):
            fits = self.width(piece.rstrip()) <= most
            for part in [piece] if fits else graphemes(piece):
                if wrapped[-1] and self.width(f"{wrapped[-1]}{part}".rstrip()) > most:
                    wrapped.append("")
                wrapped[-1] += part
            if len(wrapped) > lines:
                wrapped = [*wrapped[: lines - 1], self.shorten(f"{wrapped[lines - 1]}{wrapped[lines]}", most)]
                break
        # A letter without width gives each line the direction of the text.
        mark = _MARKS[direction(text) or "ltr"] if has_right_to_left(text) else ""
        return [mark + line.rstrip() for line in wrapped if line]


def font_for(texts: Iterable[str], size: float, family: str = SANS_SERIF) -> Font:
    """Return the fonts for texts of one size that are drawn together.

    Characters that no installed font has are reported once for each script; they are drawn as boxes.

    Args:
        family: the font of the characters that it has.
    """
    text = "".join(texts)
    if text.isascii():
        return Font((family,), size)
    families, missing = _families(frozenset(_INVISIBLE.sub("", text)), family)
    if missing:
        _report(missing)
    return Font(families, size)


@contextmanager
def missing_glyphs_as_boxes() -> Iterator[None]:
    """Draw characters that no font has as boxes, without warnings: `font_for` reports them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font")
        yield


@functools.lru_cache(1024)
def _families(characters: frozenset[str], family: str) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the families for characters, and the characters that no font has."""
    from matplotlib.font_manager import FontProperties, fontManager, get_font

    base = get_font(fontManager.findfont(FontProperties(family=[family])))
    own = {one for one in characters if base.get_char_index(ord(one))}
    if own == characters:
        return (family,), frozenset()
    families, missing = _add_fallbacks(characters, own, family)
    if missing and _add_installed_fonts():
        families, missing = _add_fallbacks(characters, own, family)
    return families, missing


def _add_fallbacks(
    characters: frozenset[str], own: set[str], family: str
) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the names of a font and of others with the characters that it lacks, and the characters that none has.

    If a font has all letters of a script, it draws all of them, because letters of two fonts do not join; it then comes
    before a font that lacks some. Letters of `_SEPARATE` scripts do not join.
    """
    before: list[str] = []
    after: list[str] = []
    found = set(own)
    scripts = _by_script(characters)
    for script, needed in scripts.items():
        while (lacking := needed - found) and script != "Zzzz":  # private characters differ from font to font
            # At first for all letters of the script, then for those that the best font lacks.
            wanted = lacking if script in _SEPARATE or (found - own) & needed else needed
            entry = min(_regular_fonts(), key=functools.partial(_rank, wanted, script, scripts), default=None)
            new = set() if entry is None else _covered(entry, wanted)
            if entry is None or not new - found:
                break
            (before if wanted & own else after).append(entry.name)
            found |= new
    return tuple(dict.fromkeys([*before, family, *after])), characters - found


def _by_script(characters: frozenset[str]) -> dict[str, frozenset[str]]:
    """Return characters by the four-letter code of their script; the scripts of Chinese, Japanese and Korean are one.

    A character of several scripts, such as a mark or a full stop, belongs to those of them that the other characters have.
    """
    from fontTools import unicodedata as scripts

    groups: dict[str, set[str]] = {}
    for one in sorted(characters):
        script = scripts.script(one)
        groups.setdefault("Hani" if script in _CJK else script, set()).add(one)
    for shared in _SHARED:
        for one in groups.pop(shared, ()):
            of = {"Hani" if script in _CJK else script for script in scripts.script_extension(one)}
            alone = {"Hani"} & of or (of if len(of) == 1 else {"Zyyy"})
            for script in of & groups.keys() or alone:
                groups.setdefault(script, set()).add(one)
    groups["Zyyy"] = groups.pop("Zyyy", set())  # last: the fonts of the scripts may have them
    return {script: frozenset(group) for script, group in groups.items()}


@functools.cache
def _regular_fonts() -> list["FontEntry"]:
    """Return the upright fonts of normal weight and width that Matplotlib knows, one of each family."""
    from matplotlib.font_manager import fontManager

    regular = {
        entry.name: entry
        for entry in fontManager.ttflist
        if (entry.style, entry.variant, entry.stretch) == ("normal", "normal", "normal")
        and entry.weight in (400, "normal", "regular")
        and not entry.name.startswith("Last Resort")  # boxes
        and Path(entry.fname).is_file()  # Matplotlib's list may be older
    }
    return list(regular.values())


def _covered(entry: "FontEntry", characters: Iterable[str]) -> set[str]:
    """Return the characters that a font has."""
    from matplotlib.ft2font import FT2Font

    font = FT2Font(entry.fname, face_index=entry.index)
    return {one for one in characters if font.get_char_index(ord(one))}


def _rank(
    characters: frozenset[str], script: str, scripts: dict[str, frozenset[str]], entry: "FontEntry"
) -> tuple[object, ...]:
    """Return a value that is lowest for the best font of a script: one with most characters, named after the script."""
    from fontTools import unicodedata

    languages = [unicodedata.script(one) for one in scripts.get("Hani", ())]
    ending = next((_CJK[one] for one in ("Hira", "Kana", "Hang", "Bopo", "Hani") if one in languages), "SC")
    return (
        -len(_covered(entry, characters)),
        _font_name(script).split()[-1] not in entry.name,
        script == "Hani" and not entry.name.endswith(ending),
        sum(word in entry.name for word in _UNLIKE),
        len(entry.name),
        entry.name,
    )


def _font_name(script: str) -> str:
    """Return the name of a free font with the characters of a script."""
    from fontTools import unicodedata

    return _FONTS.get(script) or f"Noto Sans {unicodedata.script_name(script).replace('_', ' ')}"


@functools.cache
def _add_installed_fonts() -> bool:
    """Add the fonts that were installed after Matplotlib made its list; return whether there are any. Takes 0.3 s."""
    from matplotlib.font_manager import FontManager, fontManager

    known = {(str(entry.fname), entry.index) for entry in fontManager.ttflist}
    new = [entry for entry in FontManager().ttflist if (str(entry.fname), entry.index) not in known]
    fontManager.ttflist += new
    _regular_fonts.cache_clear()
    return bool(new)


def _report(missing: frozenset[str]) -> None:
    """Report the scripts of characters that no installed font has, and which fonts have them."""
    from fontTools import unicodedata

    names: dict[str, str] = {}
    for script, group in _by_script(missing).items():
        emoji = {one for one in group if script == "Zyyy" and _EMOJI.match(one)}
        for key, part in ((script, group - emoji), ("Emoji", emoji)):
            if part and key not in _reported:
                label = _LABELS.get(key) or unicodedata.script_name(key).replace("_", " ")
                names[key] = f"{label} ({' '.join(f'U+{ord(one):04X}' for one in sorted(part)[:3])})"
    _reported.update(names)
    if not names:
        return
    packages = {"Hani": "fonts-noto-cjk", "Emoji": "fonts-symbola"}
    fonts = {_font_name(key): packages.get(key, "fonts-noto-core") for key in names if key != "Zzzz"}
    advice = (
        f" Install {', '.join(fonts)} (Debian and Ubuntu: apt install {' '.join(dict.fromkeys(fonts.values()))})."
        + (" Fonts of colored pictures cannot be used." if "Emoji" in names else "")
        if fonts
        else ""
    )
    log.warning(
        "Pictures show boxes for characters that no installed font has: %s.%s",
        ", ".join(names.values()),
        advice,
    )
