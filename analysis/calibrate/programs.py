"""The programs that are measured: HLO text of loops, each of which does one thing over and over on its own state.

What a loop does to its state depends on the state, so that nothing can be hoisted out of it, and its values stay
finite. How often it goes round is an argument, so that it stays a loop.
The instruction that is timed has the loop's name as ``op_name``; the profile of the compiled program is read by it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.ir.types import DTYPES

__all__ = ["MeasuredLoop", "arguments_of", "module_text"]

_SHAPE = re.compile(r"^(\w+)\[([\d,]*)\]$")


@dataclass(frozen=True, slots=True)
class MeasuredLoop:
    """``trips`` times ``body``: lines of HLO over ``%state0``, ``%state1``, ..., the state of ``shapes``, which starts
    filled with ``values`` and goes on with ``results``.

    ``@`` at the end of a line of the body stands for the metadata that names it. ``extra`` are computations that the
    body calls; ``times`` is how often it does what is timed.
    """

    name: str
    shapes: tuple[str, ...]
    body: str
    results: tuple[str, ...]
    trips: int
    values: tuple[float, ...] = ()
    extra: str = ""
    times: int = 1

    @property
    def bytes(self) -> int:
        """Of the state."""
        return sum(_nbytes(s) for s in self.shapes)


def module_text(loops: Sequence[MeasuredLoop], devices: int = 1) -> str:
    """A module whose entry runs one loop after the other and returns what they leave, in one flat tuple."""
    header = "HloModule calibration" + (f", num_partitions={devices}" if devices > 1 else "")
    computations: list[str] = []
    for loop in loops:
        if loop.extra and loop.extra not in computations:
            computations.append(loop.extra)
    computations += [_computations(n, loop) for n, loop in enumerate(loops)]
    lines, results, types, number = [], [], [], 0
    for n, loop in enumerate(loops):
        state = f"(s32[], s32[], {', '.join(loop.shapes)})"
        lines.append(f"  %a{number} = s32[] parameter({number})")
        names, limit = [], f"%a{number}"
        types.append("s32[]")
        results.append(limit)
        number += 1
        for shape in loop.shapes:
            lines.append(f"  %a{number} = {shape} parameter({number})")
            names.append(f"%a{number}")
            number += 1
        lines.append(f"  %z{n} = s32[] constant(0)")
        lines.append(f"  %t{n} = {state} tuple(%z{n}, {limit}, {', '.join(names)})")
        lines.append(f"  %w{n} = {state} while(%t{n}), condition=%condition{n}, body=%body{n}")
        for k, shape in enumerate(loop.shapes):
            lines.append(f"  %o{n}_{k} = {shape} get-tuple-element(%w{n}), index={k + 2}")
            results.append(f"%o{n}_{k}")
            types.append(shape)
    parameters = ", ".join(f"a{k}: {shape}" for k, shape in enumerate(types))
    root = f"  ROOT %results = ({', '.join(types)}) tuple({', '.join(results)})"
    entry = [f"ENTRY %main ({parameters}) -> ({', '.join(types)}) {{", *lines, root, "}"]
    return "\n\n".join([header, *computations, "\n".join(entry)]) + "\n"


def arguments_of(loops: Sequence[MeasuredLoop]) -> list[NDArray[np.generic]]:
    """What `module_text`'s entry takes: of each loop how often it goes round, and its state."""
    out: list[NDArray[np.generic]] = []
    for loop in loops:
        out.append(np.asarray(loop.trips, np.int32))
        values = loop.values or (1.0,) * len(loop.shapes)
        for shape, value in zip(loop.shapes, values, strict=True):
            dtype, dims = _read(shape)
            out.append(np.full(dims, value).astype(DTYPES[dtype].numpy))
    return out


def _computations(n: int, loop: MeasuredLoop) -> str:
    state = f"(s32[], s32[], {', '.join(loop.shapes)})"
    metadata = f', metadata={{op_name="{loop.name}"}}'
    parts = [f"  %state{k} = {s} get-tuple-element(%p), index={k + 2}" for k, s in enumerate(loop.shapes)]
    body = [
        line.rstrip()[:-1].rstrip() + metadata if line.rstrip().endswith("@") else line
        for line in loop.body.strip("\n").splitlines()
    ]
    return "\n".join(
        [
            f"%body{n} (p: {state}) -> {state} {{",
            f"  %p = {state} parameter(0)",
            "  %i = s32[] get-tuple-element(%p), index=0",
            "  %trips = s32[] get-tuple-element(%p), index=1",
            *parts,
            "  %one = s32[] constant(1)",
            "  %next = s32[] add(%i, %one)",
            *body,
            f"  ROOT %t = {state} tuple(%next, %trips, {', '.join(loop.results)})",
            "}",
            "",
            f"%condition{n} (p: {state}) -> pred[] {{",
            f"  %p = {state} parameter(0)",
            "  %i = s32[] get-tuple-element(%p), index=0",
            "  %trips = s32[] get-tuple-element(%p), index=1",
            "  ROOT %more = pred[] compare(%i, %trips), direction=LT",
            "}",
        ]
    )


def _read(shape: str) -> tuple[str, tuple[int, ...]]:
    found = _SHAPE.match(shape)
    assert found is not None, shape
    return found[1], tuple(int(d) for d in found[2].split(",") if d)


def _nbytes(shape: str) -> int:
    dtype, dims = _read(shape)
    return math.prod(dims) * DTYPES[dtype].nbytes
