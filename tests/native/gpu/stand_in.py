"""Libraries made of Python functions, called through ctypes as the real ones are: arguments are converted for real."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

__all__ = ["stand_in"]


def stand_in(
    functions: Mapping[str, Sequence[Any]], answers: Mapping[str, Callable[..., int]], **others: Callable[..., Any]
) -> Any:
    """A library with ``functions`` (name: argument types), each answered by the one of ``answers``, or with 0."""
    made = {
        name: ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(answers.get(name, lambda *_: 0))
        for name, arguments in functions.items()
    }
    return SimpleNamespace(**made, **others)
