"""`call`: one call of NumPy with sharded arrays, done by a program that is compiled once for calls like it.

Arrays that a call changes in place (``out=``, ``x[0] = 1``, ``np.copyto``) get their new shards afterwards, in the
memory of the old ones where nobody else has it. What is a view in NumPy is one here: a program reads it from its base,
and writes through it.
"""

from __future__ import annotations

import logging
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shardc.hlo.errors import InputError, Location, UnsupportedError
from shardc.hlo.masked_arrays import refuse_masked
from shardc.hlo.numpy.recorder import user_line
from shardc.hlo.numpy.swaps import Moved
from shardc.hlo.numpy.trace_call import CallResult, Number
from shardc.hlo.numpy.tracer import Tracer
from shardc.hlo.numpy.tree import flatten, unflatten
from shardc.launcher.arrays.sharded_array import ShardedArray
from shardc.launcher.operations.check_positions import check_positions
from shardc.launcher.operations.encoding import Encoded, encode_static
from shardc.launcher.operations.operation import ArrayOperation, LeafKind, find_operation
from shardc.launcher.operations.operations_array import OperationsArray
from shardc.launcher.operations.selection import OnSelections, Selection, put_each, select

__all__ = ["assign_part", "call"]

log = logging.getLogger("shardc")

#: Ufuncs for which an integer is more than a value: x ** 2 is a product.
_OF_INTEGERS = frozenset({np.power, np.float_power, np.left_shift, np.right_shift, np.ldexp})
#: What messages of tracing say, and what they say outside of traced functions.
_TRACED, _ON_SHARDS = " is not supported in a traced function", " cannot be computed from shards"
#: Lists of so many numbers and more are values of a call, not part of what is compiled.
_LONG = 64


