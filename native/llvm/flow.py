"""Loops and records in IR made with a builder: what the engine's code is put together from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from llvmlite import ir

from shardc.native.math.vector import I8, I64, PTR, constant

__all__ = ["at_byte", "counted", "define", "least", "number", "row_of", "wanted"]


@contextmanager
def counted(b: ir.IRBuilder, begin: ir.Value, end: ir.Value, step: int | ir.Value = 1) -> Iterator[ir.Value]:
    """The body runs for ``begin``, ``begin + step``, ... while that is less than ``end``, maybe never.

    Example: ``with counted(b, number(0), n) as k: ...``; afterwards ``b`` is behind the loop.
    """
    head, body, done = (b.append_basic_block(n) for n in ("loop", "body", "done"))
    before = b.block
    b.branch(head)
    b.position_at_end(head)
    at = b.phi(I64)
    at.add_incoming(begin, before)
    b.cbranch(b.icmp_signed("<", at, end), body, done)
    b.position_at_end(body)
    yield at
    following = b.add(at, number(step) if isinstance(step, int) else step)
    at.add_incoming(following, b.block)
    b.branch(head)
    b.position_at_end(done)


def number(value: int) -> ir.Constant:
    return constant(I64, value)


def least(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    return b.select(b.icmp_signed("<", x, y), x, y)


def at_byte(b: ir.IRBuilder, base: ir.Value, offset: ir.Value) -> ir.Value:
    """The address ``offset`` bytes behind ``base``."""
    return b.gep(base, [offset], source_etype=I8)


def row_of(b: ir.IRBuilder, table: ir.Value, index: ir.Value, t: ir.Type = PTR) -> ir.Value:
    """The entry of a table, loaded."""
    return b.load(b.gep(table, [index], source_etype=t), typ=t)


def define(
    module: ir.Module, name: str, arguments: Sequence[ir.Type], result: ir.Type | None = None, *, internal: bool = False
) -> tuple[ir.Function, ir.IRBuilder]:
    """A new function and a builder at its start."""
    function = ir.Function(module, ir.FunctionType(result or ir.VoidType(), arguments), name)
    if internal:
        function.linkage = "internal"
    return function, ir.IRBuilder(function.append_basic_block("entry"))


@contextmanager
def wanted(b: ir.IRBuilder, pointers: ir.Value, count: ir.Value) -> Iterator[tuple[ir.Value, ir.Value]]:
    """The body runs for (index, pointer) of a table's entries that are neither null nor equal to the one before."""
    with counted(b, number(0), count) as k:
        pointer = row_of(b, pointers, k)
        first = b.icmp_signed("==", k, number(0))
        before = row_of(b, pointers, b.select(first, k, b.sub(k, number(1))))
        other = b.or_(first, b.icmp_unsigned("!=", pointer, before))
        present = b.icmp_unsigned("!=", b.ptrtoint(pointer, I64), number(0))
        with b.if_then(b.and_(present, other)):
            yield k, pointer
