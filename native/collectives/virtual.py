"""Collectives among the devices of one process: pointers from the devices' tables, then the work, natively.

::

    i32 shardc_virtual(ptr state, i32 index, i32 phase, i64 deadline)

is a collective executor (`shardc.native.drive.drive_loop`) for a program all of whose devices stand still in this
process when it is called. It does a whole collective, or at its start; at its done there is nothing left. Small ones
are done by the caller; of large ones every group's shares are pieces of a job for the thread pool.
"""

from __future__ import annotations

import ctypes

from llvmlite import ir

from shardc.native.collectives.work import RESOLVE, WORK
from shardc.native.drive.drive_loop import DONE_PHASE
from shardc.native.llvm.flow import counted, define, field, number
from shardc.native.llvm.jit import TargetModule, new_module
from shardc.native.llvm.symbols import PARALLEL
from shardc.native.llvm.target import Target
from shardc.native.math.vector import I32, I64, PTR, constant

__all__ = ["VIRTUAL", "VirtualCall", "virtual_module"]

VIRTUAL = "shardc_virtual"


class VirtualCall(ctypes.Structure):
    """A collective of the program; the collective executor's state is an array of these by index.

    ``work`` is the `shardc.native.collectives.work.WorkCall`. The operands of ``groups`` groups and then their
    results are at
    ``pointers``, ``pointers_per_group`` each. They are found anew in ``moving`` ``cells`` for every collective (0: they
    stay). ``shares`` are those of a group, 0 where the caller does everything itself; ``nanoseconds`` is about what all
    of it takes one thread.
    """

    _fields_ = (
        ("work", ctypes.c_void_p),
        ("groups", ctypes.c_int64),
        ("pointers_per_group", ctypes.c_int64),
        ("pointers", ctypes.c_void_p),
        ("cells", ctypes.c_void_p),
        ("moving", ctypes.c_int64),
        ("shares", ctypes.c_int64),
        ("nanoseconds", ctypes.c_int64),
    )


_WORDS = ctypes.sizeof(VirtualCall) // 8
_WORK, _GROUPS, _PER_GROUP, _POINTERS, _CELLS, _MOVING, _SHARES, _NANOSECONDS = range(_WORDS)


def virtual_module(target: Target | None = None) -> TargetModule:
    """The module of `VIRTUAL`; it calls `WORK`, `RESOLVE` and `PARALLEL`."""
    module = new_module("virtual", target)
    void = ir.VoidType()
    work = ir.Function(module, ir.FunctionType(void, [PTR, PTR, PTR, I64, I64]), WORK)
    resolve = ir.Function(module, ir.FunctionType(void, [PTR, I64, PTR]), RESOLVE)
    parallel = ir.Function(module, ir.FunctionType(void, [PTR, PTR, I64, I64]), PARALLEL)
    pieces = _emit_pieces(module, work)

    function, b = define(module, VIRTUAL, [PTR, I32, I32, I64], I32)
    state, index, phase, _ = function.args
    with b.if_then(b.icmp_signed("==", phase, constant(I32, DONE_PHASE))):
        b.ret(constant(I32, 0))
    call = b.gep(state, [b.mul(b.sext(index, I64), number(_WORDS))], source_etype=I64)
    groups, shares, moving = (field(b, call, k) for k in (_GROUPS, _SHARES, _MOVING))
    with b.if_then(b.icmp_signed("!=", moving, number(0))):
        b.call(resolve, [field(b, call, _CELLS, PTR), moving, field(b, call, _POINTERS, PTR)])
    with b.if_else(b.icmp_signed("==", shares, number(0))) as (alone, together):
        with alone:
            b.call(pieces, [call, number(0), groups])
        with together:
            b.call(parallel, [pieces, call, b.mul(groups, shares), field(b, call, _NANOSECONDS)])
    b.ret(constant(I32, 0))
    return module


def _emit_pieces(module: ir.Module, work: ir.Function) -> ir.Function:
    """``void (ptr call, i64 begin, i64 end)``: shares of groups, as the pool calls it."""
    function, b = define(module, "pieces", [PTR, I64, I64], internal=True)
    call, begin, end = function.args
    record, operands = field(b, call, _WORK, PTR), field(b, call, _POINTERS, PTR)
    per_group, shares = field(b, call, _PER_GROUP), field(b, call, _SHARES)
    parts = b.select(b.icmp_signed("==", shares, number(0)), number(1), shares)
    results = b.gep(operands, [b.mul(per_group, field(b, call, _GROUPS))], source_etype=PTR)
    with counted(b, begin, end) as piece:
        group = b.sdiv(piece, parts)
        skipped = b.mul(group, per_group)
        tables = [b.gep(t, [skipped], source_etype=PTR) for t in (operands, results)]
        b.call(work, [record, *tables, b.sub(piece, b.mul(group, parts)), parts])
    b.ret_void()
    return function
