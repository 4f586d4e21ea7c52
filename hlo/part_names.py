"""What the parts of one collective are called: in programs, and where people read them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

__all__ = ["numbered_parts", "part_name", "whole_of"]

_PART = re.compile(r"^(?P<whole>.+?)(\.part\.\d+| part \d+ of \d+)$")


def part_name(whole: str, number: int) -> str:
    """What a program calls part ``number`` (from 1) of the collective ``whole``.

    >>> part_name("all-reduce.1", 3)
    'all-reduce.1.part.3'
    """
    return f"{whole}.part.{number}"


def whole_of(name: str) -> str:
    """The collective that ``name`` is a part of, in a program or a report; of any other name the name itself.

    >>> whole_of("all-reduce.1.part.3"), whole_of("all-reduce.1 part 1 of 2"), whole_of("dot.4")
    ('all-reduce.1', 'all-reduce.1', 'dot.4')
    """
    match = _PART.match(name)
    return name if match is None else match["whole"]


def numbered_parts(names: Iterable[str]) -> Mapping[str, str]:
    """What people read for each of a program's ``names``: parts of a collective are numbered by where they stand first.

    A collective with a single part left has its own name.

    >>> list(numbered_parts(["dot", "sum.1.part.1", "sum.1.part.7", "sum.2.part.1"]).values())
    ['dot', 'sum.1 part 1 of 2', 'sum.1 part 2 of 2', 'sum.2']
    """
    parts: dict[str, list[str]] = {}
    known = list(dict.fromkeys(names))
    for name in known:
        parts.setdefault(whole_of(name), []).append(name)
    return {name: _numbered(name, parts[whole_of(name)]) for name in known}


def _numbered(name: str, alike: list[str]) -> str:
    whole = whole_of(name)
    if name == whole or len(alike) == 1:
        return whole
    return f"{whole} part {alike.index(name) + 1} of {len(alike)}"
