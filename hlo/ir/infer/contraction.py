"""Shape inference: matrix products."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.hlo.ir.infer.rule import Attrs, ShapeRule, Shapes, common_float, fail, need_array, need_dims
from shardc.hlo.ir.types import Shape

__all__ = ["RULES", "check_precision_lax"]


def _product_dims(lhs: Shape, rhs: Shape, attrs: Attrs) -> tuple[int, ...]:
    contract_l, contract_r = attrs.get("lhs_contracting_dims", ()), attrs.get("rhs_contracting_dims", ())
    batch_l, batch_r = attrs.get("lhs_batch_dims", ()), attrs.get("rhs_batch_dims", ())
    need_dims((*batch_l, *contract_l), lhs.rank, "lhs batch and contracting dimensions")
    need_dims((*batch_r, *contract_r), rhs.rank, "rhs batch and contracting dimensions")
    for kind, left, right in (("contracting", contract_l, contract_r), ("batch", batch_l, batch_r)):
        if len(left) != len(right):
            fail(f"{len(left)} lhs and {len(right)} rhs {kind} dimensions")
        for i, j in zip(left, right, strict=True):
            if lhs.dims[i] != rhs.dims[j]:
                fail(f"{kind} dimension: lhs dimension {i} of {lhs} and rhs dimension {j} of {rhs} differ", i)
    free_l = [n for i, n in enumerate(lhs.dims) if i not in batch_l and i not in contract_l]
    free_r = [n for j, n in enumerate(rhs.dims) if j not in batch_r and j not in contract_r]
    return (*(lhs.dims[i] for i in batch_l), *free_l, *free_r)


def _dot(shapes: Shapes, attrs: Attrs) -> Shape:
    lhs, rhs = need_array(shapes[0], "lhs"), need_array(shapes[1], "rhs")
    dims = _product_dims(lhs, rhs, attrs)
    dtype = common_float(lhs.dtype, rhs.dtype)
    if dtype is None:
        if not (lhs.dtype.is_integer and rhs.dtype.is_integer):
            fail(f"lhs has element type {lhs.dtype}, rhs {rhs.dtype}")
        dtype = lhs.dtype if lhs.dtype.bits >= rhs.dtype.bits else rhs.dtype
    return Shape(dtype, dims)


def check_precision_lax(inferred: Shape, shape: Shape) -> None:
    """Dimensions must match; the element type may be any preferred one of the same nature."""
    if need_array(shape, "result").dims != inferred.dims:
        differing = [d for d in range(min(shape.rank, inferred.rank)) if shape.dims[d] != inferred.dims[d]]
        fail(f"shape is {shape}, its operands give {inferred}", differing[0] if differing else None)
    if shape.dtype.is_complex != inferred.dtype.is_complex or (shape.dtype.kind == "pred") != (
        inferred.dtype.kind == "pred"
    ):
        fail(f"element type {shape.dtype} cannot hold a product of {inferred.dtype}")


def _check_dot(shapes: Shapes, attrs: Attrs, shape: Shape) -> None:
    check_precision_lax(_dot(shapes, attrs), shape)


def _scaled_dot(shapes: Shapes, attrs: Attrs) -> Shape:
    return _dot(shapes[:2], attrs)


def _check_scaled_dot(shapes: Shapes, attrs: Attrs, shape: Shape) -> None:
    check_precision_lax(_scaled_dot(shapes, attrs), shape)


def _ragged_dot(shapes: Shapes, attrs: Attrs) -> Shape:
    """Group sizes cut one lhs dimension: a free one, a contracted one (the group dimension leads), or a batch one."""
    if len(shapes) != 3:
        fail("ragged-dot takes lhs, rhs and group sizes")
    lhs, rhs, sizes = (need_array(s) for s in shapes)
    ragged: Sequence[int] = attrs.get("lhs_ragged_dims", ())
    group: Sequence[int] = attrs.get("rhs_group_dims", ())
    if len(ragged) != 1 or len(group) > 1:
        fail("ragged-dot needs one ragged dimension and at most one group dimension")
    need_dims(ragged, lhs.rank, "lhs_ragged_dims")
    taken = [d for key in ("rhs_contracting_dims", "rhs_batch_dims") for d in attrs.get(key, ())]
    need_dims((*group, *taken), rhs.rank, "rhs group, batch and contracting dimensions")
    if not sizes.rank:
        fail("ragged-dot needs group sizes of at least one dimension")
    kept = [j for j in range(rhs.rank) if j not in group]
    moved = {j: k for k, j in enumerate(kept)}
    slim = dict(attrs)
    for key in ("rhs_contracting_dims", "rhs_batch_dims"):
        slim[key] = tuple(moved[j] for j in attrs.get(key, ()))
    result = _dot((lhs, rhs.with_dims(tuple(rhs.dims[j] for j in kept))), slim)
    if ragged[0] in attrs.get("lhs_contracting_dims", ()):
        return result.with_dims((sizes.dims[-1], *result.dims))
    return result


def _check_ragged_dot(shapes: Shapes, attrs: Attrs, shape: Shape) -> None:
    check_precision_lax(_ragged_dot(shapes, attrs), shape)


RULES = {
    "dot": ShapeRule(_dot, _check_dot),
    "ragged-dot": ShapeRule(_ragged_dot, _check_ragged_dot),
    "scaled-dot": ShapeRule(_scaled_dot, _check_scaled_dot),
}
