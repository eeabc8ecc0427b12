"""The frame of all pages: head, style, links to sections and theme."""

import base64
import gzip
import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

FILES = Path(__file__).parent  # of the HTML, CSS and JavaScript files


def framed(title: str, links: Mapping[str, str], main: str, scripts: Sequence[str]) -> str:
    """Return a page.

    Args:
        title: plain text.
        links: the names of the sections by their ids.
        main: the HTML of the page below its title.
        scripts: script elements at the end of the page.
    """
    return Template(read("frame.html")).substitute(
        title=html.escape(title),
        style=read("base.css") + read("page.css"),
        links=" ".join(f'<a href="#{anchor}">{name}</a>' for anchor, name in links.items()),
        main=main,
        theme=read("theme.js"),
        scripts="\n".join(scripts),
    )


def read(name: str) -> str:
    """Return the text of a file of the pages."""
    return (FILES / name).read_text("utf-8")


def as_json(data: Any) -> str:
    """Return plain values as JSON."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def packed(text: str) -> str:
    """Return a text compressed by gzip, in base64."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def script(name: str) -> str:
    """Return a JavaScript file as a script element."""
    return f"<script>\n{read(name)}</script>"
