"""The namespace that traced values name as theirs: NumPy's, whose makers and conversions give traced values.

Libraries that take arrays of any kind ask an array for its namespace (``x.__array_namespace__()``, the Python array API
standard) and call functions of that. NumPy's functions reach traced values by themselves, but for those that make
arrays: what is mixed with traced values must be traced.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from shardc.hlo.numpy.recorder import Trace
from shardc.hlo.numpy.values import array

__all__ = ["ArrayNamespace"]

_MAKERS = frozenset(("arange", "empty", "eye", "full", "linspace", "ones", "zeros"))


class ArrayNamespace:
    """``xp`` of the values that ``recorder`` traces."""

    __name__ = "shardc.traced"

    def __init__(self, recorder: Trace) -> None:
        self._recorder = recorder

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArrayNamespace)

    def __hash__(self) -> int:
        return hash(ArrayNamespace)

    def __getattr__(self, name: str) -> Any:
        return self._maker(getattr(np, name)) if name in _MAKERS else getattr(np, name)

    @property
    def special(self) -> object:
        """SciPy's ufuncs, which reach traced values by themselves: what `scipy.special` asks a namespace for."""
        return sys.modules.get("scipy.special._ufuncs")

    def __array_function__(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        return self._recorder.protocols.function(self._recorder, func, args, kwargs)

    def _maker(self, function: Any) -> Callable[..., Any]:
        def make(*args: Any, device: Any = None, **kwargs: Any) -> Any:
            return function(*args, like=self, **kwargs)

        return make

    def asarray(self, obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Any:
        """As `numpy.asarray`; of a traced value itself, or a copy."""
        return np.array(obj, dtype=dtype, like=self) if copy else array(self._recorder, obj, dtype)
