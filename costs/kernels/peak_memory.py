"""An estimate of a per-device program's peak memory, before anything is fused or scheduled."""

from __future__ import annotations

from collections.abc import Callable

from shardc.hlo.ir.ir import Computation, Instruction, Module, called_computations
from shardc.hlo.ir.opset import COLLECTIVES
from shardc.hlo.transforms.host_values import HostValues

__all__ = ["computation_peak", "estimate_host_bytes", "estimate_peak"]

#: Values that share memory with their operands, or take none.
_VIEWS = frozenset(
    ("parameter", "tuple", "get-tuple-element", "bitcast", "reshape", "after-all", "constant", "optimization-barrier")
)

#: Instructions that run computations with values of their own.
_CALLERS = frozenset(("while", "conditional", "call", "fusion", "async-start"))


def estimate_peak(module: Module) -> int:
    """Arguments + results - aliased + temporaries in program order, every value in memory of its own.

    The compiler fuses and reuses, so its own figure is lower; this one ranks partitionings without compiling. What lies
    in host memory does not count.
    """
    host = HostValues(module)
    if host.any:
        arguments = sum(map(host.device_bytes, module.parameters))
        aliased = sum(min(_leaf(p, a), host.device_bytes(p)) for p, a in _aliased(module))
        return arguments - aliased + computation_peak(module.entry, {}, host.device_bytes)
    arguments = sum(p.shape.nbytes for p in module.parameters)
    return arguments - sum(_leaf(p, a) for p, a in _aliased(module)) + computation_peak(module.entry, {})


def estimate_host_bytes(module: Module) -> int:
    """The same of host memory: what a device keeps there at most."""
    host = HostValues(module)
    if not host.any:
        return 0

    def away(i: Instruction) -> int:
        return i.shape.nbytes - host.device_bytes(i)

    aliased = sum(min(_leaf(p, a), away(p)) for p, a in _aliased(module))
    return sum(map(away, module.parameters)) - aliased + computation_peak(module.entry, {}, away)


def _aliased(module: Module) -> list[tuple[Instruction, tuple[int, ...]]]:
    """Parameters whose memory results take, and which parts of them."""
    return [(module.parameters[a.parameter], a.parameter_index) for a in module.aliases]


def _bytes_of(i: Instruction) -> int:
    return i.shape.nbytes


def _part_read(op: Instruction) -> Instruction | None:
    """What ``op``, a result of a collective of several operands, is made from: a buffer of its own, as if alone."""
    if op.opcode != "get-tuple-element" or op.operands[0].opcode not in COLLECTIVES:
        return None
    index: int = op.attrs["index"]
    return op.operands[0].operands[index]


def _reads(op: Instruction) -> tuple[Instruction, ...]:
    """The operands that have to live until ``op``: a combined collective reads each where its part is taken."""
    if op.opcode == "get-tuple-element":
        part = _part_read(op)
        return op.operands if part is None else (part,)
    return () if _combined(op) else op.operands


def _combined(op: Instruction) -> bool:
    return op.shape.is_tuple and op.opcode in COLLECTIVES and len(op.operands) == len(op.shape.elements)


def _leaf(parameter: Instruction, path: tuple[int, ...]) -> int:
    shape = parameter.shape
    for i in path:
        shape = shape.elements[i]
    return shape.nbytes


def computation_peak(
    computation: Computation, known: dict[Computation, int], bytes_of: Callable[[Instruction], int] = _bytes_of
) -> int:
    """The most bytes alive at once in a computation, its results included, its parameters not; ``bytes_of`` says how
    many a value takes."""
    if computation in known:
        return known[computation]
    owners: dict[Instruction, tuple[Instruction, ...]] = {}
    last: dict[Instruction, int] = {}
    for position, op in enumerate(computation):
        reads = _reads(op)
        if op.opcode in _VIEWS and not (op.opcode == "get-tuple-element" and reads is not op.operands):
            owners[op] = (
                tuple(dict.fromkeys(w for o in reads for w in owners[o]))
                if len(reads) > 1
                else (owners[reads[0]] if reads else ())
            )
        elif _combined(op):
            owners[op] = ()
        else:
            owners[op] = (op,)
            last[op] = position
        for o in reads:
            for owner in owners[o]:
                last[owner] = position
    for owner in owners[computation.root]:
        last[owner] = len(computation.instructions)
    ends: dict[int, int] = {}
    for owner, position in last.items():
        ends[position] = ends.get(position, 0) + bytes_of(owner)
    alive = peak = 0
    for position, op in enumerate(computation):
        alive += bytes_of(op) if op in last else 0
        inner = 0
        if op.opcode in _CALLERS:
            inner = max(computation_peak(c, known, bytes_of) for _, c in called_computations(op))
        peak = max(peak, alive + inner)
        alive -= ends.get(position, 0)
    known[computation] = peak
    return peak
