"""What a driver of a step is to its callers, whatever the step runs on: arguments in, one step, results out."""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shardc.collectives.call.call import CollectiveCall, SharedSection
from shardc.collectives.call.control_table import program_number
from shardc.collectives.call.forked import refuse_forked
from shardc.collectives.call.membership import Ownership
from shardc.collectives.call.schedule import check_schedule
from shardc.collectives.call.stamp import SAME_VALUES, Stamping, Told
from shardc.collectives.call.transport import Transport
from shardc.compiler.executable import WAIT, Executable
from shardc.compiler.load.step import step_drive
from shardc.hlo.config import Config
from shardc.hlo.errors import InputError, RunError
from shardc.hlo.units import count_text
from shardc.launcher.arrays.sharded_array import ShardedArray
from shardc.launcher.driver.compare_steps import Neighbours, connects_all
from shardc.launcher.driver.executables import COMPILE_WAIT
from shardc.launcher.driver.step_tables import StepTables
from shardc.launcher.jobs.rank_status import CollectivePlan
from shardc.launcher.jobs.watchdog import Watchdog, start_watchdog
from shardc.native.drive.drive_loop import (
    ANSWERED,
    FAILED,
    FINISHED,
    HOSTED,
    JOB_BYTES,
    START,
    WAITING,
    Prepared,
)
from shardc.native.threads.pool import Pool, Row

if TYPE_CHECKING:
    from shardc.launcher.driver.checked import StepCheck

__all__ = ["StepDriver", "program_hash"]


