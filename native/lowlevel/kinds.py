"""What values of the low-level language are: integers of a width, addresses, and references to what lies in memory.

Annotations are ordinary ones, so that type checkers take the functions for what they are as plain Python: ``i64`` is
``int``, ``Pointer[Slot]`` is ``Slot``. What the compiler needs besides stands in ``Annotated``.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

__all__ = [
    "ADDRESS",
    "BOOL",
    "LINE_BYTES",
    "LITERAL",
    "NOTHING",
    "NULL",
    "OWN_LINE",
    "POINTER",
    "AddressKind",
    "AtomicKind",
    "BoolKind",
    "Count",
    "FunctionKind",
    "Integer",
    "Kind",
    "LiteralKind",
    "MemoryPlace",
    "NothingKind",
    "NullKind",
    "OwnLine",
    "Pointer",
    "RecordKind",
    "SpanKind",
    "address",
    "i32",
    "i64",
    "u8",
    "u32",
    "u64",
]  # fmt: skip

#: Bytes of a cache line.
LINE_BYTES = 64

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer of ``bits``."""

    bits: int
    signed: bool

    def __str__(self) -> str:
        return f"{'i' if self.signed else 'u'}{self.bits}"

    @property
    def lowest(self) -> int:
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def highest(self) -> int:
        return (1 << (self.bits - self.signed)) - 1

    def contains(self, other: Integer) -> bool:
        """Whether this type has every value of ``other``."""
        return self.lowest <= other.lowest and other.highest <= self.highest

    def wrapped(self, value: int) -> int:
        """The value of this type that equals ``value`` modulo 2 to the number of bits."""
        low = value & ((1 << self.bits) - 1)
        return low - (1 << self.bits) if low > self.highest else low

    @property
    def c_type(self) -> Any:
        return getattr(ctypes, f"c_{'' if self.signed else 'u'}int{self.bits}")


@dataclass(frozen=True, slots=True)
class BoolKind:
    def __str__(self) -> str:
        return "bool"


@dataclass(frozen=True, slots=True)
class AddressKind:
    """The number of a byte in memory."""

    def __str__(self) -> str:
        return "address"


@dataclass(frozen=True, slots=True)
class NothingKind:
    """What a function without a result gives."""

    def __str__(self) -> str:
        return "None"


@dataclass(frozen=True, slots=True)
class NullKind:
    """``None``, where a reference could be."""

    def __str__(self) -> str:
        return "None"


@dataclass(frozen=True, slots=True)
class LiteralKind:
    """An integer whose type follows from where it is used."""

    def __str__(self) -> str:
        return "a number"


@dataclass(frozen=True, slots=True)
class RecordKind:
    """A reference to a record of ``cls``."""

    cls: Any

    def __str__(self) -> str:
        return str(self.cls.__name__)


@dataclass(frozen=True, slots=True)
class SpanKind:
    """A reference to elements that lie one after another."""

    element: MemoryPlace

    def __str__(self) -> str:
        return f"Span[{self.element}]"


@dataclass(frozen=True, slots=True)
class AtomicKind:
    """A reference to a value that threads share."""

    value: Integer | AddressKind | FunctionKind

    def __str__(self) -> str:
        return f"Atomic[{self.value}]"


@dataclass(frozen=True, slots=True)
class FunctionKind:
    """A function that may be called by its address."""

    arguments: tuple[Kind, ...]
    result: Kind

    def __str__(self) -> str:
        return f"Callable[[{', '.join(map(str, self.arguments))}], {self.result}]"

    @property
    def c_type(self) -> Any:
        """The function's type for ctypes."""
        return ctypes.CFUNCTYPE(_c_type_of(self.result), *map(_c_type_of, self.arguments))


Kind = (
    Integer | BoolKind | AddressKind | NothingKind | NullKind | LiteralKind | RecordKind | SpanKind | AtomicKind
    | FunctionKind
)  # fmt: skip
BOOL, ADDRESS, NOTHING, NULL, LITERAL = BoolKind(), AddressKind(), NothingKind(), NullKind(), LiteralKind()


def _c_type_of(kind: Kind) -> Any:
    if isinstance(kind, Integer):
        return kind.c_type
    return {BOOL: ctypes.c_bool, NOTHING: None}.get(kind, ctypes.c_size_t)


@dataclass(frozen=True, slots=True)
class Count:
    """``Annotated[Span[T], Count(n)]``: a field that is ``n`` elements, rather than a pointer to elements."""

    number: int


@dataclass(frozen=True, slots=True)
class _Marker:
    name: str


POINTER, OWN_LINE = _Marker("pointer"), _Marker("own line")

i32 = Annotated[int, Integer(32, True)]
i64 = Annotated[int, Integer(64, True)]
u8 = Annotated[int, Integer(8, False)]
u32 = Annotated[int, Integer(32, False)]
u64 = Annotated[int, Integer(64, False)]
address = Annotated[int, ADDRESS]
#: A field or an element that holds where a record or an atomic is, rather than it itself.
Pointer = Annotated[T, POINTER]
#: A field that starts at a cache line of its own.
OwnLine = Annotated[T, OWN_LINE]


@dataclass(frozen=True, slots=True)
class MemoryPlace:
    """What lies in memory: a value of ``kind`` or (``is_pointer``) where it is; or ``count`` elements of an array."""

    kind: Kind
    is_pointer: bool = False
    count: int | None = None
    own_line: bool = False

    def __str__(self) -> str:
        return f"Pointer[{self.kind}]" if self.is_pointer else str(self.kind)

    @property
    def c_type(self) -> Any:
        """As ctypes lays it out."""
        if isinstance(self.kind, SpanKind) and self.count is not None:
            return self.kind.element.c_type * self.count
        if isinstance(self.kind, Integer):
            return self.kind.c_type
        if isinstance(self.kind, AtomicKind) and not self.is_pointer:
            return _c_type_of(self.kind.value)
        if isinstance(self.kind, RecordKind) and not self.is_pointer:
            return self.kind.cls
        return ctypes.c_size_t

    @property
    def nbytes(self) -> int:
        return ctypes.sizeof(self.c_type)

    @property
    def is_inline(self) -> bool:
        """Whether what is stored here is referred to, rather than loaded."""
        if isinstance(self.kind, SpanKind):
            return self.count is not None
        return isinstance(self.kind, RecordKind | AtomicKind) and not self.is_pointer
