"""Loops that read and that write so and so many bytes again and again: what a byte takes by what lies between."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.collectives.measured import Points
from shardc.launcher.calibrate.programs import Loop

__all__ = ["memory_fit", "memory_loops"]

#: Bytes that a loop goes over.
SIZES = tuple(1 << n for n in range(13, 27))
_SMALL = SIZES[1::3]
#: Bytes that all devices together go over at most.
_MOST = 1 << 29
#: Bytes that all trips together read or write, about, and the fewest trips.
_TOTAL, _FEWEST = 1 << 26, 3
_SUM = "%sum_f32 (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n  %b = f32[] parameter(1)\n"
_SUM += "  ROOT %c = f32[] add(%a, %b)\n}"


def memory_loops(*, small: bool = False, devices: int = 1) -> list[Loop]:
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
        out.append(Loop(f"read {nbytes}", (f"f32[{n}]",), "\n".join(body), ("%x",), trips, (0.0,), _SUM))
        line = f"  %r = f32[{n}] negate(%state0) @"
        out.append(Loop(f"update {nbytes}", (f"f32[{n}]",), line, ("%r",), trips))
    return out


def memory_fit(seconds: Mapping[str, float], call: float) -> tuple[Points, Points]:
    """Seconds per byte of reading and of writing, by the bytes that were used since the last use of the same ones.

    Writing is what an update in place takes beyond reading, and no less than half of what reading takes.
    """
    read, write = [], []
    for name, spent in seconds.items():
        what, _, size = name.partition(" ")
        if what != "read" or f"update {size}" not in seconds:
            continue
        nbytes = float(size)
        one = max(spent - call, 0.1 * spent) / nbytes
        both = max(seconds[f"update {size}"] - call, 0.0) / nbytes
        read.append((nbytes, one))
        write.append((nbytes, max(both - one, 0.5 * one)))
    return tuple(sorted(read)), tuple(sorted(write))
