"""Factor rules: an operation as an index equation.

A rule names the loops (*factors*) of an operation and says which dimension of which operand or result each loop
runs over. A matrix product is ``([i, k], [k, j])->([i, j]) {i=4, j=8, k=16} reduction={k}``. A dimension can be
made of several factors, major to minor: a reshape that merges two dimensions is ``([i, j])->([ij]) {i=4, j=8}``.
Propagation and partitioning only look at rules, never at opcodes, as far as a factor can say it. The idea and the
notation are Shardy's (https://openxla.org/shardy).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntFlag, StrEnum

__all__ = ["Direction", "Factor", "FactorKind", "FactorRule", "RuleBuilder", "TensorFactors", "factor_name"]


class FactorKind(StrEnum):
    """What sharding a factor means for the operation.

    ``PASS_THROUGH``: each shard of the result needs just the matching shards of the operands. ``REDUCTION``: each
    shard makes a partial result. ``NEED_REPLICATION``: the operation needs the whole dimension.
    ``PERMUTATION``: a shard needs neighbouring or otherwise moved data.
    """

    PASS_THROUGH = "pass-through"
    REDUCTION = "reduction"
    NEED_REPLICATION = "need-replication"
    PERMUTATION = "permutation"


class Direction(IntFlag):
    """From where to where axes may spread along a factor: FORWARD lets operands give, BACKWARD results."""

    NONE = 0
    FORWARD = 1
    BACKWARD = 2
    BOTH = 3


@dataclass(frozen=True, slots=True)
class Factor:
    """One loop of an operation; ``blocked`` factors take no part in propagation."""

    size: int
    kind: FactorKind = FactorKind.PASS_THROUGH
    blocked: bool = False


#: Factor indices per dimension of one tensor, major to minor.
TensorFactors = tuple[tuple[int, ...], ...]


def factor_name(index: int) -> str:
    """``i`` to ``z``, then ``z_1``, ``z_2``, ..."""
    return chr(ord("i") + index) if index < 18 else f"z_{index - 17}"


@dataclass(frozen=True, slots=True, eq=False)
class FactorRule:
    """The index equation of one operation: rules are compared by identity and shared between equal operations.

    ``operands`` and ``results`` have one entry per leaf (an array-shaped operand is its own only leaf) and, per
    dimension, the indices of its factors from major to minor. ``reduction`` says how partial results over
    reduction factors combine: ``sum``, ``max``, ``min``, another HLO opcode, or empty when there are none or the
    reduction is not a single known operation. ``reason`` tells, for operations without a real rule, why not.
    """

    factors: tuple[Factor, ...]
    operands: tuple[TensorFactors, ...]
    results: tuple[TensorFactors, ...]
    reduction: str = ""
    reason: str = ""

    @property
    def tensors(self) -> tuple[TensorFactors, ...]:
        """Operands, then results."""
        return self.operands + self.results

    def of_kind(self, kind: FactorKind) -> tuple[int, ...]:
        """Indices of the factors of one kind."""
        return tuple(i for i, f in enumerate(self.factors) if f.kind is kind)

    def places(self, factor: int) -> Iterator[tuple[int, int]]:
        """(tensor, dimension) pairs that ``factor`` runs over, tensors counted as in `tensors`."""
        for t, tensor in enumerate(self.tensors):
            for d, indices in enumerate(tensor):
                if factor in indices:
                    yield t, d

    def __str__(self) -> str:
        sides = (self.operands, self.results)
        equation = "->".join("(" + ", ".join(map(_tensor_text, side)) + ")" for side in sides)
        sizes = ", ".join(f"{factor_name(i)}={f.size}" for i, f in enumerate(self.factors))
        text = f"{equation} {{{sizes}}}" if sizes else equation
        for label, chosen in (
            ("reduction", self.of_kind(FactorKind.REDUCTION)),
            ("need_replication", self.of_kind(FactorKind.NEED_REPLICATION)),
            ("permutation", self.of_kind(FactorKind.PERMUTATION)),
            ("blocked_propagation", tuple(i for i, f in enumerate(self.factors) if f.blocked)),
        ):
            if chosen:
                text += f" {label}={{{', '.join(map(factor_name, chosen))}}}"
        return text


def _tensor_text(tensor: TensorFactors) -> str:
    return "[" + ", ".join("".join(map(factor_name, d)) if d else "*" for d in tensor) + "]"


class RuleBuilder:
    """Collects factors; places are given as (tensor, dimension), operands first, then results.

    ``operands`` and ``results`` are the dimensions of the tensors.
    """

    def __init__(self, operands: Sequence[tuple[int, ...]], results: Sequence[tuple[int, ...]]) -> None:
        self.operands = len(operands)
        self.sizes = (*operands, *results)
        self.factors: list[Factor] = []
        self.dims: list[list[list[int]]] = [[[] for _ in dims] for dims in self.sizes]

    def add(
        self,
        size: int,
        places: Sequence[tuple[int, int]],
        kind: FactorKind = FactorKind.PASS_THROUGH,
        *,
        blocked: bool = False,
    ) -> int:
        """A factor that is the next minor one of every dimension in ``places``; returns its index."""
        index = len(self.factors)
        self.factors.append(Factor(size, kind, blocked))
        for tensor, dim in places:
            self.dims[tensor][dim].append(index)
        return index

    def build(self, *, reduction: str = "", reason: str = "") -> FactorRule:
        """The rule; dimensions without a factor must be whole."""
        for t, tensor in enumerate(self.dims):
            for d, indices in enumerate(tensor):
                if not indices:
                    size = self.sizes[t][d]
                    whole = size != 1
                    kind = FactorKind.NEED_REPLICATION if whole else FactorKind.PASS_THROUGH
                    self.add(size, [(t, d)], kind, blocked=whole)
        tensors = tuple(tuple(tuple(d) for d in t) for t in self.dims)
        return FactorRule(tuple(self.factors), tensors[: self.operands], tensors[self.operands :], reduction, reason)
