"""How often each computation of a module runs: constant trip counts of loops, multiplied along calls."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.loops.loop_counter import find_counter

__all__ = ["Executions", "count_executions", "expect_trips", "likely_trips", "loop_trips", "trip_count"]

_REDUCER_ROLES = ("to_apply", "select", "scatter")
_KNOWN = re.compile(r'"known_trip_count"\s*:\s*\{\s*"n"\s*:\s*"(\d+)"')
_EXPECTED = re.compile(r'"expected_trip_count"\s*:\s*\{\s*"n"\s*:\s*"(\d+)"')


@dataclass(slots=True)
class Executions:
    """Times that each computation runs per step; those in ``unknown`` are under a loop whose count is not certain."""

    count: dict[Computation, int] = field(default_factory=dict)
    unknown: set[Computation] = field(default_factory=set)


def count_executions(module: Module, otherwise: int = 1) -> Executions:
    """Counts from the entry down: loops multiply, every branch of a conditional counts. Reducers are left out.

    A loop of which nothing is known runs ``otherwise`` times.
    """
    out = Executions({module.entry: 1})
    for computation in reversed(module.computations):
        times = out.count.get(computation)
        if times is None:
            continue
        unsure = computation in out.unknown
        for op in computation:
            trips, known = loop_trips(op, otherwise) if op.opcode == "while" else (1, True)
            for callee, extra in _callees(op):
                out.count[callee] = out.count.get(callee, 0) + times * (trips + extra)
                if unsure or not known:
                    out.unknown.add(callee)
    return out


def _callees(op: Instruction) -> list[tuple[Computation, int]]:
    """Computations that an instruction runs as programs, with runs beyond the trip count."""
    attrs: Mapping[str, object] = op.attrs
    if op.opcode == "while":
        return [(attrs["condition"], 1), (attrs["body"], 0)]  # type: ignore[list-item]
    if op.opcode == "conditional":
        named = [attrs[k] for k in ("true_computation", "false_computation") if k in attrs]
        branches = named or attrs["branch_computations"]
        return [(c, 0) for c in branches]  # type: ignore[attr-defined]
    if op.opcode == "call":
        return [(attrs["to_apply"], 0)]  # type: ignore[list-item]
    if op.opcode in ("fusion", "async-start"):
        return [(attrs["calls"], 0)]  # type: ignore[list-item]
    return []


def trip_count(loop: Instruction) -> int | None:
    """Iterations of a while that counts by a constant from a constant to a constant; None when it is not one.

    Where a compiler has left its own count on the loop (``known_trip_count``), that is it: once loops are fused and
    scheduled their counting no longer shows.
    """
    told = _KNOWN.search(str(loop.attrs.get("backend_config", "")))
    if told:
        return int(told.group(1))
    count = find_counter(loop)
    return None if count is None else count.trips


def loop_trips(loop: Instruction, otherwise: int = 1) -> tuple[int, bool]:
    """Iterations of a while as costs count them, and whether they are its trip count. A loop without one has those of
    `expect_trips`, else ``otherwise``."""
    trips = trip_count(loop)
    if trips is not None:
        return trips, True
    told = _EXPECTED.search(str(loop.attrs.get("backend_config", "")))
    return int(told.group(1)) if told else otherwise, False


def likely_trips(loop: Instruction, otherwise: int = 1) -> int:
    """The iterations of `loop_trips`."""
    return loop_trips(loop, otherwise)[0]


def expect_trips(count: int) -> str:
    """The ``backend_config`` of a loop that ends by what it computes, usually after ``count`` iterations.

    >>> expect_trips(7)
    '{"expected_trip_count":{"n":"7"}}'
    """
    return f'{{"expected_trip_count":{{"n":"{count}"}}}}'
