"""Memory as functions of the low-level language and the rest of Python see it: records, arrays, atomics."""

from __future__ import annotations

import collections.abc
import ctypes
import sys
import types
import typing
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import cache
from typing import Annotated, Any, Generic, Protocol, TypeVar

from shardc.native.lowlevel.kinds import (
    BOOL,
    LINE_BYTES,
    NOTHING,
    OWN_LINE,
    POINTER,
    AddressKind,
    AtomicKind,
    Count,
    FunctionKind,
    Integer,
    Kind,
    MemoryPlace,
    RecordKind,
    SpanKind,
)

__all__ = [
    "ACQUIRE",
    "ACQ_REL",
    "ORDERS",
    "RELAXED",
    "RELEASE",
    "RUN",
    "SEQ_CST",
    "Atomic",
    "Order",
    "Record",
    "SimulatedRun",
    "Span",
    "address_of",
    "current_run",
    "kind_of",
    "place_of",
    "places_of",
    "reference",
]  # fmt: skip

T = TypeVar("T")

#: A memory order of an atomic operation, by its name in C and LLVM.
Order = str
RELAXED, ACQUIRE, RELEASE, ACQ_REL, SEQ_CST = "relaxed", "acquire", "release", "acq_rel", "seq_cst"
ORDERS = (RELAXED, ACQUIRE, RELEASE, ACQ_REL, SEQ_CST)


class SimulatedRun(Protocol):
    """The machine and the system, where functions run as plain Python: `shardc.native.lowlevel.simulation` has one."""

    def before_atomic(self) -> None:
        """An atomic operation follows."""

    def address_of_function(self, function: Callable[..., Any]) -> int: ...

    def function_at(self, address: int) -> Callable[..., Any] | None: ...

    def memory_of(self, static: Any) -> Record: ...

    def now(self) -> int:
        """Nanoseconds of a clock that never goes back."""

    def pass_turn(self) -> None:
        """Let other threads run."""

    def sleep(self, nanoseconds: int) -> None: ...

    def wait_on(self, address: int, nanoseconds: int | None) -> None:
        """Sleep until somebody wakes who waits on ``address``, or for so long."""

    def wake(self, address: int, count: int) -> None: ...

    def process(self) -> int:
        """The number of the process."""

    def thread(self) -> int:
        """The number of the thread."""

    def start_thread(self, function: Callable[..., Any], argument: int) -> None: ...

    def allocate(self, alignment: int, nbytes: int) -> int:
        """Memory that is there until it is freed; what is in it is not said."""

    def free(self, address: int) -> None: ...


#: The run that the calling thread is in.
RUN: ContextVar[SimulatedRun | None] = ContextVar("RUN", default=None)


def current_run() -> SimulatedRun:
    """The run that the calling thread is in; TypeError where there is none."""
    run = RUN.get()
    if run is None:
        raise TypeError("this is plain Python of native code: it runs in a simulation only")
    return run


def reference(at: int) -> Any:
    """An address, to be assigned to a field that holds a reference; outside of the language's functions."""
    return at


def read(place: MemoryPlace, at: int, owner: object = None) -> Any:
    """What lies at an address, in memory that is there as long as ``owner``."""
    kind = place.kind
    if isinstance(kind, Integer):
        return kind.c_type.from_address(at).value
    if not place.is_inline:
        at = ctypes.c_size_t.from_address(at).value
        if isinstance(kind, AddressKind):
            return at
        if not at:
            return None
    if isinstance(kind, RecordKind):
        return kind.cls.from_address(at)
    if isinstance(kind, SpanKind):
        return Span(kind.element, at, owner)
    if isinstance(kind, AtomicKind):
        return Atomic(kind.value, at, owner)
    assert isinstance(kind, FunctionKind)
    run = RUN.get()
    return (run and run.function_at(at)) or NativeFunction(kind, at)


def write(place: MemoryPlace, at: int, value: Any) -> None:
    """Store a value at an address; a record that lies there is copied."""
    if isinstance(place.kind, Integer):
        place.kind.c_type.from_address(at).value = value
    elif place.is_inline:
        if isinstance(place.kind, AtomicKind):
            write(MemoryPlace(place.kind.value), at, value)
        elif value is not None:
            ctypes.memmove(at, address_of(value), place.nbytes)
    else:
        ctypes.c_size_t.from_address(at).value = address_of(value)


