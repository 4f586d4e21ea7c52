"""The codecs that `shardc.hlo.codec.plain` puts together: of plain values, arrays, objects and choices."""

from __future__ import annotations

import hashlib
import math
import operator
import types
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from shardc.hlo.ir.types import DTYPES, DType
from shardc.hlo.units import count_text

__all__ = [
    "SIMPLE",
    "Blobs",
    "Codec",
    "Mismatch",
    "ValueConstraint",
    "constrain_codec",
    "expected",
    "fixed",
    "literal",
    "mapping",
    "sequence",
    "union",
]

#: Bytes by digest, beside the data.
Blobs = MutableMapping[str, bytes]


class ValueConstraint:
    """What a value must be beyond its type: stands in ``Annotated[int, rule]``."""

    def problem(self, value: Any) -> str:
        """What is wrong with ``value``, a sentence's beginning such as ``7 is not between 1 and 4``; empty: nothing."""
        raise NotImplementedError


class Mismatch(Exception):
    """Data that is not of the type; ``path`` grows from the inside out."""

    def __init__(self, what: str, fix: str | None = None) -> None:
        super().__init__(what)
        self.what, self.fix = what, fix
        self.path: list[str] = []

    def at(self, step: str) -> Mismatch:
        self.path.append(step)
        return self


@dataclass(frozen=True, slots=True)
class Codec:
    """How values of one hint are written and read. ``held`` are their classes and ``read`` those of their data, by
    which unions choose; ``tag`` is a dataclass's name. Data of the type ``same`` is the value itself, which spares most
    calls."""

    encode: Callable[[Any, Blobs | None], Any]
    decode: Callable[[Any, Blobs | None], Any]
    held: tuple[type, ...]
    read: tuple[type, ...]
    tag: str = ""
    same: type | None = None


def _shorten(data: Any) -> str:
    """Data in an error: shortened."""
    text = repr(data) if isinstance(data, str | int | float | None) else type(data).__name__
    return text if len(text) <= 60 else f"{text[:57]}..."


