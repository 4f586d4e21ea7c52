"""Links to a term of the glossary go to its row.

Rows have anchors in HTML, ``<span id="mesh"></span>``, which GitHub and browsers know. Sphinx's reader of Markdown
knows only headings as places within a page. So each page tells it the anchors that it has.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes

_ANCHOR = re.compile(r'<span id="(?P<name>[\w-]+)">')


def anchors(document: nodes.document) -> list[str]:
    """The names of the anchors that are written in HTML, in their order."""
    return [name for raw in document.findall(nodes.raw) for name in _ANCHOR.findall(raw.astext())]


def setup(app: Any) -> dict[str, bool]:
    """Add the anchors of each page that was read to those of its headings."""

    def read(_app: Any, document: nodes.document) -> None:
        slugs = app.env.metadata[app.env.docname].setdefault("myst_slugs", {})
        for name in anchors(document):
            slugs.setdefault(name, (0, name, name))

    app.connect("doctree-read", read)
    return {"parallel_read_safe": True}
