"""Loops that read, write and change so and so many bytes again and again: what a byte takes by what lies between."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.analysis.calibrate.programs import MeasuredLoop
from shardc.costs.machines.measured import Points

__all__ = ["memory_fit", "memory_loops"]

#: Bytes that a loop goes over.
SIZES = tuple(sorted([1 << n for n in range(13, 27)] + [3 << n for n in range(22, 25)]))
_SMALL = tuple(1 << n for n in range(14, 27, 3))
#: Bytes that all devices together go over at most.
_MOST = 1 << 29
#: Bytes that all trips together read or write, about, and the fewest trips.
_TOTAL, _FEWEST = 1 << 26, 3
_SUM = "%sum_f32 (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n  %b = f32[] parameter(1)\n"
_SUM += "  ROOT %c = f32[] add(%a, %b)\n}"


def memory_loops(*, small: bool = False, devices: int = 1) -> list[MeasuredLoop]:
    """Sums of arrays, which read, and changes of sign in place, which read and write; as many bytes as ``devices``
    that do it at the same time may take."""
    out = []
    for nbytes in _SMALL if small else SIZES:
        if nbytes > max(1 << 22, _MOST // devices):
            continue
        n = nbytes // 4
        trips = max(_FEWEST, _TOTAL // nbytes // (4 if nbytes < 1 << 22 else 1))
        body = [
            "  %zero = f32[] constant(0)",
            "  %r = f32[] reduce(%state0, %zero), dimensions={0}, to_apply=%sum_f32 @",
            "  %one_element = f32[1] reshape(%r)",
            "  %at = s32[] constant(0)",
            f"  %x = f32[{n}] dynamic-update-slice(%state0, %one_element, %at)",
        ]
        out.append(MeasuredLoop(f"read {nbytes}", (f"f32[{n}]",), "\n".join(body), ("%x",), trips, (0.0,), _SUM))
        body = [
            f"  %r = f32[{n}] broadcast(%state0), dimensions={{}} @",
            "  %first = f32[1] slice(%state1), slice={[0:1]}",
            "  %x = f32[] reshape(%first)",
        ]
        out.append(
            MeasuredLoop(f"write {nbytes}", ("f32[]", f"f32[{n}]"), "\n".join(body), ("%x", "%r"), trips, (1.0, 1.0))
        )
        line = f"  %r = f32[{n}] negate(%state0) @"
        out.append(MeasuredLoop(f"update {nbytes}", (f"f32[{n}]",), line, ("%r",), trips))
    return out


def memory_fit(seconds: Mapping[str, float], call: float) -> dict[str, Points]:
    """Seconds per byte by ``read``, ``write`` and ``update``, each by the bytes that were used since the last use of
    the same ones.

    An update of what is read takes what it takes beyond reading. No curve falls as more bytes lie between.
    """
    found: dict[str, list[tuple[float, float]]] = {"read": [], "write": [], "update": []}
    for name, spent in seconds.items():
        what, _, size = name.partition(" ")
        if what in found:
            nbytes = float(size)
            found[what].append((nbytes, max(spent - call, 0.1 * spent) / nbytes))
    read = dict(found["read"])
    found["update"] = [(n, max(s - read[n], 0.1 * read[n])) for n, s in found["update"] if n in read]
    return {what: _rising(sorted(points)) for what, points in found.items()}


def _rising(points: list[tuple[float, float]]) -> Points:
    out: list[tuple[float, float]] = []
    for size, value in points:
        out.append((size, max(value, out[-1][1]) if out else value))
    return tuple(out)
