"""Shapes in HLO text: ``f32[2,3]{0,1:T(8,128)}``, ``(f32[], token[])``."""

from __future__ import annotations

import re
from functools import lru_cache

from shardc.hlo.errors import ParseError
from shardc.hlo.ir.types import DTYPES, UNBOUNDED, Layout, Shape, array_shape, tuple_shape
from shardc.hlo.text.scanner import Scanner
from shardc.hlo.units import count_text

__all__ = ["read_shape", "shape_of_text", "try_shape", "with_layout"]

ARRAY_SHAPE = re.compile(r"\s*([a-z][a-z0-9]*\s*\[[^\[\]]*\](?:\s*\{(?=\s*[\d:\-])[^{}]*\})?)")
_PARTS = re.compile(r"([a-z0-9]+)\s*\[([^\]]*)\](?:\s*\{([^:}]*)(?::([^}]*))?\})?\Z")
_DIM = re.compile(r"\s*(<=\s*)?(\d+|(?<!=)\?)\s*\Z")
_INT = re.compile(r"\s*-?\d+\s*\Z")
_NUMBERS = r"-?\d+(?:,-?\d+)*"
_LEVEL = r"[DCSH]\+?~?"
#: What follows the order of dimensions, each part at most once and in this order: sparse levels, tiles, padding of the
#: tail, types of indices and pointers, element size, memory space, splits, bytes in front.
_SUFFIX = re.compile(
    rf"(?:D\((?:{_LEVEL}(?:,{_LEVEL})*)?\))?(?:T(?:\((?:(?:\d+|\*)(?:,(?:\d+|\*))*)?\))+)?(?:L\(-?\d+\))?"
    rf"(?:#\(u\d+\))?(?:\*\(u\d+\))?(?:E\(-?\d+\))?(?:S\(-?\d+\))?(?:SC(?:\(-?\d+:(?:{_NUMBERS})?\))+)?"
    r"(?:M\(-?\d+\))?\Z"
)
_TUPLE_START = re.compile(r"\s*\(")
_BUFFER_START = re.compile(r"\s*b\s*\(")
_MAX_ELEMENTS = 1 << 63
#: Types whose shapes are written with parentheses.
_COMPOSED = ("tuple", "buffer")


class _BadShape(Exception):
    """What is wrong with the text of a shape."""


def read_shape(scanner: Scanner) -> Shape:
    """The shape at the scanner's position; ParseError when there is none."""
    shape = try_shape(scanner)
    if shape is None:
        scanner.skip_space()
        raise scanner.error(f"expected a shape such as f32[2,3], found {scanner.excerpt()}")
    return shape


def try_shape(scanner: Scanner) -> Shape | None:
    """The shape at the scanner's position, or None (position unchanged) when something else comes."""
    found = ARRAY_SHAPE.match(scanner.text, scanner.pos)
    if found is not None:
        try:
            shape = _array_shape(found.group(1))
        except _BadShape as e:
            raise scanner.error(str(e), at=found.start(1)) from None
        scanner.pos = found.end()
        return shape
    if _TUPLE_START.match(scanner.text, scanner.pos) is None:
        return _buffer(scanner)
    start = scanner.pos
    known = _known_tuple(scanner.take_bracketed())
    if known is None:  # malformed: again, for a message with its place
        scanner.pos = start
        return _tuple(scanner)
    return known


@lru_cache(maxsize=16384)
def _known_tuple(text: str) -> Shape | None:
    try:
        scanner = Scanner(text)
        shape = _tuple(scanner)
        return shape if scanner.at_end() else None
    except ParseError:
        return None


def _tuple(scanner: Scanner) -> Shape:
    scanner.expect("(")
    elements: list[Shape] = []
    if scanner.accept(")"):
        return tuple_shape()
    while True:
        elements.append(read_shape(scanner))
        if scanner.accept(")"):
            return tuple_shape(*elements)
        scanner.expect(",", "or ')' in a tuple shape")


