"""A failing program made small: cuts that keep the failure, until none does.

`minimise` is greedy: later values become the result, values become parameters or constants, operations become one of
their operands, axes leave shardings and the mesh. What is left is text that `read_case` reads again, ready to be a
file in ``regressions/``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from shardc.hlo.errors import ShardcError
from shardc.hlo.ir.build import make_instruction, make_module
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import DimSharding, Sharding
from shardc.hlo.text.printer import print_module
from shardc.hlo.text.reader import read_hlo
from shardc.hlo.verify import verify

__all__ = ["case_text", "minimise", "read_case"]

#: What an instruction becomes, given its new operands; None keeps it.
Change = Callable[[Instruction, tuple[Instruction, ...]], Instruction | None]
Cut = Callable[[Module], Module | None]


def minimise(module: Module, fails: Callable[[Module], bool], seconds: float = 60) -> Module:
    """A smaller module for which ``fails`` still holds; ``module`` itself when no cut keeps the failure."""
    end = time.monotonic() + seconds
    changed = True
    while changed and time.monotonic() < end:
        changed = False
        for cuts in (_roots, _parameters, _operands, _zeros, _axes, _meshes):
            at = 0
            while time.monotonic() < end:
                cut = next((c for k, c in enumerate(cuts(module)) if k == at), None)
                if cut is None:
                    break
                smaller = _tried(cut, module)
                if smaller is not None and fails(smaller):
                    module, changed = smaller, True
                else:
                    at += 1
    return module


def case_text(module: Module) -> str:
    """HLO text with the mesh and every sharding."""
    return print_module(module, named_shardings=True)


def read_case(text: str, name: str = "case") -> Module:
    """The propagated module that `case_text` printed."""
    module = read_hlo(text, name)
    mesh = next(s.mesh for i in _all(module) for s in i.leaf_shardings())
    return module.with_(mesh=mesh)


def _tried(cut: Cut, module: Module) -> Module | None:
    try:
        smaller = cut(module)
        if smaller is not None:
            verify(smaller)
        return smaller
    except (ShardcError, ValueError, TypeError, KeyError, AssertionError):
        return None


def _roots(module: Module) -> Iterator[Cut]:
    for i in module.entry:
        if i is not module.entry.root and i.shape.is_array:
            yield lambda m, i=i: _rewritten(m, _keep, root=i)


def _parameters(module: Module) -> Iterator[Cut]:
    for i in module.entry:
        if i.opcode not in ("parameter", "constant") and i.shape.is_array:
            fields = {"index": 0, "sharding": i.sharding, "name": f"cut_{i.name}"}
            new = make_instruction("parameter", shape=i.shape, **fields)
            yield lambda m, i=i, new=new: _rewritten(m, lambda old, _: new if old is i else None)


def _operands(module: Module) -> Iterator[Cut]:
    for i in _all(module):
        for k, operand in enumerate(i.operands):
            if operand.shape == i.shape:
                yield lambda m, i=i, k=k: _rewritten(m, lambda old, new: new[k] if old is i else None)


def _zeros(module: Module) -> Iterator[Cut]:
    for i in _all(module):
        if i.opcode not in ("parameter", "constant") and i.shape.is_array and i.operands:
            zero = make_instruction("constant", literal=Literal.full(i.shape.plain, 0), shape=i.shape.plain)
            zero.sharding = i.sharding
            yield lambda m, i=i, zero=zero: _rewritten(m, lambda old, _: zero if old is i else None)


def _axes(module: Module) -> Iterator[Cut]:
    """One axis of one dimension less, or nothing partial any more."""
    for i in _all(module):
        leaves = i.sharding if isinstance(i.sharding, tuple) else (i.sharding,)
        for k, s in enumerate(leaves):
            for less in _with_less(s) if isinstance(s, Sharding) else ():
                whole = (*leaves[:k], less, *leaves[k + 1 :])
                new = whole if isinstance(i.sharding, tuple) else less
                yield lambda m, i=i, new=new: _rewritten(m, _with_sharding(i, new))


def _with_less(s: Sharding) -> Iterator[Sharding]:
    if s.unreduced:
        yield replace(s, unreduced=(), reduction="sum")
    for d, part in enumerate(s.dims):
        for k in range(len(part.axes)):
            axes = part.axes[:k] + part.axes[k + 1 :]
            yield replace(s, dims=(*s.dims[:d], replace(part, axes=axes), *s.dims[d + 1 :]))


def _with_sharding(target: Instruction, sharding: Any) -> Change:
    def change(old: Instruction, new: tuple[Instruction, ...]) -> Instruction | None:
        return _again(old, new, sharding) if old is target else None

    return change


def _meshes(module: Module) -> Iterator[Cut]:
    """One axis of the mesh less, devices in order."""
    mesh = module.mesh
    assert mesh is not None
    smaller = [{n: k for n, k in mesh.axes if n != name} for name, _ in mesh.axes]
    for axes in [dict(mesh.axes)] * (mesh != Mesh(dict(mesh.axes))) + [a for a in smaller if a]:
        yield lambda m, axes=axes: _over(m, Mesh(axes))


def _over(module: Module, mesh: Mesh) -> Module:
    names = set(mesh.axis_names)

    def moved(s: Any) -> Any:
        if isinstance(s, tuple):
            return tuple(map(moved, s))
        if not isinstance(s, Sharding):
            return s
        dims = tuple(DimSharding(tuple(a for a in d.axes if a.name in names)) for d in s.dims)
        unreduced = tuple(a for a in s.unreduced if a.name in names)
        return Sharding(mesh, dims, (), unreduced, s.reduction if unreduced else "sum")

    changed = _rewritten(module, lambda old, new: _again(old, new, moved(old.sharding)))
    return make_module(module.name, changed.entry, mesh=mesh)


def _all(module: Module) -> list[Instruction]:
    """Instructions of the entry and of what it runs, as far as they have shardings."""
    return [i for i in module.instructions() if i.sharding is not None]


def _keep(old: Instruction, new: tuple[Instruction, ...]) -> Instruction | None:
    return None


def _again(old: Instruction, operands: tuple[Instruction, ...], sharding: Any) -> Instruction:
    return old.replace(operands=operands, sharding=sharding)


def _rewritten(module: Module, change: Change, root: Instruction | None = None) -> Module:
    """Every computation that runs, changed, without dead code; ``root`` is the entry's new result."""
    assert module.mesh is not None
    entry = _computation(module.entry, change, root, {}, is_entry=True)
    return make_module(module.name, entry, mesh=module.mesh)


