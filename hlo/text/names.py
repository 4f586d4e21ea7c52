"""Names in printed text: valid identifiers, unique in the module, and otherwise what they were."""

from __future__ import annotations

import re
from collections.abc import Iterable

from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.types import DTYPES

__all__ = ["KEYWORDS", "PrintedNames", "identifier", "is_legal", "unique_names"]

_INVALID = re.compile(r"[^A-Za-z0-9_.\-]")
_TYPES = frozenset(DTYPES) - {"tuple", "buffer"}
#: Words that HLO text reads as something else than a name, unless a % stands in front.
KEYWORDS = _TYPES | {
    *("true", "false", "inf", "nan", "HloModule", "ENTRY", "ROOT"),
    *("FileNames", "FunctionNames", "FileLocations", "StackFrames"),
    *("maximal", "replicated", "manual", "unknown", "unreduced", "last_tile_dim_replicate", "shard_as", "shard_like"),
}


def identifier(name: str) -> str:
    """``name`` as an HLO identifier: letters, digits, ``_``, ``.`` and ``-``, a letter or ``_`` first."""
    clean = _INVALID.sub("_", name)
    if clean[:1] == "_":
        return clean if is_legal(clean) else "a" + clean[1:]
    if not clean[:1].isalpha():
        return "_" + clean
    return clean if is_legal(clean) else clean + "_"


def is_legal(name: str) -> bool:
    """Whether an instruction may have this name. XLA keeps types and names with two underscores in front for itself."""
    return name not in _TYPES and not name.startswith("__")


def unique_names(names: Iterable[str]) -> list[str]:
    """Identifiers for ``names``: the first of equals keeps its name, others get ``.1``, ``.2`` and so on.

    >>> unique_names(["a", "a", "a.1", "b c"])
    ['a', 'a.2', 'a.1', 'b_c']
    """
    wanted = [identifier(n) for n in names]
    taken = set(wanted)
    seen: set[str] = set()
    counters: dict[str, int] = {}
    out: list[str] = []
    for name in wanted:
        if name in seen:
            number = counters.get(name, 0) + 1
            while f"{name}.{number}" in taken:
                number += 1
            counters[name] = number
            name = f"{name}.{number}"
            taken.add(name)
        seen.add(name)
        out.append(name)
    return out


class PrintedNames:
    """The printed names of a module's instructions and computations; ``scoped``: instructions of different computations
    may share one."""

    __slots__ = ("computations", "instructions")

    def __init__(self, computations: Iterable[Computation], *, scoped: bool = False) -> None:
        nodes = list(computations)
        self.computations: dict[Computation, str] = dict(zip(nodes, unique_names(c.name for c in nodes), strict=True))
        scopes = [list(c) for c in nodes] if scoped else [[i for c in nodes for i in c]]
        self.instructions: dict[Instruction, str] = {}
        for instructions in scopes:
            self.instructions.update(zip(instructions, unique_names(i.name for i in instructions), strict=True))
