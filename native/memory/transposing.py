"""Transpositions of blocks of elements as vector code: columns of the source become rows of the target.

A *part* is as many vectors of 16 bytes as these have elements; it is transposed in registers, by interleaving halves. A
*block* is as many cache lines as a line has elements: it reads whole lines, collects whole lines of the target aside,
and writes each of them once, past the caches where it is told so.
"""

from __future__ import annotations

from llvmlite import ir

from shardc.native.llvm.flow import at_byte, counted, define, number
from shardc.native.llvm.jit import TargetModule, new_module
from shardc.native.llvm.target import Target
from shardc.native.lowlevel.builtins import copy_memory, external
from shardc.native.lowlevel.kinds import address, i64
from shardc.native.math.vector import I1, I8, I32, I64, PTR, constant, shuffle

__all__ = ["LINE", "PART", "transpose_block", "transpose_part", "transposing_module"]

#: Bytes of a cache line, which a row of a block has, and of a vector, which a row of a part has.
LINE, PART = 64, 16
_SIZES = (1, 2, 4, 8)
_BLOCK_SYMBOL, _PART_SYMBOL = "shardc_transpose_block", "shardc_transpose_part"


@external(_BLOCK_SYMBOL)
def transpose_block(to: address, to_row: i64, source: address, source_row: i64, element: i64, streams: bool) -> None:
    """Element k of row n of the source goes to element n of row k of the target, `LINE` bytes each way. Elements have
    1, 2, 4 or 8 bytes. Who ``streams`` writes to multiples of `LINE`, and needs a fence before others look."""
    _transpose(to, to_row, source, source_row, element, LINE // element)


@external(_PART_SYMBOL)
def transpose_part(to: address, to_row: i64, source: address, source_row: i64, element: i64) -> None:
    """The same for `PART` bytes."""
    _transpose(to, to_row, source, source_row, element, PART // element)


def _transpose(to: int, to_row: int, source: int, source_row: int, element: int, count: int) -> None:
    for n in range(count):
        for k in range(count):
            copy_memory(to + k * to_row + n * element, source + n * source_row + k * element, element)


def transposing_module(target: Target | None = None) -> TargetModule:
    """A module with both functions for others to call."""
    module = new_module("transposing", target)
    parts = {size: _emit_part(module, size) for size in _SIZES}
    blocks = {size: _emit_block(module, size, parts[size]) for size in _SIZES}
    _emit_choice(module, _PART_SYMBOL, [PTR, I64, PTR, I64], parts)
    _emit_choice(module, _BLOCK_SYMBOL, [PTR, I64, PTR, I64], blocks, I1)
    return module


def _emit_part(module: ir.Module, size: int) -> ir.Function:
    function, b = define(module, f"transpose_part_{size}", [PTR, I64, PTR, I64], internal=True)
    to, to_row, source, source_row = function.args
    count = PART // size
    kind = ir.VectorType(ir.IntType(8 * size), count)
    rows = [b.load(at_byte(b, source, b.mul(source_row, number(n))), typ=kind, align=1) for n in range(count)]
    low = [k // 2 + count * (k % 2) for k in range(count)]
    high = [k + count // 2 for k in low]
    for _ in range(count.bit_length() - 1):  # each time, a row is interleaved with that of the other half
        pairs = [(rows[n], rows[n + count // 2]) for n in range(count // 2)]
        rows = [shuffle(b, x, y, order) for x, y in pairs for order in (low, high)]
    for n, row in enumerate(rows):
        b.store(row, at_byte(b, to, b.mul(to_row, number(n))), align=1)
    b.ret_void()
    return function


def _emit_block(module: ir.Module, size: int, part: ir.Function) -> ir.Function:
    function, b = define(module, f"transpose_block_{size}", [PTR, I64, PTR, I64, I1], internal=True)
    to, to_row, source, source_row, streams = function.args
    rows, per_part = LINE // size, PART // size
    aside = b.alloca(ir.ArrayType(I8, rows * LINE))
    aside.align = LINE
    with counted(b, number(0), number(LINE // PART)) as column:
        for row in range(LINE // PART):
            line = at_byte(b, source, b.add(b.mul(source_row, number(row * per_part)), b.mul(column, number(PART))))
            place = b.add(b.mul(column, number(per_part * LINE)), number(row * PART))
            b.call(part, [at_byte(b, aside, place), number(LINE), line, source_row])
    mark = module.add_metadata([constant(I32, 1)])
    with b.if_else(streams) as (past, through):
        for branch, streamed in ((past, True), (through, False)):
            with branch, counted(b, number(0), number(rows)) as row:
                line = b.load(at_byte(b, aside, b.mul(row, number(LINE))), typ=ir.VectorType(I8, LINE), align=LINE)
                stored = b.store(line, at_byte(b, to, b.mul(row, to_row)), align=LINE if streamed else 1)
                if streamed:
                    stored.set_metadata("nontemporal", mark)
    b.ret_void()
    return function


def _emit_choice(
    module: ir.Module, name: str, kinds: list[ir.Type], by_size: dict[int, ir.Function], last: ir.Type | None = None
) -> None:
    """The function that goes to the one for a size of elements, its argument behind ``kinds``."""
    function, b = define(module, name, [*kinds, I64, *([] if last is None else [last])])
    given = [*function.args[: len(kinds)], *function.args[len(kinds) + 1 :]]
    done = function.append_basic_block("done")
    choice = b.switch(function.args[len(kinds)], done)
    for size, chosen in by_size.items():
        block = function.append_basic_block(f"of_{size}")
        choice.add_case(number(size), block)
        inner = ir.IRBuilder(block)
        inner.call(chosen, given)
        inner.branch(done)
    ir.IRBuilder(done).ret_void()
