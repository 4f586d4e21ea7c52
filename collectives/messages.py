"""Collectives by messages: the tables that `shardc.native.messages` goes through, and what its failures mean."""

from __future__ import annotations

import ctypes
import hashlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from shardc.collectives.call import BufferRef, CollectiveCall
from shardc.collectives.memory import aligned_bytes
from shardc.collectives.plan_messages import Plan
from shardc.collectives.steps import (
    Arrive,
    Await,
    Begin,
    Check,
    Copy,
    Header,
    Place,
    Receive,
    Reduce,
    Send,
    Step,
    Wait,
    Zero,
)
from shardc.collectives.work import WorkCode, cell_of
from shardc.hlo.errors import EnvironmentProblem, RunError
from shardc.native import messages as native
from shardc.native.jit import Loaded
from shardc.native.meeting import meeting_ir, meeting_object
from shardc.native.pool import PARALLEL, Pool, Row

__all__ = ["Channel", "MessagesPerformer", "MpiFunctions", "Planned", "described", "mpi_functions"]


@dataclass(frozen=True, slots=True)
class MpiFunctions:
    """What native code must know of the MPI library of this process, and the module ``mpi4py.MPI``."""

    mpi: Any
    isend: int
    irecv: int
    testall: int
    request_status: Callable[..., int]
    byte: int
    request_bytes: int
    status_bytes: int


def mpi_functions(mpi: Any) -> MpiFunctions:
    """Looked up in the library that ``mpi`` has loaded; raises `EnvironmentProblem` if it may not be called here."""
    if mpi.Query_thread() < mpi.THREAD_SERIALIZED and not mpi.Is_thread_main():
        raise EnvironmentProblem(
            "MPI was started for calls from its main thread only, and this is another thread",
            fix="run the program on the main thread, or start MPI with mpi4py.rc.thread_level = 'multiple'",
        )
    library = ctypes.CDLL(mpi.__file__)

    def address(name: str) -> int:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0

    kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
    return MpiFunctions(
        mpi,
        address("MPI_Isend"),
        address("MPI_Irecv"),
        address("MPI_Testall"),
        kind(address("MPI_Request_get_status")),
        mpi._handleof(mpi.BYTE),
        mpi._sizeof(mpi.Request),
        mpi._sizeof(mpi.Status),
    )


class Channel:
    """A communicator for messages among ``ranks`` of the job, in this order."""

    def __init__(self, mpi: Any, communicator: Any, ranks: Sequence[int]) -> None:
        communicator.Set_errhandler(mpi.ERRORS_RETURN)
        self._communicator = communicator
        self.ranks = tuple(ranks)
        self.position = {rank: k for k, rank in enumerate(ranks)}
        self.record = native.Channel(mpi._handleof(communicator), 0)

    @property
    def address(self) -> int:
        return ctypes.addressof(self.record)


@dataclass(frozen=True, slots=True)
class Planned:
    """A checked collective, what this process does in it, and where its messages go; ``meetings`` are the addresses
    of those at its beginning and its end, with how many processes, if any."""

    call: CollectiveCall
    plan: Plan
    channel: Channel
    meetings: tuple[int, int, int] = (0, 0, 0)


