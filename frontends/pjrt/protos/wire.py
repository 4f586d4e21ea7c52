"""The wire format of protocol buffers, for classes whose fields carry their numbers.

A field's annotation says what it is: ``int`` (any of int32, int64, uint64, enums), ``bool``, ``float`` (a double; with
``single`` a float), ``str``, ``bytes``, another message, a tuple of one of these, or a dict. ``None`` is an absent
message, or an absent value of a field that knows absence. Packed numbers that a caller has in memory may be ``bytes``.
Unknown fields are passed over, as newer writers have them.

>>> class Point(Message):
...     x: int = number(1)
...     tags: tuple[str, ...] = number(2)
>>> Point.read(Point(x=-1, tags=("a", "b")).to_bytes())
Point(x=-1, tags=('a', 'b'))
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Self, cast, dataclass_transform, get_args, get_origin, get_type_hints

from shardc.hlo.errors import InputError

__all__ = ["Message", "number"]

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: "<d", _FIXED32: "<f"}
_MASK = (1 << 64) - 1


def number(n: int, *, single: bool = False) -> Any:
    """A field with its number; ``single`` marks a 32 bit float. Absent it is 0, empty or None."""
    return dataclasses.field(default=None, metadata={"number": n, "single": single})


@dataclass(frozen=True, slots=True)
class _ProtoField:
    """``kind`` is the Python type of one value; ``wire`` its wire type; ``key`` the kind of a dict's keys."""

    name: str
    number: int
    kind: type
    wire: int
    repeated: bool
    optional: bool
    entry: tuple[_ProtoField, _ProtoField] | None = None


