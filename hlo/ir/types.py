"""Element types and shapes.

`DType` is one of XLA's primitive types. `Shape` is an array, a tuple or a token. Both are immutable, hashable
and interned, so comparing by ``is`` works for element types and equality of shapes is cheap.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

__all__ = ["DTYPES", "UNBOUNDED", "DType", "Layout", "Shape", "array_shape", "dtype_of", "token_shape", "tuple_shape"]


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """An element type: HLO ``name``, width in ``bits``, ``kind`` and the NumPy type that holds one element.

    ``kind`` is one of ``pred``, ``signed``, ``unsigned``, ``float``, ``complex``, ``token``, ``tuple``, ``opaque``.
    Sub-byte types take one byte per element in memory.
    """

    name: str
    bits: int
    kind: str
    numpy: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Bytes that one element takes in memory."""
        return self.numpy.itemsize

    @property
    def is_integer(self) -> bool:
        return self.kind in ("signed", "unsigned")

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_complex(self) -> bool:
        return self.kind == "complex"

    @property
    def accumulator(self) -> DType:
        """The type that sums of this one are kept in: f32 for narrower floats."""
        return DTYPES["f32"] if self.is_float and self.bits < 32 else self

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, ...]:
        return (_dtype_by_name, (self.name,))


#: The size of a dimension that is not known at all, ``?`` in text. Such programs can be read and printed only.
UNBOUNDED = -1


def _dtype_by_name(name: str) -> DType:
    return DTYPES[name]


def _dtypes() -> dict[str, DType]:
    rows: list[tuple[str, int, str, Any]] = [
        ("pred", 8, "pred", np.bool_),
        ("s2", 2, "signed", ml_dtypes.int2),
        ("s4", 4, "signed", ml_dtypes.int4),
        ("s8", 8, "signed", np.int8),
        ("s16", 16, "signed", np.int16),
        ("s32", 32, "signed", np.int32),
        ("s64", 64, "signed", np.int64),
        ("u2", 2, "unsigned", ml_dtypes.uint2),
        ("u4", 4, "unsigned", ml_dtypes.uint4),
        ("u8", 8, "unsigned", np.uint8),
        ("u16", 16, "unsigned", np.uint16),
        ("u32", 32, "unsigned", np.uint32),
        ("u64", 64, "unsigned", np.uint64),
        ("f4e2m1fn", 4, "float", ml_dtypes.float4_e2m1fn),
        ("f6e2m3fn", 6, "float", ml_dtypes.float6_e2m3fn),
        ("f6e3m2fn", 6, "float", ml_dtypes.float6_e3m2fn),
        ("f8e3m4", 8, "float", ml_dtypes.float8_e3m4),
        ("f8e4m3", 8, "float", ml_dtypes.float8_e4m3),
        ("f8e4m3b11fnuz", 8, "float", ml_dtypes.float8_e4m3b11fnuz),
        ("f8e4m3fn", 8, "float", ml_dtypes.float8_e4m3fn),
        ("f8e4m3fnuz", 8, "float", ml_dtypes.float8_e4m3fnuz),
        ("f8e5m2", 8, "float", ml_dtypes.float8_e5m2),
        ("f8e5m2fnuz", 8, "float", ml_dtypes.float8_e5m2fnuz),
        ("f8e8m0fnu", 8, "float", ml_dtypes.float8_e8m0fnu),
        ("bf16", 16, "float", ml_dtypes.bfloat16),
        ("f16", 16, "float", np.float16),
        ("f32", 32, "float", np.float32),
        ("f64", 64, "float", np.float64),
        ("c64", 64, "complex", np.complex64),
        ("c128", 128, "complex", np.complex128),
        ("token", 0, "token", "V0"),
        ("tuple", 0, "tuple", "V0"),
        ("opaque", 0, "opaque", "V0"),
        ("buffer", 0, "opaque", "V0"),
    ]
    return {name: DType(name, bits, kind, np.dtype(t)) for name, bits, kind, t in rows}


DTYPES: Mapping[str, DType] = MappingProxyType(_dtypes())
_BY_NUMPY: Mapping[np.dtype[Any], DType] = MappingProxyType(
    {d.numpy: d for d in DTYPES.values() if d.kind not in ("token", "tuple", "opaque")}
)


