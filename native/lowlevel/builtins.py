"""What functions of the low-level language may use besides Python: conversions, memory of their own, other code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from shardc.native.lowlevel.kinds import Integer, MemoryPlace, i32, i64, u8, u32, u64
from shardc.native.lowlevel.records import Order, Record, Span, address_of, current_run, kind_of

__all__ = [
    "SPECIAL", "Conversion", "CountedText", "Static", "StaticInRun", "as_i32", "as_i64", "as_u8", "as_u32", "as_u64",
    "copy_memory", "exported", "external", "fence", "fill_memory", "inline", "local", "local_array", "static",
    "static_of", "static_text", "symbol_of",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True)
class Conversion:
    """A function that wraps a number around to one of its kind; a truth value becomes 0 or 1."""

    kind: Integer

    def __call__(self, value: int) -> int:
        return self.kind.wrapped(int(value))


def _conversion(hint: Any) -> Conversion:
    kind = kind_of(hint)
    assert isinstance(kind, Integer)
    return Conversion(kind)


as_i32, as_i64, as_u8, as_u32, as_u64 = (_conversion(t) for t in (i32, i64, u8, u32, u64))


def local(cls: type[R]) -> R:
    """A record of the function that asks for it, until it returns; what is in it is not said."""
    record = cls()
    ctypes.memset(ctypes.addressof(record), 0x5A, ctypes.sizeof(record))
    return record


def local_array(bits: int, count: int) -> Span[int]:
    """The same for ``count`` unsigned numbers of ``bits``; both are constants."""
    memory = (Integer(bits, False).c_type * count)()
    ctypes.memset(memory, 0x5A, ctypes.sizeof(memory))
    return Span(MemoryPlace(Integer(bits, False)), ctypes.addressof(memory), memory)


def fill_memory(at: int, value: int, nbytes: int) -> None:
    """C's memset."""
    ctypes.memset(at, value, nbytes)


def copy_memory(to: int, source: int, nbytes: int) -> None:
    """C's memcpy."""
    ctypes.memmove(to, source, nbytes)


def fence(order: Order) -> None:
    """What was written before it is seen by who sees what is written after it."""


@dataclass(frozen=True, slots=True)
class Static:
    """A record that a program has once: zeros, but for the fields ``initial``."""

    cls: type[Record]
    name: str
    initial: tuple[tuple[str, int], ...] = field(default=())
    #: What lies behind the record.
    trailing: bytes = b""

    @property
    def nbytes(self) -> int:
        return ctypes.sizeof(self.cls) + len(self.trailing)

    def made(self) -> Record:
        """Its memory at the beginning."""
        memory = ctypes.create_string_buffer(self.nbytes)
        record = self.cls.from_buffer(memory)
        ctypes.memmove(ctypes.addressof(record) + ctypes.sizeof(record), self.trailing, len(self.trailing))
        for name, value in self.initial:
            setattr(record, name, value)
        return record


class StaticInRun:
    """A `Static` in plain Python: that of the run which asks."""

    def __init__(self, static: Static) -> None:
        self.__dict__["static"] = static

    @property
    def record_in_run(self) -> Record:
        return current_run().memory_of(self.static)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.record_in_run, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.record_in_run, name, value)


def static_of(found: StaticInRun) -> Static:
    declared: Static = found.__dict__["static"]
    return declared


def static(cls: type[R], name: str, **initial: int) -> R:
    """The record ``name`` of the program; at the level of a module."""
    return cast(R, StaticInRun(Static(cls, name, tuple(initial.items()))))


class CountedText(Record):
    """Characters: ``nbytes``, and behind it they themselves."""

    nbytes: i64


def static_text(name: str, text: str) -> CountedText:
    """Characters that a program has, in UTF-8, under a name; at the level of a module."""
    content = text.encode()
    return cast(CountedText, StaticInRun(Static(CountedText, name, (("nbytes", len(content)),), content)))


def external(symbol: str, *, variadic: bool = False) -> Callable[[F], F]:
    """A function of the C library, or an intrinsic of LLVM; its body is what it means in plain Python.

    ``variadic``: it takes any arguments behind its first, which C passes in a way of its own on some machines.
    """

    def mark(function: F) -> F:
        function.__dict__.update(symbol=symbol, external=True, variadic=variadic)
        return function

    return mark


def exported(symbol: str) -> Callable[[F], F]:
    """A function that others know as ``symbol``. Modules that do not define it call it by that name."""

    def mark(function: F) -> F:
        function.__dict__.update(symbol=symbol)
        return function

    return mark


def inline(function: F) -> F:
    """A function that is put into those that call it."""
    function.__dict__.update(inline=True)
    return function


def symbol_of(function: Any) -> str | None:
    """By which others know a function, if they do."""
    found: str | None = getattr(function, "symbol", None)
    return found


#: Functions above that the compiler has a rule for.
SPECIAL = (local, local_array, fill_memory, copy_memory, fence, address_of, min, max)
