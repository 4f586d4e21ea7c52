"""Windows, slices, pads, rolls: random ones under random layouts equal the unpartitioned program, and send no more
than the elements that change shards."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from partition_support import check, collectives, layout, random_sharding, with_shardings

from shardc.hlo.ir.build import Builder, binary_computation
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.opset import ConvDims, Window, WindowDim
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import array_shape
from shardc.partitioner.report import build_report
from shardc.partitioner.reshard.halo import outputs
from shardc.partitioner.reshard.windows import SourceInterval, plan_exchange

MESHES = (
    Mesh({"x": 2, "y": 2}),
    Mesh({"x": 2, "y": 4}),
    Mesh({"x": 3}),
    Mesh({"x": 5}),
    Mesh({"x": 8}),
    Mesh({"x": 2, "y": 3}),
    Mesh({"x": 2, "y": 2}, (2, 0, 3, 1)),
)


def floats(b: Builder, *dims: int) -> Instruction:
    return b.parameter(array_shape("f32", *dims))


def slice_(r: random.Random, b: Builder) -> Instruction:
    dims = r.randint(1, 20), r.randint(1, 9)
    bounds = []
    for n in dims:
        low = r.randint(0, n - 1)
        bounds.append((low, r.randint(low + 1, n), r.choice([1, 1, 2, 3])))
    return b.add("slice", floats(b, *dims), slice=tuple(bounds))


def pad(r: random.Random, b: Builder) -> Instruction:
    dims = r.randint(1, 20), r.randint(1, 9)
    padding = []
    for n in dims:
        interior, low, high = r.choice([0, 0, 1, 2]), r.randint(-2, 6), r.randint(-2, 6)
        fits = n + (n - 1) * interior + low + high > 0
        padding.append((low, high, interior) if fits else (1, 1, interior))
    return b.add("pad", floats(b, *dims), b.constant(r.choice([0.0, 2.0]), "f32"), padding=tuple(padding))


def concatenate(r: random.Random, b: Builder) -> Instruction:
    n = r.randint(1, 5)
    parts = [floats(b, r.randint(1, 9), n) for _ in range(r.randint(1, 3))]
    if r.random() < 0.5:
        shape = array_shape("f32", r.randint(1, 9), n)
        parts.insert(r.randint(0, len(parts)), b.add("broadcast", b.constant(3.0, "f32"), shape=shape, dimensions=()))
    return b.add("concatenate", *parts, dimensions=(0,))


def roll(r: random.Random, b: Builder) -> Instruction:
    n, m = r.randint(2, 20), r.randint(1, 5)
    return rolled(b, floats(b, n, m), r.randint(1, n - 1))


def rolled(b: Builder, x: Instruction, shift: int) -> Instruction:
    n, m = x.shape.dims
    ends = (b.add("slice", x, slice=((low, high, 1), (0, m, 1))) for low, high in ((shift, n), (0, shift)))
    return b.add("concatenate", *ends, dimensions=(0,))


def reverse(r: random.Random, b: Builder) -> Instruction:
    x = floats(b, r.randint(1, 20), r.randint(1, 9))
    return b.add("reverse", x, dimensions=r.choice([(0,), (1,), (0, 1)]))


def window(r: random.Random, n: int, size: int, *, reversal: bool = False) -> WindowDim:
    """A window with all its trimmings that fits over n elements."""
    while True:
        w = WindowDim(
            size,
            r.choice([1, 1, 2, 3]),
            r.randint(-1, 4),
            r.randint(-1, 4),
            r.choice([1, 1, 1, 2, 3]),
            r.choice([1, 1, 1, 2]),
            reversal and r.random() < 0.3,
        )
        inside = (n - 1) * w.lhs_dilate + 1
        cut = min(w.pad_low, 0) + min(w.pad_high, 0)
        if inside + cut > 0 and inside + w.pad_low + w.pad_high > (size - 1) * w.rhs_dilate:
            return w


def reduce_window(r: random.Random, b: Builder) -> Instruction:
    dims = r.randint(1, 20), r.randint(1, 9)
    op, initial = r.choice([("add", 0.0), ("add", 1.0), ("maximum", -9.0), ("minimum", 2.0)])
    windows = Window(tuple(window(r, n, r.randint(1, 5)) if r.random() < 0.8 else WindowDim(1) for n in dims))
    body = binary_computation(op, "f32")
    return b.add("reduce-window", floats(b, *dims), b.constant(initial, "f32"), window=windows, to_apply=body)


def convolution(r: random.Random, b: Builder) -> Instruction:
    groups = r.choice([1, 1, 2, 3, 4])
    batch_groups = r.choice([1, 2, 3]) if groups == 1 else 1
    dims = r.randint(1, 16), r.randint(1, 10)
    sizes = [r.randint(1, 5) if r.random() < 0.7 else r.randint(1, n + 2) for n in dims]
    inputs, outputs = r.randint(1, 3), r.randint(1, 3) * groups * batch_groups
    x = floats(b, r.randint(1, 4) * batch_groups, *dims, inputs * groups)
    return b.add(
        "convolution",
        x,
        floats(b, *sizes, inputs, outputs),
        window=Window(tuple(window(r, n, size, reversal=True) for n, size in zip(dims, sizes, strict=True))),
        dim_labels=ConvDims(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2)),
        feature_group_count=groups,
        batch_group_count=batch_groups,
    )


def weight_gradient(r: random.Random, b: Builder) -> Instruction:
    dims, batch = (r.randint(2, 14), r.randint(2, 10)), r.randint(1, 3)
    windows = []
    for n in dims:
        dilate, low = r.choice([1, 1, 2]), r.randint(0, 2)
        size = max(1, (n - 1) // dilate + 1 - r.randint(0, 1))
        high = max(0, (size - 1) * dilate + 1 - n - low) + r.randint(0, 2)
        windows.append(WindowDim(size, 1, low, high, 1, dilate, r.random() < 0.2))
    return b.add(
        "convolution",
        floats(b, batch, *dims, 2),
        floats(b, *(w.size for w in windows), batch, 3),
        window=Window(tuple(windows)),
        dim_labels=ConvDims(3, 0, (1, 2), 2, 3, (0, 1), 2, 3, (0, 1)),
    )


def select_and_scatter(r: random.Random, b: Builder) -> Instruction:
    dims = r.randint(2, 20), r.randint(2, 9)
    windows, counts = [], []
    for n in dims:
        size = r.randint(1, min(3, n))
        w = WindowDim(size, r.choice([1, 2, 3, 4]), r.randint(0, size - 1), r.randint(0, size - 1))
        windows.append(w)
        counts.append((n + w.pad_low + w.pad_high - size) // w.stride + 1)
    select = Builder("select")
    sides = [select.parameter(array_shape("f32")) for _ in range(2)]
    return b.add(
        "select-and-scatter",
        floats(b, *dims),
        floats(b, *counts),
        b.constant(r.choice([0.0, 1.0]), "f32"),
        window=Window(tuple(windows)),
        select=select.build(select.add("compare", *sides, direction=r.choice(["GE", "GT", "LE", "LT"]))),
        scatter=binary_computation("add", "f32"),
    )


PROGRAMS: dict[str, Callable[[random.Random, Builder], Instruction]] = {
    f.__name__: f
    for f in (slice_, pad, concatenate, roll, reverse, reduce_window, convolution, weight_gradient, select_and_scatter)
}


def run(name: str, seed: int) -> None:
    r = random.Random(f"{name} {seed}")
    mesh = r.choice(MESHES)
    b = Builder("main")
    computation = b.build(PROGRAMS[name](r, b))
    check(with_shardings(computation, mesh, lambda i: random_sharding(r, mesh, i.shape.rank, 0.85)), seed=seed)


@pytest.mark.parametrize("name", PROGRAMS)
def test_partitioned_equals_unpartitioned(name: str) -> None:
    for seed in range(20):
        run(name, seed)


@pytest.mark.full
@pytest.mark.parametrize("name", PROGRAMS)
def test_partitioned_equals_unpartitioned_at_length(name: str) -> None:
    for seed in range(20, 1000):
        run(name, seed)


# -- what is sent ----------------------------------------------------------------------------------------------

EIGHT = Mesh({"x": 8})


def split(computation: Computation, mesh: Mesh = EIGHT) -> Module:
    """Every value of rank 1 or more split along its first dimension, or its second for images."""
    return with_shardings(computation, mesh, lambda i: first_split(mesh, i.shape.rank))


def first_split(mesh: Mesh, rank: int) -> Sharding:
    return layout(mesh, *(("x" if d == (1 if rank == 4 else 0) else None) for d in range(rank)))


def sent(module: Module) -> tuple[list[str], float]:
    local = check(module)
    return collectives(local), build_report(local)["wire_bytes"]


def test_a_stencil_sends_one_row_each_way() -> None:
    b = Builder("main")
    x = floats(b, 64, 10)
    w = Window((WindowDim(3, 1, 1, 1), WindowDim(1)))
    out = b.add("reduce-window", x, b.constant(0.0, "f32"), window=w, to_apply=binary_computation("add", "f32"))
    assert sent(split(b.build(out))) == (["collective-permute"] * 2, 2 * 10 * 4)


def test_between_two_devices_both_edges_go_in_one_permute() -> None:
    b = Builder("main")
    x = floats(b, 16, 10)
    w = Window((WindowDim(3, 1, 1, 1), WindowDim(1)))
    out = b.add("reduce-window", x, b.constant(0.0, "f32"), window=w, to_apply=binary_computation("add", "f32"))
    assert sent(split(b.build(out), Mesh({"x": 2}))) == (["collective-permute"], 10 * 4)


def test_a_convolution_without_overlap_sends_nothing() -> None:
    b = Builder("main")
    x = floats(b, 2, 32, 8, 3)
    k = b.constant(1.0, "f32")
    kernel = b.add("broadcast", k, shape=array_shape("f32", 2, 2, 3, 5), dimensions=())
    dims = ConvDims(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
    out = b.add("convolution", x, kernel, window=Window((WindowDim(2, 2), WindowDim(2, 2))), dim_labels=dims)
    computation = b.build(out)
    module = with_shardings(
        computation,
        EIGHT,
        lambda i: layout(EIGHT, *((None,) * 4 if i.opcode == "broadcast" else (None, "x", None, None)[: i.shape.rank])),
    )
    assert sent(module) == ([], 0)


def test_a_roll_is_one_permute_of_the_shifted_elements() -> None:
    b = Builder("main")
    assert sent(split(b.build(rolled(b, floats(b, 64, 10), 3)))) == (["collective-permute"], 3 * 10 * 4)


def test_a_halo_wider_than_a_shard_takes_several_hops() -> None:
    b = Builder("main")
    x = floats(b, 16, 10)
    padded = b.add("pad", x, b.constant(0.0, "f32"), padding=((3, -3, 0), (0, 0, 0)))
    assert sent(split(b.build(padded))) == (["collective-permute"] * 2, 2 * 10 * 4)


def test_a_window_over_everything_gathers_and_says_so() -> None:
    b = Builder("main")
    x = floats(b, 16, 10)
    w = Window((WindowDim(16, 1, 8, 7), WindowDim(1)))
    out = b.add("reduce-window", x, b.constant(0.0, "f32"), window=w, to_apply=binary_computation("add", "f32"))
    local = check(split(b.build(out)))
    (gather,) = build_report(local)["collectives"]
    assert gather["op"] == "all-gather"
    assert "nearly all of dimension 0 on every device" in gather["reason"]


def test_zeros_in_front_are_not_sent_and_need_no_mask() -> None:
    b = Builder("main")
    x = floats(b, 64, 10)
    zeros = b.add("broadcast", b.constant(0.0, "f32"), shape=array_shape("f32", 1, 10), dimensions=())
    out = b.add("concatenate", zeros, b.add("slice", x, slice=((0, 63, 1), (0, 10, 1))), dimensions=(0,))
    local = check(split(b.build(out)))
    assert build_report(local)["wire_bytes"] == 10 * 4
    assert "select" not in {i.opcode for i in local.instructions()}


def test_one_row_for_everybody_is_summed_from_its_owner() -> None:
    b = Builder("main")
    x = floats(b, 64, 10)
    row = b.add("slice", x, slice=((63, 64, 1), (0, 10, 1)))
    module = with_shardings(
        b.build(row), EIGHT, lambda i: layout(EIGHT, "x" if i.opcode == "parameter" else None, None)
    )
    assert sent(module) == (["all-reduce"], 2 * 10 * 4 * 7 / 8)


def test_slices_of_whole_arrays_stay_local() -> None:
    b = Builder("main")
    out = b.add("slice", floats(b, 64, 10), slice=((3, 51, 1), (0, 10, 1)))
    module = with_shardings(
        b.build(out), EIGHT, lambda i: layout(EIGHT, None if i.opcode == "parameter" else "x", None)
    )
    assert sent(module) == ([], 0)


def test_a_plan_does_not_depend_on_how_many_devices_there_are() -> None:
    for k in (8, 1024):
        made = plan_exchange((SourceInterval(0, 4, True, 0, 1, 4 * k),), outputs(4 * k, k, reach=3))
        assert made.sent == (2, 2)


def joined(b: Builder, m: int, n: int) -> Instruction:
    return b.add("concatenate", floats(b, m, 10), floats(b, n, 10), dimensions=(0,))


def test_parts_of_several_operands_travel_together() -> None:
    """Shard i of each of two arrays goes to two devices: as many permutes as a device sends, not one per distance."""
    b = Builder("main")
    assert sent(split(b.build(joined(b, 64, 64)))) == (["collective-permute"] * 2, 2 * 8 * 10 * 4)


@pytest.mark.parametrize(("m", "n"), [(64, 61), (7, 57), (3, 3), (40, 24)])
def test_joins_of_other_sizes(m: int, n: int) -> None:
    b = Builder("main")
    check(split(b.build(joined(b, m, n))))


def test_as_few_rounds_as_a_device_sends_and_receives() -> None:
    """Every second element first: shards 2i and 2i + 1 go to device i, and again to device i + k/2."""
    for k in (8, 64):
        sources = (SourceInterval(0, 2, True, 0, 0, 2 * k), SourceInterval(1, 2, True, 0, 2 * k, 2 * k))
        made = plan_exchange(sources, outputs(4 * k, k))
        assert made.sent == (4, 2)
        for r in made.rounds:
            assert r.own or len({s for s, _ in r.pairs}) == len({d for _, d in r.pairs}) == len(r.pairs)


@pytest.mark.parametrize("seed", range(30))
def test_plans_bring_what_is_wished(seed: int) -> None:
    """Elements by elements, for random sources and target intervals."""
    r = random.Random(f"plans {seed}")
    k = r.choice([2, 3, 4, 8])
    sources, at, held = [], r.randint(-3, 3), {}
    for _ in range(r.randint(1, 4)):
        operand = r.randint(0, 2)
        n = r.randint(1, 20)
        n, chunk = held.setdefault(operand, (n, -(-n // k)))
        start = r.randrange(n)
        length = r.randint(1, n - start)
        sources.append(SourceInterval(operand, chunk, True, start, at, length))
        at += length
    target = outputs(r.randint(1, 40), k, first=r.randint(-4, 8), stride=r.randint(1, 2), reach=r.randint(1, 3))
    made = plan_exchange(tuple(sources), target)
    got: list[dict[int, tuple[int, int]]] = [{} for _ in range(k)]
    for step in made.rounds:
        assert step.own or len({p.shard for p in step.pieces}) == len({p.device for p in step.pieces}) == len(
            step.pieces
        )
        for p in step.pieces:
            assert 0 <= step.base[p.operand] + p.low - step.first[p.shard] <= step.size - p.length
            for e in range(p.length):
                got[p.device][p.place + e] = (p.operand, p.shard * held[p.operand][1] + p.low + e)
    for i, (start, size) in enumerate(zip(target.starts, target.sizes, strict=True)):
        wanted = {
            v - start: (s.operand, s.start + v - s.at)
            for s in sources for v in range(max(start, s.at), min(start + size, s.at + s.length))
        }  # fmt: skip
        assert got[i] == wanted


# -- reshapes --------------------------------------------------------------------------------------------------------


def reshaped(before: tuple[int, ...], after: tuple[int, ...], *, specs: dict[int, tuple[str | None, ...]]) -> Module:
    b = Builder("main")
    out = b.add("reshape", floats(b, *before), shape=array_shape("f32", *after))
    return with_shardings(b.build(out), EIGHT, lambda i: layout(EIGHT, *specs[i.shape.rank]))


@pytest.mark.parametrize("before, after, rows", [
    ((60, 4), (30, 2, 4), 0),
    ((30, 2, 4), (60, 4), 0),
    ((60, 2, 4), (120, 4), 7),
    ((120, 4), (60, 2, 4), 7),
    ((60, 6), (12, 5, 6), 12),
])  # fmt: skip
def test_uneven_reshapes_send_what_crosses_a_border(before: tuple[int, ...], after: tuple[int, ...], rows: int) -> None:
    specs: dict[int, tuple[str | None, ...]] = {2: ("x", None), 3: ("x", None, None)}
    _, wire = sent(reshaped(before, after, specs=specs))
    assert wire <= rows * 6 * 4


def test_random_reshapes() -> None:
    for seed in range(120):
        r = random.Random(f"reshapes {seed}")
        mesh = r.choice([Mesh({"x": 2, "y": 4}), EIGHT, Mesh({"x": 3}), Mesh({"x": 2, "y": 2, "z": 2})])
        sizes = [r.choice([1, 2, 3, 5, 6, 7, 10]) for _ in range(r.randint(2, 4))]
        cut = sorted(r.sample(range(1, len(sizes)), r.randint(0, len(sizes) - 1)))
        after = [math.prod(sizes[i:j]) for i, j in zip([0, *cut], [*cut, len(sizes)], strict=True)]
        dims = [tuple(sizes), tuple(after)]
        r.shuffle(dims)
        b = Builder("main")
        out = b.add("reshape", floats(b, *dims[0]), shape=array_shape("f32", *dims[1]))
        check(with_shardings(b.build(out), mesh, lambda i, r=r, m=mesh: random_sharding(r, m, i.shape.rank)), seed=seed)


# -- windows with a body of their own --------------------------------------------------------------------------------


def largest_and_where(b: Builder, x: Instruction, window: Window) -> Instruction:
    """The largest element of each window and its row."""
    c = Builder("larger")
    a, i, d, j = (c.parameter(array_shape(t)) for t in ("f32", "s32", "f32", "s32"))
    keep = c.add("compare", a, d, direction="GE")
    body = c.build(c.add("tuple", c.add("select", keep, a, d), c.add("select", keep, i, j)))
    rows = b.add("iota", shape=array_shape("s32", *x.shape.dims), iota_dimension=0)
    lowest = b.constant(-math.inf, "f32")
    return b.add("reduce-window", x, rows, lowest, b.constant(-1, "s32"), window=window, to_apply=body)


def test_random_windows_with_their_own_bodies() -> None:
    for seed in range(30):
        r = random.Random(f"largest {seed}")
        mesh = r.choice([Mesh({"x": 2, "y": 4}), EIGHT, Mesh({"x": 3}), Mesh({"x": 2, "y": 2, "z": 2})])
        dims = tuple(r.randint(3, 20) for _ in range(2))
        sizes = [[r.randint(1, 3), r.randint(1, 3), r.randint(0, 2), r.randint(0, 2), r.choice([1, 2])] for _ in dims]
        window = Window(tuple(WindowDim(*s) for s in sizes))
        b = Builder("main")
        made = largest_and_where(b, floats(b, *dims), window)
        check(
            with_shardings(b.build(made), mesh, lambda i, r=r, m=mesh: random_sharding(r, m, i.shape.rank)), seed=seed
        )


def test_a_padded_window_with_its_own_body_sends_its_halo() -> None:
    """Of the positions one number each way: where the neighbour's rows begin."""
    b = Builder("main")
    made = largest_and_where(b, floats(b, 64, 10), Window((WindowDim(3, 1, 1, 1), WindowDim(1))))
    local = check(split(b.build(made)))
    assert build_report(local)["wire_bytes"] == 2 * 10 * 4 + 2 * 4


@pytest.mark.parametrize("size", [60, 64, 9])
def test_spreading_elements_sends_just_those_that_are_read(size: int) -> None:
    """Positions between elements: what a device reads begins with the first element inside, not the one before."""
    b = Builder("main")
    out = b.add("pad", floats(b, size, 10), b.constant(0.0, "f32"), padding=((0, 1, 1), (0, 0, 0)))
    local = check(split(b.build(out)))
    rows = {60: 3, 64: 0, 9: 1}[size]
    assert build_report(local)["wire_bytes"] <= rows * 10 * 4 * (2 if size == 9 else 1)


def test_positions_between_elements_are_the_padding_value() -> None:
    b = Builder("main")
    out = b.add("pad", floats(b, 1), b.constant(2.0, "f32"), padding=((1, 1, 1),))
    check(split(b.build(out)))


def test_parts_are_written_where_they_belong() -> None:
    """Each device puts what it receives where it wants it: nothing is computed per element."""
    b = Builder("main")
    local = check(split(b.build(joined(b, 64, 64))))
    assert not {"select", "compare"} & {i.opcode for i in local.instructions()}
