"""Records that emulated threads and their scheduler share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from llvmlite import ir

from shardc.native.llvm.flow import at_byte
from shardc.native.math.vector import I32, I64, PTR, constant

__all__ = [
    "COPY", "COPY_BYTES", "FAULT", "LAUNCH", "LAUNCH_BYTES", "MOST_COPIES", "SITE_KINDS", "STATE", "THREAD",
    "THREAD_BYTES", "WARP", "Field", "load_field", "site_number", "store_field",
]  # fmt: skip

WARP = 32
#: Copies that a thread may have under way.
MOST_COPIES = 256

#: What a thread does: it can run, waits for its warp or its block, or is done.
STATE = MappingProxyType({"ready": 0, "warp": 1, "block": 2, "done": 3})
#: What threads wait for; the low bits of a site's number.
SITE_KINDS = ("end", "barrier", "warp_barrier", "shuffle", "mma", "load_matrix")
FAULT = MappingProxyType({"none": 0, "diverged": 1, "shared": 2, "copies": 3, "memory": 4})


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record, or ``count`` of them."""

    at: int
    type: ir.Type
    count: int = 1


def _fields(rows: Sequence[tuple[str, ir.Type, int]]) -> tuple[Mapping[str, Field], int]:
    """(name, type, how many) one after another; and how many bytes that is."""
    at, found = 0, {}
    for name, t, count in rows:
        size = 4 if t == I32 else 8
        at = -(-at // size) * size
        found[name] = Field(at, t, count)
        at += size * count
    return MappingProxyType(found), at


#: A thread. ``slots``: what it shows to its warp, in turns, so that nobody overwrites what others still have to read.
THREAD, _used = _fields(
    [
        ("number", I32, 1), ("state", I32, 1), ("site", I32, 1), ("meetings", I32, 1), ("launch", PTR, 1),
        ("handle", PTR, 1), ("copies", PTR, 1), ("first_copy", I32, 1), ("next_copy", I32, 1), ("group", I32, 1),
        ("slots", I64, 16),
    ]
)  # fmt: skip
THREAD_BYTES = -(-_used // 64) * 64
#: A copy that is under way; no bytes: zeros.
COPY, COPY_BYTES = _fields([("to", PTR, 1), ("source", PTR, 1), ("nbytes", I32, 1), ("group", I32, 1)])
#: A launch, and the block that runs.
LAUNCH, LAUNCH_BYTES = _fields(
    [
        ("block", I32, 3), ("grid", I32, 3), ("threads", I32, 1), ("device", I32, 1), ("shared_bytes", I32, 1),
        ("guard_bytes", I32, 1), ("order", I32, 1), ("ran", I32, 1), ("fault", I32, 1), ("where", I32, 4),
        ("random", I64, 1), ("shared", PTR, 1), ("allocate", I64, 1), ("frames", PTR, 1), ("start", I64, 1),
        ("arrays", PTR, 1), ("contexts", PTR, 1), ("copies", PTR, 1), ("block_order", PTR, 1), ("warp_order", PTR, 1),
        ("lane_order", PTR, 1),
    ]
)  # fmt: skip


def site_number(count: int, kind: str) -> int:
    return count << 3 | SITE_KINDS.index(kind)


def _place(b: ir.IRBuilder, record: ir.Value, field: Field, index: int) -> ir.Value:
    return at_byte(b, record, constant(I64, field.at + index * (4 if field.type == I32 else 8)))


def load_field(b: ir.IRBuilder, record: ir.Value, field: Field, index: int = 0) -> ir.Value:
    return b.load(_place(b, record, field, index), typ=field.type)


def store_field(b: ir.IRBuilder, record: ir.Value, field: Field, value: ir.Value, index: int = 0) -> None:
    b.store(value, _place(b, record, field, index))
