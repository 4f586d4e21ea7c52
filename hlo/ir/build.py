"""Building computations: `Builder` adds instructions one by one and infers their shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardc.hlo.ir.infer import infer_shape
from shardc.hlo.ir.ir import Computation, Instruction, Metadata, Module, Origin, called_computations
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.sharding import AnySharding
from shardc.hlo.ir.types import DType, Shape, array_shape

__all__ = ["Builder", "binary_computation", "key_comparator", "make_instruction", "make_module"]


def make_instruction(
    opcode: str,
    *operands: Instruction,
    shape: Shape | None = None,
    name: str = "",
    sharding: AnySharding = None,
    metadata: Metadata | None = None,
    origin: Origin | None = None,
    **attrs: Any,
) -> Instruction:
    """An instruction whose shape is inferred unless given (ops such as convert, iota and reshape need it)."""
    if shape is None:
        shape = infer_shape(opcode, operands, attrs)
    return Instruction(opcode, shape, operands, attrs, name=name, sharding=sharding, metadata=metadata, origin=origin)


class Builder:
    """Makes one computation.

    Example::

        b = Builder("square_sum")
        x = b.parameter(array_shape("f32", 8), "x")
        total = b.add("reduce", b.add("multiply", x, x), b.constant(0.0, "f32"), dimensions=(0,),
                      to_apply=binary_computation("add", DTYPES["f32"]))
        computation = b.build(total)
    """

    def __init__(self, name: str, *, metadata: Metadata | None = None, origin: Origin | None = None) -> None:
        self.name = name
        self.metadata = metadata
        self.origin = origin
        self.instructions: list[Instruction] = []
        self._parameters = 0

    def append(self, instruction: Instruction) -> Instruction:
        self.instructions.append(instruction)
        return instruction

    def add(self, opcode: str, *operands: Instruction, **fields: Any) -> Instruction:
        """Append an instruction; keywords as for `make_instruction`. Default provenance is the builder's."""
        fields.setdefault("metadata", self.metadata)
        fields.setdefault("origin", self.origin)
        return self.append(make_instruction(opcode, *operands, **fields))

    def parameter(self, shape: Shape, name: str = "", **fields: Any) -> Instruction:
        index = self._parameters
        self._parameters += 1
        return self.add("parameter", shape=shape, name=name or f"p{index}", index=index, **fields)

    def constant(
        self, value: Any, dtype: DType | str | None = None, dims: tuple[int, ...] | None = None
    ) -> Instruction:
        """A constant from a scalar or array; with ``dims``, a splat."""
        if dims is not None:
            assert dtype is not None
            literal = Literal.full(array_shape(dtype, *dims), value)
        elif dtype is not None:
            literal = Literal(np.asarray(value).astype(array_shape(dtype).dtype.numpy))
        else:
            literal = Literal(np.array(value))
        return self.add("constant", shape=literal.shape, literal=literal)

    def build(self, root: Instruction | None = None) -> Computation:
        return Computation(self.name, self.instructions, root if root is not None else self.instructions[-1])


def key_comparator(
    name: str, key: DType | str, *carried: DType | str, direction: str = "LT", **order: Any
) -> Computation:
    """A comparator of sorts by their first operand, of elements ``key``; those of ``carried`` go along.

    >>> [p.shape.dtype.name for p in key_comparator("ascending", "f32", "s32").parameters]
    ['f32', 'f32', 's32', 's32']
    """
    b = Builder(name)
    x, y, *_ = [b.parameter(array_shape(dtype)) for dtype in (key, *carried) for _ in range(2)]
    return b.build(b.add("compare", x, y, direction=direction, **order))


def binary_computation(opcode: str, dtype: DType | str, name: str = "") -> Computation:
    """``(a, b) -> opcode(a, b)`` over scalars, as reductions call it."""
    b = Builder(name or f"{opcode}_{dtype}")
    x = b.parameter(array_shape(dtype), "a")
    y = b.parameter(array_shape(dtype), "b")
    return b.build(b.add(opcode, x, y))


def make_module(name: str, entry: Computation, **fields: Any) -> Module:
    """A module around ``entry`` and everything it calls, callees first."""
    return Module(name, reachable_computations(entry), entry, **fields)


def reachable_computations(entry: Computation) -> tuple[Computation, ...]:
    """All computations that ``entry`` calls, callees first, ``entry`` last; deep programs do not recurse here."""
    order: dict[Computation, None] = {}
    stack: list[tuple[Computation, bool]] = [(entry, False)]
    while stack:
        computation, expanded = stack.pop()
        if computation in order:
            continue
        if expanded:
            order[computation] = None
            continue
        stack.append((computation, True))
        callees = [c for i in computation for _, c in called_computations(i)]
        stack.extend((c, False) for c in reversed(callees) if c not in order)
    return tuple(order)


def uncalled_computations(module: Module) -> list[Computation]:
    """The computations, besides the entry, that nobody calls: other functions of the program."""
    called = {c for i in module.instructions() for _, c in called_computations(i)}
    return [c for c in module.computations if c is not module.entry and c not in called]
