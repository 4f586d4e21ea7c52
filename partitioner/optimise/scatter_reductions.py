"""A sum of which every device keeps its own part is reduced so from the start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardc.hlo.ir.ir import (
    Computation,
    Instruction,
    Module,
    Origin,
    rebuild_computation,
    rebuild_computations,
    users_of,
)
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.participants import groups_of_devices
from shardc.partitioner.optimise.device_numbers import DeviceNumbers
from shardc.partitioner.optimise.keep_root import with_root_sharding
from shardc.partitioner.optimise.reduction import reducer

__all__ = ["ScatterReductions"]

_NOTE = "every member keeps its part"


@dataclass(frozen=True, slots=True)
class ScatterReductions:
    """``dynamic-slice(all-reduce(x), position in the group)`` is a reduce-scatter, where nobody reads the rest.

    The positions are computed for every device, so that it does not matter how the program finds them.
    """

    name: str = "scatter-reductions"
    why: str = "half of an all-reduce gathers elements that a slice then drops"

    def run(self, module: Module) -> Module:
        reduces = any(reducer(i) and i.opcode == "all-reduce" for i in module.instructions())
        if not reduces or module.replica_count > 1:
            return module
        numbers = DeviceNumbers(module)
        after = rebuild_computations(module, lambda c, called: _scattered(c, called, numbers))
        return with_root_sharding(after, module.entry.root.sharding)


def _scattered(
    computation: Computation, called: Mapping[Computation, Computation], numbers: DeviceNumbers
) -> Computation:
    users = users_of(computation)
    found: dict[Instruction, int] = {}
    for i in computation:
        if i.opcode == "all-reduce" and reducer(i) and i is not computation.root:
            dim = _scattered_dim(i, users[i], numbers)
            found.update(dict.fromkeys(users[i], dim) if dim is not None else {})

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        return _scatter(old, operands, found[old]) if old in found else None

    return rebuild_computation(computation, change, called)


def _scattered_dim(reduced: Instruction, slices: list[Instruction], numbers: DeviceNumbers) -> int | None:
    """The dimension of which each member of a group takes the part of its position; None if it is not so."""
    if not slices or any(s.opcode != "dynamic-slice" or s.operands[0] is not reduced for s in slices):
        return None
    if len({(s.operands, s.attrs["dynamic_slice_sizes"]) for s in slices}) > 1:
        return None
    cut = slices[0]
    groups = groups_of_devices(reduced, numbers.devices, 1)
    if any(m >= numbers.devices for g in groups for m in g):  # of replicas that the header does not tell
        return None
    out = None
    for d, (n, size) in enumerate(zip(reduced.shape.dims, cut.shape.dims, strict=True)):
        if n == size:
            continue
        at = numbers.of(cut.operands[1 + d]) if len(cut.operands) == 1 + cut.shape.rank else None
        if at is None:
            return None
        if all(n == size * len(g) and [int(at[m]) for m in g] == [p * size for p in range(len(g))] for g in groups):
            if out is not None:
                return None
            out = d
        elif any(len({int(at[m]) for m in g}) > 1 for g in groups):
            return None
    return out


def _scatter(cut: Instruction, operands: tuple[Instruction, ...], dim: int) -> Instruction:
    """The reduce-scatter of what ``cut`` takes along the other dimensions."""
    reduced = operands[0]
    x, dims = reduced.operands[0], cut.shape.dims
    part = (*dims[:dim], x.shape.dims[dim], *dims[dim + 1 :])
    if part != x.shape.dims:
        index = operands[1 + dim].shape
        zero = Instruction("constant", index, (), {"literal": Literal.full(index, 0)})
        starts = [zero if d == dim else o for d, o in enumerate(operands[1:])]
        x = cut.replace(operands=(x, *starts), shape=x.shape.with_dims(part), attrs={"dynamic_slice_sizes": part})
    attrs = {k: v for k, v in reduced.attrs.items() if k != "channel_id"}
    old = reduced.origin or Origin("")
    reason = "; ".join(r for r in (old.reason, _NOTE) if r)
    return Instruction(
        "reduce-scatter",
        cut.shape,
        (x,),
        {**attrs, "dimensions": (dim,)},
        name=reduced.name,
        metadata=reduced.metadata,
        origin=Origin(reason, old.rule, old.value, old.axes, old.causes),
    )
