"""NumPy's masked arrays: their masks have no place in programs, so they are refused instead of being dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardc.hlo.errors import InputError

__all__ = ["refuse_masked"]


def refuse_masked(value: Any, where: str | Callable[[], str] | None = None) -> None:
    """Raise `InputError` for a masked array, whose elements under the mask would count like all others; ``where`` is
    its place, or gives it."""
    if type(value) is not np.ndarray and isinstance(value, np.ma.MaskedArray):
        raise InputError(
            "a masked array was given, and its mask would be lost",
            where=where() if callable(where) else where,
            fix="give x.filled(value), and the mask as an array of its own: np.sum(data, where=~mask)",
        )
