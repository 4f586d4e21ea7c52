"""When `shardc.jit` traces again: whenever `jax.jit` does, and for static values that JAX takes for equal."""

from __future__ import annotations

import enum
import random
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import numpy as np
import pytest

import shardc
from shardc.frontends.jax import context
from shardc.hlo.errors import InputError, UnsupportedError

jax = pytest.importorskip("jax")
jnp = jax.numpy

X = np.array([1.5, 2.5, -3.0, 4.0], np.float32)
COUNTS = np.arange(4, dtype=np.int32)
OWN = jax.make_user_context(0)
Context = Callable[[], AbstractContextManager[Any]]
AUTO = (jax.sharding.AxisType.Auto,)

CONTEXTS: dict[str, Context] = {
    "x64": lambda: jax.enable_x64(True),
    "32 bits": lambda: jax.enable_x64(False),
    "old random bits": lambda: jax.threefry_partitionable(False),
    "strict promotion": lambda: jax.numpy_dtype_promotion("strict"),
    "ranks": lambda: jax.numpy_rank_promotion("raise"),
    "precision": lambda: jax.default_matmul_precision("highest"),
    "softmax": lambda: jax.softmax_custom_jvp(False),
    "no jit": jax.disable_jit,
    "no NaN": lambda: jax.debug_nans(True),
    "no infinity": lambda: jax.debug_infs(True),
    "own 1": lambda: OWN(1),
    "own 2": lambda: OWN(2),
    "mesh": lambda: jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((2,), ("a",), axis_types=AUTO)),
}


def outcome(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Types and values of the results, or which error it was."""
    try:
        leaves = jax.tree.leaves(function(*args, **kwargs))
    except (TypeError, ValueError, FloatingPointError) as e:
        return next(c.__name__ for c in (FloatingPointError, TypeError, ValueError) if isinstance(e, c))
    return [(str(x.dtype), x.shape, repr(np.round(np.asarray(x).astype(np.complex128), 5))) for x in leaves]


class Traced:
    """A function whose result shows what it was traced under; counts how often that was."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, x: Any) -> Any:
        self.times += 1
        inner = jax.jit(lambda v: v + OWN.value)
        return {
            "random": jnp.full(1, jax.config.jax_threefry_partitionable),
            "wide": x.astype(float),
            "own": inner(x),
            "promoted": x * COUNTS[:1] if OWN.value == 1 else x,
            "mesh": jnp.full(2, len(jax.sharding.get_abstract_mesh().axis_names)),
            "infinite": jnp.where(x > 2, 1 / (x - 2.5), 0) if OWN.value == 2 else x,
            "product": jnp.log(-x) if jax.config.jax_default_matmul_precision else x @ x,
        }


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.full) for n in range(1, 6))])
def test_settings_and_contexts_count_as_for_jax(seed: int) -> None:
    print("seed", seed)
    draw = random.Random(seed)
    ours, theirs = Traced(), Traced()
    jitted, reference = shardc.jit(ours), jax.jit(theirs)
    states = [[], *([n] for n in CONTEXTS), *(draw.sample(list(CONTEXTS), 2) for _ in range(3 + seed))]
    for chosen in draw.sample(states * 2, 2 * len(states)):
        with ExitStack() as stack:
            for name in chosen:
                stack.enter_context(CONTEXTS[name]())
            before = ours.times, theirs.times
            want, got = outcome(reference, jnp.asarray(X)), outcome(jitted, jnp.asarray(X))
            assert got == want, chosen
            if want != "FloatingPointError" and "no jit" not in chosen:
                # There JAX calls the function once more for its message, or at every call.
                assert ours.times - before[0] == theirs.times - before[1], chosen


class Colour(enum.IntEnum):
    RED = 1


STATIC = [
    1, 1.0, True, 1 + 0j, Colour.RED, np.int32(1), np.float32(1), np.float64(1), 0, 0.0, -0.0, False, np.float32(-0.0),
    "1", None, float("nan"), (1,), (1.0,), (True, (1.0, "1")), (True, (1, "1")), (0.0,), (-0.0,), (),
]  # fmt: skip


def spelt(x: Any, value: Any, *, named: Any = 0) -> Any:
    """A result that tells static values apart."""
    return x * 0 + sum(i * ord(c) for i, c in enumerate(f"{value!r}{type(value)}{named!r}{type(named)}", 1))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.full)])
