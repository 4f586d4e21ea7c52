"""What the passes need to know of a collective that reduces."""

from __future__ import annotations

from shardc.hlo.ir.ir import Computation, Instruction, Origin

__all__ = ["again", "kind", "reducer"]


def reducer(i: Instruction) -> str:
    """The opcode that a plain all-reduce or reduce-scatter of one array reduces with; empty for anything else."""
    if i.opcode not in ("all-reduce", "reduce-scatter") or len(i.operands) != 1:
        return ""
    body: Computation = i.attrs["to_apply"]
    plain = len(body.instructions) == 3 and set(body.root.operands) == set(body.parameters)
    return body.root.opcode if plain and len(body.parameters) == 2 else ""


def kind(i: Instruction) -> object:
    """What two reductions must have in common to be one reduction of combined operands."""
    attrs = i.attrs
    return (i.opcode, reducer(i), attrs.get("replica_groups"), attrs.get("dimensions"), i.shape.dtype)


def again(i: Instruction, x: Instruction, note: str) -> Instruction:
    """The reduction ``i`` of another operand of the same shape; ``note`` tells why it is here now."""
    old = i.origin or Origin("")
    reason = "; ".join(r for r in (old.reason, note) if r)
    attrs = {k: v for k, v in i.attrs.items() if k != "channel_id"}
    return i.replace(operands=(x,), attrs=attrs, origin=Origin(reason, old.rule, old.value, old.axes, old.causes))
