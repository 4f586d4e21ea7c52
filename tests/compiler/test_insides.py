"""Kernels whose inside has code of its own: every element as the evaluator has it, bit for bit."""

from __future__ import annotations

import random as draws

import numpy as np
import pytest

from shardc.compiler.cpu.loops.regions import Box, find_inside, slabs
from shardc.compiler.elements.affine import VarSource
from shardc.compiler.elements.elements import Elements
from shardc.compiler.elements.rules import RULES
from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.types import array_shape as f
from tests.compiler.kernel_runner import check, fusion, random

#: Large enough to have an inside; odd sizes leave parts of vectors, and some are cut into chunks.
SIZES = ((40000,), (129, 300), (64, 1024), (1024, 33), (30, 41, 50), (3, 16, 513), (700, 700))


def shift_by(b: Builder, x: Instruction, d: int, by: int) -> Instruction:
    """``roll(x, -by, d)``."""
    dims = x.shape.dims
    cuts = [((by, dims[d]), (0, by))[k] for k in (0, 1)]
    parts = []
    for begin, end in cuts:
        spans = tuple((begin, end, 1) if k == d else (0, n, 1) for k, n in enumerate(dims))
        shape = f(x.shape.dtype.name, *(end - begin if k == d else n for k, n in enumerate(dims)))
        parts.append(b.add("slice", x, shape=shape, slice=spans))
    return b.add("concatenate", *parts, shape=x.shape, dimensions=(d,))


def _padded(b: Builder, x: Instruction, d: int, by: int) -> Instruction:
    zero = b.constant(np.asarray(2, x.shape.dtype.numpy))
    edges = tuple((by, -by, 0) if k == d else (0, 0, 0) for k in range(x.shape.rank))
    return b.add("pad", x, zero, shape=x.shape, padding=edges)


def _selected(b: Builder, x: Instruction, y: Instruction, d: int, bound: int, direction: str) -> Instruction:
    n = x.shape.dims[d]
    place = b.add("iota", shape=f("s32", n), iota_dimension=0)
    limit = b.add("broadcast", b.constant(np.int32(bound)), shape=f("s32", n), dimensions=())
    holds = b.add("compare", place, limit, shape=f("pred", n), direction=direction)
    wide = b.add("broadcast", holds, shape=f("pred", *x.shape.dims), dimensions=(d,))
    return b.add("select", wide, x, y, shape=x.shape)


def _stencil(rng: draws.Random, dims: tuple[int, ...], dtype: str) -> Computation:
    """Sums of an array's shifts, pads, reversals and selections."""
    b = Builder("stencil")
    x, y = (b.parameter(f(dtype, *dims)) for _ in range(2))
    total = y
    for _ in range(rng.randint(2, 6)):
        d = rng.randrange(len(dims))
        by = rng.choice([1, 2, dims[d] - 1, dims[d] // 2, max(1, dims[d] // 20)])
        kind = rng.choice(["roll", "roll", "pad", "pad", "select", "reverse"])
        of = x if rng.random() < 0.7 else y
        if kind == "roll":
            new = shift_by(b, of, d, by)
        elif kind == "pad":
            new = _padded(b, of, d, rng.choice([by, -by]))
        elif kind == "reverse":
            new = b.add("reverse", _padded(b, of, d, 1), shape=of.shape, dimensions=(d,))
        else:
            direction, bound = rng.choice(["LT", "LE", "GE", "GT", "EQ", "NE"]), rng.choice([-1, 0, by, dims[d] - 1])
            total = _selected(b, total, of, d, bound, direction)
            continue
        total = b.add("add", total, new, shape=total.shape)
    return b.build(total)


@pytest.mark.parametrize("dims", SIZES, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_stencils_are_the_evaluators(dims: tuple[int, ...], seed: int) -> None:
    rng = draws.Random(f"{dims} {seed}")
    dtype = rng.choice(["f32", "f64", "s16", "s64", "c64"])
    computation = _stencil(rng, dims, dtype)
    check(fusion(computation), [random(f(dtype, *dims), k) for k in range(2)])


def test_slabs_are_all_of_a_space_once() -> None:
    count = np.zeros((9, 4, 20), int)
    for box in slabs(count.shape, [(1, 8), (0, 4), (3, 20)]):
        count[tuple(slice(s, s + n) for s, n in zip(box.starts, box.sizes, strict=True))] += 1
    assert (count == 1).all()
    assert box == Box((1, 0, 3), (7, 4, 17))


def test_inside_of_shifts_and_selections() -> None:
    b = Builder("c")
    x = b.parameter(f("f32", 200, 256))
    total = _selected(b, b.add("add", shift_by(b, x, 0, 1), _padded(b, x, 1, 2), shape=x.shape), x, 0, 3, "GE")
    e = Elements(VarSource(), [x], RULES)
    inside = find_inside(e, x.shape.dims, [lambda e, index, mask: e.value(total, index, mask)], 16)
    assert inside == [(3, 199), (16, 256)]
