"""The collective executor of ranks of one node, which address each other's memory.

See `shardc.collectives.shared_memory.native_executor` for how a collective goes,
`shardc.collectives.shared_memory.heap` for the memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardc.collectives.call.call import CollectiveCall, SharedSection
from shardc.collectives.call.control_table import row_offset
from shardc.collectives.call.membership import Ownership
from shardc.collectives.call.ragged import name_devices, ragged_fault
from shardc.collectives.call.stamp import StepStamp, Told
from shardc.collectives.engine.engine_calls import MadeCall, cell_of
from shardc.collectives.shared_memory.native_executor import MISMATCH, UNFINISHED
from shardc.collectives.shared_memory.node import ComputeNode
from shardc.collectives.shared_memory.plan import SMALL, CallPlan, ChannelEntry, SharedChannel, plan_calls, signature_of
from shardc.collectives.shared_memory.program_memory import ProgramMemory, reserve
from shardc.collectives.shared_memory.records import HEAD, SLOTS, CallRecord, ChannelRecord, ShareRecord, StateRecord
from shardc.collectives.shared_memory.sections import plan_sections
from shardc.hlo.errors import RunError
from shardc.native.collectives.work import WRONG_ROWS, Cell
from shardc.native.lowlevel.records import address_of, reference
from shardc.native.threads.pool import Pool, Row

__all__ = ["SharedMemoryExecutor"]

#: Bytes that a process moves from which on the pool's threads take part; bytes of a piece of the work, about.
_SEVERAL, _PIECE = 1 << 20, 1 << 18
#: The most pieces of a group's work for each process.
_PIECES = 16
#: Bytes per nanosecond that one thread moves, about.
_SPEED = 8


class SharedMemoryExecutor:
    """Does the collectives of one program among the processes of a node; see `shardc.collectives.call.transport`.

    Making one is collective. ``ownership`` is over the node's processes by position. Collectives whose operands have at
    most ``small`` bytes in all, over the processes that they connect, are done on copies.
    """

    def __init__(
        self,
        node: ComputeNode,
        calls: Sequence[CollectiveCall],
        ownership: Ownership,
        rows: ctypes.Array[Row],
        pool: Pool,
        sections: Sequence[SharedSection] = (),
        *,
        small: int = SMALL,
    ) -> None:
        self._node = node
        self._calls = {c.index: c for c in calls}
        plans, channels = plan_calls(calls, ownership, node.position, small)
        self._processes = {p.call.index: p.processes for p in plans}
        self._memory = reserve(node, plans, channels, rows, plan_sections(sections, ownership))
        builder = _RecordBuilder(node, pool, rows, self._memory, self._memory.keep)
        self._record = StateRecord(
            heap=node.heap.address,
            heap_bytes=node.heap.size,
            status=node.control.address + row_offset("state"),
            helper_status=node.control.address + row_offset("helper_state"),
            spin=node.spin,
            cores=node.cores,
            parallel=pool.address(),
        )
        self.state = ctypes.addressof(self._record)
        records = builder.fill(self._record, plans, channels)
        #: How the program and its arguments are called.
        self.told = Told()
        self._plans = {p.call.index: p for p in plans}
        self._ragged = {n: records[n] for n, c in self._calls.items() if c.ragged}
        self._asynchronous = {n: records[n] for n, c in self._calls.items() if c.asynchronous}
        self.function = node.code.function
        helps = node.helper and any(p.call.asynchronous and p.direct for p in plans)
        self.threads = int(helps)
        self._memory.attend(self._record, helps=helps)

    @property
    def program(self) -> int:
        """The program's number in the control table."""
        return int(self._record.stamp.program)

    @program.setter
    def program(self, number: int) -> None:
        self._record.stamp.program = number

    def stamp(self, step: int, values: int, weighted: int) -> None:
        """What the next step's collectives say of it; see `shardc.collectives.call.stamp`."""
        stamp = self._record.stamp
        stamp.step, stamp.values, stamp.weighted = step, values, weighted

    def transfers(self) -> Mapping[int, tuple[int, int]]:
        """For each asynchronous collective by index: how often this process completed it, and the nanoseconds that its
        transfers took in all.

        Where a thread does the transfers, one takes from its start to the end of this process's work on it; otherwise
        it takes as long as the last one came later than this process, and the work.
        """
        return {n: (int(r.transfers), int(r.transfer_ns)) for n, r in self._asynchronous.items()}

    def tick(self) -> None:
        """Nothing: the driver's watchdog knows what is waited for."""

    def failure(self, code: int, index: int) -> BaseException:
        call = self._calls.get(index)
        where = (call.source or f"%{call.name}") if call is not None else None
        if code == MISMATCH:
            record, ranks = self._record, self._node.ranks
            found = record.found
            mine, other = (ranks[p] for p in (self._node.position, self._processes[index][record.found_member]))
            stamps = (
                StepStamp(record.stamp.step, record.stamp.values, record.stamp.weighted),
                StepStamp(found.stamp.step, found.stamp.values, found.stamp.weighted),
            )
            different = self.told.difference(*stamps, (mine, other), where)
            if different is not None and found.index == index:
                return different
            return RunError(
                f"rank {other} is in {self._title(found.index)}, but rank {mine} is in {self._title(index)}",
                where=where,
                fix="the ranks took different branches: a condition around collectives must have the same value "
                "on all ranks",
            )
        fault = self._ragged_fault(index) if code == WRONG_ROWS else None
        if fault is not None:
            return fault
        if code == UNFINISHED:
            return RunError(
                f"{self._title(index)} was started in a step that was aborted",
                where=where,
                fix="load the program again on all ranks",
            )
        return RunError(
            f"{self._title(index)} does not exist, or was not started",
            where=where,
            fix="this is a compiler error: please report it",
        )

    def close(self) -> None:
        """The program is gone here; its memory is free when that is so on all ranks."""
        self._memory.close()

    def row_bytes(self) -> Mapping[int, float]:
        """For each ragged exchange by index: the bytes of rows that a device has sent so far, on average."""
        return {n: int(r.row_bytes) / sum(map(len, self._groups(n))) for n, r in self._ragged.items()}

    def _groups(self, index: int) -> list[tuple[int, ...]]:
        """The groups that this process's record of a collective has work of, in its order."""
        plan = self._plans[index]
        return [tuple(plan.device_at(p) for p in s.sources[: s.members] if p is not None) for s in plan.shares()]

    def _ragged_fault(self, index: int) -> RunError | None:
        """The first group whose rows do not fit."""
        record, plan = self._ragged[index], self._plans[index]
        rank = {d: self._node.ranks[p] for p, ds in zip(plan.processes, plan.devices, strict=True) for d in ds}
        for n, group in enumerate(self._groups(index)):
            share = record.shares[n]
            pointers = [share.operands[k] for k in range(share.count)]
            found = ragged_fault(plan.call, group, pointers, name_devices(rank.__getitem__))
            if found is not None:
                return found
        return None

    def _title(self, index: int) -> str:
        call = self._calls.get(index)
        return f"collective {index}" if call is None else f"{call.op} %{call.name} (collective {index})"


