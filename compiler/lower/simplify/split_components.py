"""Split components: what has a short dimension only on the way is computed component by component.

``d = x[None] - x[:, None]; r = (d * d).sum(-1)`` makes vectors of three elements for all pairs of points, which no
vector unit likes and memory has no room for. Written as three arrays of numbers, ``d`` is arithmetic on pairs, in the
kernels that read it; so is all that is made of it, up to sums over pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from shardc.compiler.lower.fuse.fusion_rules import is_elementwise
from shardc.hlo.ir.ir import Computation, Instruction, Module, rebuild_computation, users_of
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.make import broadcast_scalar, constant, make, map_computations, reshape, transpose
from shardc.hlo.ir.reducers import identity_of, reducer_opcode
from shardc.hlo.ir.types import Shape

__all__ = ["SplitComponents"]

#: Arrays of fewer bytes are in the nearest cache anyway.
_LEAST = 1 << 15
#: Most components, and most instructions that components come to: kernels hold about as many.
_MOST, _MOST_MADE = 16, 96
#: What is read or made whole around the components is smaller than they are by this.
_SMALLER = 8


@dataclass(frozen=True, slots=True)
class SplitComponents:
    """Arithmetic over a dimension of a few elements, from broadcasts to reductions, as an array for each of them."""

    name: str = "split-components"
    why: str = "an array with a short dimension that only its readers index need not be stored"
    looks_at: ClassVar[frozenset[str]] = frozenset({"reduce"})

    def run(self, module: Module) -> Module:
        return map_computations(module, _split_all)


def _split_all(computation: Computation) -> Computation:
    """Also what is put together of components, and taken apart again."""
    for _ in range(_MOST):
        before, computation = computation, _split(computation)
        if computation is before:
            break
    return computation


def _split(computation: Computation) -> Computation:
    users = users_of(computation)
    webs: dict[Instruction, _Web] = {}
    for i in computation:
        if i.opcode == "reduce" and i.shape.is_array and i not in webs:
            web = _web_of(i.operands[0], users, computation.root, webs)
            if web is not None:
                webs |= dict.fromkeys((*web.members, *web.exits), web)
    if not webs:
        return computation

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        web = webs.get(old)
        if web is None:
            return None
        if old in web.exits:
            return web.write_exit(old, operands)
        web.write_member(old, operands)
        return None

    return rebuild_computation(computation, change)


@dataclass(slots=True)
class _Web:
    """Values of the same dimensions, of which none is needed whole, along ``dim``; ``exits`` read them.

    ``parts`` has the components of members: one array where all are the same.
    """

    dims: tuple[int, ...]
    dim: int
    members: dict[Instruction, None]
    exits: dict[Instruction, None]
    parts: dict[Instruction, tuple[Instruction, ...]] = field(default_factory=dict)
    turned: dict[tuple[Instruction, int], Instruction] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return self.dims[self.dim]

    def component(self, member: Instruction, number: int) -> Instruction:
        found = self.parts[member]
        return found[number] if len(found) > 1 else found[0]

    def write_member(self, old: Instruction, operands: tuple[Instruction, ...]) -> None:
        """Note the components of a member."""
        shape = _without(old.shape, self.dim)
        if old.opcode == "broadcast":
            self.parts[old] = self._spread(old, operands[0], shape)
        elif old.opcode == "iota":
            self.parts[old] = self._counted(old, shape)
        elif old.opcode == "concatenate":
            self.parts[old] = tuple(reshape(o, shape.dims, old) for o in operands)
        else:
            inside = [o in self.members for o in old.operands]
            same = all(len(self.parts[o]) == 1 for o in old.operands if o in self.members)
            self.parts[old] = tuple(
                make(
                    old.opcode,
                    shape,
                    (
                        self.component(o, n) if own else new
                        for o, new, own in zip(old.operands, operands, inside, strict=True)
                    ),
                    old,
                    **old.attrs,
                )
                for n in range(1 if same else self.count)
            )

    def _spread(self, old: Instruction, x: Instruction, shape: Shape) -> tuple[Instruction, ...]:
        """A broadcast: of an array that lacks the dimension, or of rows of one that has it, laid out one by one."""
        along = old.attrs["dimensions"]
        kept = tuple(d - (d > self.dim) for d in along if d != self.dim)
        if self.dim not in along:
            return (x if x.shape.dims == shape.dims else make("broadcast", shape, (x,), old, dimensions=kept),)
        at = along.index(self.dim)
        turned = self.turned.get((x, at))
        if turned is None:
            order = (at, *(d for d in range(x.shape.rank) if d != at))
            turned = self.turned[x, at] = transpose(x, order, old)
        rest = turned.shape.dims[1:]
        rows = (
            make(
                "slice",
                turned.shape.with_dims((1, *rest)),
                (turned,),
                old,
                slice=((n, n + 1, 1), *((0, m, 1) for m in rest)),
            )
            for n in range(self.count)
        )
        return tuple(make("broadcast", shape, (reshape(r, rest, old),), old, dimensions=kept) for r in rows)

    def _counted(self, old: Instruction, shape: Shape) -> tuple[Instruction, ...]:
        along = old.attrs["iota_dimension"]
        if along != self.dim:
            return (make("iota", shape, (), old, iota_dimension=along - (along > self.dim)),)
        numbers = (constant(Literal(np.array(n, shape.dtype.numpy)), old) for n in range(self.count))
        return tuple(broadcast_scalar(n, shape.dims, old) for n in numbers)

    def write_exit(self, old: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
        """What is read of the components."""
        own = [self.component(old.operands[0], n) for n in range(self.count)]
        if old.opcode == "slice":
            taken = [own[n] for n in range(*old.attrs["slice"][self.dim])]
            return _joined(taken, old.shape, self.dim, old)
        over, init = old.attrs["dimensions"], operands[1]
        rest = tuple(d - (d > self.dim) for d in over if d != self.dim)
        if self.dim in over:
            value = _combined(own, old)
            if not rest:
                value = _combined([broadcast_scalar(init, value.shape.dims, old), value], old)
            else:
                value = make("reduce", old.shape, (value, init), old, **{**old.attrs, "dimensions": rest})
            return value
        at = self.dim - sum(d < self.dim for d in over)
        shape = _without(old.shape, at)
        sums = [make("reduce", shape, (x, init), old, **{**old.attrs, "dimensions": rest}) for x in own]
        return _joined(sums, old.shape, at, old)


def _joined(parts: Sequence[Instruction], shape: Shape, dim: int, like: Instruction) -> Instruction:
    """Components as one array again."""
    one = (*shape.dims[:dim], 1, *shape.dims[dim + 1 :])
    rows = tuple(reshape(x, one, like) for x in parts)
    return rows[0] if len(rows) == 1 else make("concatenate", shape.plain, rows, like, dimensions=(dim,))


def _combined(values: Sequence[Instruction], like: Instruction) -> Instruction:
    """All in one, pair by pair."""
    opcode = reducer_opcode(like.attrs["to_apply"])
    assert opcode is not None
    rest = list(values)
    while len(rest) > 1:
        pairs = [rest[k : k + 2] for k in range(0, len(rest), 2)]
        rest = [make(opcode, p[0].shape, p, like) if len(p) > 1 else p[0] for p in pairs]
    return rest[0]


def _without(shape: Shape, dim: int) -> Shape:
    return shape.plain.with_dims((*shape.dims[:dim], *shape.dims[dim + 1 :]))


def _web_of(
    start: Instruction,
    users: Mapping[Instruction, Sequence[Instruction]],
    root: Instruction,
    taken: Mapping[Instruction, object],
) -> _Web | None:
    """The web of a reduction's operand along some short dimension; None where there is none that pays."""
    if start.shape.nbytes < _LEAST or start in taken:
        return None
    found = _connected(start, users, root)
    if found is None:
        return None
    members, exits = found
    # Along a dimension that is reduced components need not be put together again.
    folded = {d for x in exits if x.opcode == "reduce" for d in x.attrs["dimensions"]}
    for dim in sorted(range(start.shape.rank), key=lambda d: d not in folded):
        n = start.shape.dims[dim]
        if 1 < n <= _MOST and n * (len(members) + len(exits)) <= _MOST_MADE:
            web = _Web(start.shape.dims, dim, members, exits)
            whole = any(not _has_components(m, web) for m in members)
            if not whole and all(_takes_components(x, web) for x in exits) and _pays(web):
                return web
    return None


