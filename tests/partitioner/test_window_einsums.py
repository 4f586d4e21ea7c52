"""Windowed einsums: the same numbers and bytes from rings of permutes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from partition_support import collectives, integers
from test_optimise import same
from test_xla import through_xla

from shardc.costs.machines.machine import load_machine
from shardc.hlo.errors import InputError
from shardc.hlo.evaluate import evaluate_spmd
from shardc.hlo.ir.build import Builder, binary_computation, make_module
from shardc.hlo.ir.groups import AxisGroups
from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, DimSharding, Sharding
from shardc.hlo.ir.types import array_shape
from shardc.partitioner.optimise.einsums import window_einsums
from shardc.partitioner.optimise.einsums.ring import Ring
from shardc.partitioner.optimise.einsums.window_einsums import WindowEinsums
from shardc.partitioner.options import PartitionOptions
from shardc.partitioner.report import build_report

#: Dimension numbers of a product, dimensions of the parts of its left operand, which of them is gathered.
GATHERED: dict[str, tuple[dict[str, tuple[int, ...]], tuple[int, ...], int]] = {
    "free": ({"lhs_contracting_dims": (1,), "rhs_contracting_dims": (0,)}, (2, 6), 0),
    "contracted": ({"lhs_contracting_dims": (1,), "rhs_contracting_dims": (0,)}, (4, 2), 1),
    "batch": (
        {"lhs_batch_dims": (0,), "rhs_batch_dims": (1,), "lhs_contracting_dims": (2,), "rhs_contracting_dims": (0,)},
        (2, 3, 4),
        0,
    ),
}


def groups_of(members: int) -> AxisGroups:
    return AxisGroups(Mesh({"x": members, "y": 2}), (AxisRef("x"),))


def module_of(b: Builder, root: Instruction, groups: AxisGroups) -> Module:
    return make_module("m", b.build(root), mesh=groups.mesh, num_partitions=groups.mesh.size, partitioned=True)


def gathered(kind: str, members: int, *, swap: bool = False, dtype: str = "f32") -> Module:
    """A product of a gathered array, which also is a result where ``members`` are even."""
    attrs, part, dim = GATHERED[kind]
    whole = (*part[:dim], part[dim] * members, *part[dim + 1 :])
    other = (4, whole[0], 3) if kind == "batch" else (whole[1], 5)
    groups, b = groups_of(members), Builder("main")
    x, y = b.parameter(array_shape(dtype, *part)), b.parameter(array_shape(dtype, *other))
    g = b.add("all-gather", x, replica_groups=groups, dimensions=(dim,), shape=array_shape(dtype, *whole))
    if swap:
        renamed = {("rhs" if k.startswith("lhs") else "lhs") + k[3:]: v for k, v in attrs.items()}
        product = b.add("dot", y, g, **renamed)
    else:
        product = b.add("dot", g, y, **attrs)
    return module_of(b, b.add("tuple", product, g) if members % 2 == 0 else product, groups)


def scattered(kind: str, members: int, dtype: str = "f32", splat: int | None = None) -> Module:
    """A product that is scaled, turned and scattered along its left, right or batch index; operand ``splat`` is one
    number everywhere."""
    groups, b = groups_of(members), Builder("main")
    n = 2 * members
    x, y = (
        b.add("broadcast", b.parameter(array_shape(dtype)), shape=array_shape(dtype, *dims), dimensions=())
        if k == splat
        else b.parameter(array_shape(dtype, *dims))
        for k, dims in enumerate(((n, 3, 5), (n, 5, n)))
    )
    product = b.add(
        "dot",
        x,
        y,
        lhs_batch_dims=(0,),
        rhs_batch_dims=(0,),
        lhs_contracting_dims=(2,),
        rhs_contracting_dims=(1,),
    )
    turned = b.add("transpose", product, dimensions=(2, 0, 1))
    scaled = b.add("multiply", turned, b.add("broadcast", b.constant(3, dtype), shape=turned.shape, dimensions=()))
    dim = {"right": 0, "batch": 1}[kind]
    dims = (*turned.shape.dims[:dim], 2, *turned.shape.dims[dim + 1 :])
    result = b.add(
        "reduce-scatter",
        scaled,
        replica_groups=groups,
        dimensions=(dim,),
        to_apply=binary_computation("add", dtype),
        shape=array_shape(dtype, *dims),
    )
    return module_of(b, result, groups)


def windowed(before: Module, monkeypatch: pytest.MonkeyPatch, *, both: bool | None = None) -> Module:
    """With every ring taken, in one direction or in both, or as the pass likes it."""
    if both is not None:
        for name in ("ring_of_gather", "ring_of_scatter"):
            find = getattr(window_einsums, name)

            def forced(*args: object, find: object = find) -> Ring | None:
                ring = find(*args)  # type: ignore[operator]
                return Ring(ring.groups, ring.size, both)

            monkeypatch.setattr(window_einsums, name, forced)
    after = WindowEinsums("always").run(before)
    assert set(collectives(after)) == {"collective-permute"}
    assert build_report(after)["wire_bytes"] == build_report(before)["wire_bytes"]
    same(before, after)
    return after


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("members", [3, 4, 6, 7])
@pytest.mark.parametrize("kind", GATHERED)
def test_products_of_gathered_parts(kind: str, members: int, both: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    windowed(gathered(kind, members, swap=members % 3 == 0), monkeypatch, both=both)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("members", [3, 4, 6, 7])
@pytest.mark.parametrize("kind", ["right", "batch"])
def test_products_that_are_scattered(kind: str, members: int, both: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    windowed(scattered(kind, members), monkeypatch, both=both)


@pytest.mark.parametrize("members", [2, 5])
def test_directions_without_a_machine(members: int, monkeypatch: pytest.MonkeyPatch) -> None:
    windowed(gathered("free", members), monkeypatch)
    windowed(scattered("right", members), monkeypatch)


def test_readers_that_need_each_other() -> None:
    """Of two products in a row the first is windowed and the second reads the array that the ring puts together."""
    groups, b = groups_of(4), Builder("main")
    x, w = b.parameter(array_shape("f32", 8, 8)), b.parameter(array_shape("f32", 2, 8))
    g = b.add("all-gather", w, replica_groups=groups, dimensions=(0,), shape=array_shape("f32", 8, 8))
    first = b.add("dot", x, g, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))
    second = b.add("dot", first, g, lhs_contracting_dims=(1,), rhs_contracting_dims=(1,))
    before = module_of(
        b, b.add("tuple", second, b.add("dot", g, g, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))), groups
    )
    after = WindowEinsums("always").run(before)
    assert set(collectives(after)) == {"collective-permute"}
    same(before, after)


def test_rings_that_would_wait_for_each_other() -> None:
    """Each gathered array is read by a product that needs a product of the other one."""
    groups, b = groups_of(3), Builder("main")
    dims = {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (0,)}
    parts = [b.parameter(array_shape("f32", 2, 6)) for _ in "ab"]
    y = b.parameter(array_shape("f32", 6, 6))
    one, two = (
        b.add("all-gather", x, replica_groups=groups, dimensions=(0,), shape=array_shape("f32", 6, 6)) for x in parts
    )
    a, c = b.add("dot", one, y, **dims), b.add("dot", two, y, **dims)
    before = module_of(b, b.add("tuple", b.add("dot", one, c, **dims), b.add("dot", two, a, **dims)), groups)
    after = WindowEinsums("always").run(before)
    assert set(collectives(after)) == {"collective-permute"}
    same(before, after)


def test_a_product_between_a_gather_and_a_scatter() -> None:
    groups, b = groups_of(4), Builder("main")
    x, w = b.parameter(array_shape("f32", 2, 6)), b.parameter(array_shape("f32", 6, 4))
    g = b.add("all-gather", x, replica_groups=groups, dimensions=(0,), shape=array_shape("f32", 8, 6))
    product = b.add("dot", g, w, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,))
    attrs = {"replica_groups": groups, "dimensions": (0,), "to_apply": binary_computation("add", "f32")}
    before = module_of(b, b.add("reduce-scatter", product, shape=array_shape("f32", 2, 4), **attrs), groups)
    after = WindowEinsums("always").run(before)
    assert sorted(set(collectives(after))) == ["collective-permute", "reduce-scatter"]
    same(before, after)


def test_narrow_sums_are_made_in_f32() -> None:
    """Contracted parts add up in f32; a scatter would round on every member, and stays."""
    before = gathered("contracted", 3, dtype="bf16")
    after = WindowEinsums("always").run(before)
    assert {i.shape.dtype.name for i in after.instructions() if i.opcode == "dot"} == {"f32"}
    same(before, after)
    kept = scattered("right", 3, dtype="bf16")
    assert WindowEinsums("always").run(kept) is kept


@pytest.mark.parametrize("splat", [0, 1])
@pytest.mark.parametrize("kind", ["right", "batch"])
def test_operands_of_one_number_are_cut_too(kind: str, splat: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the ones are that the gradient of a sum multiplies with: no part of them is read from memory."""
    after = windowed(scattered(kind, 4, splat=splat), monkeypatch)
    assert all(i.operands[0].opcode != "broadcast" for i in after.instructions() if i.opcode == "dynamic-slice")


