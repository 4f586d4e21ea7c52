"""MLIR's element types and dense constants as ours."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.errors import ParseError, UnsupportedError
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.types import DTYPES, DType, Shape, array_shape

__all__ = ["element_type", "literal_from_bytes", "literal_from_text", "mlir_element_type"]

_SPECIAL = {"i1": "pred", "index": "s64", "complex<f32>": "c64", "complex<f64>": "c128"}


def element_type(text: str) -> DType:
    """The element type of MLIR's ``text``: ``i32`` is s32, ``ui8`` is u8, ``f8E4M3FN`` is f8e4m3fn."""
    name = _SPECIAL.get(text)
    if name is None:
        match = re.fullmatch(r"(si|ui|i)(\d+)", text)
        name = ("u" if match.group(1) == "ui" else "s") + match.group(2) if match else text.lower()
    dtype = DTYPES.get(name)
    if dtype is None:
        raise UnsupportedError(
            f"element type {text} is not supported", fix="convert to a type of HLO; quantised types have no counterpart"
        )
    return dtype


def mlir_element_type(dtype: DType) -> str:
    """The inverse of `element_type`."""
    special = {v: k for k, v in _SPECIAL.items() if k != "index"}
    if dtype.name in special:
        return special[dtype.name]
    if dtype.is_integer:
        return ("i" if dtype.kind == "signed" else "ui") + dtype.name[1:]
    head, _, tail = dtype.name.partition("e") if dtype.name.startswith("f") else (dtype.name, "", "")
    return f"{head}E{tail.upper()}" if tail else dtype.name


def literal_from_bytes(shape: Shape, data: bytes, splat: bool) -> Literal:
    """A constant from its elements in memory; a splat has the bytes of one element."""
    dtype = shape.dtype.numpy
    flat = np.frombuffer(data, dtype=dtype)
    return Literal.full(shape, flat[0]) if splat else Literal(flat.reshape(shape.dims))


def literal_from_text(shape: Shape, text: str) -> Literal:
    """A constant from MLIR's text between ``dense<`` and ``>``: a number, nested lists, or ``"0x.."`` bytes."""
    text = text.strip()
    if text.startswith('"0x'):
        raw = bytes.fromhex(text[3:-1])
        needed = shape.size * shape.dtype.nbytes
        if len(raw) != needed:
            raise ParseError(f"a constant of {shape} has {len(raw)} bytes, not {needed}")
        return literal_from_bytes(shape, raw, False)
    if not text:
        return Literal(np.empty(shape.dims, shape.dtype.numpy))
    values = _numbers(shape.dtype, text)
    if values.size == 1 and shape.size != 1:
        return Literal.full(shape, values[0])
    return Literal(values.reshape(shape.dims))


def _numbers(dtype: DType, text: str) -> NDArray[Any]:
    words = re.findall(r"[^\s,\[\]()]+", text)
    if dtype.is_complex:
        part = array_shape("f32" if dtype.name == "c64" else "f64").dtype
        parts = np.array([_number(part, w) for w in words], dtype=part.numpy)
        return parts.view(dtype.numpy)
    return np.array([_number(dtype, w) for w in words], dtype=dtype.numpy)


def _number(dtype: DType, word: str) -> Any:
    """One element. Hexadecimal gives the bits of a float (how MLIR writes infinities and NaNs)."""
    if dtype.kind == "pred":
        return word in ("true", "1")
    if not dtype.is_float:
        return dtype.numpy.type(int(word, 0))
    if not word.startswith("0x"):
        return dtype.numpy.type(float(word))
    bits = np.array(int(word, 16), dtype=f"u{dtype.nbytes}")
    return bits.view(dtype.numpy)[()]