def pieces_of(nbytes: int, lines: int, processes: int) -> int:
    """Into how many pieces to cut the work of a group that moves ``nbytes`` in ``lines`` cache lines."""
    wanted = min(max(nbytes // _PIECE, processes), _PIECES * processes)
    return max(1, min(wanted, lines))


@dataclass(frozen=True)
class _RecordBuilder:
    """Makes the records of a program's collectives; what they point to goes to ``keep``."""

    node: ComputeNode
    pool: Pool
    rows: ctypes.Array[Row]
    memory: ProgramMemory
    keep: list[Any]

    def fill(
        self, state: StateRecord, plans: Sequence[CallPlan], channels: Sequence[SharedChannel]
    ) -> dict[int, CallRecord]:
        """All channels and collectives; returns the latter by index."""
        connected = {c.processes: self._channel(c) for c in channels}
        calls = (ctypes.c_void_p * max(1, 1 + max((p.call.index for p in plans), default=-1)))()
        records = {}
        for plan, staging in zip(plans, self.memory.staging, strict=True):
            record = records[plan.call.index] = self._call(plan, connected[plan.processes], staging)
            calls[plan.call.index] = ctypes.addressof(record)
        state.calls, state.count = reference(self._keep_alive(calls)), len(calls)
        entries = 1 << len(plans).bit_length()
        state.queue.calls, state.queue.mask = reference(self._keep_alive((ctypes.c_void_p * entries)())), entries - 1
        return records

    def _channel(self, channel: SharedChannel) -> ChannelRecord:
        heaps = [self.node.heaps.addresses[p] for p in channel.processes]
        record = ChannelRecord(
            slots=self.memory.slots[channel.number],
            records=self._integer_table(self.memory.records[channel.number]),
            heaps=self._integer_table(heaps),
            pending=self._keep_alive((ctypes.c_void_p * SLOTS)()),
            bases=self._integer_table([0] * SLOTS),
            members=len(channel.processes),
            position=channel.processes.index(self.node.position),
            stride=channel.stride,
            number=channel.number,
        )
        self.keep.append(record)
        return record

    def _call(self, plan: CallPlan, channel: ChannelRecord, staging: Sequence[int]) -> CallRecord:
        call, mine = plan.call, plan.entries(plan.position)
        refs = plan.refs(plan.position)
        width = max(plan.entries(m) for m in range(len(plan.processes)))
        devices = len(plan.devices[plan.position])
        mail = plan.mail()
        record = CallRecord(
            channel=ctypes.addressof(channel),
            cells=self._cells([cell_of(self.rows[d], ref) for d, ref in refs]),
            own=self._integer_table([0] * mine),
            sizes=self._integer_table([ref.nbytes for _, ref in refs]),
            staging=self._integer_table(staging),
            mail=self._integer_table([n * mail[-1] + at for n in range(devices) for at in mail[:-1]]),
            member_records=self._integer_table([0] * len(plan.processes)),
            imported=self._integer_table([0] * (width * len(plan.processes))),
            entries_of=self._integer_table([plan.entries(m) for m in range(len(plan.processes))]),
            entries=mine,
            operands=mine // 2,
            width=width,
            direct=int(plan.direct),
            index=call.index,
            signature=signature_of(call),
        )
        self.keep.append(record)
        self._add_shares(plan, record)
        return record

    def _add_shares(self, plan: CallPlan, record: CallRecord) -> None:
        wanted = plan.shares()
        shares = (ShareRecord * max(1, len(wanted)))()
        made: MadeCall | None = None
        processes = len(plan.processes)
        for row, share in zip(shares, wanted, strict=False):
            made = made or self.node.code.work.call(plan.call, share.members)
            self.keep.append(made)
            row.work, row.count, row.first = made.address, len(share.sources), record.pieces
            row.pieces = pieces_of(made.record.bytes, made.record.lines, processes)
            row.sources = self._cells([self._source(plan, record, p) for p in share.sources])
            row.targets = self._cells([self._target(plan, record, p) for p in share.targets])
            row.operands, row.results = (self._integer_table([0] * len(share.sources)) for _ in range(2))
            record.pieces += row.pieces if plan.direct else 0
            record.nanoseconds += made.record.bytes // (processes * _SPEED)
        record.checks = processes if plan.direct and plan.call.ragged else 0
        record.threads = min(64, record.pieces) if record.nanoseconds * _SPEED >= _SEVERAL else 1
        record.shares, record.share_count = reference(self._keep_alive(shares)), len(wanted)

    def _source(self, plan: CallPlan, record: CallRecord, place: ChannelEntry | None) -> Cell:
        if place is None:
            return Cell()
        if plan.direct:
            return self._import_cell(plan, record, place)
        mail = plan.mail()
        device, operand = divmod(place.entry, len(plan.call.operands))
        return Cell(address_of(record.member_records) + 8 * place.member, HEAD + device * mail[-1] + mail[operand])

    def _target(self, plan: CallPlan, record: CallRecord, place: ChannelEntry | None) -> Cell:
        if place is None:
            return Cell()
        return (
            self._import_cell(plan, record, place) if plan.direct else Cell(address_of(record.own) + 8 * place.entry, 0)
        )

    def _import_cell(self, plan: CallPlan, record: CallRecord, place: ChannelEntry) -> Cell:
        number, ref = plan.ref(place)
        shared = self.memory.sections.address(plan.devices[place.member][number], ref)
        if shared is not None:
            return Cell(self._integer_table([shared]), 0)
        return Cell(address_of(record.imported) + 8 * (place.member * record.width + place.entry), 0)

    def _cells(self, cells: Sequence[Cell]) -> int:
        return self._keep_alive((Cell * max(1, len(cells)))(*cells))

    def _integer_table(self, values: Sequence[int]) -> int:
        return self._keep_alive((ctypes.c_int64 * max(1, len(values)))(*values))

    def _keep_alive(self, table: ctypes.Array[Any]) -> int:
        self.keep.append(table)
        return ctypes.addressof(table)
