"""What a step does, one row per piece of work: of a simulated step, or without a machine of the per-device program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardc.analysis.categories import category_of
from shardc.costs.kernels.traffic import instruction_traffic
from shardc.costs.kernels.trips import count_executions, trip_count
from shardc.costs.network.wire_bytes import wire_bytes
from shardc.costs.ops.table import instruction_flops
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.opset import COLLECTIVES

if TYPE_CHECKING:
    from shardc.analysis.simulate.simulation import Simulation

__all__ = ["Around", "Leaf", "leaves_of_module", "leaves_of_simulation", "loops_of_module", "working_instructions"]

#: Instructions that only name, group or call.
_NO_WORK = frozenset(
    ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "while", "conditional", "call")
)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A kernel, copy or collective (``kind``). Figures are a step's, of one device: ``count`` executions that take
    ``seconds`` (of a collective: that compute waits for; None without a machine), ``flops``, ``nbytes`` of memory read
    and written, ``sent`` bytes. ``limit`` is what limits a simulated kernel. ``loops`` are the names of loops around
    it, outermost first."""

    kind: str
    name: str
    opcode: str
    op_name: str
    source: str
    holds: str
    loops: tuple[str, ...]
    count: int
    seconds: float | None
    flops: int
    nbytes: int
    sent: float
    category: str
    limit: str = ""


@dataclass(frozen=True, slots=True)
class Around:
    """A loop: ``trips`` is None where nobody knows them."""

    op_name: str
    source: str
    trips: int | None


def leaves_of_simulation(simulation: Simulation) -> list[Leaf]:
    """A row per piece of `Simulation.work`."""
    return [
        Leaf(
            w.kind, w.name, w.opcode, w.op_name, w.source, w.holds, w.loops, w.count,
            w.exposed_seconds if w.kind in ("collective", "move") else w.seconds * w.count,
            w.flops * w.count, (w.read + w.written) * w.count, float(w.wire_bytes * w.count),
            w.category, w.limit,
        )
        for w in simulation.work
    ]  # fmt: skip


def leaves_of_module(module: Module) -> list[Leaf]:
    """A row per instruction that does something, in program order; what a fusion holds is one row."""
    runs = count_executions(module)
    devices = module.num_partitions
    return [_leaf(i, loops, runs.count.get(c, 0), devices) for i, c, loops in working_instructions(module)]


def working_instructions(module: Module) -> Iterator[tuple[Instruction, Computation, tuple[str, ...]]]:
    """The instructions of `leaves_of_module`, each with its computation and the loops around it."""
    for computation, loops in _loops_around(module).items():
        yield from ((i, computation, loops) for i in computation if i.opcode not in _NO_WORK)


def loops_of_module(module: Module) -> dict[str, Around]:
    """The loops of a module by the names of their instructions."""
    found = (i for c in _loops_around(module) for i in c if i.opcode == "while")
    return {i.name: Around(_op_name(i), i.source, trip_count(i)) for i in found}


def _loops_around(module: Module) -> Mapping[Computation, tuple[str, ...]]:
    """Computations that run as programs, in the order in which they first do, with the loops around them."""
    out: dict[Computation, tuple[str, ...]] = {}
    waiting: list[tuple[Computation, tuple[str, ...]]] = [(module.entry, ())]
    while waiting:
        computation, loops = waiting.pop()
        if computation in out:
            continue
        out[computation] = loops
        inner = [(c, (*loops, i.name) if i.opcode == "while" else loops) for i in computation for c in _programs(i)]
        waiting += reversed(inner)
    return out


def _programs(i: Instruction) -> Iterator[Computation]:
    if i.opcode == "while":
        yield from (i.attrs["condition"], i.attrs["body"])
    elif i.opcode == "call":
        yield i.attrs["to_apply"]
    elif i.opcode == "conditional":
        named = [i.attrs[k] for k in ("true_computation", "false_computation") if k in i.attrs]
        yield from named or i.attrs["branch_computations"]


def _leaf(i: Instruction, loops: tuple[str, ...], count: int, devices: int) -> Leaf:
    inside = i.attrs["calls"] if i.opcode == "fusion" else (i,)
    moves = i.opcode in COLLECTIVES
    traffic = instruction_traffic(i)
    return Leaf(
        "collective" if moves else "kernel", i.name, i.opcode, _op_name(i), i.source, str(i.shape.plain), loops, count,
        None, count * sum(instruction_flops(op) for op in inside), count * (traffic.read + traffic.written),
        count * wire_bytes(i, devices) if moves else 0.0, "collectives" if moves else category_of(i),
    )  # fmt: skip


def _op_name(i: Instruction) -> str:
    return i.metadata.op_name if i.metadata is not None else ""
