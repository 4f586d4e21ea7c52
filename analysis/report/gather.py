"""Everything that the page shows, as plain data: deterministic, compact, strings that repeat stand once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shardc.analysis.report.graph import graph_data
from shardc.analysis.report.leaves import Around, Leaf, leaves_of_module, leaves_of_simulation, loops_of_module
from shardc.analysis.report.page import VERSION
from shardc.analysis.report.plan_data import plan_data
from shardc.analysis.report.structure import StructureNode, structure
from shardc.analysis.report.tensors import tensor_rows
from shardc.analysis.simulate.traffic_matrix import block_size
from shardc.compiler.lower.buffers.memory_timeline import MemoryTimeline
from shardc.hlo.part_names import numbered_parts, whole_of
from shardc.hlo.units import bytes_text, count_text

if TYPE_CHECKING:
    from shardc.analysis.explain.explanation import Explanation
    from shardc.analysis.simulate.simulation import Simulation
    from shardc.partitioner.program import PartitionedProgram

__all__ = ["report_data"]

#: Values at the peak of memory that are listed.
_LARGEST = 40
_BLOCKS = 64


def report_data(
    partitioned: PartitionedProgram,
    *,
    simulation: Simulation | None = None,
    explanation: Explanation | None = None,
    memory: MemoryTimeline | None = None,
    bandwidth: float | None = None,
) -> dict[str, Any]:
    """What the page is made of; ``memory`` counts where nothing was simulated; ``bandwidth`` is the bytes
    per second of a device's memory, where a machine is known.

    Numbers of time are seconds, of the timeline whole nanoseconds; everything is of one device and one step.
    """
    facts, mesh = partitioned.facts, partitioned.module.mesh
    strings = _Strings()
    timeline = simulation.memory if simulation is not None else memory
    tensors, drawings, left_out = tensor_rows(partitioned.propagated.module)
    plan = None if partitioned.plan is None else _plain(plan_data(partitioned.plan, strings, drawings))
    return {
        "version": VERSION,
        "program": str(facts["name"]),
        "source": partitioned.program.module.source_file,
        "devices": facts["devices"],
        "mesh": [[axis, size] for axis, size in facts["mesh"].items()],
        "device_order": None if mesh is None or mesh.device_ids is None else list(mesh.device_ids),
        "totals": {**_totals(facts, simulation, timeline), "bandwidth": bandwidth},
        "notes": _notes(facts, simulation, timeline),
        "warnings": [] if explanation is None else [w.to_dict() for w in explanation.warnings],
        "collectives": _joined(_collectives(facts, simulation), explanation, strings),
        "plan": plan,
        "reasons": [] if explanation is None else [_trimmed(c.to_dict()) for c in explanation.collectives],
        "tree": _tree(partitioned, simulation, strings),
        "graph": graph_data(partitioned, explanation, strings),
        "timeline": None if simulation is None else _timeline(simulation, strings),
        "memory": None if timeline is None else _memory(simulation, timeline),
        "traffic": None if simulation is None else _traffic(simulation),
        "tensors": [{**row, "source": strings(row["source"])} for row in tensors],
        "drawings": drawings,
        "tensors_left_out": left_out,
        "strings": strings.all,
    }


class _Strings:
    """Numbers for strings; 0 is the empty one."""

    def __init__(self) -> None:
        self.all: list[str] = [""]
        self._known: dict[str, int] = {"": 0}

    def __call__(self, text: str) -> int:
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = len(self.all)
            self.all.append(text)
        return found


def _totals(facts: Mapping[str, Any], simulation: Simulation | None, timeline: MemoryTimeline | None) -> dict[str, Any]:
    """The figures at the top of the page."""
    out: dict[str, Any] = {
        "collectives": len(facts["collectives"]),
        "wire_bytes": _number(facts["wire_bytes"]),
        "flops": facts["flops"],
        "peak_bytes": facts["peak_bytes"],
    }
    if timeline is not None:
        out["peak_bytes"] = timeline.fixed_bytes + timeline.written_bytes
    if simulation is None:
        return out
    s = simulation
    return {
        **out,
        "machine": s.machine,
        "mapping": [[axis, place] for axis, place in s.mapping.items()],
        "seconds": {
            "step": _number(s.step_seconds),
            "compute": _number(s.compute_seconds),
            "exposed": _number(s.exposed_seconds),
            "overlapped": _number(s.overlapped_seconds),
            "idle": _number(s.idle_seconds),
        },
        "flops": s.flops,
        "mfu": _number(s.mfu),
        "hfu": _number(s.hfu),
        "dtype": s.dtype,
        "peak_flops": _number(s.peak_flops),
        "peak_bytes": s.peak_bytes,
        "capacity_bytes": s.capacity_bytes,
        "links": [[level, _number(sent)] for level, sent in s.link_bytes.items()],
    }


def _notes(facts: Mapping[str, Any], simulation: Simulation | None, timeline: MemoryTimeline | None) -> list[str]:
    """What a reader should know before believing a figure."""
    notes = [] if simulation is None else list(simulation.notes)
    unknown = sum(c["unknown_trip_count"] for c in facts["collectives"])
    if unknown:
        notes.append(
            f"loops of unknown length count as one iteration; {count_text(unknown, 'collective')} in such loops"
        )
    if simulation is not None and not simulation.fits:
        needed, there = bytes_text(simulation.peak_bytes), bytes_text(simulation.capacity_bytes)
        notes.insert(0, f"the step needs {needed} of memory on each device, which has {there}")
    if simulation is None:
        notes.append("no machine was named: bytes and operations, no seconds (--machine h100-dgx)")
    if timeline is None:
        notes.append("memory is an estimate, because the program cannot be compiled")
    return notes


def _collectives(facts: Mapping[str, Any], simulation: Simulation | None) -> list[dict[str, Any]]:
    """Rows of the table: what the simulated step does, or without one what the per-device program says."""
    if simulation is None:
        return [{**c, "seconds": None, "hidden": None, "exposed": None, "algorithm": ""} for c in facts["collectives"]]
    return [
            {
                "op": w.opcode, "name": w.name, "axes": list(w.axes), "group_size": w.group_size, "count": w.count,
                "payload_bytes": w.payload_bytes, "wire_bytes": w.wire_bytes * w.count, "source": w.source,
                "reason": w.reason, "value": w.value, "op_name": w.op_name, "algorithm": w.algorithm,
                "seconds": _number(w.seconds * w.count), "exposed": _number(w.exposed_seconds),
                "hidden": _number(w.hidden_seconds),
            }
            for w in simulation.work if w.kind == "collective"
        ]  # fmt: skip


def _joined(rows: list[dict[str, Any]], explanation: Explanation | None, strings: _Strings) -> list[dict[str, Any]]:
    """Rows with ``why``, the number of their explanation (-1: none), and the tensor as that calls it."""
    reasons = () if explanation is None else explanation.collectives
    numbers = {name: n for n, reason in enumerate(reasons) for name in reason.names}
    texts = ("source", "reason", "value", "op_name")
    out = []
    for row in rows:
        why = numbers.get(_partitioned_name(row["name"], numbers), -1)
        tensor = reasons[why].value if why >= 0 else row["value"]
        told = {**row, "value": tensor, "wire_bytes": _number(row["wire_bytes"]), "why": why}
        out.append({**told, **{k: strings(told[k]) for k in texts}})
    return out


def _partitioned_name(name: str, known: Mapping[str, int]) -> str:
    """What the partitioned program calls a collective: lowering takes it apart, or appends words."""
    name = whole_of(name)
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def _trimmed(reason: dict[str, Any]) -> dict[str, Any]:
    """Without what the table has as well."""
    return {k: _plain(v) for k, v in reason.items() if k not in ("count", "op_name", "group_size", "payload_bytes")}


def _plain(value: Any) -> Any:
    """Floats rounded, tuples as lists, all the way down."""
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value


def _tree(partitioned: PartitionedProgram, simulation: Simulation | None, strings: _Strings) -> list[list[Any]]:
    """Nodes in preorder: [parent, kind, label] and for a loop [trips, source], for a leaf [kind, name, opcode, source,
    holds, category, limit, count, seconds, flops, bytes, sent]."""
    leaves: Sequence[Leaf]
    loops: Mapping[str, Around]
    if simulation is None:
        leaves, loops = leaves_of_module(partitioned.module), loops_of_module(partitioned.module)
    else:
        leaves = leaves_of_simulation(simulation)
        loops = {x.name: Around(x.op_name, x.source, x.trips if x.known else None) for x in simulation.loops}
    out: list[list[Any]] = []
    waiting: list[tuple[int, StructureNode]] = [(-1, structure(leaves, loops))]
    while waiting:
        parent, node = waiting.pop()
        number = len(out)
        out.append([parent, node.kind, strings(node.label), *_more(node, strings)])
        waiting += [(number, child) for child in reversed(node.children)]
    return out


def _more(node: StructureNode, strings: Callable[[str], int]) -> list[Any]:
    if node.loop is not None:
        return [node.loop.trips, strings(node.loop.source)]
    if node.leaf is None:
        return []
    x = node.leaf
    seconds = None if x.seconds is None else _number(x.seconds)
    texts = (x.kind, x.name, x.opcode, x.source, x.holds, x.category, x.limit)
    return [*map(strings, texts), x.count, seconds, x.flops, x.nbytes, _number(x.sent)]


def _timeline(simulation: Simulation, strings: _Strings) -> dict[str, Any]:
    """Events as [engine, kind, work, begin, end, loops] in nanoseconds; ``around`` are the loops and iterations."""
    engines = ["compute", *sorted({e.engine for e in simulation.events} - {"compute"})]
    kinds = ["kernel", "copy", "transfer", "wait"]
    around: dict[tuple[tuple[str, int], ...], int] = {}
    events = [
        [
            engines.index(e.engine), kinds.index(e.kind), e.work, _ns(e.begin), _ns(e.begin + e.seconds),
            around.setdefault(e.loops, len(around)),
        ]
        for e in sorted(simulation.events, key=lambda e: (e.begin, engines.index(e.engine), e.work, e.seconds))
    ]  # fmt: skip
    texts = ("kind", "name", "opcode", "op_name", "source", "limit", "category")
    work = [[strings(getattr(w, text)) for text in texts] for w in simulation.work]
    return {
        "engines": engines,
        "kinds": kinds,
        "events": events,
        "work": work,
        "around": [[[loop, n] for loop, n in loops] for loops in around],
        "skipped": [[s.loop, s.first, s.last, _ns(s.begin), _ns(s.begin + s.seconds)] for s in simulation.skipped],
        "end": _ns(simulation.step_seconds),
    }


def _memory(simulation: Simulation | None, timeline: MemoryTimeline) -> dict[str, Any]:
    """The curve, over nanoseconds or over the steps of the program, and the largest values at the peak."""
    at = timeline.at(timeline.peak)
    names = numbered_parts(b.name for b in timeline.blocks)
    if simulation is not None:
        curve = [[_ns(t), n] for t, n in simulation.memory_curve]
    else:
        changed = [n for n, b in enumerate(timeline.in_use) if n == 0 or b != timeline.in_use[n - 1]]
        curve = [[n, timeline.in_use[n]] for n in changed]
    return {
        "unit": "step" if simulation is None else "ns",
        "end": len(timeline.steps) if simulation is None else _ns(simulation.step_seconds),
        "curve": curve,
        "needed": timeline.fixed_bytes + timeline.written_bytes if simulation is None else simulation.peak_bytes,
        "capacity": None if simulation is None else simulation.capacity_bytes,
        "fixed": timeline.fixed_bytes,
        "peak_step": timeline.steps[timeline.peak] if timeline.steps else "",
        "peak_bytes": timeline.in_use[timeline.peak] if timeline.in_use else 0,
        "largest": [
            {
                "name": names[b.name],
                **{k: getattr(b, k) for k in ("op_name", "source", "shape", "kind", "nbytes", "first", "last")},
            }
            for b in at[:_LARGEST]
        ],
        "others": [len(at[_LARGEST:]), sum(b.nbytes for b in at[_LARGEST:])],
    }  # fmt: skip


def _traffic(simulation: Simulation) -> dict[str, Any]:
    """The matrix as [from block, to block, bytes] where bytes are sent."""
    matrix = simulation.traffic_matrix(_BLOCKS)
    cells = [[i, j, _number(float(n))] for i, row in enumerate(matrix) for j, n in enumerate(row) if n > 0]
    each = block_size(simulation.devices, _BLOCKS)
    return {"blocks": len(matrix), "each": each, "devices": simulation.devices, "cells": cells}


def _number(x: float) -> float | int:
    """Seven digits are more than a model knows; whole numbers stay whole."""
    return x if isinstance(x, int) else int(x) if x == int(x) and abs(x) < 2**53 else float(f"{x:.7g}")


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
