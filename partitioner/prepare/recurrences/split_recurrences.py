"""Loops along a split dimension whose steps compose: each shard goes along its own rows.

What a shard's steps do to whatever is carried into it is found first (`step_maps`); one number or a few per carried
element then say what each shard begins with, and the loop itself runs on every shard, from there. So every element is
computed as the program says; only what shards begin with is rounded in another way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from shardc.hlo.ir.build import reachable_computations
from shardc.hlo.ir.ir import Instruction, Module, rebuild_computation, rebuild_computations
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.loops.recurrence import Recurrence, RowAccess, find_recurrence
from shardc.hlo.loops.step_maps import StepMap, find_step_maps
from shardc.partitioner.prepare.recurrences.shard_loops import write_shard_loops
from shardc.partitioner.prepare.recurrences.shard_writer import SharedRows

__all__ = ["SplitRecurrences"]


@dataclass(frozen=True, slots=True)
class SplitRecurrences:
    """Loops over the rows of split arrays whose steps are affine, or quotients of affine forms, in what they carry."""

    name: str = "split-recurrences"
    why: str = "shards go along their rows at the same time once the effect of earlier rows on the state is known"
    looks_at: ClassVar[frozenset[str]] = frozenset({"while"})

    def run(self, module: Module) -> Module:
        if module.mesh is None:
            return module

        def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
            found = find_recurrence(old)
            rows = None if found is None else _rows(found)
            if found is None or rows is None:
                return None
            maps = find_step_maps(found)
            if maps is None or _sent_after(found, maps, rows) >= _sent_before(found, rows):
                return None
            results = write_shard_loops(found, maps, rows, operands[0].operands)
            return old.replace(opcode="tuple", operands=results, attrs={})

        after = rebuild_computations(module, lambda c, called: rebuild_computation(c, change, called, {"while"}))
        return after if after is module else after.with_(computations=reachable_computations(after.entry))


def _rows(found: Recurrence) -> SharedRows | None:
    """Which axes share the rows: those of the largest array that is split along them."""
    shardings = found.loop.leaf_shardings()
    body = [s for i in found.body for s in (i.sharding if isinstance(i.sharding, tuple) else (i.sharding,))]
    if any(not isinstance(s, Sharding) or s.manual or s.unreduced or s.mesh.is_maximal for s in (*shardings, *body)):
        return None
    split = [r for r in found.rows if _is_split(found, r)]
    if not split:
        return None
    main = max(split, key=lambda r: found.start[r.element].shape.nbytes)
    sharding = shardings[main.element]
    axes = sharding.dims[main.dim].axes
    size = found.start[main.element].shape.dims[main.dim]
    if not all(a.is_full for a in axes) or size < sharding.dims[main.dim].extent(sharding.mesh):
        return None
    return SharedRows(sharding.mesh, axes, size, main.first)


def _is_split(found: Recurrence, row: RowAccess) -> bool:
    """Whether the array is split along its rows."""
    sharding = found.loop.leaf_shardings()[row.element]
    return sharding.dims[row.dim].extent(sharding.mesh) > 1


def _sent_before(found: Recurrence, rows: SharedRows) -> float:
    """Whoever goes along all rows gathers them."""
    split = {found.start[r.element]: r for r in found.rows if _is_split(found, r)}
    return sum(x.shape.nbytes for x in split) * (1 - 1 / rows.shards)


def _sent_after(found: Recurrence, maps: tuple[StepMap, ...], rows: SharedRows) -> float:
    """What shards do, and the results that are wanted whole."""
    sent = 0.0
    for m in maps:
        sent += found.carries[m.carries[0]].after.shape.nbytes * m.numbers * (rows.shards - 1)
    whole = [found.start[w.element].shape.nbytes for w in found.writes if not _is_split(found, w)]
    return sent + sum(whole) * (1 - 1 / rows.shards)
