"""Pictures of a sweep: how the program scales, where the candidates' time goes. Needs matplotlib (extra ``plot``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from shardc.analysis.figures import make_folder, titled_figure, write_figure
from shardc.hlo.units import seconds_text

if TYPE_CHECKING:
    from shardc.analysis.sweep.result import SweepResult

__all__ = ["PICTURES", "draw_sweep"]

_COLOURS = ("#3b6ea5", "#d1495b", "#c7c7c7")
_IDEAL, _MFU = "#999999", "#4f9d69"
#: Candidates that are drawn per number of devices, and in all.
_EACH, _MOST = 6, 40


def draw_sweep(result: SweepResult, folder: str | Path, suffix: str = ".png") -> list[Path]:
    """Write the pictures of `PICTURES` into ``folder``, which is made where missing; returns the files.

    Raises `UnsupportedError` without matplotlib, `InputError` for a folder that cannot be written, a suffix other
    than .png or .svg, and a sweep in which nothing runs.
    """
    _ = result.best  # nothing to draw is told
    target = make_folder(folder)

    def write(name: str, draw: Callable[[SweepResult], Any]) -> Path:
        return write_figure(target / f"{name}{suffix}", lambda: draw(result))

    return [write(name, draw) for name, draw in PICTURES.items()]


def _figure(result: SweepResult, what: str, height: float, **edges: float) -> Any:
    """An empty page with a title of two lines."""
    edges = {"bottom": 0.6 / height, "top": 1 - 0.95 / height, **edges}
    return titled_figure(f"{result.program}: {what}", result.title.partition(" on ")[2], height, **edges)


def _scaling(result: SweepResult) -> Any:
    """Step time over devices with what all candidates take, and how much of the machine is used."""
    from matplotlib.ticker import LogLocator, NullLocator

    kind = "weak scaling" if result.weak else "strong scaling"
    figure = _figure(result, f"{kind} of the best candidates", 4.6)
    left, right = figure.subplots(1, 2, gridspec_kw={"wspace": 0.2})
    rows = result.scaling
    counts = [row.devices for row in rows]
    others = [(o.devices, o.step_seconds) for o in result.ranked]
    left.plot(*zip(*others, strict=True), ".", color="#c9d6e6", markersize=7, label="every candidate", zorder=1)
    base = rows[0].step_seconds
    ideal = [base if result.weak else base * counts[0] / n for n in counts]
    left.plot(counts, ideal, "--", color=_IDEAL, linewidth=1.2, label="ideal", zorder=2)
    left.plot(counts, [r.step_seconds for r in rows], "o-", color=_COLOURS[0], label="best", zorder=3)
    if result.weak:
        left.set_ylim(0, 1.08 * max(s for _, s in others))
    else:
        left.set_yscale("log")
        left.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        left.yaxis.set_minor_locator(NullLocator())
    left.yaxis.set_major_formatter(lambda y, _: seconds_text(y) if y else "0")
    left.set_ylabel("step" if result.weak else "step (logarithmic)")
    right.plot(counts, [100 * r.efficiency for r in rows], "o-", color=_COLOURS[0], label="efficiency")
    right.plot(counts, [100 * r.mfu for r in rows], "s-", color=_MFU, label="MFU")
    right.set_ylim(0, max(105.0, *(105 * r.efficiency for r in rows)))
    right.set_ylabel("percent")
    for axes in (left, right):
        _over_devices(axes, counts)
        axes.legend(frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
    return figure


def _over_devices(axes: Any, counts: list[int]) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(counts[:: -(-len(counts) // 10)]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:.0f}")
    axes.set_xlabel("devices")
    axes.grid(color="#e6e6e6", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _candidates(result: SweepResult) -> Any:
    """A bar per candidate: compute, exposed communication, and idle time.

    With the same work on all, bars are as long as the step times the devices, so that ideal scaling keeps them equal.
    """
    rows = result.top(min(_EACH, max(1, _MOST // len(result.best_by_devices))))
    figure = _figure(result, "the fastest candidates by number of devices", 2.0 + 0.27 * len(rows), left=0.36)
    axes = figure.add_subplot()
    places = [-k - 0.5 * len({o.devices for o in rows[: k + 1]}) for k in range(len(rows))]
    begin = [0.0] * len(rows)
    scale = [1 if result.weak else o.devices for o in rows]
    parts = {
        "compute": [n * o.compute_seconds for n, o in zip(scale, rows, strict=True)],
        "exposed communication": [n * o.exposed_seconds for n, o in zip(scale, rows, strict=True)],
        "idle": [n * o.idle_seconds for n, o in zip(scale, rows, strict=True)],
    }
    for (label, seconds), colour in zip(parts.items(), _COLOURS, strict=True):
        axes.barh(places, seconds, left=begin, color=colour, label=label, height=0.72)
        begin = [b + s for b, s in zip(begin, seconds, strict=True)]
    for place, end, o in zip(places, begin, rows, strict=True):
        axes.text(end, place, f" {seconds_text(o.step_seconds)}, MFU {100 * o.mfu:.1f}%", va="center", fontsize=8)
    several = len({o.set for o in rows}) > 1
    titles = [f"{o.devices}:  {o.mesh_text}" + f"  {o.set}" * several for o in rows]
    axes.set_yticks(places, titles, fontsize=8, parse_math=False)
    axes.set_xlim(0, 1.22 * max(begin))
    axes.set_ylim(places[-1] - 0.8, places[0] + 0.8)
    axes.xaxis.set_major_formatter(lambda x, _: seconds_text(x) if x else "0")
    axes.set_xlabel("step" if result.weak else "step x devices")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.legend(frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
    return figure


#: Pictures by name.
PICTURES: Mapping[str, Callable[[SweepResult], Any]] = MappingProxyType(
    {"scaling": _scaling, "candidates": _candidates}
)
