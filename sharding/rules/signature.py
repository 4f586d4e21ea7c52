"""What a factor rule may depend on, and the kinds of rows in the rule tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.reducers import reducer_kind
from shardc.hlo.ir.types import Shape
from shardc.sharding.rules.factor_rule import FactorRule, RuleBuilder

__all__ = [
    "DataFlow",
    "FactorRow",
    "Replicate",
    "Row",
    "Signature",
    "Unsupported",
    "replicate_rule",
    "signature",
]


@dataclass(frozen=True, slots=True)
class Signature:
    """Opcode, leaf shapes and the attributes that the opcode's rule reads: equal signatures share one rule."""

    opcode: str
    operands: tuple[Shape, ...]
    results: tuple[Shape, ...]
    attrs: tuple[Any, ...] = ()

    def builder(self) -> RuleBuilder:
        return RuleBuilder([s.dims for s in self.operands], [s.dims for s in self.results])


@dataclass(frozen=True, slots=True)
class FactorRow:
    """The op has a factor rule, made from its signature.

    ``attrs`` are the attributes that it reads, in order; ``facts`` tells what else the rule depends on, such as what
    the operands are made by. Its answers follow the attributes in `Signature.attrs`.
    """

    make: Callable[[Signature], FactorRule]
    attrs: tuple[str, ...] = ()
    facts: Callable[[Instruction], tuple[Any, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Replicate:
    """The op needs whole operands on every device, because of ``why``."""

    why: str


@dataclass(frozen=True, slots=True)
class DataFlow:
    """The op passes values on leaf by leaf; propagation follows its data-flow edges (``why`` says which)."""

    why: str


@dataclass(frozen=True, slots=True)
class Unsupported:
    """The op cannot be part of a program that is to be partitioned, because of ``why``."""

    why: str


Row = FactorRow | Replicate | DataFlow | Unsupported


def signature(
    instruction: Instruction,
    attrs: tuple[str, ...] = (),
    facts: Callable[[Instruction], tuple[Any, ...]] | None = None,
) -> Signature:
    """The signature of an instruction; called computations count by what they reduce with."""
    values = tuple(_attribute(instruction.attrs.get(name)) for name in attrs)
    if facts is not None:
        values += facts(instruction)
    operands = tuple(leaf for o in instruction.operands for leaf in o.shape.leaves())
    return Signature(instruction.opcode, operands, tuple(instruction.shape.leaves()), values)


def _attribute(value: Any) -> Any:
    return reducer_kind(value) if isinstance(value, Computation) else value


def replicate_rule(sig: Signature, why: str) -> FactorRule:
    """A rule that needs every dimension of every operand and result whole, and propagates nothing."""
    return sig.builder().build(reason=why)
