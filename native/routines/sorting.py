"""Sorting rows of any length: a stable bottom-up merge sort.

An element and its key lie together in 64 bits, the key above. Keys of floats are their magnitudes with their signs, so
that zeros are equal; NaNs are behind all others, and equal.
"""

from __future__ import annotations

from shardc.native.lowlevel.builtins import as_i32, as_i64, copy_memory, inline
from shardc.native.lowlevel.kinds import address, i32, i64, u32, u64
from shardc.native.lowlevel.records import Record
from shardc.native.routines.records import SortCall

__all__ = ["sort_rows"]

_INFINITY, _LAST = 0x7F800000, 0x7FFFFFFF


class _Element(Record):
    value: u32


class _Keyed(Record):
    value: u32
    key: i32


class _Pair(Record):
    value: u64


def sort_rows(call: SortCall, to: address, source: address, scratch: address) -> None:
    """All rows, one after another; ``scratch`` has room for each element of a row twice, in 8 bytes."""
    row_bytes = call.length * call.stride * 4
    for row in range(call.rows):
        begin = (row // call.stride) * row_bytes + (row % call.stride) * 4
        _read(call, source + begin, scratch)
        _write(call, to + begin, _sort(call.length, scratch, scratch + call.length * 8))


def _read(call: SortCall, source: address, target: address) -> None:
    for _ in range(call.length):
        bits = _Element.at(source).value
        keyed = _Keyed.at(target)
        keyed.value = bits
        keyed.key = as_i32(bits)
        if call.is_float != 0:
            magnitude = as_i64(bits) & _LAST
            if magnitude > _INFINITY:
                magnitude = _LAST
            elif magnitude != as_i64(bits):
                magnitude = -magnitude
            keyed.key = as_i32(magnitude)
        source += call.stride * 4
        target += 8


def _write(call: SortCall, to: address, source: address) -> None:
    for _ in range(call.length):
        _Element.at(to).value = _Keyed.at(source).value
        to += call.stride * 4
        source += 8


def _sort(length: i64, source: address, target: address) -> address:
    """Merge runs of doubling width, from one place to the other; where the row lies in the end."""
    width = 1
    while width < length:
        low = 0
        while low < length:
            _merge(source, target, low, min(low + width, length), min(low + 2 * width, length))
            low += 2 * width
        other = source
        source = target
        target = other
        width *= 2
    return source


@inline
def _merge(source: address, target: address, low: i64, middle: i64, high: i64) -> None:
    """Two sorted runs into one; the left one wins ties."""
    left = source + low * 8
    right = source + middle * 8
    left_end = right
    right_end = source + high * 8
    to = target + low * 8
    while left < left_end and right < right_end:
        takes_right = as_i64(_Keyed.at(right).key < _Keyed.at(left).key)
        _Pair.at(to).value = _Pair.at(right if takes_right != 0 else left).value
        right += 8 * takes_right
        left += 8 - 8 * takes_right
        to += 8
    if left < left_end:
        copy_memory(to, left, left_end - left)
    if right < right_end:
        copy_memory(to, right, right_end - right)
