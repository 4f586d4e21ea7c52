"""Split reductions: few long ones become many shorter ones, and one of their results.

``sum(x: f32[4096,4096])`` is one number, and one thread's work. As ``sum(sum(x, 1), 0)`` it is 4096 sums that threads
share, and a short one. Sums of columns are split by rows, so that each part reads rows as they lie.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from shardc.compiler.lower.fuse.fusion_rules import is_elementwise, is_uniform
from shardc.hlo.ir.build import binary_computation
from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_computation, users_of
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import broadcast_scalar, constant, make, map_computations, reshape
from shardc.hlo.ir.reducers import identity_of
from shardc.hlo.ir.types import array_shape

__all__ = ["SplitReductions"]

#: Bytes that are worth splitting, the parts wanted (whatever the number of threads), and the least steps of a part.
_BYTES, _PARTS, _STEPS = 1 << 19, 64, 16
#: Fewer parts are not worth a second reduction.
_FEWEST = 4
#: Most parts: a whole dimension may serve as one.
_MOST = 4096
#: Most operations in a row that are computed in a reduction's dimensions.
_DEEPEST = 32


@dataclass(frozen=True, slots=True)
class SplitReductions:
    """``reduce`` of much to few is a ``reduce`` to some parts and a ``reduce`` of those; a fixed tree of two levels."""

    name: str = "split-reductions"
    why: str = "a long reduction is done in parts that are independent of each other"
    looks_at: ClassVar[frozenset[str]] = frozenset({"reduce"})

    def run(self, module: Module) -> Module:
        return map_computations(module, _split_all)


def _split_all(computation: Computation) -> Computation:
    splits = {i: s for i in computation if i.opcode == "reduce" and (s := _split(i)) is not None}
    if not splits:
        return computation

    views = _Views(users_of(computation))

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        views.old.update((n, o) for n, o in zip(operands, old.operands, strict=True) if n is not o)
        return _parted(old, operands, splits[old], views) if old in splits else None

    return rebuild_computation(computation, change)


class _Views:
    """Values with other dimensions. What several reductions read is one of them, and what is computed for a reduction
    alone is computed in its dimensions: kernels can see then that they read the same."""

    def __init__(self, users: Mapping[Instruction, Sequence[Instruction]]) -> None:
        self.users = users
        self.old: dict[Instruction, Instruction] = {}
        self._made: dict[tuple[Instruction, tuple[int, ...]], Instruction] = {}

    def view(self, x: Instruction, dims: tuple[int, ...], like: Instruction, depth: int = _DEEPEST) -> Instruction:
        found = self._made.get((x, dims))
        if found is None:
            found = self._made[x, dims] = self._view(x, dims, like, depth)
        return found

    def _view(self, x: Instruction, dims: tuple[int, ...], like: Instruction, depth: int) -> Instruction:
        if is_uniform(x):
            return broadcast_scalar(x.operands[0], dims, like)
        alone = len(set(self.users[self.old.get(x, x)])) == 1
        if not depth or not alone or not is_elementwise(x) or not x.operands:
            return reshape(x, dims, like)
        operands = (self.view(o, dims, like, depth - 1) if o.shape.dims else o for o in x.operands)
        return x.replace(shape=x.shape.plain.with_dims(dims), operands=tuple(operands))


@dataclass(frozen=True, slots=True)
class _Split:
    """The operand's new dimensions, and which of them the first reduction folds; the second folds ``parts``."""

    dims: tuple[int, ...]
    first: tuple[int, ...]
    parts: tuple[int, ...]


def _split(i: Instruction) -> _Split | None:
    """How to split; None where it does not pay, or the reducer minds the order."""
    if i.shape.is_tuple or len(i.operands) != 2:
        return None
    operand = i.operands[0].shape
    if operand.nbytes < _BYTES or identity_of(i.attrs["to_apply"], operand.dtype) is None:
        return None
    reduced = sorted(i.attrs["dimensions"])
    inner = next((d for d in range(operand.rank - 1, -1, -1) if operand.dims[d] > 1), 0)
    columns = math.prod(operand.dims[reduced[-1] + 1 :]) if inner not in reduced else 1
    if i.shape.size == 0 or operand.size == 0:
        return None
    independent = i.shape.size // columns
    wanted = min(-(-_PARTS // independent), operand.size // i.shape.size // _STEPS)
    if wanted < _FEWEST:
        return None
    return _cut(operand.dims, reduced, wanted)


def _cut(dims: Sequence[int], reduced: Sequence[int], wanted: int) -> _Split | None:
    """Keep outer reduced dimensions, the last of them in part, until there are enough parts."""
    total = math.prod(dims[d] for d in reduced)
    new: list[int] = []
    first: list[int] = []
    kept: list[int] = []
    parts = 1
    for d, n in enumerate(dims):
        if d not in reduced or parts >= wanted:
            if d in reduced:
                first.append(len(new))
            new.append(n)
            continue
        whole = parts * n <= max(_MOST, wanted) and total // (parts * n) >= _STEPS
        share = n if whole and parts * n < 4 * wanted else _share(n, -(-wanted // parts), n if whole else n - 1)
        kept.append(len(new))
        new.append(share)
        parts *= share
        if share < n:
            first.append(len(new))
            new.append(n // share)
    if parts < max(wanted // 2, _FEWEST):
        return None
    return _Split(tuple(new), tuple(first), tuple(kept))


def _share(n: int, wanted: int, most: int) -> int:
    """The divisor of ``n`` nearest above ``wanted`` (at most ``most``), else the nearest below."""
    small = [k for k in range(1, math.isqrt(n) + 1) if n % k == 0]
    divisors = sorted(k for k in {*small, *(n // k for k in small)} if k <= most) or [1]
    return min((k for k in divisors if k >= wanted), default=divisors[-1])


def _parted(i: Instruction, operands: Sequence[Instruction], split: _Split, views: _Views) -> Instruction:
    """The two reductions; narrow floats stay wide between them."""
    x, init = operands
    dtype, kind = x.shape.dtype, x.shape.dtype.accumulator
    reducer = i.attrs["to_apply"]
    x = views.view(x, split.dims, i)
    if kind is not dtype:
        x, init = (make("convert", o.shape.with_dtype(kind), (o,), i) for o in (x, init))
        reducer = binary_computation(reducer.root.opcode, kind)
    start = constant(Literal.full(array_shape(kind), identity_of(reducer, kind)), i)
    kept = [d for d in range(len(split.dims)) if d not in split.first]
    part = x.shape.with_dims(tuple(split.dims[d] for d in kept))
    one = make("reduce", part, (x, start), i, dimensions=split.first, to_apply=reducer)
    shape = i.shape if kind is dtype else i.shape.with_dtype(kind)
    over = tuple(kept.index(d) for d in split.parts)
    whole = make("reduce", shape, (one, init), i, dimensions=over, to_apply=reducer)
    return whole if kind is dtype else make("convert", i.shape, (whole,), i)
