"""From the outcome of propagation back to a module: shardings on every instruction, equal copies joined."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from shardc.hlo.ir.ir import Computation, Instruction, Module, flow_computations, map_callees
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AnySharding, AxisRef, DimSharding, Sharding
from shardc.sharding.axes.sub_axes import prefix_of_size
from shardc.sharding.prepare.markers import is_spent
from shardc.sharding.prepare.split_calls import Copies
from shardc.sharding.propagation.graph import PropagationGraph

__all__ = ["attach_shardings", "even_interface"]


def attach_shardings(
    module: Module, graph: PropagationGraph, shardings: Sequence[Sharding], copies: Copies
) -> tuple[Module, dict[Instruction, Instruction]]:
    """The module with a closed sharding on every instruction, and where each prepared instruction went.

    Copies (of constants, of called computations) that got the same shardings as an earlier one become that one.
    Computations that only reductions, sorts and the like apply stay as they are, without shardings.
    """
    return _Finisher(graph, shardings, copies).module(module)


def even_interface(
    graph: PropagationGraph, shardings: Sequence[Sharding], module: Module, *, strict: bool = False
) -> list[Sharding]:
    """Open dimensions of arguments and results get no uneven shards: only axes that divide are kept.

    Inside the program uneven dimensions are padded; what a caller passes or receives is so only on request: of an
    annotation, or of a module with an ``uneven_interface``, where dimensions only lose axes of more parts than
    elements. With ``strict`` it never is, and open dimensions end before the first sub-axis.
    """
    fit = _fitting if module.uneven_interface and not strict else _even
    out = list(shardings)
    root = module.entry.root
    for i in (*module.parameters, *((root,) if root.opcode == "tuple" else ())):
        for v, shape in zip(graph.values[i], i.shape.leaves(), strict=True):
            given = graph.initial[v].dims
            dims = zip(out[v].dims, given, shape.dims, strict=True)
            even = tuple(d if g.closed and not strict else fit(d, n, graph.mesh) for d, g, n in dims)
            if strict:
                even = tuple(d if d.closed else _without_sub_axes(d) for d in even)
            if even != out[v].dims:
                out[v] = replace(out[v], dims=even)
    return out


def _fitting(dim: DimSharding, size: int, mesh: Mesh) -> DimSharding:
    return dim if dim.extent(mesh) <= size else _even(dim, size, mesh)


def _even(dim: DimSharding, size: int, mesh: Mesh) -> DimSharding:
    if size % max(dim.extent(mesh), 1) == 0:
        return dim
    axes: list[AxisRef] = []
    for a in dim.axes:
        common = math.gcd(size, a.extent(mesh))
        part = prefix_of_size(a, common, mesh)
        if part is None:
            break
        axes.append(part)
        if part != a:
            break
        size //= common
    return replace(dim, axes=tuple(axes))


def _without_sub_axes(dim: DimSharding) -> DimSharding:
    return replace(dim, axes=tuple(takewhile(lambda a: a.is_full, dim.axes)))


class _Finisher:
    def __init__(self, graph: PropagationGraph, shardings: Sequence[Sharding], copies: Copies) -> None:
        self.graph = graph
        self.copies = copies
        interned: dict[Sharding, Sharding] = {}
        layouts = {id(s): s for s in shardings}
        for key, s in layouts.items():
            layout = s.as_layout if s.mesh.axes else Sharding.replicate(graph.mesh, s.rank)
            layouts[key] = interned.setdefault(layout, layout)
        self.layout = [layouts[id(s)] for s in shardings]
        self.places: dict[Instruction, Instruction] = {}
        self.merged: dict[Computation, Computation] = {}
        self.known: dict[tuple[Any, ...], Computation] = {}
        self.names: dict[str, int] = {}
        self.originals: set[Computation] = set()
        self.several: set[Computation] = set()

    def module(self, module: Module) -> tuple[Module, dict[Instruction, Instruction]]:
        out: list[Computation] = []
        placed: set[Computation] = set()
        count = Counter(self.copies.get(c, c) for c in module.computations)
        self.several = {c for c in module.computations if count[self.copies.get(c, c)] > 1}
        for c in module.computations:
            flow = c is module.entry or any(i in self.graph.values for i in c.instructions[:1])
            new = self._computation(c) if flow else c
            self.merged[c] = new
            if new not in placed:
                placed.add(new)
                out.append(new)
        entry = self.merged[module.entry]
        return module.with_(computations=tuple(out), entry=entry, mesh=self.graph.mesh), self.places

    def _computation(self, c: Computation) -> Computation:
        new: dict[Instruction, Instruction] = {}
        joined: dict[tuple[Any, ...], Instruction] = {}
        order: list[Instruction] = []
        count = Counter(self.copies.get(i, i) for i in c)
        placed: set[Instruction] = set()
        for i in c:
            operands = tuple(new[o] for o in i.operands)
            sharding = self._sharding(i)
            original = self.copies.get(i, i)
            key = (original, operands, sharding) if count[original] > 1 else (i,)
            if key in joined:
                new[i] = joined[key]
                continue
            attrs = self._attrs(i)
            name = self._copy_name(i.name) if original in placed else i.name
            new[i] = joined[key] = i.replace(operands=operands, attrs=attrs, sharding=sharding, name=name)
            placed.add(original)
            order.append(new[i])
        return self._join_computation(c, order, new)

    def _attrs(self, i: Instruction) -> Mapping[str, Any]:
        """What called computations became; markers have told what they had to, so a constraint remains of them."""
        if flow_computations(i):
            return map_callees(i.attrs, lambda k: self.merged.get(k, k))
        return {"custom_call_target": "Sharding"} if is_spent(i) else i.attrs

    def _copy_name(self, name: str) -> str:
        self.names[name] = self.names.get(name, 0) + 1
        return f"{name}.copy{self.names[name]}"

    def _join_computation(
        self, c: Computation, order: list[Instruction], new: Mapping[Instruction, Instruction]
    ) -> Computation:
        original = self.copies.get(c, c)
        if c not in self.several:
            self.places.update(new)
            return Computation(c.name, order, new[c.root])
        position = {i: n for n, i in enumerate(order)}
        shape = tuple((i.opcode, i.sharding, *(position[o] for o in i.operands)) for i in order)
        callees = tuple(k for i in order for k in flow_computations(i))
        key = (original, shape, callees)
        found = self.known.get(key)
        if found is None:
            name = self._copy_name(c.name) if original in self.originals else c.name
            self.originals.add(original)
            found = self.known[key] = Computation(name, order, new[c.root])
        replaced = dict(zip(order, found.instructions, strict=True))
        for old, i in new.items():
            self.places[old] = replaced[i]
        return found

    def _sharding(self, i: Instruction) -> AnySharding:
        leaves = tuple(self.layout[v] for v in self.graph.values[i])
        return leaves if i.shape.is_tuple else leaves[0]
