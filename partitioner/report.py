"""The report of a partitioned program: what moves, how much, for which source line and why. Plain data for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shardc.costs.kernels.peak_memory import estimate_host_bytes, estimate_peak
from shardc.costs.kernels.trips import Executions, count_executions
from shardc.costs.network.wire_bytes import group_size, wire_bytes
from shardc.costs.ops.table import instruction_flops
from shardc.hlo.ir.groups import AxisGroups, AxisPairs
from shardc.hlo.ir.host_memory.memory_kinds import DEVICE, PINNED_HOST, memory_kind_of
from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.ir.opset import COLLECTIVES
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import Shape
from shardc.hlo.transforms.host_values import HostValues, reads_host
from shardc.partitioner.plan.plan_reasons import PlanReasons

__all__ = ["OWN_COLLECTIVE", "build_report"]

#: The reason of a collective that the partitioner did not insert.
OWN_COLLECTIVE = "the input program contains this collective"


def build_report(
    module: Module,
    *,
    seconds: Mapping[str, float] | None = None,
    peak_bytes: int | None = None,
    plan: PlanReasons | None = None,
) -> dict[str, Any]:
    """Everything that DESIGN.md's report has, for a partitioned module.

    In ``collectives``, ``payload_bytes`` are the bytes of one execution's local result and ``wire_bytes`` what one
    device sends in all ``count`` executions, so that they add up to the report's ``wire_bytes``. A collective under
    a loop of unknown length is counted once and has ``unknown_trip_count``. ``peak_bytes`` is the compiler's figure
    when given, else an estimate from liveness before fusion (``peak_bytes_estimated``); it is of the device's
    memory. Its parts, ``memory``, are for who lowers the program to say. ``host_bytes`` is an estimate of what a
    device keeps in pinned memory of its host, ``host_moves`` are the bytes that cross the host's link in each
    direction. ``plan`` is what `PlanReasons.to_dict` says, None without a plan.
    """
    runs, devices = count_executions(module), module.num_partitions
    names = {p.name: name for p, name in zip(module.parameters, module.arg_names, strict=False) if name}
    collectives = [
        _collective(i, times, unsure, devices, names) for i, times, unsure in _executed(module, runs) if _moves(i)
    ]
    flops = sum(times * instruction_flops(i) for i, times, _ in _executed(module, runs))
    return {
        "name": module.name,
        "devices": devices,
        "mesh": dict(module.mesh.axes) if module.mesh is not None else {},
        "parameters": _arrays(module, module.parameters, "global_parameters", module.arg_names),
        "results": _arrays(module, (module.entry.root,), "global_results", module.result_names),
        "collectives": collectives,
        "wire_bytes": sum(c["wire_bytes"] for c in collectives),
        "flops": flops,
        "peak_bytes": estimate_peak(module) if peak_bytes is None else peak_bytes,
        "peak_bytes_estimated": peak_bytes is None,
        "memory": None,
        "host_bytes": estimate_host_bytes(module),
        "host_moves": _host_moves(module, runs),
        "plan": None if plan is None else plan.to_dict(),
        "seconds": dict(seconds or {}),
    }


def _host_moves(module: Module, runs: Executions) -> dict[str, int]:
    """Bytes that go to pinned memory of the host and come back, by the calls that ask for it."""
    host, moved = HostValues(module), {"to_host": 0, "to_device": 0}
    for i, times, _ in _executed(module, runs) if host.any else ():
        kind = memory_kind_of(i)
        if kind == PINNED_HOST and not host.of(i.operands[0])[0]:
            moved["to_host"] += times * i.shape.nbytes
        elif kind == DEVICE and reads_host(host, i.operands[0]):
            moved["to_device"] += times * i.shape.nbytes
    return moved


def _executed(module: Module, runs: Executions) -> Iterator[tuple[Instruction, int, bool]]:
    """Instructions that run, how often, and whether that is unsure."""
    for computation in module.computations:
        if computation in runs.count:
            for op in computation:
                yield op, runs.count[computation], computation in runs.unknown


def _moves(op: Instruction) -> bool:
    return op.opcode in COLLECTIVES


def _collective(op: Instruction, count: int, unsure: bool, devices: int, names: Mapping[str, str]) -> dict[str, Any]:
    attrs = op.attrs
    groups = attrs.get("replica_groups", attrs.get("source_target_pairs"))
    symbolic = isinstance(groups, AxisGroups | AxisPairs)
    mesh_size = groups.mesh.size if isinstance(groups, AxisGroups | AxisPairs) else devices
    sent = count * wire_bytes(op, mesh_size)
    return {
        "op": op.opcode,
        "name": op.name,
        "axes": [str(a) for a in groups.axes] if symbolic and groups is not None else [],
        "group_size": group_size(op, mesh_size),
        "count": count,
        "payload_bytes": op.shape.nbytes,
        "wire_bytes": int(sent) if sent == int(sent) else sent,
        "source": op.source,
        "reason": op.origin.reason if op.origin else OWN_COLLECTIVE,
        "value": ", ".join(names.get(n, n) for n in op.origin.value.split(", ")) if op.origin else "",
        "op_name": op.metadata.op_name if op.metadata else "",
        "unknown_trip_count": unsure,
    }


def _arrays(module: Module, ops: tuple[Instruction, ...], key: str, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Rows for the leaves of parameters or of the root."""
    local = [leaf for op in ops for leaf in op.shape.leaves()]
    given: tuple[Shape, ...] = module.attrs.get(key, tuple(local))
    whole = [leaf for shape in given for leaf in shape.leaves()]
    shardings = [s for op in ops for s in _shardings(op)]
    return [
        {
            "name": names[i] if i < len(names) else "",
            "index": i,
            "dtype": shape.dtype.name,
            "global_shape": list(shape.dims),
            "local_shape": list(local[i].dims),
            "sharding": str(shardings[i]) if i < len(shardings) and shardings[i] is not None else "",
        }
        for i, shape in enumerate(whole)
    ]


def _shardings(op: Instruction) -> tuple[Sharding | None, ...]:
    given = op.sharding if isinstance(op.sharding, tuple) else (op.sharding,)
    return tuple(s if isinstance(s, Sharding) else None for s in given)
