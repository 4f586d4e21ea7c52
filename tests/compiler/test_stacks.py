"""Stacks whose parts one loop nest writes: what the parts share is computed once, with the evaluator's bits."""

from __future__ import annotations

import random as draws

import numpy as np
import pytest

from shardc.compiler.lower.fuse.fusion_rules import is_stack
from shardc.compiler.lower.lowered import KernelStep
from shardc.compiler.lower.pipeline import lower
from shardc.hlo.ir.build import Builder, make_module
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.types import array_shape as f
from shardc.hlo.simplify.simplify import Simplify
from tests.compiler.checking import check, random_arguments
from tests.compiler.test_insides import shift_by


def stack_of(b: Builder, parts: list[Instruction], d: int) -> Instruction:
    """``np.stack(parts, d)``."""
    dims = parts[0].shape.dims
    wide = [b.add("reshape", p, shape=f("f32", *dims[:d], 1, *dims[d:])) for p in parts]
    return b.add("concatenate", *wide, shape=f("f32", *dims[:d], len(parts), *dims[d:]), dimensions=(d,))


def written_in_turn(b: Builder, parts: list[Instruction]) -> Instruction:
    """``y = np.zeros(...); y[k] = part`` for each part."""
    shape, zero = f("f32", len(parts), *parts[0].shape.dims), b.constant(np.int32(0))
    made = b.add("broadcast", b.constant(np.float32(0)), shape=shape, dimensions=())
    for k, part in enumerate(parts):
        row = b.add("reshape", part, shape=f("f32", 1, *part.shape.dims))
        starts = (b.constant(np.int32(k)), *(zero for _ in part.shape.dims))
        made = b.add("dynamic-update-slice", made, row, *starts, shape=shape)
    return made


def part_of(b: Builder, x: Instruction, k: int) -> Instruction:
    """``x[k]``."""
    spans = ((k, k + 1, 1), *((0, n, 1) for n in x.shape.dims[1:]))
    cut = b.add("slice", x, shape=f("f32", 1, *x.shape.dims[1:]), slice=spans)
    return b.add("reshape", cut, shape=f("f32", *x.shape.dims[1:]))


def streamed(parts: int, dims: tuple[int, ...], d: int | None, seed: int) -> Computation:
    """Parts of an array rolled, what all of them need, and parts made of both, stacked, or written in turn (None): a
    lattice's collisions."""
    rng = draws.Random(seed)
    b = Builder("main")
    x = b.parameter(f("f32", parts, *dims))
    rolled = []
    for k in range(parts):
        part = part_of(b, x, k)
        for along in rng.sample(range(len(dims)), rng.randint(0, len(dims))):
            part = shift_by(b, part, along, rng.choice([1, dims[along] - 1, dims[along] // 2]))
        rolled.append(part)
    total = rolled[0]
    for part in rolled[1:]:
        total = b.add("add", total, part, shape=total.shape)
    root = b.add("sine", total, shape=total.shape)
    made = [b.add("multiply", root, part, shape=part.shape) for part in rolled]
    return b.build(written_in_turn(b, made) if d is None else stack_of(b, made, d))


def kernels(module: Module) -> list[Instruction]:
    return [s.instruction for s in lower(module).steps if isinstance(s, KernelStep)]


@pytest.mark.parametrize(
    ("parts", "dims", "d"),
    [
        *(
            (2, (40, 64), 0),
            (9, (64, 48), 0),
            (9, (33, 130), 1),
            (12, (20, 24, 17), 0),
            (3, (9, 8, 40), 2),
            (5, (3000,), 0),
        ),
        *((9, (33, 130), None), (5, (3000,), None)),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_one_kernel_writes_all_parts(parts: int, dims: tuple[int, ...], d: int | None, seed: int) -> None:
    module = make_module("stacked", streamed(parts, dims, d, seed))
    (kernel,) = kernels(module)
    assert is_stack(kernel.attrs["calls"].root)
    assert sum(i.opcode == "sine" for i in kernel.attrs["calls"]) == 1
    check(module, random_arguments(module, seed))


def test_parts_that_lie_scattered_are_no_stack() -> None:
    b = Builder("main")
    x = b.parameter(f("f32", 3, 50, 40))
    root = stack_of(b, [part_of(b, x, k) for k in range(3)], 2)
    assert not is_stack(root)
    module = make_module("scattered", b.build(root))
    check(module, random_arguments(module))


def test_halves_of_one_array_and_sums_of_rows() -> None:
    """A roll by half the size is a stack of two; reductions that are stacked keep kernels of their own."""
    b = Builder("main")
    x = b.parameter(f("f32", 64, 64))
    doubled = b.add("add", x, x, shape=x.shape)
    module = make_module("halves", b.build(shift_by(b, doubled, 0, 32)))
    assert len(kernels(module)) == 1
    check(module, random_arguments(module))


def test_rolls_of_rolls_are_read_by_maps_and_stored_for_reductions() -> None:
    """Only maps have code of their own for the inside, where a roll chooses nothing."""
    for reduced in (False, True):
        b = Builder("main")
        x = b.parameter(f("f32", 300, 200))
        root = b.add("multiply", x, shift_by(b, shift_by(b, x, 0, 1), 1, 1), shape=x.shape)
        if reduced:
            r = Builder("reducer")
            first, second = r.parameter(f("f32")), r.parameter(f("f32"))
            reducer = r.build(r.add("add", first, second, shape=f("f32")))
            zero = b.constant(np.float32(0))
            root = b.add("reduce", root, zero, shape=f("f32", 200), dimensions=(0,), to_apply=reducer)
        module = make_module("rolled", b.build(root))
        holding = [[i.opcode for i in k.attrs.get("calls", ())] for k in kernels(module)]
        assert len(holding) == (2 if reduced else 1)
        assert not any("reduce" in inside and inside.count("concatenate") > 1 for inside in holding)
        check(module, random_arguments(module))


@pytest.mark.parametrize("opcode", ["add", "multiply", "maximum"])
def test_reductions_of_stacks_combine_their_parts(opcode: str) -> None:
    b = Builder("main")
    x = b.parameter(f("f32", 4, 30, 20))
    y = stack_of(b, [part_of(b, x, k) for k in (2, 0, 3)], 0)
    r = Builder("reducer")
    first, second = r.parameter(f("f32")), r.parameter(f("f32"))
    reducer = r.build(r.add(opcode, first, second, shape=f("f32")))
    zero = b.constant(np.float32(3))
    root = b.add("reduce", y, zero, shape=f("f32", 30, 20), dimensions=(0,), to_apply=reducer)
    module = make_module("reduced", b.build(root))
    simple = Simplify().run(module)
    assert not any(i.opcode in ("reduce", "concatenate") for i in simple.entry)
    check(module, random_arguments(module))
