"""A propagated program as plans are made for it, and the way back: from planned layouts to values of propagation.

Plans are made for a program whose calls were opened. Each instruction gets a name of its own before, which it keeps;
by it the values of the propagation graph, which knows every call's copy of a function, find what became of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardc.hlo.ir.ir import Computation, Instruction, Module, flow_computations, rebuild_module
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.passes import run_pipeline
from shardc.partitioner.partition import OPENING
from shardc.partitioner.program import PropagatedProgram
from shardc.sharding.propagation.export import PropagationOutcome
from shardc.sharding.propagation.finish import attach_shardings

__all__ = ["OpenedProgram", "open_program"]


@dataclass(frozen=True, slots=True)
class OpenedProgram:
    """``module`` is propagated, its calls opened; ``names`` are those of prepared instructions in it."""

    outcome: PropagationOutcome
    module: Module
    names: Mapping[Instruction, str]

    def layouts(self, planned: Module) -> list[Sharding | None]:
        """For each value of the propagation graph its layout in ``planned``, a form of ``module`` with other shardings;
        None where the value is not in it, because an equal one stands for it."""
        return _LayoutFinder(self, planned).all()


def open_program(propagated: PropagatedProgram, outcome: PropagationOutcome) -> OpenedProgram:
    """The program whose propagation had this ``outcome``."""
    named, places = attach_shardings(outcome.prepared, outcome.graph, outcome.shardings, {})
    taken: dict[str, int] = {}
    given: dict[Instruction, str] = {}

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        count = taken[old.name] = taken.get(old.name, -1) + 1
        given[old] = f"{old.name}.copy{count}" if count else old.name
        return old.replace(operands=operands, name=given[old]) if count else None

    module = rebuild_module(named, change)
    names = {i: given[place] for i, place in places.items() if place in given}
    return OpenedProgram(outcome, run_pipeline(module, OPENING, propagated.program.config), names)


class _LayoutFinder:
    """Finds the planned layouts of values; what opening calls took away lies as what it handed on, what
    folding rewrote in any layout."""

    def __init__(self, opened: OpenedProgram, planned: Module) -> None:
        self.opened = opened
        self.planned = {i.name: i for i in planned.instructions()}
        self.graph = opened.outcome.graph
        self.behind: dict[Instruction, Instruction] = {}
        for i in opened.outcome.prepared.instructions():
            if i.opcode in ("call", "fusion"):
                for callee in flow_computations(i):
                    self._enter(i, callee)

    def _enter(self, call: Instruction, callee: Computation) -> None:
        self.behind[call] = callee.root
        self.behind.update(zip(callee.parameters, call.operands, strict=True))

    def all(self) -> list[Sharding | None]:
        return [self.find(i, leaf) for i, leaf in self.graph.origin]

    def find(self, i: Instruction, leaf: int) -> Sharding | None:
        while True:
            found = self.planned.get(self.opened.names.get(i, ""))
            if found is not None and found.shape.plain == i.shape.plain and i not in self.behind:
                leaves: Sequence[object] = found.leaf_shardings()
                s = leaves[leaf]
                assert isinstance(s, Sharding)
                return s
            if i in self.behind:
                i = self.behind[i]
            elif i.opcode in ("tuple", "get-tuple-element"):
                i, leaf = _handed_on(i, leaf)
            else:
                return None


def _handed_on(i: Instruction, leaf: int) -> tuple[Instruction, int]:
    """The operand, and its leaf, that is this leaf of a tuple or of an element of one."""
    if i.opcode == "get-tuple-element":
        before = i.operands[0].shape.elements[: i.attrs["index"]]
        return i.operands[0], leaf + sum(1 for e in before for _ in e.leaves())
    for operand in i.operands:
        count = sum(1 for _ in operand.shape.leaves())
        if leaf < count:
            return operand, leaf
        leaf -= count
    raise AssertionError(f"%{i.name} has fewer leaves")
