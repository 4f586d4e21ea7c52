"""Programs that are tables of calls of routines.

To generate the code of the smallest function takes LLVM as long as all else that compiles it, and that of a convolution
ten times as long; routines are compiled once on a machine. They know sizes when they run, so they take longer than code
made for them: by less than a nanosecond for each piece of memory that is moved, and up to twice as long for products.
Compiling costs seconds too: a program is a table where all that it does is moving, multiplying and sorting, so little
of it (the limits of `writer`) that a thousand runs lose less than the code costs. What is larger, or computes anything
else, gets code of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from shardc.compiler.lower.lowered import BufferCopy, KernelStep, Lowered
from shardc.compiler.routines.moves import (
    write_broadcast,
    write_concatenate,
    write_pad,
    write_reverse,
    write_slice,
    write_transpose,
)
from shardc.compiler.routines.products import write_dot
from shardc.compiler.routines.writer import RoutineTable, TableWriter, TooLarge
from shardc.native.llvm.target import Target

__all__ = ["WRITERS", "routine_table"]


def _convolution(writer: TableWriter, step: KernelStep) -> None:
    from shardc.compiler.routines.convolutions import write_convolution  # most programs have none

    write_convolution(writer, step)


def _sort(writer: TableWriter, step: KernelStep) -> None:
    from shardc.compiler.routines.sorting import write_sort

    write_sort(writer, step)


#: What writes an operation's calls, by opcode: those of `KNOWN`.
WRITERS: Mapping[str, Callable[[TableWriter, KernelStep], None]] = MappingProxyType(
    {
        "broadcast": write_broadcast,
        "concatenate": write_concatenate,
        "convolution": _convolution,
        "dot": write_dot,
        "pad": write_pad,
        "reverse": write_reverse,
        "slice": write_slice,
        "sort": _sort,
        "transpose": write_transpose,
    }
)


def routine_table(lowered: Lowered, target: Target) -> RoutineTable | None:
    """The table of a program that may be one (`may_be_table`); None where it is too large."""
    writer = TableWriter(lowered.plan, target)
    try:
        for step in lowered.steps:
            if isinstance(step, KernelStep):
                WRITERS[step.instruction.opcode](writer, step)
            elif isinstance(step, BufferCopy):
                writer.copy(step.target, step.source)
    except TooLarge:
        return None
    return writer.table(lowered.constants.data)
