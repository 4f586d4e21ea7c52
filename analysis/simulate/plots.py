"""What pictures of a simulated step show, drawn into axes of matplotlib: timeline, memory, traffic, breakdown."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from shardc.analysis.simulate.fold import FoldedTime
from shardc.analysis.simulate.simulated_step import SimulatedEvent, SimulatedStep, SimulatedWork
from shardc.analysis.simulate.trace import lanes
from shardc.analysis.simulate.traffic_matrix import block_size, traffic_matrix
from shardc.hlo.units import bytes_text, flops_text, seconds_text

__all__ = [
    "COLOURS",
    "colour_of",
    "draw_breakdown",
    "draw_links",
    "draw_memory",
    "draw_timeline",
    "draw_traffic",
    "draw_work",
]

#: What compute and links do, by colour.
COLOURS: Mapping[str, str] = MappingProxyType(
    {
        "limited by compute": "#4e79a7",
        "limited by memory": "#76b7b2",
        "limited by launch": "#b6b0a8",
        "measured": "#6f9bd1",
        "copy": "#d9cf9c",
        "wait": "#f6d5d3",
        "idle": "#ffffff",
        "all-gather": "#f28e2b",
        "reduce-scatter": "#b07aa1",
        "all-reduce": "#e15759",
        "all-to-all": "#59a14f",
        "collective-permute": "#9c755f",
        "other collective": "#8c8c8c",
    }
)
_GREY, _DARK, _ALARM = "#6b6b6b", "#222222", "#c0392b"
_ROW, _LANES = 0.8, 4
#: Cells of the traffic matrix with less than this share of the most are all as faint.
_FAINTEST = 1e-4
#: Share of the axis from which on a bar has an edge.
_EDGED = 0.004


def colour_of(kind: str, work: SimulatedWork) -> str:
    """The key in `COLOURS` of what is done for ``work`` by an event of this ``kind``."""
    if kind in ("wait", "copy"):
        return kind
    if work.kind == "move":
        return "copy"
    if work.kind == "collective":
        opcode = work.opcode.removeprefix("ragged-").removesuffix("-start").replace("broadcast", "permute")
        return opcode if opcode in COLOURS else "other collective"
    return work.limit if work.limit == "measured" else f"limited by {work.limit or 'compute'}"


def draw_timeline(axes: Any, simulation: SimulatedStep, fold: FoldedTime) -> None:
    """A row per engine, lanes within it where transfers overlap; skipped iterations are hatched blocks."""
    engines = ["compute", *sorted({e.engine for e in simulation.events} - {"compute"})]
    used: set[str] = set()
    for row, engine in enumerate(engines):
        split = lanes([e for e in simulation.events if e.engine == engine])
        number = max(1, min(len(split), _LANES))
        for n, lane in enumerate(split):
            place = (row - _ROW / 2 + _ROW * (n % number) / number, _ROW / number)
            events = [e for e in lane if isinstance(e, SimulatedEvent)]
            used |= _bars(axes, simulation, fold, events, place)
    for skip in fold.skipped:
        low, high = fold.place([skip.begin, skip.begin + skip.seconds])
        box = {"height": len(engines), "width": high - low, "xy": (low, -0.5)}
        axes.add_patch(_patch(box, facecolor="#f4f4f4", edgecolor="#cccccc", hatch="//", linewidth=0.5, zorder=3))
        if high - low < 0.032:
            continue
        text = f"{skip.last - skip.first + 1} more\niterations\n{seconds_text(skip.seconds)}"
        axes.text(
            (low + high) / 2, (len(engines) - 1) / 2, text, fontsize=7.5, ha="center", va="center", zorder=4,
            rotation=90 if high - low < 0.07 else 0, color=_DARK,
            bbox={"facecolor": "#f4f4f4", "edgecolor": "none", "pad": 1.5},
        )  # fmt: skip
    axes.set_yticks(range(len(engines)), engines, fontsize=9)
    axes.set_ylim(len(engines) - 0.5, -0.75)
    _time_axis(axes, fold)
    used |= {"idle"} if simulation.idle_seconds else set()
    _legend(axes, [name for name in COLOURS if name in used])


def _bars(
    axes: Any, simulation: SimulatedStep, fold: FoldedTime, events: Sequence[SimulatedEvent], place: tuple[float, float]
) -> set[str]:
    """One lane; names in the bars that are wide enough. Returns what is in it."""
    inches = axes.get_figure().get_size_inches()[0] * axes.get_position().width
    spans: dict[str, list[tuple[float, float]]] = {}
    for event in events:
        work = simulation.work[event.work]
        low, high = fold.place([event.begin, event.begin + event.seconds])
        key = colour_of(event.kind, work)
        spans.setdefault(key, []).append((low, max(high - low, 2e-4)))
        fits = int((high - low) * inches / 0.068)
        short = _fitted(_title(work), fits, 3 if place[1] > 0.7 else 1)
        if event.kind != "wait" and short and place[1] > 0.3:
            where = ((low + high) / 2, place[0] + place[1] / 2)
            axes.text(
                *where,
                short,
                fontsize=7,
                color=_ink(COLOURS[key]),
                ha="center",
                va="center",
                zorder=5,
                parse_math=False,
            )
    for key, bars in spans.items():
        for wide in (True, False):
            some = [b for b in bars if (b[1] > _EDGED) == wide]
            axes.broken_barh(some, place, facecolor=COLOURS[key], linewidth=0.3 if wide else 0, **_texture(key))
    return set(spans)


def _fitted(text: str, fits: int, most: int) -> str:
    """``text`` in ``most`` lines of ``fits`` letters, broken behind spaces, points and underscores; else cut."""
    lines = [""]
    for part in re.findall(r"[^ ._]+[ ._]*|[ ._]+", text):
        if len((lines[-1] + part).rstrip()) > fits and lines[-1]:
            lines.append("")
        lines[-1] += part
    lines = [line.rstrip() for line in lines]
    if len(lines) <= most and all(len(line) <= fits for line in lines):
        return "\n".join(lines)
    return text[: fits - 1] + "…" if fits >= 9 else ""


def _texture(key: str) -> dict[str, Any]:
    if key == "wait":
        return {"hatch": "////", "edgecolor": "#d98880"}
    return {"edgecolor": _GREY if key == "idle" else "white"}


def _ink(colour: str) -> str:
    """Black or white, whichever reads better on ``colour``."""
    red, green, blue = (int(colour[n : n + 2], 16) for n in (1, 3, 5))
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 135 else _DARK


def _title(work: SimulatedWork) -> str:
    """The end of what the program calls it, or the instruction's name; of a collective what moves how."""
    title = work.op_name.rpartition("/")[2] or work.name
    return f"{work.opcode} {work.value or title}" if work.kind == "collective" else title


