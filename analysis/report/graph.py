"""The per-device program as a graph: operations by scope, collectives among them, layouts on the edges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shardc.analysis.report.leaves import Around, leaves_of_module, loops_of_module, working_instructions
from shardc.analysis.report.structure import StructureNode, structure
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.opset import COLLECTIVES
from shardc.hlo.ir.sharding import Sharding

if TYPE_CHECKING:
    from shardc.analysis.explain.explanation import Explanation
    from shardc.partitioner.program import PartitionedProgram

__all__ = ["graph_data"]

#: Beyond so many operations those of one scope are one node.
_MOST = 6000
#: Values made of nothing but these and constants are no news to a reader.
_FILLS = frozenset(("broadcast", "iota"))

Path = tuple[str, ...]


def graph_data(
    partitioned: PartitionedProgram, explanation: Explanation | None, strings: Callable[[str], int]
) -> dict[str, Any]:
    """``nodes`` are [scopes, title, kind, opcode, name, source, shape, operations], ``edges`` [from, to, layout].

    ``kind`` is ``operation``, ``collective``, ``argument``, ``loop`` (the state that a loop carries) or ``result``.
    Constants are left out. ``layout`` is the sharding of the value, of partial values what is still to be added up.
    """
    module = partitioned.module
    nodes, edges = _Graph(module, _Layouts(partitioned, explanation)).built()
    if len(nodes) > _MOST:
        nodes, edges = _folded(nodes, edges)
    rows = [[[strings(s) for s in n.path], *map(strings, n.texts), n.operations] for n in nodes]
    return {"nodes": rows, "edges": [[a, b, strings(label)] for a, b, label in edges]}


@dataclass(slots=True)
class _Node:
    path: Path
    title: str
    kind: str
    opcode: str = ""
    name: str = ""
    source: str = ""
    shape: str = ""
    operations: int = 1

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.title, self.kind, self.opcode, self.name, self.source, self.shape)


Edge = tuple[int, int, str]


class _Layouts:
    """How values lie: as the propagated program says, and before and after collectives as their explanation does."""

    def __init__(self, partitioned: PartitionedProgram, explanation: Explanation | None) -> None:
        whole = [i for i in partitioned.propagated.module.instructions() if isinstance(i.sharding, Sharding)]
        self._by_name = {i.name: i for i in whole}
        self._by_place = {(id(i.metadata), i.opcode): i for i in whole if i.metadata is not None}
        reasons = () if explanation is None else explanation.collectives
        self.before = {name: r.before for r in reasons for name in r.names}
        self.after = {name: r.after for r in reasons for name in r.names}

    def of(self, i: Instruction) -> str:
        """Of the value that ``i`` makes; empty where nobody says so."""
        if i.name in self.after:
            return self.after[i.name]
        for found in (self._by_name.get(i.name), self._by_place.get((id(i.metadata), i.opcode))):
            if found is None or not isinstance(found.sharding, Sharding) or found.shape.is_tuple or i.shape.is_tuple:
                continue
            if found.sharding.local_dims(found.shape.dims) == i.shape.dims:
                return str(found.sharding)
        return ""


@dataclass(slots=True)
class _Graph:
    module: Module
    layouts: _Layouts
    nodes: list[_Node] = field(default_factory=list)
    edges: dict[Edge, None] = field(default_factory=dict)
    _number: dict[Instruction, int] = field(default_factory=dict)
    _sources: dict[Instruction, tuple[Instruction, ...]] = field(default_factory=dict)
    _given: dict[Instruction, tuple[Instruction, ...]] = field(default_factory=dict)

    def built(self) -> tuple[list[_Node], list[Edge]]:
        """Nodes in program order, and the edges between them."""
        for name, p in zip(self.module.argument_names, self.module.parameters, strict=True):
            self._add(p, _Node(("arguments",), name, "argument", p.opcode, p.name, "", str(p.shape.plain)))
        paths, loops = self._paths()
        for computation in self._computations():
            for i in computation:
                if i.opcode == "while":
                    self._add(i, _Node(loops.get(i.name, ()), f"state of {i.name}", "loop", i.opcode, i.name, i.source))
                elif i in paths and (i.opcode not in _FILLS or any(map(self._behind, i.operands))):
                    self._add(i, _operation(i, paths[i]))
        self._connect()
        return self.nodes, list(self.edges)

    def _add(self, i: Instruction, node: _Node) -> None:
        self._number[i] = len(self.nodes)
        self.nodes.append(node)

    def _paths(self) -> tuple[dict[Instruction, Path], dict[str, Path]]:
        """The scopes of instructions, and of loops by name with the loops themselves."""
        leaves, known = leaves_of_module(self.module), loops_of_module(self.module)
        scopes: dict[int, Path] = {}
        loops: dict[str, Path] = {}
        for path, node in _walk(structure(leaves, known), known):
            if node.leaf is not None:
                scopes[id(node.leaf)] = path
            elif node.kind == "loop":
                loops[node.label] = path
        found = zip(leaves, working_instructions(self.module), strict=True)
        return {i: scopes[id(leaf)] for leaf, (i, _, _) in found}, loops

    def _computations(self) -> Iterator[Computation]:
        """Those that run as programs, callers first; what their parameters stand for is noted."""
        waiting, seen = [self.module.entry], {self.module.entry}
        while waiting:
            computation = waiting.pop(0)
            yield computation
            for i in computation:
                for inner, given in _inner(i):
                    for n, p in enumerate(inner.parameters):
                        self._given[p] = (*self._given.get(p, ()), given[n] if len(given) > n else i)
                    if inner not in seen:
                        seen.add(inner)
                        waiting.append(inner)

    def _behind(self, i: Instruction) -> tuple[Instruction, ...]:
        """The nodes that the value of ``i`` comes from."""
        if i in self._number:
            return (i,)
        if i not in self._sources:
            self._sources[i] = ()
            self._sources[i] = tuple(dict.fromkeys(s for o in self._passed(i) for s in self._behind(o)))
        return self._sources[i]

    def _passed(self, i: Instruction) -> Iterable[Instruction]:
        """The values that ``i``, which is not a node, passes on."""
        if i.opcode == "parameter":
            return self._given.get(i, ())
        if i.opcode == "get-tuple-element" and i.operands[0].opcode == "tuple":
            return (i.operands[0].operands[i.attrs["index"]],)
        if i.opcode in ("call", "conditional"):
            return [inner.root for inner, _ in _inner(i)]
        return i.operands

    def _connect(self) -> None:
        self._sources.clear()
        for i, number in list(self._number.items()):
            operands = (*i.operands, i.attrs["body"].root) if i.opcode == "while" else i.operands
            for operand in operands:
                self._edges(operand, number, i)
        root = self.module.entry.root
        self.nodes.append(_Node((), "results", "result", "tuple", root.name, "", ""))
        self._edges(root, len(self.nodes) - 1, None)

    def _edges(self, operand: Instruction, number: int, reader: Instruction | None) -> None:
        for source in self._behind(operand):
            before = "" if reader is None else self.layouts.before.get(reader.name, "")
            self.edges[self._number[source], number, before or self.layouts.of(source)] = None


def _operation(i: Instruction, path: Path) -> _Node:
    op_name = i.metadata.op_name if i.metadata is not None else ""
    kind = "collective" if i.opcode in COLLECTIVES else "operation"
    title = i.opcode if kind == "collective" else op_name.rpartition("/")[2] or i.opcode
    return _Node(path, title, kind, i.opcode, i.name, i.source, str(i.shape.plain))


def _inner(i: Instruction) -> list[tuple[Computation, tuple[Instruction, ...]]]:
    """Computations that ``i`` runs, with what their parameters get; of a loop it is the loop's own state."""
    if i.opcode == "while":
        return [(i.attrs["condition"], (i,)), (i.attrs["body"], (i,))]
    if i.opcode == "call":
        return [(i.attrs["to_apply"], i.operands)]
    if i.opcode != "conditional":
        return []
    named = [i.attrs[k] for k in ("true_computation", "false_computation") if k in i.attrs]
    branches = named or list(i.attrs["branch_computations"])
    return [(branch, (operand,)) for branch, operand in zip(branches, i.operands[1:], strict=False)]


