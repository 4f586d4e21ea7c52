"""``import shardc.numpy as np``: NumPy for whole scripts, with arrays that are sharded from their creation on.

Functions that make arrays are its own, and take ``sharding=`` and ``mesh=``; start with `creation` and `placing`. All
else is NumPy's, which passes sharded arrays on to them (`shardc.Array`). Inside of a function that `shardc.jit` or
`shardc.trace` traces, the same names make traced values.
"""

from __future__ import annotations

from typing import Any

import numpy as _numpy

from shardc.numpy import random as random
from shardc.numpy.creation import (
    arange,
    array,
    asarray,
    empty,
    eye,
    fromfunction,
    full,
    identity,
    indices,
    linspace,
    ones,
    zeros,
)
from shardc.numpy.files import from_array, from_hdf5, from_zarr, load, save
from shardc.numpy.placing import use_mesh
from shardc.numpy.transforms import jit
from shardc.numpy.unique import unique

__all__ = [
    "arange",
    "array",
    "asarray",
    "empty",
    "eye",
    "from_array",
    "from_hdf5",
    "from_zarr",
    "fromfunction",
    "full",
    "identity",
    "indices",
    "jit",
    "linspace",
    "load",
    "ones",
    "random",
    "save",
    "unique",
    "use_mesh",
    "zeros",
]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module 'shardc.numpy' has no attribute {name!r}")
    return getattr(_numpy, name)


def __dir__() -> list[str]:
    return sorted({*__all__, *dir(_numpy)})
