"""The error family: every failure a user can cause ends in one of these.

Each error says *what* is wrong, *where* (file:line:column of the input, instruction, dimension, axis) and
*what to do*. The command line prints ``str(error)`` and exits with ``error.exit_code``: 2 for bad input or
environment, 1 for a run that failed.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "AnnotationError",
    "EnvironmentProblem",
    "InputError",
    "Location",
    "ParseError",
    "RunError",
    "ShardcError",
    "UnsupportedError",
    "VerificationError",
]


@dataclass(frozen=True, slots=True)
class Location:
    """A place in an input: ``step.hlo:12:7``; line and column count from 1, 0 means unknown."""

    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        parts = [self.file or "<input>"]
        if self.line:
            parts.append(str(self.line))
            if self.column:
                parts.append(str(self.column))
        return ":".join(parts)


class ShardcError(Exception):
    """The base class of all errors that shardc raises on purpose.

    ``what`` is one sentence. ``where`` is a `Location`, or text such as ``"%dot.3, dimension 1"``. ``fix`` says what to
    do. ``exit_code`` is that of the command line: 1 for runs that failed, 2 for input and environment.

    >>> try:
    ...     program.annotate({"weights['up']": P("modle")})
    ... except shardc.ShardcError as error:
    ...     print(error.what)
    mesh has no axis 'modle'
    """

    exit_code = 2

    def __init__(self, what: str, *, where: Location | str | None = None, fix: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.fix = fix

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.where, self.fix))

    def __str__(self) -> str:
        text = self.what
        if self.where is not None:
            text += f"\n  where: {self.where}"
        if self.fix is not None:
            text += f"\n  fix: {self.fix}"
        return text


def _rebuild(kind: type[ShardcError], what: str, where: Location | str | None, fix: str | None) -> ShardcError:
    return kind(what, where=where, fix=fix)


class ParseError(ShardcError):
    """The text or bytes of a program are malformed."""


class VerificationError(ShardcError):
    """A program is well-formed text but breaks a rule of the language (shapes, types, attributes)."""


class UnsupportedError(ShardcError):
    """A valid program uses something that shardc does not support (yet); ``shardc ops`` lists what is supported."""


class AnnotationError(ShardcError):
    """A sharding annotation names no value, axis or dimension, or contradicts the mesh."""


class InputError(ShardcError):
    """Arguments given to a compiled program, files or options do not fit it."""


class PlanError(ShardcError):
    """No layouts satisfy the memory limit of a plan, or its annotations together."""


class EnvironmentProblem(ShardcError):
    """The machine lacks something: MPI, an optional package, enough ranks."""


class RunError(ShardcError):
    """A started run failed: a rank died, a check was false, results differ."""

    exit_code = 1
