"""Loop nests and where code goes in them.

A `Frame` is a place for code: the function's entry or the body of a loop. Every value knows the frame that it lives
in, and an operation is emitted in the deepest frame of its operands, so that whatever does not change in a loop stands
before it without any pass moving it there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from shardc.native.math.vector import I64, constant, splat

__all__ = ["ForLoop", "Frame", "IfBlock", "Val", "apply", "deepest"]


class Frame:
    """A place for code; ``builder`` appends to it while it is open, even when loops inside it are open too."""

    __slots__ = ("builder", "depth", "open", "parent")

    def __init__(self, parent: Frame | None, builder: ir.IRBuilder) -> None:
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.builder = builder
        self.open = True

    @property
    def root(self) -> Frame:
        frame = self
        while frame.parent is not None:
            frame = frame.parent
        return frame


class Val:
    """A value of one element (``lanes`` 1: the same for all lanes) or of ``lanes`` elements, living in ``frame``.

    ``parts`` is one LLVM value, or two for complex numbers (real, imaginary).
    """

    __slots__ = ("_wide", "frame", "lanes", "parts")

    def __init__(self, parts: tuple[ir.Value, ...], frame: Frame, lanes: int = 1) -> None:
        self.parts = parts
        self.frame = frame
        self.lanes = lanes
        self._wide: dict[int, tuple[ir.Value, ...]] = {}

    @property
    def value(self) -> ir.Value:
        return self.parts[0]

    def wide(self, lanes: int) -> tuple[ir.Value, ...]:
        """The parts in ``lanes`` lanes; a splat is made once, where the value lives."""
        if self.lanes == lanes:
            return self.parts
        assert self.lanes == 1, f"{self.lanes} lanes used as {lanes}"
        found = self._wide.get(lanes)
        if found is None:
            found = self._wide[lanes] = tuple(splat(self.frame.builder, p, lanes) for p in self.parts)
        return found


def deepest(values: Sequence[Val], default: Frame) -> Frame:
    """The innermost frame of ``values``; all of them lie on one path from the entry."""
    frame = default
    for v in values:
        if v.frame.depth > frame.depth:
            frame = v.frame
    return frame


def apply(
    emit: Callable[..., ir.Value | tuple[ir.Value, ...]], values: Sequence[Val], at: Frame, lanes: int = 1
) -> Val:
    """Emit ``emit(builder, *parts)`` in the deepest frame of the operands (at least ``at``), over their widest lanes.

    One-part operands are passed as plain LLVM values, others as tuples.
    """
    frame = deepest(values, at)
    for v in values:
        lanes = max(lanes, v.lanes)
    arguments = [w if len(w) > 1 else w[0] for w in (v.wide(lanes) for v in values)]
    result = emit(frame.builder, *arguments)
    return Val(result if isinstance(result, tuple) else (result,), frame, lanes)


class ForLoop:
    """``for (i = start; i < end; i += step)`` inside ``parent``, at least once; bounds are numbers or i64 values.

    Code goes to ``frame`` until `close`; meanwhile ``parent`` stays open for code that belongs before the loop.
    """

    def __init__(self, parent: Frame, end: int | ir.Value, step: int = 1, start: int | ir.Value = 0) -> None:
        self._parent = parent
        self._head = parent.builder.function.append_basic_block("loop")
        self.frame = Frame(parent, ir.IRBuilder(self._head))
        self._start = constant(I64, start) if isinstance(start, int) else start
        self._step = step
        self._end = constant(I64, end) if isinstance(end, int) else end
        self._once = isinstance(start, int) and isinstance(end, int) and end <= start + step
        self.index: ir.Value = self._start if self._once else self.frame.builder.phi(I64)

    def close(self) -> None:
        """Link the loop into its parent, which goes on after it."""
        inner, outer = self.frame.builder, self._parent.builder
        self.frame.open = False
        after = outer.function.append_basic_block("after")
        if self._once:
            inner.branch(after)
        else:
            following = inner.add(self.index, constant(I64, self._step))
            inner.cbranch(inner.icmp_unsigned("<", following, self._end), self._head, after)
            self.index.add_incoming(self._start, outer.block)
            self.index.add_incoming(following, inner.block)
        outer.branch(self._head)
        outer.position_at_end(after)


class IfBlock:
    """``if (condition)`` inside ``parent``; code goes to ``frame`` until `close`."""

    def __init__(self, parent: Frame, condition: ir.Value) -> None:
        self._parent = parent
        self._condition = condition
        self._then = parent.builder.function.append_basic_block("then")
        self.frame = Frame(parent, ir.IRBuilder(self._then))

    def close(self) -> None:
        outer = self._parent.builder
        self.frame.open = False
        after = outer.function.append_basic_block("after")
        self.frame.builder.branch(after)
        outer.cbranch(self._condition, self._then, after)
        outer.position_at_end(after)
