"""Custom calls that say something about shardings instead of computing: what each one says."""

from __future__ import annotations

from shardc.hlo.errors import AnnotationError
from shardc.hlo.ir.custom_calls import (
    DATA_FLOW_EDGE,
    FUNCTION_EDGE,
    GLOBAL_TO_LOCAL,
    LOCAL_TO_GLOBAL,
    MANUAL_AXES,
    PROPAGATION_BARRIER,
    RESHARD,
    SHARDING_GROUP,
)
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.mesh import Mesh
from shardc.sharding.rules.factor_rule import Direction

__all__ = [
    "barrier_direction",
    "enters_manual",
    "group_number",
    "is_edge",
    "is_function_edge",
    "is_reshard",
    "is_spent",
    "leaves_manual",
    "manual_axes",
    "manual_axes_of",
]


def is_reshard(i: Instruction) -> bool:
    """The value lies like this from here on; nothing spreads through."""
    return _target(i) == RESHARD


def is_edge(i: Instruction) -> bool:
    """Another name for the value of a loop, branch, call or manual computation, with that value's sharding."""
    return _target(i) == DATA_FLOW_EDGE


def is_function_edge(i: Instruction) -> bool:
    """What reads a function's argument, or a call's result: here values flow from the calls, or out of the function."""
    return _target(i) == FUNCTION_EDGE


def enters_manual(i: Instruction) -> bool:
    """The operand, which is a constraint, cut into what each position along the manual axes has."""
    return _target(i) == GLOBAL_TO_LOCAL


def leaves_manual(i: Instruction) -> bool:
    """What the positions along the manual axes have, put together; the call's own sharding is that of the whole."""
    return _target(i) == LOCAL_TO_GLOBAL


def manual_axes(i: Instruction) -> tuple[str, ...]:
    """The axes that a manual computation handles itself, of a call at its border."""
    return tuple(a for a in _frontend(i, MANUAL_AXES).split(",") if a)


def manual_axes_of(i: Instruction, mesh: Mesh) -> tuple[str, ...]:
    """`manual_axes`, which are axes of ``mesh``; `AnnotationError` if they are not."""
    axes = manual_axes(i)
    unknown = next((a for a in axes if a not in mesh.axis_names), None)
    if unknown is not None:
        raise AnnotationError(
            f"manual axis {unknown!r} is not an axis of the mesh [{mesh}]",
            where=_where(i),
            fix="define its mesh in the text (xla.sdy.meshes in the header), or give --mesh",
        )
    return axes


def barrier_direction(i: Instruction) -> Direction | None:
    """Where shardings may pass a propagation barrier; None for other instructions."""
    if _target(i) != PROPAGATION_BARRIER:
        return None
    name = _frontend(i, "xla.sdy.allowed_direction")
    if name not in Direction.__members__:
        raise AnnotationError(
            f"a propagation barrier allows NONE, FORWARD, BACKWARD or BOTH, not {name or 'nothing'}", where=_where(i)
        )
    return Direction[name]


def group_number(i: Instruction) -> str:
    """The group that the operand is a member of; empty for other instructions."""
    return _frontend(i, "xla.sdy.sharding_group_id") if _target(i) == SHARDING_GROUP else ""


def is_spent(i: Instruction) -> bool:
    """Says nothing any more, once shardings are decided, but how its value lies."""
    return _target(i) in (DATA_FLOW_EDGE, FUNCTION_EDGE, PROPAGATION_BARRIER, RESHARD, SHARDING_GROUP)


def _target(i: Instruction) -> str:
    return str(i.attrs.get("custom_call_target", "")) if i.opcode == "custom-call" else ""


def _frontend(i: Instruction, name: str) -> str:
    return str(dict(i.attrs.get("frontend_attributes", ())).get(name, ""))


def _where(i: Instruction) -> str:
    return f"%{i.name}" + (f" ({i.source})" if i.source else "")