def _buffer(scanner: Scanner) -> Shape | None:
    """``b(f32[2])``, a buffer that holds an array."""
    found = scanner.match(_BUFFER_START)
    if found is None:
        return None
    inner = read_shape(scanner)
    if not inner.is_array:
        raise scanner.error(f"a buffer holds an array, not {inner}", at=found.start())
    scanner.expect(")", "after the shape of a buffer")
    return Shape(DTYPES["buffer"], elements=(inner,))


@lru_cache(maxsize=65536)
def _array_shape(text: str) -> Shape:
    parts = _PARTS.match(text)
    if parts is None:
        raise _BadShape(f"malformed shape {text!r}")
    name, dims_text, order, suffix = parts.groups()
    dtype = DTYPES.get(name)
    if name in _COMPOSED or dtype is None:
        known = ", ".join(n for n in DTYPES if n not in _COMPOSED)
        raise _BadShape(f"unknown element type {name!r} in shape {text!r} (known: {known})")
    dims, dynamic = _dimensions(dims_text, text)
    if not (dtype.bits or not dims):
        raise _BadShape(f"{name} has no dimensions, found {text!r}")
    layout = None
    if order is not None:
        layout = _layout(order, suffix, len(dims), text)
    if layout is None and not dynamic:
        return array_shape(dtype, *dims) if dtype.bits else Shape(dtype)
    return Shape(dtype, dims, layout=layout, dynamic=dynamic)


def _dimensions(dims_text: str, text: str) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    if not dims_text.strip():
        return (), ()
    dims: list[int] = []
    marks: list[bool] = []
    for item in dims_text.split(","):
        found = _DIM.match(item)
        if found is None:
            raise _BadShape(f"malformed dimension {item.strip()!r} in shape {text!r}")
        is_unbounded = found.group(2) == "?"
        dims.append(UNBOUNDED if is_unbounded else int(found.group(2)))
        marks.append(is_unbounded or found.group(1) is not None)
    total = 1
    for d in dims:
        total *= max(d, 1)
    if total > _MAX_ELEMENTS:
        raise _BadShape(f"shape {text!r} has too many elements")
    return tuple(dims), tuple(marks) if any(marks) else ()


def _layout(order: str, suffix: str | None, rank: int, text: str) -> Layout | None:
    items = order.split(",") if order.strip() else []
    if not all(_INT.match(i) for i in items):
        raise _BadShape(f"malformed layout in {text!r}")
    minor_to_major = tuple(int(i) for i in items)
    if len(minor_to_major) != rank or (suffix is None and not items):
        raise _BadShape(f"layout of {text!r} lists {len(items)} of {count_text(rank, 'dimension')}")
    if sorted(minor_to_major) != list(range(rank)):
        raise _BadShape(f"layout of {text!r} is not a permutation of its dimensions")
    suffix = "".join(suffix.split()) if suffix else ""
    if not _SUFFIX.match(suffix):
        raise _BadShape(f"malformed tiles or memory space {suffix!r} in {text!r}")
    if not suffix and minor_to_major == tuple(range(rank - 1, -1, -1)):
        return None
    return Layout(minor_to_major, suffix)


def shape_of_text(text: str) -> Shape:
    """The shape that a whole text spells; ParseError otherwise."""
    scanner = Scanner(text)
    shape = read_shape(scanner)
    if not scanner.at_end():
        raise ParseError(f"unexpected text after the shape: {scanner.excerpt()}", where=scanner.location())
    return shape


def with_layout(shape: Shape) -> str:
    """The text of a shape with the default layout spelled out, for places where a missing one means "any"."""
    if shape.is_tuple:
        return "(" + ", ".join(map(with_layout, shape.elements)) + ")"
    if shape.layout is None and shape.dims:
        return f"{shape}{{{','.join(str(d) for d in reversed(range(shape.rank)))}}}"
    return str(shape)
