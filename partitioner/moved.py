"""Which partial values were only moved: one member of a group holds each element, the others hold zero bits.

Where such a value is put together, bits are added as integers. As floats, zero and -0.0 would be 0.0, and a signalling
NaN would become a quiet one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from shardc.hlo.infer.control import branches_of
from shardc.hlo.ir import Instruction

if TYPE_CHECKING:
    from shardc.partitioner.layout import Layout
    from shardc.partitioner.rules.rule import Row
    from shardc.partitioner.values import Value

__all__ = ["gives_moved", "result_moved"]

#: Masked readings of a split operand: what they add up are elements and zeros.
_PICKS = frozenset({"dynamic-slice", "gather", "slice"})
#: Operations that take elements of partial operands as they are.
_MOVES = _PICKS | frozenset(
    {
        *("bitcast", "bitcast-convert", "broadcast", "complex", "concatenate", "copy", "custom-call"),
        *("dynamic-update-slice", "imag", "pad", "real", "reshape", "reverse", "select", "transpose"),
    }
)


def gives_moved(op: Instruction, operands: Sequence[Value], used: Sequence[Layout], *, reducing: bool) -> bool:
    """Is a partial result of ``op`` on ``operands`` in the layouts ``used`` one that was only moved?

    ``reducing``: split dimensions are summed over.
    """
    if op.opcode not in _MOVES or (reducing and op.opcode not in _PICKS):
        return False
    return all(v.moved or not (v.layout.unreduced and x.unreduced) for v, x in zip(operands, used, strict=True))


def result_moved(rules: Mapping[str, Row], op: Instruction, index: int | None) -> bool:
    """Would element ``index`` (None: the array) of a loop's or conditional's result, if partial, be only moved?"""
    return _Search(rules, op).result(op, index)


class _Search:
    """Looks behind a value for anything that adds up; what was asked for before holds while it is looked into."""

    def __init__(self, rules: Mapping[str, Row], op: Instruction) -> None:
        self.rules = rules
        self.seen: dict[tuple[Instruction, object], bool] = {}
        self.loops: dict[Instruction, Instruction] = {}

    def result(self, op: Instruction, index: int | None) -> bool:
        known = self.seen.get((op, index))
        if known is not None:
            return known
        self.seen[op, index] = True
        if op.opcode == "conditional":
            ends = [c.root for c in branches_of(op.attrs)]
            found = all(self.fine(_element(e, index)) for e in ends)
        elif op.opcode == "while":
            body = op.attrs["body"]
            self.loops[body.parameters[0]] = op
            found = self.fine(_element(op.operands[0], index)) and self.fine(_element(body.root, index))
        else:
            found = False
        self.seen[op, index] = found
        return found

    def fine(self, i: Instruction | None) -> bool:
        """Is the value whole, or only moved?"""
        if i is None:
            return False
        key = (i, "fine")
        if key not in self.seen:
            self.seen[key] = True
            self.seen[key] = self._fine(i)
        return self.seen[key]

    def _fine(self, i: Instruction) -> bool:
        if i.opcode == "get-tuple-element":
            source, index = i.operands[0], i.attrs["index"]
            loop = self.loops.get(source)
            if loop is not None:
                return self.result(loop, index)
            return source.opcode == "parameter" or self.result(source, index)
        if i.opcode in ("while", "conditional"):
            return self.result(i, None)
        if i.opcode in _MOVES:
            return all(map(self.fine, i.operands))
        ways = getattr(self.rules[i.opcode], "ways", ())
        reducing = any(rule is not None and rule.reduction for rule in (way.rule(i) for way in ways))
        linear = any(way.linear(i, "sum") for way in ways)
        return not reducing and not (linear and any(map(_may_be_partial, i.operands)))


def _may_be_partial(i: Instruction) -> bool:
    return i.opcode not in ("constant", "iota", "parameter")


def _element(i: Instruction, index: int | None) -> Instruction | None:
    """An element of a tuple, where it was put together."""
    if index is None:
        return i
    return i.operands[index] if i.opcode == "tuple" else None
