"""Plain loops for kernels that are algorithms rather than maps (sorting, factorisations)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from llvmlite import ir

from shardc.native.math.vector import I64, constant

__all__ = ["for_range", "nest", "while_"]


@contextmanager
def for_range(
    b: ir.IRBuilder, start: int | ir.Value, end: int | ir.Value, step: int | ir.Value = 1
) -> Iterator[ir.Value]:
    """``for (i = start; i < end; i += step)`` with signed i64 ``i``; the body may run no time."""
    start, end, step = (constant(I64, x) if isinstance(x, int) else x for x in (start, end, step))
    before = b.block
    head, body, after = (b.append_basic_block(name) for name in ("for", "do", "done"))
    b.branch(head)
    b.position_at_end(head)
    index = b.phi(I64)
    index.add_incoming(start, before)
    b.cbranch(b.icmp_signed("<", index, end), body, after)
    b.position_at_end(body)
    yield index
    index.add_incoming(b.add(index, step), b.block)
    b.branch(head)
    b.position_at_end(after)


@contextmanager
def nest(b: ir.IRBuilder, sizes: Sequence[int]) -> Iterator[list[ir.Value]]:
    """One `for_range` loop per size, outermost first."""
    with ExitStack() as stack:
        yield [stack.enter_context(for_range(b, 0, n)) for n in sizes]


@contextmanager
def while_(b: ir.IRBuilder) -> Iterator[tuple[ir.Block, ir.Block]]:
    """A loop whose condition the body evaluates: branch to the first block to go on, to the second to leave.

    The body must end every path itself, except its last block, which goes on.
    """
    head, after = b.append_basic_block("while"), b.append_basic_block("done")
    b.branch(head)
    b.position_at_end(head)
    yield head, after
    if not b.block.is_terminated:
        b.branch(head)
    b.position_at_end(after)