def _walk(root: StructureNode, loops: Mapping[str, Around]) -> Iterator[tuple[Path, StructureNode]]:
    """All nodes, with the scopes around leaves and, of loops, with their own."""
    waiting: list[tuple[Path, StructureNode]] = [((), root)]
    while waiting:
        path, node = waiting.pop()
        yield path, node
        for child in node.children:
            label = child.label
            if child.kind == "loop":
                trips = loops[label].trips if label in loops else None
                label = f"loop {label}, {'unknown' if trips is None else f'{trips:,}'} iterations"
            waiting.append((path if child.leaf is not None else (*path, label), child))


def _folded(nodes: list[_Node], edges: list[Edge]) -> tuple[list[_Node], list[Edge]]:
    """Operations of one scope as one node; collectives, arguments and loops stay."""
    out: list[_Node] = []
    number: list[int] = []
    scopes: dict[Path, int] = {}
    for node in nodes:
        if node.kind == "operation" and node.path in scopes:
            out[scopes[node.path]].operations += 1
            number.append(scopes[node.path])
            continue
        if node.kind == "operation":
            scopes[node.path] = len(out)
            node = _Node(node.path, "operations", "operation")
        number.append(len(out))
        out.append(node)
    moved = ((number[a], number[b], label) for a, b, label in edges)
    return out, list(dict.fromkeys(e for e in moved if e[0] != e[1]))
