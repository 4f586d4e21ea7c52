"""Shape inference: convolution and windowed reductions."""

from __future__ import annotations

from shardc.hlo.ir.infer.contraction import check_precision_lax
from shardc.hlo.ir.infer.reduction import infer_reduced_shape, reducer_types
from shardc.hlo.ir.infer.rule import Attrs, ShapeRule, Shapes, common_float, fail, need_array, need_dims
from shardc.hlo.ir.opset import ConvDims, Window, WindowDim
from shardc.hlo.ir.types import DTYPES, Shape

__all__ = ["RULES", "count_windows", "default_window", "dilate"]


def dilate(size: int, dilation: int) -> int:
    """Size with ``dilation - 1`` holes between neighbours."""
    return 0 if size == 0 else (size - 1) * dilation + 1


def count_windows(size: int, w: WindowDim) -> int:
    """Number of window positions over a dimension of ``size``; negative padding crops."""
    padded = dilate(size, w.lhs_dilate) + w.pad_low + w.pad_high
    extent = dilate(w.size, w.rhs_dilate)
    return 0 if padded < extent or padded <= 0 else (padded - extent) // w.stride + 1


def default_window(rank: int) -> Window:
    return Window(tuple(WindowDim(1) for _ in range(rank)))


def _conv(shapes: Shapes, attrs: Attrs) -> Shape:
    lhs, rhs = need_array(shapes[0], "lhs"), need_array(shapes[1], "rhs")
    dims: ConvDims = attrs["dim_labels"]
    window: Window = attrs.get("window") or default_window(len(dims.lhs_spatial))
    groups, batches = attrs.get("feature_group_count", 1), attrs.get("batch_group_count", 1)
    rank = len(window.dims) + 2
    for name, labels in (
        ("lhs", (dims.lhs_batch, dims.lhs_feature, *dims.lhs_spatial)),
        ("rhs", (dims.rhs_input_feature, dims.rhs_output_feature, *dims.rhs_spatial)),
        ("output", (dims.out_batch, dims.out_feature, *dims.out_spatial)),
    ):
        need_dims(labels, rank, f"{name} of dim_labels")
        if len(labels) != rank:
            fail(f"dim_labels name {len(labels)} {name} dimensions, the window has {len(window.dims)}")
    if lhs.rank != rank or rhs.rank != rank:
        fail(f"{lhs} and {rhs} do not have rank {rank}")
    _check_groups(lhs, rhs, dims, groups, batches)
    out = [0] * rank
    out[dims.out_batch] = lhs.dims[dims.lhs_batch] // batches
    out[dims.out_feature] = rhs.dims[dims.rhs_output_feature]
    for k, w in enumerate(window.dims):
        if rhs.dims[dims.rhs_spatial[k]] != w.size:
            fail(f"window size {w.size} differs from the kernel {rhs}", dims.rhs_spatial[k])
        _check_window(w, k)
        out[dims.out_spatial[k]] = count_windows(lhs.dims[dims.lhs_spatial[k]], w)
    dtype = common_float(lhs.dtype, rhs.dtype) or (lhs.dtype if lhs.dtype.bits >= rhs.dtype.bits else rhs.dtype)
    return Shape(dtype, tuple(out))


def _check_groups(lhs: Shape, rhs: Shape, dims: ConvDims, groups: int, batches: int) -> None:
    features, inputs = lhs.dims[dims.lhs_feature], rhs.dims[dims.rhs_input_feature]
    outputs, batch = rhs.dims[dims.rhs_output_feature], lhs.dims[dims.lhs_batch]
    if groups < 1 or batches < 1 or (groups > 1 and batches > 1):
        fail(f"feature_group_count {groups} and batch_group_count {batches} cannot be combined")
    if features != inputs * groups:
        fail(f"lhs has {features} features, the kernel {inputs} in {groups} groups", dims.lhs_feature)
    if outputs % groups or outputs % batches:
        fail(f"{outputs} output features do not divide by {max(groups, batches)} groups", dims.rhs_output_feature)
    if batch % batches:
        fail(f"a batch of {batch} does not divide by {batches} groups", dims.lhs_batch)


def _check_window(w: WindowDim, d: int) -> None:
    if w.size < 0 or w.stride < 1 or w.lhs_dilate < 1 or w.rhs_dilate < 1:
        fail(f"window {w} needs positive stride and dilation", d)


def _check_conv(shapes: Shapes, attrs: Attrs, shape: Shape) -> None:
    check_precision_lax(_conv(shapes, attrs), shape)


def _infer_window(shape: Shape, window: Window) -> tuple[int, ...]:
    if len(window.dims) != shape.rank:
        fail(f"a window of {len(window.dims)} dimensions over {shape}")
    for d, w in enumerate(window.dims):
        _check_window(w, d)
    return tuple(count_windows(n, w) for n, w in zip(shape.dims, window.dims, strict=True))


def _reduce_window(shapes: Shapes, attrs: Attrs) -> Shape:
    count, odd = divmod(len(shapes), 2)
    if odd or not count:
        fail("reduce-window takes n arrays and n initial values")
    first = need_array(shapes[0])
    for s in shapes[1:count]:
        if s.dims != first.dims:
            fail(f"reduced arrays differ in shape: {first} and {s}")
    dims = _infer_window(first, attrs["window"])
    return infer_reduced_shape(attrs, shapes, dims)


def _select_and_scatter(shapes: Shapes, attrs: Attrs) -> Shape:
    operand, source, init = (need_array(s) for s in shapes)
    dims = _infer_window(operand, attrs["window"])
    if source.dims != dims:
        fail(f"source is {source}, the window has positions {list(dims)}")
    if attrs["select"].root.shape.dtype is not DTYPES["pred"]:
        fail(f"%{attrs['select'].name} returns {attrs['select'].root.shape}, not pred[]")
    types = reducer_types(attrs, [source], [init], "scatter")
    return Shape(types[0].dtype, operand.dims)


RULES = {
    "convolution": ShapeRule(_conv, _check_conv),
    "reduce-window": ShapeRule(_reduce_window),
    "select-and-scatter": ShapeRule(_select_and_scatter),
}
