"""An estimate of a per-device program's peak memory, before anything is fused or scheduled."""

from __future__ import annotations

from shardc.hlo.ir import Computation, Instruction, Module, called_computations
from shardc.hlo.opset import COLLECTIVES

__all__ = ["computation_peak", "estimate_peak"]

#: Values that share memory with their operands, or take none.
_VIEWS = frozenset(
    ("parameter", "tuple", "get-tuple-element", "bitcast", "reshape", "after-all", "constant", "optimization-barrier")
)


def estimate_peak(module: Module) -> int:
    """Arguments + results - aliased + temporaries in program order, every value in memory of its own.

    The compiler fuses and reuses, so its own figure is lower; this one ranks partitionings without compiling.
    """
    arguments = sum(p.shape.nbytes for p in module.parameters)
    aliased = sum(_leaf(module.parameters[a.parameter], a.parameter_index) for a in module.aliases)
    return arguments - aliased + computation_peak(module.entry, {})


def _part_read(op: Instruction) -> Instruction | None:
    """What ``op``, a result of a collective of several operands, is made from: a buffer of its own, as if alone."""
    if op.opcode != "get-tuple-element" or op.operands[0].opcode not in COLLECTIVES:
        return None
    return op.operands[0].operands[op.attrs["index"]]


def _combined(op: Instruction) -> bool:
    return op.opcode in COLLECTIVES and op.shape.is_tuple and len(op.operands) == len(op.shape.elements)


def _leaf(parameter: Instruction, path: tuple[int, ...]) -> int:
    shape = parameter.shape
    for i in path:
        shape = shape.elements[i]
    return shape.nbytes


def computation_peak(computation: Computation, known: dict[Computation, int]) -> int:
    """The most bytes alive at once in a computation, its results included, its parameters not."""
    if computation in known:
        return known[computation]
    owners: dict[Instruction, frozenset[Instruction]] = {}
    last: dict[Instruction, int] = {}
    for position, op in enumerate(computation):
        parts: frozenset[Instruction] = frozenset()
        part = _part_read(op)
        if part is None and op.opcode in _VIEWS:
            parts = parts.union(*(owners[o] for o in op.operands))
        elif not _combined(op):
            parts = frozenset((op,))
            last[op] = position
        owners[op] = parts
        for o in () if _combined(op) else op.operands if part is None else (part,):
            for owner in owners[o]:
                last[owner] = position
    for owner in owners[computation.root]:
        last[owner] = len(computation.instructions)
    ends: dict[int, int] = {}
    for owner, position in last.items():
        ends[position] = ends.get(position, 0) + owner.shape.nbytes
    alive = peak = 0
    for position, op in enumerate(computation):
        inner = max(
            (computation_peak(c, known) for role, c in called_computations(op) if role != "to_apply"), default=0
        )
        if op.opcode == "call":
            inner = computation_peak(op.attrs["to_apply"], known)
        alive += op.shape.nbytes if op in last else 0
        peak = max(peak, alive + inner)
        alive -= ends.get(position, 0)
    known[computation] = peak
    return peak