class MessagesPerformer:
    """Performs ``planned`` collectives on the devices of ``rows``.

    ``others`` gives the cell of a place that belongs to another process of this node. ``timeout`` and ``spin`` are
    seconds, see `shardc.collectives.mpi.MpiTransport`.
    """

    def __init__(
        self,
        planned: Sequence[Planned],
        rows: ctypes.Array[Row],
        pool: Pool,
        functions: MpiFunctions,
        code: WorkCode,
        *,
        timeout: float,
        spin: float,
        others: Callable[[CollectiveCall, Place], native.Cell] | None = None,
    ) -> None:
        self._planned = {p.call.index: p for p in planned}
        self._functions = functions
        self._code = code
        self._rows = {int(row.device): row for row in rows}
        self._others = others
        self._timeout = timeout
        self._keep: list[Any] = [rows, pool]
        shared = max((p.plan.scratch for p in planned if not p.call.asynchronous), default=0)
        self._scratch = self._pointer(self._memory(shared))
        self._calls: dict[int, native.Call] = {}
        table = (ctypes.c_void_p * (max(self._planned, default=0) + 1))()
        for p in planned:
            call = self._calls[p.call.index] = self._made(p)
            table[p.call.index] = ctypes.addressof(call)
        f = functions
        numbers = (pool.address(PARALLEL), f.byte, f.request_bytes, int(spin * 1e9), ctypes.addressof(table))
        self._state = native.State(f.isend, f.irecv, f.testall, *numbers)
        self._loaded = _loaded(code)
        self._keep.append(table)
        self.function = self._loaded.address(native.MESSAGES_SYMBOL)
        self.state = ctypes.addressof(self._state)
        self._waiting: tuple[int, int, float] | None = None

    def tick(self) -> None:
        """Raise `RunError` when a collective has waited too long."""
        waiting = next(((i, c.cursor) for i, c in self._calls.items() if c.since or c.goal), None)
        now = time.monotonic()
        if waiting is None:
            self._waiting = None
        elif self._waiting is None or self._waiting[:2] != waiting:
            self._waiting = (*waiting, now)
        elif self._timeout and now - self._waiting[2] > self._timeout:
            raise self._late(self._planned[waiting[0]])

    def failure(self, code: int, index: int) -> RunError:
        """What a negative answer means."""
        p = self._planned[index]
        me = self._me(p)
        if code == native.DIVERGED:
            peer = p.channel.ranks[self._state.peer]
            seen = self._planned.get(self._state.seen_index)
            other = described(seen.call) if seen else f"collective {self._state.seen_index}"
            return RunError(
                f"rank {peer} is in {other} (exchange {self._state.seen_sequence}), rank {me} in "
                f"{described(p.call)} (exchange {self._calls[index].sequence})",
                where=place_of(p.call),
                fix="the ranks took different branches; a condition that guards collectives must agree on all",
            )
        if code == native.STARTED_TWICE:
            return RunError(f"{described(p.call)} starts before its last run is done", where=place_of(p.call))
        text = self._functions.mpi.Get_error_string(self._state.code)
        return RunError(
            f"MPI failed on rank {me} in {described(p.call)}: {text}{self._missing_text(p)}",
            where=place_of(p.call),
            fix="another rank died, or took a different branch and sent something else",
        )

    def close(self) -> None:
        """The memory stays as long as messages may come."""

    def missing(self, index: int) -> list[int]:
        """The ranks whose messages of collective ``index`` have not come, or that have not taken ours."""
        p, call = self._planned[index], self._calls[index]
        steps = [s for s in p.plan.steps[: call.cursor] if isinstance(s, Send | Receive)]
        steps = steps[len(steps) - call.posted :] if call.posted else []
        size = self._functions.request_bytes
        flag = ctypes.c_int32()
        found = set()
        for k, step in enumerate(steps):
            handle = int.from_bytes(ctypes.string_at(call.requests + k * size, size), sys.byteorder)
            code = self._functions.request_status(handle, ctypes.addressof(flag), call.statuses)
            if code or not flag.value:
                found.add(step.process)
        return sorted(found)

    # Making tables.

    def _made(self, p: Planned) -> native.Call:
        scratch = self._pointer(self._memory(p.plan.scratch)) if p.call.asynchronous else self._scratch
        cells = _Cells(p, self._rows, scratch, self._others)
        steps = (native.Step * (len(p.plan.steps) + 1))()
        met = posted = most = 0
        for row, step in zip(steps, p.plan.steps, strict=False):
            if isinstance(step, Arrive | Await):
                address, _, count = (p.meetings[min(met, 1)], 0, p.meetings[2])
                met += isinstance(step, Await)
                row.op = native.Op.ARRIVE if isinstance(step, Arrive) else native.Op.AWAIT
                row.base, row.nbytes = address, count
                continue
            posted = 0 if isinstance(step, Wait) else posted + isinstance(step, Send | Receive)
            most = max(most, posted)
            self._fill(row, step, p, cells)
        f = self._functions
        requests, statuses = (aligned_bytes(max(1, most) * n) for n in (f.request_bytes, f.status_bytes))
        self._keep += [steps, requests, statuses, p.channel]
        return native.Call(
            steps=ctypes.addressof(steps),
            requests=requests.ctypes.data,
            statuses=statuses.ctypes.data,
            channel=p.channel.address,
            index=p.call.index,
            signature=_signature(p.call),
        )

    def _fill(self, row: native.Step, step: Step, p: Planned, cells: _Cells) -> None:
        def at(place: Place) -> None:
            cell = cells.of(place)
            row.base, row.offset = cell.base, cell.offset

        match step:
            case Begin():
                row.op = native.Op.BEGIN
            case Header(place):
                row.op = native.Op.HEADER
                at(place)
            case Send(process, place, nbytes, kind) | Receive(process, place, nbytes, kind):
                row.op = native.Op.SEND if isinstance(step, Send) else native.Op.RECEIVE
                row.peer, row.kind, row.nbytes = p.channel.position[process], kind, nbytes
                at(place)
            case Wait(nbytes):
                row.op, row.nbytes = native.Op.WAIT, nbytes
            case Check(process, place):
                row.op, row.peer = native.Op.CHECK, p.channel.position[process]
                at(place)
            case Zero(place, nbytes):
                row.op, row.nbytes = native.Op.ZERO, nbytes
                at(place)
            case Reduce(index, sources, targets, count):
                dtype = p.call.operands[index].dtype
                function = self._code.reducer(p.call.reduction, dtype)
                row.op = native.Op.REDUCE
                row.table = self._table(
                    function, [*map(cells.of, sources)], [*map(cells.of, targets)], count, dtype.nbytes
                )
            case Copy(source, targets, nbytes):
                row.op = native.Op.COPY
                row.table = self._table(self._code.copy, [cells.of(source)], cells.all(targets), nbytes, 1)

    def _table(
        self, function: int, sources: list[native.Cell], targets: list[native.Cell], elements: int, item: int
    ) -> int:
        cells = (native.Cell * (len(sources) + len(targets)))(*sources, *targets)
        pointers = (ctypes.c_void_p * len(cells))()
        places = (ctypes.addressof(cells), ctypes.addressof(pointers))
        table = native.Table(function, len(sources), len(targets), elements, item, *places)
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

    def _me(self, p: Planned) -> int:
        return int(self._functions.mpi.COMM_WORLD.Get_rank())

    def _late(self, p: Planned) -> RunError:
        return RunError(
            f"rank {self._me(p)} waited {self._timeout:g} s in {described(p.call)} (exchange "
            f"{self._calls[p.call.index].sequence} of its group) for other ranks{self._missing_text(p)}",
            where=place_of(p.call),
            fix="another rank stopped, died or is much slower; set SHARDC_TIMEOUT=seconds to wait longer, 0 for ever",
        )

    def _missing_text(self, p: Planned) -> str:
        ranks = self.missing(p.call.index)
        return f"; nothing came from rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}" if ranks else ""


