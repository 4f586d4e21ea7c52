"""Element rules of the ops that move data: which operand element each result element is.

Also gathers, slices with run-time starts, constants and iota. See `shardc.compiler.elements.elements`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from shardc.compiler.elements.affine import Expr, InRange, Mask, condition, delinearise, divmod_expr, linear
from shardc.compiler.elements.elements import Answer, ElementRule, Elements, Index
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import Shape

__all__ = ["INDEXING", "start_position", "starts"]


def _broadcast(e: Elements, i: Instruction, index: Index, mask: Mask) -> Answer:
    return e.value(i.operands[0], tuple(index[d] for d in i.attrs["dimensions"]), mask)


def _transpose(e: Elements, i: Instruction, index: Index, mask: Mask) -> Answer:
    source = list(index)
    for position, d in enumerate(i.attrs["dimensions"]):
        source[d] = index[position]
    return e.value(i.operands[0], tuple(source), mask)


def _reshape(e: Elements, i: Instruction, index: Index, mask: Mask) -> Answer:
    operand = i.operands[0]
    if operand in e.leaves:
        return e.leaf(operand, linear(index, i.shape.dims), mask)
    return e.value(operand, reshape_index(e, index, i.shape.dims, operand.shape.dims), mask)


def reshape_index(e: Elements, index: Index, dims: tuple[int, ...], source: tuple[int, ...]) -> Index:
    """The index into ``source`` of an index into ``dims``, by the smallest groups of dimensions of equal product."""
    out: list[Expr] = []
    i = j = 0
    while i < len(dims) or j < len(source):
        left = dims[i] if i < len(dims) else 1
        right = source[j] if j < len(source) else 1
        first, start = j, i
        i, j = min(i + 1, len(dims)), min(j + 1, len(source))
        while left != right:
            if left < right:
                left *= dims[i]
                i += 1
            else:
                right *= source[j]
                j += 1
        position = linear(index[start:i], dims[start:i])
        out.extend(delinearise(e.source, position, source[first:j]) if j > first else ())
    return tuple(out)


def _slice(e: Elements, i: Instruction, index: Index, mask: Mask) -> Answer:
    parts = zip(index, i.attrs["slice"], strict=True)
    return e.value(i.operands[0], tuple(x * stride + start for x, (start, _, stride) in parts), mask)


def _reverse(e: Elements, i: Instruction, index: Index, mask: Mask) -> Answer:
    source = list(index)
    for d in i.attrs["dimensions"]:
        source[d] = Expr(i.shape.dims[d] - 1) - index[d]
    return e.value(i.operands[0], tuple(source), mask)


def _concatenate(e: Elements, i: Instruction, index: Index, mask: Mask) -> Answer:
    d = i.attrs["dimensions"][0]
    start = i.shape.dims[d]
    result: Answer = None
    for operand in reversed(i.operands):
        size = operand.shape.dims[d]
        start -= size
        holds = condition(index[d], start, start + size)
        if holds is False or size == 0:
            continue
        extra = () if holds is True else (holds,)
        value = e.value(operand, (*index[:d], index[d] - start, *index[d + 1 :]), mask + extra)
        result = value if result is None or holds is True else e.choose(extra, value, result)
    return result


def _pad(e: Elements, i: Instruction, index: Index, mask: Mask) -> Answer:
    operand, padding = i.operands
    source: list[Expr] = []
    conditions: list[InRange] = []
    for x, n, (low, _, interior) in zip(index, operand.shape.dims, i.attrs["padding"], strict=True):
        position = x - low
        tests = [condition(position, 0, (n - 1) * (interior + 1) + 1)]
        if interior:
            position, rest = divmod_expr(e.source, position, interior + 1)
            tests.append(condition(rest, 0, 1))
        if n == 0 or any(t is False for t in tests):
            return e.value(padding, ())
        conditions.extend(t for t in tests if isinstance(t, InRange))
        source.append(position)
    value = e.value(operand, tuple(source), (*mask, *conditions))
    return e.choose(conditions, value, e.value(padding, ())) if conditions else value


def _iota(e: Elements, i: Instruction, index: Index, mask: Mask) -> Answer:
    return e.iota(index[i.attrs["iota_dimension"]], i.shape.dtype)


def _constant(e: Elements, i: Instruction, index: Index, mask: Mask) -> Answer:
    literal = i.attrs["literal"]
    if literal.is_splat:
        return e.constant(literal.splat, i.shape.dtype)
    return e.table(i, linear(index, i.shape.dims), mask)


def starts(e: Elements, i: Instruction, first: int, dims: tuple[int, ...], sizes: tuple[int, ...]) -> Index:
    """Run-time starts (scalars, or one vector), clamped so that the slice fits."""
    operands = i.operands[first:]
    out: list[Expr] = []
    for d, (n, size) in enumerate(zip(dims, sizes, strict=True)):
        vector = len(operands) == 1 and operands[0].shape.rank == 1
        start, at = (operands[0], (Expr(d),)) if vector else (operands[d], ())
        out.append(e.load_index(start, at, (), 0, n - size + 1))
    return tuple(out)


def _dynamic_slice(e: Elements, i: Instruction, index: Index, mask: Mask) -> Answer:
    operand = i.operands[0]
    begin = starts(e, i, 1, operand.shape.dims, i.attrs["dynamic_slice_sizes"])
    return e.value(operand, tuple(x + s for x, s in zip(index, begin, strict=True)), mask)


def _dynamic_update_slice(e: Elements, i: Instruction, index: Index, mask: Mask) -> Answer:
    operand, update = i.operands[:2]
    if update.shape.size == 0:
        return e.value(operand, index, mask)
    begin = starts(e, i, 2, operand.shape.dims, update.shape.dims)
    inside = tuple(x - s for x, s in zip(index, begin, strict=True))
    tests = [
        True if n == size else condition(x, 0, size)
        for x, n, size in zip(inside, operand.shape.dims, update.shape.dims, strict=True)
    ]
    conditions = tuple(t for t in tests if isinstance(t, InRange))
    new = e.value(update, inside, mask + conditions)
    return e.choose(conditions, new, e.value(operand, index, mask)) if conditions else new


def _gather(e: Elements, i: Instruction, index: Index, mask: Mask) -> Answer:
    operand, indices = i.operands
    a = i.attrs
    offsets = a["offset_dims"]
    batch = [x for d, x in enumerate(index) if d not in offsets]
    inner = [index[d] for d in offsets]
    sizes = a["slice_sizes"]
    removed = {*a["collapsed_slice_dims"], *a.get("operand_batching_dims", ())}
    window = iter(inner)
    source = [Expr() if d in removed else next(window) for d in range(operand.shape.rank)]
    for component, d in enumerate(a["start_index_map"]):
        at = start_position(batch, component, a["index_vector_dim"], indices.shape)
        source[d] = source[d] + e.load_index(indices, at, mask, 0, operand.shape.dims[d] - sizes[d] + 1)
    pairs = zip(a.get("operand_batching_dims", ()), a.get("start_indices_batching_dims", ()), strict=True)
    for d, from_dim in pairs:
        source[d] = batch[from_dim - (1 if from_dim > a["index_vector_dim"] else 0)]
    return e.value(operand, tuple(source), mask)


def start_position(batch: list[Expr], component: int, vector_dim: int, shape: Shape) -> Index:
    """Where the start index number ``component`` of a batch position lies in the indices operand."""
    if vector_dim == shape.rank:
        return tuple(batch)
    return (*batch[:vector_dim], Expr(component), *batch[vector_dim:])


def _get_element(e: Elements, i: Instruction, index: Index, mask: Mask) -> Answer:
    operand = i.operands[0]
    if operand in e.leaves:
        raise UnsupportedError("get-tuple-element of a kernel's operand is not supported", where=f"%{i.name}")
    return e.value(operand, index, mask)[i.attrs["index"]]


def _bitcast(e: Elements, i: Instruction, index: Index, mask: Mask) -> Answer:
    if i.operands[0].shape.dtype is not i.shape.dtype:
        raise UnsupportedError("bitcast cannot change the element type", where=f"%{i.name}", fix="use bitcast-convert")
    return _reshape(e, i, index, mask)


INDEXING: Mapping[str, ElementRule] = MappingProxyType(
    {
        "broadcast": _broadcast,
        "transpose": _transpose,
        "reshape": _reshape,
        "bitcast": _bitcast,
        "slice": _slice,
        "reverse": _reverse,
        "concatenate": _concatenate,
        "pad": _pad,
        "iota": _iota,
        "constant": _constant,
        "dynamic-slice": _dynamic_slice,
        "dynamic-update-slice": _dynamic_update_slice,
        "gather": _gather,
        "get-tuple-element": _get_element,
    }
)
