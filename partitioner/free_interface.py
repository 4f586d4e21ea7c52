"""Which arguments and results of a program a plan may lay out, and in which ways."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import Shape

__all__ = ["FreeInterface", "find_free_interface", "find_free_results"]

_Layout = TypeVar("_Layout")


@dataclass(frozen=True, slots=True)
class FreeInterface:
    """Leaves of a program's ``arguments`` and ``results`` whose layouts nobody said, by their numbers.

    ``ties`` are pairs of an argument's leaf and a result's that lie alike: the result takes the argument's memory, or
    is the argument of the next step. A tied leaf that is not free itself gives the other one its layout. ``like`` are
    pairs of such leaves, too: a free result of one has the layout that was propagated, or the argument's.
    """

    arguments: frozenset[int] = frozenset()
    results: frozenset[int] = frozenset()
    ties: tuple[tuple[int, int], ...] = ()
    like: tuple[tuple[int, int], ...] = ()

    def settle(
        self, arguments: Sequence[_Layout], results: Sequence[_Layout]
    ) -> tuple[FreeInterface, list[_Layout], list[_Layout]]:
        """The interface with ties between free leaves only, and the layouts of all leaves, where those that are tied to
        one that is not free have its."""
        left, given, wanted = list[tuple[int, int]](), list(arguments), list(results)
        for a, r in self.ties:
            if a in self.arguments and r in self.results:
                left.append((a, r))
            elif a in self.arguments:
                given[a] = wanted[r]
            elif r in self.results:
                wanted[r] = given[a]
        fixed = set(self.ties).difference(left)
        free = replace(
            self,
            arguments=self.arguments.difference(a for a, _ in fixed),
            results=self.results.difference(r for _, r in fixed),
            ties=tuple(left),
        )
        return free, given, wanted


def find_free_interface(module: Module, ties: Iterable[tuple[int, int]] = ()) -> FreeInterface:
    """The leaves of ``module``, as it was before propagation, that have no annotation.

    Results that may take the memory of arguments are tied to them, as are the pairs (argument, result) of ``ties``.
    """
    arguments = [s for p in module.parameters for s in _annotations(p.shape, p.sharding)]
    results = _annotations(module.entry.root.shape, module.entry.root.sharding)
    first = [0]
    for p in module.parameters:
        first.append(first[-1] + sum(1 for _ in p.shape.leaves()))
    shapes, ends = [p.shape for p in module.parameters], module.entry.root.shape
    shared = [
        (first[a.parameter] + _leaf(shapes[a.parameter], a.parameter_index), _leaf(ends, a.output))
        for a in module.aliases
    ]
    found = {r: a for a, r in (*ties, *shared)}
    return FreeInterface(
        frozenset(n for n, s in enumerate(arguments) if not isinstance(s, Sharding)),
        frozenset(n for n, s in enumerate(results) if not isinstance(s, Sharding)),
        tuple(sorted((a, r) for r, a in found.items())),
    )


def find_free_results(module: Module, propagated: Module) -> FreeInterface | None:
    """The results of ``propagated`` that are whole, or in fewer parts than their arguments along the same axes, though
    nobody annotated them in ``module``, as it was before: each may lie as its argument does, where that is split. None
    without such results.

    Its argument is the one whose memory it may take, else the k-th of its shape, where it is the k-th result of that
    shape: a step gives back its state in order, and the next step takes it as it lies.
    """
    free = find_free_interface(module)
    given = [s for p in propagated.parameters for s in p.leaf_shardings()]
    found, shared = list[tuple[int, int]](), {r: a for a, r in free.ties}
    places: dict[Shape, list[int]] = {}
    for n, shape in enumerate(s for p in module.parameters for s in p.shape.leaves()):
        places.setdefault(shape.plain, []).append(n)
    kinds = {shape: iter(numbers) for shape, numbers in places.items()}
    for r, (shape, lies) in enumerate(zip(module.results, propagated.entry.root.leaf_shardings(), strict=True)):
        at = next(kinds.get(shape.plain, iter(())), None)
        a = shared.get(r, at)
        if r in free.results and a is not None and _is_coarser(lies, given[a]):
            found.append((a, r))
    return FreeInterface(results=frozenset(r for _, r in found), like=tuple(found)) if found else None


def _is_coarser(sharding: Sharding, other: Sharding) -> bool:
    """Whether it has fewer shards than another one, and no dimension over axes that the other has not there."""
    names = [
        ({a.name for a in d.axes}, {a.name for a in e.axes}) for d, e in zip(sharding.dims, other.dims, strict=True)
    ]
    fewer = math.prod(sharding.num_shards()) < math.prod(other.num_shards())
    return fewer and all(mine <= theirs for mine, theirs in names)


def _annotations(shape: Shape, sharding: object) -> list[object]:
    """The annotation of each leaf, None where there is none."""
    count = sum(1 for _ in shape.leaves())
    given = list(sharding) if isinstance(sharding, tuple) else [sharding] * count
    return [None if isinstance(s, Sharding) and _is_open(s) else s for s in given]


def _is_open(sharding: Sharding) -> bool:
    """Whether the sharding says nothing: it leaves every dimension open."""
    says_more = sharding.replicated or sharding.unreduced or sharding.manual
    return not says_more and bool(sharding.dims) and all(not d.closed and not d.axes for d in sharding.dims)


def _leaf(shape: Shape, path: tuple[int, ...]) -> int:
    """The number of the leaf at ``path``."""
    number = 0
    for k in path:
        number += sum(1 for e in shape.elements[:k] for _ in e.leaves())
        shape = shape.elements[k]
    return number
