"""The structure of a program as a tree: scopes of the source (from ``op_name``), loops, and what runs in them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shardc.analysis.report.leaves import Around, Leaf

__all__ = ["StructureNode", "scopes_of", "structure"]

#: For names that begin in a function that the program calls, nobody knows from where.
_CALLED = "(called functions)"
#: Scopes that JAX adds for the two computations of a loop, which has a node of its own.
_PARTS = frozenset({"body", "cond"})


@dataclass(slots=True)
class StructureNode:
    """``kind`` is ``scope``, ``loop`` or ``leaf``; children stand in program order."""

    kind: str
    label: str
    leaf: Leaf | None = None
    loop: Around | None = None
    children: list[StructureNode] = field(default_factory=list)
    inner: dict[tuple[str, str], StructureNode] = field(default_factory=dict)

    def child(self, kind: str, label: str) -> StructureNode:
        """The inner node of that kind and label, new where there is none."""
        found = self.inner.get((kind, label))
        if found is None:
            found = self.inner[kind, label] = StructureNode(kind, label)
            self.children.append(found)
        return found


def structure(leaves: Sequence[Leaf], loops: Mapping[str, Around]) -> StructureNode:
    """The tree of ``leaves``. A loop stands where its ``op_name`` says, the work in it below it.

    What a scope inside a loop repeats of the loop's own scope is left out.
    """
    root = StructureNode("scope", "")
    main = _main_scope(leaves)
    places = _Places(root, main, loops)
    for leaf in leaves:
        node = places.node(leaf.loops)
        around = scopes_of(loops[leaf.loops[-1]].op_name) if leaf.loops and leaf.loops[-1] in loops else []
        *scopes, title = scopes_of(leaf.op_name) or [_file_of(leaf.source), ""]
        for scope in _inside(scopes, around) if leaf.loops or not leaf.op_name else _from(main, scopes):
            node = node.child("scope", scope)
        node.children.append(StructureNode("leaf", title, leaf))
    return root


def _main_scope(leaves: Sequence[Leaf]) -> str:
    """``jit(step)``, in which JAX's names begin, but those of functions that it calls; empty for other programs."""
    firsts = Counter(first for leaf in leaves for first in scopes_of(leaf.op_name)[:1])
    named = [first for first in firsts if re.match(r"p?jit\(", first)]
    return max(named, key=lambda first: firsts[first], default="")


def _file_of(source: str) -> str:
    """``model.py`` of ``dir/model.py:12``, for work that has no other name."""
    return source.replace("\\", "/").rpartition("/")[2].partition(":")[0] or "(without a source)"


@dataclass(slots=True)
class _Places:
    """The nodes of loops by the names of the loops around and themselves."""

    root: StructureNode
    main: str
    loops: Mapping[str, Around]
    made: dict[tuple[str, ...], StructureNode] = field(default_factory=dict)

    def node(self, path: tuple[str, ...]) -> StructureNode:
        """The node of the innermost loop of ``path``, made where it is missing."""
        if not path or path in self.made:
            return self.made[path] if path else self.root
        node = self.node(path[:-1])
        loop = self.loops.get(path[-1], Around("", "", None))
        around = self.loops.get(path[-2]) if len(path) > 1 else None
        scopes = scopes_of(loop.op_name)[:-1]
        if around is not None:
            scopes = _inside(scopes, scopes_of(around.op_name))
        elif loop.op_name:
            scopes = _from(self.main, scopes)
        for scope in scopes:
            node = node.child("scope", scope)
        found = self.made[path] = node.child("loop", path[-1])
        found.loop = loop
        return found


def _from(main: str, scopes: list[str]) -> list[str]:
    """``scopes`` from the program's own on, also for those of a function that it calls."""
    return [main, _CALLED, *scopes] if main and scopes[:1] != [main] else scopes


def _inside(scopes: list[str], around: Sequence[str]) -> list[str]:
    """``scopes`` without what they have in common with those of the loop ``around`` them, and without its parts."""
    common = 0
    for a, b in zip(scopes, around, strict=False):
        if a != b:
            break
        common += 1
    rest = scopes[common:]
    return rest[1:] if around and rest and rest[0] in _PARTS else rest


def scopes_of(op_name: str) -> list[str]:
    """The parts of a name stack; slashes within brackets and quotes divide nothing.

    Example: ``jit(f)/jit(main)/transpose(a/b)/dot`` has four.
    """
    out, part, depth = [], "", 0
    for c in op_name:
        if c == "/" and depth == 0:
            out.append(part)
            part = ""
            continue
        depth = max(0, depth + (c in "([{") - (c in ")]}"))
        part += c
    return [p for p in (*out, part) if p] if op_name.strip("/") else []
