"""Updates in place whose new elements are computed by the same kernel: stacking in loops, caches, scattered sums."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import shardc
from shardc.compiler.lower.lowered import BufferCopy, KernelStep, leaf_steps
from shardc.compiler.lower.pipeline import lower
from shardc.hlo.ir.ir import Module
from tests.compiler.checking import check


def from_jax(f: object, *shapes: jax.ShapeDtypeStruct) -> Module:
    return shardc.from_jax(jax.jit(f, keep_unused=True), *shapes).module


def floats(*dims: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, np.float32)


INDEX = jax.ShapeDtypeStruct((), np.int32)


def kernels(module: Module) -> list[str]:
    """Opcodes of the kernels; of fusions, of their roots."""
    steps = [s.instruction for s in leaf_steps(lower(module).steps) if isinstance(s, KernelStep)]
    return [i.attrs["calls"].root.opcode if i.opcode == "fusion" else i.opcode for i in steps]


@pytest.mark.parametrize("at", [0, 5, -3, 100])
def test_an_entry_of_a_cache_is_computed_where_it_is_stored(at: int) -> None:
    def f(cache: jax.Array, x: jax.Array, i: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice(cache, jnp.tanh(x)[None] * 2, (i, 0))

    module = from_jax(f, floats(16, 33), floats(33), INDEX).with_(donors=(0,))
    assert kernels(module) == ["select", "dynamic-update-slice"]  # the first counts negative indices from the end
    rng = np.random.default_rng(0)
    check(module, [rng.standard_normal((16, 33)).astype("f"), rng.standard_normal(33).astype("f"), np.int32(at)])


def test_a_loop_stacks_its_results_without_copies() -> None:
    def f(h: jax.Array, xs: jax.Array) -> object:
        def step(h: jax.Array, x: jax.Array) -> object:
            h = jnp.sort(h) * 0.5 + x
            return h, jnp.tanh(h) * 3

        return jax.lax.scan(step, h, xs)

    module = from_jax(f, floats(40), floats(30, 40))
    assert "dynamic-update-slice" in kernels(module)
    plan = lower(module).plan
    moved = [s for s in leaf_steps(lower(module).steps) if isinstance(s, BufferCopy) and s.source.nbytes > 30 * 40]
    assert all(plan is not None and s.source.shape == s.target.shape for s in moved)
    check(module)


def test_what_is_overwritten_is_not_read_by_the_same_kernel() -> None:
    """The new elements come from others of the same array."""

    def f(x: jax.Array, i: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice(x, x[::-1][:9] * 2, (i,))

    module = from_jax(f, floats(20), INDEX).with_(donors=(0,))
    check(module, [np.arange(20, dtype=np.float32), np.int32(4)])


def test_scattered_updates_are_computed_where_they_are_added() -> None:
    def f(x: jax.Array, k: jax.Array, u: jax.Array) -> jax.Array:
        return x.at[k].add(jnp.tanh(u) * 0.5)

    module = from_jax(f, floats(50, 17), jax.ShapeDtypeStruct((9,), np.int32), floats(9, 17)).with_(donors=(0,))
    assert kernels(module)[-1] == "scatter"
    assert "tanh" not in kernels(module)
    rng = np.random.default_rng(0)
    keys = np.array([3, 3, -1, 49, 50, 0, 7, 3, -51], np.int32)  # twice, at the ends, outside
    check(module, [rng.standard_normal((50, 17)).astype("f"), keys, rng.standard_normal((9, 17)).astype("f")])


@settings(max_examples=15, deadline=None, derandomize=True, phases=(Phase.generate,), print_blob=False)
@given(st.data())
def test_random_updates(data: st.DataObject) -> None:
    """A few updates in a row, each of elements that are computed from arrays and earlier results."""
    n, m = data.draw(st.sampled_from(((1, 1), (3, 7), (9, 33), (4, 128)))), data.draw(st.integers(1, 4))
    kinds = data.draw(st.lists(st.sampled_from(("slice", "self", "add", "set", "row")), min_size=1, max_size=3))
    kept = data.draw(st.booleans())

    def f(x: jax.Array, y: jax.Array, i: jax.Array, k: jax.Array) -> object:
        seen = []
        for kind in kinds:
            part = jnp.tanh(y[:1, : n[1] - 1] if n[1] > 1 else y[:1]) + 1
            if kind == "slice":
                x = jax.lax.dynamic_update_slice(x, part, (i, i - 1))
            elif kind == "self":
                x = jax.lax.dynamic_update_slice(x, jax.lax.dynamic_slice(x, (i, 0), part.shape) + part, (i, 0))
            elif kind == "row":
                x = jax.lax.dynamic_update_slice(x, y.sum(0, keepdims=True), (i, 0))
            else:
                rows = jnp.broadcast_to(jnp.exp(-y[:1] * y[:1]), (m, n[1]))
                x = x.at[k].add(rows) if kind == "add" else x.at[k[:1]].set(rows[:1])
            seen.append(x.sum() if kept else y)
        return x, seen

    module = from_jax(f, floats(*n), floats(*n), INDEX, jax.ShapeDtypeStruct((m,), np.int32))
    if data.draw(st.booleans()):
        module = module.with_(donors=(0,))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x, y = (rng.standard_normal(n).astype(np.float32) for _ in range(2))
    if data.draw(st.booleans()):
        y.reshape(-1)[0] = data.draw(st.sampled_from((np.nan, np.inf, 1e-39)))
    check(module, [x, y, np.int32(data.draw(st.integers(-2, 12))), rng.integers(-12, 12, m).astype(np.int32)], 1e-4)
