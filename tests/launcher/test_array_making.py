"""Arrays made of values, callbacks, shards and local data: every device holds its part, copied only if need be."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import shardc
from shardc import Mesh, P
from shardc.hlo.errors import AnnotationError, InputError

MESH = Mesh({"x": 2, "y": 2})
X = np.arange(35, dtype=np.float32).reshape(7, 5)
SPECS = (P(), P("x"), P(None, "y"), P("y", "x"), P(("x", "y")), P(None, ("y", "x")))


def check(a: shardc.Array, value: np.ndarray) -> None:
    """Each shard is its part, and NumPy sees the whole."""
    np.testing.assert_array_equal(np.asarray(a), value)
    assert [s.device for s in a.addressable_shards] == list(range(4))
    for shard in a.addressable_shards:
        np.testing.assert_array_equal(shard.data, value[shard.index])


@pytest.mark.parametrize("spec", SPECS)
def test_of_numpy(spec: P) -> None:
    check(shardc.array(X, (MESH, spec)), X)
    check(shardc.array(X, spec, mesh=MESH, copy=True), X)


@pytest.mark.parametrize("dtype", ["bool", "int4", "uint2", "bfloat16", "float8_e4m3fn", "float16", "complex128"])
def test_element_types(dtype: str) -> None:
    value = (np.arange(12).reshape(3, 4) % 2).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    a = shardc.array(value, (MESH, P("y", "x")))
    assert a.dtype == value.dtype
    check(a, value)


def test_scalars_lists_and_one_device() -> None:
    assert (shardc.array(3).dtype, shardc.array(3).sharding) == (np.int64, None)
    a = shardc.array([[1.5, 2], [3, 4]], P("x"), mesh=MESH, dtype="bfloat16")
    check(a, np.array([[1.5, 2], [3, 4]], ml_dtypes.bfloat16))
    check(shardc.array(np.float32(2), mesh=MESH), np.float32(2).reshape(()))
    check(shardc.array(np.zeros((0, 3)), (MESH, P("x", "y"))), np.zeros((0, 3)))


def test_forms_of_shardings_mean_the_same() -> None:
    over_jax = jax.sharding.AbstractMesh((2, 2), ("x", "y"))
    named = jax.sharding.NamedSharding(over_jax, jax.sharding.PartitionSpec("y"))
    first = shardc.array(X, (MESH, P("y")))
    forms: list[Any] = [named, first.sharding, (over_jax, P("y")), (MESH, jax.sharding.PartitionSpec("y"))]
    for form in forms:
        assert shardc.array(X, form).sharding == first.sharding


def test_memory_is_shared_where_shards_lie_in_one_piece() -> None:
    value = np.arange(64, dtype=np.float32).reshape(8, 8)
    rows = shardc.array(value, (MESH, P("x")))
    assert all(np.shares_memory(s.data, value) for s in rows.addressable_shards)
    assert not any(
        np.shares_memory(s.data, value) for s in shardc.array(value, rows.sharding, copy=True).addressable_shards
    )
    with pytest.raises(InputError, match="is not one aligned block"):
        shardc.array(value, (MESH, P(None, "x")), copy=False)


def test_donation_leaves_the_memory_of_others_alone() -> None:
    value = np.ones((8, 8), np.float32)
    step = shardc.jit(lambda a: a + 1, mesh=MESH, in_shardings=P("x"), out_shardings=P("x"), donate_argnums=0)
    np.testing.assert_array_equal(step(shardc.array(value, (MESH, P("x")))), value + 1)
    np.testing.assert_array_equal(value, np.ones((8, 8)))


def test_of_a_jax_array_shard_by_shard() -> None:
    if jax.device_count() < 2:
        one = jnp.arange(35.0).reshape(7, 5)
        check(shardc.array(one, (MESH, P("y", "x"))), np.asarray(one))
        return
    raise AssertionError("the suite runs with one device of JAX's")


def test_pieces_of_a_sharded_jax_array_are_put_together() -> None:
    """Stands for arrays over several of JAX's devices, of which this process sees the parts."""

    class Part:
        def __init__(self, index: tuple[slice, ...]) -> None:
            self.index, self.data = index, jnp.asarray(X[index])

    class Sharded:
        shape, dtype, is_fully_addressable = X.shape, X.dtype, True
        addressable_shards = [  # noqa: RUF012
            Part((slice(None), slice(0, 2))),
            Part((slice(None), slice(2, 5))),
            Part((slice(None), slice(2, 5))),
        ]

        def __array__(self, *_: object, **__: object) -> np.ndarray:
            raise AssertionError("gathered")

    check(shardc.array(Sharded(), (MESH, P("y", "x"))), X)
    Sharded.addressable_shards = Sharded.addressable_shards[1:]
    with pytest.raises(InputError, match=r"elements of the shard .* are missing"):
        shardc.array(Sharded(), (MESH, P("y", "x")))


def test_a_callback_is_asked_once_per_distinct_shard() -> None:
    asked = []

    def callback(index: tuple[slice, ...]) -> np.ndarray:
        asked.append(index)
        return X[index]

    check(shardc.array_from_callback(X.shape, "float32", (MESH, P("y")), callback), X)
    assert asked == [(slice(0, 4), slice(0, 5)), (slice(4, 7), slice(0, 5))]


