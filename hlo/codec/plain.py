"""Values as plain data (what JSON can say) and back, by the types in their classes' hints: one codec for all of ours.

Nothing in the data says what is made of it: a reader names the type, and dataclasses are reached through the hints of
their fields alone. Where a hint leaves a choice of several dataclasses, the data has the chosen one's name under ``$``.
Reading is strict: wrong types, unknown and missing fields, and what a `ValueConstraint` forbids are an `InputError`
that says where. Bytes, where a caller has a place for them, go beside the data by their digest.

=================== ===================================================================================================
hint                data
=================== ===================================================================================================
dataclass           object: fields by name, but those that begin with ``_``; fields with a default may be missing
tuple, list         array
Mapping, dict       object; keys are text, in their order
int                 number without a fraction
float               number; ``"inf"``, ``"-inf"``, ``"nan"`` for what JSON has no numbers for
Literal, str, bool, themselves
None
DType               its name
bytes               ``{"$": "bytes", "digest": "..."}``
Any                 as it is; arrays are read as tuples
=================== ===================================================================================================
"""

from __future__ import annotations

import json
import types
from collections.abc import Hashable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, lru_cache
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from shardc.hlo.codec.codecs import (
    SIMPLE,
    Blobs,
    Codec,
    Mismatch,
    ValueConstraint,
    constrain_codec,
    expected,
    fixed,
    literal,
    mapping,
    sequence,
    union,
)
from shardc.hlo.errors import InputError

__all__ = ["Blobs", "ValueConstraint", "from_json", "from_plain", "read_json", "to_json", "to_plain"]

T = TypeVar("T")


def to_plain(value: Any, kind: Any = None, blobs: Blobs | None = None) -> Any:
    """``value`` as plain data of the type ``kind`` (default: its own class), equal ones as equal data.

    ``blobs`` takes the bytes in it. Raises TypeError for what the hints do not say.
    Example: ``to_plain(Shape(F32, (2, 3)))["dims"] == [2, 3]``.
    """
    return _codec(cast(Hashable, type(value) if kind is None else kind)).encode(value, blobs)


def from_plain(kind: Any, data: Any, where: str = "", blobs: Blobs | None = None) -> Any:
    """The value of type ``kind`` that `to_plain` gave ``data`` for; ``where`` is what errors call the whole of it.

    Raises `InputError` for data that is not of that type, with the place in it: ``order.mesh['data']``.
    """
    try:
        return _codec(kind).decode(data, blobs)
    except Mismatch as e:
        place = where + "".join(reversed(e.path))
        raise InputError(e.what, where=place.removeprefix(".") or None, fix=e.fix) from None


def to_json(value: Any, kind: Any = None) -> str:
    """`to_plain` as JSON on one line, equal values as equal text."""
    return json.dumps(to_plain(value, kind), separators=(",", ":"), allow_nan=False)


def from_json(kind: type[T], text: str | bytes, where: str = "") -> T:
    """`from_plain` of a JSON text; `InputError` for what is none."""
    return cast(T, from_plain(kind, read_json(text, where), where))


def read_json(text: str | bytes, where: str = "") -> Any:
    """The data that ``text`` says. `InputError` for what is no JSON (in UTF-8), too deep, or not a number."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise InputError("the JSON is nested too deeply", where=where or None) from None
    except ValueError as e:
        raise InputError(f"not JSON: {e}", where=where or None) from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")


@lru_cache(maxsize=1024)
def _codec(hint: Any) -> Codec:
    """How values of a hint are written and read; made once."""
    if hint in SIMPLE:
        return SIMPLE[hint]
    if is_dataclass(hint):
        return _dataclass(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return constrain_codec(_codec(arguments[0]), [a for a in arguments[1:] if isinstance(a, ValueConstraint)])
    if origin is Literal:
        return literal(arguments)
    if origin in (Union, types.UnionType):
        return union([_codec(a) for a in arguments])
    if origin is list or (origin is tuple and arguments[-1] is Ellipsis):
        return sequence(_codec(arguments[0]), origin)
    if origin is tuple:
        return fixed([_codec(a) for a in arguments])
    if origin in (dict, Mapping):
        return mapping(_codec(arguments[0]), _codec(arguments[1]))
    raise TypeError(f"plain data has no form for {hint!r}")


def _dataclass(kind: Any) -> Codec:
    shown = [f for f in fields(kind) if f.init and not f.name.startswith("_")]
    needed = [f.name for f in shown if f.default is MISSING and f.default_factory is MISSING]

    @cache  # later than the class itself: its fields may hold others like it
    def by_field() -> Mapping[str, Codec]:
        hints = get_type_hints(kind, include_extras=True)
        return {f.name: _codec(hints[f.name]) for f in shown}

    def encode(value: Any, blobs: Blobs | None) -> Any:
        if type(value) is not kind:
            raise TypeError(f"a {type(value).__name__} is not a {kind.__name__}")
        return {name: codec.encode(getattr(value, name), blobs) for name, codec in by_field().items()}

    def decode(data: Any, blobs: Blobs | None) -> Any:
        if type(data) is not dict:
            raise expected(data, dict)
        known = by_field()
        values = {}
        for name, item in data.items():
            codec = known.get(name)
            if codec is None:
                raise Mismatch("there is no such field", f"use {', '.join(known)}").at(f".{name[:60]}")
            if type(item) is codec.same:
                values[name] = item
                continue
            try:
                values[name] = codec.decode(item, blobs)
            except Mismatch as e:
                raise e.at(f".{name}") from None
        for name in needed:
            if name not in values:
                raise Mismatch("the field is missing").at(f".{name}")
        try:
            return kind(**values)
        except (TypeError, ValueError) as e:
            raise Mismatch(f"not a {kind.__name__}: {e}") from None

    return Codec(encode, decode, (kind,), (dict,), kind.__name__)
