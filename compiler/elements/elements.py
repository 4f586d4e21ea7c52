"""One element of any array value, from its index: the idea that all loop kernels share.

`Elements.value` asks for the element of an instruction at an index vector. A rule per opcode (`indexing`, `folds`) says
which elements of the operands it needs and how they combine. Two classes answer: `Recorder` only notes what memory
would be touched, from which loops are planned; `shardc.compiler.elements.emitter.ElementEmitter` generates code. The
rules are written once, against this class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardc.compiler.elements.affine import Expr, InRange, LoadedIndex, LoopVar, Mask, Quotient, Var, VarSource, linear
from shardc.compiler.elements.scalar_programs import is_scalar_program
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.types import DType, Shape

__all__ = ["Access", "Answer", "Element", "ElementRule", "Elements", "Fold", "FoldUse", "Recorder", "bases"]

Index = tuple[Expr, ...]

#: An element as whoever answers has it: LLVM values, or True for one that was asked for. Rules only hand it on.
Answer = Any

#: Which elements of its operands an element of an instruction needs, and how they combine.
ElementRule = Callable[["Elements", "Instruction", Index, Mask], Answer]


@dataclass(frozen=True)
class Fold:
    """A reduction over ``sizes``: ``element(elements, position, mask)`` gives one value per accumulator.

    ``reducer`` combines accumulators, ``dtypes`` are their types, ``init(elements)`` the values that the result is
    combined with once at the end (None: nothing). Positions where the conditions that ``taken(elements, position)``
    gives do not hold take no part (None: never). ``order`` is ``any`` for reducers that commute, ``runs`` where
    neighbours must stay neighbours (the reducer is associative), ``steps`` where the fold starts from the initial
    values and takes one position after the other, rounding each time.
    """

    sizes: tuple[int, ...]
    element: Callable[[Elements, Index, Mask], Sequence[Answer]]
    reducer: Computation
    dtypes: tuple[DType, ...]
    init: Callable[[Elements], Sequence[Answer]] | None
    wide: bool = True
    taken: Callable[[Elements, Index], Mask | None] | None = None
    order: str = "any"


@dataclass(frozen=True)
class FoldUse:
    """A fold that an element asks for: of which instruction, at which of its indices."""

    key: Instruction
    index: Index
    fold: Fold


class Elements:
    """See the module docstring. ``leaves`` are the instructions whose values lie in memory."""

    def __init__(self, source: VarSource, leaves: Iterable[Instruction], rules: Mapping[str, ElementRule]) -> None:
        self.source = source
        self.leaves = frozenset(leaves)
        self.rules = rules
        self._memo: dict[tuple[object, ...], Answer] = {}

    def value(self, instruction: Instruction, index: Index, mask: Mask = ()) -> Answer:
        """The element at ``index``; a list of them for tuple-shaped instructions."""
        if mask:
            mask = relevant(mask, index)
        key = (instruction, index, mask)
        found = self._memo.get(key)
        if found is None or not self.usable(found):
            found = self._memo[key] = self._make(instruction, index, mask)
        return found

    def _make(self, instruction: Instruction, index: Index, mask: Mask) -> Answer:
        if instruction in self.leaves:
            return self.leaf(instruction, linear(index, instruction.shape.dims), mask)
        rule = self.rules.get(instruction.opcode)
        if rule is None:
            raise UnsupportedError(
                f"{instruction.opcode} cannot be part of a loop kernel",
                where=f"%{instruction.name}",
                fix="keep it out of fusions",
            )
        return rule(self, instruction, index, mask)

    # What the two kinds of answer differ in.

    def usable(self, found: Answer) -> bool:
        return True

    def leaf(self, instruction: Instruction, offset: Expr, mask: Mask) -> Answer:
        """The element at a row-major offset of a value in memory."""
        raise NotImplementedError

    def elementwise(self, instruction: Instruction, operands: Sequence[Answer], wide: bool = False) -> Answer:
        raise NotImplementedError

    def compute(self, emit: Callable[..., Answer], operands: Sequence[Answer]) -> Answer:
        """``emit(builder, *operands)`` on operands in register form (a tuple for complex ones)."""
        raise NotImplementedError

    def choose(self, conditions: Sequence[InRange], yes: Answer, no: Answer) -> Answer:
        """``yes`` where all conditions hold, ``no`` elsewhere."""
        raise NotImplementedError

    def iota(self, position: Expr, dtype: DType) -> Answer:
        """An index as an element."""
        raise NotImplementedError

    def constant(self, value: Any, dtype: DType) -> Answer:
        raise NotImplementedError

    def table(self, instruction: Instruction, offset: Expr, mask: Mask) -> Answer:
        """An element of a constant array."""
        raise NotImplementedError

    def fold(self, key: Instruction, index: Index, mask: Mask, fold: Fold) -> list[Answer]:
        raise NotImplementedError

    def call(self, computation: Computation, arguments: Sequence[Answer], wide: bool = False) -> list[Answer]:
        """The results of a scalar computation; ``wide`` as for `elementwise`."""
        raise NotImplementedError

    def load_index(self, instruction: Instruction, index: Index, mask: Mask, low: int, high: int) -> Expr:
        """An integer element as an index, clamped to [low, high)."""
        if high - low <= 1:
            return Expr(low)
        if mask:
            mask = relevant(mask, index)
        return Expr.of(self.source.load_index((instruction, index, mask), low, high, (instruction, index, mask)))


#: What an element of an array to be filled is: a value of ``Elements`` for an index under a mask.
Element = Callable[[Elements, Index, Mask], Answer]


@dataclass(frozen=True, slots=True)
class Access:
    """A read of (or write to) memory: which array, at which offset, under which mask."""

    shape: Shape
    offset: Expr
    mask: Mask
    leaf: object


@dataclass
class Recorder(Elements):
    """Notes the memory accesses, and expressions used in other ways, that an element needs."""

    source: VarSource
    leaves: frozenset[Instruction]
    rules: Mapping[str, ElementRule]
    accesses: list[Access] = field(default_factory=list)
    uses: list[Expr] = field(default_factory=list)
    folded: list[tuple[Index, tuple[LoopVar, ...]]] = field(default_factory=list)
    #: A computation is called that must not see elements that do not exist (it may loop forever on them).
    one_by_one: bool = False
    #: The folds asked for, whatever their order.
    folds: list[FoldUse] = field(default_factory=list)
    #: Elementwise operations asked for.
    operations: int = 0
    #: What elements are chosen by.
    conditions: list[InRange] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._memo = {}

    def leaf(self, instruction: Instruction, offset: Expr, mask: Mask) -> Answer:
        self.accesses.append(Access(instruction.shape, offset, mask, instruction))
        return True

    def table(self, instruction: Instruction, offset: Expr, mask: Mask) -> Answer:
        self.accesses.append(Access(instruction.shape, offset, mask, instruction))
        return True

    def elementwise(self, instruction: Instruction, operands: Sequence[Answer], wide: bool = False) -> Answer:
        self.operations += 1
        return True

    def compute(self, emit: Callable[..., Answer], operands: Sequence[Answer]) -> Answer:
        return True

    def choose(self, conditions: Sequence[InRange], yes: Answer, no: Answer) -> Answer:
        self.uses.extend(c.expr for c in conditions)
        self.conditions.extend(conditions)
        return True

    def iota(self, position: Expr, dtype: DType) -> Answer:
        self.uses.append(position)
        return True

    def constant(self, value: Any, dtype: DType) -> Answer:
        return True

    def call(self, computation: Computation, arguments: Sequence[Answer], wide: bool = False) -> list[Answer]:
        self.one_by_one |= not is_scalar_program(computation)
        return [True] * sum(1 for _ in computation.root.shape.leaves())

    def fold(self, key: Instruction, index: Index, mask: Mask, fold: Fold) -> list[Answer]:
        self.one_by_one |= not is_scalar_program(fold.reducer)
        self.folds.append(FoldUse(key, index, fold))
        variables = tuple(self.source.loop(n) for n in fold.sizes)
        if fold.order == "any":
            self.folded.append((index, variables))
        if all(fold.sizes):
            position = tuple(Expr.of(v) for v in variables)
            taken = () if fold.taken is None else fold.taken(self, position)
            if taken is not None:
                self.uses.extend(c.expr for c in taken)
                fold.element(self, position, (*mask, *taken))
        if fold.init is not None:
            fold.init(self)
        return [True] * len(fold.dtypes)

    def load_index(self, instruction: Instruction, index: Index, mask: Mask, low: int, high: int) -> Expr:
        if high - low > 1:
            self.value(instruction, index, mask)
        return super().load_index(instruction, index, mask, low, high)

    def expressions(self) -> list[Expr]:
        """Every expression that is not a plain memory offset, parts of derived variables included."""
        found = list(self.uses)
        for access in self.accesses:
            found.extend(c.expr for c in access.mask)
        seen: set[Var] = set()
        stack = [*found, *(a.offset for a in self.accesses)]
        while stack:
            for v in stack.pop().variables():
                if v in seen or isinstance(v, LoopVar):
                    continue
                seen.add(v)
                inner = [v.of] if isinstance(v, Quotient) else list(v.what[1]) if isinstance(v, LoadedIndex) else []
                found.extend(inner)
                stack.extend(inner)
        return found


def bases(e: Expr) -> frozenset[Var]:
    """The variables of an expression and those that they are made from."""
    out: set[Var] = set()
    stack = [e]
    while stack:
        for v in stack.pop().variables():
            if v not in out:
                out.add(v)
                if isinstance(v, Quotient):
                    stack.append(v.of)
                elif isinstance(v, LoadedIndex):
                    stack.extend(v.what[1])
    return frozenset(out)


def relevant(mask: Mask, index: Index) -> Mask:
    """The conditions that can matter for ``index``: those that share a variable with it."""
    if not index:
        return ()
    mine = frozenset().union(*(bases(e) for e in index))
    return tuple(c for c in mask if not mine.isdisjoint(bases(c.expr)))