class StepDriver(ABC):
    """A loaded program on its devices. Calling it runs one step on global arguments.

    ``transport`` connects its processes and says which devices are this process's. Making a driver is collective: all
    of them must hold the same program. With ``late`` they see to that before the first step. ``check`` compares steps.
    ``owners`` are the processes by device, where these are not as the transport has them.
    """

    _tables: StepTables

    def __init__(
        self,
        executable: Executable,
        transport: Transport,
        config: Config,
        check: StepCheck | None = None,
        owners: tuple[int, ...] = (),
        late: bool = False,
    ) -> None:
        self.executable = executable
        self._check = check
        self.transport = transport
        self._number = 0
        self._process = os.getpid()
        #: The tables and the devices' memory are those of one step: threads run theirs in turn.
        self._turn = threading.RLock()
        count = executable.num_devices
        self.ownership = Ownership(count, transport.process_count, owners) if owners else transport.ownership(count)
        self.devices = self.ownership.devices(transport.process_index)
        check_schedule(executable.schedule, executable.collectives, executable.num_devices, self.devices)
        self._calls = {c.index: c for c in executable.collectives}
        self._checks = config.check
        #: Calls of this program, also those that failed.
        self.begun = 0
        self._compared = transport.process_count == 1
        self._stamp: Callable[[int, int, int], None] | None = None
        self._neighbours: Neighbours | None = None
        #: The loop over collectives of the transport, if there is one, and who does them.
        self._loop: Prepared | None = None
        self._executor: Any = None
        self._watchdog: Watchdog | None = None
        #: Steps run.
        self.steps = 0
        self._is_late = late
        if not late:
            self._agree()

    def _agree(self) -> None:
        """See that all processes hold this program; they call this together."""
        self._number = program_number(_agreed_hash(self.executable, self.transport))

    def _meet(self) -> None:
        """What a driver that is made ``late`` does together with the others before its first step."""
        self._agree()

    @abstractmethod
    def _step_once(self) -> None:
        """Run the step on what the tables say."""

    def __call__(self, arguments: Sequence[Any]) -> list[ShardedArray]:
        """Run one step; ``arguments`` are global values (NumPy, `Array`, anything NumPy can read), one per parameter.

        Several threads may call it: their steps run in turn. Raises `InputError` for a wrong count, shape or element
        type, and `EnvironmentProblem` in a process that was forked from one of several.
        """
        self._refuse_forked()
        with self._turn:
            return self._run_step(arguments)

    def _run_step(self, arguments: Sequence[Any]) -> list[ShardedArray]:
        self.begun += 1
        self._check_count(arguments)
        self._compare(arguments)
        whole = None if self._check is None else self._check.whole(arguments)
        made = self._tables.fill(arguments)
        self._tell(*self._tables.sums)
        self._step_once()
        self.steps += 1
        results = self._tables.finish(arguments, made)
        if self._check is not None and whole is not None:
            self._check.compare(whole, results)
        return results

    def begin(self) -> None:
        """A step follows that native code runs, on shards; the processes of a job compare themselves."""
        self._refuse_forked()
        self.begun += 1
        self._compare(())
        self._tell(0, 0)

    def _refuse_forked(self) -> None:
        if self.transport.process_count > 1:
            refuse_forked(self._process)

    def _compare(self, arguments: Sequence[Any]) -> None:
        if self._is_late:
            self._meet()
            self._is_late = False
        if not self._compared:
            self._compare_inputs(arguments)
            self._compared = not self._checks

    def _tell(self, *sums: int) -> None:
        """Send the other ranks the number of this step, and the `shardc.collectives.call.stamp` of its arguments."""
        if self._stamp is not None and self._watchdog is not None:
            self._watchdog.step.value = self.begun
            self._stamp(self.begun, *sums)
        if self._neighbours is not None:
            self._neighbours.compare(self.begun, *sums)

    def put(self, number: int, value: Any, *, share: bool = False) -> ShardedArray:
        """Argument ``number`` on its devices, to be passed to several steps; a copy, unless it may ``share`` the memory
        of ``value``, and every shard lies there in one piece."""
        return self._tables.put(number, value, share=share)

    @property
    def collectives_done(self) -> int:
        """How many collectives were done in all steps."""
        return 0 if self._loop is None else int(self._loop.job.done)

    def _connect(
        self,
        calls: Sequence[CollectiveCall],
        rows: ctypes.Array[Row],
        step: int,
        pool: Pool,
        config: Config,
        sections: Sequence[SharedSection] = (),
    ) -> None:
        """Make the loop of the function at address ``step`` over ``calls`` on ``rows``, with the executor that the
        transport makes for them. All processes of the job call this together."""
        program = self.executable
        executor = self.transport.connect(calls, self.ownership, rows, pool, sections=sections)
        self._executor = executor
        weakref.finalize(self, executor.close)
        kinds = [0] * (1 + max((c.index for c in calls), default=-1))
        for call in calls:
            kinds[call.index] = 1 + START * call.asynchronous
        drive = step_drive(config)
        memory = self.transport.empty(JOB_BYTES)
        loop = self._loop = drive.prepare(step, rows, pool, kinds, executor.function, executor.state, memory)
        self._watchdog = start_watchdog(self.transport.job, config.timeout, drive, config.record_to)
        if self._watchdog is not None:
            owners = tuple(self.transport.ranks[p] for p in self.ownership.table())
            everywhere = Ownership(program.num_devices, self.transport.job.process_count, owners)
            self._watchdog.add(self._number, CollectivePlan.of(program.name, program.collectives, everywhere))
            self._watchdog.show(loop, memory)
            if isinstance(executor, Stamping):
                told = Told(program.name, self._tables.titles, self._watchdog.place)
                executor.program, executor.told = self._number, told
                self._stamp = executor.stamp

    def _drive(self, loop: Prepared) -> None:
        """All devices from the beginning to the end."""
        try:
            while not self.attend(loop.run()):
                pass
        finally:
            loop.abandon()

    def attend(self, state: int) -> bool:
        """Handle the event for which the loop returned with ``state``; returns whether the step is complete. Raises
        what went wrong.

        Native code that runs steps calls this, and `abandon` where it raises.
        """
        loop = self._loop
        assert loop is not None
        if state == WAITING:
            self._look_after(loop)
        elif state == HOSTED:
            self._call_python(loop)
        elif state == FAILED:
            raise self._failed(self._executor.failure(loop.job.code, loop.job.stop & ~WAIT))
        elif state == ANSWERED:
            self._finish([row.answer for row in loop.rows])
        return state in (FINISHED, ANSWERED)

    def abandon(self) -> None:
        """The step that runs is given up; the next one starts at the beginning."""
        if self._loop is not None:
            self._loop.abandon()

    @abstractmethod
    def _finish(self, answers: list[int]) -> None:
        """The devices stopped before the end, with these answers. Raises the error."""

    def _call_python(self, loop: Prepared) -> None:
        """Make the calls of Python that devices have stopped for, and let these go on to stops of another kind."""
        raise AssertionError(f"{self.executable.name} calls no Python")

    def _look_after(self, loop: Prepared) -> None:
        """Check whether a waiting collective can still complete."""
        try:
            self._executor.tick()
        except RunError as error:
            raise self._failed(error) from None
        if self._watchdog is not None:
            self._watchdog.tick(loop.made, loop.history[-1].begin)

    def _failed(self, error: BaseException) -> BaseException:
        return error if self._watchdog is None else self._watchdog.failed(error)

    def _check_count(self, arguments: Sequence[Any]) -> None:
        layouts = self._tables.layouts
        if len(arguments) != len(layouts):
            names = ", ".join(a.name or f"arg{i}" for i, a in enumerate(layouts))
            raise InputError(
                f"{self.executable.name} takes {count_text(len(layouts), 'argument')}, but was given {len(arguments)}",
                fix=f"pass these parameters: {names or '(none)'}",
            )
        if not self.executable.donated or len(set(map(id, arguments))) == len(arguments):
            return
        places: dict[int, list[int]] = {}
        for k, a in enumerate(arguments):
            if isinstance(a, ShardedArray):
                places.setdefault(id(a), []).append(k)
        for number in self.executable.donated:
            same = places.get(id(arguments[number]), ())
            if len(same) > 1:
                raise InputError(
                    "a donated array is passed a second time",
                    where=" and ".join(self._tables.titles[k]() for k in same),
                    fix="pass a copy, or do not donate it",
                )

    def _compare_inputs(self, arguments: Sequence[Any]) -> None:
        """Raise `InputError` unless all ranks were given the same global values."""
        from shardc.launcher.arrays.same_values import who_has_what

        tables = self._tables
        beside = self._beside() if self._neighbours is None else None
        mine = {k: tables.digest(k, a) for k, a in enumerate(arguments) if not isinstance(a, ShardedArray)}
        sent = (mine, -1 if beside is None else beside.offset)
        met = self.transport.exchange_objects(sent, doing=f"a step of {self.executable.name} (arguments are compared)")
        if beside is not None:
            beside.meet([offset for _, offset in met])
            self._neighbours = beside
        everybody = [theirs for theirs, _ in met]
        for k in range(len(arguments)):
            values = [other.get(k, "an array of shardc") for other in everybody]
            if told := who_has_what(self.transport.ranks, values):
                raise InputError(
                    f"the ranks were given different values: {told}",
                    where=tables.titles[k](),
                    fix=SAME_VALUES,
                )

    def _beside(self) -> Neighbours | None:
        """Who compares steps of a program that does not bring all ranks together."""
        program, table = self.executable, self.transport.control
        if table is None or connects_all(program.collectives, self.ownership):
            return None
        return Neighbours(self.transport, table, self._number, Told(program.name, self._tables.titles))