def test_the_program_does_not_grow_with_the_devices() -> None:
    sizes = {sum(1 for _ in WindowEinsums("always").run(gathered("free", n)).instructions()) for n in (8, 32, 128)}
    assert len(sizes) == 1


def large(rows: int) -> Module:
    """Rows times a weight that is gathered over eight devices."""
    groups, b = AxisGroups(Mesh({"x": 8}), (AxisRef("x"),)), Builder("main")
    x, w = b.parameter(array_shape("bf16", rows, 8192)), b.parameter(array_shape("bf16", 8192, 1024))
    g = b.add("all-gather", w, replica_groups=groups, dimensions=(1,), shape=array_shape("bf16", 8192, 8192))
    return module_of(b, b.add("dot", x, g, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,)), groups)


@pytest.mark.parametrize("machine", ["h100-dgx", "tpu-v5p"])
def test_modelled_time_decides(machine: str) -> None:
    """Much to compute hides the travel; with next to nothing, more steps are only more latency and traffic."""
    described = load_machine(machine)
    taken = WindowEinsums("auto", described).run(large(8192))
    assert set(collectives(taken)) == {"collective-permute"}
    groups, b = AxisGroups(Mesh({"x": 8}), (AxisRef("x"),)), Builder("main")
    x, w = b.parameter(array_shape("f32", 1, 8)), b.parameter(array_shape("f32", 1, 8))
    g = b.add("all-gather", w, replica_groups=groups, dimensions=(0,), shape=array_shape("f32", 8, 8))
    small = module_of(b, b.add("dot", x, g, lhs_contracting_dims=(1,), rhs_contracting_dims=(0,)), groups)
    assert WindowEinsums("auto", described).run(small) is small


