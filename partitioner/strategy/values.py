"""The state of a global value in the partitioner: the local instructions that hold it, by layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Union

from shardc.hlo.ir.ir import Instruction, Metadata
from shardc.hlo.ir.types import Shape
from shardc.partitioner.emit.layout import Atoms, AxisLayout
from shardc.partitioner.strategy.cause import SplitDecision

__all__ = ["REDUCIBLE_LATER", "GlobalValue", "PartialAxes", "Tree", "leaves"]


#: Reductions that can be put off: what is partial may be combined later.
REDUCIBLE_LATER = ("sum", "max", "min")


@dataclass(frozen=True, slots=True)
class PartialAxes:
    """Partial over ``atoms``, to be combined by ``reduction`` (sum, max, min)."""

    atoms: Atoms
    reduction: str


class GlobalValue:
    """One global array during rewriting.

    ``forms`` are the local instructions made so far, by layout, in order; the first one is ``layout``. A value with
    ``remake`` (constants, iotas, broadcast scalars) can be computed again in any layout at no cost. ``wanted`` is its
    propagated layout, ``uses`` the number of operands that read it, ``why`` the reason why it is partial over each
    axis, ``made`` the decision that made it so, and ``moved`` that its elements were not added up
    (`unreduced.moved_partials`). ``common`` is the form to which it is moved first.
    """

    __slots__ = (
        "common",
        "forms",
        "layout",
        "made",
        "metadata",
        "moved",
        "name",
        "remake",
        "shape",
        "uses",
        "wanted",
        "why",
    )

    def __init__(
        self,
        name: str,
        shape: Shape,
        layout: AxisLayout,
        local: Instruction | None,
        *,
        wanted: AxisLayout | None = None,
        uses: int = 2,
        why: Mapping[int, str] | None = None,
        made: SplitDecision | None = None,
        metadata: Metadata | None = None,
        remake: Callable[[AxisLayout], Instruction] | None = None,
        moved: bool = False,
    ) -> None:
        self.name = name
        self.shape = shape
        self.layout = layout
        self.forms: dict[AxisLayout, Instruction] = {} if local is None else {layout: local}
        self.wanted = layout if wanted is None else wanted
        self.uses = uses
        self.why = why or {}
        self.made = made
        self.metadata = metadata
        self.remake = remake
        self.moved = moved
        self.common: AxisLayout | None = None

    def __repr__(self) -> str:
        return f"Value({self.name}, {self.shape}, {self.layout})"


#: A value, or the elements of a tuple.
Tree = Union[GlobalValue, "list[Tree]"]


def leaves(tree: Tree) -> Iterator[GlobalValue]:
    """The values of a tree, depth first."""
    if isinstance(tree, GlobalValue):
        yield tree
    else:
        for element in tree:
            yield from leaves(element)
