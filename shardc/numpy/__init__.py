"""NumPy for whole scripts, with arrays that are sharded from their creation on: ``import shardc.numpy as np``.

The functions below make arrays, and take ``sharding=`` and ``mesh=``. All other names are NumPy's own, which pass
sharded arrays to `shardc.Array`. In a function that `shardc.jit` or `shardc.trace` traces, the same names make traced
values. Without ``sharding`` and ``mesh``, the mesh of `use_mesh` counts, otherwise one axis of all devices of the job.

Examples continue these lines:

>>> import shardc.numpy as np
>>> from shardc import Mesh, P
>>> mesh = Mesh({"x": 2, "y": 2})
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
    try:
        return getattr(_numpy, name)
    except AttributeError as e:  # NumPy's text has more than the name: what was removed, and what to use.
        raise AttributeError(str(e).replace("'numpy'", "'shardc.numpy'")) from None


def __dir__() -> list[str]:
    return sorted({*__all__, *dir(_numpy)})
