"""Constants in HLO text: reading and printing, in time linear in the number of elements.

The structure of a dense literal is checked as one string: its braces and commas, with everything else deleted,
must equal the skeleton that the shape asks for. The elements are then split and converted in bulk.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.types import DTYPES, DType, Shape
from shardc.hlo.text.scanner import Scanner
from shardc.hlo.units import count_text

__all__ = ["print_literal", "read_literal"]

_NOT_STRUCTURE = bytes(c for c in range(256) if chr(c) not in "{},")
_BRACES_TO_SPACE = bytes.maketrans(b"{}", b"  ")
_INT = re.compile(r"-?\d+\Z")
_FLOAT = re.compile(
    r"(?:-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|-\.\d+(?:[eE][+-]?\d+)?|-?inf|-?nan(?:\(0x[0-9a-fA-F]+\))?)\Z"
)
_NUMBER_BYTES = b"+-0123456789.eEinfa"
_SCALAR = re.compile(r"\s*(-?nan\([^()]*\)|\((?:[^(){}]|\([^(){}]*\))*\)|[^\s(){},]+)")
_COMPLEX = re.compile(r"\(\s*([^(),\s]+(?:\([^()]*\))?)\s*,\s*([^(),\s]+(?:\([^()]*\))?)\s*\)")
#: The dots that stand for values left out, on the outermost level.
_LEFT_OUT = re.compile(r"\{[^{}]*(?:\{(?:[^{}]|\{[^{}]*\})*\}[^{}]*)*(?<!\.)(\.\.\.)[\s,]*\}")
_PREDICATES = {"true": True, "false": False}


def read_literal(scanner: Scanner, shape: Shape, owner: str = "") -> Literal:
    """The constant of ``shape`` at the scanner's position (``{{1,2},{3,4}}``, ``-1.5``, ``(1, {2, 3})``).

    ``{...}`` gives a literal that was left out; ``owner`` is the name of the instruction, for its message.
    """
    if shape.is_tuple:
        return _read_tuple(scanner, shape, owner)
    if not shape.is_array:
        raise scanner.error(f"a constant cannot have shape {shape}")
    start = scanner.pos
    if not shape.dims:
        found = scanner.take(_SCALAR, f"a value of type {shape.dtype}")
        return Literal(_convert([found.group(1)], shape.dtype, scanner, start).reshape(()))
    if scanner.peek() not in ("{", ""):
        return _first_element(scanner, shape, start)
    text = scanner.take_bracketed()
    dots = _LEFT_OUT.fullmatch(text) if "..." in text else None
    if dots is not None:
        place = scanner.location(start + dots.start(1))
        return Literal.elided(shape, f"%{owner}, {place}" if owner else str(place))
    values = _dense(text, shape, scanner, start)
    return _splat_if_uniform(values.reshape(shape.dims), shape)


def _first_element(scanner: Scanner, shape: Shape, start: int) -> Literal:
    """XLA reads a bare number for an array as its first element, the others being zero; so do we."""
    found = scanner.take(_SCALAR, f"the elements of a constant of shape {shape}, in braces")
    value = _convert([found.group(1)], shape.dtype, scanner, start)
    if not shape.size:
        raise scanner.error(f"constant of shape {shape} has no elements, but values are given", at=start)
    if shape.size == 1 or not any(value.tobytes()):
        return Literal.full(shape, value[0])
    values = np.zeros(shape.dims, shape.dtype.numpy)
    values.reshape(-1)[:1] = value
    return Literal(values)


def _read_tuple(scanner: Scanner, shape: Shape, owner: str) -> Literal:
    scanner.expect("(", "at the start of a tuple constant")
    elements = []
    for i, element in enumerate(shape.elements):
        if i:
            scanner.expect(",", "between elements of a tuple constant")
        elements.append(read_literal(scanner, element, owner))
    scanner.expect(")", f"after {count_text(len(shape.elements), 'element')} of a tuple constant")
    return Literal(elements=tuple(elements))


def _dense(text: str, shape: Shape, scanner: Scanner, start: int) -> NDArray[Any]:
    complex_parts = _COMPLEX.findall(text) if shape.dtype.is_complex else None
    plain = _COMPLEX.sub(" 0 ", text) if complex_parts is not None else text
    data = plain.encode("utf-8")
    structure = data.translate(None, _NOT_STRUCTURE)
    tokens = _check_structure(plain, shape, scanner, start) if structure != _skeleton(shape.dims) else None
    if not shape.size:
        if data.translate(_BRACES_TO_SPACE).replace(b",", b" ").strip():
            raise scanner.error(f"constant of shape {shape} has no elements, but values are given", at=start)
        return np.empty(0, shape.dtype.numpy)
    if complex_parts is not None:
        if len(complex_parts) != shape.size:
            raise scanner.error(f"elements of a {shape.dtype} constant are written (real, imaginary)", at=start)
        return _complex_array(complex_parts, shape.dtype, scanner, start)
    items = tokens or data.translate(_BRACES_TO_SPACE).decode("utf-8").split(",")
    return _convert(items, shape.dtype, scanner, start)


@lru_cache(maxsize=256)
def _skeleton(dims: tuple[int, ...]) -> bytes:
    text = b""
    for d in reversed(dims):
        text = b"{" + b",".join([text] * d) + b"}"
    return text


_TOKENS = re.compile(r"[{},]|[^{},\s]+")


def _check_structure(text: str, shape: Shape, scanner: Scanner, start: int) -> list[str]:
    """The elements where commas are too many or too few, which XLA does not mind; an error for wrong nesting."""
    counts: list[int] = []
    elements: list[str] = []
    for found in _TOKENS.finditer(text):
        token, at = found.group(), start + found.start()
        if token == ",":
            continue
        if token == "}":
            if counts[-1] != shape.dims[len(counts) - 1]:
                raise scanner.error(
                    f"constant of shape {shape}: dimension {len(counts) - 1} "
                    f"has {count_text(counts[-1], 'element')} here",
                    at=at,
                )
            counts.pop()
            continue
        if counts:
            counts[-1] += 1
        if token == "{":
            counts.append(0)
            if len(counts) > len(shape.dims):
                raise scanner.error(f"constant of shape {shape} is nested too deeply", at=at)
        elif len(counts) != len(shape.dims):
            raise scanner.error(f"constant of shape {shape} is not nested deeply enough", at=at)
        else:
            elements.append(token)
    return elements


def _convert(items: list[str], dtype: DType, scanner: Scanner, start: int) -> NDArray[Any]:
    if dtype.is_complex:
        pairs = _COMPLEX.findall(items[0])
        if len(pairs) != 1:
            raise scanner.error(f"a {dtype} constant is written (real, imaginary)", at=start)
        return _complex_array(pairs, dtype, scanner, start)
    items = [i.strip() for i in items]
    if dtype.kind == "pred":
        return np.array([_predicate(i, scanner, start) for i in items], dtype=np.bool_)
    if dtype.is_integer:
        return _integers(items, dtype, scanner, start)
    return _floats(items, dtype, scanner, start)


def _predicate(item: str, scanner: Scanner, start: int) -> bool:
    value = _PREDICATES.get(item)
    if value is not None:
        return value
    if not _INT.match(item):
        raise scanner.error(f"{item!r} is not a predicate", at=start, fix="write true or false")
    return int(item) != 0


def _integers(items: list[str], dtype: DType, scanner: Scanner, start: int) -> NDArray[Any]:
    low, high = _integer_range(dtype)
    try:
        values = list(map(int, items))
    except ValueError:
        values = [_one_integer(i, dtype, scanner, start) for i in items]
    if any("_" in i or i[:1] == "+" for i in items):
        raise scanner.error(f"malformed {dtype} value in a constant", at=start)
    if min(values) < low or max(values) > high:
        values = [_wrap_integer(v, dtype) for v in values]
        worst = next((v for v in values if not low <= v <= high), None)
        if worst is not None:
            raise scanner.error(f"value {worst} does not fit {dtype}, which holds {low} to {high}", at=start)
    wide = np.array(values, dtype=np.uint64 if dtype.kind == "unsigned" else np.int64)
    return wide.astype(dtype.numpy)


def _wrap_integer(value: int, dtype: DType) -> int:
    """XLA reads integers of up to 64 bits, signed or not, and takes the bits for the other kind."""
    if dtype.name == "u64" and -(1 << 63) <= value < 0:
        return value + (1 << 64)
    if dtype.kind == "signed" and 1 << 63 <= value < 1 << 64:
        return value - (1 << 64)
    return value


def _one_integer(item: str, dtype: DType, scanner: Scanner, start: int) -> int:
    if not _INT.match(item):
        raise scanner.error(f"{item!r} is not an integer, but the constant's type is {dtype}", at=start)
    return int(item)


def _integer_range(dtype: DType) -> tuple[int, int]:
    if dtype.kind == "unsigned":
        return 0, (1 << dtype.bits) - 1
    return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1


def _floats(items: list[str], dtype: DType, scanner: Scanner, start: int) -> NDArray[Any]:
    try:
        values = np.array(list(map(float, items)), dtype=np.float64)
        if "".join(items).encode("utf-8").translate(None, _NUMBER_BYTES) or any(i[0] in "+." for i in items):
            raise ValueError
    except ValueError:
        values = np.array([_one_float(i, dtype, scanner, start) for i in items], dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        result = values.astype(dtype.numpy)
    if not np.isfinite(values).all():
        for k, item in enumerate(items):
            if "nan" in item:
                if (wrong := _set_nan(result, k, item, dtype)) is not None:
                    raise scanner.error(wrong, at=start)
            elif not np.isfinite(values[k]) and "inf" not in item:
                raise scanner.error(f"value {item} does not fit {dtype}", at=start)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        lost = np.isfinite(values) & ~np.isfinite(result.astype(np.float64))
    if dtype.name.endswith("fnu"):  # neither zero nor negative numbers
        lost |= values <= 0
    if lost.any():
        index = int(np.argmax(lost))
        raise scanner.error(f"value {items[index]} does not fit {dtype}", at=start)
    return result


def _one_float(item: str, dtype: DType, scanner: Scanner, start: int) -> float:
    if not _FLOAT.match(item):
        raise scanner.error(f"{item!r} is not a number, but the constant's type is {dtype}", at=start)
    return float(item.partition("(")[0])


def _complex_array(pairs: Sequence[tuple[str, str]], dtype: DType, scanner: Scanner, start: int) -> NDArray[Any]:
    part = np.dtype(np.float32 if dtype.bits == 64 else np.float64)
    kind = _FLOAT_TYPES[part.name]
    result = np.empty(len(pairs), dtype.numpy)
    result.real = _floats([p[0] for p in pairs], kind, scanner, start)
    result.imag = _floats([p[1] for p in pairs], kind, scanner, start)
    return result


# --- NaN payloads -------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _float_bits(dtype: DType) -> tuple[np.dtype[Any], int, int]:
    """Unsigned type of the same width, mantissa bits, and payload of the default NaN (0: the type has none)."""
    unsigned = np.dtype(f"u{dtype.nbytes}")
    mantissa = int(ml_dtypes.finfo(dtype.numpy).nmant)
    has_payload = dtype.name in ("f16", "bf16", "f32", "f64", "f8e5m2", "f8e4m3", "f8e3m4")
    return unsigned, mantissa, 1 << (mantissa - 1) if has_payload else 0


def _set_nan(out: NDArray[Any], k: int, item: str, dtype: DType) -> str | None:
    """Store the NaN that ``item`` spells; what is wrong with it, or None."""
    unsigned, mantissa, quiet = _float_bits(dtype)
    _, _, payload_text = item.partition("(")
    if not quiet:
        return f"{dtype} has no NaN payloads, found {item}" if payload_text else None
    payload = int(payload_text.rstrip(") "), 16) if payload_text else quiet
    if not 0 < payload < (1 << mantissa):
        return f"NaN payload {payload:#x} does not fit {dtype}"
    exponent = ((1 << (dtype.bits - 1)) - 1) >> mantissa << mantissa
    sign = 1 << (dtype.bits - 1) if item.startswith("-") else 0
    out.view(unsigned)[k] = sign | exponent | payload
    return None


def _splat_if_uniform(values: NDArray[Any], shape: Shape) -> Literal:
    if values.size > 1:
        raw = np.ascontiguousarray(values).reshape(-1).view(np.uint8).reshape(values.size, -1)
        if (raw == raw[0]).all():
            return Literal(np.broadcast_to(values.reshape(-1)[0], shape.dims))
    return Literal(values)


# --- printing -----------------------------------------------------------------------------------------------


def print_literal(literal: Literal) -> str:
    """The constant as `read_literal` and XLA read it; bit for bit the same value."""
    if literal.elements is not None:
        return "(" + ", ".join(print_literal(e) for e in literal.elements) + ")"
    if literal.is_left_out:
        return "{...}"
    array = literal.array
    dtype = literal.shape.dtype
    if array.ndim == 0:
        return _texts(array.reshape(1), dtype)[0]
    if not array.size:
        return _skeleton(array.shape).decode().replace(",", ", ")
    if literal.is_splat:
        texts = _texts(np.asarray(literal.splat).reshape(1), dtype) * int(array.shape[-1])
        row = "{" + ", ".join(texts) + "}"
        rows = [row] * (array.size // int(array.shape[-1]))
    else:
        width = int(array.shape[-1])
        flat = _texts(np.ascontiguousarray(array).reshape(-1), dtype)
        count = int(np.prod(array.shape[:-1], dtype=np.int64))
        rows = ["{" + ", ".join(flat[i * width : (i + 1) * width]) + "}" for i in range(count)]
    for d in reversed(array.shape[:-1]):
        rows = ["{" + ", ".join(rows[i : i + d]) + "}" for i in range(0, len(rows), d)]
    return rows[0]


def _texts(flat: NDArray[Any], dtype: DType) -> list[str]:
    if dtype.kind == "pred":
        return ["true" if v else "false" for v in flat.tolist()]
    if dtype.is_integer:
        return list(map(str, flat.astype(np.uint64 if dtype.kind == "unsigned" else np.int64).tolist()))
    if dtype.is_complex:
        part = _FLOAT_TYPES["float32" if dtype.bits == 64 else "float64"]
        pairs = zip(_float_texts(flat.real, part), _float_texts(flat.imag, part), strict=True)
        return [f"({real}, {imag})" for real, imag in pairs]
    return _float_texts(flat, dtype)


def _float_texts(flat: NDArray[Any], dtype: DType) -> list[str]:
    with np.errstate(invalid="ignore"):  # signalling NaNs
        wide = flat.astype(np.float64)
    format_all: Callable[[NDArray[Any]], list[str]] = _float32_texts if dtype.name == "f32" else _exact_texts
    texts = format_all(wide)
    for k in np.flatnonzero((wide == 0) & np.signbit(wide)):
        texts[int(k)] = "-0.0"  # -0 is an integer, without a sign
    if not np.isfinite(wide).all():
        unsigned, mantissa, quiet = _float_bits(dtype)
        bits = np.ascontiguousarray(flat).view(unsigned)
        for k in np.flatnonzero(np.isnan(wide)):
            payload = int(bits[k]) & ((1 << mantissa) - 1)
            sign = "-" if int(bits[k]) >> (dtype.bits - 1) & 1 and not dtype.name.endswith(("fnuz", "fnu")) else ""
            texts[int(k)] = f"{sign}nan" + (f"({payload:#x})" if quiet and payload != quiet else "")
    return texts


def _exact_texts(wide: NDArray[Any]) -> list[str]:
    return [text.removesuffix(".0") for text in map(repr, wide.tolist())]


def _float32_texts(wide: NDArray[Any]) -> list[str]:
    """Shortest of 7 to 9 digits that give the value back, also when read as a double first."""
    values = wide.tolist()
    texts = [f"{v:.7g}" for v in values]
    for digits in (8, 9):
        back = np.array(list(map(float, texts))).astype(np.float32)
        wrong = np.flatnonzero(back != wide.astype(np.float32))
        for k in wrong.tolist():
            texts[k] = f"{values[k]:.{digits}g}"
    return texts


_FLOAT_TYPES = {"float32": DTYPES["f32"], "float64": DTYPES["f64"]}
