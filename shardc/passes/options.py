"""Options of passes as text: how a field of a dataclass is written, by its type."""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import partial
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from shardc.compiler.lower.schedule.overlap import Overlap
from shardc.costs.machines.machine import Machine, load_machine
from shardc.hlo.errors import InputError
from shardc.hlo.ir.mesh import Mesh
from shardc.passes.parse import WHERE, Value
from shardc.sharding.notations.names import near_names
from shardc.sharding.propagation.options import PropagationOptions

__all__ = ["Option", "make", "options_of"]

#: Fields that every pass has and that are no options.
_ABOUT = frozenset({"name", "why"})
#: Options that have options of their own.
_NESTED = (Overlap, PropagationOptions)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kind:
    """What values of a type are called, and how they are read and shown. ``read`` raises ValueError with what was
    expected, or an error of ours."""

    title: str
    read: Callable[[Value], Any]
    show: Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class Option:
    """An option as text has it: ``name`` with dashes, its ``type`` in words, its ``default``."""

    name: str
    type: str
    default: str

    def __str__(self) -> str:
        return f"{self.name}: {self.type} = {self.default}"


def options_of(cls: type[Any]) -> tuple[Option, ...]:
    """The options of a pass, a pipeline or an option that has options: fields whose types can be written as text."""
    return tuple(
        Option(_text_name(f), kind.title, kind.show(_default(f)))
        for f, kind in _kinds(cls).values()
    )  # fmt: skip


def make(cls: type[T], given: Mapping[str, Value], where: str) -> T:
    """An instance of ``cls`` with options as ``given``. Raises `InputError` for unknown ones and for values of another
    type; ``where`` names what has the options."""
    known = _kinds(cls)
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            fix = near_names(name, known) or f"{where} has no options"
            raise InputError(f"{where} has no option {name!r}", where=WHERE, fix=fix)
        f, kind = known[name]
        default = _default(f)
        fix = f"give {kind.title}" if default is MISSING else f"write {name}={kind.show(default)}, the default"
        values[f.name] = _read(kind, value, f"{where}, option {name}", fix)
    missing = [name for name, (f, _) in known.items() if f.name not in values and _default(f) is MISSING]
    if missing:
        raise InputError(
            f"{where} needs a value for {', '.join(missing)}", where=WHERE, fix=f"write {where}{{{missing[0]}=...}}"
        )
    return cls(**values)


def _read(kind: Kind, value: Value, where: str, fix: str) -> Any:
    shown = value if isinstance(value, str) else "{...}"
    try:
        return kind.read(value)
    except ValueError:
        raise InputError(f"{where} takes {kind.title}, not {shown!r}", where=WHERE, fix=fix) from None


def _kinds(cls: type[Any]) -> Mapping[str, tuple[Field[Any], Kind]]:
    """Fields by their names in text, with how their values are written."""
    hints = get_type_hints(cls, localns={k.__name__: k for k in _NESTED})  # modules of passes may not import them
    found = ((f, _kind(hints[f.name])) for f in fields(cls) if f.init and f.name not in _ABOUT)
    return {_text_name(f): (f, kind) for f, kind in found if kind is not None}


def _text_name(f: Field[Any]) -> str:
    return f.name.replace("_", "-")


def _default(f: Field[Any]) -> Any:
    return f.default if f.default_factory is MISSING else f.default_factory()


def _kind(hint: Any) -> Kind | None:
    """How values of a type are written; None where text has no form for them."""
    origin, args = get_origin(hint), get_args(hint)
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if origin is Literal:
        return Kind(" or ".join(args), partial(_one_of, args), str)
    if origin in (Union, types.UnionType) and type(None) in args and len(args) == 2:
        inner = _kind(next(a for a in args if a is not type(None)))
        return None if inner is None else _or_none(inner)
    if origin is tuple and args == (str, ...):
        return Kind("words with + between them", _split_words, "+".join)
    if origin is frozenset and args == (str,):
        return Kind("words with + between them", lambda v: frozenset(_split_words(v)), lambda v: "+".join(sorted(v)))
    return _nested(hint) if hint in _NESTED else None


def _or_none(inner: Kind) -> Kind:
    return Kind(
        f"{inner.title} or none",
        lambda v: None if v == "none" else inner.read(v),
        lambda v: "none" if v is None else inner.show(v),
    )


def _nested(cls: type[Any]) -> Kind:
    """A dataclass of options is options in braces."""
    options = _kinds(cls)

    def read(value: Value) -> Any:
        if isinstance(value, str):
            raise ValueError(value)
        return make(cls, value, cls.__name__)

    def show(value: Any) -> str:
        parts = (f"{name}={kind.show(getattr(value, f.name))}" for name, (f, kind) in options.items())
        return "{" + ",".join(parts) + "}"

    return Kind("{" + ",".join(f"{name}=..." for name in options) + "}", read, show)


def _text(value: Value) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value


def _one_of(words: tuple[str, ...], value: Value) -> str:
    if value not in words:
        raise ValueError(value)
    return _text(value)


def _split_words(value: Value) -> tuple[str, ...]:
    return tuple(w.strip() for w in _text(value).split("+") if w.strip())


def _boolean(value: Value) -> bool:
    return _one_of(("true", "false"), value) == "true"


def _integer(value: Value) -> int:
    return int(_text(value))


def _float(value: Value) -> float:
    number = float(_text(value))
    if not math.isfinite(number):
        raise ValueError(value)
    return number


def _machine(value: Value) -> Machine:
    return load_machine(_text(value))


def _mesh(value: Value) -> Mesh:
    if isinstance(value, str):
        raise ValueError(value)
    return Mesh({name: _integer(size) for name, size in value.items()})


_SIMPLE: Mapping[Any, Kind] = types.MappingProxyType(
    {
        bool: Kind("true or false", _boolean, lambda v: "true" if v else "false"),
        int: Kind("an integer", _integer, str),
        float: Kind("a number", _float, lambda v: f"{v:g}"),
        str: Kind("a text", _text, str),
        Machine: Kind("a machine's name or file", _machine, lambda m: m.name),
        Mesh: Kind("{axis=size,...}", _mesh, lambda m: "{" + ",".join(f"{n}={k}" for n, k in m.axes) + "}"),
    }
)
