"""Elementwise operations: the same operation on shards. Padding is harmless: no element reads another."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.opset import OPS
from shardc.partitioner.rewrite.body import Body, Handled
from shardc.partitioner.strategy.rule import (
    Local,
    PartitionRow,
    emit_same,
    linear_in_each,
    linear_in_first,
    never_linear,
    pass_through,
)
from shardc.partitioner.strategy.values import Tree

__all__ = ["RULES", "Linear"]

#: See `Local.linear`.
Linear = Callable[[Instruction, str], tuple[tuple[int, ...], ...]]


def _moved(op: Instruction, reduction: str) -> tuple[tuple[int, ...], ...]:
    return ((0,),)


def _both(op: Instruction, reduction: str) -> tuple[tuple[int, ...], ...]:
    return ((0, 1),) if reduction == "sum" else ()


def _extremum(reduction: str) -> Linear:
    """The maximum of two partial maxima is a partial maximum."""

    def linear(op: Instruction, partial: str) -> tuple[tuple[int, ...], ...]:
        return ((0, 1),) if partial == reduction else ()

    return linear


def _numerator(op: Instruction, reduction: str) -> tuple[tuple[int, ...], ...]:
    """Division is linear in its numerator, but integer division rounds."""
    exact = op.shape.dtype.is_float or op.shape.dtype.is_complex
    return ((0,),) if reduction == "sum" and exact else ()


def _branches(op: Instruction, reduction: str) -> tuple[tuple[int, ...], ...]:
    return ((1, 2),)


def _convert(op: Instruction, reduction: str) -> tuple[tuple[int, ...], ...]:
    """Only to a wider float: narrowing rounds, and integers wrap. To the same type it is a copy."""
    old, new = op.operands[0].shape.dtype, op.shape.dtype
    if old is new:
        return ((0,),)
    return ((0,),) if old.is_float and new.is_float and old.bits <= new.bits and reduction == "sum" else ()


_LINEAR: dict[str, Linear] = {
    "negate": linear_in_first,
    "real": linear_in_first,
    "imag": linear_in_first,
    "convert": _convert,
    "add": _both,
    "subtract": _both,
    "complex": _both,
    "maximum": _extremum("max"),
    "minimum": _extremum("min"),
    "multiply": linear_in_each,
    "divide": _numerator,
    "select": _branches,
}


def _copy(body: Body, op: Instruction) -> Tree:
    """A copied tuple is its leaves."""
    return body.values[op.operands[0]] if op.shape.is_tuple else body.partition_locally(op, _COPY)


_COPY = Local("on shards", linear=_moved)


def _table() -> dict[str, PartitionRow]:
    names = (o for o, op in OPS.items() if op.family == "elementwise")
    table: dict[str, PartitionRow] = {
        o: Local("on shards", emit_same, pass_through, _LINEAR.get(o, never_linear)) for o in names
    }
    table["copy"] = Handled("on shards, leaf by leaf", _copy)
    return table


RULES: Mapping[str, PartitionRow] = _table()
