"""A slice of what is gathered goes before the gather, where all members slice from the same place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from partition_support import collectives
from test_optimise import same
from test_optimise_exchanges import X, gathered, module_of, wire

from shardc.hlo.ir.build import Builder, binary_computation
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.types import Shape, array_shape
from shardc.partitioner.optimise.slice_first import SliceFirst

LAYERS = array_shape("f32", 4, 6)
INDEX = array_shape("s32")


def number(b: Builder, value: int) -> Instruction:
    return b.add("constant", shape=INDEX, literal=Literal.full(INDEX, value))


def cut(b: Builder, x: Instruction, starts: list[Instruction], sizes: tuple[int, ...]) -> Instruction:
    return b.add("dynamic-slice", x, *starts, shape=x.shape.with_dims(sizes), dynamic_slice_sizes=sizes)


def alike(b: Builder) -> Instruction:
    """A number from 0 to 5 that is the same on all devices of a row."""
    p = b.parameter(INDEX)
    return b.add("all-reduce", p, replica_groups=X, to_apply=binary_computation("maximum", "s32"))


def own(b: Builder) -> Instruction:
    """Each device's own number."""
    return b.add("convert", b.add("partition-id", shape=array_shape("u32")), shape=INDEX)


def program(
    start: Callable[[Builder], Instruction], sizes: tuple[int, ...], shape: Shape = LAYERS
) -> Callable[[Builder], Instruction]:
    def write(b: Builder) -> Instruction:
        whole = gathered(b, b.parameter(shape))
        return cut(b, whole, [number(b, 0), start(b)], sizes)

    return write


def test_a_column_of_the_gathered_is_the_gathered_column() -> None:
    before = module_of(program(alike, (8, 1)))
    after = SliceFirst().run(before)
    same(before, after)
    assert sorted(collectives(after)) == ["all-gather", "all-reduce"]
    assert wire(after) < wire(before)


@pytest.mark.parametrize(
    ("start", "sizes"),
    [(own, (8, 1)), (alike, (4, 1))],
    ids=["each device slices its own column", "the gathered dimension is sliced"],
)
def test_what_stays(start: Callable[[Builder], Instruction], sizes: tuple[int, ...]) -> None:
    before = module_of(program(start, sizes))
    after = SliceFirst().run(before)
    same(before, after)
    assert wire(after) == wire(before)


def test_what_others_read_whole_stays() -> None:
    def write(b: Builder) -> Instruction:
        whole = gathered(b, b.parameter(LAYERS))
        column = cut(b, whole, [number(b, 0), alike(b)], (8, 1))
        return b.add(
            "add",
            whole,
            b.add(
                "broadcast", b.add("reshape", column, shape=array_shape("f32", 8)), shape=whole.shape, dimensions=(0,)
            ),
        )

    before = module_of(write)
    after = SliceFirst().run(before)
    same(before, after)
    assert wire(after) == wire(before)
