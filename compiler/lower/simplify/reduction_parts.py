"""Parts of reductions: into how many a long one is cut, how its operands are seen then, and the two reductions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardc.compiler.lower.fuse.fusion_rules import is_elementwise, is_uniform
from shardc.hlo.ir.build import binary_computation
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import broadcast_scalar, constant, make, reshape
from shardc.hlo.ir.reducers import identity_of
from shardc.hlo.ir.types import DType, Shape, array_shape

__all__ = ["ReductionParts", "Views", "cut_reduction", "fold", "fold_parts", "neutral", "part_reduction"]

#: Bytes that are worth splitting, the parts wanted (whatever the number of threads), and the least steps of a part.
_BYTES, _PARTS, _STEPS = 1 << 19, 64, 16
#: More parts are wanted where one has more elements: it is to be in the cache still when it is read again.
_LONGEST = 1 << 15
#: Fewer parts are not worth a second reduction.
_FEWEST = 4
#: Most parts: a whole dimension may serve as one.
_MOST = 4096
#: Most operations in a row that are computed in a reduction's dimensions.
_DEEPEST = 32


class Views:
    """Values with other dimensions. What several reductions read is one of them, and what is computed for a reduction
    alone is computed in its dimensions: kernels can see then that they read the same."""

    def __init__(self, users: Mapping[Instruction, Sequence[Instruction]]) -> None:
        self.users = users
        self.old: dict[Instruction, Instruction] = {}
        self.new: dict[Instruction, Instruction] = {}
        self._made: dict[tuple[Instruction, tuple[int, ...]], Instruction] = {}

    def note(self, old: Sequence[Instruction], new: Sequence[Instruction]) -> None:
        """Instructions before, and those that have taken their place."""
        for a, b in zip(old, new, strict=True):
            if a is not b:
                self.new[a], self.old[b] = b, a

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
class ReductionParts:
    """The operand's new dimensions, and which of them the first reduction folds; the second folds ``parts``."""

    dims: tuple[int, ...]
    first: tuple[int, ...]
    parts: tuple[int, ...]

    @property
    def left(self) -> tuple[int, ...]:
        """The dimensions that the first reduction leaves."""
        return tuple(d for d in range(len(self.dims)) if d not in self.first)

    @property
    def over(self) -> tuple[int, ...]:
        """``parts``, as dimensions of what the first reduction makes."""
        return tuple(self.left.index(d) for d in self.parts)

    @property
    def length(self) -> int:
        """Elements of a part."""
        return math.prod(self.dims[d] for d in self.first)

    def shape(self, x: Instruction) -> Shape:
        """Of one element per part of ``x``."""
        return x.shape.plain.with_dims(tuple(self.dims[d] for d in self.left))


def cut_reduction(i: Instruction) -> ReductionParts | None:
    """How to split; None where it does not pay."""
    operand, result = i.operands[0].shape, next(i.shape.leaves())
    if operand.nbytes < _BYTES or not result.size or not operand.size:
        return None
    reduced = sorted(i.attrs["dimensions"])
    inner = next((d for d in range(operand.rank - 1, -1, -1) if operand.dims[d] > 1), 0)
    columns = math.prod(operand.dims[reduced[-1] + 1 :]) if inner not in reduced else 1
    independent = result.size // columns
    wanted = -(-max(_PARTS, min(operand.size // _LONGEST, _MOST // 2)) // independent)
    wanted = min(wanted, operand.size // result.size // _STEPS)
    if wanted < _FEWEST:
        return None
    return _cut(operand.dims, reduced, wanted)


def _cut(dims: Sequence[int], reduced: Sequence[int], wanted: int) -> ReductionParts | None:
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
    return ReductionParts(tuple(new), tuple(first), tuple(kept))


def _share(n: int, wanted: int, most: int) -> int:
    """The divisor of ``n`` nearest above ``wanted`` (at most ``most``), else the nearest below."""
    small = [k for k in range(1, math.isqrt(n) + 1) if n % k == 0]
    divisors = sorted(k for k in {*small, *(n // k for k in small)} if k <= most) or [1]
    return min((k for k in divisors if k >= wanted), default=divisors[-1])


def neutral(reducer: Computation, dtype: DType, like: Instruction) -> Instruction:
    """What a reducer of one operation starts from, as a scalar constant."""
    return constant(Literal.full(array_shape(dtype), identity_of(reducer, dtype)), like)


def fold(x: Instruction, reducer: Computation, parts: ReductionParts, like: Instruction) -> Instruction:
    """Each part of ``x``, which has the dimensions of ``parts``, reduced by one operation."""
    start = neutral(reducer, x.shape.dtype, like)
    return make("reduce", parts.shape(x), (x, start), like, dimensions=parts.first, to_apply=reducer)


def fold_parts(
    x: Instruction, init: Instruction, reducer: Computation, parts: ReductionParts, shape: Shape, like: Instruction
) -> Instruction:
    """What was made of each part reduced to the result."""
    return make("reduce", shape, (x, init), like, dimensions=parts.over, to_apply=reducer)


def part_reduction(i: Instruction, operands: Sequence[Instruction], parts: ReductionParts, views: Views) -> Instruction:
    """The two reductions; narrow floats stay wide between them."""
    x, init = operands
    dtype, kind = x.shape.dtype, x.shape.dtype.accumulator
    reducer = i.attrs["to_apply"]
    x = views.view(x, parts.dims, i)
    if kind is not dtype:
        x, init = (make("convert", o.shape.with_dtype(kind), (o,), i) for o in (x, init))
        reducer = binary_computation(reducer.root.opcode, kind)
    shape = i.shape if kind is dtype else i.shape.with_dtype(kind)
    whole = fold_parts(fold(x, reducer, parts, i), init, reducer, parts, shape, i)
    return whole if kind is dtype else make("convert", i.shape, (whole,), i)
