"""``x[index]`` and ``x[index] = value``: slices as views, integers known or traced, arrays of positions, masks.

An index is brought to a plan: slices first (a view), then, where there are arrays of positions, one gather or scatter
over the dimensions that they index. Positions count from the end where they are negative; positions outside are
clamped in a read; a write drops those of arrays of positions, and clamps a single one (NumPy raises an error, which a
compiled program cannot).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardc.hlo.ir.build import Builder, binary_computation
from shardc.hlo.ir.types import array_shape
from shardc.hlo.numpy.masked import Masked
from shardc.hlo.numpy.recorder import Trace
from shardc.hlo.numpy.tracer import NP, Tracer, _getitem, _setitem
from shardc.hlo.numpy.values import broadcast, constant, convert, emit, full, lift, refuse, reshape, slice_ranges

__all__ = ["FUNCTIONS", "scatter_with"]


@dataclass(frozen=True, slots=True)
class _Slices:
    """The basic part of an index: per dimension of the base (start, stop, step) with positive steps, which dimensions
    are reversed after that, and the shape that integers (dropped) and newaxis (added) leave."""

    ranges: tuple[tuple[int, int, int], ...]
    reversed: tuple[int, ...]
    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _IndexPlan:
    """What an index asks: the basic ``slices``, an equal ``basic`` index item by item, then ``advanced`` positions by
    dimension of what the slices give, and where the positions' dimensions stand in the result."""

    slices: _Slices
    basic: tuple[Any, ...]
    advanced: tuple[tuple[int, Any], ...]
    place: int


def _items(x: Tracer, index: Any) -> list[Any]:
    """The index, one item per dimension or new axis (or an ellipsis of none); a known mask becomes its positions, a
    traced one stays."""
    items = [_item(x, i) for i in _as_tuple(index)]
    used = sum(_width(i) for i in items)
    if used > x.ndim:
        raise IndexError(f"too many indices for array: array is {x.ndim}-dimensional, but {used} were indexed")
    if sum(1 for i in items if i is Ellipsis) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    place = next((k for k, i in enumerate(items) if i is Ellipsis), len(items))
    made: list[Any] = []
    d = 0
    middle = [slice(None)] * (x.ndim - used) or items[place : place + 1]  # An empty one still separates arrays.
    for item in [*items[:place], *middle, *items[place + 1 :]]:
        if _is_mask(item) and item.shape != x.shape[d : d + item.ndim]:
            raise IndexError(f"boolean index of shape {item.shape} did not match indexed array of shape {x.shape}")
        made += np.nonzero(item) if _is_mask(item) and not isinstance(item, Tracer) else [item]
        d += _width(item)
    return made


