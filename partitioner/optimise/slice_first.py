"""Only what is read of a gathered array is gathered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardc.hlo.ir.groups import AxisGroups
from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_computation, rebuild_computations, users_of
from shardc.hlo.ir.literal import Literal
from shardc.partitioner.optimise.keep_root import with_root_sharding
from shardc.partitioner.optimise.varying import Axes, varying

__all__ = ["SliceFirst"]


@dataclass(frozen=True, slots=True)
class SliceFirst:
    """``dynamic-slice(all-gather(x))`` becomes ``all-gather(dynamic-slice(x))`` where nobody reads the rest.

    The slice must leave the gathered dimension whole and begin at one place on all devices that gather. Weights of all
    layers that were to be gathered once, before the loops that read them, are gathered layer by layer where there was
    no room for that.
    """

    name: str = "slice-first"
    why: str = "elements that are not read need not be sent"

    def run(self, module: Module) -> Module:
        cut = any(i.opcode == "dynamic-slice" and i.operands[0].opcode == "all-gather" for i in module.instructions())
        if not cut or module.mesh is None:
            return module
        differ = varying(module)
        after = rebuild_computations(module, lambda c, called: _slice(c, called, differ))
        return with_root_sharding(after, module.entry.root.sharding)


def _slice(
    computation: Computation, called: Mapping[Computation, Computation], differ: Mapping[Instruction, Sequence[Axes]]
) -> Computation:
    users = users_of(computation)
    found: set[Instruction] = set()
    for i in computation:
        if i.opcode == "all-gather" and len(i.operands) == 1 and i is not computation.root:
            readers = users[i]
            fits = all(r.opcode == "dynamic-slice" and r.operands[0] is i and _whole_along(r, i) for r in readers)
            fits = fits and all(_begins_alike(r, i, differ) for r in readers)
            if fits and sum(r.shape.size for r in readers) < i.shape.size:
                found.update(readers)

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        return _gather(old, operands) if old in found else None

    return rebuild_computation(computation, change if found else None, called)


def _whole_along(cut: Instruction, gather: Instruction) -> bool:
    """Whether the slice leaves the gathered dimension as it is."""
    (dim,) = gather.attrs["dimensions"]
    return bool(cut.shape.dims[dim] == gather.shape.dims[dim]) and len(cut.operands) == 1 + cut.shape.rank


def _begins_alike(cut: Instruction, gather: Instruction, differ: Mapping[Instruction, Sequence[Axes]]) -> bool:
    """Whether all members of a group of the gather slice from the same place."""
    groups = gather.attrs["replica_groups"]
    if not isinstance(groups, AxisGroups):
        return False
    gathered = {a.name for a in groups.axes}
    return all(o in differ and gathered.isdisjoint(*differ[o]) for o in cut.operands[1:])


def _gather(cut: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
    """The gather of what ``cut`` takes of each part."""
    gather, starts = operands[0], list(operands[1:])
    (x,), (dim,) = gather.operands, gather.attrs["dimensions"]
    index = starts[dim].shape
    starts[dim] = Instruction("constant", index, (), {"literal": Literal.full(index, 0)})
    sizes = (*cut.shape.dims[:dim], x.shape.dims[dim], *cut.shape.dims[dim + 1 :])
    shape = cut.shape.plain
    part = cut.replace(
        operands=(x, *starts), shape=shape.with_dims(sizes), attrs={**cut.attrs, "dynamic_slice_sizes": sizes}
    )
    attrs = {k: v for k, v in gather.attrs.items() if k != "channel_id"}
    return gather.replace(operands=(part,), shape=shape, attrs=attrs)
