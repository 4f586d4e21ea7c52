"""Traced values that depend on no argument: their elements are known while the function is traced."""

from __future__ import annotations

import numpy as np

from shardc.hlo.ir.ir import Computation, Instruction, topological
from shardc.hlo.ir.opset import OPS

__all__ = ["known_elements"]

#: What such a value is made of, besides arithmetic: no loops, no calls.
_FAMILIES = frozenset(("elementwise", "shape", "indexing", "reduction"))
_MOST = 1 << 16


def known_elements(x: Instruction) -> np.ndarray | None:
    """The elements of a small array that is made of constants; they cannot be written to. None for any other."""
    stack, seen = [x], {x}
    while stack:
        i = stack.pop()
        made = i.opcode in ("constant", "iota") or (OPS[i.opcode].family in _FAMILIES and i.opcode != "parameter")
        if not made or not i.shape.is_array or i.shape.size > _MOST or len(seen) > _MOST:
            return None
        new = [o for o in i.operands if o not in seen]
        stack += new
        seen.update(new)
    # The evaluator is not loaded with every traced function.
    from shardc.hlo.evaluate import evaluate_computation

    found = np.array(evaluate_computation(Computation("known", topological([x]), x), []))
    found.flags.writeable = False
    return found