def address_of(value: Any) -> int:
    """Where a record, an array, an atomic or a function is; an address is itself, None is 0."""
    if value is None or isinstance(value, int):
        return value or 0
    if isinstance(value, Span | Atomic | NativeFunction):
        return value.address
    if callable(value):
        return current_run().address_of_function(value)
    return ctypes.addressof(getattr(value, "record_in_run", value))


class NativeFunction:
    """Compiled code, to be called as if it were Python."""

    __slots__ = ("_call", "address")

    def __init__(self, kind: FunctionKind, address: int) -> None:
        self.address, self._call = address, kind.c_type(address)

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*(address_of(a) for a in arguments))


class Span(Generic[T]):
    """Elements that lie one after another, as many as who made them knows."""

    __slots__ = ("_owner", "address", "element")

    def __init__(self, element: MemoryPlace, address: int, owner: object = None) -> None:
        self.element, self.address, self._owner = element, address, owner

    def __getitem__(self, index: int) -> T:
        found: T = read(self.element, self.address + index * self.element.nbytes)
        return found

    def __setitem__(self, index: int, value: T) -> None:
        write(self.element, self.address + index * self.element.nbytes, value)

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.address)

    def behind(self, count: int) -> Span[T]:
        """Without the first ``count`` elements."""
        return Span(self.element, self.address + count * self.element.nbytes, self._owner)


class Atomic(Generic[T]):
    """A value that threads share. Without a run its operations are plain ones: native code has them atomic."""

    __slots__ = ("_owner", "address", "kind")

    def __init__(self, kind: Integer | AddressKind | FunctionKind, address: int, owner: object = None) -> None:
        self.kind, self.address, self._owner = kind, address, owner

    def _begin(self) -> None:
        run = RUN.get()
        if run is not None:
            run.before_atomic()

    def load(self, order: Order) -> T:
        self._begin()
        found: T = read(MemoryPlace(self.kind), self.address)
        return found

    def store(self, value: T, order: Order) -> None:
        self._begin()
        write(MemoryPlace(self.kind), self.address, value)

    def exchange(self, value: T, order: Order) -> T:
        """Store ``value``; what was there before."""
        self._begin()
        before: T = read(MemoryPlace(self.kind), self.address)
        write(MemoryPlace(self.kind), self.address, value)
        return before

    def compare_exchange(self, expected: T, value: T, order: Order) -> T:
        """Store ``value`` if ``expected`` is there; what was there before."""
        self._begin()
        before: T = read(MemoryPlace(self.kind), self.address)
        if before == expected:
            write(MemoryPlace(self.kind), self.address, value)
        return before

    def add(self, value: int, order: Order) -> int:
        """Add ``value``, with wrapping; what was there before."""
        self._begin()
        assert isinstance(self.kind, Integer)
        before: int = read(MemoryPlace(self.kind), self.address)
        write(MemoryPlace(self.kind), self.address, self.kind.wrapped(before + value))
        return before


class _Field:
    """A field that is not simply a number for ctypes."""

    def __init__(self, owner: Any, name: str, offset: int) -> None:
        self._owner, self._name, self._offset = owner, name, offset

    def __get__(self, record: Any, owner: type[Record]) -> Any:
        if record is None:
            return self
        return read(places_of(self._owner)[self._name], ctypes.addressof(record) + self._offset, record)

    def __set__(self, record: Any, value: Any) -> None:
        write(places_of(self._owner)[self._name], ctypes.addressof(record) + self._offset, value)

    @property
    def offset(self) -> int:
        return self._offset


if typing.TYPE_CHECKING:
    from _ctypes import _PyCStructType as _StructureType
else:
    _StructureType = type(ctypes.Structure)


