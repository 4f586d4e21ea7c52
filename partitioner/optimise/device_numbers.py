"""What whole-number scalars are on each device, where they are computed from the device's number alone."""

from __future__ import annotations

from copy import copy
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.mesh import MOST_LISTED

__all__ = ["DeviceNumbers"]

#: One whole number per device.
Numbers = NDArray[np.int64]


def _divide(a: Numbers, b: Numbers) -> Numbers | None:
    """Towards zero; None where it has no value."""
    return None if (b == 0).any() else (np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(np.int64)


def _remainder(a: Numbers, b: Numbers) -> Numbers | None:
    quotient = _divide(a, b)
    return None if quotient is None else a - quotient * b


_TWO: dict[str, Any] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "divide": _divide,
    "remainder": _remainder,
}
_COMPARISONS: dict[str, Any] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}
_PASSED = ("reshape", "copy", "bitcast", "convert")


class DeviceNumbers:
    """Answers for one per-device program, remembered; none where the element type overflows, nor for more devices than
    are ever listed."""

    def __init__(self, module: Module) -> None:
        self.devices = module.num_partitions
        self._known: dict[Instruction, Numbers | None] = {}

    def of(self, x: Instruction) -> Numbers | None:
        """The value of a scalar (or of an array of one element) on every device, if it is known."""
        work = [x]
        while work:
            i = work[-1]
            missing = [o for o in i.operands if o not in self._known] if _is_number(i) else []
            if i in self._known or not missing:
                if i not in self._known:
                    self._known[i] = self._compute(i)
                work.pop()
            else:
                work += missing
        return self._known[x]

    def _compute(self, i: Instruction) -> Numbers | None:
        if not _is_number(i):
            return None
        found = self._value(i, [self._known[o] for o in i.operands])
        if found is None or i.shape.dtype.kind == "pred":
            return found
        limits = ml_dtypes.iinfo(i.shape.dtype.numpy)
        return found if found.min() >= limits.min and found.max() <= limits.max else None

    def _value(self, i: Instruction, given: list[Numbers | None]) -> Numbers | None:
        if i.opcode == "partition-id":
            return np.arange(self.devices) if self.devices <= MOST_LISTED else None
        if i.opcode == "constant" and self.devices <= MOST_LISTED:
            number = int(i.attrs["literal"].array.reshape(-1)[0])
            return np.full(self.devices, number, np.int64) if number <= np.iinfo(np.int64).max else None
        if i.opcode == "dynamic-slice":
            return self._looked_up(i, given)
        if i.opcode == "fusion":
            return self._inside(i.attrs["calls"], given)
        operands = [g for g in given if g is not None]
        if len(operands) != len(given):
            return None
        if i.opcode in _PASSED:
            return operands[0]
        if i.opcode in _TWO:
            out: Numbers | None = _TWO[i.opcode](*operands)
            return out
        if i.opcode == "compare":
            return np.asarray(_COMPARISONS[i.attrs["direction"]](*operands), np.int64)
        if i.opcode == "select":
            return np.where(operands[0] != 0, operands[1], operands[2])
        if i.opcode == "clamp":
            return np.minimum(np.maximum(operands[1], operands[0]), operands[2])
        return None

    def _inside(self, computation: Computation, given: list[Numbers | None]) -> Numbers | None:
        """The root of a computation that is called with ``given``."""
        inner = copy(self)
        inner._known = dict(zip(computation.parameters, given, strict=True))
        return inner.of(computation.root)

    def _looked_up(self, i: Instruction, given: list[Numbers | None]) -> Numbers | None:
        """One element of a constant list."""
        table, index = i.operands[0], given[1] if len(given) == 2 else None
        if table.opcode != "constant" or table.shape.rank != 1 or index is None:
            return None
        values = np.asarray(table.attrs["literal"].array, np.int64)
        return values[np.clip(index, 0, len(values) - 1)]


def _is_number(i: Instruction) -> bool:
    """One whole number or truth value."""
    shape = i.shape
    return shape.is_array and shape.size == 1 and (shape.dtype.is_integer or shape.dtype.kind == "pred")