def program_parts(executable: Executable) -> dict[str, str]:
    """What makes two ranks run the same program: everything but the machine code, which may differ by CPU; by what
    people call it. Short things are said, of others there is a digest."""
    said = {
        "name": executable.name,
        "devices": str(executable.num_devices),
        "parameters": ", ".join(f"{a.name or n}: {a.global_shape}" for n, a in enumerate(executable.arguments)),
        "donated arguments": str(list(executable.donated)),
    }
    told = {
        "shardings": (executable.arguments, executable.results),
        "collectives": executable.collectives,
        "memory": executable.arena_bytes,
        "calls of Python": executable.hosts,
        "constants and operations, including values captured from outside the function": executable.meaning,
    }
    digests = {name: hashlib.sha256(repr(part).encode()).hexdigest()[:12] for name, part in told.items()}
    return {**said, **digests, "folded constants": hashlib.sha256(executable.constants).hexdigest()[:12]}


def program_hash(executable: Executable) -> str:
    """A digest of `program_parts`."""
    return _hash(program_parts(executable))


def _hash(parts: Mapping[str, str]) -> str:
    return hashlib.sha256(repr(sorted(parts.items())).encode()).hexdigest()


def _agreed_hash(executable: Executable, transport: Transport) -> str:
    """The program's hash, once all ranks have the same."""
    if transport.process_count == 1:
        return "0"
    from shardc.launcher.arrays.same_values import who_has_what

    # The others may still be compiling.
    mine = program_parts(executable)
    everybody = transport.exchange_objects(mine, doing="loading a program", timeout_factor=COMPILE_WAIT)
    for name in mine:
        if told := who_has_what(transport.ranks, [parts[name] for parts in everybody]):
            raise InputError(
                f"the ranks hold different programs: they differ in their {name} ({told})",
                where=f"program {executable.name}",
                fix="call the same functions in the same order on all ranks, with the same annotations, mesh, static "
                "values and version of shardc; values that differ by rank must not be part of the program",
            )
    return _hash(mine)