def call(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """``function(*args, **kwargs)``, a function of NumPy or of arrays, on the devices of the shards. In a job all
    processes must make the same calls. NumPy computes unsupported functions from the whole values, if this process
    holds them. Raises NumPy's errors.
    """
    if any(isinstance(a, Tracer) for a in args):
        return NotImplemented
    if isinstance(function, np.ufunc):
        if (plain := _of_scalars(function, args, kwargs)) is not None:
            return plain[0]
        if any(x is args[0] and not x.ndim for x in kwargs.get("out", ())):
            kwargs = {k: v for k, v in kwargs.items() if k != "out"}  # s += 1 binds a scalar's name anew.
    elif function in (np.may_share_memory, np.shares_memory):
        return _shares_memory(function, *args)
    check_positions(function, args, kwargs)
    try:
        return _call_on_shards(function, args, kwargs)
    except UnsupportedError as refused:
        return _call_on_whole_values(function, args, kwargs, refused)


def assign_part(base: OperationsArray, key: Any, value: Any) -> None:
    """``base[key] = value``; `InputError` for the second half of a swap of two views."""
    if isinstance(value, float) and base.dtype.kind in "iu":
        int(value)  # NumPy's errors for NaN and infinity
    view = value.view_of if isinstance(value, OperationsArray) else None
    if view is None:
        call(operator.setitem, (base, key, value), {})
        return
    encoding = _Encoding(operator.getitem, through=True)
    place = (operator.getitem, encoding.encode((base, key), {}), 0)
    inside = view[0] is encoding.leaves[0]
    if inside and view[1] == place:
        return  # An assignment to the view itself has already been made.
    if inside and (moved := getattr(view[0], "moved", None)) is not None:
        moved.check(view[0].version, view[1], value.read_at, place, None)
    call(operator.setitem, (base, key, value), {})
    if inside:
        view[0].moved = Moved(view[0].version, place, view[1])


def _shares_memory(function: Any, a: Any, b: Any, max_work: Any = None) -> bool:
    """Whether a change of ``a`` may show in ``b``: whether they are views of one array, or that array itself."""
    roots = [x.view_of[0] if isinstance(x, OperationsArray) and x.view_of else x for x in (a, b)]
    if roots[0] is not roots[1]:
        return False
    if function is np.shares_memory and not any(x is roots[0] for x in (a, b)):
        raise UnsupportedError(
            "np.shares_memory of two views of a sharded array is not supported",
            where=Location(*user_line()),
            fix="use np.may_share_memory, which is true for them",
        )
    return bool(np.size(a) and np.size(b))


def _of_scalars(function: np.ufunc, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any] | None:
    """A ufunc of arrays without dimensions: every process has them, and computes for itself, as NumPy does."""
    if "out" in kwargs or not all(
        (not a.ndim and a._layout.whole and not a._layout.maximal)
        if isinstance(a, ShardedArray)
        else np.isscalar(a) and not isinstance(a, (str, bytes))
        for a in args
    ):
        return None
    return (function(*(np.asarray(a)[()] if isinstance(a, ShardedArray) else a for a in args), **kwargs),)


def _call_on_shards(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """By a program; numbers are values of the call where the function can be traced with such."""
    encoding = _Encoding(function)
    try:
        return _run(encoding, args, kwargs)
    except (UnsupportedError, TypeError):
        if not any(isinstance(k, Number) for k in encoding.kinds):
            raise
    return _run(_Encoding(function, numbers=False), args, kwargs)


def _run(encoding: _Encoding, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    encoded = encoding.encode(args, kwargs)
    found = encoding.find(encoded)
    copies = {n for n, source in enumerate(encoding.sources) if source is not encoding.leaves[n]}
    if copies.intersection(found.traced.changed) or (copies and any(r.what == "view" for r in found.traced.results)):
        # It writes into a view of which a copy was at hand, or makes a view of that copy.
        encoding = _Encoding(encoding.function, encoding.numbers, through=True)
        encoded = encoding.encode(args, kwargs)
        found = encoding.find(encoded)
    traced = found.traced
    made = found(encoding.leaves) if traced.module is not None else []
    for number, new in zip(traced.changed, made[len(made) - len(traced.changed) :], strict=True):
        _change(encoding.leaves[number], new)
    results = [encoding.result(n, r, encoded, made) for n, r in enumerate(traced.results)]
    return unflatten(traced.tree, iter(results))


def _change(changed: Any, new: ShardedArray) -> None:
    if isinstance(changed, OperationsArray):
        changed.become(new)
    else:
        changed[...] = np.asarray(new)


def _call_on_whole_values(
    function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], refused: UnsupportedError
) -> Any:
    """By NumPy, of the whole values; they are read-only, so that nothing is changed that nobody sees."""

    def whole(x: Any) -> Any:
        if not isinstance(x, ShardedArray | Selection):
            return x
        value = np.asarray(x)
        value.flags.writeable = False
        return value

    leaves, tree = flatten((list(args), dict(kwargs)))
    try:
        given, named = unflatten(tree, map(whole, leaves))
    except InputError:
        if function in (operator.getitem, operator.setitem) and _is_mask(args[1]):
            return _call_under_mask(function, *args)
        raise UnsupportedError(
            f"{refused.what.replace(_TRACED, _ON_SHARDS)}, and this process holds only a part of its arguments",
            where=refused.where or Location(*user_line()),
            fix=f"{refused.fix}; or let NumPy compute it from whole values: call shardc.gather(x) on every rank",
        ) from refused
    if function is operator.setitem:
        # NumPy assigns to a copy, which then takes the array's place.
        base, key, value = given
        changed = np.array(base)
        changed[key] = value
        return _call_on_shards(operator.setitem, (args[0], ..., changed), {})
    log.debug("%s is computed by NumPy, of whole values: %s", getattr(function, "__name__", function), refused.what)
    try:
        return function(*given, **named)
    except ValueError as e:
        if "read-only" in str(e):
            what = refused.what.replace(_TRACED, _ON_SHARDS)
            raise UnsupportedError(what, where=refused.where, fix=refused.fix) from None
        raise


def _call_under_mask(function: Any, x: Any, mask: Any, *value: Any) -> Any:
    """``x[mask]`` and ``x[mask] = value`` of what is split over processes."""
    if isinstance(mask, np.ndarray):  # All processes know which elements these are.
        return _call_on_shards(function, (x, mask.nonzero(), *value), {})
    return put_each(x, mask, *value) if value else select(x, mask)


def _is_mask(key: Any) -> bool:
    return isinstance(key, OperationsArray | np.ndarray) and key.dtype == bool and key.ndim > 0


@dataclass
class _Encoding:
    """The arguments of a call of ``function``, apart: ``leaves`` are the arrays and numbers that its program is given.

    Numbers are such unless ``numbers`` is false. Views are read from their bases: those that were computed already
    are taken as they are, but not where the call is to write ``through`` them. ``sources`` are the arrays that stand
    in the call for the leaves.
    """

    function: Any
    numbers: bool = True
    through: bool = False
    leaves: list[Any] = field(default_factory=list)
    sources: list[Any] = field(default_factory=list)
    kinds: list[LeafKind | Number] = field(default_factory=list)
    views: list[Any] = field(default_factory=list)
    _numbers_of: dict[int, int] = field(default_factory=dict)
    _integers: Sequence[np.dtype[Any]] = ()

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Encoded:
        function = self.function.function if isinstance(self.function, OnSelections) else self.function
        given = [getattr(a, "dtype", None) for a in args]
        self._integers = [t for t in given if isinstance(t, np.dtype) and t.kind in "iu"]
        values = isinstance(function, np.ufunc) and function not in _OF_INTEGERS
        positional = tuple(
            self._encoded(a, values or (self.function is operator.setitem and n == 2)) for n, a in enumerate(args)
        )
        named = tuple(self._encoded(v, False) for v in kwargs.values())
        return "tuple", tuple, (("list", positional), ("dict", tuple(kwargs), named))

    def find(self, encoded: Encoded) -> ArrayOperation:
        arrays = [x for x in self.leaves if isinstance(x, ShardedArray)]
        if not arrays:
            raise UnsupportedError("the call has no array argument")
        first = arrays[0]
        kind = first.operations_type if isinstance(first, OperationsArray) else type(first)
        return find_operation(self.function, encoded, tuple(self.kinds), first._transport, kind)

    def result(self, place: int, result: CallResult, encoded: Encoded, made: Sequence[Any]) -> Any:
        if result.what == "result":
            return made[result.number]
        if result.what == "argument":
            return self.sources[result.number]
        if result.what == "given view":
            return self.views[result.number]
        if result.what == "value":
            return result.value
        base, shape = self.leaves[0], result.shape
        assert isinstance(base, OperationsArray)
        assert shape is not None
        return base.make_view((self.function, encoded, place), shape.dims, shape.dtype.numpy)

    def _encoded(self, value: Any, integers: bool) -> Encoded:
        if isinstance(value, OperationsArray):
            return self._array(value)
        if isinstance(value, Selection):
            return "selection", self._array(value.whole)[1], self._array(value.mask)[1]
        if isinstance(value, slice):
            return "slice", tuple(self._encoded(v, False) for v in (value.start, value.stop, value.step))
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            return "tuple", tuple, tuple(self._encoded(v, False) for v in value)
        if type(value) is list:
            if len(value) >= _LONG and np.asarray(value).dtype.kind in "iufcb":
                return self._leaf(value, np.asarray(value))
            return "list", tuple(self._encoded(v, False) for v in value)
        if self.numbers and self._is_value(value, integers):
            kind = next((t for t in (int, float, complex) if type(value) is t), None)
            return self._leaf(value, value, None if kind is None else Number(kind))
        if isinstance(value, dict):
            return "dict", tuple(value), tuple(self._encoded(v, False) for v in value.values())
        if isinstance(value, type):  # an element type, such as np.float32, which has an array's attributes
            return encode_static(value)
        if isinstance(value, np.ndarray) or (hasattr(value, "__array__") and hasattr(value, "dtype")):
            refuse_masked(value)
            return encode_static(value) if isinstance(value, np.generic) else self._leaf(value, np.asarray(value))
        return encode_static(value)

    def _is_value(self, value: Any, integers: bool) -> bool:
        if isinstance(value, bool | np.bool_) or (isinstance(value, float) and math.isinf(value)):
            return False  # infinity is a choice, as in np.linalg.norm(x, np.inf)
        return isinstance(value, float | complex | np.inexact) or (
            integers and isinstance(value, int | np.integer) and self._fits(value)
        )

    def _fits(self, value: Any) -> bool:
        """NumPy wants Python's integers to fit arrays of integers, and says so while tracing."""
        limits = [np.iinfo(t) for t in (np.dtype(np.int64), *self._integers)]
        return all(i.min <= value <= i.max for i in limits)

    def _array(self, value: OperationsArray) -> Encoded:
        if value.view_of is not None and (self.through or not value.take_computed()):
            base, made_by = value.view_of
            self.views.append(value)
            return "view", self._leaf(base, base)[1], made_by
        return self._leaf(value, value.computed())

    def _leaf(self, source: Any, value: Any, kind: Number | None = None) -> Encoded:
        number = self._numbers_of.setdefault(id(source), len(self.leaves)) if kind is None else len(self.leaves)
        if number == len(self.leaves):
            self.sources.append(source)
            self.leaves.append(value)
            self.kinds.append(kind or _kind_of(value))
        return "leaf", number


def _kind_of(value: Any) -> LeafKind:
    if isinstance(value, ShardedArray):
        return LeafKind(value.shape, value.dtype, value.sharding)
    plain = np.asarray(value)
    return LeafKind(plain.shape, plain.dtype)
