"""A dense matrix product as a library is asked for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Product"]


@dataclass(frozen=True, slots=True)
class Product:
    """``d = epilogue(a @ b + bias)`` of row-major arrays: a [batch, m, k] ([batch, k, m] where ``transpose_a``), b
    [batch, k, n] ([batch, n, k] where ``transpose_b``), d [batch, m, n]; bias [n] or none.

    ``dtype`` is that of a and b, ``result`` of d and bias: ``f32``, ``f64``, ``bf16`` or ``f16``. ``precision``:
    ``highest`` is f32 as f32. ``gelu`` is the one by tanh.
    """

    m: int
    n: int
    k: int
    batch: int = 1
    transpose_a: bool = False
    transpose_b: bool = False
    dtype: str = "f32"
    result: str = "f32"
    precision: Literal["highest", "tf32"] = "highest"
    epilogue: Literal["", "relu", "gelu"] = ""
