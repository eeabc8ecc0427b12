"""Texts and tables in HTML, for notebooks and for the page of a comparison."""

import html
from collections.abc import Sequence


def html_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in HTML."""

    def row(tag: str, texts: Sequence[str]) -> str:
        return "<tr>" + "".join(f'<{tag} dir="auto">{html.escape(text)}</{tag}>' for text in texts) + "</tr>"

    return f"<table>{row('th', heads)}{''.join(row('td', texts) for texts in rows)}</table>"


def preformatted(text: str) -> str:
    """Return a text that keeps its lines and columns."""
    return f"<pre>{html.escape(text)}</pre>"
