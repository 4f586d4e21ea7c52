"""Calls of operators that PyTorch computes in 32 bits where floats have 16."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["CALLS", "Call"]


@dataclass(frozen=True)
class Call:
    """An operator by its name, and arguments with their tensors apart."""

    name: str
    tensors: list[Any]
    values: list[Any]
    spec: Any

    def filled(self, tensors: Sequence[Any]) -> Any:
        """The positional and the named arguments, with others for the tensors."""
        waiting = iter(tensors)
        leaves = [next(waiting) if isinstance(v, torch.Tensor) else v for v in self.values]
        return torch.utils._pytree.tree_unflatten(leaves, self.spec)


def call(name: str, *args: Any, **kwargs: Any) -> Call:
    values, spec = torch.utils._pytree.tree_flatten((args, kwargs))
    return Call(f"aten.{name}", [v for v in values if isinstance(v, torch.Tensor)], values, spec)


def _calls() -> Iterator[Call]:
    torch.manual_seed(0)
    yield from _elementwise()
    yield from _reductions()
    yield from _sums()
    yield from _products()
    yield from _images()
    yield from _norms()


#: Functions of any number, of positive ones, of those between -1 and 1, and of those above 1.
_ANY = """
    asinh atan cos cosh erf erfc exp exp2 expm1 lgamma sigmoid sin sinc sinh special_i0e special_i1
    special_i1e i0 tan tanh reciprocal gelu silu elu softplus leaky_relu special_erfcx special_log_ndtr
    special_modified_bessel_i0 special_modified_bessel_i1 digamma
