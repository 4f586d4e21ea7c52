"""Products of a program: how many operations they are, at which peak, and which are computed a second time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from shardc.costs.kernels.trips import likely_trips
from shardc.costs.ops.table import products_of
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.simplify.rules.control import branches_of
from shardc.sharding.prepare.markers import enters_manual, leaves_manual, manual_axes

__all__ = ["ProductFlops", "model_products", "products_in"]

#: What JAX calls the part of a name stack in which a checkpoint's values are computed again.
_AGAIN = "rematted_computation"

#: Where an instruction keeps a computation that runs as a part of the program.
_CALLED = ("to_apply", "calls")


@dataclass(frozen=True, slots=True)
class ProductFlops:
    """Operations of one product, by the peak that holds for it; ``again`` if they are rematerialisation's."""

    rate: str
    flops: int
    again: bool


def products_in(i: Instruction) -> Iterator[ProductFlops]:
    """The products in a kernel: itself, or those that are fused in it."""
    for op in i.attrs["calls"] if i.opcode == "fusion" else (i,):
        again = op.metadata is not None and _AGAIN in op.metadata.op_name
        for product in products_of(op):
            if op.opcode == "dot" and product.k == 1:
                continue  # It adds nothing up: a device computes it as an elementwise multiplication.
            yield ProductFlops(product.rate, product.flops, again)


def model_products(module: Module) -> Mapping[str, int]:
    """Operations of all devices by peak, for a whole program with shardings, without what is computed again.

    Loops count as often as they run (once, if nobody knows), of branches the one with most. Inside manual computations
    shapes are a device's: they count once per device of the manual axes.
    """
    return _Count(module).of(module.entry)


_Axes = frozenset[str]


class _Count:
    def __init__(self, module: Module) -> None:
        self._sizes = dict(module.mesh.axes) if module.mesh is not None else {}
        self._known: dict[tuple[Computation, _Axes], Mapping[str, int]] = {}

    def of(self, computation: Computation, manual: _Axes = frozenset()) -> Mapping[str, int]:
        """Of a computation whose arguments are a device's along the ``manual`` axes."""
        found = self._known.get((computation, manual))
        if found is None:
            total: Counter[str] = Counter()
            axes: dict[Instruction, _Axes] = {}
            for i in computation:
                axes[i] = _manual(i, manual, axes)
                total.update(self._instruction(i, axes[i]))
            found = self._known[computation, manual] = total
        return found

    def _instruction(self, i: Instruction, manual: _Axes) -> Mapping[str, int]:
        if i.opcode == "while":
            trips = likely_trips(i)
            return {rate: trips * n for rate, n in self.of(i.attrs["body"], manual).items()}
        if i.opcode == "conditional":
            return max((self.of(c, manual) for c in branches_of(i)), key=lambda found: sum(found.values()))
        if i.opcode in ("call", "fusion", "async-start"):
            return self.of(next(i.attrs[k] for k in _CALLED if k in i.attrs), manual)
        copies = math.prod(self._sizes.get(axis, 1) for axis in manual)
        total: Counter[str] = Counter()
        for done in products_in(i):
            if not done.again:
                total[done.rate] += done.flops * copies
        return total


def _manual(i: Instruction, given: _Axes, axes: Mapping[Instruction, _Axes]) -> _Axes:
    """The axes along which the value of ``i`` is a device's own."""
    if i.opcode == "parameter":
        return given
    found = frozenset().union(*(axes[o] for o in i.operands))
    if enters_manual(i):
        return found.union(manual_axes(i))
    return found.difference(manual_axes(i)) if leaves_manual(i) else found