def _as_tuple(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def _item(x: Tracer, item: Any) -> Any:
    """Lists as arrays, integers and bools as Python's."""
    if isinstance(item, (list, tuple)):
        item = np.asarray(item) if _plain(item) else lift(x, item)
        return item.astype(np.int64) if isinstance(item, np.ndarray) and not item.size else item
    if isinstance(item, np.bool):
        return bool(item)
    if isinstance(item, np.ndarray) and not item.ndim:
        return bool(item) if item.dtype == bool else operator.index(item[()])
    return item


def _plain(value: Any) -> bool:
    return not isinstance(value, Tracer) and (not isinstance(value, (list, tuple)) or all(_plain(v) for v in value))


def _width(item: Any) -> int:
    """How many dimensions of the base an item takes."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    return item.ndim if _is_mask(item) else 1


def _is_mask(item: Any) -> bool:
    return isinstance(item, (Tracer, np.ndarray)) and item.dtype == np.bool


def _is_whole(item: Any) -> bool:
    return item is Ellipsis or (isinstance(item, slice) and item == slice(None))


def _plan(x: Tracer, items: Sequence[Any]) -> _IndexPlan:
    ranges: list[tuple[int, int, int]] = []
    turned: list[int] = []
    dims: list[int] = []
    basic: list[Any] = []
    advanced: list[tuple[int, Any]] = []
    kinds: list[bool] = []
    arrays = any(isinstance(i, (Tracer, np.ndarray)) for i in items)
    d = 0
    for item in items:
        kinds.append(isinstance(item, (Tracer, np.ndarray)) or (arrays and _is_integer(item)))  # False for ...
        if item is Ellipsis:
            continue
        if item is None:
            dims.append(1)
            basic.append(None)
            continue
        n = x.shape[d]
        if kinds[-1]:
            advanced.append((len(dims), _positions(x, item, n)))
            ranges.append((0, n, 1))
            dims.append(n)
            basic.append(slice(None))
        elif isinstance(item, slice):
            start, stop, step = _range(item, n, x)
            count = len(range(start, stop, step))
            dims.append(count)
            basic.append(item)
            if step < 0:
                turned.append(d)
                start, step = (start + (count - 1) * step, -step) if count else (0, 1)
            ranges.append((start, start + (count - 1) * step + 1 if count else start, step))
        else:
            k = _known_index(x, item, n)
            ranges.append((k, k + 1, 1))
            basic.append(k)
        d += 1
    places = [k for k, is_advanced in enumerate(kinds) if is_advanced]
    together = not places or places == list(range(places[0], places[-1] + 1))
    place = advanced[0][0] if advanced and together else 0
    return _IndexPlan(_Slices(tuple(ranges), tuple(turned), tuple(dims)), tuple(basic), tuple(advanced), place)


def _is_integer(item: Any) -> bool:
    return isinstance(item, (int, np.integer)) and not isinstance(item, bool)


def _range(item: slice, n: int, x: Tracer) -> tuple[int, int, int]:
    if any(isinstance(v, Tracer) for v in (item.start, item.stop, item.step)):
        refuse(
            x,
            "a slice with traced bounds: the result's shape depends on values",
            "use np.take(x, start + np.arange(length)) for a fixed length, or np.where with a mask of positions",
        )
    return item.indices(n)


def _known_index(x: Tracer, item: Any, n: int) -> int:
    try:
        k = operator.index(item)
    except TypeError:
        raise IndexError(
            "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays are "
            f"valid indices, not {type(item).__name__}"
        ) from None
    if not -n <= k < n:
        raise IndexError(f"index {k} is out of bounds for axis with size {n}")
    return k % n


def _positions(x: Tracer, item: Any, n: int) -> Any:
    """Positions from 0 on: known ones checked, traced ones wrapped where negative."""
    if isinstance(item, Tracer):
        if not item.aval.dtype.is_integer:
            raise IndexError("arrays used as indices must be of integer (or boolean) type")
        wide = convert(item, np.int64)
        zero, size = full(x, wide.shape, 0, np.int64), full(x, wide.shape, n, np.int64)
        negative = emit("compare", wide, zero, direction="LT")
        return emit("select", negative, emit("add", wide, size), wide)
    known = np.asarray(item)
    if known.dtype.kind not in "iu":
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    if known.size and (known.min() < -n or known.max() >= n):
        raise IndexError(f"index {int(known.min() if known.min() < -n else known.max())} is out of bounds for size {n}")
    return NP.where(known < 0, known + n, known).astype(np.int64)


# The basic part: a view.


def _read_slices(x: Tracer, s: _Slices) -> Tracer:
    made = slice_ranges(x, s.ranges)
    if s.reversed:
        made = emit("reverse", made, dimensions=s.reversed)
    return reshape(made, s.dims)


def _write_slices(x: Tracer, s: _Slices, new: Tracer) -> Tracer:
    """``x`` with ``new`` in place of the slices."""
    counts = tuple(len(range(*r)) for r in s.ranges)
    part = reshape(new, counts)
    if s.reversed:
        part = emit("reverse", part, dimensions=s.reversed)
    if counts == x.shape:
        return part
    if 0 in counts:
        return x
    if all(step == 1 or n == 1 for (_, _, step), n in zip(s.ranges, counts, strict=True)):
        starts = [constant(x, start, np.int32) for start, _, _ in s.ranges]
        if x.instruction.operands == (*x.instruction.operands[:1], part.instruction, *(s.instruction for s in starts)):
            return x  # ``x[i] += y`` writes twice: ``+=``, and then ``x[i] = ``.
        return emit("dynamic-update-slice", x, part, *starts)
    padding = tuple(
        (start, n - start - ((count - 1) * step + 1), step - 1)
        for (start, _, step), n, count in zip(s.ranges, x.shape, counts, strict=True)
    )
    spread = emit("pad", part, constant(x, np.zeros((), x.dtype)), padding=padding)
    mask = emit("pad", full(x, counts, True), constant(x, np.False_), padding=padding)
    return emit("select", mask, spread, x)


def _basic_view(x: Tracer, plan: _IndexPlan) -> Tracer:
    s = plan.slices
    made = Tracer(x.recorder, _read_slices(x, s).instruction)
    return made.as_view(
        x,
        lambda base: _read_slices(base, s),
        lambda base, new: _write_slices(base, s, new),
        x.layout.index(plan.basic),
        s,
    )


# The advanced part: one gather or scatter.


def _vectors(x: Tracer, plan: _IndexPlan) -> tuple[Tracer, tuple[int, ...]]:
    """Index vectors over the broadcast dimensions of all positions, last dimension the vector."""
    known = all(isinstance(p, np.ndarray) for _, p in plan.advanced)
    try:
        dims = np.broadcast_shapes(*(p.shape for _, p in plan.advanced))
    except ValueError as e:
        raise IndexError(f"shape mismatch: indexing arrays could not be broadcast together: {e}") from None
    if known:
        stacked = NP.stack([NP.broadcast_to(p, dims) for _, p in plan.advanced], axis=-1)
        return constant(x, stacked), dims
    parts = [reshape(broadcast(lift(x, p), dims), (*dims, 1)) for _, p in plan.advanced]
    return parts[0] if len(parts) == 1 else emit("concatenate", *parts, dimensions=(len(dims),)), dims


def _window(plan: _IndexPlan, rank: int, batch: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Dimensions of the operand that are indexed, and those of the result that come from the others."""
    indexed = tuple(d for d, _ in plan.advanced)
    rest = rank - len(indexed)
    result = [k for k in range(batch + rest) if not plan.place <= k < plan.place + batch]
    return indexed, tuple(result)


def _gather(x: Tracer, plan: _IndexPlan) -> Tracer:
    vectors, dims = _vectors(x, plan)
    indexed, window = _window(plan, x.ndim, len(dims))
    if 0 in [x.shape[d] for d in indexed]:
        rest = iter([n for d, n in enumerate(x.shape) if d not in indexed])
        batch = iter(dims)
        made = [next(rest) if k in window else next(batch) for k in range(len(window) + len(dims))]
        return full(x, made, 0, x.dtype)
    if not dims:
        return _dynamic_slice(x, vectors, indexed)
    sizes = tuple(1 if d in indexed else n for d, n in enumerate(x.shape))
    return emit(
        "gather",
        x,
        vectors,
        offset_dims=window,
        collapsed_slice_dims=tuple(sorted(indexed)),
        start_index_map=indexed,
        index_vector_dim=len(dims),
        slice_sizes=sizes,
    )


def _starts(x: Tracer, vector: Tracer, indexed: tuple[int, ...]) -> list[Tracer]:
    """One scalar start per dimension from one index vector."""
    zero = constant(x, 0, np.int64)
    parts = {d: reshape(slice_ranges(vector, [(k, k + 1, 1)]), ()) for k, d in enumerate(indexed)}
    return [parts.get(d, zero) for d in range(x.ndim)]


def _dynamic_slice(x: Tracer, vector: Tracer, indexed: tuple[int, ...]) -> Tracer:
    sizes = tuple(1 if d in indexed else n for d, n in enumerate(x.shape))
    made = emit("dynamic-slice", x, *_starts(x, vector, indexed), dynamic_slice_sizes=sizes)
    return reshape(made, tuple(n for d, n in enumerate(x.shape) if d not in indexed))


def _scatter(x: Tracer, plan: _IndexPlan, value: Tracer, opcode: str = "") -> Tracer:
    """``x`` with ``value`` (of any shape that broadcasts) put at the positions, or combined there by ``opcode``."""
    vectors, dims = _vectors(x, plan)
    indexed, window = _window(plan, x.ndim, len(dims))
    rest, batch = iter([n for d, n in enumerate(x.shape) if d not in indexed]), iter(dims)
    whole = tuple(next(rest) if k in window else next(batch) for k in range(len(window) + len(dims)))
    update = broadcast(value, whole)
    if 0 in whole:
        return x
    if not dims and not opcode:
        spread = reshape(update, tuple(1 if d in indexed else n for d, n in enumerate(x.shape)))
        return emit("dynamic-update-slice", x, spread, *_starts(x, vectors, indexed))
    name = x.recorder.unique_name(opcode or "put")
    body = binary_computation(opcode, x.aval.dtype, name) if opcode else _second(x, name)
    return emit(
        "scatter",
        x,
        vectors,
        update,
        update_window_dims=window,
        inserted_window_dims=tuple(sorted(indexed)),
        scatter_dims_to_operand_dims=indexed,
        index_vector_dim=len(dims),
        to_apply=body,
    )


def _second(x: Tracer, name: str) -> Any:
    b = Builder(name)
    b.parameter(array_shape(x.aval.dtype))
    return b.build(b.parameter(array_shape(x.aval.dtype)))


# x[index] and x[index] = value.


def _without_bools(x: Tracer, items: list[Any]) -> tuple[Tracer, list[Any]]:
    """True and False stand for the first position and for none of a new dimension."""
    if not any(isinstance(i, bool) for i in items):
        return x, items
    dims: list[int] = []
    sizes = iter(x.shape)
    for item in items:
        dims += [1] if isinstance(item, bool) else [next(sizes) for _ in range(_width(item))]
    return NP.reshape(x, tuple(dims)), [np.arange(int(i)) if isinstance(i, bool) else i for i in items]


def _prepare(x: Tracer, index: Any) -> tuple[Tracer, _IndexPlan | None, list[Any]]:
    """What is indexed (with a new dimension for a bool), and the plan of the index (None with a mask) or its items."""
    key = _key(index)
    known = None if key is None else x.recorder.plans.get((x.shape, key))
    if known is not None:
        return x, known, []
    x, items = _without_bools(x, _items(x, index))
    if any(_is_mask(i) for i in items):
        return x, None, items
    plan = _plan(x, items)
    if key is not None:
        x.recorder.plans[x.shape, key] = plan
    return x, plan, items


def _key(index: Any) -> tuple[Any, ...] | None:
    """What an index of integers, slices, None and ellipses is known by; None for another."""
    made: list[Any] = []
    for item in _as_tuple(index):
        if type(item) is slice:
            bounds = (item.start, item.stop, item.step)
            if any(b is not None and type(b) is not int for b in bounds):
                return None
            made.append(bounds)
        elif item is None or item is Ellipsis or type(item) is int:
            made.append(item)
        else:
            return None
    return tuple(made)


def _get(recorder: Trace, x: Tracer, index: Any) -> Any:
    x, plan, items = _prepare(x, index)
    if plan is None:
        return _select_masked(x, items)
    item = len(plan.slices.dims) == len(plan.advanced) and not any(i is Ellipsis for i in _as_tuple(index))
    if item and not plan.advanced:
        return Tracer(recorder, _read_slices(x, plan.slices).instruction)
    view = _basic_view(x, plan)
    if not plan.advanced:
        return view
    made = _gather(view, plan)
    if item or any(p.shape for _, p in plan.advanced):
        return made  # A scalar of NumPy's, or a copy: no view.
    places = dict.fromkeys((d for d, _ in plan.advanced), 0)
    layout = view.layout.index([places.get(d, slice(None)) for d in range(view.ndim)])
    return made.as_view(view, lambda base: _gather(base, plan), lambda base, new: _scatter(base, plan, new), layout)


def _select_masked(x: Tracer, items: list[Any]) -> Masked:
    """``x[mask]``, the mask over leading dimensions."""
    made = Masked(x, next(i for i in items if _is_mask(i)))
    if not _is_mask(items[0]) or not all(map(_is_whole, items[1:])):
        made.refuse()
    return made


def _put(recorder: Trace, x: Tracer, index: Any, value: Any) -> None:
    if isinstance(value, Masked):
        masks = [i for i in _items(x, index) if _is_mask(i)]
        if len(masks) != 1:
            value.refuse()
        x.assign(value.put_into(x, masks[0]))
        return
    read_at = value._version if isinstance(value, Tracer) else 0
    if _plain(value):
        with np.errstate(all="ignore"):
            # Python's integers must fit, NaN is no integer, and complex numbers are not real, as in NumPy.
            exact = isinstance(value, int | float | complex | list | tuple) and not isinstance(value, np.generic)
            given = np.asarray(value, x.dtype) if exact else np.asarray(value)
            new = constant(x, given.astype(x.dtype, copy=False))
    else:
        lifted = lift(recorder, value)
        if lifted.weak is complex and not x.aval.dtype.is_complex:
            raise TypeError("float() argument must be a string or a real number, not 'complex'")
        new = convert(lifted, x.dtype)
    x, plan, items = _prepare(x, index)
    if plan is None:
        _put_masked(x, items, new)
    elif plan.advanced:
        view = _basic_view(x, plan)
        view.assign(_scatter(view, plan, _trim(new, view.ndim + 64)))
    else:
        dims = plan.slices.dims
        part = broadcast(_trim(new, len(dims)), dims)
        x.assign_part(plan.slices, _write_slices(x, plan.slices, part), value, read_at)


def _trim(value: Tracer, rank: int) -> Tracer:
    """Leading dimensions of size 1 that the target lacks are dropped, as NumPy does in assignments."""
    extra = max(value.ndim - rank, 0)
    return reshape(value, value.shape[extra:]) if extra and set(value.shape[:extra]) == {1} else value


def _put_masked(x: Tracer, items: list[Any], value: Tracer) -> None:
    """``x[mask] = value``, the mask over some leading dimensions: a select. The value must not depend on the mask."""
    first = next((k for k, i in enumerate(items) if _is_mask(i)), -1)
    others = [i for k, i in enumerate(items) if k != first]
    if first < 0 or not all(map(_is_whole, others)):
        refuse(x, "a traced mask together with other indices", "build one mask over all dimensions and use np.where")
    mask = items[first]
    rest = x.shape[first + mask.ndim :]
    if value.ndim > len(rest) and value.size != 1:
        refuse(
            x,
            "x[mask] = values with one value per selected element: their number depends on the mask",
            "assign a scalar, or use np.where(mask, values_of_the_shape_of_x, x)",
        )
    value = reshape(value, ()) if value.size == 1 else value
    wide = emit(
        "broadcast", mask, shape=array_shape("pred", *x.shape), dimensions=tuple(range(first, first + mask.ndim))
    )
    x.assign(emit("select", wide, broadcast(value, x.shape), x))


def scatter_with(opcode: str, x: Tracer, index: Any, value: Any) -> None:
    """``ufunc.at``: combine into ``x`` at the positions, repeated ones every time."""
    new = convert(lift(x, value), x.dtype)
    x, plan, _ = _prepare(x, index)
    if plan is None:
        refuse(x, "ufunc.at with a mask", "use np.where(mask, f(x), x)")
    view = _basic_view(x, plan)
    if x.aval.dtype.kind == "pred":
        opcode = {"add": "or", "maximum": "or", "multiply": "and", "minimum": "and"}.get(opcode, opcode)
    if plan.advanced:
        view.assign(_scatter(view, plan, new, opcode))
    else:
        view.assign(emit(opcode, view, broadcast(new, view.shape)))


FUNCTIONS: Mapping[Any, Callable[..., Any]] = {_getitem: _get, _setitem: _put}
