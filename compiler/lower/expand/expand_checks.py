"""Expand checks: ``check.*`` custom calls compute what they claim in ordinary ops, and keep one predicate to test.

The result is a custom call of the same target with one pred[] operand; the step function tests it and stops the run
where it is false.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.build import binary_computation
from shardc.hlo.ir.checks import limits_of
from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_module
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import broadcast_scalar, constant, keep_reachable, make
from shardc.hlo.ir.types import DTYPES, Shape, array_shape

__all__ = ["ExpandChecks"]


@dataclass(frozen=True, slots=True)
class ExpandChecks:
    """Each check becomes comparisons, one ``and`` over all elements, and a check of that predicate."""

    name: str = "expand-checks"
    why: str = "a false check fails the run, in compiled code too"
    looks_at: ClassVar[frozenset[str]] = frozenset({"custom-call"})

    def run(self, module: Module) -> Module:
        all_of = binary_computation("and", "pred", "all_of")

        def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
            target = old.attrs.get("custom_call_target", "") if old.opcode == "custom-call" else ""
            if not target.startswith("check.") or len(operands) == 1:
                return None
            rule = _RULES.get(target)
            if rule is None or len(operands) != 2:
                known = ", ".join(sorted(_RULES))
                raise UnsupportedError(f"unknown check {target!r}", where=old.place, fix=f"use one of {known}")
            holds = rule(_Maker(old), *operands)
            return old.replace(operands=(_all(holds, all_of, old),))

        module = rebuild_module(module, change)
        return keep_reachable(module, module.entry)


def _all(holds: Instruction, all_of: Computation, like: Instruction) -> Instruction:
    dimensions = tuple(range(holds.shape.rank))
    if not dimensions:
        return holds
    start = constant(Literal.full(array_shape("pred"), True), like)
    return make("reduce", array_shape("pred"), (holds, start), like, dimensions=dimensions, to_apply=all_of)


class _Maker:
    """Elementwise instructions with the provenance of the check."""

    def __init__(self, like: Instruction) -> None:
        self.like = like

    def op(self, opcode: str, *operands: Instruction) -> Instruction:
        return make(opcode, operands[-1].shape.plain, operands, self.like)

    def compare(self, direction: str, x: Instruction, y: Instruction) -> Instruction:
        return make("compare", x.shape.plain.with_dtype("pred"), (x, y), self.like, direction=direction)

    def convert(self, x: Instruction, dtype: str) -> Instruction:
        if x.shape.dtype.name == dtype:
            return x
        return make("convert", x.shape.plain.with_dtype(dtype), (x,), self.like)

    def full(self, value: float, shape: Shape) -> Instruction:
        return broadcast_scalar(
            constant(Literal.full(array_shape(shape.dtype), value), self.like), shape.dims, self.like
        )

    def part(self, opcode: str, x: Instruction) -> Instruction:
        return make(opcode, x.shape.plain.with_dtype("f32" if x.shape.dtype.name == "c64" else "f64"), (x,), self.like)


def _same(m: _Maker, x: Instruction, y: Instruction) -> Instruction:
    """Equal, or both NaN."""
    equal = m.compare("EQ", x, y)
    if not (x.shape.dtype.is_float or x.shape.dtype.is_complex):
        return equal
    return m.op("or", equal, m.op("and", m.compare("NE", x, x), m.compare("NE", y, y)))


def _almost(m: _Maker, x: Instruction, y: Instruction) -> Instruction:
    """The same, or no further apart than the tolerance; complex numbers by their parts."""
    if x.shape.dtype.is_complex:
        return m.op("and", *(_almost(m, m.part(o, x), m.part(o, y)) for o in ("real", "imag")))
    difference = m.op("subtract", m.convert(x, "f64"), m.convert(y, "f64"))
    near = m.compare("LE", m.op("abs", difference), m.full(limits_of(m.like).tolerance, difference.shape))
    return m.op("or", _same(m, x, y), near)


def _close(m: _Maker, x: Instruction, y: Instruction) -> Instruction:
    """The same, or at most so many values of the type apart; complex numbers by their parts."""
    dtype = x.shape.dtype
    if dtype.is_complex:
        return m.op("and", *(_close(m, m.part(o, x), m.part(o, y)) for o in ("real", "imag")))
    if not dtype.is_float:
        return m.compare("EQ", x, y)
    if dtype.bits < 8:
        x, y = m.convert(x, "f32"), m.convert(y, "f32")
    first, second = _ordinal(m, x), _ordinal(m, y)
    distance = m.op("subtract", m.op("maximum", first, second), m.op("minimum", first, second))
    near = m.compare("LE", distance, m.full(limits_of(m.like).max_ulps, distance.shape))
    numbers = m.op("and", m.compare("EQ", x, x), m.compare("EQ", y, y))
    return m.op("or", _same(m, x, y), m.op("and", numbers, near))


def _ordinal(m: _Maker, x: Instruction) -> Instruction:
    """An unsigned integer that counts the values of the type upwards; both zeros are one value."""
    kind = DTYPES[f"u{x.shape.dtype.bits}"]
    bits = make("bitcast-convert", x.shape.plain.with_dtype(kind.name), (x,), m.like)
    half = m.full(1 << (kind.bits - 1), bits.shape)
    magnitude = m.op("and", bits, m.full((1 << (kind.bits - 1)) - 1, bits.shape))
    negative = m.compare("GE", bits, half)
    return m.op("select", negative, m.op("subtract", half, magnitude), m.op("add", half, magnitude))


_RULES: Mapping[str, Callable[[_Maker, Instruction, Instruction], Instruction]] = {
    "check.expect_eq": _same,
    "check.expect_almost_eq": _almost,
    "check.expect_close": _close,
}
