"""Which values are those of a manual computation (`shard_map`), and along which axes of the mesh."""

from __future__ import annotations

from collections.abc import Mapping

from shardc.hlo.ir.custom_calls import ENTER_MANUAL, LEAVE_MANUAL
from shardc.hlo.ir.ir import Computation, Instruction, Module, called_computations
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import Sharding
from shardc.sharding.prepare.markers import manual_axes

__all__ = ["entered_axes", "find_differing_axes", "is_manual", "left_axes", "manual_of"]


def manual_of(op: Instruction) -> tuple[str, ...]:
    """The manual axes of a value inside, where its own sharding names them."""
    sharding = op.sharding[0] if isinstance(op.sharding, tuple) and op.sharding else op.sharding
    return sharding.manual if isinstance(sharding, Sharding) else ()


def is_manual(op: Instruction) -> bool:
    """Whether any part of the value is one of a manual computation."""
    shardings = op.sharding if isinstance(op.sharding, tuple) else (op.sharding,)
    return any(isinstance(s, Sharding) and s.manual for s in shardings)


def entered_axes(op: Instruction, mesh: Mesh) -> tuple[str, ...]:
    """The axes that are manual behind ``op``, a call that enters a manual computation, and not before it."""
    outside = {a for o in op.operands for a in manual_of(o)}
    return manual_axes(op) or tuple(a for a in manual_of(op) if a not in outside) or mesh.axis_names


def left_axes(op: Instruction, number: int, mesh: Mesh) -> tuple[str, ...]:
    """The axes that are manual before ``op``, a call that leaves a manual computation with operand ``number``, and not
    behind it."""
    sharding = op.leaf_shardings()[number]
    outside = sharding.manual if isinstance(sharding, Sharding) else ()
    inside = manual_of(op.operands[number])
    return manual_axes(op) or tuple(a for a in inside if a not in outside) or mesh.axis_names


def find_differing_axes(module: Module) -> Mapping[Instruction, frozenset[str]]:
    """The axes along which devices have values of their own under one name: no operation on these can be split over
    them, since each device would compute its part of another value.

    They are the axes of manual computations for what is inside of them, also in called computations. What depends on
    the number of the device differs along all axes, in a program with manual computations along those of any of them.
    """
    assert module.mesh is not None
    mesh, found = module.mesh, dict[Instruction, frozenset[str]]()
    around: dict[Computation, frozenset[str]] = {}
    nowhere = frozenset[str]()
    entered = {i: frozenset(entered_axes(i, mesh)) for i in module.instructions() if _target(i) in ENTER_MANUAL}
    if not entered and all(i.opcode != "partition-id" for i in module.instructions()):
        return found
    by_number = nowhere.union(*entered.values()) if entered else frozenset(mesh.axis_names)
    for computation in reversed(module.computations):
        for i in computation:
            own = around.get(computation, nowhere) if i.opcode == "parameter" else nowhere
            if i.opcode == "partition-id":
                own = by_number
            axes = own.union(*(found.get(o, nowhere) for o in i.operands), entered.get(i, nowhere), manual_of(i))
            if _target(i) in LEAVE_MANUAL:
                axes = axes.difference(*(left_axes(i, n, mesh) for n in range(len(i.operands))))
            if not axes or (i.opcode == "collective-broadcast" and not entered):
                continue
            found[i] = axes
            for _, callee in called_computations(i):
                around[callee] = around.get(callee, nowhere) | axes
    return found


def _target(i: Instruction) -> str:
    return str(i.attrs.get("custom_call_target", ""))