def dtype_of(numpy_dtype: Any) -> DType:
    """The element type of a NumPy (or ml_dtypes) type; raises KeyError for types HLO lacks."""
    return _BY_NUMPY[np.dtype(numpy_dtype)]


@dataclass(frozen=True, slots=True)
class Layout:
    """A physical layout that is not the default one (row-major, no tiles, default memory).

    ``minor_to_major`` lists dimensions from fastest to slowest varying; ``suffix`` is the text after it inside
    the braces (tiles, memory space, element size), kept verbatim.
    """

    minor_to_major: tuple[int, ...]
    suffix: str = ""

    def __str__(self) -> str:
        inner = ",".join(map(str, self.minor_to_major)) + (":" + self.suffix if self.suffix else "")
        return "{" + inner + "}"


@dataclass(frozen=True, slots=True)
class Shape:
    """An array (``dtype`` and ``dims``), a tuple (``elements``), a token, an opaque value or a buffer of an array.

    ``layout`` is None for the default layout. `plain` drops layouts; type checks compare plain shapes.
    Example: ``array_shape("f32", 2, 3)`` prints as ``f32[2,3]``.
    """

    dtype: DType
    dims: tuple[int, ...] = ()
    elements: tuple[Shape, ...] = ()
    layout: Layout | None = None
    dynamic: tuple[bool, ...] = ()
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        key = (self.dtype.name, self.dims, self.elements, self.layout, self.dynamic)
        object.__setattr__(self, "_hash", hash(key))

    def __hash__(self) -> int:
        return self._hash

    @property
    def is_array(self) -> bool:
        return self.dtype.kind not in ("tuple", "token", "opaque")

    @property
    def is_tuple(self) -> bool:
        return self.dtype.kind == "tuple"

    @property
    def is_token(self) -> bool:
        return self.dtype.kind == "token"

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def size(self) -> int:
        """Number of elements of an array."""
        return math.prod(self.dims)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, the sum over the leaves for a tuple."""
        if self.is_tuple:
            return sum(e.nbytes for e in self.elements)
        return self.size * self.dtype.nbytes if self.is_array else 0

    @property
    def plain(self) -> Shape:
        """This shape without layouts."""
        if self.elements:
            if all(e.plain is e for e in self.elements):
                return self
            return Shape(self.dtype, elements=tuple(e.plain for e in self.elements))
        return self if self.layout is None else Shape(self.dtype, self.dims, dynamic=self.dynamic)

    def with_dims(self, dims: tuple[int, ...]) -> Shape:
        """An array of the same element type with other dimensions, in the default layout."""
        return Shape(self.dtype, dims)

    def with_dtype(self, dtype: DType | str) -> Shape:
        """The same dimensions with another element type."""
        return Shape(DTYPES[dtype] if isinstance(dtype, str) else dtype, self.dims, layout=self.layout)

    def leaves(self) -> Iterator[Shape]:
        """The non-tuple shapes, depth first."""
        if self.is_tuple:
            for e in self.elements:
                yield from e.leaves()
        else:
            yield self

    def __str__(self) -> str:
        if self.is_tuple:
            return "(" + ", ".join(map(str, self.elements)) + ")"
        if self.elements:
            return f"b({self.elements[0]})"
        marks = self.dynamic or (False,) * len(self.dims)
        texts = ("?" if d == UNBOUNDED else f"<={d}" if m else str(d) for d, m in zip(self.dims, marks, strict=True))
        dims = ",".join(texts)
        return f"{self.dtype.name}[{dims}]{self.layout or ''}"


@lru_cache(maxsize=65536)
def _array(dtype: DType, dims: tuple[int, ...]) -> Shape:
    return Shape(dtype, dims)


def array_shape(dtype: DType | str, *dims: int) -> Shape:
    """An array shape, for example ``array_shape("f32", 2, 3)``."""
    return _array(DTYPES[dtype] if isinstance(dtype, str) else dtype, dims)


def tuple_shape(*elements: Shape) -> Shape:
    return Shape(DTYPES["tuple"], (), elements)


def token_shape() -> Shape:
    return Shape(DTYPES["token"])