def test_a_callback_is_not_asked_for_nothing() -> None:
    asked = []
    a = shardc.array_from_callback(
        (3,), "int32", (MESH, P(("x", "y"))), lambda i: asked.append(i) or np.arange(3, dtype="i4")[i]
    )
    check(a, np.arange(3, dtype=np.int32))
    assert len(asked) == 3


def test_of_shards() -> None:
    shards = shardc.array(X, (MESH, P("y", "x"))).addressable_shards
    check(shardc.array_from_shards(X.shape, (MESH, P("y", "x")), {s.device: s.data for s in shards}), X)
    with pytest.raises(InputError, match=r"the shard \[4:7, 0:3\] was given as"):
        shardc.array_from_shards(X.shape, (MESH, P("y", "x")), {s.device: X[:4, :3] for s in shards})
    with pytest.raises(InputError, match=r"elements of the shard .* are missing"):
        shardc.array_from_shards(X.shape, (MESH, P("y", "x")), {s.device: s.data for s in shards[1:]})
    with pytest.raises(InputError, match="no such device"):
        shardc.array_from_shards(X.shape, (MESH, P()), {4: X})
    same = {0: X, 3: X.copy()}
    check(shardc.array_from_shards(X.shape, (MESH, P()), same), X)
    with pytest.raises(InputError, match="devices 0 and 3 hold the same shard"):
        shardc.array_from_shards(X.shape, (MESH, P()), {**same, 3: X + 1})


def test_local_data_of_one_process_is_the_value() -> None:
    check(shardc.array_from_process_local_data((MESH, P("y", "x")), X), X)
    check(shardc.array_from_process_local_data((MESH, P("y", "x")), X, X.shape), X)
    with pytest.raises(InputError, match="the local data have shape"):
        shardc.array_from_process_local_data((MESH, P("y")), X, (9, 5))


def test_programs_take_it_without_a_copy() -> None:
    value = np.arange(64, dtype=np.float32).reshape(8, 8)
    a = shardc.array(value, (MESH, P("x")))
    step = shardc.jit(lambda a: a * 2, mesh=MESH, in_shardings=P("x"))
    compiled = step.compiled(a)
    np.testing.assert_array_equal(step(a), value * 2)
    spec = compiled.executable.arguments[0]
    assert a._layout.same_data(type(a._layout).of(spec, 4))


def test_other_element_types() -> None:
    a = shardc.array(X, (MESH, P("y", "x"))).astype("bfloat16")
    assert a.sharding == shardc.array(X, (MESH, P("y", "x"))).sharding
    check(a, X.astype(ml_dtypes.bfloat16))
    check(shardc.array(a, (MESH, P("x")), dtype=np.int64), X.astype(np.int64))


def test_jit_takes_64_bits_as_32() -> None:
    a = shardc.array(np.arange(8), (MESH, P("x")))
    assert a.dtype == np.int64
    out = shardc.jit(lambda v: v + 1, mesh=MESH)(a)
    assert out.dtype == np.int32
    np.testing.assert_array_equal(out, np.arange(1, 9))


def test_trees_are_put() -> None:
    key = jax.random.key(1)
    tree = {"w": X, "rest": [shardc.array(X, (MESH, P("x"))), 2.5, None, key]}
    out = shardc.device_put(tree, {"w": P("y"), "rest": P()}, mesh=MESH)
    check(out["w"], X)
    assert out["w"].sharding.num_shards() == (2, 1)
    check(out["rest"][0], X)
    check(out["rest"][1], np.asarray(2.5))
    assert out["rest"][2] is None
    assert out["rest"][3] is key
    with pytest.raises(AnnotationError, match="PRNG keys cannot be sharded"):
        shardc.device_put(jax.random.split(key, 4), (MESH, P("x")))


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: shardc.array(X, P("x")), AnnotationError, "has no mesh"),
        (lambda: shardc.array(X, "x"), AnnotationError, "is not a sharding"),
        (lambda: shardc.array(X, ({"x": 4}, P("x"))), AnnotationError, r"give the pair a Mesh: \(Mesh\({'x': 4}\)"),
        (lambda: shardc.array(X, (MESH, P("z"))), AnnotationError, "no axis 'z'"),
        (lambda: shardc.array(X, (MESH, P(None, None, "x"))), AnnotationError, "has 3 entries"),
        (lambda: shardc.array(X, (MESH, P(unreduced=["x"]))), AnnotationError, "partial values"),
        (lambda: shardc.array("abc", (MESH, P())), InputError, "is not an element type"),
        (lambda: shardc.array(jax.random.key(0), (MESH, P())), InputError, "typed PRNG keys"),
        (lambda: shardc.array([[1], [2, 3]], (MESH, P())), InputError, "is not an array"),
        (
            lambda: shardc.array_from_callback((4,), "i4", (MESH, P("x")), lambda i: np.zeros(2)),
            InputError,
            "an array of float64",
        ),
        (
            lambda: shardc.array_from_callback((4,), "i4", (MESH, P("x")), lambda i: np.zeros(3, "i4")),
            InputError,
            "shape",
        ),
        (lambda: shardc.array_from_shards((4,), (MESH, P("x")), {}), InputError, "no shards"),
        (lambda: shardc.array_from_shards(4, (MESH, P("x")), [X]), InputError, r"a list, not a dict\n.*enumerate"),
        (lambda: shardc.array_from_process_local_data(X, (MESH, P("x"))), InputError, "the first argument"),
    ],
)
def test_errors_say_what_to_do(make: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        make()