class _RecordType(_StructureType):
    """Makes the fields for ctypes from the annotations of a record."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        hints = namespace.get("__annotations__", {})
        fields, special = _layout(hints, sys.modules[namespace["__module__"]].__dict__)
        given = {"_fields_": fields} if fields else {}
        return super().__new__(mcs, name, bases, {**namespace, **given, "_special_": tuple(special)})

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> None:  # noqa: N805
        """Fields that are no plain numbers replace those that ctypes made: in ``__new__``, since Python 3.13 here."""
        super().__init__(name, bases, namespace)
        for field in cls.__dict__["_special_"]:
            setattr(cls, field, _Field(cls, field, getattr(cls, field).offset))


def _layout(hints: Mapping[str, Any], names: Mapping[str, Any]) -> tuple[list[tuple[str, Any]], list[str]]:
    """The fields for ctypes, with what fills cache lines, and the names of those that are no plain numbers."""
    fields: list[tuple[str, Any]] = []
    special, lines = [], 0
    for name, hint in hints.items():
        pointer = isinstance(hint, str) and hint.startswith(("Pointer[", "Span[", "Callable["))
        place = None if pointer else place_of(eval(hint, dict(names)) if isinstance(hint, str) else hint)
        c_type = ctypes.c_size_t if place is None else place.c_type
        if place is not None and place.own_line:
            lines += 1
            fields += _filled(fields, f"_before_{name}")
        fields.append((name, c_type))
        if place is None or not isinstance(place.kind, Integer | AddressKind | RecordKind) or place.is_pointer:
            special.append(name)
    return fields + (_filled(fields, "_behind") if lines else []), special


def _filled(fields: list[tuple[str, Any]], name: str) -> list[tuple[str, Any]]:
    """What fills the last cache line of ``fields``."""
    so_far = type("_SoFar", (ctypes.Structure,), {"_fields_": list(fields)})
    missing = -ctypes.sizeof(so_far) % LINE_BYTES
    return [(name, ctypes.c_uint8 * missing)] if missing else []


class Record(ctypes.Structure, metaclass=_RecordType):
    """A record in memory: a `ctypes.Structure` whose fields are the class's annotations, in their order.

    A field is a number (``i64``, ``u32``, ``address``...); another record, which lies inside; a ``Pointer`` to one; an
    ``Span``, which is a pointer to its elements, or with ``Count`` the elements; an ``Atomic``; or a ``Callable``.
    Values are references: ``call.channel`` is the channel itself, whoever holds it. To a field that holds a pointer
    also an address may be assigned (outside of the language's functions).

    Example::

        class Slot(Record):
            ticket: Atomic[u64]
            next: Pointer[Slot] | None
            entries: Span[i64]
    """

    @classmethod
    def at(cls, address: int) -> typing.Self:
        """The record at an address."""
        found: typing.Self = cls.from_address(address)
        return found

    @classmethod
    def offset_of(cls, field: str) -> int:
        """Where in the record a field lies."""
        return int(getattr(cls, field).offset)


@cache
def places_of(cls: type[Record]) -> Mapping[str, MemoryPlace]:
    """How the fields of a record lie in memory, by name."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {name: place_of(hint) for name, hint in hints.items() if not name.startswith("_")}


def kind_of(hint: Any) -> Kind:
    """The kind of a parameter, a result or a variable, by its annotation; TypeError for one that the language lacks."""
    return place_of(hint).kind


def place_of(hint: Any) -> MemoryPlace:
    """How a field or an element with an annotation lies in memory; TypeError as `kind_of`."""
    marks: tuple[Any, ...] = ()
    if typing.get_origin(hint) is Annotated:
        hint, *found = typing.get_args(hint)
        marks = tuple(found)
    kind = next((m for m in marks if isinstance(m, Integer | AddressKind)), None)
    pointer, own_line = POINTER in marks, OWN_LINE in marks
    count = next((m.number for m in marks if isinstance(m, Count)), None)
    if kind is not None:
        return MemoryPlace(kind, own_line=own_line)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inner = [a for a in typing.get_args(hint) if a is not type(None)]
        if len(inner) == 1:
            return place_of(inner[0])
    if hint is bool or hint in (None, type(None)):
        return MemoryPlace(BOOL if hint is bool else NOTHING)
    if isinstance(hint, type) and issubclass(hint, Record):
        return MemoryPlace(RecordKind(hint), pointer, None, own_line)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Span:
        return MemoryPlace(SpanKind(place_of(arguments[0])), False, count, own_line)
    if origin is Atomic:
        value = kind_of(arguments[0])
        if isinstance(value, Integer | AddressKind | FunctionKind):
            return MemoryPlace(AtomicKind(value), pointer, None, own_line)
    if origin is collections.abc.Callable:
        parameters, result = arguments
        return MemoryPlace(FunctionKind(tuple(map(kind_of, parameters)), kind_of(result)), False, None, own_line)
    raise TypeError(f"{hint!r} is no type of the low-level language")
