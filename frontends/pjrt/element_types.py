"""PJRT's numbers of element types."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.types import DType

__all__ = ["TOKEN", "element_type_number"]

TOKEN = 23

_NAMES = (
    "pred", "s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "f16", "f32", "f64", "bf16", "c64", "c128", "f8e5m2",
    "f8e4m3fn", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz", "s4", "u4", "token", "s2", "u2", "f8e4m3", "f8e3m4",
    "f8e8m0fnu", "f4e2m1fn", "s1", "u1",
)  # fmt: skip
_NUMBERS: Mapping[str, int] = MappingProxyType({name: n for n, name in enumerate(_NAMES, 1)})


def element_type_number(dtype: DType) -> int:
    """PJRT_Buffer_Type; `UnsupportedError` where it has none."""
    if dtype.name not in _NUMBERS:
        raise UnsupportedError(
            f"arguments and results cannot have type {dtype}", fix="convert them inside of the program"
        )
    return _NUMBERS[dtype.name]