@pytest.mark.parametrize("members", [2, 3, 8])
@pytest.mark.parametrize("rows", [8, 1024, 8192])
def test_no_ring_where_devices_do_transfers_themselves(members: int, rows: int) -> None:
    """A ring would send as much, compute as much, and hide nothing; it is there where it is asked for."""
    described = load_machine("h100-dgx")
    alone = replace(described, device=replace(described.device, transfers=0, queued=0))
    for before in (large(rows), gathered("free", members), scattered("right", members)):
        assert WindowEinsums("auto", alone).run(before) is before
        assert "collective-permute" in collectives(WindowEinsums("always", alone).run(before))


def test_asked_for_or_not() -> None:
    before = large(8192)
    assert WindowEinsums("never", load_machine("h100-dgx")).run(before) is before
    assert WindowEinsums("auto").run(before) is before
    with pytest.raises(InputError, match="never, auto, always"):
        PartitionOptions(windowed_einsum="sometimes")  # type: ignore[arg-type]


def replicated(mesh: Mesh, rank: int) -> Sharding:
    return Sharding(mesh, (DimSharding(()),) * rank)


def test_xla_runs_rings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """XLA's results on the windowed text are those of our evaluator on the program as it was."""
    cases = {}
    for number, before in enumerate((gathered("free", 4), gathered("contracted", 3), scattered("batch", 4))):
        after = windowed(before, monkeypatch)
        mesh = before.mesh
        assert mesh is not None
        rng = np.random.default_rng(number)
        whole = [replicated(mesh, p.shape.rank) for p in before.parameters]
        for m in (before, after):
            for p, s in zip(m.parameters, whole, strict=True):
                p.sharding = s
            leaves = [replicated(mesh, leaf.rank) for leaf in m.results]
            m.entry.root.sharding = tuple(leaves) if m.entry.root.shape.is_tuple else leaves[0]
        shapes = {"global_parameters": tuple(p.shape for p in before.parameters), "global_results": before.results}
        args = [integers(rng, p.shape) for p in before.parameters]
        cases[f"c{number}"] = (before, after.with_(attrs=shapes), args)
    got = through_xla({k: (after, args) for k, (_, after, args) in cases.items()}, tmp_path)
    for key, (before, _, args) in cases.items():
        want = evaluate_spmd(before, [args] * before.num_partitions)[0]
        for g, w in zip(got[key], want, strict=True):
            np.testing.assert_array_equal(g, w)
