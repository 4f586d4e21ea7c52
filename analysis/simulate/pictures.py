"""Pictures of a simulated step as files: PNG or SVG. Needs matplotlib (the extra ``plot``), loaded only here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from shardc.analysis.figures import make_folder, titled_figure, write_figure
from shardc.hlo.errors import InputError
from shardc.hlo.units import count_text, seconds_text

if TYPE_CHECKING:
    from shardc.analysis.simulate.simulated_step import SimulatedStep

__all__ = ["PICTURES", "draw_picture", "draw_pictures"]


def draw_pictures(simulation: SimulatedStep, folder: str | Path, suffix: str = ".png") -> list[Path]:
    """Write every picture of `PICTURES` into ``folder``, which is made where missing; returns the files.

    Example: ``draw_pictures(partitioned.simulate("h100-dgx"), "pictures")``. Raises `UnsupportedError` without
    matplotlib, `InputError` for a folder that cannot be written.
    """
    target = make_folder(folder)
    return [draw_picture(simulation, target / f"{name}{suffix}", name) for name in PICTURES]


def draw_picture(simulation: SimulatedStep, path: str | Path, name: str = "overview") -> Path:
    """Write one of `PICTURES` as PNG or SVG, by the suffix of ``path``.

    Raises as `draw_pictures`, and `InputError` for a suffix or a name that is not known.
    """
    if name not in PICTURES:
        raise InputError(f"unknown picture of a simulation {name!r}", fix=f"use one of {', '.join(PICTURES)}")
    return write_figure(path, lambda: PICTURES[name](simulation))


def _figure(simulation: SimulatedStep, what: str, height: float, **edges: float) -> Any:
    """An empty page with a title of two lines."""
    s = simulation
    mesh = ", ".join(f"{axis}={size}" for axis, size in s.mesh.items())
    over = ", ".join(f"{axis} on {place}" for axis, place in s.mapping.items())
    facts = f"{count_text(s.devices, 'device')} of {s.machine} ({mesh}{'; ' if over else ''}{over})"
    figures = f"step {seconds_text(s.step_seconds)}, MFU {100 * s.mfu:.1f}%"
    return titled_figure(f"{s.program}: {what}", f"{figures}; {facts}", height, **edges)


def _timeline(simulation: SimulatedStep) -> Any:
    from shardc.analysis.simulate.fold import fold_time
    from shardc.analysis.simulate.plots import draw_timeline

    rows = 1 + len({e.engine for e in simulation.events} - {"compute"})
    figure = _figure(simulation, "what runs when on a device", 1.8 + 0.55 * rows)
    draw_timeline(figure.add_subplot(), simulation, fold_time(simulation))
    return figure


def _memory(simulation: SimulatedStep) -> Any:
    from shardc.analysis.simulate.fold import fold_time
    from shardc.analysis.simulate.plots import draw_memory

    figure = _figure(simulation, "memory of a device", 3.9)
    draw_memory(figure.add_subplot(), simulation, fold_time(simulation))
    return figure


def _traffic(simulation: SimulatedStep) -> Any:
    from shardc.analysis.simulate.plots import draw_links, draw_traffic

    figure = _figure(simulation, "who sends to whom, bytes in a step", 7.0, left=0.06, right=0.92)
    matrix, links = figure.subplots(1, 2, gridspec_kw={"width_ratios": (2.6, 1), "wspace": 0.2})
    draw_traffic(matrix, simulation)
    draw_links(links, simulation)
    return figure


def _breakdown(simulation: SimulatedStep) -> Any:
    from shardc.analysis.simulate.plots import draw_breakdown, draw_work

    rows = min(10, max(3, len(simulation.work)))
    figure = _figure(simulation, "where the time goes", 3.3 + 0.3 * rows, left=0.36)
    ratios = {"height_ratios": (1.5, 0.3 * rows), "hspace": 0.36}
    upper, lower = figure.subplots(2, 1, gridspec_kw=ratios)
    _widen(upper, 0.11)
    draw_breakdown(upper, simulation)
    draw_work(lower, simulation)
    return figure


def _overview(simulation: SimulatedStep) -> Any:
    """Timeline and memory over one time axis, then the breakdown."""
    from shardc.analysis.simulate.fold import fold_time
    from shardc.analysis.simulate.plots import draw_breakdown, draw_memory, draw_timeline

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
PICTURES: Mapping[str, Callable[[SimulatedStep], Any]] = MappingProxyType(
    {"overview": _overview, "timeline": _timeline, "memory": _memory, "traffic": _traffic, "breakdown": _breakdown}
)
