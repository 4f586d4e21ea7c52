# ruff: noqa: E501, PLW0108, PLC3002
"""A wide table of small JAX functions, one per thing that scripts call: name -> (function, arguments)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.scipy import signal, special, stats

Case = tuple[Callable[..., Any], Sequence[Any]]

R = np.random.RandomState(7)
V = R.standard_normal(7).astype(np.float32)
M = R.standard_normal((4, 6)).astype(np.float32)
N = R.standard_normal((6, 5)).astype(np.float32)
Q = R.standard_normal((5, 5)).astype(np.float32)
SPD = (Q @ Q.T + 5 * np.eye(5)).astype(np.float32)
T = R.standard_normal((2, 3, 4)).astype(np.float32)
POS = (R.random_sample((3, 5)) * 4 + 0.1).astype(np.float32)
UNIT = (R.random_sample((3, 5)) * 1.8 - 0.9).astype(np.float32)
I = R.randint(-9, 9, (4, 6)).astype(np.int32)
J = R.randint(1, 7, (4, 6)).astype(np.int32)
U = R.randint(0, 200, (4, 6)).astype(np.uint8)
B = R.randint(0, 2, (4, 6)).astype(bool)
C = (M + 1j * R.standard_normal((4, 6))).astype(np.complex64)
H = M.astype(jnp.bfloat16)
F16 = M.astype(np.float16)
IMAGE = R.standard_normal((2, 3, 8, 9)).astype(np.float32)
KERNEL = R.standard_normal((4, 3, 3, 2)).astype(np.float32)
INDEX = np.array([3, 0, 2, 2], np.int32)
KEY = np.array([0, 42], np.uint32)


def key() -> Any:
    return random.key(3)


def _rows(module: Any, names: str, *args: Any, prefix: str) -> dict[str, Case]:
    return {f"{prefix}.{n}": (getattr(module, n), args) for n in names.split() if hasattr(module, n)}


UNARY = (
    "abs ceil floor rint trunc sign square sqrt cbrt exp exp2 expm1 log1p sin cos tan sinh cosh tanh arcsinh arctan "
    "reciprocal negative positive isfinite isnan isinf signbit deg2rad rad2deg sinc i0 fabs fix nan_to_num real imag conj angle"
)
REDUCE = "sum prod max min mean std var any all argmax argmin ptp median nansum nanmax nanmin nanmean nanstd nanprod nanargmax count_nonzero cumsum cumprod cumulative_sum"
BINARY = (
    "add subtract multiply divide maximum minimum fmax fmin arctan2 hypot logaddexp logaddexp2 copysign nextafter "
    "float_power heaviside mod fmod remainder floor_divide greater less_equal equal not_equal logical_and logical_xor"
)
INTEGER = "add subtract multiply maximum floor_divide remainder mod bitwise_and bitwise_or bitwise_xor left_shift right_shift gcd lcm power divide"
SPECIAL = "erf erfc erf_inv expit log_ndtr ndtr ndtri gammaln digamma entr exp1 expi i0e i1 i1e logit gamma factorial spence sici"
NN = (
    "relu relu6 sigmoid softplus soft_sign silu swish log_sigmoid leaky_relu hard_sigmoid hard_silu hard_tanh elu celu selu gelu "
    "squareplus mish softmax log_softmax logsumexp standardize glu sparse_plus sparse_sigmoid"
)


def elementwise() -> dict[str, Case]:
    return {
        **_rows(jnp, UNARY, M, prefix="jnp"),
        **_rows(jnp, "log log2 log10 arcsin arccos arctanh", UNIT * 0.5 + 0.5, prefix="jnp"),
        **_rows(jnp, "arccosh", POS + 1, prefix="jnp"),
        **_rows(jnp, BINARY, M, M[::-1].copy(), prefix="jnp"),
        **_rows(jnp, INTEGER, np.abs(I), J, prefix="jnp.int"),
        **_rows(jnp, "invert abs sign bitwise_count", I, prefix="jnp.int"),
        **_rows(special, SPECIAL, UNIT * 0.5 + 0.5, prefix="special"),
        **_rows(special, "betainc", POS, POS + 1, UNIT * 0.5 + 0.5, prefix="special"),
        **_rows(
            special,
            "gammainc gammaincc betaln xlogy xlog1py kl_div rel_entr zeta",
            POS + 1,
            POS + 0.5,
            prefix="special",
        ),
        **_rows(jax.nn, NN, M, prefix="nn"),
        "lax.erf_inv": (lax.erf_inv, (UNIT,)),
        "lax.population_count": (lax.population_count, (I,)),
        "lax.clz": (lax.clz, (U,)),
        "lax.bitcast": (lambda x: lax.bitcast_convert_type(x, np.int16), (M,)),
        "lax.bitcast_up": (lambda x: lax.bitcast_convert_type(x.reshape(4, 3, 2), np.float32), (F16,)),
        "lax.reduce_precision": (lambda x: lax.reduce_precision(x, 5, 4), (M,)),
        "lax.round_even": (lambda x: lax.round(x * 2, lax.RoundingMethod.TO_NEAREST_EVEN), (M,)),
        "lax.round_away": (lambda x: lax.round(x * 2, lax.RoundingMethod.AWAY_FROM_ZERO), (M,)),
        "lax.integer_pow": (lambda x: x**5 + x**-2, (M,)),
        "lax.clamp": (lambda x: lax.clamp(-0.5, x, 0.5), (M,)),
        "lax.complex": (lambda x, y: lax.complex(x, y), (M, M + 1)),
        "lax.igamma_grad": (lax.igamma_grad_a, (POS, POS)),
        "lax.polygamma": (lambda x: special.polygamma(2, x), (POS,)),
        "lax.random_gamma_grad": (lax.random_gamma_grad, (POS, POS)),
        "lax.regularized_beta": (lax.betainc, (POS, POS + 1, UNIT * 0.5 + 0.5)),
        "complex.exp": (jnp.exp, (C,)),
        "complex.log": (jnp.log, (C,)),
        "complex.sqrt": (jnp.sqrt, (C,)),
        "complex.tanh": (jnp.tanh, (C,)),
        "complex.sin": (jnp.sin, (C,)),
        "complex.pow": (lambda x: x ** (0.5 + 1j), (C,)),
        "complex.abs": (jnp.abs, (C,)),
        "complex.divide": (lambda x: x / (x + 1), (C,)),
        "complex.matmul": (lambda x: x @ x.conj().T, (C,)),
        "bf16.mixed": (lambda x: (jnp.tanh(x) * 2 + 1).sum(0), (H,)),
        "bf16.matmul": (lambda x: x @ x.T, (H,)),
        "bf16.dot_f32": (lambda x: jnp.matmul(x, x.T, preferred_element_type=np.float32), (H,)),
        "f16.softmax": (jax.nn.softmax, (F16,)),
        "int8.matmul": (lambda x: jnp.matmul(x, x.T, preferred_element_type=np.int32), (I.astype(np.int8),)),
        "int4": (lambda x: x.astype(jnp.int4).astype(np.int32) * 2, (I // 2,)),
        "uint2": (lambda x: (x.astype(jnp.uint2) + jnp.uint2(1)).astype(np.int32), (J,))
        if hasattr(jnp, "uint2")
        else (jnp.abs, (I,)),
        "f8.round": (lambda x: x.astype(jnp.float8_e4m3fn).astype(np.float32), (M * 30,)),
        "f8.e5m2": (lambda x: x.astype(jnp.float8_e5m2).astype(np.float32), (M * 30,)),
        "f8.dot": (
            lambda x: lax.dot(
                x.astype(jnp.float8_e4m3fn), x.T.astype(jnp.float8_e4m3fn), preferred_element_type=np.float32
            ),
            (M,),
        ),
        "convert": (lambda x: (x * 50).astype(np.int8).astype(np.float16), (M,)),
        "convert_unsigned": (lambda x: jnp.abs(x * 50).astype(np.uint8), (M,)),
    }


def reductions() -> dict[str, Case]:
    rows: dict[str, Case] = {
        f"jnp.{n}": (functools.partial(getattr(jnp, n), axis=1), (M,)) for n in REDUCE.split() if hasattr(jnp, n)
    }
    return {
        **rows,
        "jnp.sum_all": (jnp.sum, (T,)),
        "jnp.max_axes": (lambda x: jnp.max(x, axis=(0, 2), keepdims=True), (T,)),
        "jnp.norm": (lambda x: jnp.linalg.norm(x, axis=1), (M,)),
        "jnp.average": (lambda x, w: jnp.average(x, axis=0, weights=w), (M, np.abs(M))),
        "jnp.quantile": (lambda x: jnp.quantile(x, jnp.array([0.1, 0.5]), axis=1), (M,)),
        "jnp.percentile": (lambda x: jnp.percentile(x, 30), (M,)),
        "jnp.trapezoid": (lambda x: jnp.trapezoid(x, dx=0.1), (M,)),
        "jnp.diff": (lambda x: jnp.diff(x, n=2), (M,)),
        "jnp.gradient": (lambda x: jnp.gradient(x)[0], (M,)),
        "jnp.cov": (jnp.cov, (M,)),
        "jnp.corrcoef": (jnp.corrcoef, (M,)),
        "jnp.histogram": (lambda x: jnp.histogram(x, bins=5, range=(-2, 2))[0], (M,)),
        "jnp.bincount": (lambda x: jnp.bincount(x.ravel(), length=8), (J,)),
        "jnp.digitize": (lambda x: jnp.digitize(x, jnp.array([-1.0, 0.0, 1.0])), (M,)),
        "jnp.searchsorted": (lambda x, v: jnp.searchsorted(jnp.sort(x), v), (V, M)),
        "lax.cummax": (lambda x: lax.cummax(x, axis=1), (M,)),
        "lax.cummin_reverse": (lambda x: lax.cummin(x, axis=0, reverse=True), (M,)),
        "lax.cumlogsumexp": (lambda x: lax.cumlogsumexp(x, axis=1), (M,)),
        "lax.associative_scan": (lambda x: lax.associative_scan(jnp.multiply, x, axis=1), (M,)),
        "lax.reduce_custom": (lambda x: lax.reduce(x, np.float32(0), lambda a, b: a * b + a + b, (1,)), (M,)),
        "lax.reduce_and": (lambda x: lax.reduce(x, np.int32(-1), lax.bitwise_and, (0,)), (I,)),
        "lax.argmax_index": (lambda x: lax.argmax(x, 1, np.uint8), (M,)),
        "lax.reduce_window_sum": (
            lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 1, 3, 2), (1, 1, 2, 1), "SAME"),
            (IMAGE,),
        ),
        "lax.max_pool_dilated": (
            lambda x: lax.reduce_window(
                x, -np.inf, lax.max, (1, 1, 2, 2), (1, 1, 1, 2), "VALID", (1, 1, 2, 1), (1, 1, 2, 2)
            ),
            (IMAGE,),
        ),
        "nn.max_pool_grad": (
            jax.grad(lambda x: (lax.reduce_window(x, -np.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "SAME") ** 2).sum()),
            (IMAGE,),
        ),
        "nn.avg_pool_grad": (
            jax.grad(lambda x: (lax.reduce_window(x, 0.0, lax.add, (1, 1, 3, 3), (1, 1, 2, 2), "SAME") ** 2).sum()),
            (IMAGE,),
        ),
        "lax.reduce_precision_sum": (lambda x: jnp.sum(x, dtype=np.float32), (H,)),
    }


def shapes() -> dict[str, Case]:
    return {
        "jnp.reshape": (lambda x: x.reshape(3, 8).T.ravel(), (M,)),
        "jnp.moveaxis": (lambda x: jnp.moveaxis(x, 0, -1), (T,)),
        "jnp.broadcast_to": (lambda x: jnp.broadcast_to(x[:, None], (7, 3)), (V,)),
        "jnp.concatenate": (lambda x, y: jnp.concatenate([x, y, x * 2], axis=1), (M, M)),
        "jnp.stack": (lambda x, y: jnp.stack([x, y], axis=1), (M, M)),
        "jnp.split": (lambda x: jnp.split(x, 3, axis=1), (M,)),
        "jnp.tile": (lambda x: jnp.tile(x, (2, 3)), (M,)),
        "jnp.repeat": (lambda x: jnp.repeat(x, 3, axis=0), (M,)),
        "jnp.roll": (lambda x: jnp.roll(x, (1, -2), axis=(0, 1)), (M,)),
        "jnp.flip": (lambda x: jnp.flip(x, (0, 1)), (M,)),
        "jnp.rot90": (jnp.rot90, (M,)),
        "jnp.pad_constant": (lambda x: jnp.pad(x, ((1, 2), (0, 3)), constant_values=7), (M,)),
        "jnp.pad_edge": (lambda x: jnp.pad(x, 2, mode="edge"), (M,)),
        "jnp.pad_reflect": (lambda x: jnp.pad(x, 3, mode="reflect"), (M,)),
        "jnp.pad_wrap": (lambda x: jnp.pad(x, 1, mode="wrap"), (M,)),
        "lax.pad_interior": (lambda x: lax.pad(x, np.float32(0), ((1, -1, 2), (-2, 3, 1))), (M,)),
        "jnp.tril": (lambda x: jnp.tril(x, 1), (M,)),
        "jnp.diag": (jnp.diag, (V,)),
        "jnp.diagonal": (lambda x: jnp.diagonal(x, 1), (M,)),
        "jnp.trace": (jnp.trace, (Q,)),
        "jnp.eye": (lambda: jnp.eye(4, 5, 1), ()),
        "jnp.linspace": (lambda x: jnp.linspace(x[0], x[1], 9), (V,)),
        "jnp.arange": (lambda: jnp.arange(3, 20, 4) * 2, ()),
        "jnp.meshgrid": (lambda x: jnp.meshgrid(x, x[:3]), (V,)),
        "jnp.where": (lambda b, x: jnp.where(b, x, -x), (B, M)),
        "jnp.select": (lambda x: jnp.select([x > 1, x > 0], [x, x * 2], -1.0), (M,)),
        "jnp.piecewise": (lambda x: jnp.piecewise(x, [x < 0, x >= 0], [lambda v: -v, jnp.sqrt]), (M,)),
        "jnp.unstack": (lambda x: [a * 2 for a in x], (T,)),
        "jnp.ix": (lambda x: x[jnp.ix_(jnp.array([1, 3]), jnp.array([0, 2]))], (M,)),
        "jnp.squeeze": (lambda x: jnp.squeeze(x[:, None, :], 1), (M,)),
        "lax.rev": (lambda x: lax.rev(x, (1,)), (T,)),
        "jnp.kron": (jnp.kron, (M[:2, :2], Q[:3, :2])),
        "jnp.vander": (lambda x: jnp.vander(x, 4), (V,)),
        "jnp.packbits": (lambda x: jnp.packbits(x, axis=1), (B,)),
        "jnp.unpackbits": (lambda x: jnp.unpackbits(x, axis=1), (U,)),
        "jnp.frexp": (jnp.frexp, (M,)),
        "jnp.ldexp": (lambda x: jnp.ldexp(x, 3), (M,)),
        "jnp.modf": (jnp.modf, (M,)),
        "jnp.divmod": (lambda a, b: jnp.divmod(a, b), (I, J)),
        "jnp.nonzero_size": (lambda x: jnp.nonzero(x, size=10, fill_value=-1), (B,)),
        "jnp.unique_size": (lambda x: jnp.unique(x, size=12, fill_value=0), (I,)),
        "lax.expand_dims": (lambda x: lax.expand_dims(x, (0, 2)), (M,)),
        "lax.collapse": (lambda x: lax.collapse(x, 0, 2), (T,)),
    }


def contractions() -> dict[str, Case]:
    numbers = ("NCHW", "OIHW", "NCHW")
    return {
        "jnp.matmul": (jnp.matmul, (M, N)),
        "jnp.matmul_batch": (lambda x: x @ x.swapaxes(1, 2), (T,)),
        "jnp.dot_vec": (jnp.dot, (V, V)),
        "jnp.vdot": (jnp.vdot, (C, C)),
        "jnp.outer": (jnp.outer, (V, V)),
        "jnp.inner": (jnp.inner, (M, M)),
        "jnp.tensordot": (lambda a, b: jnp.tensordot(a, b, axes=([1, 2], [0, 1])), (T, T[0].T.reshape(4, 3).T.copy()))
        if False
        else (lambda a: jnp.tensordot(a, a, axes=([1, 2], [1, 2])), (T,)),
        "jnp.einsum": (lambda a, b: jnp.einsum("bij,kj->bik", a, b), (T, R.standard_normal((5, 4)).astype(np.float32))),
        "jnp.einsum_three": (lambda a, b, c: jnp.einsum("ij,jk,kl->il", a, b, c), (M, N, Q)),
        "jnp.einsum_diag": (lambda a: jnp.einsum("ii->i", a), (Q,)),
        "jnp.cross": (jnp.cross, (Q[:, :3], Q[::-1, :3].copy())),
        "jnp.convolve": (lambda a: jnp.convolve(a, a[:3], mode="same"), (V,)),
        "jnp.polyval": (jnp.polyval, (V, M)),
        "lax.dot_general": (
            lambda a, b: lax.dot_general(a, b, (((2,), (1,)), ((0,), (0,)))),
            (T, T.swapaxes(1, 2)[:, :, :3].copy()),
        ),
        "lax.dot_precision": (lambda a, b: lax.dot(a, b, precision="highest"), (M, N)),
        "lax.dot_algorithm": (lambda a, b: lax.dot(a, b, precision=lax.DotAlgorithmPreset.F32_F32_F32), (M, N)),
        "lax.conv": (
            lambda x, k: lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=numbers),
            (IMAGE, KERNEL),
        ),
        "lax.conv_stride": (
            lambda x, k: lax.conv_general_dilated(
                x, k, (2, 3), ((1, 2), (0, 1)), (1, 2), (2, 1), dimension_numbers=numbers
            ),
            (IMAGE, KERNEL),
        ),
        "lax.conv_groups": (
            lambda x, k: lax.conv_general_dilated(
                x, k, (1, 1), "VALID", feature_group_count=3, dimension_numbers=numbers
            ),
            (IMAGE, R.standard_normal((6, 1, 3, 2)).astype(np.float32)),
        ),
        "lax.conv_batch_groups": (
            lambda x, k: lax.conv_general_dilated(
                x, k, (1, 1), "VALID", batch_group_count=2, dimension_numbers=numbers
            ),
            (IMAGE, KERNEL),
        ),
        "lax.conv_transpose": (
            lambda x, k: lax.conv_transpose(x, k, (2, 2), "SAME", dimension_numbers=numbers),
            (IMAGE, R.standard_normal((4, 3, 3, 2)).astype(np.float32)),
        ),
        "lax.conv_grad": (
            jax.grad(
                lambda k, x: (lax.conv_general_dilated(x, k, (2, 1), "SAME", dimension_numbers=numbers) ** 2).sum(),
                (0, 1),
            ),
            (KERNEL, IMAGE),
        ),
        "lax.conv_1d": (
            lambda x, k: lax.conv_general_dilated(x, k, (2,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")),
            (T, R.standard_normal((2, 4, 5)).astype(np.float32)),
        ),
        "signal.convolve2d": (lambda x: signal.convolve2d(x, x[:2, :3], mode="full"), (M,)),
        "lax.ragged_dot": (
            lax.ragged_dot,
            (M, R.standard_normal((3, 6, 5)).astype(np.float32), np.array([1, 0, 3], np.int32)),
        ),
        "nn.attention": (
            lambda q: jax.nn.dot_product_attention(q, q, q, is_causal=True),
            (R.standard_normal((2, 5, 3, 4)).astype(np.float32),),
        ),
        "nn.one_hot": (lambda i: jax.nn.one_hot(i, 6), (INDEX,)),
    }


def indexing() -> dict[str, Case]:
    return {
        "index.basic": (lambda x: x[1:3, ::-2], (M,)),
        "index.array": (lambda x, i: x[i], (M, INDEX)),
        "index.two": (lambda x, i: x[i, i + 1], (M, INDEX)),
        "index.mixed": (lambda x, i: x[:, i % 3, 1:], (T, INDEX)),
        "index.dynamic": (lambda x, i: x[i[0]], (M, INDEX)),
        "index.ellipsis": (lambda x: x[..., None, 0], (T,)),
        "jnp.take": (lambda x, i: jnp.take(x, i, axis=1), (M, INDEX)),
        "jnp.take_fill": (lambda x, i: jnp.take(x, i + 3, axis=0, mode="fill"), (M, INDEX)),
        "jnp.take_clip": (lambda x, i: jnp.take(x, i + 3, axis=0, mode="clip"), (M, INDEX)),
        "jnp.take_along": (lambda x: jnp.take_along_axis(x, jnp.argsort(x, axis=1), axis=1), (M,)),
        "at.set": (lambda x, i: x.at[i].set(7.0), (M, INDEX)),
        "at.add": (lambda x, i: x.at[i, 1].add(x[:, 0]), (M, INDEX)),
        "at.mul": (lambda x, i: x.at[i].mul(2.0), (M, INDEX)),
        "at.min": (lambda x, i: x.at[:, i].min(0.0), (M, INDEX)),
        "at.drop": (lambda x, i: x.at[i + 3].set(1.0, mode="drop"), (M, INDEX)),
        "at.get": (lambda x, i: x.at[i + 3].get(mode="fill", fill_value=-1), (M, INDEX)),
        "at.apply": (lambda x, i: x.at[i].apply(jnp.sin), (M, INDEX)),
        "lax.dynamic_slice": (lambda x, i: lax.dynamic_slice(x, (i[0], i[1]), (2, 3)), (M, INDEX)),
        "lax.dynamic_update": (lambda x, i: lax.dynamic_update_slice(x, x[:2, :2] * 3, (i[0], i[2])), (M, INDEX)),
        "lax.dynamic_index": (lambda x, i: lax.dynamic_index_in_dim(x, i[2], 1, keepdims=False), (M, INDEX)),
        "lax.gather_grad": (jax.grad(lambda x, i: (x[i] ** 2).sum()), (M, INDEX)),
        "segment_sum": (lambda x, i: jax.ops.segment_sum(x, i, num_segments=4), (M, INDEX)),
        "segment_max": (lambda x, i: jax.ops.segment_max(x, i, num_segments=5), (M, INDEX)),
        "jnp.sort": (lambda x: jnp.sort(x, axis=0), (M,)),
        "jnp.sort_descending": (lambda x: jnp.sort(x, descending=True), (I,)),
        "jnp.argsort": (lambda x: jnp.argsort(x, axis=1, stable=True), (I,)),
        "jnp.lexsort": (lambda x: jnp.lexsort((x[0], x[1])), (I,)),
        "jnp.partition": (lambda x: jnp.sort(jnp.partition(x, 2)[:, :3]), (M,)),
        "lax.sort_multi": (lambda x, y: lax.sort((x, y), num_keys=2), (I, M)),
        "lax.top_k": (lambda x: lax.top_k(x, 3), (M,)),
        "lax.approx_max_k": (lambda x: lax.approx_max_k(x, 2), (M,)),
        "jnp.argmax_ties": (jnp.argmax, (I,)),
        "vmap.dynamic": (jax.vmap(lambda x, i: lax.dynamic_slice(x, (i,), (2,))), (M, INDEX)),
        "vmap.update": (jax.vmap(lambda x, i: x.at[i].set(0.0)), (M, INDEX)),
        "vmap.gather": (jax.vmap(lambda x, i: x[i]), (M, INDEX)),
    }


def control() -> dict[str, Case]:
    def body(c: Any, x: Any) -> Any:
        return c * 0.5 + x, c.sum()

    return {
        "lax.scan": (lambda x: lax.scan(body, jnp.zeros(6), x), (M,)),
        "lax.scan_reverse": (lambda x: lax.scan(body, jnp.zeros(6), x, reverse=True, unroll=2), (M,)),
        "lax.scan_grad": (jax.grad(lambda x: lax.scan(body, jnp.zeros(6), x)[0].sum()), (M,)),
        "lax.fori": (lambda x: lax.fori_loop(0, 5, lambda i, c: c * 1.1 + i, x), (M,)),
        "lax.while": (lambda x: lax.while_loop(lambda c: c.sum() < 100, lambda c: c * c + 1, x), (M,)),
        "lax.cond": (lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), (M,)),
        "lax.switch": (lambda x, i: lax.switch(i[0] % 3, [jnp.sin, jnp.cos, jnp.tan], x), (M, INDEX)),
        "lax.map": (lambda x: lax.map(lambda r: jnp.sort(r).cumsum(), x), (M,)),
        "vmap.cond": (jax.vmap(lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x)), (M,)),
        "vmap.while": (jax.vmap(lambda x: lax.while_loop(lambda c: c < 10, lambda c: c * 2 + 1, jnp.abs(x))), (V,)),
        "checkpoint": (jax.grad(jax.checkpoint(lambda x: jnp.sin(jnp.exp(x)).sum())), (M,)),
        "jit.nested": (lambda x: jax.jit(jnp.sin)(x) + jax.jit(jnp.sin)(x + 1), (M,)),
        "hessian": (jax.hessian(lambda x: (jnp.tanh(x) ** 3).sum()), (V,)),
        "jacfwd": (jax.jacfwd(lambda x: jnp.outer(x, x).sum(0)), (V,)),
        "optimization_barrier": (lambda x: lax.optimization_barrier((x + 1, x * 2)), (M,)),
        "custom_root": (lambda x: jnp.interp(x, jnp.array([-1.0, 0.0, 1.0]), jnp.array([2.0, 5.0, 3.0])), (M,)),
        "stats.norm": (stats.norm.logpdf, (M,)),
        "stats.t": (lambda x: stats.t.logpdf(x, 3.0), (M,)),
        "stats.gamma": (lambda x: stats.gamma.cdf(x, 2.0), (POS,)),
        "stats.rank": (lambda x: stats.rankdata(x), (V,)),
        "layer_norm_grad": (
            jax.grad(
                lambda x: (((x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)) ** 3).sum()
            ),
            (M,),
        ),
        "gelu_grad": (jax.grad(lambda x: jax.nn.gelu(x, approximate=False).sum()), (M,)),
        "xent_grad": (
            jax.grad(lambda x, i: -jnp.take_along_axis(jax.nn.log_softmax(x), i[:, None], 1).sum()),
            (M, INDEX),
        ),
        "dict_result": (lambda x: {"a": x + 1, "b": (x.sum(), x.T)}, (M,)),
        "scalar": (lambda x: x * 2 + 1, (np.float32(3),)),
        "empty": (lambda x: x[:0].sum(axis=0), (M,)),
        "zero_size": (lambda x: jnp.concatenate([x[:, :0], x * 2], 1), (M,)),
    }


def randoms() -> dict[str, Case]:
    draws = {
        "bits": lambda k: random.bits(k, (5, 3)),
        "bits8": lambda k: random.bits(k, (5, 3), np.uint8),
        "uniform": lambda k: random.uniform(k, (4, 7)),
        "normal": lambda k: random.normal(k, (4, 7)),
        "normal_bf16": lambda k: random.normal(k, (4, 7), jnp.bfloat16),
        "randint": lambda k: random.randint(k, (9,), -5, 11),
        "permutation": lambda k: random.permutation(k, 10),
        "choice": lambda k: random.choice(k, 8, (5,), replace=False),
        "bernoulli": lambda k: random.bernoulli(k, 0.3, (6, 2)),
        "categorical": lambda k: random.categorical(k, jnp.log(jnp.arange(1.0, 6.0)), shape=(7,)),
        "gumbel": lambda k: random.gumbel(k, (5,)),
        "exponential": lambda k: random.exponential(k, (5,)),
        "laplace": lambda k: random.laplace(k, (5,)),
        "truncated_normal": lambda k: random.truncated_normal(k, -1.0, 2.0, (5,)),
        "gamma": lambda k: random.gamma(k, 2.0, (4,)),
        "beta": lambda k: random.beta(k, 2.0, 3.0, (4,)),
        "poisson": lambda k: random.poisson(k, 4.0, (6,)),
        "dirichlet": lambda k: random.dirichlet(k, jnp.array([1.0, 2.0, 3.0])),
        "split": lambda k: random.key_data(random.split(k, 3)),
        "fold_in": lambda k: random.key_data(random.fold_in(k, 9)),
        "multivariate": lambda k: random.multivariate_normal(k, jnp.zeros(3), jnp.eye(3), (2,)),
    }

    def seeded(draw: Any, kind: str) -> Callable[[Any], Any]:
        return lambda seed: draw(random.key(seed, impl=kind))

    rows: dict[str, Case] = {f"threefry.{n}": (seeded(d, "threefry2x32"), (np.int32(5),)) for n, d in draws.items()}
    for n in ("bits", "uniform", "normal", "split"):
        rows[f"rbg.{n}"] = (seeded(draws[n], "rbg"), (np.int32(5),))
        rows[f"unsafe_rbg.{n}"] = (seeded(draws[n], "unsafe_rbg"), (np.int32(5),))
    return rows


def linear_algebra() -> dict[str, Case]:
    low = np.tril(SPD).astype(np.float32)
    return {
        "linalg.cholesky": (jnp.linalg.cholesky, (SPD,)),
        "linalg.inv": (jnp.linalg.inv, (SPD,)),
        "linalg.solve": (jnp.linalg.solve, (SPD, Q)),
        "linalg.det": (jnp.linalg.det, (SPD,)),
        "linalg.slogdet": (jnp.linalg.slogdet, (Q,)),
        "linalg.qr": (lambda x: [abs(a) for a in jnp.linalg.qr(x)], (Q,)),
        "linalg.svd": (lambda x: jnp.linalg.svd(x, compute_uv=False), (M,)),
        "linalg.svd_full": (lambda x: (lambda u, s, v: (u[:, :4] * s) @ v[:4])(*jnp.linalg.svd(x)), (M,)),
        "linalg.eigh": (lambda x: (lambda w, v: (v * w) @ v.T)(*jnp.linalg.eigh(x)), (SPD,)),
        "linalg.eigvalsh": (jnp.linalg.eigvalsh, (SPD,)),
        "linalg.lstsq": (lambda a, b: jnp.linalg.lstsq(a, b)[0], (N, N[:, 0])),
        "linalg.pinv": (jnp.linalg.pinv, (M,)),
        "linalg.matrix_power": (lambda x: jnp.linalg.matrix_power(x, 3), (Q,)),
        "linalg.matrix_rank": (jnp.linalg.matrix_rank, (Q,)),
        "linalg.cond": (jnp.linalg.cond, (SPD,)),
        "linalg.norm_nuc": (lambda x: jnp.linalg.norm(x, "nuc"), (M,)),
        "linalg.multi_dot": (lambda a, b, c: jnp.linalg.multi_dot([a, b, c]), (M, N, Q)),
        "scipy.lu": (jax.scipy.linalg.lu, (Q,)),
        "scipy.lu_solve": (lambda a, b: jax.scipy.linalg.lu_solve(jax.scipy.linalg.lu_factor(a), b), (SPD, Q)),
        "scipy.cho_solve": (lambda a, b: jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(a), True), b), (SPD, Q)),
        "scipy.solve_triangular": (lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=True, trans=1), (low, Q)),
        "scipy.expm": (jax.scipy.linalg.expm, (Q * 0.3,)),
        "scipy.toeplitz": (jax.scipy.linalg.toeplitz, (V,)),
        "scipy.block_diag": (lambda a, b: jax.scipy.linalg.block_diag(a, b), (M, Q)),
        "scipy.hessenberg": (lambda x: abs(jax.scipy.linalg.hessenberg(x)), (Q,)),
        "grad.cholesky": (jax.grad(lambda x: jnp.linalg.cholesky(x).sum()), (SPD,)),
        "grad.solve": (jax.grad(lambda x, b: jnp.linalg.solve(x, b).sum()), (SPD, Q)),
        "grad.slogdet": (jax.grad(lambda x: jnp.linalg.slogdet(x)[1]), (SPD,)),
        "vmap.solve": (
            jax.vmap(jnp.linalg.solve),
            (np.stack([SPD, SPD + np.eye(5, dtype=np.float32)]), np.stack([Q, Q])),
        ),
        "fft.fft": (jnp.fft.fft, (C,)),
        "fft.ifft": (lambda x: jnp.fft.ifft(x, axis=0), (C,)),
        "fft.rfft": (jnp.fft.rfft, (M,)),
        "fft.irfft": (lambda x: jnp.fft.irfft(x, n=9), (C,)),
        "fft.fft2": (jnp.fft.fft2, (C,)),
        "fft.rfftn": (jnp.fft.rfftn, (T,)),
        "fft.fftshift": (jnp.fft.fftshift, (M,)),
        "fft.prime": (jnp.fft.fft, (V,)),
        "signal.fftconvolve": (lambda x: signal.fftconvolve(x, x[:3]), (V,)),
        "scipy.dct": (lambda x: jax.scipy.fft.dct(x), (M,)),
    }


GROUPS: dict[str, Callable[[], dict[str, Case]]] = {
    "elementwise": elementwise,
    "reductions": reductions,
    "shapes": shapes,
    "contractions": contractions,
    "indexing": indexing,
    "control": control,
    "randoms": randoms,
    "linear_algebra": linear_algebra,
}
