"""Fold constants: small values that depend on nothing are computed now, by the evaluator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_module
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import constant, keep_reachable
from shardc.hlo.ir.opset import OPS

__all__ = ["FoldConstants"]

_FAMILIES = frozenset({"elementwise", "shape"})

#: Never computed now: they are the small form of a value already, or have no value of their own.
_KEPT = frozenset({"constant", "iota", "broadcast", "stochastic-convert", "copy"})


@dataclass(frozen=True, slots=True)
class FoldConstants:
    """Elementwise ops and data movement on constants, up to ``limit`` elements, become constants."""

    name: str = "fold-constants"
    why: str = "constants are computed once, when compiling"
    limit: int = 1024

    def run(self, module: Module) -> Module:
        def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
            if not self._folds(old, operands):
                return None
            from shardc.hlo.evaluate import evaluate_computation  # most programs have nothing to fold

            new = old.replace(operands=operands)
            value = evaluate_computation(Computation("folded", (*dict.fromkeys(operands), new), new), [])
            return constant(Literal(np.array(value)), old)

        after = rebuild_module(module, change)
        return keep_reachable(after, after.entry)

    def _folds(self, i: Instruction, operands: tuple[Instruction, ...]) -> bool:
        if OPS[i.opcode].family not in _FAMILIES or i.opcode in _KEPT or not i.shape.is_array:
            return False
        sizes = [i.shape.size, *(o.shape.size for o in operands)]
        known = all(o.opcode == "constant" and not o.attrs["literal"].is_left_out for o in operands)
        return bool(operands) and known and max(sizes) <= self.limit
