"""Pictures as files, drawn alike everywhere: PNG or SVG. Needs matplotlib (the extra ``plot``), loaded only here."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

from shardc.hlo.errors import InputError, UnsupportedError
from shardc.launcher.run.output_files import STANDARD_OUTPUT, atomic_output

__all__ = ["make_folder", "titled_figure", "write_figure"]

_WIDTH = 11.0
_SUFFIXES = (".png", ".svg")
#: Ids in SVG files go by a fixed salt, text stays text.
_STYLE = MappingProxyType({"svg.hashsalt": "shardc", "svg.fonttype": "none", "font.family": "DejaVu Sans"})


def make_folder(folder: str | Path) -> Path:
    """The folder for pictures, made where missing.

    Raises `UnsupportedError` without matplotlib, `InputError` for a folder that cannot be made and for ``-``.
    """
    target = Path(folder)
    if target == STANDARD_OUTPUT:
        raise InputError("several pictures cannot go to one file", where=str(folder), fix="name a folder")
    _need_matplotlib()
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise InputError(f"the folder {target} cannot be created: {e.strerror or e}", fix="name another one") from None
    return target


def write_figure(path: str | Path, draw: Callable[[], Any]) -> Path:
    """Write the figure that ``draw`` makes as PNG or SVG, by the suffix of ``path``, whole or not at all; to standard
    output (``-``) as SVG.

    Raises `UnsupportedError` without matplotlib, `InputError` for other suffixes and files that cannot be written.
    """
    target = Path(path)
    suffix = ".svg" if target == STANDARD_OUTPUT else target.suffix
    if suffix not in _SUFFIXES:
        raise InputError(f"pictures cannot be written as {suffix!r}", where=str(path), fix="use .png or .svg")
    _need_matplotlib()
    import matplotlib

    image = io.BytesIO()
    with matplotlib.rc_context(dict(_STYLE)), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # names in any script
        metadata = {"Date": None} if suffix == ".svg" else {"Software": None}
        draw().savefig(image, format=suffix[1:], dpi=110, metadata=metadata, facecolor="white")
    with atomic_output(target) as file:
        file.write(image.getvalue())
    return target


def titled_figure(title: str, subtitle: str, height: float, **edges: float) -> Any:
    """An empty page, ``height`` inches high, with a title of two lines; ``edges`` are `Figure.subplots_adjust`'s."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, height))
    figure.subplots_adjust(**{"left": 0.09, "right": 0.968, "bottom": 0.55 / height, "top": 1 - 0.85 / height, **edges})
    at, line = 1 - 0.14 / height, 0.24 / height
    figure.text(0.012, at, _shortened(title, 90), fontsize=12, weight="bold", va="top", parse_math=False)
    figure.text(0.012, at - line, _shortened(subtitle, 172), fontsize=8.5, va="top", color="#555555", parse_math=False)
    return figure


def _shortened(text: str, most: int) -> str:
    """At most so many characters of it."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _need_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UnsupportedError(
            "pictures need matplotlib, which is not installed", fix="pip install 'shardc[plot]'"
        ) from None