def _patch(box: Mapping[str, Any], **style: Any) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle(**box, **style)


def _time_axis(axes: Any, fold: FoldedTime) -> None:
    """Round times, none within blocks of skipped iterations."""
    bounds = [0.0, *(t for s in fold.folded for t in (s.begin, s.begin + s.seconds)), fold.seconds[-1]]
    pieces = [(low, high) for low, high in zip(bounds[::2], bounds[1::2], strict=True) if high >= low]
    step = _round_step(sum(high - low for low, high in pieces) / 8)
    times = [n * step for low, high in pieces for n in range(math.ceil(low / step), math.floor(high / step) + 1)]
    ticks: list[tuple[float, float]] = []
    for time in times:
        place = float(fold.place(time))
        if not ticks or place - ticks[-1][0] > 0.05:
            ticks.append((place, time))
    axes.set_xlim(0, 1)
    axes.set_xticks([p for p, _ in ticks], [_time(t) for _, t in ticks], fontsize=8)
    axes.set_xlabel("time in the step" + (" (skipped iterations folded)" if fold.folded else ""), fontsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _round_step(least: float) -> float:
    """The next of 1, 2 and 5 times a power of ten."""
    if least <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return next((n * power for n in (1, 2, 5) if n * power >= least), 10 * power)


def _time(seconds: float) -> str:
    return seconds_text(seconds) if seconds else "0"


def _legend(axes: Any, names: Sequence[str]) -> None:
    from matplotlib.patches import Patch

    if names:
        labels = {"wait": "compute waits", "idle": "gaps: idle"}
        handles = [Patch(facecolor=COLOURS[n], label=labels.get(n, n), linewidth=0.3, **_texture(n)) for n in names]
        box = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "ncols": min(len(names), 6), "frameon": False}
        axes.legend(handles=handles, fontsize=8, handlelength=1.1, columnspacing=1.1, borderaxespad=0.2, **box)


