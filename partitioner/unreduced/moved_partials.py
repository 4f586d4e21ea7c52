"""Which partial values were only moved: one member of a group holds each element, the others hold zero bits.

Where such a value is put together, bits are added as integers. As floats, zero and -0.0 would be 0.0, and a signalling
NaN would become a quiet one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardc.hlo.ir.infer.control import branches_of
from shardc.hlo.ir.ir import Instruction
from shardc.partitioner.emit.layout import AxisLayout
from shardc.partitioner.strategy.rule import PartitionRow
from shardc.partitioner.strategy.values import GlobalValue, Tree, leaves
from shardc.sharding.rules.factor_rule import FactorKind

__all__ = ["is_moved", "is_result_moved"]

#: Masked readings of a split operand: what they add up are elements and zeros.
_PICKS = frozenset({"dynamic-slice", "gather", "slice"})
#: Operations that take elements of partial operands as they are.
_MOVES = _PICKS | frozenset(
    {
        *("bitcast", "bitcast-convert", "broadcast", "complex", "concatenate", "copy", "custom-call"),
        *("dynamic-update-slice", "imag", "pad", "real", "reshape", "reverse", "select", "transpose"),
    }
)
#: Never partial.
_WHOLE = frozenset({"constant", "iota"})


def is_moved(op: Instruction, operands: Sequence[GlobalValue], used: Sequence[AxisLayout], *, reducing: bool) -> bool:
    """Whether a partial result of ``op`` on ``operands`` in the layouts ``used`` is one that was only moved.

    ``reducing``: split dimensions are summed over.
    """
    if op.opcode not in _MOVES or (reducing and op.opcode not in _PICKS):
        return False
    return all(v.moved or not (v.layout.unreduced and x.unreduced) for v, x in zip(operands, used, strict=True))


def is_result_moved(
    rules: Mapping[str, PartitionRow], made: Mapping[Instruction, Tree], op: Instruction, index: int | None
) -> bool:
    """Whether element ``index`` (None: the array) of a loop's or conditional's result, if partial, would be only moved.

    ``made`` are the values that exist already.
    """
    return _MovedSearch(rules, made).element(op, index)


class _MovedSearch:
    """Looks behind a value for anything that adds up, into loops and branches and out to values that are made already.

    What was asked for before holds while it is looked into: a state that is handed on adds nothing.
    """

    def __init__(self, rules: Mapping[str, PartitionRow], made: Mapping[Instruction, Tree]) -> None:
        self.rules = rules
        self.made = made
        self.seen: dict[tuple[Instruction, int | None], bool] = {}
        self.given: dict[Instruction, tuple[Instruction, ...]] = {}

    def element(self, i: Instruction, index: int | None) -> bool:
        """Whether the value (an element of a tuple) is whole, or only moved."""
        if (i, index) not in self.seen:
            self.seen[i, index] = True
            self.seen[i, index] = self._is_made_so(i, index) if i in self.made else self._element(i, index)
        return self.seen[i, index]

    def _is_made_so(self, i: Instruction, index: int | None) -> bool:
        tree = self.made[i]
        values = leaves(tree if isinstance(tree, GlobalValue) or index is None else tree[index])
        return all(v.moved or not v.layout.unreduced for v in values)

    def _element(self, i: Instruction, index: int | None) -> bool:
        if i.opcode == "parameter":
            return i in self.given and all(self.element(x, index) for x in self.given[i])
        if i.opcode == "get-tuple-element" and index is None:
            return self.element(i.operands[0], i.attrs["index"])
        if i.opcode == "tuple" and index is not None:
            return self.element(i.operands[index], None)
        if i.opcode == "while":
            start, run = i.operands[0], i.attrs["body"]
            self.given[run.parameters[0]] = (start, run.root)
            return self.element(start, index) and self.element(run.root, index)
        if i.opcode == "conditional":
            branches = branches_of(i.attrs)
            self.given |= {c.parameters[0]: (x,) for c, x in zip(branches, i.operands[1:], strict=True)}
            return all(self.element(c.root, index) for c in branches)
        return index is None and self._array(i)

    def _array(self, i: Instruction) -> bool:
        strategies = self.rules[i.opcode].strategies
        partial = {n for strategy in strategies for group in strategy.linear(i, "sum") for n in group}
        if i.opcode in _MOVES:
            return all(self.element(o, None) for n, o in enumerate(i.operands) if not strategies or n in partial)
        found = (strategy.rule(i) for strategy in strategies)
        adds = any(rule is not None and rule.of_kind(FactorKind.REDUCTION) for rule in found)
        return not adds and all(i.operands[n].opcode in _WHOLE for n in partial)
