"""Convolutions and pooling with their gradients, as JAX writes them, beside XLA; equal bits on any threads."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardc
from shardc.compiler.emit.native_kernel import emit_kernel
from shardc.hlo.ir.ir import Instruction
from shardc.native.llvm import jit
from shardc.native.threads.pool import PARALLEL, pool, pool_object
from tests.compiler.test_convolutions import BY_TILES, by_tiles, depthwise

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")

Array = Any
LAST, FIRST = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")


def convolution(order: tuple[str, str, str], **options: Any) -> Callable[[Array, Array], Array]:
    def run(x: Array, k: Array) -> Array:
        y = jax.lax.conv_general_dilated(x, k, dimension_numbers=order, **options)
        return (y * jnp.cos(jnp.arange(y.size, dtype=y.dtype).reshape(y.shape))).sum()

    return run


CASES: dict[str, tuple[Callable[[Array, Array], Array], tuple[int, ...], tuple[int, ...]]] = {
    "stride 2": (convolution(LAST, window_strides=(2, 2), padding="SAME"), (3, 17, 15, 16), (3, 3, 16, 20)),
    "7x7, stride 3": (convolution(LAST, window_strides=(3, 2), padding="SAME"), (2, 23, 19, 3), (7, 7, 3, 24)),
    "channels first": (convolution(FIRST, window_strides=(1, 2), padding="VALID"), (2, 5, 14, 13), (9, 5, 3, 4)),
    "dilated kernel": (
        convolution(LAST, window_strides=(1, 1), padding=((2, 1), (0, 3)), rhs_dilation=(2, 3)),
        (2, 13, 12, 10), (3, 2, 10, 12),
    ),
    "dilated input": (
        convolution(LAST, window_strides=(1, 1), padding=((1, 2), (2, 2)), lhs_dilation=(2, 3)),
        (2, 7, 6, 10), (3, 4, 10, 12),
    ),
    "1x1, stride 2": (convolution(LAST, window_strides=(2, 2), padding="VALID"), (2, 13, 12, 24), (1, 1, 24, 17)),
    "groups": (
        convolution(LAST, window_strides=(1, 1), padding="SAME", feature_group_count=4), (2, 9, 10, 24), (3, 3, 6, 32)
    ),
    "depthwise, stride 2": (
        convolution(LAST, window_strides=(2, 2), padding="SAME", feature_group_count=24), (3, 11, 12, 24), (3, 3, 1, 24)
    ),
    "depthwise, several features": (
        convolution(LAST, window_strides=(1, 1), padding="SAME", feature_group_count=8), (2, 9, 10, 8), (3, 3, 1, 24)
    ),
    "1 dimension": (
        convolution(("NWC", "WIO", "NWC"), window_strides=(2,), padding="SAME"), (3, 50, 12), (5, 12, 14)
    ),
    "3 dimensions": (
        convolution(("NDHWC", "DHWIO", "NDHWC"), window_strides=(1, 2, 1), padding="SAME"),
        (2, 5, 6, 7, 8), (3, 3, 3, 8, 10),
    ),
}  # fmt: skip


def beside_xla(f: Callable[..., Any], *arguments: Any) -> None:
    wanted = jax.jit(f)(*arguments)
    got = shardc.jit(f)(*arguments)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        w = np.asarray(w)
        np.testing.assert_allclose(np.asarray(g), w, rtol=0, atol=2e-5 * max(1.0, float(np.abs(w).max())))


#: In every run; the others with ``--run-full``.
ALWAYS = frozenset({"stride 2", "7x7, stride 3", "dilated kernel", "groups", "depthwise, stride 2", "3 dimensions"})


@pytest.mark.parametrize("name", [n if n in ALWAYS else pytest.param(n, marks=pytest.mark.full) for n in CASES])
def test_gradients(name: str) -> None:
    loss, image, kernel = CASES[name]
    draw = np.random.default_rng(3)
    x, k = (draw.standard_normal(s).astype(np.float32) for s in (image, kernel))
    beside_xla(jax.value_and_grad(loss, (0, 1)), x, k)


@pytest.mark.parametrize("reducer", ["max", "add"])
@pytest.mark.parametrize("padding", ["SAME", pytest.param("VALID", marks=pytest.mark.full)])
def test_pooling_gradients(reducer: str, padding: str) -> None:
    start, combine = (-jnp.inf, jax.lax.max) if reducer == "max" else (0.0, jax.lax.add)

    def loss(x: Array) -> Array:
        first = jax.lax.reduce_window(x, start, combine, (1, 3, 3, 1), (1, 2, 2, 1), padding)
        second = jax.lax.reduce_window(x, start, combine, (1, 2, 3, 1), (1, 1, 1, 1), padding)
        return (first**2).sum() + (second**3).sum()

    beside_xla(jax.value_and_grad(loss), np.random.default_rng(4).standard_normal((2, 13, 12, 19)).astype(np.float32))


THREADS: dict[str, Instruction] = {
    **{name: by_tiles(name, "f32") for name in BY_TILES},
    "depthwise": depthwise("f32", 96, 1, first=False, gradient=False),
    "depthwise gradient": depthwise("f32", 96, 1, first=False, gradient=True),
}


@pytest.mark.parametrize("name", THREADS)
def test_equal_bits_on_any_number_of_threads(name: str) -> None:
    i = THREADS[name]
    module = jit.new_module("test")
    emit_kernel(module, i, "k")
    loaded = jit.load_object(jit.compile_ir(module), ["k"], {PARALLEL: pool(pool_object()).address()})
    draw = np.random.default_rng(5)
    operands = [draw.standard_normal(o.shape.dims).astype(np.float32) for o in i.operands]
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int32)(loaded.address("k"))
    threads = pool(pool_object())
    found = []
    try:
        for workers in (0, 1, 3):
            threads.configure(workers)
            out = np.empty(i.shape.dims, np.float32)
            function(*(a.ctypes.data for a in (*operands, out)), 0)
            found.append(out.tobytes())
    finally:
        threads.configure(0)
    assert found[0] == found[1] == found[2]
