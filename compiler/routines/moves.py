"""Operations that move elements, as calls of routines."""

from __future__ import annotations

from shardc.compiler.lower.lowered import KernelStep
from shardc.compiler.routines.writer import TableWriter

__all__ = [
    "write_broadcast", "write_concatenate", "write_pad", "write_reverse", "write_slice", "write_transpose",
]  # fmt: skip


def write_broadcast(writer: TableWriter, step: KernelStep) -> None:
    to, source = writer.result(step), writer.operand(step, 0)
    writer.move(to, source.broadcast(to.dims, step.instruction.attrs["dimensions"]))


def write_transpose(writer: TableWriter, step: KernelStep) -> None:
    source = writer.operand(step, 0)
    writer.move(writer.result(step), source.permute(step.instruction.attrs["dimensions"]))


def write_slice(writer: TableWriter, step: KernelStep) -> None:
    source = writer.operand(step, 0)
    writer.move(writer.result(step), source.slice(step.instruction.attrs["slice"]))


def write_reverse(writer: TableWriter, step: KernelStep) -> None:
    source = writer.operand(step, 0)
    writer.move(writer.result(step), source.reverse(step.instruction.attrs["dimensions"]))


def write_concatenate(writer: TableWriter, step: KernelStep) -> None:
    to, (along,) = writer.result(step), step.instruction.attrs["dimensions"]
    begin = 0
    for number in range(len(step.operands)):
        source = writer.operand(step, number)
        end = begin + source.dims[along]
        ranges = [(begin, end, 1) if d == along else (0, n, 1) for d, n in enumerate(to.dims)]
        writer.move(to.slice(ranges), source)
        begin = end


def write_pad(writer: TableWriter, step: KernelStep) -> None:
    """The value everywhere, then the operand; negative edges cut elements off."""
    to, source, value = (writer.result(step), writer.operand(step, 0), writer.operand(step, 1))
    there, here = [], []
    for size, n, (low, _, gap) in zip(to.dims, source.dims, step.instruction.attrs["padding"], strict=True):
        every = gap + 1
        first = max(0, -(low // every))
        past = max(first, min(n, (size - 1 - low) // every + 1))
        here.append((first, past, 1))
        there.append((low + first * every, low + first * every + (past - first - 1) * every + 1, every))
    writer.move(to, value.broadcast(to.dims, ()))
    if all(past > first for first, past, _ in here):
        writer.move(to.slice(there), source.slice(here))