def _connected(
    start: Instruction, users: Mapping[Instruction, Sequence[Instruction]], root: Instruction
) -> tuple[dict[Instruction, None], dict[Instruction, None]] | None:
    """All arithmetic of the same dimensions around a value, and its readers; None where one is needed whole."""
    members: dict[Instruction, None] = {start: None}
    exits: dict[Instruction, None] = {}
    stack = [start]
    while stack:
        m = stack.pop()
        if m is root or len(members) > _MOST_MADE:
            return None
        near = [u for u in users[m] if _is_arithmetic(u)]
        exits |= dict.fromkeys(u for u in users[m] if not _is_arithmetic(u))
        if _is_arithmetic(m):
            near.extend(o for o in m.operands if o.shape.dims)
        for i in near:
            if i not in members:
                members[i] = None
                stack.append(i)
    return members, exits


def _is_arithmetic(i: Instruction) -> bool:
    return is_elementwise(i) and all(not o.shape.dims or o.shape.dims == i.shape.dims for o in i.operands)


def _has_components(m: Instruction, web: _Web) -> bool:
    """Whether the components of ``m`` can be made of something smaller, or of nothing."""
    if m.opcode == "broadcast":
        x = m.operands[0]
        return web.dim not in m.attrs["dimensions"] or x.shape.size * _SMALLER <= m.shape.size
    if m.opcode == "concatenate":
        return m.attrs["dimensions"] == (web.dim,) and len(m.operands) == web.count
    return m.opcode == "iota" or _is_arithmetic(m)


def _takes_components(x: Instruction, web: _Web) -> bool:
    """Whether ``x`` is a reduction to something smaller, or takes some of the components."""
    if x.opcode == "slice":
        cuts = zip(x.attrs["slice"], web.dims, strict=True)
        return all(d == web.dim or cut == (0, n, 1) for d, (cut, n) in enumerate(cuts)) and x.shape.size > 0
    if x.opcode != "reduce" or not x.shape.is_array or x.operands[1] in web.members:
        return False
    kind = x.shape.dtype
    if identity_of(x.attrs["to_apply"], kind) is None or reducer_opcode(x.attrs["to_apply"]) is None or kind.bits < 32:
        return False
    return web.dim in x.attrs["dimensions"] or x.shape.size * _SMALLER <= x.operands[0].shape.size


def _pays(web: _Web) -> bool:
    """Whether components meet arrays that have as many elements as each of them, but not the dimension."""
    joined = any(
        m.opcode == "broadcast"
        and web.dim not in m.attrs["dimensions"]
        and m.operands[0].shape.size * web.count == m.shape.size
        for m in web.members
    )
    return joined or any(x.opcode == "slice" or x.attrs["dimensions"] == (web.dim,) for x in web.exits)
