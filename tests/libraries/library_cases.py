"""What a program of a library is: a function, its arguments, and how these are split over a mesh of data and model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec

__all__ = ["MESH", "LibraryProgram", "batched"]

MESH = {"data": 2, "model": 2}


@dataclass(frozen=True)
class LibraryProgram:
    """``make()`` gives the function and its arguments; ``split`` says of each argument which of its leaves are split (a
    function of leaf to PartitionSpec), None leaves all to propagation. ``modules`` have to be installed."""

    name: str
    modules: tuple[str, ...]
    make: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]
    split: tuple[Callable[[Any], PartitionSpec] | None, ...] = ()
    tolerance: float = 2e-4


def batched(leaf: Any) -> PartitionSpec:
    """The first dimension over data, where it divides."""
    shape = np.shape(leaf)
    return PartitionSpec("data") if shape and shape[0] % MESH["data"] == 0 else PartitionSpec()


def columns(leaf: Any) -> PartitionSpec:
    """The last dimension of matrices over model, where it divides."""
    shape = np.shape(leaf)
    if len(shape) < 2 or shape[-1] % MESH["model"]:
        return PartitionSpec()
    return PartitionSpec(*(None,) * (len(shape) - 1), "model")


def shardings(program: LibraryProgram, args: tuple[Any, ...]) -> tuple[Any, ...]:
    split = program.split or (None,) * len(args)
    return tuple(None if s is None else jax.tree.map(s, a) for s, a in zip(split, args, strict=True))
