"""A computation that is called from several places gets a copy per place, before propagation.

Each may then be laid out as its own surroundings want. `shardc.sharding.propagation.finish` joins the copies that came
out equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shardc.hlo.ir.ir import Computation, Instruction, Module, flow_computations, map_callees

__all__ = ["Copies", "SplitCalls", "split_calls"]

#: Copy to original, for instructions and computations.
Copies = dict[Any, Any]


@dataclass(frozen=True, slots=True)
class SplitCalls:
    """`split_calls` as a pass, without a record of what is a copy of what."""

    name: str = "split-calls"
    why: str = "a computation called from several places may have another layout in each"

    def run(self, module: Module) -> Module:
        copies: Copies = {}
        after = split_calls(module, copies)
        return after if copies else module


def split_calls(module: Module, copies: Copies, others: Sequence[Computation] = ()) -> Module:
    """Give every call site of a computation its own copy, callees of callees included; ``others`` are functions
    besides the entry, the last of which goes first."""
    seen: set[Computation] = set()
    made: list[Computation] = []

    def own(c: Computation) -> Computation:
        """``c`` itself at its first call site, else a copy; either with callees of its own."""
        again = c in seen
        seen.add(c)
        changed = _map(c, own, force=again)
        if changed is not c:
            copies[changed] = copies.get(c, c)
            for old, new in zip(c, changed, strict=True):
                copies[new] = copies.get(old, old)
        made.append(changed)
        return changed

    public = [own(c) for c in reversed(others)][::-1]
    entry = own(module.entry)
    made = [*(c for c in made if c not in public), *public]
    flow = set(made) | seen
    rest = [c for c in module.computations if c not in flow]
    return module.with_(computations=(*rest, *made), entry=entry)


def _map(c: Computation, own: Any, *, force: bool) -> Computation:
    new: dict[Instruction, Instruction] = {}
    changed = False
    for i in c:
        operands = tuple(new[o] for o in i.operands)
        attrs = map_callees(i.attrs, own) if flow_computations(i) else i.attrs
        if force or attrs is not i.attrs or any(a is not b for a, b in zip(operands, i.operands, strict=True)):
            new[i] = i.replace(operands=operands, attrs=attrs)
            changed = True
        else:
            new[i] = i
    return Computation(c.name, new.values(), new[c.root]) if changed else c
