"""Results in host memory: the calls that put them there, where nothing else does."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.hlo.ir.build import reachable_computations
from shardc.hlo.ir.host_memory.memory_kinds import PINNED_HOST, annotate
from shardc.hlo.ir.ir import Computation, Module
from shardc.hlo.transforms.host_values import HostValues

__all__ = ["put_results_on_host"]


def put_results_on_host(module: Module, wanted: Sequence[bool]) -> Module:
    """``module`` with the ``wanted`` leaves of its result in host memory; itself where they are there already.

    The result is an array or a flat tuple. Example: ``put_results_on_host(module, (True, False))`` of a program that
    returns ``tuple(a, b)`` makes it return ``tuple(MoveToHost(a), b)``.
    """
    root = module.entry.root
    there = HostValues(module).of(root)
    parts = root.operands if root.opcode == "tuple" else (root,)
    if len(parts) != len(wanted) or all(has or not asked for asked, has in zip(wanted, there, strict=True)):
        return module
    put = [
        annotate(p, PINNED_HOST) if asked and not has else p for p, asked, has in zip(parts, wanted, there, strict=True)
    ]
    calls = [p for p, before in zip(put, parts, strict=True) if p is not before]
    if root.opcode == "tuple":
        last = root.replace(operands=put)
        entry = Computation(module.entry.name, [*(i for i in module.entry if i is not root), *calls, last], last)
    else:
        entry = Computation(module.entry.name, [*module.entry, *calls], calls[0])
    return module.with_(computations=reachable_computations(entry), entry=entry)
