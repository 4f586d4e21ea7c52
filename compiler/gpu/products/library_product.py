"""Products that cuBLASLt can do: what a dot, or a fusion of one with what follows it, is in the library's terms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from shardc.compiler.elements.dot_sides import DotSide, DotSides
from shardc.compiler.gpu.products.plan import may_round
from shardc.compiler.gpu.products.problem import in_memory_order
from shardc.compiler.tuning import DEFAULT, Tuning
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import DType
from shardc.native.gpu.product import Product

__all__ = ["LibraryProduct", "library_product"]

#: Element types of operands, and those of results beside the same.
_TYPES = {"f32": (), "f64": (), "bf16": ("f32",), "f16": ("f32",)}
#: Smaller products are over before the library has chosen how to do them.
_FEWEST = 1 << 15


@dataclass(frozen=True, slots=True)
class LibraryProduct:
    """A product of the operand leaves ``a``, ``b`` and ``bias``."""

    product: Product
    a: int
    b: int
    bias: int | None = None


def library_product(instruction: Instruction, tuning: Tuning = DEFAULT) -> LibraryProduct | None:
    """The library's product that ``instruction`` is; None where it is none.

    Sides must lie as dense matrices, batches outermost. Of what follows a product the library does a bias along its
    columns, and relu or gelu (by tanh) of that.
    """
    found = _product(instruction)
    if found is None:
        return None
    dot, numbers, root = found
    sides = DotSides(in_memory_order(dot))
    turned = [_turned(sides.left, rows_first=True), _turned(sides.right, rows_first=False)]
    dtype, result = dot.operands[0].shape.dtype.name, dot.shape.dtype.name
    if dtype != dot.operands[1].shape.dtype.name or result not in (dtype, *_TYPES.get(dtype, ())):
        return None
    if dtype not in _TYPES or None in turned or sides.work < _FEWEST or root.shape != dot.shape:
        return None
    activation = _activation(root)
    if activation is None:
        return None
    epilogue, inside = activation
    bias = _bias(inside, dot, len(sides.right.free))
    if (inside is not dot and bias is None) or (root is not dot and result == "f64"):
        return None
    precision: Literal["tf32", "highest"] = "tf32" if dtype == "f32" and may_round(dot, tuning) else "highest"
    size = (sides.m, sides.n, sides.k, sides.batches)
    product = Product(*size, bool(turned[0]), bool(turned[1]), dtype, result, precision, epilogue)
    return LibraryProduct(product, *numbers, bias)


def _product(instruction: Instruction) -> tuple[Instruction, tuple[int, int], Instruction] | None:
    """The only dot of a kernel, the numbers of its operands, and the kernel's only result."""
    if instruction.opcode == "dot":
        return (instruction, (0, 1), instruction) if instruction.shape.size else None
    if instruction.opcode != "fusion" or not instruction.shape.is_array:
        return None
    computation = instruction.attrs["calls"]
    dots = [i for i in computation if i.opcode == "dot"]
    if len(dots) != 1 or any(o.opcode != "parameter" for o in dots[0].operands):
        return None
    a, b = (o.attrs["index"] for o in dots[0].operands)
    return dots[0], (a, b), computation.root


def _turned(side: DotSide, rows_first: bool) -> bool | None:
    """Whether the side is stored with its rows and columns exchanged. None: neither order fits."""
    long = [d for d in range(len(side.dims)) if side.dims[d] > 1]
    for turned in (False, True):
        rows, columns = (side.free, side.contracted) if rows_first != turned else (side.contracted, side.free)
        if [d for d in (*side.batch, *rows, *columns) if side.dims[d] > 1] == long:
            return turned
    return None


def _activation(root: Instruction) -> tuple[Literal["", "relu", "gelu"], Instruction] | None:
    """What is applied last, and to what: ``""`` where nothing is."""
    if root.opcode == "maximum":
        for x, other in (root.operands, root.operands[::-1]):
            if _scalar(other) == 0.0:
                return "relu", x
    if root.opcode == "multiply":
        for x in _below(root):
            if _form(root, x) == _gelu(root.shape.dtype):
                return "gelu", x
    return "", root


def _below(root: Instruction) -> list[Instruction]:
    """The instructions that a root multiplies, at any depth."""
    if root.opcode != "multiply":
        return [root]
    return [x for o in root.operands for x in _below(o)]


def _bias(inside: Instruction, dot: Instruction, columns: int) -> int | None:
    """The number of the parameter that is added to all rows of ``dot``."""
    if inside.opcode != "add" or dot not in inside.operands:
        return None
    (spread,) = [o for o in inside.operands if o is not dot] or [dot]
    if spread.opcode != "broadcast" or spread.operands[0].opcode != "parameter":
        return None
    rank = len(dot.shape.dims)
    along = tuple(spread.attrs["dimensions"]) == tuple(range(rank - columns, rank)) and columns > 0
    number: int = spread.operands[0].attrs["index"]
    return number if along else None


def _scalar(i: Instruction) -> float | None:
    """The value of a constant that is the same everywhere."""
    if i.opcode == "broadcast" and not i.operands[0].shape.dims:
        i = i.operands[0]
    if i.opcode != "constant":
        return None
    splat = i.attrs["literal"].splat
    return None if splat is None else float(splat)


def _form(i: Instruction, x: Instruction) -> object:
    """Arithmetic on ``x`` as sums and products without order: equal for expressions that are the same but for it."""
    if i is x:
        return "x"
    value = _scalar(i)
    if value is not None:
        return value
    if i.opcode == "tanh":
        return ("tanh", _form(i.operands[0], x))
    if i.opcode in ("add", "multiply"):
        parts: list[object] = []
        for o in i.operands:
            form = _form(o, x)
            parts += form[1:] if isinstance(form, tuple) and form[0] == i.opcode else [form]
        return (i.opcode, *sorted(parts, key=repr))
    return ("other", i.name)


def _gelu(dtype: DType) -> object:
    """``x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))``, with constants of a type."""

    def number(value: float) -> float:
        return float(np.asarray(value, dtype.numpy))

    def made(opcode: str, *parts: object) -> object:
        return (opcode, *sorted(parts, key=repr))

    cubic = made("multiply", number(0.044715), "x", "x", "x")
    inner = made("multiply", number(math.sqrt(2 / math.pi)), made("add", "x", cubic))
    return made("multiply", 0.5, "x", made("add", 1.0, ("tanh", inner)))
