"""What a factor rule may depend on, and the kinds of rows in the rule tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shardc.hlo.ir import Computation, Instruction
from shardc.hlo.types import Shape
from shardc.sharding.factors import FactorRule, RuleBuilder

__all__ = ["DataFlow", "Replicate", "Row", "Rule", "Signature", "Unsupported", "reducer", "replicate_rule", "signature"]


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
class Rule:
    """The op has a factor rule, made from its signature; ``attrs`` are the attributes that it reads, in order."""

    make: Callable[[Signature], FactorRule]
    attrs: tuple[str, ...] = ()


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


Row = Rule | Replicate | DataFlow | Unsupported


def signature(instruction: Instruction, attrs: tuple[str, ...]) -> Signature:
    """The signature of an instruction; called computations count by what they reduce with."""
    values = tuple(_attribute(instruction.attrs.get(name)) for name in attrs)
    operands = tuple(leaf for o in instruction.operands for leaf in o.shape.leaves())
    return Signature(instruction.opcode, operands, tuple(instruction.shape.leaves()), values)


def _attribute(value: Any) -> Any:
    return reducer(value) if isinstance(value, Computation) else value


_REDUCERS = {"add": "sum", "maximum": "max", "minimum": "min"}


def reducer(computation: Computation) -> str:
    """``sum``, ``max``, ``min`` or the opcode that a scalar computation applies to its two parameters, else empty."""
    root = computation.root
    parameters = computation.parameters
    if len(parameters) != 2 or len(root.operands) != 2 or set(root.operands) != set(parameters):
        return ""
    commutative = root.opcode in ("add", "maximum", "minimum", "multiply", "and", "or", "xor")
    return _REDUCERS.get(root.opcode, root.opcode) if commutative else ""


def replicate_rule(sig: Signature, why: str) -> FactorRule:
    """A rule that needs every dimension of every operand and result whole, and propagates nothing."""
    return sig.builder().build(reason=why)
