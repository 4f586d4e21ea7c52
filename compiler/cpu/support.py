"""Which ops have native CPU code, for the op matrix."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from shardc.compiler.cpu.kernel import SPECIAL
from shardc.compiler.elements.rules import RULES
from shardc.compiler.lower.expand.ops import EXPANSIONS
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.opset import OPS

__all__ = ["KERNELS", "supports"]


def _rows() -> dict[str, str]:
    rows: dict[str, str] = {}
    for opcode, op in OPS.items():
        if op.family in ("control", "collective") and opcode != "fusion":
            rows[opcode] = "part of the step function, not of a kernel"
        elif opcode in EXPANSIONS:
            rows[opcode] = "a lowering pass writes it as simpler ops"
        elif opcode in SPECIAL or opcode in RULES:
            rows[opcode] = ""
        else:
            rows[opcode] = "no native code yet"
    return rows


#: Per opcode: empty when there is native code, otherwise the reason why not.
KERNELS: Mapping[str, str] = MappingProxyType(_rows())


def supports(instruction: Instruction) -> str | None:
    """None when `emit_kernel` has code for the instruction's opcode, otherwise the reason why not."""
    return KERNELS.get(instruction.opcode, "unknown op") or None
