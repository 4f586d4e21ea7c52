"""Executes collectives by messages: tables of `shardc.native.collectives.messages`, and what failures mean."""

from __future__ import annotations

import ctypes
import hashlib
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from shardc.collectives.call.call import BufferRef, CollectiveCall
from shardc.collectives.call.control_table import row_offset
from shardc.collectives.call.memory import aligned_bytes
from shardc.collectives.call.stamp import SAME_CALLS, StepStamp, Told
from shardc.collectives.engine.engine_calls import WorkCode, cell_of
from shardc.collectives.engine.plan_messages import MessagePlan
from shardc.collectives.engine.steps import (
    ArriveStep,
    AwaitArrivalStep,
    BeginStep,
    BringBackStep,
    CheckHeaderStep,
    CopyBytesStep,
    HeaderStep,
    ImportStep,
    MessageStep,
    PublishStep,
    ReceiveRowsStep,
    ReceiveStep,
    ReduceStep,
    SendRowsStep,
    SendStep,
    StepPlace,
    WaitStep,
    ZeroStep,
)
from shardc.collectives.mpi.functions import MpiFunctions
from shardc.collectives.mpi.row_records import RowRecords
from shardc.collectives.shared_memory.node import ComputeNode
from shardc.collectives.shared_memory.node_memory import NodeMeeting, NodeMemory
from shardc.hlo.errors import RunError, ShardcError
from shardc.native.collectives import messages as native
from shardc.native.collectives.work import WRONG_ROWS
from shardc.native.llvm.jit import Loaded
from shardc.native.lowlevel.records import RELAXED, RELEASE, reference
from shardc.native.threads.pool import PARALLEL, Pool, Row

__all__ = ["MessageChannel", "MessageExecutor", "PlannedCollective", "describe_call"]


#: Steps that post a message.
_POSTS = SendStep | ReceiveStep | SendRowsStep | ReceiveRowsStep
#: A process that was not asked for this many seconds was stopped itself: the time does not count.
_PAUSE = 2.0

#: Bytes of operands from which on a thread does what has been started.
_WORTH_HELP = 1 << 12
#: Seconds that messages of other nodes may take longer than the ranks of this node: those there know better why.
_FAR = 2.0


@dataclass(slots=True)
class _MessageWait:
    """A wait: since when (its native clock), when it was looked at last, and the seconds of it that do not count."""

    since: int
    last: float
    lost: float


@dataclass(frozen=True, slots=True, eq=False)
class MessageChannel:
    """The ``ranks`` that some collectives connect, and a communicator of all ranks of the job for their messages alone:
    ranks may post messages of different channels in different orders. ``counter``: how many exchanges have begun."""

    communicator: Any
    handle: int
    ranks: tuple[int, ...]
    counter: ctypes.c_int64 = field(default_factory=ctypes.c_int64)


@dataclass(frozen=True, slots=True)
class PlannedCollective:
    """A checked collective, what this process does in it, where its messages go, and with whom of its node it meets.

    A ragged exchange has the ``groups`` and ``owner`` of devices too."""

    call: CollectiveCall
    plan: MessagePlan
    channel: MessageChannel
    meeting: NodeMeeting | None = None
    groups: Sequence[tuple[int, ...]] = ()
    owner: Sequence[int] = ()


