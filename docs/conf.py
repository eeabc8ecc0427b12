"""The documentation as a site: pip install -e '.[docs]' && sphinx-build -W docs site."""

import re
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

ROOT = Path(__file__).parents[1]

project = "seq2seq_lab"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
nb_execution_mode = "off"
html_theme = "furo"
html_title = "seq2seq_lab"
html_copy_source = False
html_math_renderer = "mathml"
html_show_copyright = False
myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 4
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_default_options = {"members": True, "undoc-members": False, "show-inheritance": True}
suppress_warnings = ["misc.highlighting_failure"]


def setup(app: Sphinx) -> None:
    """Change pages before they are read."""
    app.connect("source-read", read)
    app.add_html_math_renderer("mathml", (inline_formula, None), (displayed_formula, None))


def inline_formula(writer: HTML5Translator, node: nodes.math) -> None:
    """Write a formula as MathML, which browsers show without a script from the network."""
    writer.body.append(convert(node.astext()))
    raise nodes.SkipNode


def displayed_formula(writer: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on a separate line; see `inline_formula`."""
    writer.body.append(convert(node.astext(), display="block"))
    raise nodes.SkipNode


def read(app: Sphinx, name: str, source: list[str]) -> None:
    """Add the files of conf/ to their page, and replace links to files that the site does not have by their text."""
    if name == "configuration":
        source[0] += configuration()
    source[0] = re.sub(r"\[([^\]]+)\]\((?:\.\./[^)]*|[\w/]+\.(?:jsonl|json))\)", r"\1", source[0])


def configuration() -> str:
    """Return every file of conf/ with a heading."""
    folder = ROOT / "conf"
    lines = ["", "## config.yaml", "", "```yaml", (folder / "config.yaml").read_text("utf-8").rstrip(), "```"]
    for group in sorted(path for path in folder.iterdir() if path.is_dir()):
        lines += ["", f"## {group.name}"]
        for path in sorted(group.rglob("*.yaml")):
            text = path.read_text("utf-8").rstrip()
            name = f"{group.name}={path.stem}" if path.parent == group else str(path.relative_to(folder))
            lines += ["", f"### {name}", "", "```yaml", text, "```"]
    return "\n".join(lines) + "\n"
