"""The kinds of rows in the partition tables, and the conditions and emitters that many rows share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import Shape, tuple_shape
from shardc.partitioner.emit.emitter import Emitter
from shardc.partitioner.emit.layout import Atoms
from shardc.partitioner.strategy.choose import Computes, Sends, SplitChoice
from shardc.sharding.rules import factor_rule
from shardc.sharding.rules.factor_rule import FactorKind, FactorRule

__all__ = [
    "ComputesOf",
    "Local",
    "LocalSite",
    "PartitionRow",
    "Refused",
    "SendsOf",
    "all_factors",
    "always",
    "emit_same",
    "linear_in_each",
    "linear_in_first",
    "never_linear",
    "nothing",
    "pass_or_reduce",
    "pass_through",
]


@dataclass(slots=True)
class LocalSite:
    """One operation during the writing of its local form.

    ``operands`` are local instructions in the chosen layouts ``choice.operands``; ``shapes`` are the global shapes of
    the results' leaves. An ``emit`` sets ``finished`` if it leaves nothing partial although reduction factors are
    split.
    """

    op: Instruction
    rule: FactorRule
    choice: SplitChoice
    em: Emitter
    operands: list[Instruction]
    shapes: tuple[Shape, ...]
    finished: bool = False

    def operand_atoms(self, operand: int, dim: int) -> Atoms:
        """Axes that split a dimension of an operand."""
        return self.choice.operands[operand].dims[dim]

    def operand_dims(self, operand: int) -> tuple[int, ...]:
        """Global dimensions of an operand."""
        return self.op.operands[operand].shape.dims

    def local_shape(self, result: int = 0) -> Shape:
        """Per-device shape of a result leaf."""
        shape, layout = self.shapes[result], self.choice.results[result]
        return shape.with_dims(self.em.table.local_dims(layout, shape.dims))

    def masked(self, operand: int, dims: Sequence[int], fill: Instruction) -> Instruction:
        """An operand whose padding along ``dims`` is ``fill``."""
        layout = self.choice.operands[operand]
        return self.em.mask_padding(self.operands[operand], self.operand_dims(operand), layout, dims, fill)

    def emit(
        self, operands: Sequence[Instruction] | None = None, *, keep_layouts: bool = False, **attrs: object
    ) -> list[Instruction]:
        """The operation on local shapes with some attributes changed; one local value per result leaf.

        With ``keep_layouts`` results lie in memory as the operation's do.
        """
        used = self.operands if operands is None else operands
        shapes = [self.local_shape(i) for i in range(len(self.shapes))]
        if keep_layouts:
            shapes = [replace(s, layout=old.layout) for s, old in zip(shapes, self.op.shape.leaves(), strict=True)]
        merged = {**self.op.attrs, **attrs} if attrs else self.op.attrs
        is_tuple = self.op.shape.is_tuple
        shape = tuple_shape(*shapes) if is_tuple else shapes[0]
        made = self.em.append(
            Instruction(
                self.op.opcode, shape, used, merged, name=self.op.name, metadata=self.op.metadata, origin=self.op.origin
            ),
            own=True,
        )
        if not is_tuple:
            return [made]
        return [self.em.add("get-tuple-element", s.plain, made, index=i) for i, s in enumerate(shapes)]


def emit_same(site: LocalSite) -> list[Instruction]:
    """The same operation with the same attributes on local shapes."""
    return site.emit()


def never_linear(op: Instruction, reduction: str) -> tuple[tuple[int, ...], ...]:
    """Partial values are reduced before this operation."""
    return ()


def linear_in_first(op: Instruction, reduction: str) -> tuple[tuple[int, ...], ...]:
    """The first operand may hold partial sums."""
    return ((0,),) if reduction == "sum" else ()


def linear_in_each(op: Instruction, reduction: str) -> tuple[tuple[int, ...], ...]:
    """Either of two operands may hold partial sums, as the factors of a product."""
    return ((0,), (1,)) if reduction == "sum" else ()


def pass_through(op: Instruction, rule: FactorRule) -> frozenset[int]:
    """Split only factors that pass through."""
    return frozenset(rule.of_kind(FactorKind.PASS_THROUGH))


def pass_or_reduce(op: Instruction, rule: FactorRule) -> frozenset[int]:
    """Split factors that pass through, and those that are summed or otherwise reduced."""
    return frozenset((*rule.of_kind(FactorKind.PASS_THROUGH), *rule.of_kind(FactorKind.REDUCTION)))


def all_factors(op: Instruction, rule: FactorRule) -> frozenset[int]:
    """Split any factor."""
    return frozenset(range(len(rule.factors)))


def nothing(op: Instruction, rule: FactorRule) -> frozenset[int]:
    """Split no factor: whole operands."""
    return frozenset()


#: What an operation sends of itself, by its index equation; equal for equal operations.
SendsOf = Callable[[Instruction, FactorRule], Sends]


#: The time that an operation computes, equal for equal operations. All of its strategies give it, or none does.
ComputesOf = Callable[[Instruction, FactorRule], Computes]


def always(sends: Sends) -> SendsOf:
    """The same for every operation: its dimensions are sufficient."""
    return lambda op, rule: sends


class PartitionRow:
    """The row of one opcode in the table of partition rules: `Local`, `Refused`, or `Handled` by the rewriting."""

    __slots__ = ()

    @property
    def strategies(self) -> tuple[Local, ...]:
        """The strategies by which the operation runs on shards."""
        return ()


@dataclass(frozen=True, slots=True)
class Local(PartitionRow):
    """An operation that runs on shards by its factor rule.

    ``summary`` describes it in a few words. ``emit`` writes it, and ``usable`` returns the factors that it may split.
    ``linear(op, reduction)`` returns the groups of operands that may stay partial together. ``rule`` returns its index
    equation (None: the strategy does not apply), ``sends`` the cost of its own collectives, most of them of the opcode
    ``sends_by``. ``finishes(op)`` is true if
    nothing stays partial although reduction factors are split. ``alternatives`` are further strategies: the cheapest
    one is taken, and the first of equal ones. ``computes`` returns its time to compute, where strategies differ in it.
    """

    summary: str
    emit: Callable[[LocalSite], list[Instruction]] = emit_same
    usable: Callable[[Instruction, FactorRule], frozenset[int]] = pass_through
    linear: Callable[[Instruction, str], tuple[tuple[int, ...], ...]] = never_linear
    rule: Callable[[Instruction], FactorRule | None] = factor_rule
    sends: SendsOf | None = None
    alternatives: tuple[Local, ...] = ()
    finishes: Callable[[Instruction], bool] = lambda op: False
    computes: ComputesOf | None = None
    sends_by: str = "collective-permute"

    @property
    def strategies(self) -> tuple[Local, ...]:
        """This one, then its alternatives."""
        return (self, *self.alternatives)


@dataclass(frozen=True, slots=True)
class Refused(PartitionRow):
    """An operation that no global program may contain; ``why`` is the reason."""

    why: str
