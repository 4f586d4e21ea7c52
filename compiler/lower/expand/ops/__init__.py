"""Ops written as short programs of others, by family: opcode -> instruction -> computation of its operands.

Start with `scan`, the longest; `shardc.compiler.lower.expand.expand_ops` is the pass that uses the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from shardc.compiler.lower.expand.ops import contraction, elementwise, scan, shape
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.transforms.expand_random import expand_rng, expand_state

__all__ = ["EXPANSIONS"]

EXPANSIONS: Mapping[str, Callable[[Instruction], Computation]] = MappingProxyType(
    {
        **contraction.ROWS,
        **elementwise.ROWS,
        **shape.ROWS,
        "scan": scan.expand_scan,
        "rng": expand_rng,
        "rng-get-and-update-state": expand_state,
    }
)
