"""`shardc.jit` with sizes that the axes do not divide: layouts, bytes, values, gradients beside JAX on one device."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc import Mesh, P
from shardc.hlo.errors import AnnotationError, InputError, UnsupportedError
from tests.launcher.test_job import mpiexec

jax = pytest.importorskip("jax")
jnp = jax.numpy

LINE = Mesh({"d": 8})
GRID = Mesh({"a": 2, "b": 3})
Functions = dict[str, Callable[..., Any]]

#: Of one matrix; all of them keep its rows, its columns, both or none.
ONE: Functions = {
    "sums along": lambda x: jnp.cumsum(x, 0),
    "transposed": lambda x: x.T * 2,
    "total": lambda x: x.sum(),
    "shorter": lambda x: x[1:],
    "longer": lambda x: jnp.concatenate([x, x[:1]]),
    "rows reversed": lambda x: x[::-1],
    "sorted": lambda x: jnp.sort(x, 0),
    "flat": lambda x: x.reshape(-1),
    "product": lambda x: x @ x.T,
    "a pytree": lambda x: {"rows": x.max(1), "columns": (x.min(0), None)},
}


def matrix(rows: int, columns: int) -> Any:
    return np.random.default_rng(rows * 31 + columns).integers(-9, 9, (rows, columns)).astype(np.float32)


def check(found: Any, expected: Any) -> None:
    """Whole values, and each device's own part."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        b = np.asarray(b)
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a), b)
        np.testing.assert_array_equal(shardc.gather(a), b)
        for shard in a.addressable_shards:
            np.testing.assert_array_equal(shard.data, b[shard.index])


def lengths(x: Any, dimension: int = 0) -> list[int]:
    return [shard.data.shape[dimension] for shard in x.addressable_shards]


