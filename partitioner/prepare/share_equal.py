"""Equal expressions become one value before anybody decides where values lie."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.hlo.ir.ir import Computation, Instruction, Module, called_computations, rebuild_computation
from shardc.hlo.ir.make import make, map_computations
from shardc.hlo.ir.opset import OPS
from shardc.hlo.simplify.eliminate_common import has_equals
from shardc.hlo.transforms.structure import Structure
from shardc.partitioner.rewrite.manual import is_manual, manual_of
from shardc.partitioner.rules import RULES
from shardc.partitioner.strategy.values import REDUCIBLE_LATER

__all__ = ["ShareEqual"]

#: What gives elements of the operands as they are, or numbers that depend on nothing.
_MOVES = frozenset(
    {
        *("bitcast", "broadcast", "concatenate", "dynamic-slice", "dynamic-update-slice", "gather", "pad", "reshape"),
        *("reverse", "slice", "transpose", "tuple", "get-tuple-element"),
        *("constant", "iota", "parameter", "partition-id", "replica-id"),
    }
)
#: What may have another order where it lies otherwise, whatever the type.
_ORDERED = frozenset({"sort", "topk"})


@dataclass(frozen=True, slots=True)
class ShareEqual:
    """What adds up floats, and what may be computed before that is done, stands once for equal operands.

    In two layouts a sum is added up in two orders, and a program that compares an expression with what it picked from
    the same expression would not find it. The layout is that of the first. What has the same bits in all layouts
    (integers, one element of one element, movement) stays twice, each where its readers want it. Constraints are
    values of their own: different ones stay, on one value.
    """

    name: str = "share-equal"
    why: str = "equal expressions are computed once and keep the same bits in both places"

    def run(self, module: Module) -> Module:
        structure = Structure()
        return map_computations(module, lambda c: rebuild_computation(c, _Share(c, structure)))


class _Share:
    """The change for one computation. ``first`` is the first one of equal instructions, by what they say.

    ``same`` leads from an instruction to the first of its equals, ``rounded`` are those whose bits depend on where
    they lie.
    """

    def __init__(self, computation: Computation, structure: Structure) -> None:
        self.root = computation.root
        self.structure = structure
        self.first: dict[tuple[object, ...], Instruction] = {}
        self.same: dict[Instruction, Instruction] = {}
        self.rounded: set[Instruction] = set()

    def __call__(self, old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        new = old if operands is old.operands else old.replace(operands=operands)
        if self._is_rounded(old, operands):
            self.rounded.add(new)
        if not has_equals(old) or any(is_manual(i) for _, c in called_computations(old) for i in c):
            return new
        said = self.structure.attributes(old)
        key = (old.opcode, old.shape, tuple(self.same.get(o, o) for o in operands), said, manual_of(old))
        first = self.same[new] = self.first.setdefault(key, new)
        if first is new or new not in self.rounded:
            return new
        return self._as_root(old, first) if old is self.root else first

    def _as_root(self, old: Instruction, first: Instruction) -> Instruction:
        """The shared value with the sharding that the computation's result has."""
        if first.sharding == old.sharding:
            return first
        if old.shape.is_tuple:
            return old.replace(operands=first.operands)
        root = make("custom-call", old.shape, (first,), old, custom_call_target="Sharding")
        root.sharding = old.sharding
        return root

    def _is_rounded(self, op: Instruction, operands: tuple[Instruction, ...]) -> bool:
        if not any(s.dtype.is_float or s.dtype.is_complex for s in op.shape.leaves()):
            return op.opcode in _ORDERED
        if op.opcode not in _MOVES and OPS[op.opcode].family != "elementwise":
            return True
        return not self.rounded.isdisjoint(operands) and (op.shape.is_tuple or _carries_on(op))


def _carries_on(op: Instruction) -> bool:
    """Whether the operation may be done on partial values, which are added up behind it."""
    strategies = RULES[op.opcode].strategies
    return op.opcode in _MOVES or any(strategy.linear(op, r) for strategy in strategies for r in REDUCIBLE_LATER)
