"""One collective as the compiled step gives it to a transport: plain data, the same on every rank.

The compiler's *lower* half rewrites every collective so that it works on whole, contiguous buffers and the group
dimension is the leading one; a transport never has to know about array dimensions.

==================== ======================== ========================= ==========================================
op                   operand elements         result elements           meaning, g members at positions 0..g-1
==================== ======================== ========================= ==========================================
all-reduce           n                        n                         reduction over members, same bits for all
all-gather           n                        g * n                     operands in order of position
reduce-scatter       g * n                    n                         chunk [position] of the reduction
all-to-all           g * n                    g * n                     chunk j goes to member j
collective-permute   n                        n                         the sender's operand; zeros without sender
ragged-all-to-all    see `RaggedShape`                                  rows go where their sender says
==================== ======================== ========================= ==========================================

Reductions combine members by one fixed tree over group positions, whatever the transport.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardc.hlo.ir.groups import Pairs, ReplicaGroups
from shardc.hlo.ir.types import DType

__all__ = ["SECTION_ALIGNMENT", "BufferRef", "CollectiveCall", "CollectiveOperand", "RaggedShape", "SharedSection"]


@dataclass(frozen=True, slots=True)
class BufferRef:
    """A place in a device's memory.

    ``space`` is ``arena``, ``argument``, ``result`` or ``constant``; ``index`` selects the argument or result (0
    otherwise); ``offset`` and ``nbytes`` are in bytes.
    """

    space: str
    index: int
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class CollectiveOperand:
    """One operand and its result (a combined collective has several); ``count`` is in elements of the operand.

    ``wanted`` numbers groups of devices (`Executable.once`) of which only the first in a process needs the result; -1:
    everybody does.
    """

    operand: BufferRef
    result: BufferRef
    dtype: DType
    count: int
    wanted: int = -1


@dataclass(frozen=True, slots=True)
class RaggedShape:
    """Rows of a ragged exchange: of the data, of the output, and the bytes of one.

    The six operands are data, output, and four tables of s64 with g * k elements: starts, sizes, targets and received
    sizes. Element j * k + n of the first three is update n for member j: rows ``start`` to ``start + size`` of the data
    become rows ``target`` to ``target + size`` of its result, which is the output elsewhere. Element p * k + n of the
    last is the size of update n of member p. The result is the second operand's, perhaps in its place; the others' have
    no bytes. `shardc.collectives.call.ragged` says what tables must fulfil.
    """

    data_rows: int
    output_rows: int
    row_bytes: int


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """A suspension point of the step: ``index`` is what the native function returns there.

    ``op`` as in the table above, ``reduction`` is ``add``, ``maximum``, ``minimum``, ``multiply``, ``and``, ``or``
    or empty; ``groups`` are replica groups, or pairs for collective-permute. ``name``, ``source`` and ``reason``
    are for messages: the instruction, ``file:line``, and why the partitioner put it there.

    ``ragged`` is there for a ragged-all-to-all.

    ``asynchronous``: ``index`` is returned where it starts, and ``index | WAIT`` where its results are needed
    (`shardc.compiler.executable`). In between nobody touches operands and results.
    """

    index: int
    op: str
    reduction: str
    groups: ReplicaGroups | Pairs
    operands: tuple[CollectiveOperand, ...]
    name: str = ""
    source: str = ""
    reason: str = ""
    asynchronous: bool = False
    ragged: RaggedShape | None = None


@dataclass(frozen=True, slots=True)
class SharedSection:
    """Bytes ``offset`` to ``offset + nbytes`` of the arena, where the members of each of ``groups`` see the same.

    Nothing but results of all-reduces and all-gathers over ``groups`` is written there, so members whose arenas lie on
    one machine may have one memory for it; members that cannot have memory of their own each. ``offset`` is a multiple
    of `SECTION_ALIGNMENT`.
    """

    offset: int
    nbytes: int
    groups: ReplicaGroups


#: Bytes: a page on most machines.
SECTION_ALIGNMENT = 4096
