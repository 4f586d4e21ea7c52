"""The page: template, style, scripts and data put into one HTML text that asks no network for anything."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib import resources
from string import Template
from typing import Any

__all__ = ["SCRIPTS", "page"]

#: In the order in which they stand in the page.
SCRIPTS = (
    "elements.js",
    "table.js",
    "tree.js",
    "drawing.js",
    "axis.js",
    "timeline.js",
    "memory.js",
    "traffic.js",
    "reasons.js",
    "page.js",
)


def page(data: dict[str, Any]) -> str:
    """The HTML of ``data`` (`report_data`): equal data make equal bytes.

    The policy in its head lets the page's own style and script run and nothing else, by their digests; text from the
    program is only ever data (JSON without ``<``, ``>``, ``&``), put into the page as text nodes.
    """
    style = _text("page.css")
    script = "(() => {\n'use strict';\n" + "\n".join(_text(name) for name in SCRIPTS) + "\n})();\n"
    policy = f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; img-src data:"
    return Template(_text("page.html")).substitute(
        title=html.escape(f"{data['program']} on {data['devices']} devices - shardc"),
        policy=html.escape(policy),
        style=style,
        script=script,
        data=_embedded(data),
    )


def _text(name: str) -> str:
    return (resources.files("shardc.launcher.report") / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """As in "Content Security Policy Level 3" (W3C), 2.3.1."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _embedded(data: dict[str, Any]) -> str:
    """JSON that ends no element and starts no comment, whatever stands in it."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    for c in "<>&":
        text = text.replace(c, f"\\u{ord(c):04x}")
    return text
