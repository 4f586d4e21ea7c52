"""Which results must agree to the bit: those that no rounding of floats can reach.

A partitioned program sums in another order. What is computed from floats by more than moving, choosing and comparing
them may then differ in the last bits, and so may integers made from such floats; everything else is equal.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardc.hlo.ir.infer.control import branches_of
from shardc.hlo.ir.ir import Computation, Instruction, Module

__all__ = ["exact_results"]

#: Whether each leaf of a value may carry rounding.
Leaves = tuple[bool, ...]

#: What gives the same bits for the same floats, in any order and on any device.
_SAME_BITS_TEXT = """
    abs add-dependency after-all all-gather all-to-all and bitcast bitcast-convert broadcast ceil clamp
    collective-permute compare complex concatenate constant convert copy custom-call domain dynamic-reshape
    dynamic-slice dynamic-update-slice floor gather get-dimension-size get-tuple-element imag iota is-finite map maximum
    minimum negate not optimization-barrier or pad parameter partition-id real reduce reduce-window
    replica-id reshape reverse round-nearest-afz round-nearest-even scatter select select-and-scatter shift-left
    shift-right-arithmetic shift-right-logical sign slice sort topk transpose tuple xor
"""
_SAME_BITS = frozenset(_SAME_BITS_TEXT.split())
#: Custom calls that only say something about their operand.
_ANNOTATIONS = frozenset(("Sharding", "MoveToHost", "MoveToDevice", "annotate_device_placement"))


def exact_results(module: Module) -> tuple[bool, ...]:
    """Whether each leaf of the results of ``module`` must agree exactly."""
    parameters = [(False,) * len(list(p.shape.leaves())) for p in module.parameters]
    return tuple(not rounded for rounded in _run(module.entry, parameters))


def _run(computation: Computation, arguments: Sequence[Leaves]) -> Leaves:
    """The leaves of the root, given those of the parameters."""
    values: dict[Instruction, Leaves] = {}
    for op in computation:
        if op.opcode == "parameter":
            values[op] = arguments[op.attrs["index"]]
        else:
            values[op] = _step(op, [values[o] for o in op.operands])
    return values[computation.root]


def _step(op: Instruction, operands: list[Leaves]) -> Leaves:
    if op.opcode == "tuple":
        return tuple(leaf for o in operands for leaf in o)
    if op.opcode == "get-tuple-element":
        sizes = [len(list(s.leaves())) for s in op.operands[0].shape.elements]
        start = sum(sizes[: op.attrs["index"]])
        return operands[0][start : start + sizes[op.attrs["index"]]]
    if op.opcode == "optimization-barrier":
        return operands[0]
    if op.opcode == "while":
        return _loop(op, operands[0])
    if op.opcode == "call":
        return _run(op.attrs["to_apply"], operands)
    if op.opcode == "conditional":
        branches = [_run(c, [x]) for c, x in zip(branches_of(op.attrs), operands[1:], strict=True)]
        return tuple(any(leaf) or any(operands[0]) for leaf in zip(*branches, strict=True))
    rounded = any(map(any, operands)) or _rounds_floats(op)
    return (rounded,) * len(list(op.shape.leaves()))


def _loop(op: Instruction, carry: Leaves) -> Leaves:
    """What the carry may become after any number of iterations; a rounded condition reaches all of it."""
    while True:
        after = _run(op.attrs["body"], [carry])
        merged = tuple(a or b for a, b in zip(carry, after, strict=True))
        if merged == carry:
            break
        carry = merged
    stops = _run(op.attrs["condition"], [carry])
    return (True,) * len(carry) if any(stops) else carry


def _rounds_floats(op: Instruction) -> bool:
    """Whether ``op`` itself computes floats whose last bits depend on how they are computed."""
    wide = [s.dtype for x in (op, *op.operands) for s in x.shape.leaves()]
    if not any(t.is_float or t.is_complex for t in wide):
        return False
    if op.opcode == "custom-call" and op.attrs.get("custom_call_target") not in _ANNOTATIONS:
        return True
    bodies = [v for v in op.attrs.values() if isinstance(v, Computation)]
    return op.opcode not in _SAME_BITS or any(_rounds_floats(i) for c in bodies for i in c)
