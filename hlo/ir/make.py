"""Making instructions in passes: shapes are known, provenance comes from what is replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from types import MappingProxyType
from typing import Any

import numpy as np

from shardc.hlo.ir.build import reachable_computations
from shardc.hlo.ir.ir import (
    NO_ATTRS,
    Computation,
    Instruction,
    Module,
    Rebuilt,
    called_computations,
    has_side_effect,
    rebuild_computation,
    topological,
)
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.types import Shape

__all__ = [
    "broadcast_scalar",
    "constant",
    "effects",
    "inline",
    "is_reshape",
    "keep_reachable",
    "make",
    "map_computations",
    "reshape",
    "scalar_value",
    "splat_source",
    "step_computations",
    "transpose",
]


def make(opcode: str, shape: Shape, operands: Iterable[Instruction], like: Instruction, **attrs: Any) -> Instruction:
    """A new instruction with the metadata and origin of ``like``."""
    return Instruction(
        opcode,
        shape,
        operands,
        MappingProxyType(attrs) if attrs else NO_ATTRS,
        metadata=like.metadata,
        origin=like.origin,
    )


def constant(literal: Literal, like: Instruction) -> Instruction:
    return make("constant", literal.shape, (), like, literal=literal)


def reshape(operand: Instruction, dims: tuple[int, ...], like: Instruction) -> Instruction:
    """``operand`` with other dimensions of the same size; itself when they are equal."""
    if operand.shape.dims == dims:
        return operand
    return make("reshape", operand.shape.with_dims(dims), (operand,), like)


def transpose(operand: Instruction, permutation: tuple[int, ...], like: Instruction) -> Instruction:
    """Dimension i of the result is dimension ``permutation[i]`` of ``operand``."""
    if permutation == tuple(range(len(permutation))):
        return operand
    dims = tuple(operand.shape.dims[p] for p in permutation)
    return make("transpose", operand.shape.with_dims(dims), (operand,), like, dimensions=permutation)


def broadcast_scalar(scalar: Instruction, dims: tuple[int, ...], like: Instruction) -> Instruction:
    if not dims:
        return scalar
    return make("broadcast", scalar.shape.with_dims(dims), (scalar,), like, dimensions=())


def splat_source(instruction: Instruction) -> Instruction | None:
    """The scalar whose value every element has, if that is plain to see."""
    if instruction.shape.is_array and not instruction.shape.dims:
        return instruction
    if instruction.opcode == "broadcast" and not instruction.operands[0].shape.dims:
        return instruction.operands[0]
    return None


def is_reshape(i: Instruction) -> bool:
    """Whether ``i`` has the elements of its operand in their order, as a reshape, or as a broadcast to sizes of 1."""
    if i.opcode == "broadcast":
        dims = list(i.attrs["dimensions"])
        return i.shape.size == i.operands[0].shape.size and dims == sorted(dims)
    return i.opcode == "reshape"


def scalar_value(instruction: Instruction) -> Any:
    """The constant value of all elements (a NumPy scalar), or None."""
    source = splat_source(instruction) or instruction
    if source.opcode == "constant":
        value = source.attrs["literal"].splat
        return None if value is None else np.asarray(value).flat[0]
    return None


def inline(
    computation: Computation, operands: tuple[Instruction, ...], kept: list[Instruction] | None = None
) -> Instruction:
    """The computation's root with its parameters replaced by ``operands``; ``kept`` gets what has side effects, which
    is never the same instruction a second time."""
    new: dict[Instruction, Instruction] = {}
    for i in computation:
        if i.opcode == "parameter":
            new[i] = operands[i.attrs["index"]]
        else:
            args = tuple(new[o] for o in i.operands)
            same = all(a is b for a, b in zip(args, i.operands, strict=True)) and not has_side_effect(i)
            new[i] = i if same else i.replace(operands=args)
    if kept is not None:
        kept.extend(new[i] for i in effects(computation))
    return new[computation.root]


def keep_reachable(module: Module, entry: Computation) -> Module:
    """``module`` with another entry and exactly the computations that it needs; the same module where it has these."""
    computations = reachable_computations(entry)
    if entry is module.entry and set(computations) == set(module.computations):
        return module
    return module.with_(computations=computations, entry=entry)


def map_computations(
    module: Module, change: Callable[[Computation], Computation], *, only: Set[Computation] | None = None
) -> Module:
    """Apply ``change`` to every computation (or ``only`` some), callees first, calls already redirected."""
    new = Rebuilt()
    for c in reachable_computations(module.entry):
        redirected = rebuild_computation(c, None, new)
        new[c] = change(redirected) if only is None or c in only else redirected
    return keep_reachable(module, new[module.entry])


def step_computations(module: Module) -> set[Computation]:
    """Computations whose instructions become steps: the entry, loop parts and branches."""
    found: set[Computation] = set()
    work = [module.entry]
    while work:
        c = work.pop()
        if c in found:
            continue
        found.add(c)
        for i in c:
            if i.opcode in ("while", "conditional"):
                work.extend(callee for _, callee in called_computations(i))
    return found


def with_order(computation: Computation, root: Instruction, extra: Iterable[Instruction] = ()) -> Computation:
    """A computation that returns ``root`` with the parameters of ``computation``."""
    keep = [i for i in computation if i.opcode == "parameter"]
    return Computation(computation.name, topological([*keep, *extra, root]), root)


def effects(computation: Computation) -> list[Instruction]:
    """Instructions that must stay although nobody reads them."""
    return [i for i in computation if has_side_effect(i)]