class MessageExecutor:
    """Performs ``planned`` collectives on the devices of ``rows``; with those of the ``node`` in its memory.

    ``ranks`` are by process the numbers in the job, ``hosts`` by these, for messages; ``timeout`` and ``spin`` in
    seconds, see `shardc.collectives.mpi.transport.MpiTransport`.
    ``helper``: a thread does what has been started, the same choice on all ranks.
    """

    threads = 0

    def __init__(
        self,
        planned: Sequence[PlannedCollective],
        rows: ctypes.Array[Row],
        pool: Pool,
        functions: MpiFunctions,
        code: WorkCode,
        *,
        timeout: float,
        spin: float,
        node: ComputeNode | None = None,
        ranks: Sequence[int] = (),
        hosts: Sequence[str] = (),
        helper: bool = False,
    ) -> None:
        self._planned = {p.call.index: p for p in planned}
        self._functions = functions
        self._code = code
        self._rows = {int(row.device): row for row in rows}
        self._timeout = timeout
        self._node = node
        self._ranks, self._hosts = ranks, hosts
        self._keep: list[Any] = [rows, pool]
        meetings = [p.meeting for p in planned if p.meeting is not None]
        alone = node is None or len(node.ranks) == 1
        self._near = None if node is None or alone else NodeMemory(node, meetings, self._rows)
        self._channels: dict[MessageChannel, native.Channel] = {}
        self._entries: dict[int, tuple[int, int]] = {}
        shared = max((p.plan.scratch for p in planned if not p.call.asynchronous), default=0)
        self._scratch = self._pointer(self._memory(shared))
        self._ragged: dict[int, RowRecords] = {}
        self._calls: dict[int, native.Call] = {}
        table = (ctypes.c_void_p * (max(self._planned, default=0) + 1))()
        for p in planned:
            call = self._calls[p.call.index] = self._make_call(p)
            table[p.call.index] = ctypes.addressof(call)
        f = functions
        numbers = (pool.address(PARALLEL), f.byte, f.request_bytes, int(spin * 1e9), ctypes.addressof(table))
        self._state = native.State(f.isend, f.irecv, f.testall, *numbers)
        if node is not None:
            self._state.heap, self._state.heap_bytes = node.heap.address, node.heap.size
            self._state.watch, self._state.cores = node.spin, node.cores
            self._state.row = reference(node.control.address + row_offset("state"))
        self._loaded = _load_code(code)
        self._keep.append(table)
        self.function = self._loaded.address(native.MESSAGES_SYMBOL)
        self.state = ctypes.addressof(self._state)
        #: How the program and its arguments are called.
        self.told = Told()
        self._wait = _MessageWait(0, 0.0, 0.0)
        self._helper = native.State()
        self._dismiss: Callable[[], object] | None = None
        self._call_helper([p.call.index for p in planned if helper and _is_worth_help(p.call)])

    @property
    def program(self) -> int:
        """The program's number in the control table."""
        return int(self._state.program)

    @program.setter
    def program(self, number: int) -> None:
        self._state.program = self._state.stamp.program = number

    def stamp(self, step: int, values: int, weighted: int) -> None:
        """What the next step's collectives say of it; see `shardc.collectives.call.stamp`."""
        stamp = self._state.stamp
        stamp.step, stamp.values, stamp.weighted = step, values, weighted

    def tick(self) -> None:
        """Raise `RunError` when a collective has waited too long."""
        now = time.monotonic()
        index, since = next(((i, c.since) for i, c in self._calls.items() if c.since and self._is_ours(c)), (-1, 0))
        if self._wait.since != since:
            self._wait = _MessageWait(since, now, 0.0)
        elif now - self._wait.last > _PAUSE:
            self._wait.lost += now - self._wait.last
        self._wait.last = now
        waited = now - since / 1e9 - self._wait.lost
        if since and self._timeout and waited > self._timeout + (0 if self._node is None else _FAR):
            raise self._late(self._planned[index], waited)

    def _is_ours(self, call: native.Call) -> bool:
        """Whether ``call`` waits for messages. The job's watchdog knows more about who is missing in the node."""
        return self._node is None or bool(call.posted)

    def failure(self, code: int, index: int) -> ShardcError:
        """What a negative answer means."""
        p = self._planned[index]
        me = self._me(p)
        state = self._helper if self._calls[index].given else self._state
        if code == native.DIVERGED:
            peer, call = self._rank_of(p, state.peer), self._calls[index]
            seen = state.seen
            stamps = _stamp_of(call.stamp), _stamp_of(seen.stamp)
            same = (seen.stamp.program, seen.index) == (call.stamp.program, index)
            different = self.told.difference(*stamps, (me, peer), place_of(p.call)) if same else None
            if different is not None:
                return different
            if seen.stamp.program != call.stamp.program:
                there = self.told.place(seen.stamp.program, seen.index)
                return RunError(
                    f"rank {peer} is in {there}, step {seen.stamp.step}, but rank {me} is in "
                    f"{describe_call(p.call)} of "
                    f"{self.told.program}, step {call.stamp.step}",
                    where=place_of(p.call),
                    fix=SAME_CALLS,
                )
            planned = self._planned.get(seen.index)
            other = describe_call(planned.call) if planned else f"collective {seen.index}"
            return RunError(
                f"rank {peer} is in {other} (exchange {seen.sequence.load(RELAXED)} of its group), but rank {me} is in "
                f"{describe_call(p.call)} (exchange {self._calls[index].sequence} of its group)",
                where=place_of(p.call),
                fix="the ranks took different branches: a condition around collectives must have the same value "
                "on all ranks",
            )
        if code == native.STARTED_TWICE:
            return RunError(
                f"{describe_call(p.call)} starts before its previous run is complete", where=place_of(p.call)
            )
        fault = self._ragged[index].fault(p.plan.steps[self._calls[index].cursor]) if code == WRONG_ROWS else None
        if fault is not None:
            return fault
        text = self._functions.mpi.Get_error_string(state.code)
        return RunError(
            f"MPI failed on rank {me} in {describe_call(p.call)}: {text}{self._missing_text(p)}",
            where=place_of(p.call),
            fix="another rank died, or took a different branch and sent something else",
        )

    def row_bytes(self) -> Mapping[int, float]:
        """For each ragged exchange by index: the bytes of rows that have come to a device so far, on average."""
        return {index: rows.row_bytes() for index, rows in self._ragged.items()}

    def close(self) -> None:
        """What messages may still come to stays; the node's memory is free when all have closed."""
        if self._dismiss is not None:
            self._dismiss()
        if self._near is not None:
            self._near.close()

    def missing_ranks(self, index: int) -> list[int]:
        """The ranks whose messages of collective ``index`` have not come, or that have not taken ours."""
        call = self._calls[index]
        size = self._functions.request_bytes
        flag = ctypes.c_int32()
        found = set()
        for k in range(call.posted):
            handle = int.from_bytes(ctypes.string_at(call.requests + k * size, size), sys.byteorder)
            code = self._functions.request_status(handle, ctypes.addressof(flag), call.statuses)
            if code or not flag.value:
                peer = call.peers[k]
                found.add(self._ranks[peer] if self._ranks else peer)
        return sorted(found)

    def _call_helper(self, helped: Sequence[int]) -> None:
        """Let a thread do what is left of these collectives after their start, where MPI allows it."""
        mpi = self._functions.mpi
        if not helped or mpi.Query_thread() < mpi.THREAD_MULTIPLE:
            return
        queue = (ctypes.c_void_p * (1 << len(helped).bit_length()))()
        ctypes.pointer(self._helper)[0] = self._state
        if self._node is not None:
            self._helper.row = reference(self._node.control.address + row_offset("helper_state"))
        self._state.helper = self._helper
        self._state.queue.calls, self._state.queue.mask = reference(ctypes.addressof(queue)), len(queue) - 1
        for index in helped:
            self._calls[index].helped = 1
        keep = (self._state, self._helper, queue, self._calls, self._keep, self._near)
        run = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._loaded.address(native.HELPER_SYMBOL))
        thread = threading.Thread(target=_help, args=(run, self.state, keep), name="shardc messages", daemon=True)
        thread.start()
        self._dismiss = weakref.finalize(self, _dismiss, self._state, thread)

    # Making tables.

    def _make_call(self, p: PlannedCollective) -> native.Call:
        scratch = self._pointer(self._memory(p.plan.scratch)) if p.call.asynchronous else self._scratch
        cells = _Cells(p, self._rows, scratch, self._near)
        channel = self._channel(p)
        imports = self._near.imports(p.meeting) if self._near is not None and p.meeting is not None else (0, 0)
        rows = RowRecords(p.call, p.groups, cells.of, lambda d: self._rank_of(p, p.owner[d]), self._keep)
        if p.call.ragged:
            self._ragged[p.call.index] = rows
        steps = (native.StepRecord * (len(p.plan.steps) + 1))()
        posted = most = 0
        for row, step in zip(steps, p.plan.steps, strict=False):
            posted = 0 if isinstance(step, WaitStep) else posted + isinstance(step, _POSTS)
            most = max(most, posted)
            self._fill(row, step, p, cells)
            self._fill_near(row, step, p, imports)
            rows.fill(row, step)
        f = self._functions
        requests, statuses = (aligned_bytes(max(1, most) * n) for n in (f.request_bytes, f.status_bytes))
        peers = (ctypes.c_int64 * max(1, most))()
        self._keep += [steps, requests, statuses, peers]
        return native.Call(
            steps=ctypes.addressof(steps),
            requests=requests.ctypes.data,
            statuses=statuses.ctypes.data,
            peers=ctypes.addressof(peers),
            channel=ctypes.addressof(channel),
            index=p.call.index,
            signature=_signature(p.call),
            meetings=0 if self._near is None or p.meeting is None else self._near.address_of(p.meeting),
        )

    def _channel(self, p: PlannedCollective) -> native.Channel:
        """The record of a channel; a program has its own."""
        found = self._channels.get(p.channel)
        if found is None:
            found = self._channels[p.channel] = native.Channel(
                p.channel.handle, ctypes.addressof(p.channel.counter), members=1
            )
            if self._near is not None and p.meeting is not None:
                self._near.fill(found, p.meeting)
        return found

    def _fill_near(
        self, row: native.StepRecord, step: MessageStep, p: PlannedCollective, imports: tuple[int, int]
    ) -> None:
        """The steps that have to do with the node."""
        match step:
            case ArriveStep(last) | AwaitArrivalStep(last):
                row.op, row.nbytes = (
                    native.MessageOp.ARRIVE if isinstance(step, ArriveStep) else native.MessageOp.AWAIT,
                    int(last),
                )
            case ImportStep():
                row.op = native.MessageOp.IMPORT
                row.table = self._list(native.Imports(count=imports[1], imports=imports[0]))
            case PublishStep() | BringBackStep():
                assert self._near is not None and p.meeting is not None
                row.op = native.MessageOp.PUBLISH if isinstance(step, PublishStep) else native.MessageOp.BRING_BACK
                entries, count = self._entries.setdefault(p.call.index, self._near.entries(p.meeting))
                row.table = self._list(native.Entries(self._code.copy, count, entries))

    def _list(self, table: native.Entries | native.Imports) -> int:
        """The address of a table of other records."""
        self._keep.append(table)
        return ctypes.addressof(table)

    def _fill(self, row: native.StepRecord, step: MessageStep, p: PlannedCollective, cells: _Cells) -> None:
        def at(place: StepPlace) -> None:
            row.cell = cells.of(place)

        match step:
            case BeginStep():
                row.op = native.MessageOp.BEGIN
            case HeaderStep(place):
                row.op = native.MessageOp.HEADER
                at(place)
            case SendStep(process, place, nbytes, kind) | ReceiveStep(process, place, nbytes, kind):
                row.op = native.MessageOp.SEND if isinstance(step, SendStep) else native.MessageOp.RECEIVE
                row.peer, row.kind, row.nbytes = process, kind, nbytes
                at(place)
            case WaitStep(nbytes):
                row.op, row.nbytes = native.MessageOp.WAIT, nbytes
            case CheckHeaderStep(process, place):
                row.op, row.peer = native.MessageOp.CHECK, process
                at(place)
            case ZeroStep(place, nbytes):
                row.op, row.nbytes = native.MessageOp.ZERO, nbytes
                at(place)
            case ReduceStep(index, sources, targets, count):
                dtype = p.call.operands[index].dtype
                function = self._code.reducer(p.call.reduction, dtype)
                row.op = native.MessageOp.REDUCE
                given, taken = cells.all(sources), cells.all(targets)
                row.table = self._table(given, taken, count, dtype.nbytes, reduce=function)
            case CopyBytesStep(source, targets, nbytes):
                row.op = native.MessageOp.COPY
                row.table = self._table(cells.all([source]), cells.all(targets), nbytes, 1, copy=self._code.copy)

    def _table(
        self,
        sources: list[native.Cell],
        targets: list[native.Cell],
        elements: int,
        item: int,
        *,
        reduce: int = 0,
        copy: int = 0,
    ) -> int:
        cells = (native.Cell * (len(sources) + len(targets)))(*sources, *targets)
        pointers = (ctypes.c_void_p * len(cells))()
        places = (ctypes.addressof(cells), ctypes.addressof(pointers))
        table = native.TableRecord(reduce, copy, len(sources), len(targets), elements, item, *places)
        self._keep += [cells, pointers, table]
        return ctypes.addressof(table)

    def _memory(self, nbytes: int) -> int:
        block = aligned_bytes(nbytes)
        self._keep.append(block)
        return int(block.ctypes.data)

    def _pointer(self, address: int) -> int:
        """The address of a word that holds ``address``."""
        word = ctypes.c_int64(address)
        self._keep.append(word)
        return ctypes.addressof(word)

    # Messages for people.

    def _rank_of(self, p: PlannedCollective, peer: int) -> int:
        """Of a peer as native code says it: a rank, or -1 - a place among those who meet in the node."""
        if peer >= 0 or p.meeting is None or self._node is None:
            return self._ranks[peer] if self._ranks else peer
        return self._node.ranks[p.meeting.mates[-1 - peer]]

    def _me(self, p: PlannedCollective) -> int:
        return int(self._functions.mpi.COMM_WORLD.Get_rank())

    def _late(self, p: PlannedCollective, waited: float) -> RunError:
        return RunError(
            f"rank {self._me(p)} waited {waited:.0f} s in {describe_call(p.call)} (exchange "
            f"{self._calls[p.call.index].sequence} of its group) for other ranks{self._missing_text(p)}",
            where=place_of(p.call),
            fix="another rank stopped, died or is much slower; to wait longer, set SHARDC_TIMEOUT=SECONDS (0: no "
            "limit)",
        )

    def _missing_text(self, p: PlannedCollective) -> str:
        ranks = self.missing_ranks(p.call.index)
        named = [f"{r} on {self._hosts[r]}" if self._hosts else str(r) for r in ranks]
        return f"; nothing arrived from rank{'s' * (len(ranks) > 1)} {', '.join(named)}" if ranks else ""


