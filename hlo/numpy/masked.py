"""`Masked`, the value of ``x[mask]`` with a traced mask: the whole array and its mask, since its size is unknown.

Elementwise arithmetic on such selections under one mask, reductions of them, and their assignment under the same mask
(``x[m] *= 2``, ``z[m] = z[m] ** 2 + c[m]``, ``x[m].mean(0)``) need no shape. All else is refused.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import numpy as np

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import array_shape
from shardc.hlo.numpy.tracer import NP, Tracer
from shardc.hlo.numpy.values import broadcast, convert, emit, normal_axes

__all__ = ["REDUCTIONS", "Masked"]

REDUCTIONS = (np.sum, np.prod, np.mean, np.any, np.all, np.var, np.std, np.max, np.min, np.count_nonzero)
_DEEP = 8


class Masked(np.lib.mixins.NDArrayOperatorsMixin):
    """The elements of ``whole`` where ``mask``, which spans its leading dimensions, is true."""

    __slots__ = ("mask", "place", "whole")
    is_masked = True

    def __init__(self, whole: Tracer, mask: Tracer) -> None:
        self.whole = Tracer(whole.recorder, whole.instruction)
        self.mask = Tracer(mask.recorder, mask.instruction)
        self.place = str(whole.recorder.place())

    def refuse(self, use: str = "") -> NoReturn:
        raise UnsupportedError(
            f"{use}x[mask] with a traced mask: the result's shape depends on values",
            where=str(self.whole.recorder.place()) if use else self.place,
            fix="use np.where(mask, x, other) or np.sum(x, where=mask); x[mask] = value works, and in a traced "
            "function x[mask] *= 2 and x[mask] = y[mask] + z[mask] under one mask",
        )

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.whole.dtype

    def spread_mask(self) -> Tracer:
        """The mask over all dimensions of the array."""
        shape = array_shape("pred", *self.whole.shape)
        return emit("broadcast", self.mask, shape=shape, dimensions=tuple(range(self.mask.ndim)))

    def put_into(self, x: Tracer, mask: Tracer) -> Tracer:
        """``x`` with these elements in place of those under an equal mask."""
        if x.shape != self.whole.shape or not _same(mask.instruction, self.mask.instruction):
            self.refuse()
        return emit("select", self.spread_mask(), convert(self.whole, x.dtype), x)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", (None,))[0]
        if method != "__call__" or kwargs or ufunc.signature or ufunc.nout > 1 or not self._fits(inputs):
            self.refuse(f"np.{ufunc.__name__} of ")
        plain = [i.whole if isinstance(i, Masked) else i for i in inputs]
        made = broadcast(ufunc(*plain), self.whole.shape)
        if out is None:
            return Masked(made, self.mask)
        if not isinstance(out, Masked) or not np.can_cast(made.dtype, out.dtype, "same_kind"):
            raise TypeError(f"Cannot cast ufunc {ufunc.__name__!r} output from {made.dtype!r} to {out.dtype!r}")
        out.whole = convert(made, out.dtype)
        return out

    def _fits(self, inputs: tuple[Any, ...]) -> bool:
        """All selections are under this mask, all else spreads over the dimensions behind it."""
        behind = self.whole.ndim - self.mask.ndim
        return all(
            _same(i.mask.instruction, self.mask.instruction) and i.whole.shape == self.whole.shape
            if isinstance(i, Masked)
            else np.ndim(i) <= behind
            for i in inputs
        )

    def __array_function__(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        given = inspect.signature(func).bind(*args, **kwargs).arguments if func in REDUCTIONS else {}
        if given.pop("a", None) is not self or not {"where", "out"}.isdisjoint(given):
            self.refuse(f"np.{func.__name__} of ")
        if func in (np.max, np.min) and "initial" not in given:
            raise self.whole.refusal(
                f"np.{func.__name__} of x[mask] with a traced mask, which may select no element",
                f"give the result for that case: x[mask].{func.__name__}(initial=...), or np.where(mask, x, ...)",
            )
        chosen = given.pop("axis", None)
        axes = range(self.ndim) if chosen is None else normal_axes(chosen, self.ndim)
        if func is np.count_nonzero:
            return Masked(NP.not_equal(self.whole, 0), self.mask)._reduce(np.sum, axes, given)
        return self._reduce(func, axes, given)

    def _reduce(self, func: Any, axes: Iterable[int], options: dict[str, Any]) -> Any:
        """Over some dimensions of the selection, the first of which are all that the mask spans."""
        behind = self.mask.ndim - 1
        over = tuple(d + behind for d in axes if d)
        if 0 not in axes:
            return Masked(func(self.whole, axis=over, **options), self.mask)
        keep = options.pop("keepdims", False)
        made = func(self.whole, axis=(*range(self.mask.ndim), *over), where=self.spread_mask(), **options)
        return NP.expand_dims(made, tuple(axes)) if keep else made

    @property
    def ndim(self) -> int:
        return self.whole.ndim - self.mask.ndim + 1

    def astype(self, dtype: Any, **options: Any) -> Masked:
        return Masked(self.whole.astype(dtype, **options), self.mask)

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self.refuse("the elements of ")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        self.refuse("pickling of ")

    def __getattr__(self, name: str) -> Any:
        function = getattr(np, name, None)
        if function in REDUCTIONS:
            return functools.partial(function, self)
        if not name.startswith("__"):
            self.refuse(f".{name} of ")
        raise AttributeError(f"x[mask] of a traced value has no attribute {name!r}")

    def __getitem__(self, index: Any) -> NoReturn:
        self.refuse("an index of ")

    def __bool__(self) -> bool:  # noqa: PLE0304 - it raises
        self.refuse("bool() of ")

    def __len__(self) -> int:  # noqa: PLE0303 - it raises
        self.refuse("len() of ")

    def __iter__(self) -> NoReturn:
        self.refuse("a loop over ")


def _same(a: Instruction, b: Instruction, depth: int = 0) -> bool:
    """Whether both instructions surely have the same value."""
    if a is b:
        return True
    if depth > _DEEP or a.opcode != b.opcode or a.shape != b.shape or a.opcode in ("parameter", "custom-call"):
        return False
    pairs = zip(a.operands, b.operands, strict=False)
    equal = len(a.operands) == len(b.operands) and dict(a.attrs) == dict(b.attrs)
    return equal and all(_same(x, y, depth + 1) for x, y in pairs)
