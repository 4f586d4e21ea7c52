"""Pictures of a simulated step as files: PNG or SVG. Needs matplotlib (the extra ``plot``), loaded only here."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from shardc.hlo.errors import InputError, UnsupportedError
from shardc.launcher.atomic import atomic_output
from shardc.launcher.units import seconds_text

if TYPE_CHECKING:
    from shardc.launcher.simulate.simulation import Simulation

__all__ = ["PICTURES", "draw_picture", "draw_pictures"]

_WIDTH = 11.0
_SUFFIXES = (".png", ".svg")
#: Drawn alike everywhere: ids in SVG files go by a fixed salt, text stays text.
_STYLE = MappingProxyType({"svg.hashsalt": "shardc", "svg.fonttype": "none", "font.family": "DejaVu Sans"})


def draw_pictures(simulation: Simulation, folder: str | Path, suffix: str = ".png") -> list[Path]:
    """Write every picture of `PICTURES` into ``folder``, which is made where missing; returns the files.

    Example: ``draw_pictures(partitioned.simulate("h100-dgx"), "pictures")``. Raises `UnsupportedError` without
    matplotlib, `InputError` for a folder that cannot be written.
    """
    _need_matplotlib()
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise InputError(f"the folder {target} cannot be made: {e.strerror or e}", fix="name another one") from None
    return [draw_picture(simulation, target / f"{name}{suffix}", name) for name in PICTURES]


def draw_picture(simulation: Simulation, path: str | Path, name: str = "overview") -> Path:
    """Write one of `PICTURES` as PNG or SVG, by the suffix of ``path``.

    Raises as `draw_pictures`, and `InputError` for a suffix or a name that is not known.
    """
    target = Path(path)
    if target.suffix not in _SUFFIXES:
        raise InputError(f"pictures are not written as {target.suffix!r}", where=str(path), fix="use .png or .svg")
    if name not in PICTURES:
        raise InputError(f"there is no picture {name!r} of a simulation", fix=f"use one of {', '.join(PICTURES)}")
    _need_matplotlib()
    import matplotlib

    image = io.BytesIO()
    with matplotlib.rc_context(dict(_STYLE)), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # names in any script
        figure = PICTURES[name](simulation)
        metadata = {"Date": None} if target.suffix == ".svg" else {"Software": None}
        figure.savefig(image, format=target.suffix[1:], dpi=110, metadata=metadata, facecolor="white")
    with atomic_output(target) as file:
        file.write(image.getvalue())
    return target


def _need_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UnsupportedError(
            "pictures need matplotlib, which is not installed", fix="pip install 'shardc[plot]'"
        ) from None


def _figure(simulation: Simulation, what: str, height: float, **edges: float) -> Any:
    """An empty page with a title of two lines."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, height))
    figure.subplots_adjust(**{"left": 0.09, "right": 0.968, "bottom": 0.55 / height, "top": 1 - 0.85 / height, **edges})
    s = simulation
    mesh = ", ".join(f"{axis}={size}" for axis, size in s.mesh.items())
    over = ", ".join(f"{axis} on {place}" for axis, place in s.mapping.items())
    facts = f"{s.devices} devices of {s.machine} ({mesh}{'; ' if over else ''}{over})"
    figures = f"step {seconds_text(s.step_seconds)}, MFU {100 * s.mfu:.1f}%"
    at, line = 1 - 0.14 / height, 0.24 / height
    figure.text(0.012, at, _short(f"{s.program}: {what}", 90), fontsize=12, weight="bold", va="top", parse_math=False)
    figure.text(
        0.012, at - line, _short(f"{figures}; {facts}", 172), fontsize=8.5, va="top", color="#555555", parse_math=False
    )
    return figure


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _timeline(simulation: Simulation) -> Any:
    from shardc.launcher.simulate.fold import fold_time
    from shardc.launcher.simulate.plots import draw_timeline

    rows = 1 + len({e.engine for e in simulation.events} - {"compute"})
    figure = _figure(simulation, "what runs when on a device", 1.8 + 0.55 * rows)
    draw_timeline(figure.add_subplot(), simulation, fold_time(simulation))
    return figure


def _memory(simulation: Simulation) -> Any:
    from shardc.launcher.simulate.fold import fold_time
    from shardc.launcher.simulate.plots import draw_memory

    figure = _figure(simulation, "memory of a device", 3.9)
    draw_memory(figure.add_subplot(), simulation, fold_time(simulation))
    return figure


def _traffic(simulation: Simulation) -> Any:
    from shardc.launcher.simulate.plots import draw_links, draw_traffic

    figure = _figure(simulation, "who sends to whom, bytes in a step", 7.0, left=0.06, right=0.92)
    matrix, links = figure.subplots(1, 2, gridspec_kw={"width_ratios": (2.6, 1), "wspace": 0.2})
    draw_traffic(matrix, simulation)
    draw_links(links, simulation)
    return figure


def _breakdown(simulation: Simulation) -> Any:
    from shardc.launcher.simulate.plots import draw_breakdown, draw_work

    rows = min(10, max(3, len(simulation.work)))
    figure = _figure(simulation, "where the time goes", 3.3 + 0.3 * rows, left=0.36)
    ratios = {"height_ratios": (1.5, 0.3 * rows), "hspace": 0.36}
    upper, lower = figure.subplots(2, 1, gridspec_kw=ratios)
    _widen(upper, 0.11)
    draw_breakdown(upper, simulation)
    draw_work(lower, simulation)
    return figure


def _overview(simulation: Simulation) -> Any:
    """Timeline and memory over one time axis, then the breakdown."""
    from shardc.launcher.simulate.fold import fold_time
    from shardc.launcher.simulate.plots import draw_breakdown, draw_memory, draw_timeline

    rows = 1 + len({e.engine for e in simulation.events} - {"compute"})
    height = 5.4 + 0.5 * rows
    figure = _figure(simulation, "a simulated step", height, left=0.11)
    ratios = (1.3, 0.5 * rows + 0.2, 1.7)
    upper, middle, lower = figure.subplots(3, 1, gridspec_kw={"height_ratios": ratios, "hspace": 0.42})
    fold = fold_time(simulation)
    draw_breakdown(upper, simulation)
    draw_timeline(middle, simulation, fold)
    draw_memory(lower, simulation, fold)
    middle.set_xlabel("")
    return figure


def _widen(axes: Any, left: float) -> None:
    box = axes.get_position()
    axes.set_position((left, box.y0, box.x1 - left, box.height))


#: Pictures by name.
PICTURES: Mapping[str, Callable[[Simulation], Any]] = MappingProxyType(
    {"overview": _overview, "timeline": _timeline, "memory": _memory, "traffic": _traffic, "breakdown": _breakdown}
)
