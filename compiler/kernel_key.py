"""When two instructions need the same kernel."""

from __future__ import annotations

import hashlib

from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.literal import Literal

__all__ = ["computation_key", "kernel_key"]

#: Attributes that do not change what a kernel does.
_IGNORED = frozenset({"operand_precision", "algorithm", "indices_are_sorted", "unique_indices", "result_accuracy"})


def kernel_key(instruction: Instruction) -> str:
    """A hash of everything that a kernel depends on: opcode, shapes, attributes, called computations, and which
    operands count places (a sort does not read those).

    Names, shardings and metadata do not count. Instructions with equal keys can share one function; the key is the
    same in every process.
    """
    return hashlib.sha256(_describe(instruction).encode()).hexdigest()[:32]


def computation_key(computation: Computation) -> str:
    """The same for a computation."""
    return hashlib.sha256(_computation(computation).encode()).hexdigest()[:32]


def _describe(i: Instruction) -> str:
    repeated = [i.operands.index(o) for o in i.operands]
    shapes = ",".join(f"{o.shape}{_places(o)}" for o in i.operands)
    return f"{i.opcode}({shapes};{repeated})->{i.shape}{_attributes(i)}"


def _places(operand: Instruction) -> str:
    return f"=iota{_attributes(operand)}" if operand.opcode == "iota" else ""


def _attributes(i: Instruction) -> str:
    return "".join(f";{k}={_text(v)}" for k, v in sorted(i.attrs.items()) if k not in _IGNORED)


def _text(value: object) -> str:
    if isinstance(value, Computation):
        return _computation(value)
    if isinstance(value, Literal):
        return _literal(value)
    if isinstance(value, tuple):
        return "(" + ",".join(map(_text, value)) + ")"
    return repr(value)


def _literal(value: Literal) -> str:
    if value.elements is not None:
        return "(" + ",".join(map(_literal, value.elements)) + ")"
    data = value.array[(0,) * value.array.ndim].tobytes() if value.is_splat else value.array.tobytes()
    return f"{value.shape}:{value.is_splat}:{hashlib.sha256(data).hexdigest()}"


def _computation(computation: Computation) -> str:
    numbers = {i: n for n, i in enumerate(computation)}
    lines = []
    for i in computation:
        operands = ",".join(str(numbers[o]) for o in i.operands)
        lines.append(f"{i.opcode}({operands})->{i.shape}{_attributes(i)}")
    return "{" + "|".join(lines) + f"|root={numbers[computation.root]}" + "}"
