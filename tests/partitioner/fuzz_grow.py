"""Programs that grow at random. Values are small integers as floats, so that any order of summation gives the same.

`Grown` holds a computation in the making; what may be done next is a table in ``fuzz_ops``. Every value knows a bound
of its magnitude, and is clamped before it could leave the integers that f32 holds exactly.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.types import array_shape

__all__ = ["LIMIT", "SIZES", "Grown"]

SIZES = (1, 2, 3, 4, 5, 6, 8, 9)
#: Magnitudes above it are clamped; sums of products of values below it stay exact.
LIMIT = 64
#: No value has more elements.
LARGEST = 4096


class Grown:
    """A computation in the making, and the f32 values that it has so far.

    ``inner`` ones (bodies of loops, branches) cannot take new parameters: what they need is made from constants.
    Programs with manual computations are written for a ``mesh``. New dimensions are of one of ``sizes``.
    """

    def __init__(
        self,
        r: random.Random,
        name: str = "main",
        *,
        inner: bool = False,
        depth: int = 0,
        mesh: Mesh | None = None,
        sizes: Sequence[int] = SIZES,
    ) -> None:
        self.r = r
        self.sizes = sizes
        self.mesh = mesh
        self.b = Builder(name)
        self.values: list[Instruction] = []
        self.bounds: dict[Instruction, float] = {}
        self.inner = inner
        self.depth = depth

    def dims(self, rank: int) -> tuple[int, ...]:
        return tuple(self.r.choice(self.sizes) for _ in range(rank))

    def keep(self, value: Instruction, bound: float) -> Instruction:
        """``value`` is one to go on with; clamped when ``bound`` is too large."""
        if bound > LIMIT:
            low, high = self.b.constant(-4.0, "f32"), self.b.constant(4.0, "f32")
            value, bound = self.b.add("clamp", low, value, high), 4.0
        self.bounds[value] = bound
        self.values.append(value)
        return value

    def bound(self, *values: Instruction) -> float:
        return max(self.bounds.get(v, LIMIT) for v in values)

    def pick(self, rank: int | None = None) -> Instruction:
        """One of the later values, of ``rank`` when given."""
        fitting = [v for v in self.values if rank is None or v.shape.rank == rank]
        return self.r.choice(fitting[-6:]) if fitting else self.fresh(self.dims(rank or 1))

    def fresh(self, dims: Sequence[int]) -> Instruction:
        """A new value: a parameter, or made from nothing."""
        if self.inner or self.r.random() < 0.1:
            return self.keep(self._made(tuple(dims)), 9)
        return self.keep(self.b.parameter(array_shape("f32", *dims)), 4)

    def _made(self, dims: tuple[int, ...]) -> Instruction:
        how = self.r.randrange(3)
        if how == 0 and dims:
            return self.b.add("iota", shape=array_shape("f32", *dims), iota_dimension=self.r.randrange(len(dims)))
        if how == 1 and dims:
            value = self.b.constant(float(self.r.randint(-3, 3)), "f32")
            return self.b.add("broadcast", value, shape=array_shape("f32", *dims), dimensions=())
        table = np.random.default_rng(self.r.randrange(1 << 30)).integers(-4, 5, dims)
        return self.b.constant(table.astype(np.float32))

    def like(self, x: Instruction) -> Instruction:
        """Another value of the same shape."""
        same = [v for v in self.values if v.shape.dims == x.shape.dims and v is not x]
        return self.r.choice(same) if same and self.r.random() < 0.7 else self.fresh(x.shape.dims)

    def indices(self, dims: Sequence[int], high: int) -> Instruction:
        """s32 of ``dims``, mostly in [0, high), some out of range."""
        if not self.inner and self.r.random() < 0.6:
            value = self.b.parameter(array_shape("s32", *dims))
            return value if self.r.random() < 0.5 else self.b.add("abs", value)
        table = np.random.default_rng(self.r.randrange(1 << 30)).integers(-1, high + 1, tuple(dims))
        return self.b.constant(table.astype(np.int32))

    def scalar_index(self, high: int) -> Instruction:
        """s32[]: a parameter, a constant or computed from a value."""
        if not self.inner and self.r.random() < 0.5:
            return self.b.parameter(array_shape("s32"))
        return self.b.constant(self.r.randint(-1, high + 1), "s32")

    def build(self, root: Instruction) -> Computation:
        """The computation without what ``root`` does not read, but with all parameters."""
        needed = {root}
        for i in reversed(self.b.instructions):
            if i in needed:
                needed.update(i.operands)
        kept = [i for i in self.b.instructions if i in needed or i.opcode == "parameter"]
        return Computation(self.b.name, kept, root)

    def part_of(self, n: int) -> int:
        """A size of at most ``n``; empty ones only where there are empty arrays."""
        return self.r.randint(min(n, *self.sizes, 1), n)

    def fits(self, dims: Sequence[int]) -> bool:
        return int(np.prod(dims, dtype=int)) <= LARGEST
