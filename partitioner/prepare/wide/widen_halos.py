"""Several iterations of a stencil for one exchange: a wider halo, of which each iteration uses up a part.

Every iteration of a loop over a stencil exchanges borders. With k times the border a shard goes k iterations by itself,
and computes meanwhile what its neighbours compute as well, a little less each time. That pays where messages take
longer than what is computed twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from shardc.costs.kernels.kernel_model import KernelWork, kernel_seconds
from shardc.costs.kernels.traffic import instruction_traffic
from shardc.costs.kernels.trips import trip_count
from shardc.costs.kernels.work import instruction_work
from shardc.costs.machines.machine import Machine
from shardc.costs.network.collective_cost import collective_cost
from shardc.costs.network.mapping import place
from shardc.hlo.ir.build import reachable_computations
from shardc.hlo.ir.groups import AxisPairs
from shardc.hlo.ir.ir import (
    Computation,
    Instruction,
    Module,
    has_side_effect,
    rebuild_computation,
    rebuild_computations,
    topological,
)
from shardc.hlo.ir.make import make
from shardc.hlo.ir.types import tuple_shape
from shardc.hlo.loops.loop_counter import carried_element
from shardc.partitioner.prepare.wide.grid import Grid, GridBlocks, Margins
from shardc.partitioner.prepare.wide.iteration import Iteration, Needs

__all__ = ["WidenHalos"]

#: Most iterations for one exchange: each is written out.
_MOST = 16

#: Most instructions that this makes of a body.
_MOST_INSTRUCTIONS = 2000

#: What part of the time has to be saved.
_LEAST = 0.05

#: What part of a device's memory the state may have, of which there are several copies in margins of several widths.
_MOST_MEMORY = 1 / 8


@dataclass(frozen=True, slots=True)
class WidenHalos:
    """Loops of a known number of iterations over arrays of one grid that read their neighbours only.

    Loops whose names are in ``kept`` stay as they are.
    """

    machine: Machine | None = None
    kept: frozenset[str] | None = None
    name: str = "widen-halos"
    why: str = "computing a little twice can cost less than a message for every iteration"
    looks_at: ClassVar[frozenset[str]] = frozenset({"while"})

    def run(self, module: Module) -> Module:
        machine, kept = self.machine, self.kept or frozenset()
        if machine is None or module.mesh is None:
            return module

        def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
            found = _choose(old, machine) if old.opcode == "while" and old.name not in kept else None
            return None if found is None else old.replace(operands=operands, attrs={**old.attrs, "body": found})

        after = rebuild_computations(module, lambda c, called: rebuild_computation(c, change, called, {"while"}))
        return after if after is module else after.with_(computations=reachable_computations(after.entry))


def _choose(loop: Instruction, machine: Machine) -> Computation | None:
    """The body that goes several iterations, as many as cost least each; None where one does."""
    body, trips = loop.attrs["body"], trip_count(loop)
    if trips is None or body.root.opcode != "tuple" or any(map(has_side_effect, body)):
        return None
    carried = (i for i in body if carried_element(i, body) is not None)
    grid = next((g for i in carried if i.shape.rank and (g := Grid.of(i)) is not None), None)
    if grid is None:
        return None
    iteration = Iteration(grid, body)
    if any(i.sharding != body.root.operands[k].sharding or Grid.of(i) != grid for k, i in _cut_up(iteration)):
        return None
    if sum(i.shape.nbytes for _, i in _cut_up(iteration)) / grid.devices > _MOST_MEMORY * machine.device.memory_bytes:
        return None
    costs: dict[int, float] = {}
    ways: dict[int, list[Needs]] = {}
    most = min(trips, _MOST, max(_MOST_INSTRUCTIONS // len(body.instructions), 1))
    for k in (k for k in range(1, most + 1) if trips % k == 0):
        needs = _needs(iteration, k)
        if needs is None:
            break
        ways[k], costs[k] = needs, _seconds(iteration, needs, machine) / k
    best = min(costs, key=costs.__getitem__, default=1)
    return None if best == 1 or costs[best] > (1 - _LEAST) * costs[1] else _written_out(iteration, ways[best])


def _cut_up(iteration: Iteration) -> list[tuple[int, Instruction]]:
    """The state's arrays of the grid as the body reads them."""
    found = ((carried_element(i, iteration.body), i) for i in iteration.body)
    return [(k, i) for k, i in found if k is not None and k in iteration.arrays()]