def test_static_values_are_told_apart_by_type_and_sign(seed: int) -> None:
    print("seed", seed)
    draw = random.Random(seed)
    times: list[Any] = []

    def function(x: Any, value: Any, *, named: Any = 0) -> Any:
        times.append(value)
        return spelt(x, value, named=named)

    jitted = shardc.jit(function, static_argnums=1, static_argnames="named")
    seen = set()
    for _ in range(30):
        value, named = draw.choice(STATIC), draw.choice(STATIC[:12])
        np.testing.assert_array_equal(np.asarray(jitted(X, value, named=named)), spelt(X, value, named=named))
        seen.add(f"{value!r}{type(value)} {named!r}{type(named)}")
    assert len(times) == len(seen)


@pytest.mark.parametrize("value", [[1], np.ones(2), {}, ([],)])
def test_static_values_without_a_hash_are_named(value: Any) -> None:
    with pytest.raises(InputError, match="must be hashable"):
        shardc.jit(spelt, static_argnums=1)(X, value)
    with pytest.raises(InputError, match=r"(?s)must be hashable.*argument named"):
        shardc.jit(spelt, static_argnames="named")(X, 1, named=value)


def test_kinds_of_arguments_count_as_for_jax() -> None:
    """Weak types, scalars and arrays of one shape."""

    def promoted(x: Any) -> Any:
        return x + jnp.ones((), jnp.float16), x + jnp.ones((), jnp.int8)

    weak = jax.jit(lambda: 1.5)()
    kinds = [
        weak, jnp.float32(1.5), 1.5, np.float32(1.5), np.float64(1.5), np.asarray(1.5), np.asarray(1.5, np.float32), 1,
        True, jnp.int32(1), np.int8(1), np.asarray(1), jax.jit(lambda: 1)(), shardc.jit(lambda: jnp.float32(1.5))(),
        np.ma.masked_array(1.5),
    ]  # fmt: skip
    assert weak.weak_type
    jitted, reference = shardc.jit(promoted), jax.jit(promoted)
    for x in random.Random(0).choices(kinds, k=60):
        plain = np.asarray(x) if isinstance(x, shardc.Array) else x
        assert outcome(jitted, x) == outcome(reference, plain), repr(x)


def test_another_device_by_default_is_no_other_program() -> None:
    """Where `shardc.jit` runs is no matter of JAX's default device."""
    ours = Traced()
    jitted = shardc.jit(ours)
    with jax.default_device(jax.devices("cpu")[0]):
        want = jitted(X)
    assert outcome(jitted, X) == outcome(lambda: want)
    assert ours.times == 1


def test_jax_that_does_not_tell_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    import jax.extend.core  # noqa: F401 - parts of JAX that are imported at the first call read the settings, too
    from jax._src import config

    monkeypatch.delattr(config, "trace_context")
    context._reader.cache_clear()
    with pytest.raises(UnsupportedError, match="does not expose its tracing settings"):
        shardc.jit(lambda x: x)(shardc.array(X))
    context._reader.cache_clear()


@pytest.mark.parametrize("kind", [None, "cpu"])
@pytest.mark.parametrize("ours", [False, True])
def test_a_mesh_of_jax_is_the_one_around_the_function(kind: str | None, ours: bool) -> None:
    """Its types of axes count, and without devices its kind of them; so they do for our arrays' layouts."""
    device = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",)).abstract_mesh.abstract_device if kind else None
    explicit = (jax.sharding.AxisType.Explicit,)
    mesh = jax.sharding.AbstractMesh((2,), ("a",), axis_types=explicit, abstract_device=device)
    spec = jax.sharding.PartitionSpec("a")

    def fn(x: Any) -> Any:
        around = jax.sharding.get_abstract_mesh()
        assert around == mesh if ours else (around.shape, around.axis_types) == (mesh.shape, mesh.axis_types)
        return jax.sharding.reshard(x, spec) * 2, jax.typeof(x).sharding.spec == spec

    jitted = shardc.jit(fn, mesh=mesh)
    first, split = jitted(shardc.array(X) if ours else X)
    again, split_again = jitted(first)
    np.testing.assert_array_equal(np.asarray(again), X * 4)
    assert str(first.sharding) == "[{a}]" if ours else first.sharding.spec == spec
    assert not split and split_again
