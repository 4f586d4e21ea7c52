"""Expand ops that have no code of their own: the table in `expansions` writes them as programs of simpler ops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shardc.compiler.lower.expand.ops import EXPANSIONS
from shardc.hlo.ir.ir import Computation, Instruction, Module, Rebuilt, rebuild_computation
from shardc.hlo.ir.make import inline, keep_reachable
from shardc.hlo.transforms.expand_batch_norm import expand_batch_norm

__all__ = ["ExpandOps", "expansion_of"]


def expansion_of(opcode: str, *, batch_norm: bool = False) -> Callable[[Instruction], Computation] | None:
    """What writes an op as simpler ones; None for ops that stay. ``batch_norm`` as in `ExpandOps`."""
    if batch_norm and opcode.startswith("batch-norm-"):
        return expand_batch_norm
    return EXPANSIONS.get(opcode)


@dataclass(frozen=True, slots=True)
class ExpandOps:
    """Ragged and scaled products, scans, random numbers, stochastic rounding, run-time sizes become simpler ops.

    So does batch normalisation where its sums are kernels of their own (``batch_norm``), as on GPUs; kernels for
    processors sum and normalise in one.
    """

    batch_norm: bool = False
    name: str = "expand-ops"
    why: str = "one form is enough for every target"

    def run(self, module: Module) -> Module:
        new = Rebuilt()
        kept: dict[Instruction, list[Instruction]] = {}

        def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
            expand = expansion_of(old.opcode, batch_norm=self.batch_norm)
            if expand is None:
                return None
            attrs = {k: new.get(v, v) if isinstance(v, Computation) else v for k, v in old.attrs.items()}
            return inline(expand(old.replace(attrs=attrs)), operands, kept.setdefault(old, []))

        for c in module.computations:
            new[c] = rebuild_computation(c, change, new, inlined=kept)
        return keep_reachable(module, new[module.entry])
