"""How two elements of a group's members become one: per reduction and element type, over vectors of any width.

Elements are combined in a wider type where they are narrow floats (f32, rounded once at the end); integers of less than
a byte keep their low bits at the end. Complex numbers are pairs of neighbouring lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from shardc.native.math.element import Element
from shardc.native.math.small_floats import decode_float, encode_float
from shardc.native.math.vector import F32, F64, constant, intrinsic, shuffle, with_lanes

__all__ = ["Combining"]

Combine = Callable[[ir.IRBuilder, ir.Value, ir.Value], ir.Value]


@dataclass(frozen=True, slots=True)
class Combining:
    """A reduction of elements: ``add``, ``multiply``, ``maximum``, ``minimum``, ``and`` or ``or``."""

    reduction: str
    element: Element

    @property
    def parts(self) -> int:
        """Numbers in an element."""
        return 2 if self.element.kind == "complex" else 1

    @property
    def stored(self) -> ir.Type:
        """The type of a number in members' memory."""
        e = self.element
        return self.wide if e.kind == "complex" or (e.kind == "float" and e.bits >= 32) else ir.IntType(8 * e.nbytes)

    @property
    def wide(self) -> ir.Type:
        """The type of a number while it is combined."""
        e = self.element
        if e.kind in ("float", "complex"):
            return F64 if e.bits // self.parts == 64 else F32
        return ir.IntType(8 * e.nbytes)

    @property
    def narrows(self) -> bool:
        """Whether results have other bits than what was combined."""
        return self._is_narrow or self._is_packed

    @property
    def _is_narrow(self) -> bool:
        return self.element.kind == "float" and self.element.bits < 32

    @property
    def _is_packed(self) -> bool:
        return self.element.kind in ("signed", "unsigned") and self.element.bits < 8

    def load(self, b: ir.IRBuilder, pointer: ir.Value, lanes: int, align: int = 0) -> ir.Value:
        """``lanes`` numbers from a member's memory, wide; ``align``: bytes, where it is more than an element's."""
        align = align or self.element.nbytes // self.parts
        value = b.load(pointer, typ=with_lanes(self.stored, lanes), align=align)
        if self._is_narrow:
            return decode_float(b, value, self.element)
        return self._low_bits(b, value) if self._is_packed else value

    def store(self, b: ir.IRBuilder, value: ir.Value, pointer: ir.Value, align: int = 1) -> None:
        """Wide numbers as a result holds them, at a multiple of ``align`` bytes."""
        if self._is_narrow:
            value = encode_float(b, value, self.element)
        elif self._is_packed:
            value = self._low_bits(b, value)
        b.store(value, pointer, align=align)

    def _low_bits(self, b: ir.IRBuilder, value: ir.Value) -> ir.Value:
        shift = constant(value.type, 8 - self.element.bits)
        back = b.ashr if self.element.kind == "signed" else b.lshr
        return back(b.shl(value, shift), shift)

    def combine(self, b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
        """One step of the tree; ``x`` comes from the lower positions."""
        kind, bits = self.element.kind, self.reduction
        if kind == "pred":
            bits = {"add": "or", "maximum": "or", "multiply": "and", "minimum": "and"}.get(bits, bits)
        if bits in ("and", "or"):
            return {"and": b.and_, "or": b.or_}[bits](x, y)
        if kind == "complex" and self.reduction == "multiply":
            return _complex_product(b, x, y)
        if kind in ("float", "complex"):
            return _FLOATS[self.reduction](b, x, y)
        signs = {"signed": "s", "unsigned": "u"}[kind]
        if self.reduction in ("maximum", "minimum"):
            return intrinsic(b, f"llvm.{signs}{self.reduction[:3]}", x.type, [x, y])
        return {"add": b.add, "multiply": b.mul}[self.reduction](x, y)


def _first_where(comparison: str) -> Combine:
    """``x`` where it compares so or is NaN, else ``y``: the first of equal ones, the first NaN."""

    def choose(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
        first = b.or_(b.fcmp_ordered(comparison, x, y), b.fcmp_unordered("uno", x, x))
        return b.select(first, x, y)

    return choose


_FLOATS: dict[str, Combine] = {
    "add": lambda b, x, y: b.fadd(x, y),
    "multiply": lambda b, x, y: b.fmul(x, y),
    "maximum": _first_where(">="),
    "minimum": _first_where("<="),
}


def _complex_product(b: ir.IRBuilder, x: ir.Value, y: ir.Value) -> ir.Value:
    """Each product and sum rounded by itself."""
    lanes = range(x.type.count)
    reals, imaginaries = ([k - k % 2 + part for k in lanes] for part in (0, 1))
    swapped = [k + 1 - 2 * (k % 2) for k in lanes]
    straight = b.fmul(shuffle(b, x, None, reals), y)
    crossed = b.fmul(shuffle(b, x, None, imaginaries), shuffle(b, y, None, swapped))
    difference, total = b.fsub(straight, crossed), b.fadd(straight, crossed)
    return shuffle(b, difference, total, [k + len(lanes) * (k % 2) for k in lanes])