_JSON: Mapping[type, str] = {
    dict: "an object",
    list: "an array",
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


def expected(data: Any, kind: type) -> Mismatch:
    given = _JSON[type(data)] if isinstance(data, dict | list) else _shorten(data)
    return Mismatch(f"{given} is not {_JSON[kind]}")


def _simple(kind: type) -> Codec:
    def encode(value: Any, blobs: Blobs | None) -> Any:
        if type(value) is not kind and not isinstance(value, kind):
            raise TypeError(f"{value!r} is not a {kind.__name__}")
        return value

    def decode(data: Any, blobs: Blobs | None) -> Any:
        if type(data) is not kind:
            raise expected(data, kind)
        return data

    return Codec(encode, decode, (kind,), (kind,), same=None if kind is str else kind)


def _read_int(data: Any, blobs: Blobs | None) -> Any:
    if type(data) is int:
        return data
    if type(data) is float and data.is_integer():  # the same number to JSON
        return int(data)
    raise expected(data, int)


def _read_text(data: Any, blobs: Blobs | None) -> Any:
    if type(data) is not str:
        raise expected(data, str)
    if not data.isascii():
        try:
            data.encode()
        except UnicodeEncodeError:
            raise Mismatch(f"{_shorten(data)} is not text in Unicode") from None
    return data


def _write_float(value: Any, blobs: Blobs | None) -> Any:
    number = float(value)
    return number if math.isfinite(number) else str(number)


def _read_float(data: Any, blobs: Blobs | None) -> Any:
    if type(data) is float and math.isfinite(data):
        return data
    if data in ("inf", "-inf", "nan"):
        return float(data)
    if type(data) is not int:
        raise expected(data, float)
    try:
        return float(data)
    except OverflowError:
        raise Mismatch(f"{_shorten(data)} is too large") from None


def _write_dtype(value: Any, blobs: Blobs | None) -> Any:
    return value.name


def _read_dtype(data: Any, blobs: Blobs | None) -> Any:
    if type(data) is not str or data not in DTYPES:
        raise Mismatch(f"{_shorten(data)} is not an element type")
    return DTYPES[data]


def _write_bytes(value: Any, blobs: Blobs | None) -> Any:
    if blobs is None:
        raise TypeError("plain data without a place for bytes")
    name = hashlib.sha256(value).hexdigest()
    blobs[name] = value
    return {"$": "bytes", "digest": name}


def _read_bytes(data: Any, blobs: Blobs | None) -> Any:
    name = data.get("digest") if type(data) is dict else None
    if blobs is None or type(name) is not str or name not in blobs:
        raise Mismatch(f"{_shorten(name if name else data)} is not the digest of any bytes that are there")
    return blobs[name]


def _write_anything(value: Any, blobs: Blobs | None) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _write_anything(v, blobs) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [_write_anything(v, blobs) for v in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a {type(value).__name__} is not plain data")


def _read_anything(data: Any, blobs: Blobs | None) -> Any:
    if type(data) is list:
        return tuple([_read_anything(v, blobs) for v in data])
    if type(data) is dict:
        return {k: _read_anything(v, blobs) for k, v in data.items()}
    return data


def _write_none(value: Any, blobs: Blobs | None) -> Any:
    if value is not None:
        raise TypeError(f"{value!r} is not None")


def _read_none(data: Any, blobs: Blobs | None) -> Any:
    if data is not None:
        raise Mismatch(f"{_shorten(data)} is not null")


_NONE = type(None)
SIMPLE: Mapping[Any, Codec] = types.MappingProxyType(
    {
        bool: _simple(bool),
        int: Codec(lambda value, _: operator.index(value), _read_int, (int,), (int, float), same=int),
        float: Codec(_write_float, _read_float, (float, int), (float, int)),
        str: Codec(_simple(str).encode, _read_text, (str,), (str,)),
        bytes: Codec(_write_bytes, _read_bytes, (bytes,), (dict,), "bytes"),
        DType: Codec(_write_dtype, _read_dtype, (DType,), (str,)),
        Any: Codec(_write_anything, _read_anything, (object,), (object,)),
        object: Codec(_write_anything, _read_anything, (object,), (object,)),
        _NONE: Codec(_write_none, _read_none, (_NONE,), (_NONE,)),
        None: Codec(_write_none, _read_none, (_NONE,), (_NONE,)),
    }
)


def constrain_codec(inner: Codec, rules: list[ValueConstraint]) -> Codec:
    def decode(data: Any, blobs: Blobs | None) -> Any:
        value = inner.decode(data, blobs)
        for rule in rules:
            if problem := rule.problem(value):
                raise Mismatch(problem)
        return value

    return Codec(inner.encode, decode, inner.held, inner.read, inner.tag)


def literal(choices: tuple[Any, ...]) -> Codec:
    kinds = tuple({type(c) for c in choices})

    def encode(value: Any, blobs: Blobs | None) -> Any:
        if value not in choices:
            raise TypeError(f"{value!r} is not one of {choices}")
        return value

    def decode(data: Any, blobs: Blobs | None) -> Any:
        if type(data) not in kinds or data not in choices:
            raise Mismatch(f"{_shorten(data)} is not known", f"use one of {', '.join(map(str, choices))}")
        return data

    return Codec(encode, decode, kinds, kinds)


def union(members: list[Codec]) -> Codec:
    """Chosen by class; several dataclasses by their names under ``$``."""
    tagged = {m.tag: m for m in members if m.tag}
    if len(tagged) > 1:
        members = [*(m for m in members if not m.tag), _tagged(tagged)]
    held = tuple(k for m in members for k in m.held)
    read = tuple(k for m in members for k in m.read)
    by_class: Mapping[type, Codec] = {k: m for m in reversed(members) for k in reversed(m.held)}
    by_data: Mapping[type, Codec] = {k: m for m in reversed(members) for k in reversed(m.read)}

    def encode(value: Any, blobs: Blobs | None) -> Any:
        member = by_class.get(type(value)) or next((m for m in members if isinstance(value, m.held)), None)
        if member is None:
            raise TypeError(f"a {type(value).__name__} is none of {held}")
        return member.encode(value, blobs)

    def decode(data: Any, blobs: Blobs | None) -> Any:
        member = by_data.get(type(data)) or by_data.get(object)
        if member is None:
            wanted = ", ".join(dict.fromkeys(_JSON.get(k, "null") for k in read))
            raise Mismatch(f"{_shorten(data)} is none of: {wanted}")
        return member.decode(data, blobs)

    return Codec(encode, decode, held, read)


def _tagged(members: Mapping[str, Codec]) -> Codec:
    names = {k: tag for tag, m in members.items() for k in m.held}

    def encode(value: Any, blobs: Blobs | None) -> Any:
        name = names[type(value)]
        return {"$": name, **members[name].encode(value, blobs)}

    def decode(data: Any, blobs: Blobs | None) -> Any:
        name = data.get("$")
        member = members.get(name) if type(name) is str else None
        if member is None:
            raise Mismatch(f"{_shorten(name)} is not known", f"use one of {', '.join(members)}").at("['$']")
        rest = dict(data)
        del rest["$"]
        return member.decode(rest, blobs)

    return Codec(encode, decode, tuple(names), (dict,))


def fixed(members: list[Codec]) -> Codec:
    def encode(value: Any, blobs: Blobs | None) -> Any:
        return [m.encode(v, blobs) for m, v in zip(members, value, strict=True)]

    def decode(data: Any, blobs: Blobs | None) -> Any:
        if type(data) is not list:
            raise expected(data, list)
        if len(data) != len(members):
            raise Mismatch(f"{count_text(len(data), 'entry', 'entries')} where {len(members)} are expected")
        out = []
        for n, (m, item) in enumerate(zip(members, data, strict=True)):
            try:
                out.append(m.decode(item, blobs))
            except Mismatch as e:
                raise e.at(f"[{n}]") from None
        return tuple(out)

    return Codec(encode, decode, (tuple, list), (list,))


def sequence(member: Codec, kind: type) -> Codec:
    same, decode_one = member.same, member.decode

    def encode(value: Any, blobs: Blobs | None) -> Any:
        return [member.encode(v, blobs) for v in value]

    def decode(data: Any, blobs: Blobs | None) -> Any:
        if type(data) is not list:
            raise expected(data, list)
        out: list[Any] = []
        try:
            for item in data:
                out.append(item if type(item) is same else decode_one(item, blobs))  # noqa: PERF401  (see below)
        except Mismatch as e:  # where it went wrong: behind what there is
            raise e.at(f"[{len(out)}]") from None
        return kind(out)

    return Codec(encode, decode, (tuple, list), (list,))


def mapping(key: Codec, member: Codec) -> Codec:
    if key.read != (str,):
        raise TypeError("keys of plain data are text")

    def encode(value: Any, blobs: Blobs | None) -> Any:
        return {key.encode(k, blobs): member.encode(v, blobs) for k, v in value.items()}

    def decode(data: Any, blobs: Blobs | None) -> Any:
        if type(data) is not dict:
            raise expected(data, dict)
        out = {}
        for name, item in data.items():
            try:
                out[key.decode(name, blobs)] = member.decode(item, blobs)
            except Mismatch as e:
                raise e.at(f"[{_shorten(name)}]") from None
        return out

    return Codec(encode, decode, (dict, Mapping), (dict,))
