"""A row of the table of operations' costs, and the ways to fill its columns that families share.

Arithmetic is counted as textbooks and XLA's cost analysis do: what an algorithm has to do, to leading order. Real and
complex elements count alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.opset import OPS
from shardc.hlo.ir.types import DType

if TYPE_CHECKING:
    from shardc.costs.machines.measured import Rates

__all__ = [
    "FREE",
    "MOVES",
    "HostRates",
    "MatrixProduct",
    "OpCost",
    "VectorKind",
    "array_sizes",
    "as_simple",
    "body_steps",
    "log2_ceiling",
    "no_flops",
    "no_seconds",
    "per_element",
    "per_flop",
]

#: Classes of operations of a vector unit (`kernel_model`).
VectorKind = Literal["simple", "special", "long"]

#: Elementwise operations that only move or retype.
MOVES = frozenset(("copy", "convert", "bitcast-convert", "real", "imag", "complex", "reduce-precision"))

#: Types by the one whose measured rates count for them, and how many of its operations one of theirs takes.
_TYPES: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        "pred": ("s32", 0.25), "s8": ("s32", 0.25), "u8": ("s32", 0.25), "s16": ("s32", 0.5), "u16": ("s32", 0.5),
        "u32": ("s32", 1.0), "s64": ("s32", 2.0), "u64": ("s32", 2.0), "s4": ("s32", 0.25), "u4": ("s32", 0.25),
        "f16": ("f32", 1.5), "bf16": ("f32", 1.5), "c64": ("f32", 4.0), "c128": ("f64", 4.0),
    }
)  # fmt: skip
#: Where a type has no rates of its own kind, f32's count twice.
_AS_F32 = 2.0


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """``batch`` products of m x k by k x n; ``rate`` names the entry of `Device.flops` that holds, ``sizes`` are the
    bytes of an element of both operands and the result, ``terms`` the real products in one of these elements'."""

    batch: int
    m: int
    n: int
    k: int
    rate: str = "f32"
    sizes: tuple[int, int, int] = (4, 4, 4)
    terms: int = 1

    @property
    def flops(self) -> int:
        """Operations of one batch of real multiplications and additions."""
        return 2 * self.batch * self.m * self.n * self.k * self.terms


@dataclass(frozen=True, slots=True)
class HostRates:
    """Seconds per element on one core of a calibrated computer: ``rates`` as measured, or like what was measured."""

    rates: Rates
    table: Mapping[str, OpCost]

    def of(self, opcode: str, dtype: DType, like: tuple[str, float] | None = None) -> float:
        """Seconds per element of ``opcode``; ``like`` is (operation whose rate counts, how many of them) where nobody
        measured it (default: what its row says)."""
        known = self.rates.operations
        found = known.get(f"{opcode} {dtype.name}")
        if found is not None:
            return found
        name, factor = _TYPES.get(dtype.name, (dtype.name, 1.0))
        row = self.table.get(opcode)
        other, times = like or (row.like if row is not None and row.like else (opcode, 1.0))
        for key, scale in (
            (f"{opcode} {name}", factor),
            (f"{other} {dtype.name}", times),
            (f"{other} {name}", times * factor),
            (f"{other} f32", times * _AS_F32),
            (f"add {name}", times * factor),
        ):
            if key in known:
                return known[key] * scale
        return known.get("add f32", 0.0) * times


def no_flops(op: Instruction) -> int:
    """What moves data counts nothing."""
    return 0


def as_simple(op: Instruction, flops: int) -> Mapping[str, float]:
    """All of its arithmetic is simple operations of the vector unit."""
    return {"simple": float(flops)} if flops else {}


def array_sizes(op: Instruction) -> list[int]:
    """Elements of each array of the result."""
    return [s.size for s in op.shape.leaves() if s.is_array]


def per_element(op: Instruction, host: HostRates) -> float:
    """Elements of the result times the operation's rate."""
    dtype = next(s.dtype for s in op.shape.leaves() if s.is_array)
    return max(array_sizes(op)) * host.of(op.opcode, dtype)


def per_flop(op: Instruction, host: HostRates) -> float:
    """Kernels that are called with whole arrays, or fold: by their operations, in additions."""
    dtype = next(s.dtype for s in op.shape.leaves() if s.is_array)
    return host.table[op.opcode].flops(op) * host.of("add", dtype)


def no_seconds(op: Instruction, host: HostRates) -> float:
    """Names for values, and what is made where it is read."""
    return 0.0


@dataclass(frozen=True, slots=True)
class OpCost:
    """What one execution of an operation costs, whatever calls it; called computations count where they are called.

    ``flops``: arithmetic operations. ``vector``: operations of a device's vector unit by class, given its flops;
    ``kind``: the class of one element's, where there is only one.
    ``products``: the matrix products that it is. ``rows``: runs of consecutive bytes that it touches (number, length).
    ``launches`` follow one another, in ``passes`` over the data. ``free``: takes no time of its own on a device.
    ``samples``: reads only the part of operand 0 that its result is. ``renames``: the same elements in the same order.
    ``host``: seconds of one core by measured rates (products have curves of their own); ``like``: (operation whose
    rate counts, how many of them) where its own was not measured. ``weight``: simple operations that an element takes,
    roughly, where a kernel is cut into chunks for threads; the same on every computer, as chunks decide about bits.
    """

    flops: Callable[[Instruction], int] = no_flops
    vector: Callable[[Instruction, int], Mapping[str, float]] = as_simple
    kind: VectorKind = "simple"
    products: Callable[[Instruction], tuple[MatrixProduct, ...]] = lambda op: ()
    rows: Callable[[Instruction], list[tuple[int, int]]] = lambda op: []
    launches: Callable[[Instruction], int] = lambda op: 1
    passes: Callable[[Instruction], int] = lambda op: 1
    weight: int = 1
    free: bool = False
    samples: bool = False
    renames: bool = False
    host: Callable[[Instruction, HostRates], float] = per_element
    like: tuple[str, float] | None = None


#: A name for a value, or what is made where it is read.
FREE = OpCost(free=True, host=no_seconds)


def body_steps(op: Instruction, role: str = "to_apply") -> int:
    """Operations of a scalar computation."""
    body: Computation = op.attrs[role]
    return count_steps(body)


def count_steps(inside: Iterable[Instruction]) -> int:
    """Arithmetic operations on scalars."""
    return sum(1 for i in inside if OPS[i.opcode].family == "elementwise" and i.opcode not in MOVES)


def log2_ceiling(n: int) -> int:
    """The smallest power of two that is not less than ``n`` has this exponent."""
    return (max(n, 1) - 1).bit_length()
