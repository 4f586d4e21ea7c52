"""Limits of values in orders: they stand in the types, and hold for our codec and for the HTTP interface.

A limit is a `ValueConstraint` of the codec, and for pydantic, which FastAPI reads requests with, it is grouped
metadata: what it yields is what pydantic checks and writes into the interface's description.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sized
from dataclasses import dataclass
from typing import Annotated, Any

from shardc.hlo.codec.plain import ValueConstraint

__all__ = ["LONGEST_LINE", "Between", "Closed", "Digest", "Exact", "Flag", "Line", "Most", "Text"]


class _Grouped(ValueConstraint):
    """pydantic takes the parts that iterating gives."""

    #: What `annotated_types.GroupedMetadata` is told by.
    __is_annotated_types_grouped_metadata__ = True

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Exact(_Grouped):
    """Of just this type: ``"1"`` and ``1`` are neither true nor false. The codec is so by itself."""

    def problem(self, value: object) -> str:
        return ""

    def __iter__(self) -> Iterator[Any]:
        from pydantic import Strict

        yield Strict()


@dataclass(frozen=True, slots=True)
class Between(_Grouped):
    """A number from ``least`` to ``most``, both included."""

    least: float
    most: float

    def problem(self, value: Any) -> str:
        good = self.least <= value <= self.most  # never so for what is not a number
        return "" if good else f"{value!r} is not between {self.least} and {self.most}"

    def __iter__(self) -> Iterator[Any]:
        from pydantic import BeforeValidator, Field

        yield Field(ge=self.least, le=self.most, allow_inf_nan=False)
        yield BeforeValidator(_number)


def _number(value: object) -> float:
    """pydantic would read numbers from text, and truth as 1."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("not a number")
    return value


@dataclass(frozen=True, slots=True)
class Most(_Grouped):
    """At most so many entries or characters."""

    count: int

    def problem(self, value: Sized) -> str:
        return (
            "" if len(value) <= self.count else f"{len(value)} entries or characters exceed the limit of {self.count}"
        )

    def __iter__(self) -> Iterator[Any]:
        from pydantic import Field

        yield Field(max_length=self.count)


@dataclass(frozen=True, slots=True)
class Text(_Grouped):
    """Text that ``pattern`` matches as a whole; ``kind`` is what people call that."""

    pattern: str
    kind: str

    def problem(self, value: str) -> str:
        return "" if re.fullmatch(self.pattern, value) else f"{value[:80]!r} is not {self.kind}"

    def __iter__(self) -> Iterator[Any]:
        from pydantic import Field

        yield Field(pattern=f"^(?:{self.pattern})$")


@dataclass(frozen=True, slots=True)
class Closed(_Grouped):
    """An object whose keys are all of their type: the codec is so by itself, a description says it."""

    def problem(self, value: object) -> str:
        return ""

    def __iter__(self) -> Iterator[Any]:
        from pydantic import Field

        yield Field(json_schema_extra={"additionalProperties": False})


#: The SHA-256 of something, in hexadecimal.
Digest = Annotated[
    str, Text("[0-9a-f]{64}", "a SHA-256 of 64 hexadecimal digits, as the service gives it for an upload")
]

#: Characters of a line of text.
LONGEST_LINE = 1000

#: One line of text that people read.
Line = Annotated[str, Text(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]*", "one line of text"), Most(LONGEST_LINE)]

Flag = Annotated[bool, Exact()]