def _loaded(code: WorkCode) -> Loaded:
    """The native function, from where ``code`` keeps objects."""
    target = code.target
    texts = {native.messages_ir(target): native.messages_object, meeting_ir(target): meeting_object}
    made = [
        make(target) if code.keep is None else code.keep(text, target, partial(make, target))
        for text, make in texts.items()
    ]
    return native.load_messages(made[0], made[1])


@dataclass(frozen=True, slots=True)
class _Cells:
    """Where the places of one collective are."""

    planned: Planned
    rows: Mapping[int, Row]
    scratch: int
    others: Callable[[CollectiveCall, Place], native.Cell] | None

    def all(self, places: Sequence[Place]) -> list[native.Cell]:
        return [self.of(place) for place in places]

    def of(self, place: Place) -> native.Cell:
        if place.space == "scratch":
            return native.Cell(self.scratch, place.offset)
        row = self.rows.get(place.device)
        if row is None:
            assert self.others is not None
            return self.others(self.planned.call, place)
        o = self.planned.call.operands[place.index]
        ref: BufferRef = o.operand if place.space == "operand" else o.result
        cell = cell_of(row, ref)
        return native.Cell(cell.base, cell.offset + place.offset)


def described(call: CollectiveCall) -> str:
    return f"{call.op} %{call.name} (collective {call.index})"


def place_of(call: CollectiveCall) -> str:
    """The source line of a collective, and why it is there."""
    return (call.source or f"%{call.name}") + (f" ({call.reason})" if call.reason else "")


def _signature(call: CollectiveCall) -> int:
    """A number for what ``call`` does, the same on every rank."""
    what = (call.op, call.reduction, repr(call.groups), [(o.dtype.name, o.count) for o in call.operands])
    return int.from_bytes(hashlib.blake2b(repr(what).encode(), digest_size=7).digest(), "little")