def _load_code(code: WorkCode) -> Loaded:
    """The native function, from where ``code`` keeps objects."""
    target = code.target
    make = partial(native.messages_object, target)
    return native.load_messages(make() if code.keep is None else code.keep(native.messages_ir(target), target, make))


def _stamp_of(record: native.Stamp) -> StepStamp:
    return StepStamp(record.step, record.values, record.weighted)


@dataclass(frozen=True, slots=True)
class _Cells:
    """Where the places of one collective are."""

    planned: PlannedCollective
    rows: Mapping[int, Row]
    scratch: int
    near: NodeMemory | None

    def all(self, places: Sequence[StepPlace]) -> list[native.Cell]:
        return [self.of(place) for place in places]

    def of(self, place: StepPlace) -> native.Cell:
        if place.space == "scratch":
            return native.Cell(self.scratch, place.offset)
        if self.near is not None and self.planned.meeting is not None:
            return self.near.cell(self.planned.call, place)
        o = self.planned.call.operands[place.index]
        ref: BufferRef = o.operand if place.space == "operand" else o.result
        cell = cell_of(self.rows[place.device], ref)
        return native.Cell(cell.base, cell.offset + place.offset)


def _is_worth_help(call: CollectiveCall) -> bool:
    """Whether there is more to wait for than short messages. The answer is the same on all ranks. Each of their threads
    does one collective after the other, and all must do the same ones."""
    return call.asynchronous and sum(o.operand.nbytes for o in call.operands) > _WORTH_HELP


def _help(run: Callable[[int], None], state: int, keep: object) -> None:
    """The thread; ``keep`` is what ``state`` points to."""
    run(state)


def _dismiss(state: native.State, thread: threading.Thread) -> None:
    state.queue.stop.store(1, RELEASE)
    if thread is not threading.current_thread():
        thread.join(1.0)


def describe_call(call: CollectiveCall) -> str:
    return f"{call.op} %{call.name} (collective {call.index})"


def place_of(call: CollectiveCall) -> str:
    """The source line of a collective, and why it is there."""
    return (call.source or f"%{call.name}") + (f" ({call.reason})" if call.reason else "")


def _signature(call: CollectiveCall) -> int:
    """A number for what ``call`` does, the same on every rank."""
    what = (call.op, call.reduction, repr(call.groups), [(o.dtype.name, o.count) for o in call.operands], call.ragged)
    return int.from_bytes(hashlib.blake2b(repr(what).encode(), digest_size=7).digest(), "little")
