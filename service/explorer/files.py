"""The explorer as files for a web server: page, style, script and example programs, all from this package.

Style and helpers are the report's: the explorer begins with them and adds its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources

from shardc.analysis.report.page import as_script, digest, page_parts, report_text

__all__ = ["SCRIPTS", "files", "policy"]

#: Of the report, what makes elements, tables and drawings of meshes.
_SHARED = ("elements.js", "kinds.js", "table.js", "mesh_drawing.js")
#: In the order in which they stand in the script.
SCRIPTS = (
    "service.js",
    "problems.js",
    "combobox.js",
    "mesh.js",
    "annotations.js",
    "examples.js",
    "program.js",
    "remedies.js",
    "plans.js",
    "variant.js",
    "link.js",
    "compare.js",
    "reports.js",
    "page.js",
)


def files() -> Mapping[str, tuple[str, bytes]]:
    """Media type and content by name: ``index.html`` belongs at ``/``, all others under ``/explorer/``.

    Addresses in them are relative to the page's, so that a proxy may serve it under any path. Equal bytes for one
    version of shardc.
    """
    style = report_text("page.css") + _text("explorer.css")
    script = as_script([*map(report_text, _SHARED), *map(_text, SCRIPTS)])
    demo = (resources.files("shardc") / "demo" / "step.hlo").read_bytes()
    return {
        "index.html": ("text/html; charset=utf-8", _text("index.html").encode()),
        "explorer.css": ("text/css; charset=utf-8", style.encode()),
        "explorer.js": ("text/javascript; charset=utf-8", script.encode()),
        "icon.svg": ("image/svg+xml", _text("icon.svg").encode()),
        "perceptron.hlo": ("text/plain; charset=utf-8", _text("perceptron.hlo").encode()),
        "transformer.hlo": ("text/plain; charset=utf-8", demo),
    }


def policy() -> str:
    """The Content-Security-Policy of the page: its own files and service, and reports in frames.

    A frame inherits it, hence the digests of the report's style and script; what else a report might hold never runs,
    and its frame is sandboxed besides. No text becomes markup or code anywhere (``require-trusted-types-for``).
    """
    style, script = map(digest, page_parts())
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'self' '{script}'",
            f"style-src 'self' '{style}'",
            "connect-src 'self'",
            "img-src 'self' data:",
            "frame-src blob:",
            "form-action 'none'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _text(name: str) -> str:
    return (resources.files("shardc.service.explorer") / name).read_text(encoding="utf-8")
