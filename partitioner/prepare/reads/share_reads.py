"""What one array's shifts, windows and padded forms read beyond shards, they read together: one exchange, corners too.

``p = np.pad(u, 8, mode="reflect")`` and ``p[i : i + n]`` are reads of ``u`` at known places, and so are
``u[i : n - 2 + i]``. Each on its own brings a device another interval, which is put together differently on every
device. All of them are cut out of one interval that is as wide as they need (`extended.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_computation, rebuild_computations

if TYPE_CHECKING:
    from shardc.partitioner.prepare.reads.extended import Extended

__all__ = ["ShareReads"]


@dataclass(frozen=True, slots=True)
class ShareReads:
    """Reads of one array at known places, equal in size and layout, whose intervals begin elsewhere in every shard or
    have the array's own rows beyond its edges."""

    name: str = "share-reads"
    why: str = "elements that several operations read from a neighbour are sent once"

    def run(self, module: Module) -> Module:
        return module if module.mesh is None else rebuild_computations(module, _share_all)


def _share_all(computation: Computation, called: Mapping[Computation, Computation]) -> Computation:
    from shardc.partitioner.prepare.reads.readers import find_readers

    computation = rebuild_computation(computation, None, called)
    shared = {reader: group for group in find_readers(computation) for reader in group.places}
    new: dict[Instruction, Instruction] = {}
    made: dict[Instruction, Extended] = {}

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
        group = shared.get(old)
        if group is None:
            new[old] = old if operands is old.operands else old.replace(operands=operands)
        else:
            first = next(iter(group.places))
            if first not in made:
                made[first] = group.extended(new[group.root])
            new[old] = group.read(made[first], old)
        return new[old]

    return rebuild_computation(computation, change) if shared else computation
