"""The watchdog of a job: a rank that stops, dies, ends early or takes another way is named, and every rank ends.

Ranks that wait in a collective look at each other's rows of the control table (`Watchdog.tick`, some 20 times a
second): a dead partner ends the job at once, any other after the timeout. The first to find something claims the
report, a word in shared memory, and raises the error; everybody else keeps quiet. A thread in each rank sees that
claim (or a dead process) also while its program is in the user's code or in a kernel that never ends, and ends the
process when nothing else does. Between steps ranks wait for each other in Python (`ControlTable.show_exchange`): there
the same thread looks for those who never come.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call.control_table import COMPUTING, EXCHANGING, GONE, ROW, ControlTable
from shardc.collectives.call.transport import Transport
from shardc.launcher.jobs.crash_report import CrashReporter
from shardc.launcher.jobs.failures import abort, describe, prefixed
from shardc.launcher.jobs.hang_diagnosis import (
    culprits,
    diagnose_hang,
    diverged_ranks,
    is_deadlocked,
    is_standstill,
    waits_for_the_ended,
    write_flight_recorder,
)
from shardc.launcher.jobs.rank_status import (
    DEAD,
    STOPPED,
    CollectivePlan,
    Peer,
    RankStatus,
    process_state,
    rank_statuses,
    this_process,
)
from shardc.native.drive.drive_loop import Drive, Prepared

__all__ = ["Watchdog", "start_watchdog"]

#: Seconds between two looks of the thread, and the seconds that it leaves others to end the process in good order.
_LOOK, _GRACE, _OWN_GRACE = 0.2, 2.0, 8.0
#: Seconds that processes of other nodes may take longer to say who is missing.
_OTHER_NODES = 10.0
#: Seconds between seeing a dead process and saying so.
_DEATH = 0.5
#: A process that was not asked for this many seconds was stopped itself: the time does not count.
_PAUSE = 2.0


@dataclass
class _Wait:
    """A wait in progress: which, since when (seconds), the last calls, and what the last look found."""

    which: int = -1
    since: float = 0.0
    last: float = 0.0
    looked: float = 0.0
    found: Sequence[RankStatus] = ()


class Watchdog:
    """Watches the processes of a job for one of them; ``peers`` by rank, ``table`` of this node (None: not known)."""

    def __init__(
        self,
        peers: Sequence[Peer],
        rank: int,
        timeout: float,
        table: ControlTable | None = None,
        node_ranks: Sequence[int] = (),
        claim: Callable[[int, int], int] = lambda word, value: value,
        record_to: Path | None = None,
        reporter: CrashReporter | None = None,
    ) -> None:
        self._peers, self._rank, self._timeout, self._table = peers, rank, timeout, table
        self._near = [peers[r] for r in node_ranks] if table is not None else []
        self._claim_word, self._record_to, self._reporter = claim, record_to, reporter
        self._plans: dict[int, CollectivePlan] = {}
        self._wait = _Wait()
        self._seen: Sequence[RankStatus] = ()
        self._over = threading.Event()
        self._mine = False
        self._process = os.getpid()
        #: The number of the step that this process is in, for the others to see.
        self.step = ctypes.c_int64()

    def add(self, number: int, plan: CollectivePlan) -> None:
        """A program that will run, under its number in the control table."""
        self._plans[number] = plan
        if self._reporter is not None:
            self._reporter.plan(number, plan)

    def place(self, program: int, index: int) -> str:
        """A collective of a program by their numbers, with its source line."""
        plan = self._plans.get(program)
        collective = None if plan is None else plan.collectives.get(index)
        if plan is None or collective is None:
            return f"collective {index} of a program that this rank does not have"
        return f"{collective} of {plan.name} ({collective.place})"

    def show(self, loop: Prepared, memory: NDArray[np.uint8]) -> None:
        """Let the others see whether this process is in a step of ``loop``, whose job is in ``memory``."""
        if self._table is None or ROW.fields is None:
            return
        start = int(self._table.heaps[self._table.position].ctypes.data)
        loop.job.shown = self._table.address + ROW.fields["state"][1]
        loop.job.inside = COMPUTING
        self.step = ctypes.c_int64.from_address(self._table.address + ROW.fields["step"][1])
        loop.job.recorder = self._table.address + ROW.fields["recorder"][1]
        loop.job.number = int(memory.ctypes.data) - start

    def tick(self, which: int, began: int) -> None:
        """Called again and again while this process waits; ``which`` numbers its waits, ``began`` is in monotonic ns.

        Raises `RunError` that names who is missing when there is no hope, or the timeout has passed.
        """
        if self._table is None:
            return  # messages between processes have a limit of their own
        now = time.monotonic()
        self._table.mine["polls"] += 1
        if self._wait.which != which:
            self._wait = _Wait(which, began / 1e9, now, now)
        elif now - self._wait.last > _PAUSE:
            self._wait.since += now - self._wait.last
        self._wait.last = now
        if self._said() or self._hopeless(now):
            raise self.failed(None)
        late = now - self._wait.since - self._timeout
        # Other nodes know better whom they wait for, if it is nobody here.
        if self._timeout and late > 0 and (culprits(self._look(), self._plans) or late > _OTHER_NODES):
            raise self.failed(None, f"after {self._timeout:g} s")

    def failed(self, error: BaseException | None, why: str = "") -> BaseException:
        """The error to raise for the whole job: ``error``, or the diagnosis of who is missing.

        Only the first process of the node gets so far; for others this does not return.
        """
        if not self._claimed():
            self._end_quietly()
        found = self._look()
        if error is not None and not diverged_ranks(found):
            time.sleep(_LOOK)  # the others may be about to come to where the ways part
            found = self._look()
        made = diagnose_hang(found, self._plans, why) if error is None or diverged_ranks(found) else error
        self._dump(made, found)
        return made

    def claim_failure(self) -> bool:
        """Record that this process fails; returns whether it is the first of its node."""
        return os.getpid() == self._process and self._claimed()

    def printed(self) -> None:
        """The user has read why the job fails: who started it need not say who died first."""
        if self._reporter is not None and os.getpid() == self._process:
            self._reporter.reported()

    def close(self) -> None:
        """Record that this process ends regularly; a forked child is another process."""
        if os.getpid() != self._process:
            return
        self._over.set()
        if self._table is not None and not self._mine:
            self._table.mine["state"] = GONE
        if self._reporter is not None:
            self._reporter.close()

    def guard(self) -> None:
        """The thread: end this process when the job has failed and nothing else ends it."""
        while not self._over.wait(_LOOK):
            if self._said():
                self._leave(_OWN_GRACE if self._mine else 0.0)
            elif self._dead():
                if not self._over.wait(2 * _DEATH) and not self._said():
                    self._end_for_all("seen by the watchdog")
            elif (why := self._exchange_without_hope()) is not None:
                self._end_for_all(why)

    def _exchange_without_hope(self) -> str | None:
        """Why the exchange that this process waits in, outside of a step, cannot complete: how long it was waited for,
        empty where the states of the ranks say it; None while it still can."""
        before, self._seen = self._seen, ()
        if self._table is None or int(self._table.mine["state"][0]) != EXCHANGING:
            return None
        found = self._seen = self._look()
        mine = next(s for s in found if s.rank == self._rank)
        if (mine.state, mine.exchanges) not in [(s.state, s.exchanges) for s in before if s.rank == self._rank]:
            return None
        if waits_for_the_ended(found, self._rank, self._plans):
            return ""
        limit = self._timeout * float(self._table.mine["timeouts"][0])
        late = bool(limit) and mine.waited / 1e9 > limit
        return f"after {limit:g} s" if late and culprits(found, self._plans) else None

    def _leave(self, grace: float) -> None:
        """The job has failed, and its launcher ends everybody; if not, this process ends itself, and the stopped."""
        if self._over.wait(_GRACE):
            return
        for peer in self._near:
            if process_state(peer) == STOPPED:
                os.kill(peer.pid, signal.SIGKILL)
        if not self._over.wait(grace):
            os._exit(1)

    def _end_for_all(self, why: str) -> None:
        """Whoever is missing is found while this process is busy with something else."""
        if not self._claimed():
            return
        found = self._look()
        error = diagnose_hang(found, self._plans, why)
        self._dump(error, found)
        print(prefixed(self._rank, describe(error)), file=sys.stderr, flush=True)
        self.printed()
        abort(1, sys.modules.get("mpi4py.MPI"))

    def _hopeless(self, now: float) -> bool:
        """Whether another rank has died, ended or taken another branch while this process waits."""
        if self._table is None:
            return False
        if self._dead():
            # Whoever failed with words of its own, or the launcher, ends this process before that is over.
            time.sleep(_DEATH)
            return True
        if now - self._wait.looked < _LOOK:
            return False
        self._wait.looked = now
        found, before = self._look(), self._wait.found
        self._wait.found = found
        if is_standstill(found, before) and diverged_ranks(found):
            return True
        if before and is_deadlocked(found, before, self._rank, self._plans):
            return True
        return any(s.state == GONE for s in culprits(found, self._plans))

    def _dead(self) -> bool:
        if self._table is None:
            return False
        return any(
            int(row["state"][0]) != GONE and process_state(peer) == DEAD
            for row, peer in zip(self._table.rows, self._near, strict=True)
        )

    def _look(self) -> list[RankStatus]:
        return [] if self._table is None else rank_statuses(self._table, self._near, time.monotonic_ns())

    def _said(self) -> bool:
        return self._table is not None and bool(self._table.rows[0]["failed"][0])

    def _claimed(self) -> bool:
        """Whether this process reports for its node."""
        if self._table is not None and not self._mine:
            field = ROW.fields["failed"][1] if ROW.fields else 0
            word = int(self._table.rows[0].ctypes.data) + field
            self._mine = self._claim_word(word, 1 + self._rank) == 1 + self._rank
        return self._mine or self._table is None

    def _end_quietly(self) -> NoReturn:
        sys.stdout.flush()
        self._leave(0.0)
        os._exit(1)

    def _dump(self, error: BaseException, found: Sequence[RankStatus]) -> None:
        if self._record_to is not None:
            write_flight_recorder(self._record_to, f"rank{self._rank}", error, found, self._plans)


@dataclass(frozen=True)
class _Hook:
    """An exception hook that lets the watchdog know that this rank ends the job; ``claim`` and ``printed`` are for
    those who end it without a hook, before and after they print why."""

    before: Callable[..., object]
    claim: Callable[[], object]
    printed: Callable[[], object]

    def __call__(self, kind: type[BaseException], error: BaseException, trace: object) -> None:
        self.claim()
        self.before(kind, error, trace)


@cache
def start_watchdog(transport: Transport, timeout: float, loop: Drive, record_to: Path | None) -> Watchdog | None:
    """The watchdog of this process in its job, None without other processes.

    At first all processes of the job call this together.
    """
    if transport.process_count == 1:
        return None
    rank = transport.process_index
    peers = transport.exchange_objects(this_process(rank))
    table = transport.control
    reporter = CrashReporter.to_launcher(peers[rank], -1 if table is None else table.file)
    dog = Watchdog(peers, rank, timeout, table, transport.node_ranks, loop.claim, record_to, reporter)
    if table is not None:
        threading.Thread(target=dog.guard, name="shardc-watchdog", daemon=True).start()
    sys.excepthook = _Hook(sys.excepthook, dog.claim_failure, dog.printed)
    atexit.register(dog.close)
    return dog