def _needs(iteration: Iteration, count: int) -> list[Needs] | None:
    """What each of so many iterations needs, the first one first; None where it is more than neighbours have."""
    grid = iteration.grid
    after: Mapping[int, Margins] = dict.fromkeys(iteration.arrays(), grid.no_margins)
    out: list[Needs] = []
    for _ in range(count):
        needs = iteration.needs(after)
        if needs is None:
            return None
        carried = needs.carried(iteration.body)
        after = {k: carried.get(k, grid.no_margins) for k in after}
        if any(max(m[d]) > grid.block(d) for m in after.values() for d in grid.split):
            return None
        out.insert(0, needs)
    return out if any(max(m[d]) for m in after.values() for d in grid.split) else None


def _seconds(iteration: Iteration, needs: list[Needs], machine: Machine) -> float:
    """Exchange and iterations: each is one kernel that reads and writes the state's arrays once."""
    grid, body = iteration.grid, iteration.body
    share = 1 / grid.devices
    operations: Counter[str] = Counter()
    for i in body:
        if i.shape.is_array and i.shape.dims == grid.dims:
            operations.update(dict(instruction_work(i, instruction_traffic(i)).operations))
    arrays = [iteration.state[k] for k in iteration.arrays()]
    nbytes = sum(x.shape.nbytes for x in arrays) * share
    seconds = _exchange_seconds(iteration, needs[0], machine)
    for n in needs:
        volume = max((grid.volume(m) for x in arrays for m in n.values.get(x, {}).values()), default=1.0)
        work = tuple((name, count * share * volume) for name, count in sorted(operations.items()))
        moved = int(nbytes * volume)
        dtype = arrays[0].shape.dtype.name
        seconds += kernel_seconds(
            machine.device, KernelWork(operations=work, read=moved, written=moved, dtype=dtype)
        ).seconds
    return seconds


def _exchange_seconds(iteration: Iteration, needs: Needs, machine: Machine) -> float:
    """A permute each way along each split dimension, of all arrays together, corners with the later dimensions."""
    grid, carried = iteration.grid, needs.carried(iteration.body)
    placement, seconds = place(machine, grid.mesh), 0.0
    sent = [0] * (2 * len(grid.dims))
    for k in iteration.arrays():
        x, margins = iteration.state[k], carried.get(k, grid.no_margins)
        sizes = [grid.block(d) for d in range(len(grid.dims))]
        for d in grid.split:
            row = x.shape.dtype.nbytes
            for q, n in enumerate(sizes):
                row *= 1 if q == d else n
            for side, width in enumerate(margins[d]):
                sent[2 * d + side] += width * row
            sizes[d] += sum(margins[d])
    for n, nbytes in enumerate(sent):
        if nbytes:
            d, size = n // 2, grid.count(n // 2)
            pairs = tuple((i, (i + 1 - 2 * (n % 2)) % size) for i in range(size))
            groups = AxisPairs(grid.mesh, grid.splits[d].axes, pairs)
            seconds += collective_cost(placement, "collective-permute", nbytes, groups).seconds
    return seconds


def _written_out(iteration: Iteration, needs: list[Needs]) -> Computation:
    """The body that exchanges once, and then goes as many iterations as there are ``needs``."""
    body, grid = iteration.body, iteration.grid
    state = body.parameters[0]
    parts: dict[int, Instruction] = {}
    for k, x in enumerate(iteration.state):
        like = next((i for i in body if carried_element(i, body) == k), x)
        parts[k] = make("get-tuple-element", state.shape.elements[k], (state,), like, index=k)
        parts[k].sharding = like.sharding
    carried = needs[0].carried(body)
    blocks = {k: GridBlocks.cut_up(grid, parts[k]).widened(carried.get(k, grid.no_margins)) for k in iteration.arrays()}
    others = {k: x for k, x in parts.items() if k not in blocks}
    for n in needs:
        blocks, others = iteration.on(blocks, others, n)
    kept = {k for k, x in enumerate(iteration.state) if carried_element(x, body) == k}
    results = [
        parts[k] if k in kept else blocks[k].whole(x) if k in blocks else others[k]
        for k, x in enumerate(iteration.state)
    ]
    root = body.root.replace(operands=results, shape=tuple_shape(*(r.shape for r in results)))
    return Computation(body.name, topological([*body.parameters, root]), root)
