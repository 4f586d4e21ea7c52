"""IR over any vector width: types, splat constants, intrinsics from a tested whitelist.

A *lane type* is a scalar type or a vector of it; every helper here treats both alike, so that one emitter makes
scalar and vector code. LLVM aborts the process on intrinsics that it does not know or cannot lower, hence the
whitelist: `intrinsic` refuses anything else, and a test compiles every entry in several widths.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from llvmlite import ir

__all__ = [
    "BF16", "F32", "F64", "HALF", "I1", "I8", "I16", "I32", "I64", "INTRINSICS", "PTR", "constant", "intrinsic",
    "lanes_of", "scalar_of", "shuffle", "splat", "undef", "vector_constant", "with_lanes", "with_scalar", "zero",
]  # fmt: skip

I1, I8, I16, I32, I64 = (ir.IntType(n) for n in (1, 8, 16, 32, 64))


class _BFloat(ir.Type):  # type: ignore[misc]
    """LLVM's bfloat, which llvmlite has no name for."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


F32, F64, HALF, BF16 = ir.FloatType(), ir.DoubleType(), ir.HalfType(), _BFloat()
PTR = ir.PointerType()

#: Intrinsics that lower on every target to instructions or to whitelisted library calls.
#: The value names the types in the name's suffix: ``r`` result, digits arguments.
INTRINSICS = {
    "llvm.fabs": "r", "llvm.copysign": "r", "llvm.sqrt": "r", "llvm.floor": "r", "llvm.ceil": "r", "llvm.trunc": "r",
    "llvm.rint": "r", "llvm.fmuladd": "r", "llvm.fma": "r", "llvm.maximum": "r", "llvm.minimum": "r",
    "llvm.ctpop": "r", "llvm.ctlz": "r", "llvm.cttz": "r", "llvm.abs": "r",
    "llvm.smax": "r", "llvm.smin": "r", "llvm.umax": "r", "llvm.umin": "r", "llvm.fshl": "r", "llvm.fshr": "r",
    "llvm.bswap": "r", "llvm.fptosi.sat": "r0", "llvm.fptoui.sat": "r0", "llvm.masked.load": "r0",
    "llvm.masked.store": "01", "llvm.memcpy": "012", "llvm.memset": "02", "llvm.vector.reduce.or": "0",
    "llvm.vector.reduce.and": "0", "llvm.prefetch": "0",
}  # fmt: skip


def lanes_of(t: ir.Type) -> int:
    """Number of lanes, 1 for a scalar type."""
    return int(t.count) if isinstance(t, ir.VectorType) else 1


def scalar_of(t: ir.Type) -> ir.Type:
    return t.element if isinstance(t, ir.VectorType) else t


def with_lanes(scalar: ir.Type, lanes: int) -> ir.Type:
    return scalar if lanes == 1 else ir.VectorType(scalar, lanes)


def with_scalar(t: ir.Type, scalar: ir.Type) -> ir.Type:
    """The same number of lanes of another scalar type."""
    return with_lanes(scalar, lanes_of(t))


class _Text(ir.Constant):  # type: ignore[misc]
    """A constant whose text is ready; splats of any width stay short."""

    def __init__(self, t: ir.Type, text: str) -> None:
        self.type = t
        self.constant: Any = text

    def _get_reference(self) -> str:
        return str(self.constant)

    def _to_string(self) -> str:
        return f"{self.type} {self.constant}"


def _scalar_text(t: ir.Type, value: Any) -> str:
    if isinstance(t, ir.IntType):
        return str(int(value)) if t.width != 1 else ("true" if value else "false")
    if isinstance(t, ir.FloatType):
        value = struct.unpack("f", struct.pack("f", value))[0] if abs(value) < float("inf") else value
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def constant(t: ir.Type, value: Any) -> ir.Constant:
    """``value`` in every lane of type ``t`` (floats of 32 bits are rounded to nearest)."""
    text = _scalar_text(scalar_of(t), value)
    if isinstance(t, ir.VectorType):
        text = f"splat ({t.element} {text})"
    return _Text(t, text)


def zero(t: ir.Type) -> ir.Constant:
    return _Text(t, "zeroinitializer") if isinstance(t, ir.VectorType) else constant(t, 0)


def undef(t: ir.Type) -> ir.Constant:
    return _Text(t, "poison")


class _Each(_Text):
    """A constant vector with a value per lane; llvmlite looks at the lanes of shuffle masks."""

    def __init__(self, t: ir.Type, lanes: list[ir.Constant]) -> None:
        super().__init__(t, "<" + ", ".join(str(c) for c in lanes) + ">")
        self.text = self.constant
        self.constant = lanes

    def _get_reference(self) -> str:
        return str(self.text)

    def _to_string(self) -> str:
        return f"{self.type} {self.text}"


def vector_constant(values: Sequence[Any], scalar: ir.Type) -> ir.Constant:
    """A constant vector with a value per lane."""
    return _Each(ir.VectorType(scalar, len(values)), [constant(scalar, v) for v in values])


class _Number(_Text):
    """A scalar integer whose ``constant`` is a number, as shuffle masks want."""

    def __init__(self, t: ir.Type, value: int) -> None:
        super().__init__(t, str(value))
        self.constant = value


def shuffle(b: ir.IRBuilder, x: ir.Value, y: ir.Value | None, order: Sequence[int]) -> ir.Value:
    """Lanes of the concatenation of ``x`` and ``y`` in another order."""
    mask = _Each(ir.VectorType(I32, len(order)), [_Number(I32, k) for k in order])
    return b.shuffle_vector(x, undef(x.type) if y is None else y, mask)


def splat(b: ir.IRBuilder, value: ir.Value, lanes: int) -> ir.Value:
    """A scalar in every lane of a vector; scalars stay as they are when ``lanes`` is 1."""
    if lanes == 1:
        return value
    t = ir.VectorType(value.type, lanes)
    if isinstance(value, _Text):
        return _Text(t, f"splat ({value.type} {value.constant})")
    first = b.insert_element(undef(t), value, constant(I32, 0))
    return shuffle(b, first, None, [0] * lanes)


def suffix(t: ir.Type) -> str:
    """The mangled type in an intrinsic's name: ``v8f32``, ``i64``, ``p0``."""
    if isinstance(t, ir.VectorType):
        return f"v{t.count}{suffix(t.element)}"
    if isinstance(t, ir.IntType):
        return f"i{t.width}"
    if isinstance(t, ir.PointerType):
        return "p0"
    return {"float": "f32", "double": "f64", "half": "f16"}[str(t)]


def intrinsic(b: ir.IRBuilder, name: str, result: ir.Type, arguments: Sequence[ir.Value]) -> ir.Value:
    """Call an intrinsic of the whitelist; KeyError for any other name."""
    types = [a.type for a in arguments]
    parts = [suffix(result if c == "r" else types[int(c)]) for c in INTRINSICS[name]]
    full = ".".join([name, *parts])
    module = b.module
    function = module.globals.get(full)
    if function is None:
        function = ir.Function(module, ir.FunctionType(result, types), full)
    return b.call(function, arguments)
