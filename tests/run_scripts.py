"""Runs scripts one after another in this process, each with arguments: ``run_scripts.py FILE:ARGUMENT:ARGUMENT ...``.

What starts a job once for several scripts; ``plain`` as the first argument has NumPy in the place of shardc.numpy.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

import shardc


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """One of NumPy's functions, which takes no word about devices."""
    return lambda *args, **options: function(*args, **{k: v for k, v in options.items() if k != "sharding"})


def put_numpy_in_the_place_of_shardc() -> None:
    module: Any = ModuleType("shardc.numpy")
    module.__dict__.update({k: v for k, v in vars(np).items() if not k.startswith("__")})
    for name in ("zeros", "ones", "array", "asarray", "indices", "arange"):
        setattr(module, name, _plain(getattr(np, name)))
    module.jit = lambda function: function
    shardc.numpy = sys.modules["shardc.numpy"] = module  # type: ignore[attr-defined]
    shardc.gather = lambda x: x


if __name__ == "__main__":
    scripts = sys.argv[1:]
    if scripts[0] == "plain":
        put_numpy_in_the_place_of_shardc()
        scripts = scripts[1:]
    for script in scripts:
        sys.argv = script.split(":")
        runpy.run_path(sys.argv[0], run_name="__main__")
