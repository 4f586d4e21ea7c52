"""`Selection`, the value of ``x[mask]`` of an array that is split over processes: copies of the array and its mask.

No process holds the selected elements one after another, but arithmetic on them, reductions of them and their
assignment under the same mask need no order. Each is one call on the whole arrays, of what ``x[mask]`` is in a traced
function (`Masked`). All else needs `shardc.gather`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from shardc.hlo.errors import InputError, Location, UnsupportedError
from shardc.hlo.numpy.masked import REDUCTIONS, Masked
from shardc.hlo.numpy.recorder import user_line
from shardc.hlo.numpy.tree import flatten, unflatten

__all__ = ["OnSelections", "Selection", "put_each", "select"]


@dataclass(frozen=True, slots=True)
class OnSelections:
    """A function of selections, as one of whole arrays that says whether it gives a selection; equal by function."""

    function: Any

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, bool]:
        made = self.function(*args, **kwargs)
        return (made.whole, True) if isinstance(made, Masked) else (made, False)


class Selection(NDArrayOperatorsMixin):
    """The elements of ``whole`` where ``mask``, which spans its leading dimensions, is true.

    Both have memory of their own: what happens to the array and to the ``source`` of the mask later does not matter.
    """

    __slots__ = ("count", "mask", "source", "whole")
    __array_priority__ = 950.0
    is_masked = True

    def __init__(self, whole: Any, mask: Any, count: int, source: tuple[Any, int]) -> None:
        self.whole, self.mask, self.count, self.source = whole, mask, count, source

    @property
    def dtype(self) -> np.dtype[Any]:
        found: np.dtype[Any] = self.whole.dtype
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.count, *self.whole.shape[self.mask.ndim :])

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        dims = ",".join(map(str, self.shape))
        return f"<{self.dtype}[{dims}] under a mask, split over processes: shardc.gather(x[mask]) has the elements>"

    def gathered(self, gather: Any) -> NDArray[Any]:
        """The elements, as NumPy, on every process; ``gather`` gets a whole array."""
        found: NDArray[Any] = gather(self.whole)[gather(self.mask)]
        return found

    def under(self, mask: Any) -> Selection:
        """The same elements under ``mask``, which must have equal values. In a job all processes call it."""
        if self.source[0] is mask and getattr(mask, "view_of", None) is None and self.source[1] == mask.version:
            return self
        if getattr(mask, "shape", None) != self.mask.shape or not bool(np.array_equal(self.mask, mask)):
            _refuse("x[mask] together with another mask")
        return self

    def astype(self, dtype: Any, **options: Any) -> Selection:
        return self._selected(self.whole.astype(dtype, **options))

    def copy(self, order: str = "C") -> Selection:
        return self._selected(np.copy(self.whole))

    def _selected(self, whole: Any) -> Selection:
        return Selection(whole, self.mask, self.count, self.source)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        made = self._call(ufunc if method == "__call__" else getattr(ufunc, method), inputs, kwargs)
        if not isinstance(made, Selection) or "out" not in kwargs:
            return made
        (out,) = kwargs["out"]
        out.whole = made.whole
        return out

    def __array_function__(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if func in (np.max, np.min) and "initial" not in kwargs and self.dtype.kind in "iufb":
            if not self.count:
                word = "maximum" if func is np.max else "minimum"
                raise ValueError(f"zero-size array to reduction operation {word} which has no identity")
            kwargs = {**kwargs, "initial": _identity(func, self.dtype)}
        return self._call(func, args, kwargs)

    def _call(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The call on the whole arrays; all selections among its arguments are given this mask."""
        from shardc.launcher.operations.call import call

        leaves, tree = flatten((list(args), dict(kwargs)))
        one = [self._selected(s.under(self.mask).whole) if isinstance(s, Selection) else s for s in leaves]
        given, named = unflatten(tree, iter(one))
        try:
            found = call(OnSelections(function), given, named)
        except UnsupportedError as e:
            _refuse(f"{getattr(function, '__name__', function)} of x[mask]", e)
        if found is NotImplemented:
            return NotImplemented
        made, selected = found
        return self._selected(made) if selected else made

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise InputError(
            "no process holds the elements of x[mask], which are split over processes",
            where=str(Location(*user_line())),
            fix="call shardc.gather(x[mask]) on every rank, and use its result on any rank",
        )

    def __getattr__(self, name: str) -> Any:
        if getattr(np, name, None) in REDUCTIONS:
            return functools.partial(getattr(np, name), self)
        if hasattr(np.ndarray, name) and not name.startswith("__"):
            _refuse(f".{name} of x[mask]")
        raise AttributeError(f"x[mask] has no attribute {name!r}")

    def __getitem__(self, index: Any) -> NoReturn:
        _refuse("an index of x[mask]")

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        _refuse("an assignment to elements of x[mask]")

    def __bool__(self) -> bool:  # noqa: PLE0304 - it raises
        _refuse("bool() of x[mask]")

    def __iter__(self) -> NoReturn:
        _refuse("a loop over x[mask]")


def select(x: Any, mask: Any) -> Selection:
    """``x[mask]``. In a job all processes call it."""
    from shardc.launcher.operations.call import call

    whole, of, count = call(_select, (x, mask), {})
    return Selection(whole, of, int(count), (mask, mask.version))


def put_each(x: Any, mask: Any, values: Any) -> None:
    """``x[mask] = values`` with a value per selected element, in order. In a job all processes call it."""
    from shardc.launcher.operations.call import call

    wanted = (int(np.count_nonzero(mask)), *x.shape[mask.ndim :])
    shape = np.shape(values)
    if shape[:1] != wanted[:1] or len(shape) != len(wanted):
        raise ValueError(f"x[mask] = values cannot assign values of shape {shape} to {wanted}, the shape of x[mask]")
    call(_put_each, (x, mask, values), {})


def _put_each(x: Any, mask: Any, values: Any) -> None:
    place = np.reshape(np.cumsum(mask), mask.shape) - 1
    under = np.reshape(mask, mask.shape + (1,) * (x.ndim - mask.ndim))
    np.copyto(x, np.take(values, place, axis=0, mode="clip"), where=under, casting="unsafe")


def _select(x: Any, mask: Any) -> tuple[Any, Any, Any]:
    return np.copy(x), np.copy(mask), np.count_nonzero(mask)


def _identity(function: Any, dtype: np.dtype[Any]) -> Any:
    """What changes no maximum (or minimum) of elements of this type."""
    if dtype.kind == "b":
        return function is np.min
    sign = -1 if function is np.max else 1
    if dtype.kind == "f":
        return sign * np.inf
    return np.iinfo(dtype).min if sign < 0 else np.iinfo(dtype).max


def _refuse(what: str, cause: UnsupportedError | None = None) -> NoReturn:
    raise UnsupportedError(
        f"{what} is not supported: the selected elements are split over processes",
        where=str(Location(*user_line())),
        fix="let NumPy compute it from shardc.gather(x[mask]), called on every rank; arithmetic on x[mask], its "
        "reductions (sum, mean, max), and assignments under the same mask need no gather",
    ) from cause
