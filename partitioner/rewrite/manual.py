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


def left_axes(op: Instruction, operand: Instruction, outer: Sharding, mesh: Mesh) -> tuple[str, ...]:
    """The axes that are manual for ``operand``, and not behind ``op``, a call that leaves a manual computation with it.
    The value behind it has the sharding ``outer``."""
    return manual_axes(op) or tuple(a for a in manual_of(operand) if a not in outer.manual) or mesh.axis_names


def find_differing_axes(module: Module) -> Mapping[Instruction, frozenset[str]]:
    """The axes along which each device has another value, by instruction. No operation on such a value can be split
    over them: each device would compute a part of another value.

    Inside a manual computation, and in computations called there, they are its manual axes. A value that depends on the
    number of the device differs along all manual axes of the program, or along all axes where there are none.
    """
    assert module.mesh is not None
    mesh, found = module.mesh, dict[Instruction, frozenset[str]]()
    around: dict[Computation, frozenset[str]] = {}
    nowhere, target = frozenset[str](), "custom_call_target"
    entered = {
        i: frozenset(entered_axes(i, mesh)) for i in module.instructions() if i.attrs.get(target) in ENTER_MANUAL
    }
    if not entered and all(i.opcode != "partition-id" for i in module.instructions()):
        return found
    by_number = nowhere.union(*entered.values()) if entered else frozenset(mesh.axis_names)
    for computation in reversed(module.computations):
        for i in computation:
            own = around.get(computation, nowhere) if i.opcode == "parameter" else nowhere
            if i.opcode == "partition-id":
                own = by_number
            axes = own.union(*(found.get(o, nowhere) for o in i.operands), entered.get(i, nowhere), manual_of(i))
            if i.attrs.get(target) in LEAVE_MANUAL:
                crossing = zip(i.operands, i.leaf_shardings(), strict=True)
                axes = axes.difference(*(left_axes(i, o, outer, mesh) for o, outer in crossing))
            if not axes or (i.opcode == "collective-broadcast" and not entered):
                continue
            found[i] = axes
            for _, callee in called_computations(i):
                around[callee] = around.get(callee, nowhere) | axes
    return found
