"""Members of a group that have the same value need not exchange it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardc.hlo.ir.groups import AxisGroups, AxisPairs
from shardc.hlo.ir.ir import Instruction, Module, rebuild_module
from shardc.hlo.ir.literal import Literal
from shardc.partitioner.optimise.keep_root import with_root_sharding
from shardc.partitioner.optimise.reduction import reducer
from shardc.partitioner.optimise.varying import Axes, varying

__all__ = ["DropEqual"]

_CANDIDATES = frozenset(("all-reduce", "all-gather", "collective-permute"))


@dataclass(frozen=True, slots=True)
class DropEqual:
    """A sum of g equal values is g times one of them, their maximum is one of them, and gathered they are copies.

    Where the values differ along some of the axes only, the others are left out.
    """

    name: str = "drop-equal"
    why: str = "data that every device has need not be sent"

    def run(self, module: Module) -> Module:
        if module.mesh is None or not any(map(_is_candidate, module.instructions())):
            return module
        found = varying(module)
        differing: Mapping[Instruction, Axes] = {
            i: found[i.operands[0]][0] for i in module.instructions() if _is_candidate(i) and i.operands[0] in found
        }

        def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
            if old not in differing:
                return None
            if old.opcode == "collective-permute":
                return _permute(old, operands[0], differing[old])
            if old.opcode == "all-gather":
                return _all_gather(old, operands[0], differing[old])
            return _all_reduce(old, operands[0], differing[old])

        return with_root_sharding(rebuild_module(module, change), module.entry.root.sharding)


def _is_candidate(i: Instruction) -> bool:
    groups = i.attrs.get("replica_groups", i.attrs.get("source_target_pairs"))
    return (
        i.opcode in _CANDIDATES
        and len(i.operands) == 1
        and i.shape.is_array
        and isinstance(groups, AxisGroups | AxisPairs)
        and all(a.is_full for a in groups.axes)
    )


def _permute(old: Instruction, x: Instruction, differing: Axes) -> Instruction | None:
    pairs: AxisPairs = old.attrs["source_target_pairs"]
    told = len({t for _, t in pairs.pairs}) == pairs.group_size
    return x if told and differing.isdisjoint(a.name for a in pairs.axes) else None


def _all_gather(old: Instruction, x: Instruction, differing: Axes) -> Instruction | None:
    groups: AxisGroups = old.attrs["replica_groups"]
    if not differing.isdisjoint(a.name for a in groups.axes):
        return None
    (dim,) = old.attrs["dimensions"]
    dims = x.shape.dims
    copies = Instruction(
        "broadcast",
        x.shape.with_dims((*dims[:dim], groups.group_size, *dims[dim:])),
        (x,),
        {"dimensions": tuple(d + (d >= dim) for d in range(len(dims)))},
        metadata=old.metadata,
    )
    return Instruction("reshape", old.shape, (copies,), name=old.name, metadata=old.metadata)


def _all_reduce(old: Instruction, x: Instruction, differing: Axes) -> Instruction | None:
    groups: AxisGroups = old.attrs["replica_groups"]
    rest = tuple(a for a in groups.axes if a.name in differing)
    opcode = reducer(old)
    times = groups.group_size // AxisGroups(groups.mesh, rest).group_size
    if len(rest) == len(groups.axes) or opcode not in ("add", "maximum", "minimum", "and", "or"):
        return None
    dtype = x.shape.dtype
    if opcode == "add" and (dtype.kind == "pred" or (dtype.is_integer and dtype.bits < 8)):
        return None
    if rest:
        attrs = {k: v for k, v in old.attrs.items() if k != "channel_id"}
        x = old.replace(operands=(x,), attrs={**attrs, "replica_groups": AxisGroups(groups.mesh, rest)})
    return x if opcode != "add" else _scale(x, times, old)


def _scale(x: Instruction, times: int, old: Instruction) -> Instruction:
    scalar = x.shape.with_dims(())
    factor = Instruction("constant", scalar, (), {"literal": Literal.full(scalar, times)})
    if x.shape.dims:
        factor = Instruction("broadcast", x.shape.plain, (factor,), {"dimensions": ()})
    return Instruction("multiply", old.shape, (x, factor), metadata=old.metadata)
