"""Numbers with units, as people read them: bytes, seconds, operations."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from textwrap import shorten

from shardc.hlo.errors import InputError

__all__ = [
    "apart_text",
    "arguments_text",
    "bytes_text",
    "count_text",
    "flops_text",
    "kind_text",
    "parse_bytes",
    "require_bytes",
    "seconds_text",
    "sizes_text",
]

_PREFIXES = " kmgt"
#: Characters of a list of names in a message.
_LISTED = 160


def bytes_text(n: float) -> str:
    """``1536`` as ``1.5 KiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} TiB"


def apart_text(form: Callable[[float], str], first: float, second: float, unit: str) -> tuple[str, str]:
    """Two numbers as ``form`` writes them; in full, in ``unit``, where it writes different ones alike."""
    texts = form(first), form(second)
    if texts[0] != texts[1] or first == second:
        return texts
    whole = float(first).is_integer() and float(second).is_integer()
    return (f"{first:,.0f} {unit}", f"{second:,.0f} {unit}") if whole else (f"{first!r} {unit}", f"{second!r} {unit}")


def seconds_text(s: float) -> str:
    """``0.0015`` as ``1.5 ms``."""
    for limit, factor, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if s < limit:
            return f"{s * factor:.3g} {unit}"
    return f"{s:.3g} s" if s < 1000 else f"{s:.0f} s"


def flops_text(n: float) -> str:
    """``2e12`` as ``2 Tflop``."""
    for unit in ("", "k", "M", "G", "T", "P"):
        if n < 1000:
            return f"{n:.3g} {unit}flop"
        n /= 1000
    return f"{n:.3g} Eflop" if n < 1000 else f"{n:.0f} Eflop"


def count_text(n: float, what: str, several: str = "") -> str:
    """``1200`` and ``device`` as ``1,200 devices``; ``several`` is a plural that is not made with an s."""
    return f"{n:,} {what if n == 1 else several or what + 's'}"


def arguments_text(
    program: str, takes: tuple[Sequence[str], Collection[str]], given: int, by_name: Collection[str]
) -> str:
    """What is wrong with a call of ``program`` with so many arguments by position, and others ``by_name``.

    ``takes`` are the names of those that it takes by position, and of those by name.

    >>> arguments_text("step", (["x", "y"], []), 1, [])
    '1 argument given, step takes 2: x, y'
    """
    positional, named = takes
    count, names = count_text(given, "argument"), shorten(", ".join(positional), _LISTED, placeholder=" ...")
    wanted = f": {names}" * bool(names) + f", and {_keywords(named)} by name" * bool(named)
    if any(name not in named for name in by_name):
        count, wanted = f"{count} given by position and {_keywords(by_name)} by name", f" by position{wanted}"
    else:
        count += " given"
    return f"{count}, {program} takes {len(positional)}{wanted}"


def _keywords(names: Iterable[str]) -> str:
    return ", ".join(f"{name}=" for name in names)


def sizes_text(sizes: Mapping[str, int]) -> str:
    """The axes of a mesh as ``--mesh`` takes them: ``data=2,model=4``."""
    return ",".join(f"{axis}={size}" for axis, size in sizes.items())


def kind_text(value: object) -> str:
    """The type of ``value`` with its article: ``3`` as ``an int``."""
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeio' or name.startswith('nd') else 'a'} {name}"


def require_bytes(value: object, name: str) -> None:
    """Raise `InputError` for a ``value`` of the argument ``name`` that is no number of bytes, or None.

    >>> require_bytes(4096, "memory")
    """
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool) and value > 0):
        return
    size = parse_bytes(value, name, f"write {name}=40e9") if isinstance(value, str) else None
    fix = f"write {name}={size:.0f}" if size else f"write {name}=4e9"
    raise InputError(f"{name} is {value!r}, which is not a positive number of bytes", fix=fix)


def parse_bytes(text: str, where: str, example: str = "") -> float | None:
    """``40GiB``, ``80GB`` or ``80G``, ``80e9``; an empty text is None. Raises `InputError`; ``example`` shows two sizes
    as they are written there.

    >>> parse_bytes("1.5 KiB", "--memory")
    1536.0
    """
    if not text:
        return None
    match = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([kmgt]?)(i?)b?\s*", text.lower())
    try:
        unit = 0 if match is None else (1024 if match[3] else 1000) ** _PREFIXES.index(match[2] or " ")
        size = 0.0 if match is None or (match[3] and not match[2]) else float(match[1]) * unit
    except ValueError:
        size = 0.0
    if not 0 < size < float("inf"):
        raise InputError(
            f"{text!r} is not a size", where=where, fix=f"{example or where + ' 40GiB, 80GB'} or a number of bytes"
        )
    return size
