"""How a loop counts its iterations, and which values of its body are elements of its state."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shardc.hlo.ir.ir import Computation, Instruction

__all__ = ["LoopCounter", "carried_element", "find_counter"]

_MIRRORED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE"}


@dataclass(frozen=True, slots=True)
class LoopCounter:
    """The counter of a loop. Element ``index`` of the state begins at ``start`` and grows by ``step``. The loop runs
    while this element compares by ``direction`` with ``limit``, the value of instruction ``bound`` of the condition."""

    index: int
    start: int
    step: int
    direction: str
    limit: int
    bound: Instruction

    @property
    def trips(self) -> int | None:
        """The number of iterations; None if the loop never ends."""
        return _iterations(self.start, self.step, self.limit, self.direction)


def find_counter(loop: Instruction) -> LoopCounter | None:
    """The counter of a while loop with constant start, step and limit; None if it has none."""
    condition, body = loop.attrs["condition"], loop.attrs["body"]
    test = condition.root
    if test.opcode != "compare":
        return None
    direction = test.attrs["direction"]
    left, right = test.operands
    if carried_element(left, condition) is None:
        left, right = right, left
        direction = _MIRRORED.get(direction, "")
    index = carried_element(left, condition)
    limit = _scalar(right)
    if index is None or limit is None or direction not in _MIRRORED or body.root.opcode != "tuple":
        return None
    step = _step(body.root.operands[index], index, body)
    start = _scalar(loop.operands[0].operands[index]) if loop.operands[0].opcode == "tuple" else None
    if step is None or start is None:
        return None
    return LoopCounter(index, start, step, direction, limit, right)


def carried_element(x: Instruction, computation: Computation) -> int | None:
    """The index of ``x`` in the computation's only parameter, a tuple; None if ``x`` is not one of its elements."""
    if x.opcode == "get-tuple-element" and x.operands[0] is computation.parameters[0]:
        return int(x.attrs["index"])
    return None


def _scalar(x: Instruction) -> int | None:
    while x.opcode in ("copy", "reshape", "bitcast"):
        x = x.operands[0]
    if x.opcode != "constant" or x.shape.size != 1 or not x.shape.dtype.is_integer:
        return None
    return int(x.attrs["literal"].array.reshape(-1)[0])


def _step(x: Instruction, index: int, body: Computation) -> int | None:
    """The amount that an iteration adds to element ``index`` of the state."""
    if x.opcode not in ("add", "subtract"):
        return None
    a, b = x.operands
    if x.opcode == "add" and carried_element(a, body) != index:
        a, b = b, a
    change = _scalar(b)
    if carried_element(a, body) != index or change is None:
        return None
    return change if x.opcode == "add" else -change


def _iterations(start: int, step: int, limit: int, direction: str) -> int | None:
    distance = limit - start
    if direction == "NE":
        return distance // step if step and distance % step == 0 and distance // step >= 0 else None
    if direction in ("GT", "GE"):
        distance, step = -distance, -step
    if direction in ("LE", "GE"):
        distance += 1
    if distance <= 0:
        return 0
    return math.ceil(distance / step) if step > 0 else None
