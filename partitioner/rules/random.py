"""Random numbers: every device draws its part by counter, so that values are the same for every sharding.

A generator turns counters into words. The part of a device is, in the memory of the whole array, runs of neighbours:
the split dimension that varies fastest and all within it. One run is drawn by the same operation with its counter set
forward; of many runs each begins at a counter of its own. What a block of words has before the run is cut off.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.operations import Operations
from shardc.hlo.ir.random_words import (
    advance_state,
    halved_dimension,
    high,
    join_halves,
    low,
    philox,
    state_words,
    threefry,
)
from shardc.hlo.ir.types import DTYPES, Shape, array_shape, tuple_shape
from shardc.partitioner.rules.dynamic import as_type
from shardc.partitioner.strategy.rule import Local, LocalSite, PartitionRow, nothing
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule

__all__ = ["RULES"]


def _drawn_by_counter(op: Instruction, rule: FactorRule) -> frozenset[int]:
    """Dimensions of whole words, and of parts of one word each."""
    bits = op.shape.elements[1].dtype
    known = bits.kind in ("signed", "unsigned") and bits.bits in (8, 16, 32, 64)
    return frozenset(rule.of_kind(FactorKind.PASS_THROUGH)) if known else frozenset()


def _emit(site: LocalSite) -> list[Instruction]:
    em, local = site.em, site.local_shape(1)
    split = {d: atoms for d, atoms in enumerate(site.choice.results[1].dims) if atoms}
    if not split:
        return site.emit()
    starts = [as_type(em, em.scale(em.coordinate(a), local.dims[d]), DTYPES["u64"]) for d, a in split.items()]
    p = Operations(site.op)
    parameters = {d: p.b.parameter(s.shape) for d, s in zip(split, starts, strict=True)}
    words = state_words(p, p.parameters[0])
    part = _RandomBlock(p, words, site.shapes[1], local.dims, parameters)
    drawn = (
        part.threefry() if site.op.attrs["algorithm"] == "rng_three_fry" else part.philox(site.op.attrs["algorithm"])
    )
    after, bits = em.inline(p.build(advance_state(p, site.op, words), part.of_type(drawn)), [site.operands[0], *starts])
    return [after, bits]


@dataclass(frozen=True, slots=True)
class _RandomBlock:
    """``local`` elements per dimension of an array of ``shape``, from ``starts`` (u64 scalars) on where it is split."""

    p: Operations
    state: Sequence[Instruction]
    shape: Shape
    local: tuple[int, ...]
    starts: Mapping[int, Instruction]

    @property
    def wide(self) -> bool:
        return self.shape.dtype.bits == 64

    def of_type(self, words: Instruction) -> Instruction:
        """Words of 32 or 64 bits as elements, cut to narrow types."""
        dtype = self.shape.dtype
        unsigned = self.p.convert(words, f"u{dtype.bits}")
        if dtype.kind == "unsigned":
            return unsigned
        return self.p.op("bitcast-convert", unsigned, shape=unsigned.shape.with_dtype(dtype))

    def places(self, local: tuple[int, ...], whole: tuple[int, ...], starts: Mapping[int, Instruction]) -> Instruction:
        """Row-major places (u64) in an array of ``whole``: of the first elements along dimensions that are left out."""
        p, total = self.p, self.p.full(0, array_shape("u64", *local))
        for d in range(len(local)):
            index = p.iota("u64", local, d)
            if d in starts:
                index = p.op("add", index, p.spread(starts[d], local))
            pitch = math.prod(whole[d + 1 :])
            total = p.op("add", total, p.op("multiply", index, p.full(pitch, index.shape)))
        return total

    def alternating(self, words: Sequence[Instruction], dim: int) -> Instruction:
        """The words of one place next to each other along ``dim``."""
        p, dims = self.p, words[0].shape.dims
        apart = (p.reshape(w, (*dims[: dim + 1], 1, *dims[dim + 1 :])) for w in words)
        together = (*dims[:dim], dims[dim] * len(words), *dims[dim + 1 :])
        return p.reshape(p.op("concatenate", *apart, dimensions=(dim + 1,)), together)

    def cut(self, x: Instruction, dim: int, start: Instruction | int, size: int) -> Instruction:
        """``size`` elements along ``dim`` from ``start`` (u64 scalar) on."""
        p, dims = self.p, x.shape.dims
        if isinstance(start, int):
            bounds = ((start, start + size, 1) if d == dim else (0, n, 1) for d, n in enumerate(dims))
            return p.op("slice", x, slice=tuple(bounds))
        zero = p.full(0, array_shape("s32"))
        starts = (p.convert(start, "s32") if d == dim else zero for d in range(len(dims)))
        sizes = tuple(size if d == dim else n for d, n in enumerate(dims))
        return p.op("dynamic-slice", x, *starts, dynamic_slice_sizes=sizes)

    # -- Philox: blocks of four words along the whole array --------------------------------------------------------

    def philox(self, algorithm: str) -> Instruction:
        """Runs of neighbours, each from the block on that its first element is in."""
        p, lanes, dims, run_dim = self.p, 2 if self.wide else 4, self.shape.dims, max(self.starts)
        inner = math.prod(dims[run_dim + 1 :])
        run, pitch, rows = self.local[run_dim] * inner, dims[run_dim] * inner, self.local[:run_dim]
        begin = p.op("multiply", self.starts[run_dim], p.full(inner, array_shape("u64")))
        first = p.op("add", self.places(rows, dims, self.starts), p.spread(begin, rows))
        aligned = run % lanes == 0 and (pitch % lanes == 0 or math.prod(dims[:run_dim]) == 1)
        blocks = run // lanes if aligned else (run + 2 * lanes - 2) // lanes
        block = p.op("divide", first, p.full(lanes, first.shape))
        one = math.prod(rows) == 1
        drawn = self.run_drawn(algorithm, block, blocks * lanes) if one else self.rows_drawn(block, blocks)
        if not aligned:
            lane = p.op("remainder", first, p.full(lanes, first.shape))
            drawn = self.cut(drawn, 0, p.reshape(lane, ()), run) if one else self.from_lanes(drawn, lane, run, lanes)
        return p.reshape(drawn, self.local)

    def run_drawn(self, algorithm: str, block: Instruction, count: int) -> Instruction:
        """``count`` elements in a row, by the operation itself with its counter at ``block``."""
        p = self.p
        words = self.counted(p.reshape(block, ()))
        state = p.op("concatenate", *(p.reshape(w, (1,)) for w in words), dimensions=(0,))
        shape = tuple_shape(state.shape, array_shape(f"u{self.shape.dtype.bits}", count))
        return p.element(p.op("rng-bit-generator", state, shape=shape, algorithm=algorithm), 1)

    def rows_drawn(self, block: Instruction, blocks: int) -> Instruction:
        """``blocks`` blocks of words for every row, from the counter ``block`` of that row on."""
        p, dims = self.p, (*block.shape.dims, blocks)
        last = len(dims) - 1
        steps = p.op("add", p.spread(block, dims, tuple(range(last))), p.iota("u64", dims, last))
        key, lower, upper = self.counted(steps)
        words = philox(p, (low(p, key), high(p, key)), (lower, upper))
        if self.wide:
            words = [join_halves(p, words[0], words[1]), join_halves(p, words[2], words[3])]
        return self.alternating(words, last)

    def counted(self, steps: Instruction) -> tuple[Instruction, Instruction, Instruction]:
        """Key, lower and upper half of the counter, ``steps`` further on.

        A state of two words has no room for the upper half: the key stands in for it.
        """
        p, dims = self.p, steps.shape.dims
        start = p.spread(self.state[1], dims)
        lower = p.op("add", steps, start)
        carry = p.convert(p.compare("LT", lower, start), "u64")
        upper = p.op("add", p.spread(self.state[2 if len(self.state) > 2 else 0], dims), carry)
        return p.spread(self.state[0], dims), lower, upper

    def from_lanes(self, x: Instruction, lane: Instruction, run: int, lanes: int) -> Instruction:
        """``run`` elements of the last dimension, from each row's own ``lane`` on."""
        p, last = self.p, x.shape.rank - 1
        out = self.cut(x, last, 0, run)
        lane = p.spread(lane, out.shape.dims, tuple(range(last)))
        for k in range(1, lanes):
            here = p.compare("EQ", lane, p.full(k, lane.shape))
            out = p.op("select", here, self.cut(x, last, k, run), out)
        return out

    # -- ThreeFry: two words per place -------------------------------------------------------------------------------

    def threefry(self) -> Instruction:
        """Elements of 64 bits take both words, others one of them, in turn along one dimension."""
        if self.wide:
            return join_halves(self.p, *self.pairs(self.places(self.local, self.shape.dims, self.starts)))
        p, dims = self.p, self.shape.dims
        dim = halved_dimension(dims)
        size, start = self.local[dim], self.starts.get(dim)
        whole = tuple(-(-n // 2) if d == dim else n for d, n in enumerate(dims))
        local = tuple(-(-n // 2) if d == dim else n for d, n in enumerate(self.local))
        starts = dict(self.starts)
        if start is not None:
            starts[dim] = p.op("divide", start, p.full(2, start.shape))
        drawn = self.alternating(self.pairs(self.places(local, whole, starts)), dim)
        if start is not None and size % 2:
            return self.cut(drawn, dim, p.op("remainder", start, p.full(2, start.shape)), size)
        return self.cut(drawn, dim, 0, size)

    def pairs(self, places: Instruction) -> tuple[Instruction, Instruction]:
        p, dims = self.p, places.shape.dims
        counter = p.op("add", places, p.spread(self.state[1], dims))
        key = (p.spread(low(p, self.state[0]), dims), p.spread(high(p, self.state[0]), dims))
        return threefry(p, key, low(p, counter), high(p, counter))


_WHOLE = Local("drawn whole on every device, then cut", usable=nothing)

RULES: Mapping[str, PartitionRow] = {
    "rng": _WHOLE,
    "rng-bit-generator": Local("every device draws its part by counter", _emit, _drawn_by_counter),
    "rng-get-and-update-state": _WHOLE,
}