"""
_POSITIVE = "log log10 log1p log2 rsqrt sqrt"
_SMALL = "acos asin atanh erfinv"


def _elementwise() -> Iterator[Call]:
    x, y, z = (3 * torch.randn(8, 30) for _ in range(3))
    small, positive = 1.9 * torch.rand(200) - 0.95, 5 * torch.rand(200) + 0.01
    yield from (call(f"{name}.default", x) for name in _ANY.split())
    yield from (call(f"{name}.default", positive) for name in _POSITIVE.split())
    yield from (call(f"{name}.default", small) for name in _SMALL.split())
    yield call("acosh.default", positive + 1)
    yield call("special_ndtri.default", (small + 1) / 2)
    yield call("special_zeta.default", positive + 1.5, positive.flip(0))
    yield call("polygamma.default", 1, positive)
    yield from (call(f"{name}.default", positive, positive.flip(0)) for name in ("igamma", "igammac"))
    yield from (call(f"{name}.Tensor", x, y, alpha=0.3) for name in ("add", "sub", "rsub"))
    yield from (call(f"{name}.Tensor", x, 0.1) for name in ("add", "sub", "mul", "div"))
    yield from (call(f"{name}.Tensor", x, y) for name in ("div", "true_divide", "xlogy"))
    yield from (call("div.Tensor_mode", x, y, rounding_mode=mode) for mode in ("floor", "trunc"))
    yield from (call(f"{name}.Scalar", x, 0.7) for name in ("fmod", "remainder"))
    yield call("floor_divide.default", x, y)
    yield call("remainder.Tensor", x, y)
    yield call("pow.Tensor_Scalar", positive, 0.3)
    yield call("pow.Tensor_Scalar", x, 3)
    yield call("pow.Tensor_Tensor", positive, small)
    yield from (call(f"{name}.default", x, y) for name in ("atan2", "hypot", "logaddexp", "logaddexp2"))
    yield call("xlogy.Tensor", x.abs(), y.abs())
    yield call("ldexp.Tensor", x, y)
    yield call("gelu.default", x, approximate="tanh")
    yield from (call("gelu_backward.default", x, y, approximate=kind) for kind in ("none", "tanh"))
    yield call("lerp.Scalar", x, y, 0.3)
    yield call("lerp.Tensor", x, y, z)
    yield from (call(f"{name}.default", x, y, z, value=0.3) for name in ("addcmul", "addcdiv"))
    for letter in "tuvw":
        yield call(f"special_chebyshev_polynomial_{letter}.n_scalar", small, 5)
        yield call(f"special_shifted_chebyshev_polynomial_{letter}.n_scalar", small, 5)
    for family in ("hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"):
        yield call(f"special_{family}.n_scalar", small, 5)


def _reductions() -> Iterator[Call]:
    x, y = torch.randn(6, 300), torch.randn(6, 300)
    yield call("sum.dim_IntList", x, [1])
    yield call("mean.dim", x, [1])
    yield call("prod.dim_int", 1 + x / 100, 1)
    yield call("cumsum.default", x, 1)
    yield call("logsumexp.default", x, [1])
    yield from (call(f"{name}.correction", x, [1], correction=1) for name in ("var", "var_mean", "std"))
    yield from (call(f"{name}.default", x, 1, False) for name in ("_softmax", "_log_softmax"))
    yield call("_softmax_backward_data.default", y, x.softmax(1), 1, torch.float32)
    yield call("_log_softmax_backward_data.default", y, x.log_softmax(1), 1, torch.float32)
    yield from (call("linalg_vector_norm.default", x, p, [1]) for p in (1, 2, 3))
    lengths = torch.tensor([100, 150, 50])
    yield from (call("segment_reduce.default", x.T, kind, lengths=lengths) for kind in ("sum", "mean"))
    offsets = torch.tensor([0, 300])
    made, sums = torch.ones(1, 6), 1 + torch.zeros(1, 6)
    yield call("_segment_reduce_backward.default", made, sums, x.T, "mean", offsets=offsets)
    yield call("histc.default", torch.ones(5000), 2, 0, 4)
    column = torch.ones(5000, 1)
    yield call("histogram.bin_ct", column, 2)
    yield call("histogram.bins_tensor", column, torch.tensor([0.0, 2.0, 4.0]))
    yield call("_histogramdd_bin_edges.default", x[0, :, None], [4])
    yield call("_histogramdd_from_bin_cts.default", column, [2])
    yield call("_histogramdd_from_bin_tensors.default", column, [torch.tensor([0.0, 2.0, 4.0])])


def _sums() -> Iterator[Call]:
    """Thousands of ones: added in 16 bits, they are 256 or 2048."""
    n, width = 5000, 3
    start, ones, at = torch.zeros(2, width), torch.ones(n, width), torch.arange(n) % 2
    where = at[:, None].expand(n, width)
    factors = torch.full((n, width), 1.001)
    yield call("index_add.default", start, 0, at, ones, alpha=0.7)
    yield call("scatter_add.default", start, 0, where, ones)
    for name, place in (("scatter_reduce.two", where), ("index_reduce.default", at)):
        yield call(name, start + 1, 0, place, ones, "mean", include_self=False)
        yield call(name, start + 1, 0, place, factors, "prod")
    yield call("scatter_reduce.two", start, 0, where, ones, "sum")
    bags, first = torch.arange(n) % 5, torch.tensor([0, 3000])
    weights = torch.randn(5, width)
    yield call("_embedding_bag.default", weights, bags, first, False, 1)
    of_bag = torch.searchsorted(first, torch.arange(n), right=True) - 1
    count = torch.tensor([3000, 2000])
    bag = (bags, first, of_bag, count, count)
    yield call("_embedding_bag_backward.default", torch.ones(2, width), *bag, 5, False, 0, False, None)
    of_sums = (torch.randn(2, width), weights, bags, first, of_bag, 0)
    yield call("_embedding_bag_per_sample_weights_backward.default", *of_sums)
    places = torch.zeros(1, 1, 80, 80, dtype=torch.long)
    small, large = torch.zeros(1, 1, 4, 4), torch.ones(1, 1, 80, 80)
    yield call("adaptive_max_pool2d_backward.default", large, small, places)
    yield call("adaptive_max_pool3d_backward.default", large[None], small[None], places[None])
    plane = torch.zeros(1, 1, 160, 160)
    yield call("max_pool2d_with_indices_backward.default", large, plane, [2, 2], [2, 2], [0, 0], [1, 1], False, places)
    yield call("fractional_max_pool2d_backward.default", large, plane, [2, 2], [80, 80], places)
    block, cube = torch.zeros(1, 1, 36, 36, 36), torch.ones(1, 1, 18, 18, 18)
    inside = torch.zeros(cube.shape, dtype=torch.long)
    window = ([2, 2, 2], [2, 2, 2], [0, 0, 0], [1, 1, 1], False, inside)
    yield call("max_pool3d_with_indices_backward.default", cube, block, *window)
    yield call("fractional_max_pool3d_backward.default", cube, block, [2, 2, 2], [18, 18, 18], inside)
    yield call("replication_pad1d_backward.default", torch.ones(1, 1, n), torch.ones(1, 1, 1), [n - 1, 0])
    yield call("replication_pad2d_backward.default", large, torch.ones(1, 1, 1, 1), [79, 0, 0, 79])
    yield call("replication_pad3d_backward.default", cube, torch.ones(1, 1, 1, 1, 1), [17, 0, 0, 17, 17, 0])


def _products() -> Iterator[Call]:
    x, a, b = 3 * torch.randn(6, 7), torch.randn(6, 40), torch.randn(40, 7)
    yield call("mm.default", a, b)
    yield call("addr.default", x, a[:, 0], b[0], alpha=0.7)
    yield call("_cdist_forward.default", a, a.flip(0), 2.0, None)
    distances = torch.cdist(a, 1 + a.flip(0))
    yield call("_cdist_backward.default", torch.ones(6, 6), a, 1 + a.flip(0), 2.0, distances)
    yield call("_pdist_forward.default", a)
    yield call("_pdist_backward.default", torch.ones(15), a, 2.0, torch.pdist(a))
    yield call("linalg_cross.default", torch.randn(50, 3), torch.randn(50, 3))
    yield call("trace.default", torch.randn(300, 300))
    yield call("_trilinear.default", a, a.flip(0), a + 1, [], [], [], [1])


def _images() -> Iterator[Call]:
    line, plane, block = torch.randn(1, 2, 30), torch.randn(1, 2, 30, 30), torch.randn(1, 2, 9, 9, 9)
    yield call("avg_pool2d.default", torch.ones(1, 1, 70, 70), [70, 70], [70, 70], [0, 0], False, True, 1)
    yield call("avg_pool2d.default", plane, [3, 3], [2, 2])
    yield call("avg_pool3d.default", block, [3, 3, 3], [2, 2, 2])
    windows = ([40, 40], [1, 1], [0, 0], False, True, 1)
    yield call("avg_pool2d_backward.default", torch.ones(1, 1, 21, 21), torch.ones(1, 1, 60, 60), *windows)
    windows = ([5, 5, 5], [1, 1, 1], [0, 0, 0], False, True, None)
    yield call("avg_pool3d_backward.default", torch.randn(1, 2, 5, 5, 5), block, *windows)
    yield call("_adaptive_avg_pool2d.default", plane, [7, 4])
    yield call("_adaptive_avg_pool3d.default", block, [4, 2, 3])
    yield call("_adaptive_avg_pool2d_backward.default", torch.randn(1, 2, 7, 4), plane)
    yield call("_adaptive_avg_pool3d_backward.default", torch.randn(1, 2, 4, 2, 3), block)
    for name, x, options in (
        ("linear1d", line, [False]), ("bilinear2d", plane, [False]), ("trilinear3d", block, [True]),
        ("bicubic2d", plane, [False]), ("nearest1d", line, []), ("nearest2d", plane, []), ("nearest3d", block, []),
    ):  # fmt: skip
        large, size = [n + 7 for n in x.shape[2:]], list(x.shape)
        yield call(f"upsample_{name}.default", x, large, *options)
        yield call(f"upsample_{name}_backward.default", torch.randn(*size[:2], *large), large, size, *options)
        if name.startswith("nearest"):
            name = f"_upsample_nearest_exact{name[-2:]}_backward.default"
            yield call(name, torch.randn(*size[:2], *large), large, size)
    for name in ("bilinear", "bicubic", "lanczos"):
        yield call(f"_upsample_{name}2d_aa.default", plane, [11, 40], False)
        small = torch.randn(1, 2, 11, 40)
        yield call(f"_upsample_{name}2d_aa_backward.default", small, [11, 40], list(plane.shape), False)
    grid = 1.8 * torch.rand(1, 70, 70, 2) - 0.9
    options = (0, 0, False, [True, True])
    yield call("grid_sampler_2d_backward.default", torch.randn(1, 2, 70, 70), plane[..., :4, :4], grid, *options)
    grid = 1.8 * torch.rand(1, 4, 5, 6, 3) - 0.9
    yield call("grid_sampler_3d.default", block, grid, 0, 0, False)
    yield call("grid_sampler_3d_backward.default", torch.randn(1, 2, 4, 5, 6), block, grid, *options)


def _norms() -> Iterator[Call]:
    x, weight, bias = 5 + 3 * torch.randn(4, 6, 10), torch.randn(6), torch.randn(6)
    mean, variance = torch.randn(6), torch.rand(6)
    yield call("native_layer_norm.default", x, [10], torch.randn(10), torch.randn(10), 1e-5)
    yield call("native_group_norm.default", x, weight, bias, 4, 6, 10, 2, 1e-5)
    running = (weight, bias, mean, variance)
    yield call("_native_batch_norm_legit_no_training.default", x, *running, 0.1, 1e-5)
    yield call("_native_batch_norm_legit_functional.default", x, *running, True, 0.1, 1e-5)
    yield call("_native_batch_norm_legit.no_stats", x, weight, bias, True, 0.1, 1e-5)
    signs, norms = torch.randn(4, 8, 8).sign(), torch.full((4, 1, 1), 8.0)
    yield call("_weight_norm_interface_backward.default", torch.randn(4, 8, 8), signs, torch.rand(4, 1, 1), norms, 0)


CALLS = list(_calls())
