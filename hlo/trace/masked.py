"""``x[mask]`` with a traced mask: elements whose number is not known, kept as the whole array and its mask.

Elementwise arithmetic on such selections under one mask, reductions of them, and their assignment under the same mask
(``x[m] *= 2``, ``z[m] = z[m] ** 2 + c[m]``, ``x[m].sum()``) need no shape. All else is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir import Instruction
from shardc.hlo.trace.tracer import NP, Tracer
from shardc.hlo.trace.values import broadcast, convert, emit
from shardc.hlo.types import array_shape

__all__ = ["Masked"]

_REDUCTIONS = (np.sum, np.prod, np.mean, np.any, np.all, np.var, np.std, np.count_nonzero)
_DEEP = 8


class Masked(np.lib.mixins.NDArrayOperatorsMixin):
    """The elements of ``whole`` where ``mask``, which spans its leading dimensions, is true."""

    __slots__ = ("mask", "place", "whole")
    is_masked = True

    def __init__(self, whole: Tracer, mask: Tracer) -> None:
        self.whole = Tracer(whole.recorder, whole.instruction)
        self.mask = Tracer(mask.recorder, mask.instruction)
        self.place = str(whole.recorder.place())

    def refused(self) -> NoReturn:
        raise UnsupportedError(
            "x[mask] with a traced mask: the result's shape depends on values",
            where=self.place,
            fix="use np.where(mask, x, other) or np.sum(x, where=mask); x[mask] = value, x[mask] *= 2 and "
            "x[mask] = y[mask] + z[mask] under one mask work, too",
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
            self.refused()
        return emit("select", self.spread_mask(), convert(self.whole, x.dtype), x)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", (None,))[0]
        if method != "__call__" or kwargs or ufunc.signature or ufunc.nout > 1 or not self._fits(inputs):
            self.refused()
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
        one = len(args) == 1 and args[0] is self and kwargs.get("axis") is None
        if func not in _REDUCTIONS or not one or not set(kwargs) <= {"axis", "dtype"}:
            self.refused()
        if func is np.count_nonzero:
            return NP.sum(NP.not_equal(self.whole, 0), where=self.spread_mask())
        return func(self.whole, where=self.spread_mask(), **kwargs)

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self.refused()

    def __getattr__(self, name: str) -> Any:
        function = getattr(np, name, None)
        if function in _REDUCTIONS:
            return lambda **kwargs: function(self, **kwargs)
        if not name.startswith("__"):
            self.refused()
        raise AttributeError(name)

    def __getitem__(self, index: Any) -> NoReturn:
        self.refused()

    def __len__(self) -> int:  # noqa: PLE0303 - it raises
        self.refused()

    def __iter__(self) -> NoReturn:
        self.refused()


def _same(a: Instruction, b: Instruction, depth: int = 0) -> bool:
    """Do both instructions surely have the same value?"""
    if a is b:
        return True
    if depth > _DEEP or a.opcode != b.opcode or a.shape != b.shape or a.opcode in ("parameter", "custom-call"):
        return False
    pairs = zip(a.operands, b.operands, strict=False)
    equal = len(a.operands) == len(b.operands) and dict(a.attrs) == dict(b.attrs)
    return equal and all(_same(x, y, depth + 1) for x, y in pairs)
