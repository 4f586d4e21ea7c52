"""Gathers and scatters of one element per row, said with comparisons of indices.

``take_along_axis`` with one index per row, and its gradient, touch one element of each row; so does the loss of a
classifier. Where the whole row is read or written anyway, comparing every position with the index costs almost nothing,
and no array of zeros has to be made, nor a value written only to be gathered from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from shardc.hlo.ir.build import binary_computation
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import broadcast_scalar, constant, make, reshape, splat_source
from shardc.hlo.ir.opset import OPS
from shardc.hlo.ir.types import DTYPES, array_shape

__all__ = ["gather_by_rows", "scatter_by_rows"]


def gather_by_rows(i: Instruction) -> Instruction | None:
    """A gather of one element per row as a sum over the row of all but that element; None for other gathers."""
    if i.opcode != "gather" or not (i.shape.dtype.is_float or i.shape.dtype.is_integer):
        return None
    x, indices = i.operands
    a = i.attrs
    if any(n != 1 for n in a["slice_sizes"]) or any(i.shape.dims[d] != 1 for d in a["offset_dims"]):
        return None
    pairs = (a.get("operand_batching_dims", ()), a.get("start_indices_batching_dims", ()))
    rows = _rows(x, indices, a["start_index_map"], a["index_vector_dim"], *pairs)
    if rows is None or rows.size != i.shape.size:
        return None
    # Gathers clamp their indices. Minus zero is neutral for floats; other types have one zero only.
    last = _scalar(x.shape.dims[rows.along] - 1, indices, i)
    low, high = (broadcast_scalar(c, indices.shape.dims, i) for c in (_scalar(0, indices, i), last))
    clamped = make("clamp", indices.shape.plain, (low, indices, high), i)
    nothing = constant(Literal.full(array_shape(i.shape.dtype), -0.0 if i.shape.dtype.is_float else 0), i)
    taken = make(
        "select", x.shape.plain, (rows.holds(clamped, i), x, broadcast_scalar(nothing, x.shape.dims, i)), i
    )  # fmt: skip
    shape = array_shape(i.shape.dtype, *(n for d, n in enumerate(x.shape.dims) if d != rows.along))
    reducer = binary_computation("add", i.shape.dtype)
    total = make("reduce", shape, (taken, nothing), i, dimensions=(rows.along,), to_apply=reducer)
    return reshape(total, i.shape.dims, i)


def scatter_by_rows(i: Instruction) -> Instruction | None:
    """A scatter of one element per row into equal elements as a selection; None for other scatters."""
    if i.opcode != "scatter" or len(i.operands) != 3 or not i.shape.is_array:
        return None
    ground, indices, updates = i.operands
    a = i.attrs
    source = splat_source(ground)
    if source is None or any(updates.shape.dims[d] != 1 for d in a["update_window_dims"]):
        return None
    pairs = (a.get("input_batching_dims", ()), a.get("scatter_indices_batching_dims", ()))
    rows = _rows(ground, indices, a["scatter_dims_to_operand_dims"], a["index_vector_dim"], *pairs)
    new = None if rows is None or rows.size != updates.shape.size else _combined(i, source, updates)
    if rows is None or new is None:
        return None
    return make("select", i.shape.plain, (rows.holds(indices, i), rows.spread(new, i), ground), i)


def _combined(i: Instruction, ground: Instruction, updates: Instruction) -> Instruction | None:
    """What a scatter writes where it writes."""
    reducer = i.attrs["to_apply"]
    root, (old, new) = reducer.root, reducer.parameters
    if root is new:
        return updates
    if OPS[root.opcode].family != "elementwise" or root.attrs or not {*root.operands} <= {old, new}:
        return None
    values = {old: broadcast_scalar(ground, updates.shape.dims, i), new: updates}
    return make(root.opcode, updates.shape.plain, (values[o] for o in root.operands), i)


def _scalar(value: int, indices: Instruction, like: Instruction) -> Instruction:
    return constant(Literal.full(array_shape(indices.shape.dtype), value), like)


@dataclass(frozen=True, slots=True)
class _RowIndices:
    """Rows of an array of ``dims`` run along dimension ``along``; there is one index for each."""

    dims: tuple[int, ...]
    along: int

    @property
    def size(self) -> int:
        return math.prod(n for d, n in enumerate(self.dims) if d != self.along)

    def spread(self, value: Instruction, like: Instruction) -> Instruction:
        """One element per row, in the order of rows, at all positions of its row."""
        others = tuple(d for d in range(len(self.dims)) if d != self.along)
        flat = reshape(value, tuple(self.dims[d] for d in others), like)
        return make("broadcast", value.shape.plain.with_dims(self.dims), (flat,), like, dimensions=others)

    def holds(self, indices: Instruction, like: Instruction) -> Instruction:
        """Whether each position is the one that its row's index names."""
        spread = self.spread(indices, like)
        position = make("iota", spread.shape, (), like, iota_dimension=self.along)
        shape = array_shape("pred", *self.dims)
        return make("compare", shape, (position, spread), like, direction="EQ")


def _rows(
    x: Instruction,
    indices: Instruction,
    named: tuple[int, ...],
    vector_dim: int,
    batch: tuple[int, ...],
    index_batch: tuple[int, ...],
) -> _RowIndices | None:
    """The rows that indices name one element of each: all other dimensions are batch dimensions, in the same order."""
    dims = x.shape.dims
    if len(named) != 1 or 0 in dims or not _counts(indices, dims[named[0]]):
        return None
    others = [d for d in range(len(dims)) if d != named[0] and dims[d] != 1]
    of: Mapping[int, int] = dict(zip(batch, index_batch, strict=True))
    if any(d not in of for d in others):
        return None
    run = [k for k, n in enumerate(indices.shape.dims) if n != 1]
    return _RowIndices(dims, named[0]) if run == [of[d] for d in others] and vector_dim not in run else None


def _counts(indices: Instruction, size: int) -> bool:
    """Whether the type of the indices, which may not be u64, can count ``size`` positions."""
    dtype = indices.shape.dtype
    return dtype is not DTYPES["u64"] and size <= 1 << (dtype.bits - (1 if dtype.kind == "signed" else 0))
