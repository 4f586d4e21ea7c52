"""One fusion out of several kernels: their computations put together, equal parts computed once."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from shardc.compiler.lower.expand.expand_one_per_row import gather_by_rows
from shardc.compiler.lower.fuse.fusion_rules import is_alias, is_fusable, long_dims
from shardc.hlo.ir.ir import Computation, Instruction, topological
from shardc.hlo.ir.types import tuple_shape
from shardc.hlo.transforms.structure import Structure

__all__ = ["body_of", "make_merged_kernel", "source_of", "value_of"]


def source_of(value: Instruction) -> Instruction:
    """The instruction whose memory a value is."""
    while is_alias(value):
        value = value.operands[0]
    return value


def value_of(operand: Instruction) -> Instruction:
    """What an operand is in memory, with the same dimensions of more than one element."""
    value = operand
    while is_alias(value) and long_dims(value.operands[0].shape.dims) == long_dims(operand.shape.dims):
        value = value.operands[0]
    return value


def body_of(i: Instruction) -> Computation | None:
    """What a kernel computes, as a computation of its operands; None for kernels that are not made of elements.

    A gather of one element per row reads whole rows then, which pays only in the kernel that makes them.
    """
    if i.opcode == "fusion":
        inner: Computation = i.attrs["calls"]
        return inner if all(m.opcode in ("parameter", "tuple") or is_fusable(m) for m in inner) else None
    parameters = [_parameter(o, n) for n, o in enumerate(i.operands)]
    root = i.replace(operands=tuple(parameters))
    if i.opcode == "gather":
        by_rows = gather_by_rows(root)
        return None if by_rows is None else Computation(i.name, topological([*parameters, by_rows]), by_rows)
    if not is_fusable(i) or is_alias(i) or i.opcode in ("constant", "parameter"):
        return None
    return Computation(i.name, (*parameters, root), root)


def _parameter(value: Instruction, index: int) -> Instruction:
    return Instruction("parameter", value.shape, (), MappingProxyType({"index": index}), name=f"p{index}")


class _MergedBody:
    """A computation in the making; ``values`` are instructions outside and what they are inside."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self.outside: list[Instruction] = []
        self.values: dict[Instruction, Instruction] = {}
        self._structure = Structure()
        self._known: dict[tuple[object, ...], Instruction] = {}

    def value(self, o: Instruction) -> Instruction:
        """An operand: made inside, or a parameter; with other dimensions of one element if need be."""
        source = value_of(o)
        inner = self.values.get(source)
        if inner is None:
            inner = self.values[source] = _parameter(source, len(self.outside))
            self.outside.append(source)
            self.instructions.append(inner)
        if inner.shape.dims == o.shape.dims:
            return inner
        return self.add(Instruction("reshape", o.shape.plain, (inner,)))

    def add(self, i: Instruction) -> Instruction:
        """``i``, or what computes the same already."""
        key = (i.opcode, i.shape, i.operands, self._structure.attributes(i))
        found = self._known.setdefault(key, i)
        if found is i:
            self.instructions.append(i)
        return found

    def append(self, kernel: Instruction) -> None:
        """All that one kernel computes."""
        body = body_of(kernel)
        assert body is not None, f"%{kernel.name} has no elements"
        inner: dict[Instruction, Instruction] = {}
        for i in body:
            if i.opcode == "parameter":
                inner[i] = self.value(kernel.operands[i.attrs["index"]])
            elif i.opcode != "tuple":
                inner[i] = self.add(i.replace(operands=tuple(inner[o] for o in i.operands), sharding=None))
        self.values[kernel] = inner[body.root]


def make_merged_kernel(
    members: Sequence[Instruction], makes: Sequence[Instruction], new: dict[Instruction, Instruction]
) -> list[Instruction]:
    """The fusion of kernels that gives the values ``makes``, and what takes each of several from its tuple.

    ``new`` maps instructions before to those that replace them; the results are added.
    """
    body = _MergedBody()
    for m in members:
        if not is_alias(m):
            body.append(m)
    last = makes[-1]
    roots = [body.values[v] for v in makes]
    root = roots[0]
    if len(roots) > 1:
        root = Instruction("tuple", tuple_shape(*(v.shape for v in makes)), roots)
        body.instructions.append(root)
    kind = "kInput" if any(i.opcode == "reduce" for i in body.instructions) else "kLoop"
    computation = Computation(f"merged_{last.opcode.replace('-', '_')}", body.instructions, root)
    attrs: dict[str, object] = {"kind": kind, "calls": computation}
    operands = (new[o] for o in body.outside)
    provenance: dict[str, Any] = {"metadata": last.metadata, "origin": last.origin}
    fused = Instruction("fusion", root.shape, operands, MappingProxyType(attrs), name=_name(members), **provenance)
    if len(roots) == 1:
        new[last] = fused
        return [fused]
    found = [fused]
    for n, v in enumerate(makes):
        attrs = {"index": n}
        new[v] = Instruction("get-tuple-element", v.shape, (fused,), MappingProxyType(attrs), name=v.name, **provenance)
        found.append(new[v])
    return found


def _name(members: Sequence[Instruction]) -> str:
    """After the last of them that is not a reshape."""
    name = next(m.name for m in reversed(members) if not is_alias(m))
    return name if name.startswith("merged") else f"merged_{name.removeprefix('fused_')}"
