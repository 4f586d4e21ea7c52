"""The page: template, style, scripts and data put into one HTML text that asks no network for anything."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable
from importlib import resources
from string import Template
from typing import Any

from shardc.hlo.errors import InputError
from shardc.hlo.units import count_text

__all__ = ["SCRIPTS", "VERSION", "as_script", "digest", "page", "page_data", "page_parts", "report_text"]

#: Of the data in a page: pages of another one are not put beside each other.
VERSION = 3
_OPENING = '<script type="application/json" id="{}">'
#: In the order in which they stand in the page.
SCRIPTS = (
    "elements.js",
    "kinds.js",
    "table.js",
    "tree.js",
    "categories.js",
    "roofline.js",
    "graph_layout.js",
    "graph.js",
    "drawing.js",
    "mesh_drawing.js",
    "axis.js",
    "repeats.js",
    "timeline.js",
    "memory.js",
    "traffic.js",
    "reasons.js",
    "missing.js",
    "plan.js",
    "page.js",
)


def page(data: dict[str, Any], beside: dict[str, Any] | None = None) -> str:
    """The HTML of ``data`` (`report_data`): equal data make equal bytes; with ``beside`` of two reports side by side.

    The policy in its head lets the page's own style and script run and nothing else, by their digests; text from the
    program is only ever data (JSON without ``<``, ``>``, ``&``), put into the page as text nodes.
    """
    style, script = page_parts()
    policy = f"default-src 'none'; style-src '{digest(style)}'; script-src '{digest(script)}'; img-src data:"
    return Template(report_text("page.html")).substitute(
        title=html.escape(f"{data['program']} on {count_text(data['devices'], 'device')} - shardc"),
        policy=html.escape(policy),
        style=style,
        script=script,
        data=_element("data", data) + ("" if beside is None else "\n" + _element("beside", beside)),
    )


def page_data(text: str, where: str) -> dict[str, Any]:
    """The data of a page that `page` made of one report.

    Raises `InputError` for other text, and for pages of another release.
    """
    found = re.search(_OPENING.format("data") + "(.*?)</script>", text, re.DOTALL)
    data: dict[str, Any] = json.loads(found.group(1)) if found else {}
    if data.get("version") != VERSION:
        what = "the report was written by another release" if found else "the file is not a report"
        raise InputError(what, where=where, fix="write the report again with this release (shardc report)")
    return data


def _element(name: str, data: dict[str, Any]) -> str:
    return _OPENING.format(name) + _embedded(data) + "</script>"


def page_parts() -> tuple[str, str]:
    """The style and the script of every page, the same for all of them."""
    return report_text("page.css"), as_script(report_text(name) for name in SCRIPTS)


def as_script(texts: Iterable[str]) -> str:
    """Scripts as one, whose names are its own."""
    return "(() => {\n'use strict';\n" + "\n".join(texts) + "\n})();\n"


def report_text(name: str) -> str:
    """A file beside this one."""
    return (resources.files("shardc.analysis.report") / name).read_text(encoding="utf-8")


def digest(text: str) -> str:
    """As in "Content Security Policy Level 3" (W3C), 2.3.1."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _embedded(data: dict[str, Any]) -> str:
    """JSON that ends no element and starts no comment, whatever stands in it."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    for c in "<>&":
        text = text.replace(c, f"\\u{ord(c):04x}")
    return text
