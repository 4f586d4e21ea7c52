"""A simulated step as a Chrome trace (JSON), which https://ui.perfetto.dev opens.

Format: "Trace Event Format" (Google, 2016): complete slices ``X``, flows ``s``/``t``/``f``, counters ``C``, metadata
``M``. Slices of one track must nest, so transfers that share links with others get a lane of their own.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shardc.analysis.simulate.simulated_step import SimulatedEvent, SimulatedStep, SimulatedWork, Skipped
from shardc.hlo.units import count_text, sizes_text
from shardc.launcher.run.output_files import write_text

__all__ = ["lanes", "trace_events", "write_trace"]

_LOOPS, _COMPUTE, _PROCESS = 1, 2, 1

#: (begin, end) in whole nanoseconds.
Span = tuple[int, int]


def write_trace(simulation: SimulatedStep, path: str | Path) -> None:
    """Write the step as a trace: a track for compute, one (or several lanes) per kind of links, memory as a counter.

    Example: ``write_trace(partitioned.simulate("h100-dgx"), "step.trace.json")``. Raises `InputError` for a file that
    cannot be written.
    """
    write_text(Path(path), json.dumps(trace_events(simulation), allow_nan=False, separators=(",", ":")) + "\n")


def trace_events(simulation: SimulatedStep) -> dict[str, Any]:
    """The content of `write_trace`; times in microseconds, exact to the nanosecond."""
    tracks = _tracks(simulation)
    mesh = sizes_text(simulation.mesh)
    title = f"{simulation.program}: one of {count_text(simulation.devices, 'device')}"
    out = [_named("process_name", 0, f"{title} of {simulation.machine} ({mesh})")]
    out += [
        row
        for n, track in enumerate(tracks)
        for row in (_named("thread_name", track.number, track.name), _ordered(track.number, n))
    ]
    for track in tracks:
        out += [{"ph": "X", "pid": _PROCESS, "tid": track.number, **slice_} for slice_ in track.slices]
    out += _flows(simulation, tracks)
    out += [
        {"ph": "C", "pid": _PROCESS, "name": "memory in use (bytes)", "ts": _ns(at) / 1e3, "args": {"bytes": nbytes}}
        for at, nbytes in simulation.memory_curve
    ]
    facts = {
        "program": simulation.program,
        "machine": simulation.machine,
        "mesh": mesh,
        "step_seconds": simulation.step_seconds,
        "mfu": simulation.mfu,
    }
    return {"traceEvents": out, "displayTimeUnit": "ns", "otherData": facts}


@dataclass(slots=True)
class _Track:
    number: int
    name: str
    slices: list[dict[str, Any]] = field(default_factory=list)
    at: dict[SimulatedEvent, Span] = field(default_factory=dict)


def _tracks(simulation: SimulatedStep) -> list[_Track]:
    """Loops, compute, then the lanes of every kind of links in alphabetical order."""
    engines = sorted({e.engine for e in simulation.events} - {"compute"})
    compute = _Track(_COMPUTE, "compute")
    _fill(compute, [e for e in simulation.events if e.engine == "compute"], _skips(simulation, "compute"), simulation)
    tracks = [compute]
    loops = _Track(_LOOPS, "loops", list(_loop_slices(simulation)))
    if loops.slices:
        tracks.insert(0, loops)
    number = _COMPUTE
    for engine in engines:
        own = [e for e in simulation.events if e.engine == engine]
        skips = _skips(simulation, engine)
        split = lanes([*own, *skips])
        for n, lane in enumerate(split):
            number += 1
            track = _Track(number, engine if len(split) == 1 else f"{engine} ({n + 1})")
            events = [x for x in lane if isinstance(x, SimulatedEvent)]
            _fill(track, events, [x for x in lane if isinstance(x, Skipped)], simulation)
            tracks.append(track)
    return tracks


def lanes(items: Sequence[SimulatedEvent | Skipped]) -> list[list[SimulatedEvent | Skipped]]:
    """``items`` split so that those of one lane never overlap; the lowest lane that is free takes the next one."""
    out: list[list[SimulatedEvent | Skipped]] = []
    ends: list[int] = []
    for item in sorted(items, key=lambda x: (x.begin, isinstance(x, Skipped), x.seconds)):
        begin, end = _span(item)
        free = next((n for n, busy in enumerate(ends) if busy <= begin), len(out))
        if free == len(out):
            out.append([])
            ends.append(0)
        out[free].append(item)
        ends[free] = end
    return out


def _fill(track: _Track, events: Sequence[SimulatedEvent], skips: Sequence[Skipped], simulation: SimulatedStep) -> None:
    for event in events:
        begin, end = track.at[event] = _span(event)
        work = simulation.work[event.work]
        name = f"wait for {work.name}" if event.kind == "wait" else work.name
        facts = {**_facts(work), **{f"iteration of {loop}": n for loop, n in event.loops}}
        if event.queued:
            facts["queued_us"] = _ns(event.queued) / 1e3
        track.slices.append(_slice(name, f"{event.kind} {work.opcode}", begin, end, facts))
    for skip in skips:
        name = f"{skip.loop}: iterations {skip.first} to {skip.last}, like the one before"
        track.slices.append(_slice(name, "skipped", *_span(skip), {"iterations": skip.last - skip.first + 1}))
    track.slices.sort(key=lambda s: (s["ts"], -s["dur"]))


def _skips(simulation: SimulatedStep, engine: str) -> list[Skipped]:
    """Skipped iterations of loops in which ``engine`` had something to do."""
    busy = {loop for e in simulation.events if e.engine == engine for loop, _ in e.loops}
    return [s for s in simulation.skipped if s.loop in busy]


def _facts(work: SimulatedWork) -> dict[str, Any]:
    """What is known of a kernel, a collective or a move, without what does not apply."""
    names: tuple[str, ...] = ("opcode", "op_name", "source", "holds", "dtype", "count")
    if work.kind == "collective":
        names += ("axes", "group_size", "algorithm", "payload_bytes", "wire_bytes", "link_bytes", "reason", "value")
    elif work.kind == "move":
        names += ("algorithm", "payload_bytes", "link_bytes")
    else:
        names += ("flops", "read", "written", "limit", "efficiency")
    given = {name: getattr(work, name) for name in names}
    plain = {k: dict(v) if k == "link_bytes" else list(v) if isinstance(v, tuple) else v for k, v in given.items()}
    return {k: v for k, v in plain.items() if v not in ("", [], {})}


def _loop_slices(simulation: SimulatedStep) -> Iterator[dict[str, Any]]:
    """Loops and their iterations, as far as compute tells when those ran; what was skipped as one slice."""
    spans: dict[tuple[Any, ...], Span] = {}

    def cover(key: tuple[Any, ...], span: Span) -> None:
        old = spans.get(key, span)
        spans[key] = (min(old[0], span[0]), max(old[1], span[1]))

    for event in simulation.events:
        if event.engine == "compute":
            for depth in range(len(event.loops)):
                outer = event.loops[:depth]
                cover((*outer, event.loops[depth][0]), _span(event))
                cover(event.loops[: depth + 1], _span(event))
    for skip in simulation.skipped:
        for depth in range(len(skip.loops)):
            cover((*skip.loops[:depth], skip.loops[depth][0]), _span(skip))
            cover(skip.loops[: depth + 1], _span(skip))
        cover((*skip.loops, skip.loop), _span(skip))
        cover((*skip.loops, (skip.loop, skip.first, skip.last)), _span(skip))
    for key, (begin, end) in sorted(spans.items(), key=lambda row: (row[1][0], -row[1][1], len(row[0]), str(row[0]))):
        yield _slice(_loop_name(key[-1]), "loop", begin, end, {})


def _loop_name(part: str | tuple[Any, ...]) -> str:
    if isinstance(part, str):
        return part
    if len(part) == 2:
        return f"iteration {part[1]}"
    return f"iterations {part[1]} to {part[2]}, like the one before"


def _flows(simulation: SimulatedStep, tracks: Sequence[_Track]) -> Iterator[dict[str, Any]]:
    """Arrows from what ran when a transfer was started, to the transfer, to where compute waited for it."""
    compute = next(t for t in tracks if t.number == _COMPUTE)
    ran = sorted((span, n, event) for n, (event, span) in enumerate(compute.at.items()) if event.kind != "wait")
    begins = [span[0] for span, _, _ in ran]
    waits: dict[int, list[Span]] = {}
    for event, span in compute.at.items():
        if event.kind == "wait":
            waits.setdefault(event.work, []).append(span)
    number = 0
    for track in tracks:
        for event, (begin, end) in track.at.items():
            if event.kind != "transfer":
                continue
            number += 1
            name = simulation.work[event.work].name
            common = {"pid": _PROCESS, "cat": "transfer", "name": name, "id": number}
            started = _ns(event.begin - event.queued)
            before = bisect_right(begins, started) - 1
            if before >= 0:
                low, high = ran[before][0]
                issued = {"ph": "s", "tid": _COMPUTE, "ts": max(low, min(started, high - 1)) / 1e3}
                yield {**common, **issued, "bp": "e"}
            yield {**common, "ph": "t" if before >= 0 else "s", "tid": track.number, "ts": begin / 1e3, "bp": "e"}
            done = next((w for w in waits.get(event.work, ()) if w[1] >= end and w[0] >= begin), None)
            if done is not None:
                yield {**common, "ph": "f", "tid": _COMPUTE, "ts": max(done[0], done[1] - 1) / 1e3, "bp": "e"}


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _span(item: SimulatedEvent | Skipped) -> Span:
    """Both ends rounded alike, so that slices which touch still touch."""
    return _ns(item.begin), _ns(item.begin + item.seconds)


def _slice(name: str, category: str, begin: int, end: int, facts: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "cat": category, "ts": begin / 1e3, "dur": (end - begin) / 1e3, "args": facts}


def _named(kind: str, number: int, name: str) -> dict[str, Any]:
    place = {"tid": number} if number else {}
    return {"name": kind, "ph": "M", "pid": _PROCESS, **place, "args": {"name": name}}


def _ordered(number: int, index: int) -> dict[str, Any]:
    return {"name": "thread_sort_index", "ph": "M", "pid": _PROCESS, "tid": number, "args": {"sort_index": index}}
