"""How collectives are done, on any transport: fetch the pieces that a process needs, then combine them in place.

A transport only moves *pieces* (ranges of a device's operand) between processes; which pieces, and what becomes
of them, is decided here once. So results cannot differ between transports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call import CollectiveCall, CollectiveOperand
from shardc.collectives.membership import overlaps
from shardc.collectives.memory import Memory
from shardc.collectives.reduction import reduce_members

__all__ = ["Engine", "Limits", "Piece"]

Array = NDArray[Any]
Group = tuple[int, ...]


class Piece(NamedTuple):
    """Elements ``start .. start + length - 1`` of one operand of one device."""

    device: int
    operand: int
    start: int
    length: int


#: Sends and receives between processes: (call, outgoing arrays by process, incoming pieces by process) -> arrays.
Exchange = Callable[[CollectiveCall, Mapping[int, list[Array]], Mapping[int, list[Piece]]], dict[int, list[Array]]]


@dataclass(frozen=True, slots=True)
class Limits:
    """``chunk`` bounds the bytes that one exchange brings to a process. An all-reduce sends whole operands to
    everybody (one exchange) when that is at most ``small`` bytes more than cutting them (two exchanges)."""

    chunk: int = 1 << 28
    small: int = 1 << 16


@dataclass(frozen=True, slots=True)
class Engine:
    """Performs collectives for process ``me``; ``owner[d]`` is the process of device d."""

    me: int
    owner: Sequence[int]
    exchange: Exchange
    limits: Limits = Limits()

    def perform(
        self,
        call: CollectiveCall,
        members: Sequence[Group],
        memories: Mapping[int, Memory],
        most_processes: int = 1,
    ) -> None:
        """Do ``call`` for all groups (or pairs) in ``members`` that this process has a part in.

        ``most_processes`` is the largest number of processes in any group, also of those elsewhere: all processes
        must decide alike how often they exchange.
        """
        work = _Work(call, members, memories, self, most_processes)
        size = len(members[0]) if members and call.op != "collective-permute" else 1
        cut = size if call.op in ("reduce-scatter", "all-to-all") else 1
        for operands, lo, hi in _chunks(call.operands, size, cut, self.limits.chunk):
            work.run(operands, lo, hi)


def _chunks(
    operands: Sequence[CollectiveOperand], size: int, cut: int, limit: int
) -> Iterator[tuple[range, int, int | None]]:
    """Cut a call into steps that stay below ``limit`` bytes: (which operands, from element, to element)."""
    if sum(o.operand.nbytes for o in operands) * size // cut <= limit:
        yield range(len(operands)), 0, None
        return
    for i, o in enumerate(operands):
        total = o.count // cut
        step = max(1, limit // (o.dtype.nbytes * size))
        for lo in range(0, total, step):
            yield range(i, i + 1), lo, min(lo + step, total)


class _Work:
    """One call in progress."""

    def __init__(
        self,
        call: CollectiveCall,
        members: Sequence[Group],
        memories: Mapping[int, Memory],
        engine: Engine,
        most_processes: int,
    ) -> None:
        self.call = call
        self.most_processes = most_processes
        self.members = members
        self.memories = memories
        self.engine = engine
        self.size = len(members[0]) if members else 1
        copy = overlaps(call)
        self.sources = {
            (device, i): memory.view(o.operand, o.dtype).copy() if copy else memory.view(o.operand, o.dtype)
            for device, memory in memories.items()
            for i, o in enumerate(call.operands)
        }

    def run(self, operands: range, lo: int, hi: int | None) -> None:
        step = {
            "all-reduce": self._all_reduce,
            "all-gather": self._all_gather,
            "reduce-scatter": self._reduce_scatter,
            "all-to-all": self._all_to_all,
            "collective-permute": self._permute,
        }[self.call.op]
        cut = self.size if self.call.op in ("reduce-scatter", "all-to-all") else 1
        step([(i, lo, (self.call.operands[i].count // cut if hi is None else hi) - lo) for i in operands])

    def _processes(self, group: Group) -> list[int]:
        return list(dict.fromkeys(int(self.engine.owner[d]) for d in group))

    def _result(self, device: int, i: int) -> Array:
        o = self.call.operands[i]
        return self.memories[device].view(o.result, o.dtype)

    def _own(self, group: Group) -> Iterator[tuple[int, int]]:
        """(position, device) of the group's members in this process."""
        return ((p, d) for p, d in enumerate(group) if d in self.memories)

    def _read(self, piece: Piece) -> Array:
        return self.sources[piece.device, piece.operand][piece.start : piece.start + piece.length]

    def _fetch(
        self, needs: Iterable[tuple[int, Piece]], read: Callable[[Piece], Array] | None = None
    ) -> dict[Piece, Array]:
        """Bring pieces to the processes that read them: ``needs`` lists (reader, piece), alike on all processes."""
        me, owner, read = self.engine.me, self.engine.owner, read or self._read
        got: dict[Piece, Array] = {}
        outgoing: dict[int, list[Array]] = {}
        incoming: dict[int, list[Piece]] = {}
        for reader, piece in needs:
            sender = int(owner[piece.device])
            if sender == me:
                if reader == me:
                    got[piece] = read(piece)
                else:
                    outgoing.setdefault(reader, []).append(read(piece))
            elif reader == me:
                incoming.setdefault(sender, []).append(piece)
        for sender, arrays in self.engine.exchange(self.call, outgoing, incoming).items():
            got.update(zip(incoming[sender], arrays, strict=True))
        return got

    def _reduce(self, i: int, members: list[Array]) -> Array:
        return reduce_members(self.call.reduction, self.call.operands[i].dtype, members)

    def _all_reduce(self, ranges: list[tuple[int, int, int]]) -> None:
        nbytes = sum(count * self.call.operands[i].dtype.nbytes for i, _, count in ranges)
        # Either everybody gets all operands, or every process reduces its share and then the shares are exchanged.
        whole = nbytes * (self.most_processes - 2) <= self.engine.limits.small
        shares = {
            g: [(p, i, *r) for i, lo, n in ranges for p, r in self._shares(g, lo, n, whole)] for g in self.members
        }
        got = self._fetch(
            (reader, Piece(d, i, lo, n)) for g, share in shares.items() for reader, i, lo, n in share for d in g
        )
        totals: dict[tuple[Group, int, int], Array] = {}
        for g, share in shares.items():
            for reader, i, lo, n in share:
                if reader == self.engine.me:
                    totals[g, i, lo] = self._reduce(i, [got[Piece(d, i, lo, n)] for d in g])
        if not whole:
            totals = self._spread(shares, totals)
        for (g, i, lo), total in totals.items():
            for _, d in self._own(g):
                self._result(d, i)[lo : lo + total.size] = total

    def _shares(self, group: Group, lo: int, count: int, whole: bool) -> Iterator[tuple[int, tuple[int, int]]]:
        """(process, (from element, how many)) of what each process of a group reduces."""
        processes = self._processes(group)
        for j, p in enumerate(processes):
            first, last = (0, count) if whole else (count * j // len(processes), count * (j + 1) // len(processes))
            if last > first:
                yield p, (lo + first, last - first)

    def _spread(
        self,
        shares: Mapping[Group, list[tuple[int, int, int, int]]],
        totals: Mapping[tuple[Group, int, int], Array],
    ) -> dict[tuple[Group, int, int], Array]:
        """Give every process of a group the shares that the others reduced."""
        leader = {(g, int(self.engine.owner[d])): d for g in shares for d in reversed(g)}
        key_of = {Piece(leader[g, p], i, lo, n): (g, i, lo) for g, share in shares.items() for p, i, lo, n in share}
        needs = ((reader, piece) for piece, (g, _, _) in key_of.items() for reader in self._processes(g))
        got = self._fetch(needs, lambda piece: totals[key_of[piece]])
        return {key_of[piece]: array for piece, array in got.items()}

    def _all_gather(self, ranges: list[tuple[int, int, int]]) -> None:
        got = self._fetch(
            (reader, Piece(d, i, lo, n))
            for g in self.members
            for reader in self._processes(g)
            for i, lo, n in ranges
            for d in g
        )
        for g in self.members:
            for _, mine in self._own(g):
                for i, lo, n in ranges:
                    out = self._result(mine, i).reshape(self.size, -1)
                    for p, d in enumerate(g):
                        out[p, lo : lo + n] = got[Piece(d, i, lo, n)]

    def _chunk(self, device: int, i: int, position: int, lo: int, n: int) -> Piece:
        """The part of ``device``'s operand that belongs to the member at ``position``."""
        return Piece(device, i, position * (self.call.operands[i].count // self.size) + lo, n)

    def _fetch_chunks(self, ranges: list[tuple[int, int, int]]) -> dict[Piece, Array]:
        return self._fetch(
            (int(self.engine.owner[reader]), self._chunk(d, i, q, lo, n))
            for g in self.members
            for q, reader in enumerate(g)
            for i, lo, n in ranges
            for d in g
        )

    def _reduce_scatter(self, ranges: list[tuple[int, int, int]]) -> None:
        got = self._fetch_chunks(ranges)
        for g in self.members:
            for q, mine in self._own(g):
                for i, lo, n in ranges:
                    total = self._reduce(i, [got[self._chunk(d, i, q, lo, n)] for d in g])
                    self._result(mine, i)[lo : lo + n] = total

    def _all_to_all(self, ranges: list[tuple[int, int, int]]) -> None:
        got = self._fetch_chunks(ranges)
        for g in self.members:
            for q, mine in self._own(g):
                for i, lo, n in ranges:
                    out = self._result(mine, i).reshape(self.size, -1)
                    for p, d in enumerate(g):
                        out[p, lo : lo + n] = got[self._chunk(d, i, q, lo, n)]

    def _permute(self, ranges: list[tuple[int, int, int]]) -> None:
        got = self._fetch(
            (int(self.engine.owner[target]), Piece(source, i, lo, n))
            for source, target in self.members
            for i, lo, n in ranges
        )
        source_of = {target: source for source, target in self.members}
        for mine in self.memories:
            for i, lo, n in ranges:
                result = self._result(mine, i)[lo : lo + n]
                if mine in source_of:
                    result[...] = got[Piece(source_of[mine], i, lo, n)]
                else:
                    result.view(np.uint8)[...] = 0