def draw_memory(axes: Any, simulation: SimulatedStep, fold: FoldedTime) -> None:
    """Bytes in use over time, the peak with its size, and the capacity where it is near."""
    from matplotlib.ticker import MaxNLocator

    times = [t for t, _ in simulation.memory_curve] or [0.0]
    sizes = [b for _, b in simulation.memory_curve] or [0]
    unit, name = _unit(max(*sizes, simulation.peak_bytes))
    end = fold.seconds[-1]
    places, heights = fold.place([*times, end]), np.array([*sizes, sizes[-1]]) / unit
    axes.fill_between(places, heights, step="post", color="#4e79a7", alpha=0.3, linewidth=0)
    axes.step(places, heights, where="post", color="#4e79a7", linewidth=1.2)
    needed, capacity = simulation.peak_bytes / unit, simulation.capacity_bytes / unit
    top = max(needed, float(heights.max()))
    axes.axhline(needed, color=_GREY, linewidth=1, linestyle=":", label=f"needed {bytes_text(simulation.peak_bytes)}")
    at = int(np.argmax(heights))
    axes.plot([places[at]], [heights[at]], "o", color=_DARK, markersize=3.5, clip_on=False)
    text = f"peak: {bytes_text(max(sizes))} in use at {_time(float(fold.time(places[at])))}"
    if capacity:
        text += f"; {100 * needed / capacity:.3g}% of the capacity of {bytes_text(simulation.capacity_bytes)} needed"
    axes.set_title(text, fontsize=8.5, loc="left", color=_DARK if simulation.fits else _ALARM, pad=5)
    if capacity and top > capacity / 4:
        axes.axhline(capacity, color=_ALARM, linewidth=1.2, linestyle="--", label="capacity")
        top = max(top, capacity)
    box = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "ncols": 2, "frameon": False, "borderaxespad": 0.1}
    axes.legend(fontsize=8, **box)
    axes.set_yticks([t for t in MaxNLocator(5).tick_values(0, top or 1) if 0 <= t <= (top or 1)])
    axes.set_ylim(0, (top or 1) * 1.06)
    axes.set_ylabel(f"{name} in use", fontsize=9)
    axes.tick_params(axis="y", labelsize=8)
    _time_axis(axes, fold)


