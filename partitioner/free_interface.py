"""Which arguments and results of a program a plan may lay out as it likes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from shardc.hlo.ir.ir import Module
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import Shape

__all__ = ["FreeInterface", "find_free_interface"]

_Layout = TypeVar("_Layout")


@dataclass(frozen=True, slots=True)
class FreeInterface:
    """Leaves of a program's ``arguments`` and ``results`` whose layouts nobody said, by their numbers.

    ``ties`` are pairs of an argument's leaf and a result's that lie alike: the result takes the argument's memory, or
    is the argument of the next step. A tied leaf that is not free itself gives the other one its layout.
    """

    arguments: frozenset[int] = frozenset()
    results: frozenset[int] = frozenset()
    ties: tuple[tuple[int, int], ...] = ()

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
        free = FreeInterface(
            self.arguments.difference(a for a, _ in fixed), self.results.difference(r for _, r in fixed), tuple(left)
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


def _annotations(shape: Shape, sharding: object) -> list[object]:
    """The annotation of each leaf, None where there is none."""
    count = sum(1 for _ in shape.leaves())
    given = list(sharding) if isinstance(sharding, tuple) else [sharding] * count
    return [None if isinstance(s, Sharding) and _is_open(s) else s for s in given]


def _is_open(sharding: Sharding) -> bool:
    """Does it say nothing?"""
    says_more = sharding.replicated or sharding.unreduced or sharding.manual
    return not says_more and bool(sharding.dims) and all(not d.closed and not d.axes for d in sharding.dims)


def _leaf(shape: Shape, path: tuple[int, ...]) -> int:
    """The number of the leaf at ``path``."""
    number = 0
    for k in path:
        number += sum(1 for e in shape.elements[:k] for _ in e.leaves())
        shape = shape.elements[k]
    return number
