"""Which values of a program lie in host memory: a fixpoint along its data flow.

What an argument's layout or a custom call puts into host memory stays there on its way through tuples, loops,
branches, calls and reshapes, and what is written into an array of the host's makes all of that array the host's. What
is cut out of such an array, or computed from it, is in the device's memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from shardc.hlo.ir.custom_calls import MARKERS
from shardc.hlo.ir.host_memory.memory_kinds import PINNED_HOST, has_host_memory, is_host, memory_kind_of, on_host
from shardc.hlo.ir.infer.control import branches_of
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.make import is_reshape
from shardc.hlo.ir.types import Shape, tuple_shape

__all__ = ["HostValues", "is_view", "reads_host", "shape_with"]

#: By leaf of a value, whether it lies in host memory.
Leaves = tuple[bool, ...]

_PASSED = frozenset({"optimization-barrier", "domain", "add-dependency", "while", "copy-done"})


def is_view(i: Instruction) -> bool:
    """Whether ``i`` has the elements of its operand, in the same order."""
    return i.opcode == "bitcast" or is_reshape(i)


def reads_host(host: HostValues, i: Instruction) -> bool:
    """Whether the array ``i`` lies in host memory, or is a part that is cut out of an array there."""
    leaf = 0
    while not host.of(i)[leaf]:
        if i.opcode == "tuple":
            for o in i.operands:
                if leaf < (count := _count(o.shape)):
                    i = o
                    break
                leaf -= count
        elif i.opcode == "get-tuple-element":
            leaf += sum(map(_count, i.operands[0].shape.elements[: i.attrs["index"]]))
            i = i.operands[0]
        elif i.opcode == "call":
            i = i.attrs["to_apply"].root
        elif is_view(i) or i.opcode in ("slice", "dynamic-slice", "optimization-barrier"):
            i = i.operands[0]
        else:
            return False
    return True


def _count(shape: Shape) -> int:
    return sum(1 for _ in shape.leaves())


class HostValues:
    """The leaves of each instruction of ``module`` that lie in host memory.

    Example: of ``MoveToHost(x)``, and of an array that it is written into, that is ``(True,)``.
    """

    def __init__(self, module: Module) -> None:
        self._found: dict[Instruction, Leaves] = {}
        self._parameters: dict[Computation, dict[int, Leaves]] = {}
        self._changed = self.any = has_host_memory(module)
        while self._changed:
            self._changed = False
            for c in reversed(module.computations):
                for i in c:
                    self._note(i, self._leaves(i, c, entry=c is module.entry))

    def of(self, i: Instruction) -> Leaves:
        """By leaf of the shape of ``i``."""
        known = self._found.get(i) if self.any else None
        return (False,) * _count(i.shape) if known is None else known

    def shape(self, i: Instruction) -> Shape:
        """The shape of ``i`` with memory spaces in its layouts."""
        return shape_with(i.shape, self.of(i))

    def device_bytes(self, i: Instruction) -> int:
        """The bytes that ``i`` takes of the device's memory."""
        host = self._found.get(i) if self.any else None
        if host is None:
            return i.shape.nbytes
        return sum(s.nbytes for s, away in zip(i.shape.leaves(), host, strict=True) if not away)

    def _note(self, i: Instruction, leaves: Leaves) -> None:
        if any(leaves) and self._found.get(i) != leaves:
            self._found[i] = leaves
            self._changed = True

    def _leaves(self, i: Instruction, c: Computation, *, entry: bool) -> Leaves:
        own = tuple(is_host(s) for s in i.shape.leaves())
        return _either(own, self._flow(i, c, entry=entry))

    def _flow(self, i: Instruction, c: Computation, *, entry: bool) -> Leaves:
        kind = memory_kind_of(i)
        none = (False,) * _count(i.shape)
        if kind is not None:
            return (kind == PINNED_HOST,)
        if i.opcode == "parameter":
            return none if entry else self._parameters.get(c, {}).get(i.attrs["index"], none)
        if i.opcode == "tuple":
            return tuple(h for o in i.operands for h in self.of(o))
        if i.opcode == "get-tuple-element":
            first = sum(map(_count, i.operands[0].shape.elements[: i.attrs["index"]]))
            return self.of(i.operands[0])[first : first + len(none)]
        if i.opcode == "dynamic-update-slice":
            return _either(self.of(i.operands[0]), self.of(i.operands[1]))
        return self._called(i, none)

    def _called(self, i: Instruction, none: Leaves) -> Leaves:
        """What flows through loops, branches and calls; and through what only passes its operand on."""
        if i.opcode == "while":
            state = _either(self.of(i.operands[0]), self.of(i.attrs["body"].root))
            for c in (i.attrs["condition"], i.attrs["body"]):
                self._give(c, 0, state)
            return state
        if i.opcode == "conditional":
            for c, operand in zip(branches_of(i.attrs), i.operands[1:], strict=True):
                self._give(c, 0, self.of(operand))
                none = _either(none, self.of(c.root))
            return none
        if i.opcode == "call":
            c = i.attrs["to_apply"]
            for n, operand in enumerate(i.operands):
                self._give(c, n, self.of(operand))
            return self.of(c.root)
        marker = i.opcode == "custom-call" and i.attrs["custom_call_target"] in MARKERS
        if i.opcode in _PASSED or is_view(i) or marker:
            passed = self.of(i.operands[0])
            return passed if len(passed) == len(none) else none
        return none

    def _give(self, c: Computation, index: int, leaves: Leaves) -> None:
        """What a computation is called with, here or elsewhere."""
        known = self._parameters.setdefault(c, {})
        made = _either(known[index], leaves) if index in known else leaves
        if known.get(index) != made:
            known[index] = made
            self._changed = True


def _either(a: Leaves, b: Leaves) -> Leaves:
    return tuple(x or y for x, y in zip(a, b, strict=True))


def shape_with(shape: Shape, host: Leaves) -> Shape:
    """``shape`` with these of its leaves in host memory."""
    return _with(shape, iter(host)) if any(host) else shape


def _with(shape: Shape, host: Iterator[bool]) -> Shape:
    if shape.is_tuple:
        return tuple_shape(*(_with(e, host) for e in shape.elements))
    return on_host(shape) if next(host) else shape
