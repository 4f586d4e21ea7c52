"""Errors as plain data, for other processes and other machines: the same fields, and the same class when read again.

The form is that of "Problem Details for HTTP APIs" (RFC 9457) with the fields of `ShardcError` beside.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from shardc.hlo.errors import (
    AnnotationError,
    EnvironmentProblem,
    InputError,
    Location,
    ParseError,
    PlanError,
    RunError,
    ShardcError,
    UnsupportedError,
    VerificationError,
)

__all__ = ["from_problem", "to_problem"]

#: The family by name; what another version of shardc adds to it arrives as `RunError`.
_KINDS: Mapping[str, type[ShardcError]] = MappingProxyType(
    {
        kind.__name__: kind
        for kind in (
            AnnotationError,
            EnvironmentProblem,
            InputError,
            ParseError,
            PlanError,
            RunError,
            ShardcError,
            UnsupportedError,
            VerificationError,
        )
    }
)


def to_problem(error: ShardcError, status: int = 422) -> dict[str, Any]:
    """``type``, ``title``, ``status``, ``detail`` of the RFC; ``error`` (the class), ``what``, ``where``, ``fix``,
    ``location`` (``file``, ``line``, ``column``, where one is known) and ``exit_code`` of ours."""
    kind = next(c.__name__ for c in type(error).__mro__ if c.__name__ in _KINDS)
    place = error.where if isinstance(error.where, Location) else None
    return {
        "type": f"urn:shardc:{kind}",
        "title": kind,
        "status": status,
        "detail": error.what,
        "error": kind,
        "what": error.what,
        "where": None if error.where is None else str(error.where),
        "location": None if place is None else {"file": place.file, "line": place.line, "column": place.column},
        "fix": error.fix,
        "exit_code": error.exit_code,
    }


def from_problem(problem: Mapping[str, Any]) -> ShardcError:
    """The error that `to_problem` wrote down. Of other problem documents ``detail`` or ``title`` is what happened."""
    kind = _KINDS.get(str(problem.get("error", "")), RunError)
    place = problem.get("location")
    where: Location | str | None = None
    if isinstance(place, Mapping):
        where = Location(str(place.get("file", "")), int(place.get("line") or 0), int(place.get("column") or 0))
    elif problem.get("where") is not None:
        where = str(problem["where"])
    what = problem.get("what") or problem.get("detail") or problem.get("title") or "the service reports a problem"
    fix = problem.get("fix")
    return kind(str(what), where=where, fix=None if fix is None else str(fix))
