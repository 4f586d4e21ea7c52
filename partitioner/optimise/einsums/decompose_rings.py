"""Permutes around a ring as two along its members: one ahead, one back from the end to the start."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.hlo.ir.build import reachable_computations
from shardc.hlo.ir.groups import AxisPairs
from shardc.hlo.ir.ir import Instruction, Module, Origin, Rebuilt, rebuild_computation
from shardc.hlo.ir.sharding import DimSharding, Sharding
from shardc.hlo.ir.types import array_shape
from shardc.partitioner.emit.emitter import Emitter, Reducers
from shardc.partitioner.emit.layout import AxisTable
from shardc.partitioner.emit.names import NameSupply

__all__ = ["DecomposeRings"]

#: Pairs of positions in a group.
_Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class DecomposeRings:
    """A permute that leads in circles becomes one of the pairs that lead ahead and one of those that lead back.

    Neither has a circle, so each can be sent by point-to-point messages that need no buffering, and is free to go
    in another iteration of a loop than the other; a device takes what reaches it. Both count as sending everything,
    though a device sends in one of them only. ``least_bytes``: smaller permutes stay.
    """

    wanted: bool = False
    least_bytes: int = 0
    name: str = "decompose-rings"
    why: str = "messages in a circle wait for each other"

    def run(self, module: Module) -> Module:
        rings = [i for i in module.instructions() if self._fits(i)] if self.wanted else []
        if not rings:
            return module
        pairs: list[AxisPairs] = [i.attrs["source_target_pairs"] for i in rings]
        table = AxisTable(pairs[0].mesh, [Sharding(p.mesh, (DimSharding(p.axes),)) for p in pairs])
        names = NameSupply(i.name for i in module.instructions())
        reducers = Reducers()
        called = Rebuilt()
        for c in module.computations:
            e = Emitter(table, reducers, names)

            def change(old: Instruction, operands: tuple[Instruction, ...], e: Emitter = e) -> Instruction | None:
                return _decompose(e, old, operands[0]) if self._fits(old) else None

            called[c] = rebuild_computation(c, change, called)
        entry = called[module.entry]
        return module.with_(computations=reachable_computations(entry), entry=entry)

    def _fits(self, i: Instruction) -> bool:
        pairs = i.attrs.get("source_target_pairs") if i.opcode == "collective-permute" else None
        if not isinstance(pairs, AxisPairs) or len(i.operands) != 1 or i.shape.is_tuple:
            return False
        return i.shape.nbytes >= self.least_bytes and _circular(pairs.pairs) and _border(pairs.pairs) is not None


def _circular(pairs: _Pairs) -> bool:
    """Whether a member gets back, after some permutes, what it sent to another one."""
    following = dict(pairs)
    seen: set[int] = set()
    for first, second in following.items():
        at: int | None = second
        while at is not None and at not in seen:
            seen.add(at)
            if at == first != second:
                return True
            at = following.get(at)
    return False


def _border(pairs: _Pairs) -> tuple[int, bool] | None:
    """The position that separates who gets from behind from who gets from ahead, and whether those before it get
    what leads back; None where they are mixed."""
    ahead = [t for s, t in pairs if s <= t]
    back = [t for s, t in pairs if s > t]
    if max(back, default=-1) < min(ahead, default=0):
        return min(ahead), True
    if max(ahead, default=-1) < min(back, default=0):
        return min(back), False
    return None


def _decompose(e: Emitter, old: Instruction, x: Instruction) -> Instruction:
    pairs: AxisPairs = old.attrs["source_target_pairs"]
    border = _border(pairs.pairs)
    assert border is not None, f"%{old.name} mixes directions"
    position, backs_first = border
    given = old.origin or Origin("")
    e.metadata = old.metadata
    ways = []
    for note, chosen in (
        ("ahead along the ring", tuple((s, t) for s, t in pairs.pairs if s <= t)),
        ("back to the start of the ring", tuple((s, t) for s, t in pairs.pairs if s > t)),
    ):
        e.origin = Origin(
            "; ".join(r for r in (given.reason, note) if r), given.rule, given.value, given.axes, given.causes
        )
        ways.append(e.permute(x, AxisPairs(pairs.mesh, pairs.axes, chosen)))
    ahead, back = ways
    here = e.coordinate(e.table.atoms(pairs.axes))
    first = e.add("compare", array_shape("pred"), here, e.index(position), direction="LT")
    mask = e.splat(first, x.shape.dims)
    result = e.select(mask, back, ahead) if backs_first else e.select(mask, ahead, back)
    result.sharding = old.sharding
    return result
