"""Shape inference: the custom calls whose targets are known."""

from __future__ import annotations

from shardc.hlo.ir.infer.rule import Attrs, Shapes, fail, shapes_agree
from shardc.hlo.ir.lapack import LAPACK, bind_dimensions
from shardc.hlo.ir.types import Shape

__all__ = ["check_custom_call"]

_KEEP_SHAPE = frozenset({"Sharding", "annotate_device_placement"})


def check_custom_call(operands: Shapes, attrs: Attrs, result: Shape) -> None:
    """Known targets fit their operands; those that only pass a value on keep its shape."""
    target = attrs["custom_call_target"]
    routine = LAPACK.get(target)
    if routine is not None:
        try:
            bind_dimensions(routine, tuple(operands), tuple(result.leaves()))
        except ValueError as e:
            fail(str(e))
    elif target in _KEEP_SHAPE and operands and not shapes_agree(operands[0], result):
        fail(f"{target} of {operands[0]} cannot have shape {result}")
    elif target in ("TopK", "mhlo.topk"):
        leaves = tuple(result.leaves())
        if len(operands) != 1 or len(leaves) != 2 or not operands[0].rank:
            fail(f"{target} takes one array and gives values and positions, not {result}")
        values, positions = leaves
        head = operands[0].dims[:-1]
        if values.dims[:-1] != head or positions.dims != values.dims or values.dims[-1] > operands[0].dims[-1]:
            fail(f"{target} of {operands[0]} cannot be {result}")
