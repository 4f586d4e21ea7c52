"""A product of flattened arrays contracts the dimensions that were flattened: none of them has to be made whole.

``vdot(a, b)`` flattens both sides; a split minor dimension does not survive that, but the sum does not mind.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from shardc.hlo.ir.ir import Instruction, Module, rebuild_module
from shardc.hlo.ir.sharding import Sharding

__all__ = ["ContractUnflattened", "loses_axes", "merge_runs"]

#: Per dimension of a reshape's result, the dimensions of its operand that it merges.
_Runs = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class ContractUnflattened:
    """Dots whose operands are reshapes that merge split dimensions into contracted ones, equally on both sides; any
    dimensions where layouts are ``free``, still to be chosen."""

    free: bool = False
    name: str = "contract-unflattened"
    why: str = "a product of flattened arrays need not gather the split dimensions that it contracts"

    def run(self, module: Module) -> Module:
        return rebuild_module(module, partial(_unflatten, free=self.free), {"dot"})


def _unflatten(old: Instruction, operands: tuple[Instruction, ...], *, free: bool) -> Instruction | None:
    if any(o.opcode != "reshape" for o in operands):
        return None
    attrs = dict(old.attrs)
    sizes = []
    for side, reshaped in zip(("lhs", "rhs"), operands, strict=True):
        contracting: tuple[int, ...] = old.attrs.get(f"{side}_contracting_dims") or ()
        runs = merge_runs(reshaped.operands[0].shape.dims, reshaped.shape.dims)
        if runs is None or any(len(r) != 1 for d, r in enumerate(runs) if d not in contracting):
            return None
        inner = tuple(d for c in contracting for d in runs[c])
        sizes.append([[reshaped.operands[0].shape.dims[d] for d in runs[c]] for c in contracting])
        attrs[f"{side}_contracting_dims"] = inner
        if batch := old.attrs.get(f"{side}_batch_dims"):
            attrs[f"{side}_batch_dims"] = tuple(runs[d][0] for d in batch)
    if sizes[0] != sizes[1] or not (free or any(loses_axes(o) for o in operands)):
        return None
    return old.replace(operands=tuple(o.operands[0] for o in operands), attrs=attrs)


def merge_runs(before: tuple[int, ...], after: tuple[int, ...]) -> _Runs | None:
    """The runs of a reshape that only merges dimensions; None for any other, and for empty arrays."""
    runs: list[tuple[int, ...]] = []
    next_up = 0
    for n in after:
        size = 1
        run: list[int] = []
        while next_up < len(before) and (size < n or not run):
            size *= before[next_up]
            run.append(next_up)
            next_up += 1
        if size != n or not run:
            return None
        runs.append(tuple(run))
    return tuple(runs) if next_up == len(before) and 0 not in before else None


def loses_axes(reshape: Instruction) -> bool:
    """Whether the operand is split over axes that the flattened array is not split over."""
    before, after = reshape.operands[0].sharding, reshape.sharding
    if not isinstance(before, Sharding) or not isinstance(after, Sharding):
        return False
    return bool({a for d in before.dims for a in d.axes} - {a for d in after.dims for a in d.axes})
