"""Structural identity: texts that are equal exactly when two instructions or computations do the same.

Used to share equal reducers, to find common subexpressions, and as the content that names a cached object. Names,
metadata and shardings do not count, but for those of constraints, which say nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.literal import Literal

__all__ = ["Structure"]


class Structure:
    """Answers structural questions and remembers the answers for computations that it saw."""

    def __init__(self) -> None:
        self._computations: dict[Computation, str] = {}

    def attributes(self, instruction: Instruction) -> str:
        """Everything that an instruction says beside opcode, shape and operands."""
        said = self._mapping(instruction.attrs)
        is_constraint = instruction.attrs.get("custom_call_target") == "Sharding"
        return f"{said} {instruction.sharding!r}" if is_constraint else said

    def computation(self, computation: Computation) -> str:
        """A digest of everything that the computation does, its callees included."""
        known = self._computations.get(computation)
        if known is None:
            number = {i: n for n, i in enumerate(computation)}
            digest = hashlib.sha256()
            for i in computation:
                operands = ",".join(str(number[o]) for o in i.operands)
                line = f"{i.opcode}({operands}){i.shape.plain}{self.attributes(i)}\n"
                digest.update(line.encode())
            digest.update(f"root {number[computation.root]}".encode())
            known = self._computations[computation] = digest.hexdigest()
        return known

    def _mapping(self, attrs: Mapping[str, Any]) -> str:
        if not attrs:
            return ""
        return "{" + ";".join(f"{k}={self._value(attrs[k])}" for k in sorted(attrs)) + "}"

    def _value(self, value: Any) -> str:
        if isinstance(value, Computation):
            return self.computation(value)
        if isinstance(value, tuple) and value and isinstance(value[0], Computation):
            return "(" + ",".join(self.computation(c) for c in value) + ")"
        if isinstance(value, Literal):
            return literal_digest(value)
        return repr(value)


def literal_digest(literal: Literal) -> str:
    """Shape and content of a literal as text; a splat is told by its one element."""
    if literal.elements is not None:
        return "(" + ",".join(literal_digest(e) for e in literal.elements) + ")"
    if literal.left_out_at:
        return f"{literal.shape}:left out:{literal.left_out_at}"
    if literal.is_splat:
        return f"{literal.shape}:splat:{np.asarray(literal.splat).tobytes().hex()}"
    data = literal.array.tobytes()
    return f"{literal.shape}:{data.hex() if len(data) <= 32 else hashlib.sha256(data).hexdigest()}"