def _unit(n: float) -> tuple[float, str]:
    """The unit in which ``n`` bytes are a number of one to four digits."""
    names = ("B", "KiB", "MiB", "GiB", "TiB")
    power = min(int(np.log2(max(n, 1)) // 10), len(names) - 1)
    return 1024.0**power, names[power]


def draw_traffic(axes: Any, simulation: SimulatedStep, blocks: int = 64) -> None:
    """Who sends how much to whom in a step: a cell per pair of devices, or of blocks of neighbouring ones."""
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.ticker import FuncFormatter, NullLocator

    matrix = traffic_matrix(simulation, blocks)
    count = len(matrix)
    shown = np.ma.masked_less_equal(matrix, 0)
    axes.set_facecolor("#f4f4f4")
    if shown.count() == 0:
        axes.text(0.5, 0.5, "no device sends anything", transform=axes.transAxes, ha="center", fontsize=10)
        axes.set_xticks([])
        axes.set_yticks([])
        return
    high = float(shown.max())
    low = max(float(shown.min()), high * _FAINTEST)
    norm = LogNorm(low, high) if high > 4 * low else Normalize(0, high)
    image = axes.imshow(shown, norm=norm, cmap="YlGnBu", interpolation="nearest")
    bar = axes.get_figure().colorbar(image, ax=axes, fraction=0.046, pad=0.03)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda n, _: bytes_text(n)))
    bar.ax.yaxis.set_minor_locator(NullLocator())
    bar.ax.tick_params(labelsize=8)
    if isinstance(norm, LogNorm):
        bar.set_ticks(np.geomspace(low, high, 5).tolist())
    each = block_size(simulation.devices, blocks)
    ticks = range(0, count, max(1, 1 << max(0, (count - 1) // 10).bit_length()))
    labels = [str(round(t * each)) for t in ticks]
    axes.set_xticks(ticks, labels, fontsize=8)
    axes.set_yticks(ticks, labels, fontsize=8)
    what = "device" if each == 1 else f"first device of a block of {each}"
    axes.set_xlabel(f"to ({what})", fontsize=9)
    axes.set_ylabel(f"from ({what})", fontsize=9)


def draw_links(axes: Any, simulation: SimulatedStep) -> None:
    """What one device sends in a step, by kind of links, and by opcode of the collective."""
    rows = [(level, sent, "#4e79a7") for level, sent in simulation.link_bytes.items() if sent]
    kinds: dict[str, float] = {}
    for work in simulation.work:
        if work.kind == "collective" and work.wire_bytes:
            kinds[work.opcode] = kinds.get(work.opcode, 0.0) + float(work.wire_bytes) * work.count
    ranked = sorted(kinds.items(), key=lambda row: (-row[1], row[0]))
    rows += [(op, n, COLOURS.get(op, COLOURS["other collective"])) for op, n in ranked]
    most = max((sent for _, sent, _ in rows), default=1.0)
    for n, (name, sent, colour) in enumerate(rows):
        axes.barh(n, sent, height=0.5, color=colour)
        axes.text(0, n - 0.3, f"{name}: {bytes_text(sent)}", fontsize=8.5, color=_DARK, va="bottom", parse_math=False)
    axes.set_title("one device sends, by links and by collective", fontsize=9, loc="left")
    axes.set_ylim(max(len(rows), 7) - 0.4, -0.9)
    axes.set_xlim(0, most * 1.02)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_axis_off()


def draw_breakdown(axes: Any, simulation: SimulatedStep) -> None:
    """What the step consists of, and how much of the communication hides behind compute."""
    s = simulation
    limits = _by_limit(s)
    total = s.step_seconds or 1.0
    compute = [(name, seconds, COLOURS[name]) for name, seconds in limits.items()]
    rest = s.compute_seconds - sum(limits.values())
    compute += [("other compute", rest, "#a8bcd4")] if rest > 1e-3 * total else []
    step = [
        *compute,
        ("exposed communication", s.exposed_seconds, COLOURS["all-reduce"]),
        ("idle", s.idle_seconds, "#d0d0d0"),
    ]
    links = [
        ("exposed", s.exposed_seconds, COLOURS["all-reduce"]),
        ("overlapped", s.overlapped_seconds, "#9fce9a"),
    ]
    for row, parts in enumerate((step, links)):
        _stack(axes, row, [p for p in parts if p[1] > 0], total)
    axes.set_yticks([0, 1], ["step", "communication"], fontsize=9)
    axes.set_ylim(1.62, -0.62)
    most = max(1.0, (s.exposed_seconds + s.overlapped_seconds) / total)
    axes.set_xlim(0, 1.001 * most)
    tick = _round_step(most * total / 6)
    times = [n * tick for n in range(math.floor(most * total / tick) + 1)]
    axes.set_xticks([t / total for t in times], [_time(t) for t in times], fontsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _by_limit(simulation: SimulatedStep) -> dict[str, float]:
    """Seconds of kernels by what limits them, in the order of `COLOURS`."""
    found: dict[str, float] = {}
    for work in simulation.work:
        if work.kind not in ("collective", "move"):
            key = colour_of(work.kind, work)
            found[key] = found.get(key, 0.0) + work.seconds * work.count
    total = sum(found.values())
    scale = min(1.0, simulation.compute_seconds / total) if total else 0.0
    return {name: found[name] * scale for name in COLOURS if found.get(name)}


def _stack(axes: Any, row: int, parts: Sequence[tuple[str, float, str]], total: float) -> None:
    """Parts side by side, with name and share where they fit; those of the small ones below."""
    at = 0.0
    small: list[tuple[float, str]] = []
    for name, seconds, colour in parts:
        share = seconds / total
        axes.barh(row, share, left=at, height=0.62, color=colour, edgecolor="white", linewidth=0.8)
        text = f"{name}\n{seconds_text(seconds)}, {100 * share:.1f}%"
        if share > 0.0074 * max(map(len, text.split("\n"))):
            axes.text(at + share / 2, row, text, ha="center", va="center", fontsize=8, color=_ink(colour))
        else:
            small.append((at, text.replace("\n", " ")))
        at += share
    line = "; ".join(text for _, text in small)
    if small:
        place = max(0.0, min(small[0][0], 1 - 0.0066 * len(line)))
        axes.text(place, row + 0.34, line, ha="left", va="top", fontsize=7.5, color=_DARK)


def draw_work(axes: Any, simulation: SimulatedStep, most: int = 10) -> None:
    """The kernels and collectives that take longest in a step, all executions together."""
    rows = list(_longest(simulation))[:most]
    for n, (_, seconds, key, facts) in enumerate(rows):
        axes.barh(n, seconds, height=0.66, color=COLOURS[key])
        axes.text(
            seconds, n, f"  {seconds_text(seconds)}  {facts}", va="center", fontsize=8, color=_DARK, parse_math=False
        )
    longest = max((seconds for _, seconds, _, _ in rows), default=1.0) or 1.0
    axes.set_yticks(range(len(rows)), [name for name, *_ in rows], fontsize=8, parse_math=False)
    axes.set_ylim(max(len(rows), 1) - 0.4, -0.6)
    axes.set_xlim(0, longest * 1.75)
    axes.set_xticks([])
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)
    _legend(axes, [name for name in COLOURS if name in {key for _, _, key, _ in rows}])


def _longest(simulation: SimulatedStep) -> Iterator[tuple[str, float, str, str]]:
    """Title, seconds, colour and facts, longest first; the same operation in the same place once."""
    groups: dict[tuple[str, str, str], list[SimulatedWork]] = {}
    for work in simulation.work:
        groups.setdefault((work.kind, work.opcode, work.op_name or work.name), []).append(work)
    added = [(sum(w.seconds * w.count for w in works), n, works) for n, works in enumerate(groups.values())]
    for seconds, _, works in sorted(added, key=lambda row: (-row[0], row[1])):
        first, times = max(works, key=lambda w: w.seconds * w.count), sum(w.count for w in works)
        if first.kind == "collective":
            sent = sum(w.wire_bytes * w.count for w in works)
            hidden = sum(w.hidden_seconds for w in works)
            facts = f"{bytes_text(sent)} over {'+'.join(first.axes) or 'groups'}, {times}×"
            facts += f", {100 * min(hidden / seconds, 1):.0f}% hidden" if seconds else ""
        elif first.kind == "move":
            facts = f"{bytes_text(sum(w.payload_bytes * w.count for w in works))} over {first.algorithm}, {times}×"
        else:
            flops = sum(w.flops * w.count for w in works)
            facts = f"{flops_text(flops)}, {times}×" if flops else f"{times}×"
        source = first.source.rpartition("/")[2]
        scope = "" if first.kind == "collective" else first.op_name.rpartition("/")[0].rpartition("/")[2]
        title = f"{scope}/{_title(first)}" if scope else _title(first)
        title = _short(title, 56 - len(source)) + (f" ({source})" if source else "")
        yield title, seconds, colour_of(first.kind, first), facts


def _short(text: str, most: int) -> str:
    most = max(most, 12)
    return text if len(text) <= most else f"{text[: most // 2]}…{text[1 - most // 2 :]}"
