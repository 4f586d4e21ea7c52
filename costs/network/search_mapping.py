"""The mapping of a mesh onto a machine with which a program's collectives take the least time."""

from __future__ import annotations

from collections import Counter

from shardc.costs.kernels.trips import count_executions
from shardc.costs.machines.machine import Machine
from shardc.costs.network.collective_cost import collective_cost
from shardc.costs.network.mapping import search
from shardc.costs.network.placement import Groups, Placement
from shardc.hlo.ir.asynchronous import is_done, is_start, join_pair
from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.opset import COLLECTIVES

__all__ = ["mesh_of", "search_mapping"]


def mesh_of(module: Module) -> Mesh:
    """The mesh of a partitioned module; one axis of all devices where it has none."""
    devices = module.num_partitions * module.replica_count
    return module.mesh if module.mesh is not None and module.mesh.size == devices else Mesh({"devices": devices})


def search_mapping(machine: Machine, module: Module) -> Placement:
    """Where the devices of a partitioned ``module`` should lie: of all `candidates` the one with the fewest seconds of
    collectives, each as often as it runs. Raises `InputError` where the mesh does not fit the machine."""
    runs = count_executions(module).count
    traffic: Counter[tuple[str, int, Groups]] = Counter()
    for computation, times in runs.items():
        for i in computation:
            if is_done(i):
                continue
            one = join_pair(i) if is_start(i) else i
            if one.opcode in COLLECTIVES:
                nbytes = sum(s.nbytes for s in one.shape.leaves())
                groups = one.attrs.get("replica_groups", one.attrs.get("source_target_pairs"))
                traffic[one.opcode, nbytes, groups] += times

    def seconds(placement: Placement) -> float:
        costs = (n * collective_cost(placement, *row).seconds for row, n in traffic.items())
        return sum(costs, 0.0)

    return search(machine, mesh_of(module), seconds)