def _computation(
    c: Computation,
    change: Change,
    root: Instruction | None,
    done: dict[Computation, Computation],
    *,
    is_entry: bool = False,
) -> Computation:
    if c in done:
        return done[c]
    new: dict[Instruction, Instruction] = {}
    for i in c:
        attrs = dict(i.attrs)
        if i.opcode in ("call", "while", "conditional"):
            for role, value in i.attrs.items():
                if isinstance(value, Computation):
                    attrs[role] = _computation(value, change, None, done)
                elif isinstance(value, tuple) and value and isinstance(value[0], Computation):
                    attrs[role] = tuple(_computation(v, change, None, done) for v in value)
        operands = tuple(new[o] for o in i.operands)
        made = change(i, operands)
        same = made is None or made.attrs is i.attrs
        new[i] = (made or i).replace(operands=operands, attrs=attrs) if same else made
    done[c] = Computation(c.name, *_alive(new[root or c.root], list(new.values()), is_entry))
    return done[c]


def _alive(root: Instruction, order: list[Instruction], is_entry: bool) -> tuple[list[Instruction], Instruction]:
    """What ``root`` reads, in order; an entry's parameters are numbered anew, others' all stay."""
    needed = {root}
    for i in reversed(order):
        if i in needed:
            needed.update(i.operands)
    new: dict[Instruction, Instruction] = {}
    index = 0
    for i in order:
        if i in new or not (i in needed or (i.opcode == "parameter" and not is_entry)):
            continue
        attrs = dict(i.attrs)
        if i.opcode == "parameter" and is_entry:
            attrs["index"] = index
            index += 1
        new[i] = i.replace(operands=tuple(new[o] for o in i.operands), attrs=attrs)
    return list(new.values()), new[root]
