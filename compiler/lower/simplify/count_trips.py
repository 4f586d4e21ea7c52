"""Count trips: loops say how often they run, before fusion hides how they count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from shardc.costs.kernels.trips import trip_count
from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_computation, rebuild_computations
from shardc.hlo.ir.make import keep_reachable

__all__ = ["CountTrips"]


@dataclass(frozen=True, slots=True)
class CountTrips:
    """Write the trip count of loops that have none to say on them, as XLA does (``known_trip_count``)."""

    name: str = "count-trips"
    why: str = "the trip count of a loop is read before fusion hides it, for cost models"
    looks_at: ClassVar[frozenset[str]] = frozenset({"while"})

    def run(self, module: Module) -> Module:
        if not any(i.opcode == "while" for i in module.instructions()):
            return module
        after = rebuild_computations(module, _noted)
        return keep_reachable(after, after.entry)


def _noted(computation: Computation, called: Mapping[Computation, Computation]) -> Computation:
    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        trips = trip_count(old)
        if trips is None or old.attrs.get("backend_config"):
            return None
        inside = {k: called[old.attrs[k]] for k in ("condition", "body")}
        told = f'{{"known_trip_count":{{"n":"{trips}"}}}}'
        return old.replace(operands=operands, attrs=MappingProxyType({**old.attrs, **inside, "backend_config": told}))

    return rebuild_computation(computation, change, called, {"while"})
