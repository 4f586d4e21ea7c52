"""MLIR's diagnostics of wrong shardings as errors that name the value, the dimension and the axis.

MLIR names the operation and the axis. Where the program is text, the sharding is looked up there to tell the
argument's name and the dimension.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from shardc.hlo.errors import AnnotationError, Location

__all__ = ["sharding_error"]

_SUBJECT = re.compile(r"'(?P<op>[\w.]+)' op (?:(?P<kind>arg|result|operand)(?: (?P<number>\d+))?)?[\s-]*(?P<rest>.*)")
_ARGUMENT = re.compile(r"%[\w$.-]+\s*:")
_SHARDING = re.compile(r"<\s*(?:@[\w$.-]+|mesh<[^>]*>)\s*,\s*\[(?P<dims>[^\]]*)\]")
_AXIS = re.compile(r'"([^"]+)"(?::\((\d+)\)(\d+))?')


def _twice(axis: str, places: str) -> tuple[str, str]:
    return f"axis {axis} is used twice{places}", "one value can use each mesh axis once"


def _unknown(axis: str, places: str) -> tuple[str, str]:
    return f"the mesh has no axis {axis}{places}", "use the axes that the sdy.mesh names"


def _manual(axis: str, places: str) -> tuple[str, str]:
    return (
        f"axis {axis} is handled by the manual computation around it{places}",
        "inside it, shard over the other axes only",
    )


def _part(axis: str, places: str) -> tuple[str, str]:
    return f"sub-axis {axis} does not divide its axis{places}", "pre * size must divide the size of the axis"


#: What MLIR's sentence begins with, where it has the axis, and how we say it.
_PROBLEMS: tuple[tuple[re.Pattern[str], Callable[[str, str], tuple[str, str]]], ...] = (
    (re.compile(r'duplicate axis ref: (".*)'), _twice),
    (re.compile(r'overlapping sub-axes?.*?(".*)'), _twice),
    (re.compile(r'unknown axis name: (".*)'), _unknown),
    (re.compile(r'operates on axis ("[^"]*").*manual_computation'), _manual),
    (re.compile(r'sub-axis .*?: (".*)'), _part),
)
_RANK = re.compile(r"sharding doesn't match tensor rank: (\d+) != (\d+)")


def sharding_error(message: str, where: Location, data: bytes) -> AnnotationError | None:
    """Ours for one of MLIR's about a sharding; None for any other message.

    ``data`` is the program, of which only text is looked into.
    """
    subject = _SUBJECT.search(message)
    if subject is None:
        return None
    text = "" if data.startswith(b"ML\xefR") else data.decode(errors="replace")
    value, written = _value(subject, text, where)
    rank = _RANK.search(subject["rest"])
    if rank is not None:
        what = f"{value}: the sharding has {rank[1]} dimensions, but the value has {rank[2]}"
        return AnnotationError(what, where=where, fix="give one list of axes per dimension")
    for pattern, say in _PROBLEMS:
        found = pattern.match(subject["rest"])
        if found is not None:
            axis = found[1].strip()
            problem, fix = say(axis, _places(axis, written))
            return AnnotationError(f"{value}: {problem}", where=where, fix=fix)
    return None


def _value(subject: re.Match[str], text: str, where: Location) -> tuple[str, str]:
    """The value that is meant, and the dimensions of its sharding as they are written (empty if not found)."""
    lines = text.splitlines(keepends=True)
    rest = "".join(lines[max(where.line - 1, 0) :])[:100_000] if where.line else ""
    if subject["kind"] == "arg":
        number = int(subject["number"] or 0)
        found = list(_ARGUMENT.finditer(rest))
        if number < len(found):
            end = found[number + 1].start() if number + 1 < len(found) else len(rest)
            sharding = _SHARDING.search(rest, found[number].end(), end)
            name = found[number].group().rstrip(": ")
            return f"argument {number} ({name})", sharding["dims"] if sharding else ""
        return f"argument {number}", ""
    if subject["op"] == "func.func":
        sharding = None
        arrow = rest.find("->")
        for _ in range(int(subject["number"] or 0) + 1):
            sharding = _SHARDING.search(rest, sharding.end() if sharding else max(arrow, 0))
        return f"result {subject['number'] or 0}", sharding["dims"] if sharding else ""
    sharding = _SHARDING.search(rest)
    which = f"{subject['kind']} {subject['number']} of " if subject["number"] else ""
    named = re.match(r"\s*(%[\w$.-]+)[^=\n]*=", rest)
    name = f"{named[1]} ({subject['op']})" if named else subject["op"]
    return which + name, sharding["dims"] if sharding else ""


def _places(axis: str, written: str) -> str:
    """``, in dimension 0 and dimension 1``: where the axis (or a part of it) stands."""
    named = _AXIS.search(axis)
    if named is None:
        return ""
    dims = [
        n
        for n, inner in enumerate(re.findall(r"\{([^{}]*)\}", written))
        if any(m[0] == named[1] and (named[2] is None or m[1:] == (named[2], named[3])) for m in _AXIS.findall(inner))
    ]
    return ", in " + " and ".join(f"dimension {n}" for n in dims) if dims else ""
