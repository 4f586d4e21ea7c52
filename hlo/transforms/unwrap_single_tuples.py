"""Tuples of one array become that array, and what computations return is a tuple that they put together.

XLA's way from HLO text to its compiler leads through StableHLO, where loops, branches, calls and barriers have lists of
results: a list of one is an array there, while the sharding stays that of a tuple, which it then refuses. A tuple that
is returned as an operation made it is copied there, which XLA's expansion of top-k does not expect of a reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardc.hlo.ir.ir import (
    Computation,
    Instruction,
    Module,
    called_computations,
    map_callees,
    rebuild_computation,
    rebuild_computations,
)
from shardc.hlo.ir.types import Shape

__all__ = ["UnwrapSingleTuples"]

#: What calls computations as programs, and what passes on its operand.
_CALLS = frozenset({"while", "conditional", "call"})
_OPENED = frozenset({*_CALLS, "optimization-barrier", "copy"})


@dataclass(frozen=True, slots=True)
class UnwrapSingleTuples:
    """No tuples of one element between computations; the entry keeps its parameters and results."""

    name: str = "unwrap-single-tuples"
    why: str = "XLA makes an array of a list of one result, whose sharding stays that of a tuple"

    def run(self, module: Module) -> Module:
        inner = {c for i in module.instructions() if i.opcode in _CALLS for _, c in called_computations(i)}

        def unwrap(c: Computation, called: Mapping[Computation, Computation]) -> Computation:
            if c not in inner and c is not module.entry:
                return rebuild_computation(c, None, called)
            return rebuild_computation(c, _Unwrapper(c, c is module.entry, called), called)

        return rebuild_computations(module, unwrap)


class _Unwrapper:
    """The change for one computation."""

    def __init__(self, computation: Computation, is_entry: bool, called: Mapping[Computation, Computation]) -> None:
        self.root = computation.root
        self.is_entry = is_entry
        self.called = called

    def __call__(self, old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        attrs = map_callees(old.attrs, lambda c: self.called.get(c, c))
        new = self._rewrite(old if attrs is old.attrs else old.replace(attrs=attrs), operands)
        if old is not self.root or not old.shape.is_tuple:
            return new
        if _is_single(old.shape):
            return _tuple(old, (new,)) if self.is_entry else new
        if new.opcode == "tuple" or old.opcode == "parameter":
            return new
        source = new.operands[0] if new.opcode == "copy" else new
        return _tuple(old, tuple(_element(source, k, old) for k in range(len(old.shape.elements))))

    def _rewrite(self, old: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
        """The new instruction: an array where the old one was a tuple of one."""
        single = _is_single(old.shape)
        if old.opcode == "get-tuple-element" and _is_single(old.operands[0].shape):
            return operands[0]
        if old.opcode == "tuple" and single:
            return operands[0]
        if single and (old.opcode in _OPENED or (old.opcode == "parameter" and not self.is_entry)):
            sharding = old.sharding[0] if isinstance(old.sharding, tuple) else old.sharding
            return old.replace(shape=old.shape.elements[0], operands=operands, sharding=sharding)
        if old.opcode not in _OPENED:
            operands = tuple(
                _tuple(was, (o,)) if _is_single(was.shape) else o for was, o in zip(old.operands, operands, strict=True)
            )
        same = all(a is b for a, b in zip(operands, old.operands, strict=True))
        new = old if same else old.replace(operands=operands)
        return _element(new, 0, old) if single else new


def _is_single(shape: Shape) -> bool:
    return shape.is_tuple and len(shape.elements) == 1


def _tuple(like: Instruction, parts: tuple[Instruction, ...]) -> Instruction:
    return Instruction("tuple", like.shape, parts, name=like.name, sharding=like.sharding, metadata=like.metadata)


def _element(x: Instruction, k: int, like: Instruction) -> Instruction:
    shape = x.shape.elements[k]
    return Instruction("get-tuple-element", shape, (x,), {"index": k}, name=like.name, metadata=like.metadata)
