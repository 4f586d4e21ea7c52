"""Fuse movement: products read and write at any indices, in any type, so what only moves around them is part of them.

Transposes, conversions, slices and concatenations of operands happen on the way from memory to the matrix unit; those
of results, and arithmetic on them, on the way back. It is what compilers for accelerators do; our own kernels for
processors take operands as they lie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from types import MappingProxyType

from shardc.compiler.lower.fuse.fusion_rules import is_alias, is_cheap, is_fusable, new_part
from shardc.compiler.lower.schedule.delays import Delays
from shardc.costs.kernels.traffic import instruction_traffic
from shardc.hlo.ir.ir import Computation, Instruction, Module, users_of
from shardc.hlo.ir.make import map_computations, step_computations

__all__ = ["FuseMovement"]

Users = Mapping[Instruction, Sequence[Instruction]]

_PRODUCTS = frozenset({"dot", "convolution"})

#: What only some of a value is taken by.
_CUTS = frozenset({"slice", "dynamic-slice", "broadcast", "concatenate", "pad", "reduce"})


@dataclass(frozen=True, slots=True)
class FuseMovement:
    """Products compute what they read where its operands have at most ``factor`` times the bytes and at most
    ``readers`` products do so; and whoever alone reads a product's result, elementwise, becomes part of it. With
    ``eager`` no product comes to wait for a collective that it could go on beside."""

    name: str = "fuse-movement"
    why: str = "operands and results of products are rearranged while they are read and written"
    factor: float = 2.0
    readers: int = 4
    eager: bool = False

    def run(self, module: Module) -> Module:
        return map_computations(module, self._fused, only=step_computations(module))

    def _fused(self, computation: Computation) -> Computation:
        if not any(map(_is_product, computation)):
            return computation
        computation = _computed_inside(computation, self._operands(computation))
        return _computed_inside(computation, _products_of_one_reader(computation, self.eager))

    def _operands(self, computation: Computation) -> set[Instruction]:
        """What the products that read it compute for themselves."""
        users = users_of(computation)
        inside: set[Instruction] = set()
        times: dict[Instruction, int] = {}
        for i in reversed(computation.instructions):
            if _is_product(i):
                times[i] = 1
                continue
            readers = dict.fromkeys(users[i])
            if not readers or i is computation.root or any(r not in times for r in readers) or not _is_light(i):
                continue
            count = sum(times[r] for r in readers)
            if count <= self.readers and instruction_traffic(i).read <= self.factor * i.shape.nbytes:
                times[i] = count
                inside.add(i)
        return inside


def _is_product(i: Instruction) -> bool:
    return i.opcode in _PRODUCTS or (i.opcode == "fusion" and any(m.opcode in _PRODUCTS for m in i.attrs["calls"]))


def _is_light(i: Instruction) -> bool:
    """Movement, and arithmetic that costs no more than loading."""
    if i.opcode != "fusion":
        return is_alias(i) or (is_fusable(i) and is_cheap(i) and i.opcode != "constant")
    return i.shape.is_array and all(
        m.opcode == "parameter" or (is_fusable(m) and is_cheap(m)) for m in i.attrs["calls"]
    )


def _products_of_one_reader(computation: Computation, eager: bool) -> set[Instruction]:
    """Products whose result only one kernel reads, every element once."""
    users = users_of(computation)
    delays = Delays(computation, users) if eager else None
    products: set[Instruction] = set()
    inside: set[Instruction] = set()
    for i in computation:
        if _is_product(i):
            products.add(i)
            continue
        read = (o for o in i.operands if o in products and users[o] == [i] and o is not computation.root)
        alone = (o for o in read if _takes_all(i, o))
        found = next((o for o in alone if delays is None or not delays.awaits_more(i, o)), None)
        if found is not None:
            inside.add(found)
            products.add(i)
    return inside


def _takes_all(i: Instruction, product: Instruction) -> bool:
    """Whether ``i`` processes all elements of ``product``, or puts them into a larger array in place."""
    new = new_part(i)
    written = i.shape if new is None else new.shape
    if not product.shape.is_array or not i.shape.is_array or written.size != product.shape.size:
        return False
    if new is not None and product is i.operands[0] and i.opcode != "fusion":
        return False
    if i.opcode != "fusion":
        return is_alias(i) or new is not None or (is_fusable(i) and i.opcode not in _CUTS)
    inner: Computation = i.attrs["calls"]
    members = [m for m in inner if m.opcode != "parameter" and m is not inner.root]
    ends = new is not None or (is_fusable(inner.root) and inner.root.opcode not in _CUTS)
    p = inner.parameters[i.operands.index(product)]
    cut = any(m.opcode in _CUTS and p in m.operands for m in inner if m is not inner.root or new is None)
    return ends and not cut and all(is_fusable(m) and m.opcode != "reduce" for m in members)


# -- rebuilding ----------------------------------------------------------------------------------------------------


def _computed_inside(computation: Computation, inside: Set[Instruction]) -> Computation:
    """The computation with ``inside`` computed by whoever reads them."""
    if not inside:
        return computation
    new: dict[Instruction, Instruction] = {}
    for i in computation:
        if i in inside:
            continue
        if any(o in inside for o in i.operands):
            new[i] = _Joining(inside, new).kernel(i)
            continue
        operands = tuple(new[o] for o in i.operands)
        same = all(a is b for a, b in zip(operands, i.operands, strict=True))
        new[i] = i if same else i.replace(operands=operands)
    return Computation(computation.name, new.values(), new[computation.root])


class _Joining:
    """One kernel in the making, with all that it computes of what it read."""

    def __init__(self, inside: Set[Instruction], new: Mapping[Instruction, Instruction]) -> None:
        self._inside = inside
        self._new = new
        self._values: dict[Instruction, Instruction] = {}
        self._outside: list[Instruction] = []
        self._body: list[Instruction] = []
        self._product: Instruction | None = None

    def kernel(self, i: Instruction) -> Instruction:
        root = self._expanded(i)
        named = self._product or i
        kind = named.attrs["kind"] if named.opcode == "fusion" else "kOutput"
        name = named.name if named.opcode == "fusion" else "fused_dot"
        return Instruction(
            "fusion",
            i.shape,
            tuple(self._new[o] for o in self._outside),
            MappingProxyType({"kind": kind, "calls": Computation(name, self._body, root)}),
            name=name,
            metadata=named.metadata,
            origin=named.origin,
        )

    def _value(self, o: Instruction) -> Instruction:
        found = self._values.get(o)
        if found is None and o in self._inside:
            found = self._values[o] = self._expanded(o)
        elif found is None:
            index = MappingProxyType({"index": len(self._outside)})
            found = self._values[o] = Instruction("parameter", o.shape, (), index, name=f"p{len(self._outside)}")
            self._outside.append(o)
            self._body.append(found)
        return found

    def _expanded(self, i: Instruction) -> Instruction:
        """The result of ``i``, with its members in the body."""
        if _is_product(i):
            self._product = i
        operands = [self._value(o) for o in i.operands]
        if i.opcode != "fusion":
            return self._add(i.replace(operands=tuple(operands), sharding=None))
        inner: dict[Instruction, Instruction] = {}
        computation: Computation = i.attrs["calls"]
        for m in computation:
            if m.opcode == "parameter":
                inner[m] = operands[m.attrs["index"]]
            else:
                inner[m] = self._add(m.replace(operands=tuple(inner[o] for o in m.operands), sharding=None))
        return inner[computation.root]

    def _add(self, made: Instruction) -> Instruction:
        self._body.append(made)
        return made
