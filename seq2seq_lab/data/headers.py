"""Names of columns, and tables whose first line has names that are not declared."""

import logging
import re
from collections.abc import Sequence

from seq2seq_lab.errors import UserError, did_you_mean

log = logging.getLogger(__name__)

# Words in the names of columns, besides codes of languages.
_WORDS = """
id idx index no nr num number row key uid guid split set label labels class category score date name title url file
source src target trg tgt input output text texts sentence sentences sent line phrase translation translated
reference ref original content context document summary article body highlights question answer query response
reply prompt completion instruction premise hypothesis utterance message word words lemma form pronunciation
phonemes ipa grapheme graphemes phoneme code docstring func function comment lang language s1 s2 sentence1
sentence2 text1 text2 arabic basque bengali bulgarian catalan chinese croatian czech danish dutch english estonian
finnish french galician german greek hebrew hindi hungarian icelandic indonesian irish italian japanese korean
latin latvian lithuanian norwegian persian polish portuguese romanian russian serbian slovak slovenian spanish
swahili swedish tamil thai turkish ukrainian urdu vietnamese welsh
"""
_LANGUAGES = """
aa ab af ak am ar as ay az ba be bg bn bo br bs ca cs cy da de dz el en eo es et eu fa fi fo fr fy ga gd gl gu ha
he hi hr ht hu hy id ig is it ja jv ka kk km kn ko ku ky la lb ln lo lt lv mg mi mk ml mn mr ms mt my ne nl no ny
or pa pl ps pt qu ro ru rw sd si sk sl sm sn so sq sr st su sv sw ta te tg th ti tk tl tn to tr ts tt ug uk ur uz
vi wo xh yi yo za zh zu ara bul ces cmn dan deu ell eng est fas fin fra heb hin hun ita jpn kor lat lit nld nor pol
por ron rus spa swe tur ukr vie zho
"""
_KNOWN = frozenset((*_WORDS.split(), *_LANGUAGES.split()))


def check_columns(location: str, wanted: Sequence[str], names: Sequence[str], remedy: str) -> None:
    """Raise `UserError` with `remedy` for a wanted column that is not among `names`, or occurs twice."""
    for name in wanted:
        if name not in names:
            listed = ", ".join(names[:20]) or "no columns"
            raise UserError(
                f"{location} has no column {name}; it has {listed}.{did_you_mean(name, names)} {remedy}"
            )
        if names.count(name) > 1:
            raise UserError(
                f"{location} has several columns {name}. Choose columns by their numbers, or rename one."
            )


def check_first_rows(
    rows: Sequence[tuple[str, Sequence[str]]],
    columns: Sequence[int | str] | None,
    labels: tuple[str, str],
) -> None:
    """Check that the first rows of a table are examples, unless the user has chosen columns by number.

    Args:
        rows: the location and cells of each of the first rows.
        columns: None if the first two columns are used.
        labels: the names of the two sides in the configuration.

    Raises:
        UserError: the first row has names of columns, or the first of several columns has numbers.
    """
    if not rows:
        return
    location, first = rows[0]
    if _are_names(first, labels):
        shown = ", ".join(repr(cell) for cell in first[:8])
        named = [cell for cell in first if cell.strip() and cell.strip().lower() not in ("id", "index")]
        if columns is None:
            raise UserError(
                f"{location} seems to have the names of the columns: {shown}. Choose two of them, for example "
                f"dataset.columns=[{','.join(named[:2])}]. If it is an example, choose columns by number: "
                f"dataset.columns=[1,2]."
            )
        log.warning(
            "%s is used as an example, but seems to have the names of the columns: %s.", location, shown
        )
    numbers = [cells[0].strip() for _, cells in rows if len(cells) > 2]
    text = [index for index, cell in enumerate(rows[-1][1], start=1) if not cell.strip().isdigit()]
    if columns is None and len(numbers) > 1 and all(re.fullmatch(r"\d+", cell) for cell in numbers):
        raise UserError(
            f"{location}: the first of {len(first)} columns has numbers ({', '.join(numbers)}), not text. Choose two "
            f"columns, for example dataset.columns=[{','.join(map(str, text[:2])) or '2,3'}]."
        )
    if columns is None and len(first) > 2:
        log.info("%s has %s columns; the first two are used (dataset.columns).", location, len(first))


def _are_names(cells: Sequence[str], labels: tuple[str, str]) -> bool:
    """Return whether cells are the names of columns: those of the configuration, or all of usual words."""
    named = [cell.strip().lower() for cell in cells]
    if all(label.lower() in named for label in labels):
        return True
    if len(named) > 2 and not named[0]:  # pandas writes no name for its index
        named = named[1:]
    numbered = named == [str(i) for i in range(len(named))]
    return len(named) > 1 and (numbered or all(map(_is_name, named)))


def _is_name(cell: str) -> bool:
    return len(cell) <= 40 and _KNOWN.issuperset(re.split(r"[\s_.\-:]+", cell))
