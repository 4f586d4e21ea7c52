"""Along which axes of the mesh the values of a per-device program differ between devices.

A forward analysis: parameters differ along the axes that split them, device numbers along all, what is computed along
the axes of what it is computed from. A reduction or gather along an axis ends it; a branch or a loop's end that
differs makes what comes of it differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from shardc.hlo.ir.groups import AxisGroups, AxisPairs
from shardc.hlo.ir.ir import Computation, Instruction, Module, has_side_effect
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.opset import COLLECTIVES
from shardc.hlo.ir.sharding import Sharding
from shardc.partitioner.optimise.device_numbers import DeviceNumbers

__all__ = ["Axes", "varying"]

Axes = frozenset[str]
#: Axes per leaf of a value.
Leaves = tuple[Axes, ...]

_NONE: Axes = frozenset()
_ENDS = ("all-reduce", "all-gather", "collective-broadcast")


def varying(module: Module) -> Mapping[Instruction, Leaves]:
    """For every instruction that runs, the axes along which each leaf of its value may differ, over all its runs."""
    assert module.mesh is not None
    everything = frozenset(module.mesh.axis_names)
    analysis = _Analysis(everything, module.mesh, DeviceNumbers(module))
    analysis.run(module.entry, [_of_parameter(module, p, everything) for p in module.parameters])
    return analysis.found


def _of_parameter(module: Module, p: Instruction, everything: Axes) -> Leaves:
    count = len(list(p.shape.leaves()))
    given = p.sharding if isinstance(p.sharding, tuple) else (p.sharding,) * count
    out = []
    for s in given:
        known = isinstance(s, Sharding) and s.mesh == module.mesh and not s.unreduced
        split = [a.name for d in s.dims for a in d.axes] if isinstance(s, Sharding) else []
        out.append(frozenset((*split, *s.manual)) if known and isinstance(s, Sharding) else everything)
    return tuple(out)


class _Analysis:
    def __init__(self, everything: Axes, mesh: Mesh, numbers: DeviceNumbers) -> None:
        self.everything = everything
        self.mesh = mesh
        self.numbers = numbers
        self.found: dict[Instruction, Leaves] = {}
        self.known: dict[tuple[Computation, tuple[Leaves, ...]], Leaves] = {}

    def run(self, computation: Computation, arguments: Sequence[Leaves]) -> Leaves:
        """The leaves of the root, given those of the parameters."""
        key = (computation, tuple(arguments))
        if key not in self.known:
            values: dict[Instruction, Leaves] = {}
            for op in computation:
                values[op] = self.step(op, [values[o] for o in op.operands], arguments)
                old = self.found.get(op)
                self.found[op] = values[op] if old is None else _join(old, values[op])
            self.known[key] = values[computation.root]
        return self.known[key]

    def step(self, op: Instruction, operands: list[Leaves], arguments: Sequence[Leaves]) -> Leaves:
        match op.opcode:
            case "parameter":
                index: int = op.attrs["index"]
                return arguments[index]
            case "tuple":
                return tuple(leaf for o in operands for leaf in o)
            case "get-tuple-element":
                sizes = [len(list(s.leaves())) for s in op.operands[0].shape.elements]
                start = sum(sizes[: op.attrs["index"]])
                taken: Leaves = operands[0][start : start + sizes[op.attrs["index"]]]
                return taken
            case "optimization-barrier":
                return operands[0]
            case "while":
                return self.loop(op, operands[0])
            case "call" | "fusion":
                return self.run(op.attrs["to_apply" if op.opcode == "call" else "calls"], operands)
            case "conditional":
                return self.branches(op, operands)
        count = len(list(op.shape.leaves()))
        given = self.axes_of(op, frozenset().union(*(x for o in operands for x in o)))
        known = self.numbers.of(op) if given == self.everything and op.shape.is_array and op.shape.size == 1 else None
        return (given if known is None else self.along(known),) * count

    def along(self, numbers: NDArray[np.int64]) -> Axes:
        """The axes along which one number per device differs."""
        grid = numbers[self.mesh.grid()]
        return frozenset(n for d, n in enumerate(self.mesh.axis_names) if (grid != grid.take([0], axis=d)).any())

    def axes_of(self, op: Instruction, given: Axes) -> Axes:
        if op.opcode in COLLECTIVES:
            return self.exchanged(op, given)
        told = op.opcode in ("partition-id", "replica-id", "rng", "rng-get-and-update-state")
        return self.everything if told or has_side_effect(op) or op.opcode.endswith(("-start", "-done")) else given

    def exchanged(self, op: Instruction, given: Axes) -> Axes:
        groups = op.attrs.get("replica_groups", op.attrs.get("source_target_pairs"))
        if not isinstance(groups, AxisGroups | AxisPairs):
            return self.everything
        whole = frozenset(a.name for a in groups.axes if a.is_full)
        if op.opcode in _ENDS:
            return given - whole
        return given | {a.name for a in groups.axes}

    def loop(self, op: Instruction, carry: Leaves) -> Leaves:
        while True:
            (stops,) = self.run(op.attrs["condition"], [carry])
            after = self.run(op.attrs["body"], [carry])
            merged = tuple(a | b | stops for a, b in zip(carry, after, strict=True))
            if merged == carry:
                return carry
            carry = merged

    def branches(self, op: Instruction, operands: list[Leaves]) -> Leaves:
        named = [op.attrs[k] for k in ("true_computation", "false_computation") if k in op.attrs]
        results = [
            self.run(c, [x]) for c, x in zip(named or op.attrs["branch_computations"], operands[1:], strict=True)
        ]
        (chosen,) = operands[0]
        return tuple(chosen.union(*leaves) for leaves in zip(*results, strict=True))


def _join(a: Leaves, b: Leaves) -> Leaves:
    return tuple(x | y for x, y in zip(a, b, strict=True))
