"""`dataclass` as in the standard library, but that methods are made when they are first needed.

The standard decorator writes and compiles the source of six methods for every class while its module is imported:
more than half of the time that our imports take. This one has it find fields and make slots; what compares, hashes and
prints is the same code for all classes, and an ``__init__`` is compiled when the first value is made.

Type checkers see the standard one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, *, init=True, eq=True, order=False, frozen=False, slots=False, kw_only=False):
        def decorate(given):
            if order or not init:
                standard = dataclasses.dataclass
                return standard(init=init, eq=eq, order=order, frozen=frozen, slots=slots, kw_only=kw_only)(given)
            return _dataclass(given, eq=eq, frozen=frozen, slots=slots, kw_only=kw_only)

        return decorate if cls is None else decorate(cls)


def _dataclass(given: type, *, eq: bool, frozen: bool, slots: bool, kw_only: bool) -> type:
    own = dict(vars(given))
    inherits = any("__dataclass_params__" in vars(base) for base in given.__mro__[1:])
    given.__doc__ = given.__doc__ or given.__name__  # else the standard one writes a signature into it
    # It compares `frozen` with the bases'; where there are none, its methods for that are not needed.
    made: Any = dataclasses.dataclass(
        init=False, repr=False, eq=False, frozen=frozen and inherits, slots=slots, kw_only=kw_only
    )(given)
    parameters = made.__dataclass_params__
    parameters.init = parameters.repr = True
    parameters.eq, parameters.frozen = eq, frozen
    methods: dict[str, Any] = {"__init__": _first_init(made), "__repr__": _repr}
    if eq:
        methods |= _equality(made, frozen=frozen)
    if frozen and not inherits:
        methods |= _frozen(made)
        if slots:
            methods |= {"__getstate__": _getstate, "__setstate__": _setstate}
    hashes = own.get("__hash__") is not None or ("__hash__" in own and "__eq__" not in own)
    for name, method in methods.items():
        if not (hashes if name == "__hash__" else name in own):
            setattr(made, name, method)
    return made  # type: ignore[no-any-return]


def _first_init(made: Any) -> Callable[..., None]:
    def first_init(self: object, *args: Any, **kwargs: Any) -> None:
        made.__init__ = _init(made)
        made.__init__(self, *args, **kwargs)

    return first_init


def _init(made: Any) -> Callable[..., None]:
    """The ``__init__`` that the standard library would make."""
    names: dict[str, Any] = {"__name__": made.__module__, "set_field": object.__setattr__, "by_factory": object()}
    given: dict[bool, list[str]] = {False: [], True: []}
    body = []
    for number, f in enumerate(fields(made)):
        value: str | None = f.name
        if f.default is not MISSING:
            names[f"default_{number}"] = f.default
        if f.default_factory is not MISSING:
            names[f"make_{number}"] = f.default_factory
        if f.init:
            default = f"=default_{number}" if f.default is not MISSING else ""
            if f.default_factory is not MISSING:
                default, value = "=by_factory", f"make_{number}() if {f.name} is by_factory else {f.name}"
            given[f.kw_only is True].append(f.name + default)
        elif f.default_factory is not MISSING:
            value = f"make_{number}()"
        else:
            value = f"default_{number}" if f.default is not MISSING and "__slots__" in vars(made) else None
        if value is not None:
            frozen = made.__dataclass_params__.frozen
            body.append(f"set_field(self, {f.name!r}, {value})" if frozen else f"self.{f.name} = {value}")
    if hasattr(made, "__post_init__"):
        body.append("self.__post_init__()")
    arguments = ", ".join(["self", *given[False], *(["*"] if given[True] else []), *given[True]])
    text = f"def __init__({arguments}):\n  " + "\n  ".join(body or ["pass"])
    exec(text, names, found := {})  # type: ignore[var-annotated]
    function: Callable[..., None] = found["__init__"]
    function.__qualname__ = f"{made.__qualname__}.__init__"
    function.__annotations__ = {f.name: f.type for f in fields(made) if f.init}
    return function


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _equality(made: Any, *, frozen: bool) -> dict[str, Any]:
    compared = [f for f in fields(made) if f.compare]
    values = _values(compared)

    def equal(self: object, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    if not frozen:
        return {"__eq__": equal, "__hash__": None}
    hashed = _values([f for f in fields(made) if (f.compare if f.hash is None else f.hash)])

    def hash_of(self: object) -> int:
        return hash(hashed(self))

    return {"__eq__": equal, "__hash__": hash_of}


def _values(chosen: list[Field[Any]]) -> Callable[[object], tuple[Any, ...]]:
    """What gives the values of fields as a tuple."""
    names = [f.name for f in chosen]
    if len(names) > 1:
        return attrgetter(*names)
    get = attrgetter(*names) if names else None
    return lambda self: () if get is None else (get(self),)


def _frozen(made: Any) -> dict[str, Any]:
    names = frozenset(f.name for f in fields(made))

    def set_field(self: object, name: str, value: object) -> None:
        if type(self) is made or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(made, self).__setattr__(name, value)

    def delete_field(self: object, name: str) -> None:
        if type(self) is made or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(made, self).__delattr__(name)

    return {"__setattr__": set_field, "__delattr__": delete_field}


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for f, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, f.name, value)
