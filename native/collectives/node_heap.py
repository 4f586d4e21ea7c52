"""Which operands and results other processes of a node can address: those in the heap that they share."""

from __future__ import annotations

from shardc.native.lowlevel.builtins import as_u64, inline
from shardc.native.lowlevel.kinds import address, i64

__all__ = ["is_in_heap"]


@inline
def is_in_heap(at: address, nbytes: i64, heap: address, heap_bytes: i64) -> bool:
    """Whether the bytes lie in this process's heap. If not, others use a stand-in that does."""
    offset = as_u64(at - heap)
    size = as_u64(heap_bytes)
    return offset < size and as_u64(offset + as_u64(nbytes)) <= size