@dataclass_transform(frozen_default=True)
class Message:
    """A message: its subclasses are frozen dataclasses, with fields made by `number`."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)

    def __post_init__(self) -> None:
        for f in _fields_of(cast("Hashable", type(self))):
            if getattr(self, f.name) is None and not f.optional:
                object.__setattr__(self, f.name, {} if f.entry else () if f.repeated else f.kind())

    def to_bytes(self) -> bytes:
        out = bytearray()
        for f in _fields_of(cast("Hashable", type(self))):
            value = getattr(self, f.name)
            if f.entry is not None:
                for pair in value.items():
                    _write_length(out, f.number, b"".join(map(_write_alone, f.entry, pair)))
            elif isinstance(value, bytes) and (value or f.optional) and f.kind is not bytes:
                _write_length(out, f.number, value)
            elif not f.repeated:
                if value is not None and (f.optional or value):
                    _write_value(out, f, value)
            elif f.wire == _LENGTH:
                for item in value:
                    _write_value(out, f, item)
            elif value:
                _write_length(out, f.number, b"".join(_number_bytes(f.wire, item) for item in value))
        return bytes(out)

    @classmethod
    def read(cls, data: bytes) -> Self:
        """The message in ``data``; raises `InputError` where that is cut off or malformed."""
        known = {f.number: f for f in _fields_of(cast("Hashable", cls))}
        values: dict[str, Any] = {}
        try:
            for n, wire, content in _records(data):
                f = known.get(n)
                if f is not None:
                    _take(values, f, wire, content)
        except (IndexError, struct.error, UnicodeDecodeError, ValueError, TypeError, AttributeError) as e:
            raise InputError(
                f"malformed {cls.__name__}: {e}", fix="use a jaxlib release that this shardc supports"
            ) from None
        return cls(**{name: tuple(v) if isinstance(v, list) else v for name, v in values.items()})


@lru_cache(maxsize=256)
def _fields_of(message: Hashable) -> tuple[_ProtoField, ...]:
    """The fields of a message class, by their annotations."""
    assert isinstance(message, type) and dataclasses.is_dataclass(message)
    hints = get_type_hints(message)
    return tuple(_field(f.name, hints[f.name], **f.metadata) for f in dataclasses.fields(message))


def _field(name: str, hint: Any, number: int, single: bool) -> _ProtoField:
    options = [a for a in get_args(hint) if a is not NoneType] if isinstance(hint, UnionType) else [hint]
    optional = isinstance(hint, UnionType) and NoneType in get_args(hint)
    kind = options[0]
    origin = get_origin(kind)
    if origin is dict:
        key, value = get_args(kind)
        pair = (_field("key", key, 1, False), _field("value", value, 2, single))
        return _ProtoField(name, number, dict, _LENGTH, True, False, pair)
    if origin is tuple:
        kind = get_args(kind)[0]
    wire = _FIXED32 if single else {int: _VARINT, bool: _VARINT, float: _FIXED64}.get(kind, _LENGTH)
    return _ProtoField(name, number, kind, wire, origin is tuple, optional)


# --- writing ------------------------------------------------------------------------------------------------


def _varint(value: int) -> bytes:
    value &= _MASK  # negative numbers are written as if unsigned, in ten bytes
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number_bytes(wire: int, value: float) -> bytes:
    return _varint(int(value)) if wire == _VARINT else struct.pack(_FIXED[wire], value)


def _write_length(out: bytearray, n: int, content: bytes) -> None:
    out += _varint(n << 3 | _LENGTH)
    out += _varint(len(content))
    out += content


def _write_value(out: bytearray, f: _ProtoField, value: Any) -> None:
    if f.wire == _LENGTH:
        content = value if isinstance(value, bytes) else value.encode() if isinstance(value, str) else value.to_bytes()
        _write_length(out, f.number, content)
    else:
        out += _varint(f.number << 3 | f.wire)
        out += _number_bytes(f.wire, value)


def _write_alone(f: _ProtoField, value: Any) -> bytes:
    out = bytearray()
    _write_value(out, f, value)
    return bytes(out)


# --- reading ------------------------------------------------------------------------------------------------


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= _MASK
            return (value - (1 << 64) if value >> 63 else value), at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than ten bytes")


def _records(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Field number, wire type and content: an integer, or the bytes."""
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        wire = tag & 7
        if wire == _VARINT:
            value, at = _read_varint(data, at)
            yield tag >> 3, wire, value
            continue
        if wire == _LENGTH:
            size, at = _read_varint(data, at)
        elif wire in _FIXED:
            size = struct.calcsize(_FIXED[wire])
        else:
            raise ValueError(f"wire type {wire}")
        if size < 0 or at + size > len(data):
            raise ValueError("the message is cut off")
        yield tag >> 3, wire, data[at : at + size]
        at += size


def _take(values: dict[str, Any], f: _ProtoField, wire: int, content: Any) -> None:
    """Put a record's content to the values read so far."""
    if f.entry is not None:
        values.setdefault(f.name, {}).update([_pair(f.entry, content)])
    elif f.repeated:
        values.setdefault(f.name, []).extend(
            _packed(f, content) if wire == _LENGTH != f.wire else [_value(f, wire, content)]
        )
    else:
        values[f.name] = _value(f, wire, content)


def _pair(entry: tuple[_ProtoField, _ProtoField], data: bytes) -> tuple[Any, Any]:
    found: dict[int, Any] = {}
    for n, wire, content in _records(data):
        if n <= 2:
            found[n] = _value(entry[n - 1], wire, content)
    key, value = (found.get(f.number, f.kind()) for f in entry)
    return key, value


def _packed(f: _ProtoField, data: bytes) -> Iterator[Any]:
    if f.wire != _VARINT:
        yield from (value for (value,) in struct.iter_unpack(_FIXED[f.wire], data))
        return
    at = 0
    while at < len(data):
        value, at = _read_varint(data, at)
        yield f.kind(value)


def _value(f: _ProtoField, wire: int, content: Any) -> Any:
    if wire != f.wire:
        raise ValueError(f"field {f.name} has wire type {wire}, not {f.wire}")
    if wire in _FIXED:
        return struct.unpack(_FIXED[wire], content)[0]
    if wire == _VARINT or f.kind is bytes:
        return f.kind(content)
    return content.decode() if f.kind is str else cast("type[Message]", f.kind).read(content)
