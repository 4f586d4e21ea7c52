"""Who takes part in a collective: groups and pairs expanded to device ids, and checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call.call import CollectiveCall, CollectiveOperand
from shardc.collectives.call.reduction import supports_reduction
from shardc.hlo.errors import ShardcError, UnsupportedError, VerificationError
from shardc.hlo.ir.groups import AxisPairs, ListPairs
from shardc.hlo.units import count_text

__all__ = ["GROUP_OPS", "Ownership", "check_call", "connected_processes", "members_of", "overlaps"]

#: Collectives over replica groups; collective-permute is over pairs.
GROUP_OPS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all")


@dataclass(frozen=True, slots=True)
class Ownership:
    """Which process runs which devices: ``owners`` by device, or contiguous blocks, balanced to within one device.

    Example: 6 devices on 4 processes are owned as ``(0,) (1, 2) (3,) (4, 5)``.
    """

    num_devices: int
    num_processes: int
    owners: tuple[int, ...] = ()

    def devices(self, process: int) -> tuple[int, ...]:
        """The devices of ``process``, ascending."""
        if self.owners:
            return tuple(d for d, owner in enumerate(self.owners) if owner == process)
        n, k = self.num_devices, self.num_processes
        return tuple(range(process * n // k, (process + 1) * n // k))

    def table(self) -> NDArray[np.int64]:
        """Process of each device."""
        if self.owners:
            return np.array(self.owners, np.int64)
        counts = [len(self.devices(p)) for p in range(self.num_processes)]
        return np.repeat(np.arange(self.num_processes), counts)


def members_of(call: CollectiveCall, num_devices: int) -> tuple[tuple[int, ...], ...]:
    """Replica groups as device ids by position; for collective-permute the (source, target) pairs."""
    groups = call.groups.expand()
    if isinstance(call.groups, AxisPairs | ListPairs):
        return groups
    return groups or (tuple(range(num_devices)),)


def check_call(call: CollectiveCall, num_devices: int) -> tuple[tuple[int, ...], ...]:
    """Raise `VerificationError` unless groups, sizes and types of ``call`` fit together; return `members_of`."""
    members = members_of(call, num_devices)
    if call.op in GROUP_OPS:
        _check_groups(call, members, num_devices)
    elif call.op == "collective-permute":
        _check_pairs(call, members, num_devices)
    else:
        raise UnsupportedError(f"no transport supports {call.op}", where=_where(call))
    if call.op == "ragged-all-to-all":
        _check_ragged(call, len(members[0]))
    for operand in () if call.ragged else call.operands:
        _check_sizes(call, operand, len(members[0]) if call.op in GROUP_OPS else 1)
        if call.op in ("all-reduce", "reduce-scatter") and not supports_reduction(call.reduction, operand.dtype):
            raise UnsupportedError(
                f"{call.op} with reduction {call.reduction!r} of {operand.dtype} elements is not supported",
                where=_where(call),
            )
    if overlaps(call):
        raise _fail(call, "has a result that overlaps an operand")
    return members


def overlaps(call: CollectiveCall) -> bool:
    """Whether writing a result may destroy an operand that is still to be read.

    An all-reduce in place may not: a range is read by everybody before it is written. Nor may the output of a ragged
    exchange.
    """
    kept = range(len(call.operands)) if call.op == "all-reduce" else (1,) if call.ragged else ()
    for i, o in enumerate(call.operands):
        for j, r in enumerate(call.operands):
            a, b = o.operand, r.result
            same_place = (a.space, a.index) == (b.space, b.index)
            in_place = i in kept and i == j and a == b
            if same_place and not in_place and a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes:
                return True
    return False


def connected_processes(members: Sequence[Sequence[int]], table: NDArray[np.int64], processes: int) -> tuple[int, ...]:
    """For each process the smallest process that it exchanges data with, directly or through others.

    Processes with the same number form one communicator; one that talks to nobody stands alone.
    """
    parent = list(range(processes))

    def find(p: int) -> int:
        while parent[p] != p:
            parent[p] = parent[parent[p]]
            p = parent[p]
        return p

    for group in members:
        first = find(int(table[group[0]]))
        for device in group[1:]:
            other = find(int(table[device]))
            first, other = min(first, other), max(first, other)
            parent[other] = first
    return tuple(find(p) for p in range(processes))


def _where(call: CollectiveCall) -> str:
    return f"%{call.name}" + (f", {call.source}" if call.source else "")


def _fail(call: CollectiveCall, what: str) -> ShardcError:
    return VerificationError(f"{call.op} {what}", where=_where(call), fix="this is a compiler error: please report it")


def _check_groups(call: CollectiveCall, members: Sequence[Sequence[int]], num_devices: int) -> None:
    everyone = sorted(d for group in members for d in group)
    if everyone != list(range(num_devices)):
        raise _fail(call, f"has groups that do not cover each of {count_text(num_devices, 'device')} once")
    if len({len(group) for group in members}) != 1:
        raise _fail(call, "has groups of different sizes")


def _check_pairs(call: CollectiveCall, pairs: Sequence[Sequence[int]], num_devices: int) -> None:
    for position, role in ((0, "source"), (1, "target")):
        ends = [pair[position] for pair in pairs]
        if len(set(ends)) != len(ends):
            raise _fail(call, f"has a device that is {role} of two pairs")
        if any(not 0 <= d < num_devices for d in ends):
            raise _fail(call, f"has a {role} outside of 0..{num_devices - 1}")


def _check_sizes(call: CollectiveCall, operand: CollectiveOperand, size: int) -> None:
    count, item = operand.count, operand.dtype.nbytes
    if call.op in ("reduce-scatter", "all-to-all") and count % size:
        raise _fail(call, f"of {count_text(count, 'element')} cannot be cut into {size} chunks")
    result = {"all-gather": count * size, "reduce-scatter": count // size}.get(call.op, count)
    found = (operand.operand.nbytes, operand.result.nbytes)
    if found != (count * item, result * item):
        raise _fail(
            call, f"has buffers of {found[0]} and {found[1]} bytes for {count_text(count, 'element')} of {item}"
        )


def _check_ragged(call: CollectiveCall, size: int) -> None:
    shape = call.ragged
    if shape is None or len(call.operands) != 6:
        raise _fail(call, "does not have the six operands of a ragged exchange")
    data, output, *tables = call.operands
    wanted = (shape.data_rows * shape.row_bytes, shape.output_rows * shape.row_bytes)
    if (data.operand.nbytes, output.operand.nbytes) != wanted or output.result.nbytes != wanted[1]:
        raise _fail(call, "has buffers whose sizes do not match its rows")
    counts = {t.count for t in tables}
    if len(counts) != 1 or max(counts) % size or any(t.operand.nbytes != 8 * t.count for t in tables):
        raise _fail(call, f"has tables of {sorted(counts)} updates for {size} members")
