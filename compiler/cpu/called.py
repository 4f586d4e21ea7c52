"""Called computations that are more than scalar arithmetic (loops, branches, arrays) as functions of their own.

Such a computation is a small program: it is lowered like one, and its step function, with memory on the caller's stack,
is called once per element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from shardc.compiler.cpu import memory
from shardc.compiler.cpu.key import computation_key
from shardc.compiler.elements.elementwise import ELEMENTWISE
from shardc.compiler.elements.frames import Val
from shardc.compiler.elements.registers import part_count
from shardc.hlo.config import Config
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.build import make_module
from shardc.hlo.ir.ir import Computation, Instruction, called_computations
from shardc.native.math.vector import I8, I32, I64, PTR, constant, undef, with_lanes

__all__ = ["call_function", "is_scalar_program"]

#: Opcodes that a scalar program may hold besides elementwise ones.
_PLUMBING = frozenset(
    {"parameter", "constant", "tuple", "get-tuple-element", "broadcast", "reshape", "bitcast", "transpose", "iota"}
)
_CALLS = frozenset({"call", "map", "fusion"})

#: Most bytes of a caller's stack that a called computation may take.
_STACK = 1 << 20


def is_scalar_program(computation: Computation) -> bool:
    """Is everything in it one element, and arithmetic that can stand where it is called?"""
    return all(_is_scalar(i) for i in computation)


def _is_scalar(i: Instruction) -> bool:
    if any(not s.is_array or s.size != 1 for s in i.shape.leaves()):
        return False
    if i.opcode in _CALLS:
        return all(is_scalar_program(c) for _, c in called_computations(i))
    return i.opcode in _PLUMBING or i.opcode in ELEMENTWISE


def call_function(
    function: ir.Function, slots: ir.IRBuilder, b: ir.IRBuilder, computation: Computation, arguments: Sequence[Val]
) -> list[tuple[ir.Value, ...]]:
    """The parts of each result, in as many lanes as the widest argument has; one call per lane.

    ``function`` is the kernel (its last argument is the device), ``slots`` builds in its entry block.
    """
    shapes = [s for p in computation.parameters for s in p.shape.leaves()]
    results = list(computation.root.shape.leaves())
    step, arena_bytes, pool = _function(b.module, computation)
    lanes = max((v.lanes for v in arguments), default=1)
    places = [_slot(slots, s.nbytes) for s in shapes]
    out = [_slot(slots, s.nbytes) for s in results]
    tables = [_table(slots, rows) for rows in (places, out)]
    arena = _slot(slots, arena_bytes)
    slots.store(constant(I32, 0), arena)
    values = [v.wide(lanes) for v in arguments]
    found: list[tuple[ir.Value, ...]] = []
    zero = constant(I64, 0)
    for lane in range(lanes):
        for parts, place, shape in zip(values, places, shapes, strict=True):
            one = tuple(b.extract_element(p, constant(I32, lane)) if lanes > 1 else p for p in parts)
            memory.store(b, one, place, zero, shape.dtype, None)
        b.call(step, [arena, *tables, pool, function.args[-1]])
        for n, (place, shape) in enumerate(zip(out, results, strict=True)):
            parts = memory.load(b, place, zero, shape.dtype, 1)
            if lanes == 1:
                found.append(parts)
                continue
            if lane == 0:
                found.append(tuple(undef(with_lanes(p.type, lanes)) for p in parts))
            found[n] = tuple(b.insert_element(w, p, constant(I32, lane)) for w, p in zip(found[n], parts, strict=True))
    assert all(len(p) == part_count(s.dtype) for p, s in zip(found, results, strict=True))
    return found


def _slot(slots: ir.IRBuilder, nbytes: int) -> ir.Value:
    place = slots.alloca(ir.ArrayType(I8, max(nbytes, 8)))
    place.align = 64
    place.type = PTR  # llvmlite gives it a typed pointer, which is no ``ptr`` to it
    return place


def _table(slots: ir.IRBuilder, rows: Sequence[ir.Value]) -> ir.Value:
    table = _slot(slots, 8 * len(rows))
    for n, row in enumerate(rows):
        slots.store(row, slots.gep(table, [constant(I64, n)], source_etype=PTR))
    return table


def _function(module: ir.Module, computation: Computation) -> tuple[ir.Function, int, ir.Value]:
    """The step function, the bytes of its arena, and its constants; made once per module."""
    from shardc.compiler.cpu.kernel import emit_kernel
    from shardc.compiler.emit.step import emit_step
    from shardc.compiler.lower.pipeline import lower

    name = f"called_{computation_key(computation)}"
    lowered = lower(make_module(name, computation), Config())
    if lowered.collectives or lowered.checks or lowered.plan.arena_bytes > _STACK:
        raise UnsupportedError(
            f"%{computation.name} is called per element and talks to other devices, checks, or needs much memory",
            fix="write it as operations on whole arrays",
        )
    step: Any = module.globals.get(name)
    if step is None:
        pool = ir.GlobalVariable(module, ir.ArrayType(I8, max(len(lowered.constants.data), 1)), name + ".constants")
        pool.initializer = ir.Constant(pool.value_type, bytearray(lowered.constants.data or b"\0"))
        pool.linkage, pool.global_constant, pool.align = "internal", True, 64
        step = emit_step(module, lowered, emit_kernel, name)
        step.linkage = "internal"
    return step, lowered.plan.arena_bytes, module.globals[name + ".constants"]
