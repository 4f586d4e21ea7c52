"""The loops of a kernel: splitting and merging of dimensions, and the widths of vectors.

Dimensions are split until divisions in addresses become affine, and neighbours that every access treats as one longer
dimension are merged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from shardc.compiler.elements.affine import Expr, LoopVar, Quotient, Var, VarSource
from shardc.compiler.elements.elements import Access, Element, Elements, Index, Recorder, bases
from shardc.compiler.elements.emitter import ElementEmitter
from shardc.compiler.elements.frames import Val
from shardc.hlo.ir.types import DType
from shardc.native.math.vector import I64, constant

__all__ = [
    "Space",
    "bind_group",
    "contiguous",
    "counter_of",
    "element_bits",
    "group_size",
    "merge",
    "plan_space",
    "power_above",
    "power_below",
    "reads_across",
]


class Space:
    """An iteration space: an index expression per dimension, over loop variables that may be parts of dimensions."""

    def __init__(self, source: VarSource, sizes: Sequence[int]) -> None:
        self.source = source
        self.variables: list[LoopVar] = []
        self.index: Index = ()
        for n in sizes:
            v = source.loop(n)
            if n != 1:
                self.variables.append(v)
            self.index += (Expr.of(v),)

    def split_for(self, expressions: Iterable[Expr]) -> bool:
        """Split one variable so that a quotient becomes affine; False when there is none."""
        for e in expressions:
            for q in e.variables():
                if not isinstance(q, Quotient):
                    continue
                for v, c in q.of.terms:
                    part = q.divisor // c if c > 0 and q.divisor % c == 0 else 0
                    if v in self.variables and 1 < part < v.size and v.size % part == 0:
                        assert isinstance(v, LoopVar)
                        self.split(v, part)
                        return True
        return False

    def split(self, v: LoopVar, part: int) -> None:
        """``v`` becomes an outer variable and an inner one of size ``part``."""
        outer, inner = self.source.loop(v.size // part), self.source.loop(part)
        at = self.variables.index(v)
        self.variables[at : at + 1] = [outer, inner]
        by: dict[Var, Expr] = {v: Expr.of(outer) * part + Expr.of(inner)}
        self.index = tuple(e.substitute(by) for e in self.index)


def plan_space(e: Elements, dims: Sequence[int], elements: Sequence[Element]) -> tuple[Space, Recorder]:
    """Split dimensions until nothing is gained, and see what memory is touched."""
    space = Space(e.source, dims)
    for _ in range(8):
        recorder = Recorder(e.source, e.leaves, e.rules)
        for element in elements:
            element(recorder, space.index, ())
        if not space.split_for([a.offset for a in recorder.accesses] + recorder.uses):
            break
    return space, recorder


def merge(variables: Sequence[LoopVar], offsets: Iterable[Expr], uses: Iterable[Expr]) -> list[list[LoopVar]]:
    """Groups of neighbouring variables that every offset treats as one longer dimension, outermost first."""
    taken = frozenset().union(*(bases(e) for e in uses)) if uses else frozenset()
    offsets = list(offsets)
    groups: list[list[LoopVar]] = []
    for v in variables:
        if groups:
            last = groups[-1][-1]
            free = v not in taken and last not in taken
            if free and all(e.coefficient(last) == e.coefficient(v) * v.size for e in offsets):
                groups[-1].append(v)
                continue
        groups.append([v])
    return groups


def element_bits(dtypes: Iterable[DType]) -> int:
    """Width of the widest register part among some element types (at least 32: narrower ones compute wider)."""
    widest = 32
    for d in dtypes:
        widest = max(widest, d.bits // (2 if d.is_complex else 1))
    return widest


def power_below(n: int) -> int:
    """The largest power of two that is at most n."""
    return 1 << (n.bit_length() - 1)


def power_above(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()


def contiguous(accesses: Iterable[Access], v: LoopVar) -> int:
    """How many accesses advance by one element with ``v``."""
    return sum(1 for a in accesses if a.offset.coefficient(v) == 1)


def group_size(group: Sequence[LoopVar]) -> int:
    """How often the loop of a group runs."""
    return math.prod(v.size for v in group)


def bind_group(e: ElementEmitter, group: Sequence[LoopVar], counter: Val, lanes: int = 1) -> None:
    """The group's last variable counts for all of it, the others stay 0."""
    zero = Val((constant(I64, 0),), e.entry)
    for v in group[:-1]:
        e.bind(v, zero)
    e.bind(group[-1], counter, lanes)


def counter_of(group: Sequence[LoopVar]) -> Expr:
    """The counter of a group as an expression (only its last variable is bound to it)."""
    total, stride = Expr(), 1
    for v in reversed(group):
        total = total + Expr.of(v) * stride
        stride *= v.size
    return total


def reads_across(offset: Expr, across: LoopVar, lane: LoopVar) -> bool:
    """Whether an access is contiguous along the loop ``across``, and strided along the lanes."""
    if offset.coefficient(across) != 1 or offset.coefficient(lane) in (0, 1):
        return False
    made = (bases(Expr.of(v)) for v in offset.variables() if not isinstance(v, LoopVar))
    return not any(across in b or lane in b for b in made)
