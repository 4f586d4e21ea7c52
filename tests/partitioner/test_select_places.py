"""A few places of sorted arrays, found by counts: every type and order, equal elements, rows, uneven shards; what is
sent."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from partition_support import check, collectives, layout, with_shardings

import shardc
from shardc import P
from shardc.hlo.ir.build import Builder
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.types import array_shape
from shardc.partitioner.report import build_report
from tests.compiler.test_key_sorting import before, elements

SENT = 2 * 256 * 4


def program(
    mesh: Mesh, dtype: str, dims: tuple[int, ...], dim: int, slices: list[tuple[int, int, int]], direction: str = "LT"
) -> Module:
    """Slices along the sorted dimension of one array, which is split over all axes."""
    b = Builder("main")
    x = b.parameter(array_shape(dtype, *dims))
    made = b.add("sort", x, dimensions=(dim,), is_stable=True, to_apply=before(dtype, direction=direction))
    cuts = [tuple(s if d == dim else (0, n, 1) for d, n in enumerate(dims)) for s in slices]
    root = b.add("tuple", *(b.add("slice", made, slice=c) for c in cuts))
    split = layout(mesh, *(tuple(mesh.axis_names) if d == dim else None for d in range(len(dims))))
    whole = layout(mesh, *(None for _ in dims))
    return with_shardings(b.build(root), mesh, lambda i: split if i.opcode in ("parameter", "sort") else whole)


def is_counted(module: Module) -> bool:
    opcodes = {i.opcode for i in module.instructions()}
    return "sort" not in opcodes and not {"all-gather", "all-to-all"} & set(collectives(module))


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "s8", "u16", "s32", "u64", "pred"])
@pytest.mark.parametrize("direction", ["LT", "GT"])
def test_types(dtype: str, direction: str) -> None:
    """Places among infinities, NaNs and equal elements; neighbours."""
    n = 9003
    slices = [(4500, 4502, 1), (4510, 4511, 1)]
    module = program(Mesh({"x": 2}), dtype, (n,), 0, slices, direction)
    x = elements(dtype, n, np.random.default_rng(0))
    if dtype[0] == "f":
        x = np.where(x == 0, 0, x).astype(x.dtype)
    assert is_counted(check(module, [x]))


@pytest.mark.parametrize("values", [1, 2, 5, 10**9])
@pytest.mark.parametrize(("devices", "n"), [(3, 13001), (4, 17002)])
def test_equal_elements(values: int, devices: int, n: int) -> None:
    x = np.random.default_rng(values).integers(-values, values, n).astype(np.int64)
    middle = n // 2
    assert is_counted(check(program(Mesh({"x": devices}), "s64", (n,), 0, [(middle - 1, middle + 2, 1)]), [x]))


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_rows(dim: int) -> None:
    dims = tuple(5003 if d == dim else 3 for d in range(3))
    module = program(Mesh({"x": 2}), "f32", dims, dim, [(2500, 2501, 1)])
    local = check(module, [np.random.default_rng(dim).standard_normal(dims).astype(np.float32)])
    assert is_counted(local)
    assert {i.opcode for i in local.instructions()} >= {"while", "scatter"}


@pytest.mark.parametrize("devices", [2, 4])
def test_a_median_sends_counts_of_each_digit(devices: int) -> None:
    local = check(
        program(Mesh({"x": devices}), "f32", (1 << 14,), 0, [(1 << 13, (1 << 13) + 1, 1)]),
        [np.random.default_rng(0).standard_normal(1 << 14).astype(np.float32)],
    )
    assert build_report(local)["wire_bytes"] <= 4 * SENT * (devices - 1) / devices + 64


QUANTILES = {
    "median": lambda xp, x: xp.median(x),
    "quantiles": lambda xp, x: xp.quantile(x, xp.array([0.1, 0.5, 0.77], np.float32)),
    "percentile": lambda xp, x: xp.percentile(x, 40),
    "one place": lambda xp, x: xp.sort(x)[x.size // 3],
}


@pytest.mark.parametrize("name", QUANTILES)
@pytest.mark.parametrize("devices", [1, 2])
def test_functions_of_numpy_and_jax(name: str, devices: int) -> None:
    """Beside JAX's own backend; no array is sorted, and on one device slices say which places are read."""
    function = QUANTILES[name]
    n = 1 << 15
    mesh = Mesh({"x": devices})
    x = np.random.default_rng(1).standard_normal(n).astype(np.float32)
    split = jax.sharding.NamedSharding(mesh.to_jax(), jax.sharding.PartitionSpec("x"))
    wanted = np.asarray(jax.jit(lambda x: function(jnp, x))(x))
    for program in (
        shardc.trace(lambda x: function(np, x), x, mesh=mesh).annotate({"x": P("x")}),
        shardc.from_jax(jax.jit(lambda x: function(jnp, x), in_shardings=split), x),
    ):
        made = program.partition()
        text = made.as_text()
        assert " sort(" not in text if devices > 1 else " dynamic-slice(" not in text and " gather(" not in text
        np.testing.assert_allclose(np.asarray(made.compile("cpu")(x)), wanted, rtol=1e-5)


@pytest.mark.parametrize("kth", [3000, [100, 5000, -1]])
@pytest.mark.parametrize("devices", [1, 2])
def test_partitions(kth: int | list[int], devices: int) -> None:
    """NumPy says which elements come before and behind each place, and no more: NaNs last, many equal ones."""
    x = np.random.default_rng(0).integers(-40, 40, 9001).astype(np.float64)
    x[::97] = np.nan
    mesh, wanted = Mesh({"x": devices}), np.sort(x)
    for function, by_place in ((np.partition, False), (np.argpartition, True)):
        program = shardc.trace(lambda x, f=function: f(x, kth), x, mesh=mesh).annotate({"x": P("x")}).partition()
        made = np.asarray(program.compile("cpu")(x))
        assert sorted(made) == list(range(9001)) if by_place else True
        made = x[made] if by_place else made
        for k in np.atleast_1d(kth) % 9001:
            np.testing.assert_array_equal(np.sort(made[:k]), wanted[:k])
            np.testing.assert_array_equal(np.sort(made[k:]), wanted[k:])
            np.testing.assert_array_equal(made[k], wanted[k])
