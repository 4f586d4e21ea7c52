"""Seeded arguments for programs that are run without inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.errors import InputError
from shardc.hlo.ir.types import Shape

__all__ = ["random_argument", "random_arguments"]


def random_arguments(shapes: Sequence[Shape], seed: int) -> list[NDArray[Any]]:
    """One array per shape; argument k depends on ``seed`` and k only."""
    if seed < 0:
        raise InputError(f"seed is {seed}", fix="give a seed of 0 or more")
    return [random_argument(shape, np.random.default_rng([seed, k])) for k, shape in enumerate(shapes)]


def random_argument(shape: Shape, rng: np.random.Generator) -> NDArray[Any]:
    """Floats from the standard normal distribution, integers from 0 to 7 (fewer where the type is narrower)."""
    dtype, dims = shape.dtype, shape.dims
    if dtype.kind == "pred":
        return rng.integers(0, 2, dims).astype(np.bool_)
    if dtype.is_integer:
        top = min(8, 1 << (dtype.bits - (dtype.kind == "signed")))
        return np.asarray(rng.integers(0, top, dims)).astype(dtype.numpy)
    if dtype.is_complex:
        return np.asarray(rng.standard_normal(dims) + 1j * rng.standard_normal(dims)).astype(dtype.numpy)
    return np.asarray(rng.standard_normal(dims)).astype(dtype.numpy)
