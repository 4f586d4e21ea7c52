"""Collectives on memory that this process can address, as one native function for all kinds of them.

A collective of a group is a list of strips: elements that lie one after another in some sources, and go, reduced or as
they are, to one place in some destinations. ::

    void shardc_work(ptr call, ptr operands, ptr results, i64 part, i64 parts)

does the ``part``-th of ``parts`` shares of the work of one group. Strips are taken as cache lines and all lines of a
call are numbered; a share is a range of them, so any number of shares gives the same bits. ``call`` is a `WorkCall`;
``operands[k * members + p]`` is where operand k of the member at position p lies, ``results`` likewise. A result that
is null is left out, one that equals the one before it is the same memory; an operand that is null (of a permute) is
zeros. Operands and results do not overlap, but for the result of an all-reduce that is its own operand.

========================= ====================================================================
``shardc_resolve``        ``void (ptr cells, i64 count, ptr out)``: pointers of `Cell` records
``shardc_copy``           ``void (ptr to, ptr from, i64 bytes, i64 streaming)``
========================= ====================================================================
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from shardc.native.llvm.flow import at_byte, counted, define, field, greatest, least, number, row_of, wanted
from shardc.native.llvm.jit import TargetModule, new_module
from shardc.native.llvm.target import Target
from shardc.native.math.vector import I1, I64, PTR
from shardc.native.memory.copying import LINE, emit_copy, emit_zero, fence

__all__ = ["COPY", "OPS", "RESOLVE", "WORK", "WORK_SYMBOLS", "Cell", "WorkCall", "WorkOperand", "work_module"]

WORK, RESOLVE, COPY = "shardc_work", "shardc_resolve", "shardc_copy"
WORK_SYMBOLS = (WORK, RESOLVE, COPY)

#: Collectives by number.
OPS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")

#: Bytes that are read once and written to several places: less than the first-level cache holds.
_BLOCK = 8192


class WorkOperand(ctypes.Structure):
    """An operand: its elements, the bytes of one, and the function that reduces them (null where nothing is)."""

    _fields_ = (("count", ctypes.c_int64), ("nbytes", ctypes.c_int64), ("reduce", ctypes.c_void_p))


class WorkCall(ctypes.Structure):
    """A collective over groups of ``members``: ``op`` counts in `OPS`, ``table`` has a `WorkOperand` per operand.

    ``lines`` are the cache lines of a group's work, ``bytes`` what it reads and writes; ``streaming`` is 1 where
    results are written past the caches. A permute has one member: its pairs are groups of their own.
    """

    _fields_ = (
        ("op", ctypes.c_int64),
        ("members", ctypes.c_int64),
        ("operands", ctypes.c_int64),
        ("table", ctypes.c_void_p),
        ("lines", ctypes.c_int64),
        ("bytes", ctypes.c_int64),
        ("streaming", ctypes.c_int64),
    )


class Cell(ctypes.Structure):
    """A pointer that is found when it is needed: ``offset`` bytes behind what the word at ``base`` points to.

    Null where ``base`` is.
    """

    _fields_ = (("base", ctypes.c_void_p), ("offset", ctypes.c_int64))


#: Words of a `WorkOperand`, and where its fields and those of a `WorkCall` lie.
_OPERAND = ctypes.sizeof(WorkOperand) // 8
_COUNT, _NBYTES, _REDUCE = range(3)
_OP, _MEMBERS, _OPERANDS, _TABLE, _LINES, _, _STREAMING = range(7)

_REDUCE_TYPE = ir.FunctionType(ir.VoidType(), [PTR, I64, I64, PTR, I64, I64, I64, I1])


def work_module(target: Target | None = None) -> TargetModule:
    """The module of `WORK_SYMBOLS`."""
    module = new_module("work", target)
    _emit_resolve(module)
    _emit_exported_copy(module)
    _emit_work(module)
    return module


@dataclass(frozen=True, slots=True)
class _Strip:
    """Strip ``index`` of an operand: bytes ``low`` to ``high`` of the ``length`` that it has."""

    module: ir.Module
    operand: ir.Value
    operands: ir.Value
    results: ir.Value
    members: ir.Value
    streaming: ir.Value
    index: ir.Value
    length: ir.Value
    low: ir.Value
    high: ir.Value

    def skipped(self, b: ir.IRBuilder, strips: ir.Value) -> ir.Value:
        """``low`` behind so many strips."""
        return b.add(b.mul(strips, self.length), self.low)

    def reduce(self, b: ir.IRBuilder, start: ir.Value, results: ir.Value, copies: ir.Value) -> None:
        function = b.inttoptr(field(b, self.operand, _REDUCE), _REDUCE_TYPE.as_pointer())
        count = b.sdiv(b.sub(self.high, self.low), field(b, self.operand, _NBYTES))
        arguments = [self.operands, self.members, start, results, copies, self.low, count, self.streaming]
        b.call(function, arguments)

    def copy(self, b: ir.IRBuilder, to: ir.Value, source: ir.Value, nbytes: ir.Value) -> None:
        b.call(emit_copy(self.module), [to, source, nbytes, self.streaming])


def _all_reduce(b: ir.IRBuilder, s: _Strip) -> None:
    s.reduce(b, s.low, s.results, s.members)


def _reduce_scatter(b: ir.IRBuilder, s: _Strip) -> None:
    result = b.gep(s.results, [s.index], source_etype=PTR)
    with wanted(b, result, number(1)):
        s.reduce(b, s.skipped(b, s.index), result, number(1))


def _all_gather(b: ir.IRBuilder, s: _Strip) -> None:
    source = at_byte(b, row_of(b, s.operands, s.index), s.low)
    behind = s.skipped(b, s.index)
    nbytes = b.sub(s.high, s.low)
    with counted(b, number(0), nbytes, _BLOCK) as at:
        n = least(b, number(_BLOCK), b.sub(nbytes, at))
        with wanted(b, s.results, s.members) as (_, result):
            s.copy(b, at_byte(b, result, b.add(behind, at)), at_byte(b, source, at), n)


def _all_to_all(b: ir.IRBuilder, s: _Strip) -> None:
    sender, receiver = b.sdiv(s.index, s.members), b.srem(s.index, s.members)
    result = b.gep(s.results, [receiver], source_etype=PTR)
    with wanted(b, result, number(1)) as (_, place):
        source = at_byte(b, row_of(b, s.operands, sender), s.skipped(b, receiver))
        s.copy(b, at_byte(b, place, s.skipped(b, sender)), source, b.sub(s.high, s.low))


def _permute(b: ir.IRBuilder, s: _Strip) -> None:
    source, nbytes = row_of(b, s.operands, number(0)), b.sub(s.high, s.low)
    with wanted(b, s.results, number(1)) as (_, result):
        to = at_byte(b, result, s.low)
        missing = b.icmp_unsigned("==", b.ptrtoint(source, I64), number(0))
        with b.if_else(missing) as (nobody, somebody):
            with nobody:
                b.call(emit_zero(s.module), [to, nbytes])
            with somebody:
                s.copy(b, to, at_byte(b, source, s.low), nbytes)


#: By number of the collective: what it does with a strip; how many strips an operand has, and how many parts that cuts
#: it into, as powers of the number of members.
_RULES: tuple[tuple[Callable[[ir.IRBuilder, _Strip], None], int, int], ...] = (
    (_all_reduce, 0, 0),
    (_all_gather, 1, 0),
    (_reduce_scatter, 1, 1),
    (_all_to_all, 2, 1),
    (_permute, 0, 0),
)


def _emit_work(module: ir.Module) -> None:
    function, b = define(module, WORK, [PTR, PTR, PTR, I64, I64])
    call, operands, results, part, parts = function.args
    ways = [_emit_way(module, n) for n in range(len(OPS))]
    lines = field(b, call, _LINES)
    begin = b.sdiv(b.mul(lines, part), parts)
    end = b.sdiv(b.mul(lines, b.add(part, number(1))), parts)
    done = b.append_basic_block("done")
    switch = b.switch(field(b, call, _OP), done)
    for n, way in enumerate(ways):
        block = b.append_basic_block(OPS[n])
        switch.add_case(number(n), block)
        inner = ir.IRBuilder(block)
        inner.call(way, [call, operands, results, begin, end])
        inner.branch(done)
    b.position_at_end(done)
    with b.if_then(b.icmp_signed("!=", field(b, call, _STREAMING), number(0))):
        fence(b)
    b.ret_void()


def _emit_way(module: ir.Module, op: int) -> ir.Function:
    """``void (ptr call, ptr operands, ptr results, i64 begin, i64 end)``: a range of a collective's lines."""
    rule, strip_power, cut_power = _RULES[op]
    function, b = define(module, f"lines_of_{op}", [PTR, PTR, PTR, I64, I64], internal=True)
    call, operands, results, begin, end = function.args
    members, table = field(b, call, _MEMBERS), field(b, call, _TABLE, PTR)
    streaming = b.icmp_signed("!=", field(b, call, _STREAMING), number(0))
    strips = number(1)
    for _ in range(strip_power):
        strips = b.mul(strips, members)
    passed = b.alloca(I64)
    b.store(number(0), passed)
    with counted(b, number(0), field(b, call, _OPERANDS)) as k:
        operand = b.gep(table, [b.mul(k, number(_OPERAND))], source_etype=I64)
        length = b.mul(field(b, operand, _COUNT), field(b, operand, _NBYTES))
        if cut_power:
            length = b.sdiv(length, members)
        lines = b.ashr(b.add(length, number(LINE - 1)), number(LINE.bit_length() - 1))
        before = b.load(passed, typ=I64)
        b.store(b.add(before, b.mul(strips, lines)), passed)
        first, last = (greatest(b, b.sub(x, before), number(0)) for x in (begin, end))
        row = b.mul(k, members)
        sources, targets = (b.gep(t, [row], source_etype=PTR) for t in (operands, results))
        with b.if_then(b.icmp_signed("!=", lines, number(0))):
            behind = least(b, strips, b.sdiv(b.add(last, b.sub(lines, number(1))), lines))
            with counted(b, b.sdiv(first, lines), behind) as s:
                start = b.mul(s, lines)
                low = b.mul(greatest(b, b.sub(first, start), number(0)), number(LINE))
                high = least(b, b.mul(b.sub(last, start), number(LINE)), length)
                rule(b, _Strip(module, operand, sources, targets, members, streaming, s, length, low, high))
    b.ret_void()
    return function


def _emit_resolve(module: ir.Module) -> None:
    function, b = define(module, RESOLVE, [PTR, I64, PTR])
    cells, count, out = function.args
    with counted(b, number(0), count) as k:
        cell = b.gep(cells, [b.mul(k, number(2))], source_etype=I64)
        base = field(b, cell, 0, PTR)
        place = b.gep(out, [k], source_etype=PTR)
        b.store(ir.Constant(PTR, None), place)
        with b.if_then(b.icmp_unsigned("!=", b.ptrtoint(base, I64), number(0))):
            b.store(at_byte(b, b.load(base, typ=PTR), field(b, cell, 1)), place)
    b.ret_void()


def _emit_exported_copy(module: ir.Module) -> None:
    function, b = define(module, COPY, [PTR, PTR, I64, I64])
    to, source, nbytes, streaming = function.args
    streamed = b.icmp_signed("!=", streaming, number(0))
    b.call(emit_copy(module), [to, source, nbytes, streamed])
    with b.if_then(streamed):
        fence(b)
    b.ret_void()
