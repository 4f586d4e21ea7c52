"""Contractions, reductions, data movement, indexing, windows, linear algebra and control flow against XLA."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from evaluator_truth import agree, jax

lax, jnp = jax.lax, jax.numpy
BF16 = ml_dtypes.bfloat16


def floats(*dims: int, kind: Any = np.float32) -> Any:
    return np.random.default_rng(dims).standard_normal(dims).astype(kind)


def integers(*dims: int, low: int = 0, high: int = 10, kind: Any = np.int32) -> Any:
    return np.random.default_rng(dims).integers(low, high, dims).astype(kind)


def dot(contract: Any, batch: Any = ((), ()), kind: Any = None) -> Callable[[Any, Any], Any]:
    return lambda a, b: lax.dot_general(a, b, (contract, batch), preferred_element_type=kind)


BYTES_A, BYTES_B = integers(4, 6, low=-128, high=127, kind=np.int8), integers(6, 3, low=-128, high=127, kind=np.int8)
DOTS = {
    "plain": (dot(((1,), (0,))), floats(4, 6), floats(6, 3), 1e-6),
    "batched": (dot(((1,), (2,)), ((0, 2), (0, 1))), floats(2, 5, 3, 4), floats(2, 3, 5, 7), 1e-6),
    "outer": (dot(((), ())), floats(4), floats(3), 1e-6),
    "wide integers": (dot(((1,), (0,)), kind=np.int32), BYTES_A, BYTES_B, 0),
    "wrapping": (dot(((1,), (0,))), integers(4, 6, high=2**31 - 1), integers(6, 3, high=2**31 - 1), 0),
    "bf16": (dot(((1,), (0,))), floats(4, 6, kind=BF16), floats(6, 3, kind=BF16), 1e-2),
    "bf16 to f32": (dot(((1,), (0,)), kind=np.float32), floats(4, 6, kind=BF16), floats(6, 3, kind=BF16), 1e-6),
    "complex": (dot(((1,), (0,))), floats(4, 6) + 1j * floats(4, 6), floats(6, 3) * 1j, 1e-6),
    "ragged": (lambda a, b: lax.ragged_dot(a, b, np.array([3, 0, 4], np.int32)), floats(10, 4), floats(3, 4, 5), 1e-6),
}


@pytest.mark.parametrize("name", DOTS)
def test_dots(name: str) -> None:
    function, a, b, tolerance = DOTS[name]
    agree(function, a, b, tolerance=tolerance)


X = floats(4, 6, 5)


@pytest.mark.parametrize("kind", [np.float32, BF16, np.int8])
def test_reductions(kind: Any) -> None:
    x = (X * 20).astype(kind)

    def everything(x: Any) -> Any:
        axes: list[Any] = [0, 1, (0, 2), None]
        results = [f(x, axis=a) for f in (jnp.sum, jnp.max, jnp.min) for a in axes]
        results += [f(x, axis=a) for f in (jnp.argmax, jnp.argmin) for a in (0, 2, None)]
        return [*results, jnp.any(x > 1, axis=1), jnp.all(x > -20, axis=1), jnp.sum(x[:, :0], axis=1)]

    agree(everything, x, tolerance=1e-2 if kind is BF16 else 1e-5)


def test_variadic_reduction() -> None:
    def best(x: Any, numbers: Any) -> Any:
        def pick(p: Any, q: Any) -> Any:
            keep = p[0] >= q[0]
            return lax.select(keep, p[0], q[0]), lax.select(keep, p[1], q[1])

        return lax.reduce((x, numbers), (np.float32(-9), np.int32(-1)), pick, (1,))

    agree(best, floats(4, 9), np.broadcast_to(np.arange(9, dtype=np.int32), (4, 9)))


def test_nan_in_max_and_argmax() -> None:
    agree(lambda x: (jnp.max(x), jnp.argmax(x), jnp.min(x)), np.array([1, np.nan, 3], np.float32))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_sort(axis: int) -> None:
    def everything(x: Any, n: Any) -> Any:
        order = [jnp.argsort(n, axis=axis), jnp.argsort(n, axis=axis, descending=True)]
        return [jnp.sort(x, axis=axis), *order, lax.sort((n % 3, n % 5, n), dimension=axis, num_keys=2)]

    agree(everything, floats(5, 7, 9), integers(5, 7, 9, high=40))


def test_sort_special_values_and_many() -> None:
    values = [3, np.nan, -0.0, 0.0, -np.inf, np.inf, 1, -np.nan]
    agree(lambda x: (jnp.sort(x), jnp.argsort(x)), np.array(values, np.float32))
    agree(jnp.argsort, integers(1000, high=40).astype(BF16))


def test_top_k() -> None:
    agree(lambda x, n: (lax.top_k(x, 3), lax.top_k(n, 7)), floats(4, 9), integers(4, 20, high=5))


def test_cumulative() -> None:
    def everything(x: Any) -> Any:
        return jnp.cumsum(x, axis=1), lax.cumprod(x, axis=1, reverse=True), lax.cummax(x), lax.cumlogsumexp(x)

    agree(everything, X, tolerance=2e-6)


def test_data_movement() -> None:
    def everything(x: Any) -> Any:
        parts = [x.reshape(8, 15), x.transpose(2, 0, 1), x[1:4:2, ::-1, 3:], lax.rev(x, (0, 2))]
        spread = [jnp.broadcast_to(x[:, :1], x.shape), lax.broadcast_in_dim(x, (4, 7, 6, 5), (0, 2, 3))]
        numbers = [lax.broadcasted_iota(np.float32, (3, 4), 1), lax.broadcasted_iota(np.int8, (300,), 0)]
        return [*parts, *spread, *numbers, jnp.concatenate([x, x[:, :2]], 1)]

    agree(everything, X)


@pytest.mark.parametrize("edges", list(product((-20, -2, 0, 3), (-1, 0, 24), (0, 1, 2))))
def test_pad(edges: tuple[int, int, int]) -> None:
    low, high, gap = edges
    if 6 + 5 * gap + low + high < 0:
        pytest.skip("the padded size is negative")
    agree(lambda x: lax.pad(x, np.float32(7), ((low, high, gap), (0, 0, 0))), floats(6, 3))


def test_gather() -> None:
    def everything(x: Any, i: Any, along: Any, rows: Any) -> Any:
        plain = [x[i], x[i[:, None], :, i[:2]], jax.vmap(lambda p, q: p[q])(x, rows)]
        modes = [jnp.take(x, i * 3, axis=1, mode=mode) for mode in ("clip", "fill")]
        return [*plain, *modes, jnp.take_along_axis(x, along, axis=1)]

    agree(everything, X, integers(7, low=-4, high=4), integers(4, 3, 5, high=6), integers(4, 3, high=6))


@pytest.mark.parametrize("kind", [np.float32, np.int32, np.int8])
def test_scatter(kind: Any) -> None:
    x, updates = (floats(6, 5) * 9).astype(kind), (floats(9, 5) * 9).astype(kind)

    def everything(x: Any, i: Any, u: Any) -> Any:
        ways = product(("add", "max", "min", "multiply"), ("drop", "clip"))
        combined = [getattr(x.at[i], name)(u, mode=mode) for name, mode in ways]
        fresh = jnp.array([1, 5, 2])
        return [*combined, x.at[fresh].set(u[:3]), x.at[fresh].apply(lambda v: v * v - v), x.at[i, 1:3].add(u[:, :2])]

    agree(everything, x, integers(9, low=-9, high=9), updates, tolerance=1e-6 if kind is np.float32 else 0)


def test_scatter_drops_windows_that_stick_out() -> None:
    numbers = lax.ScatterDimensionNumbers((1,), (), (0,))
    places = np.array([[0], [8], [-1], [7], [20]], np.int32)
    agree(lambda x, u: lax.scatter_add(x, places, u, numbers), floats(10), floats(5, 3), tolerance=1e-6)


def test_scatter_with_batching_and_repeats() -> None:
    def everything(x: Any, i: Any, u: Any) -> Any:
        return jax.vmap(lambda p, q, v: (p.at[q].add(v), p.at[q].apply(jnp.sin)))(x, i, u)

    agree(everything, X, integers(4, 3, high=6), floats(4, 3, 5), tolerance=1e-6)


def test_dynamic_slices_clamp() -> None:
    def everything(x: Any, u: Any, i: Any) -> Any:
        slices = [lax.dynamic_slice(x, (i, i - 5, i), (2, 6, 2)), lax.dynamic_index_in_dim(x, i.astype(np.uint8), 0)]
        return [*slices, lax.dynamic_update_slice(x, u, (i, -i, i))]

    for start in (-200, 1, 3, 100):
        agree(everything, X, floats(2, 2, 2), np.int32(start))


CONVOLUTIONS = {
    "same": {"padding": "SAME"},
    "strided": {"window_strides": (2, 1), "padding": "VALID"},
    "dilated": {"window_strides": (2, 3), "padding": ((1, 2), (0, 3)), "lhs_dilation": (2, 1), "rhs_dilation": (1, 2)},
    "cropped": {"padding": ((-1, 2), (3, -2)), "lhs_dilation": (2, 3), "rhs_dilation": (2, 2)},
    "grouped": {"padding": "SAME", "feature_group_count": 2},
    "depthwise": {"padding": "SAME", "feature_group_count": 4},
    "batch groups": {"padding": "SAME", "batch_group_count": 2},
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str) -> None:
    options: dict[str, Any] = {"window_strides": (1, 1), **CONVOLUTIONS[name]}
    groups = options.get("feature_group_count", 1)
    labels = ("NHWC", "HWIO", "NHWC")

    def apply(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, dimension_numbers=labels, **options)

    agree(apply, floats(2, 9, 8, 4), floats(3, 2, 4 // groups, 8), tolerance=2e-6)


def test_convolution_layouts_gradients_and_integers() -> None:
    def mixed(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, (1, 2), "SAME", dimension_numbers=("NCHW", "OIHW", "HWNC"))

    agree(mixed, floats(2, 4, 9, 8), floats(6, 4, 3, 2), tolerance=2e-6)
    agree(
        jax.grad(lambda x, w: jnp.sum(jnp.sin(mixed(x, w))), (0, 1)),
        floats(2, 4, 9, 8),
        floats(6, 4, 3, 2),
        tolerance=2e-6,
    )
    agree(lambda x, w: jnp.convolve(x, w, preferred_element_type=np.int32), BYTES_A[0], BYTES_B[:, 0])


def test_reduce_window() -> None:
    def everything(x: Any) -> Any:
        ways = [(lax.add, 0.0), (lax.max, -np.inf), (lax.min, np.inf), (lax.mul, 1.0)]
        shape: Any = ((2, 3, 1), (1, 2, 2), ((0, 1), (2, 1), (0, 0)), (1, 2, 1), (2, 1, 1))
        return [lax.reduce_window(x, np.float32(start), op, *shape) for op, start in ways]

    agree(everything, X, tolerance=1e-6)


@pytest.mark.parametrize("op", ["max", "add"])
def test_pooling_gradients(op: str) -> None:
    start = {"max": -np.inf, "add": 0.0}[op]

    def loss(x: Any) -> Any:
        pooled = lax.reduce_window(x, np.float32(start), getattr(lax, op), (1, 3, 2, 1), (1, 2, 1, 1), "SAME")
        return jnp.sum(jnp.sin(pooled))

    agree(jax.grad(loss), floats(2, 5, 6, 3), tolerance=2e-6)


def test_fft() -> None:
    def everything(x: Any, z: Any) -> Any:
        f = jnp.fft
        return f.fft(z), f.ifft(z), f.fft2(z), f.ifft2(z), f.rfft(x), f.irfft(z, 7), f.rfft2(x), f.irfft2(z)

    agree(
        everything,
        floats(3, 4, 8),
        (floats(3, 4, 8) + 1j * floats(3, 8, 4).reshape(3, 4, 8)).astype(np.complex64),
        tolerance=2e-6,
    )


SQUARE = floats(2, 5, 5)
POSITIVE = SQUARE @ SQUARE.transpose(0, 2, 1) + np.eye(5, dtype=np.float32)


def test_cholesky() -> None:
    agree(lambda a: lax.linalg.cholesky(a, symmetrize_input=False), POSITIVE, tolerance=1e-5, platform="tpu")
    agree(lambda a: lax.linalg.cholesky(a, symmetrize_input=False), -POSITIVE, tolerance=1e-5, platform="tpu")


@pytest.mark.parametrize(("left", "lower", "transpose", "unit"), list(product((False, True), repeat=4)))
def test_triangular_solve(left: bool, lower: bool, transpose: bool, unit: bool) -> None:
    def solve(a: Any, b: Any) -> Any:
        options: dict[str, Any] = {"left_side": left, "lower": lower, "transpose_a": transpose, "unit_diagonal": unit}
        return lax.linalg.triangular_solve(a, b, **options)

    agree(solve, POSITIVE + 3 * np.eye(5, dtype=np.float32), floats(2, 5, 5), tolerance=1e-4, platform="tpu")


def test_control_flow() -> None:
    def everything(x: Any, n: Any) -> Any:
        loop = lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 2.0), (jnp.zeros_like(n), x[0, 0, 0]))
        branches = [lax.switch(k, [jnp.sin, jnp.cos, jnp.tanh], x) for k in (n - 8, n - 7, n - 6, n - 5, n)]
        scanned = lax.scan(lambda c, v: (c + v, c * v), jnp.zeros_like(x[0]), x)
        return [loop, *branches, scanned, lax.cond(n > 3, jnp.sin, jnp.cos, x), lax.map(jnp.sin, x)]

    agree(everything, X, np.int32(7), tolerance=1e-6)


def test_gradients_of_a_block() -> None:
    def loss(w: Any, x: Any) -> Any:
        h = jax.checkpoint(lambda v: jax.nn.gelu(v @ w))(x)
        logits = jax.nn.log_softmax((h - h.mean(-1, keepdims=True)) / jnp.sqrt(h.var(-1, keepdims=True) + 1e-5))
        return -logits[:, 0].mean()

    agree(jax.value_and_grad(loss), floats(6, 7), floats(5, 6), tolerance=2e-6)