def test_a_running_sum_keeps_its_layout_and_sends_next_to_nothing() -> None:
    total = shardc.jit(jnp.cumsum, mesh=LINE, in_shardings=P("d"), out_shardings=P("d"))
    x = np.arange(65_537, dtype=np.int32)
    found = total(x)
    check(found, jnp.cumsum(x))
    assert lengths(found) == [8_193] * 7 + [8_186]
    report = total.partitioned(x).report()
    assert report["wire_bytes"] <= 32
    assert report["results"][0]["sharding"] == "[{d}]"


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(sorted(ONE)),
    st.integers(1, 13),
    st.integers(1, 7),
    st.sampled_from([P("a"), P("b"), P(("a", "b")), P("b", "a"), P(None, ("b", "a")), P()]),
    st.sampled_from([None, P(), "as propagated"]),
)
def test_any_size_gives_what_jax_gives(name: str, rows: int, columns: int, spec: P, out: Any) -> None:
    function, x = ONE[name], matrix(rows, columns)
    options = {} if out == "as propagated" else {"out_shardings": out}
    found = shardc.jit(function, mesh=GRID, in_shardings=spec, **options)(shardc.array(x, (GRID, spec)))
    check(found, jax.jit(function)(x))


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 15, 17])
@pytest.mark.parametrize("options", [{"in_shardings": P("d")}, {"out_shardings": P("d")}])
def test_few_elements_leave_devices_without_any(size: int, options: dict[str, Any]) -> None:
    x = np.arange(size, dtype=np.float32)
    step = shardc.jit(lambda x: jnp.flip(x) + 1, mesh=LINE, **options)
    found = step(x)
    check(found, np.flip(x) + 1)
    if "out_shardings" in options:
        part = -(-size // 8)
        assert lengths(found) == [min(part, max(size - part * k, 0)) for k in range(8)]


def test_a_result_that_the_function_constrains_stays_split() -> None:
    rows = jax.sharding.NamedSharding(LINE.to_jax(), jax.sharding.PartitionSpec("d"))

    def step(x: Any) -> Any:
        return jax.lax.with_sharding_constraint(x * 2, rows), x.sum()

    jitted, x = shardc.jit(step, mesh=LINE, donate_argnums=0), np.arange(69, dtype=np.float32)
    for _ in range(2):
        found, total = jitted(jnp.asarray(x))
        check((found, total), (x * 2, x.sum()))
        assert lengths(found) == [9] * 7 + [6]
    assert isinstance(jitted(jnp.asarray(x[:64]))[0], jax.Array)
    np.testing.assert_array_equal(jax.jit(lambda x: jitted(x)[0] + 1)(x), x * 2 + 1)


def test_so_does_one_that_a_called_function_constrains() -> None:
    x = np.arange(21, dtype=np.float32)
    rows = jax.sharding.PartitionSpec("d")
    total = shardc.jit(jnp.cumsum, mesh=LINE, out_shardings=P("d"))
    twice = jax.jit(lambda x: (x + 1, jax.lax.with_sharding_constraint(x * 2, rows)))
    found = shardc.jit(total, mesh=LINE)(x)
    check(found, jnp.cumsum(x))
    assert lengths(found) == [3] * 7 + [0]
    check(shardc.jit(twice, mesh=LINE)(x), (x + 1, x * 2))
    whole = shardc.jit(lambda x: jax.lax.with_sharding_constraint(twice(x)[1], jax.sharding.PartitionSpec()), mesh=LINE)
    assert isinstance(whole(x), jax.Array)


def test_a_result_that_becomes_whole_is_told(caplog: pytest.LogCaptureFixture) -> None:
    x = np.arange(1 << 16, dtype=np.float32)
    step = shardc.jit(lambda x: x[1:] + 1, mesh=LINE, in_shardings=P("d"))
    for _ in range(2):  # from the cache, too
        step.clear_cache()
        caplog.clear()
        found = step(x)
        assert isinstance(found, jax.Array)
        assert "result f32[65535]" in caplog.text
        assert "out_shardings=P('d')" in caplog.text
        assert "a size of 65536 divides" in caplog.text
    caplog.clear()
    kept = shardc.jit(lambda x: x[1:] + 1, mesh=LINE, in_shardings=P("d"), out_shardings=P("d"))(x)
    shardc.jit(lambda x: x[2:] + 1, mesh=LINE)(kept)
    assert caplog.text == ""
    check(kept, x[1:] + 1)


def test_an_uneven_constraint_keeps_what_it_constrains_split() -> None:
    def step(x: Any) -> Any:
        return jax.lax.with_sharding_constraint(x * 2, jax.sharding.PartitionSpec("d"))[3:]

    jitted, x = shardc.jit(step, mesh=LINE), shardc.array(np.arange(69, dtype=np.float32), (LINE, P()))
    found = jitted(x)
    check(found, np.arange(69, dtype=np.float32)[3:] * 2)
    assert lengths(found) == [9] * 7 + [3]


def test_what_nobody_lays_out_lies_as_propagation_has_it() -> None:
    x = np.arange(64, dtype=np.float32)
    step = shardc.jit(lambda x: (x[1:], x + 1, x.sum()), mesh=LINE)
    shorter, same, total = step(shardc.array(x, (LINE, P("d"))))
    assert (lengths(shorter), lengths(same), total.shape) == ([8] * 7 + [7], [8] * 8, ())
    check((shorter, same, total), (x[1:], x + 1, x.sum()))
    assert step.partitioned(shardc.array(x, (LINE, P("d")))).report()["wire_bytes"] < 100


def test_arrays_keep_their_layout_from_program_to_program() -> None:
    x = matrix(11, 5)
    first = shardc.jit(lambda x: (x + 1, x.T), mesh=GRID, in_shardings=P("b", "a"))
    second = shardc.jit(lambda y, z: y * 2 + z.T, mesh=GRID)
    a, b = first(x)
    found = second(a, b)
    check(found, (x + 1) * 2 + x)
    assert (a.sharding.num_shards(), b.sharding.num_shards(), found.sharding.num_shards()) == ((3, 2), (2, 3), (3, 2))
    assert second.partitioned(a, b).report()["wire_bytes"] <= first.partitioned(x).report()["wire_bytes"] + 4 * 55
    half = shardc.jit(lambda x: x + 1, mesh=Mesh({"a": 4}))(found)
    check(half, (x + 1) * 2 + x + 1)


@pytest.mark.parametrize("name", ["sums along", "shorter", "sorted", "product", "total"])
def test_gradients(name: str) -> None:
    def loss(x: Any) -> Any:
        return (jnp.sin(ONE[name](x) / 8) ** 2).sum()

    x, rtol = matrix(7, 5), {"rtol": 1e-4, "atol": 1e-5}
    expected = jax.grad(loss)(x)
    inside = shardc.jit(jax.grad(loss), mesh=GRID, in_shardings=P("b"), out_shardings=P("b"))(x)
    np.testing.assert_allclose(np.asarray(inside), expected, **rtol)
    assert lengths(inside)[:2] == [3, 3]
    jitted = shardc.jit(loss, mesh=GRID, in_shardings=P("b"))
    np.testing.assert_allclose(jax.grad(jitted)(x), expected, **rtol)
    np.testing.assert_allclose(jax.jit(jax.value_and_grad(jitted))(x)[1], expected, **rtol)
    np.testing.assert_allclose(jax.vmap(jitted)(np.stack([x, x])), [loss(x)] * 2, rtol=1e-4)


def test_donated_arguments() -> None:
    def step(state: Any, x: Any) -> Any:
        return jax.tree.map(lambda s: s + x.sum(), state), x[:4]

    specs = ({"w": P("d"), "b": None}, P("d"))
    jitted = shardc.jit(step, mesh=LINE, in_shardings=specs, out_shardings=(specs[0], None), donate_argnums=0)
    x, expected = np.arange(9, dtype=np.float32), {"w": np.ones(13, np.float32), "b": np.zeros((), np.float32)}
    state: Any = expected
    for _ in range(3):
        before = state
        state, few = jitted(state, x)
        expected = jax.tree.map(lambda s: s + x.sum(), expected)
        check(few, x[:4])
    check(state, expected)
    with pytest.raises(InputError, match="donated"):
        np.asarray(before["w"])


def test_static_arguments_and_pytrees() -> None:
    def scaled(tree: Any, times: int, power: float) -> Any:
        return {k: v**power * times for k, v in tree.items()}

    tree = {"x": np.arange(10, dtype=np.int32), "y": matrix(3, 5)}
    jitted = shardc.jit(
        scaled,
        mesh=LINE,
        in_shardings=({"x": P("d"), "y": P(None, "d")},),
        out_shardings={"x": None, "y": P("d")},
        static_argnums=(1, 2),
    )
    for times, power in ((2, 1), (3, 2), (2, 2)):
        found = jitted(tree, times, power)
        check(found, scaled(tree, times, power))
        assert (found["x"].sharding.num_shards(), found["y"].sharding.num_shards()) == ((8,), (8, 1))


def test_even_calls_of_the_same_function_stay_with_jax() -> None:
    step = shardc.jit(lambda x: x * 2, mesh=LINE, in_shardings=P("d"))
    kinds = [type(step(np.ones(n, np.float32))) is shardc.Array for n in (8, 9, 16, 9, 8, 17)]
    assert kinds == [False, True, False, True, False, True]


def test_unused_arguments_and_constants_do_not_shift_layouts() -> None:
    table = np.arange(5, dtype=np.float32)
    step = shardc.jit(
        lambda unused, x, y: (x + 1, y[:5] * jnp.asarray(table)), mesh=LINE, in_shardings=(P(), P("d"), None)
    )
    args = np.ones(3, np.float32), np.arange(9, dtype=np.float32), np.arange(6, dtype=np.float32)
    found = step(*args)
    check(found, (args[1] + 1, args[2][:5] * table))
    shapes = {a.name: a.local_shape.dims for a in step.compiled(*args).driver.executable.arguments}
    assert shapes == {"x": (2,), "y": (6,)}


def test_random_keys_are_split_whole() -> None:
    keys = jax.random.split(jax.random.key(0), 5)
    draw = jax.vmap(lambda k: jax.random.uniform(k, (3,)))
    found = shardc.jit(draw, mesh=GRID, in_shardings=P("b"), out_shardings=P("b"))(keys)
    check(found, draw(keys))


def test_jax_shardings_bring_their_mesh() -> None:
    over = jax.sharding.AbstractMesh((2, 3), ("a", "b"))
    rows = jax.sharding.NamedSharding(over, jax.sharding.PartitionSpec("b"))
    x = np.arange(7, dtype=np.float32)
    found = shardc.jit(lambda x: x + 1, in_shardings=rows)(x)
    check(found, x + 1)
    assert lengths(found)[:2] == [3, 3]


def test_the_mesh_around_the_caller_counts() -> None:
    over = shardc.jit(jnp.cumsum, in_shardings=P("d"), out_shardings=P("d"))
    x = np.arange(11, dtype=np.int32)
    for size in (8, 4):
        with jax.sharding.use_abstract_mesh(Mesh({"d": size}).to_jax()):
            first = over.compiled(x)
            (found,) = first.run([x])
            check(found, jnp.cumsum(x))
            assert found.sharding.num_shards() == (size,)


def test_stages_of_jax_tell_shapes() -> None:
    step = shardc.jit(lambda x: x[1:], mesh=LINE, in_shardings=P("d"), out_shardings=P("d"))
    x = np.ones(10, np.float32)
    assert step.eval_shape(x).shape == (9,)
    assert "@Sharding" in step.lower(x).as_text() or "sharding_constraint" in step.lower(x).as_text()


def mistakes() -> Sequence[tuple[type[Exception], str, dict[str, Any]]]:
    explicit = jax.sharding.AbstractMesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Explicit,))
    other = jax.sharding.NamedSharding(jax.sharding.AbstractMesh((4,), ("d",)), jax.sharding.PartitionSpec("d"))
    host = jax.sharding.NamedSharding(LINE.to_jax(), jax.sharding.PartitionSpec("d"), memory_kind="pinned_host")
    return [
        (AnnotationError, "axes of type Auto", {"mesh": explicit, "in_shardings": P("d")}),
        (AnnotationError, "2 entries", {"mesh": LINE, "in_shardings": P("d"), "out_shardings": P(None, "d")}),
        (AnnotationError, "another mesh", {"mesh": LINE, "in_shardings": P("d"), "out_shardings": other}),
        (UnsupportedError, "host memory needs equal parts", {"mesh": LINE, "in_shardings": host}),
    ]


@pytest.mark.parametrize(("kind", "text", "options"), mistakes())
def test_uneven_mistakes(kind: type[Exception], text: str, options: dict[str, Any]) -> None:
    with pytest.raises(kind, match=f"(?s){text}"):
        shardc.jit(lambda x: x + 1, **options).partitioned(np.ones(9, np.float32))


@pytest.mark.mpi
@pytest.mark.parametrize(("platform", "compared"), [("cpu", 23), ("shardc", 24)])
def test_ranks(platform: str, compared: int, repository: Path) -> None:
    worker = sys.executable, "-m", "tests.frontends.jax.uneven_worker"
    done = mpiexec(2, *worker, cwd=repository, JAX_PLATFORMS=platform)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"compared {compared}\n"), done.stdout
