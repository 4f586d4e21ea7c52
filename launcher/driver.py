"""Runs the compiled step on this process's devices, collective by collective.

All devices run to their next collective, must stop at the same one, the transport's performer does it, and they go on:
a loop in native code (`shardc.native.drive`), which comes back when the step is over, while it waits for other
processes, and when something is wrong.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.control import program_number
from shardc.collectives.memory import aligned_bytes
from shardc.collectives.schedule import check_schedule
from shardc.collectives.transport import Transport
from shardc.collectives.virtual import VirtualPerformer
from shardc.compiler.executable import ARENA_HEADER, DONE, PASSED_BY, Executable, check_error
from shardc.compiler.load import step_drive
from shardc.hlo.config import Config
from shardc.hlo.errors import InputError, RunError
from shardc.hlo.groups import groups_grid
from shardc.launcher.apart import finish_apart
from shardc.launcher.array import Array
from shardc.launcher.making import PATIENCE
from shardc.launcher.standing import Plan
from shardc.launcher.step_tables import StepTables
from shardc.launcher.watchdog import Watchdog, start_watchdog
from shardc.native.drive import FAILED, FINISHED, JOB_BYTES, PAUSED, START, WAIT, WAITING, Prepared
from shardc.native.pool import SPIN, Pool, Row, pool_object
from shardc.native.pool import pool as process_pool

if TYPE_CHECKING:
    from shardc.launcher.checked import StepCheck

__all__ = ["STEP_TYPE", "Driver", "Step", "program_hash"]

Block = NDArray[np.uint8]

#: The native entry point, see `shardc.compiler.executable`.
STEP_TYPE = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
    ctypes.c_int32,
)
Step = Callable[[int, Any, Any, int, int], int]


class _Device:
    """One device of this process: its memory, and what the step takes."""

    def __init__(
        self, number: int, arguments: Any, results: Any, constants: Block, arena: Block, passed_by: int = 0
    ) -> None:
        self.number = number
        self.arena = arena
        self.arena[:ARENA_HEADER] = 0
        self.arena[PASSED_BY : PASSED_BY + 8].view(np.uint64)[0] = passed_by
        self._resume_point = self.arena[:PASSED_BY]
        self._step = (self.arena.ctypes.data, arguments, results, constants.ctypes.data, number)

    def begin(self) -> None:
        """The next call of `advance` starts at the beginning."""
        self._resume_point[:] = 0

    def advance(self, step: Step) -> int:
        """Run to the next stop."""
        return step(*self._step)

    def row(self) -> Row:
        """What `advance` passes, as the pool takes it."""
        arena, arguments, results, constants, number = self._step
        return Row(arena, ctypes.addressof(arguments), ctypes.addressof(results), constants, number, 0)


class Driver:
    """A loaded program on its devices. Calling it runs one step on global arguments.

    ``step`` is the native function (or anything that behaves like it); ``transport`` says which devices are ours.
    Making a driver is collective: all processes of the job must hold the same program. ``pool`` are the threads that
    devices run on and kernels call for help: ``config.num_threads`` with the caller's own. ``check`` compares steps.
    """

    def __init__(
        self,
        executable: Executable,
        step: Step,
        transport: Transport,
        config: Config,
        pool: Pool | None = None,
        check: StepCheck | None = None,
    ) -> None:
        self.executable = executable
        self._check = check
        self.transport = transport
        self._number = program_number(_agree(executable, transport))
        self.devices = transport.ownership(executable.num_devices).devices(transport.process_index)
        check_schedule(executable.schedule, executable.collectives, executable.num_devices, self.devices)
        self._step = step
        self._calls = {c.index: c for c in executable.collectives}
        masks = _passed_by(executable, self.devices)
        self._tables = tables = StepTables(executable, self.devices, transport, masks)
        self._constants = aligned_bytes(len(executable.constants))
        self._constants[:] = np.frombuffer(executable.constants, np.uint8)
        arena_bytes = max(executable.arena_bytes, ARENA_HEADER)
        self._running = [
            _Device(
                d, tables.arguments.of(i), tables.results.of(i), self._constants, transport.empty(arena_bytes), mask
            )
            for i, (d, mask) in enumerate(zip(self.devices, masks, strict=True))
        ]
        self._compares_inputs = config.check and transport.process_count > 1
        threads = config.num_threads or _cores()
        #: The loop over collectives; None for one device that has none.
        self._watchdog: Watchdog | None = None
        self._loop: Prepared | None = None
        # The same answer on all ranks, of which some may have one device and others two: connecting is collective.
        if executable.num_devices > transport.process_count or self._calls:
            self._loop = self._connected(pool or process_pool(pool_object()), config)
        # Threads that share cores with others sleep at once instead of watching for work.
        busy = 1 + (0 if self._loop is None else self._performer.threads)
        self._helpers = None if pool is None else (pool, max(0, threads - busy), SPIN if threads <= _cores() else 0)
        #: Steps run.
        self.steps = 0

    def _connected(self, pool: Pool, config: Config) -> Prepared:
        """The loop over this program's collectives, with the performer that the transport makes for them."""
        rows = (Row * len(self._running))(*(d.row() for d in self._running))
        program = self.executable
        performer = self.transport.connect(
            program.collectives, program.num_devices, rows, pool, sections=program.sections
        )
        self._performer = performer
        weakref.finalize(self, performer.close)
        kinds = [0] * (1 + max(self._calls, default=-1))
        for index in self._calls:
            kinds[index] = 1 + START * self._calls[index].asynchronous
        drive = step_drive(config)
        memory = self.transport.empty(JOB_BYTES)
        loop = drive.prepare(_address_of(self._step), rows, pool, kinds, performer.function, performer.state, memory)
        self._watchdog = start_watchdog(self.transport, config.timeout, drive, config.dump_to)
        if self._watchdog is not None:
            ownership = self.transport.ownership(self.executable.num_devices)
            self._watchdog.add(self._number, Plan.of(self.executable.name, self.executable.collectives, ownership))
            self._watchdog.show(loop, memory)
            if hasattr(performer, "program"):
                performer.program = self._number
        return loop

    @property
    def collectives_done(self) -> int:
        """How many collectives were done in all steps."""
        return 0 if self._loop is None else int(self._loop.job.done)

    @property
    def arenas(self) -> dict[int, Block]:
        """Each device's arena, by its number."""
        return {d.number: d.arena for d in self._running}

    def __call__(self, arguments: Sequence[Any]) -> list[Array]:
        """Run one step; ``arguments`` are global values (NumPy, `Array`, anything NumPy can read), one per parameter.

        Raises `InputError` for a wrong count, shape or element type.
        """
        self._check_count(arguments)
        if self._compares_inputs:
            self._compare_inputs(arguments)
        whole = None if self._check is None else self._check.whole(arguments)
        made = self._tables.fill(arguments)
        if self._loop is None:
            self._run_alone(self._running[0])
        else:
            self._run(self._loop)
        self.steps += 1
        results = self._tables.finish(arguments, made)
        if self._check is not None and whole is not None:
            self._check.compare(whole, results)
        return results

    def put(self, number: int, value: Any) -> Array:
        """Argument ``number`` on its devices, to be passed to several steps; always a copy."""
        return self._tables.put(number, value)

    def _run_alone(self, device: _Device) -> None:
        """One device without collectives, from the beginning to the end."""
        device.begin()
        self._call_helpers()
        answer = device.advance(self._step)
        if answer != DONE:
            raise self._wrong([answer])

    def _run(self, loop: Prepared) -> None:
        """All devices from the beginning to the end."""
        self._call_helpers()
        state = loop.run()
        try:
            while state in (WAITING, PAUSED):
                if state == WAITING:
                    self._look_after(loop)
                state = loop.run()
        finally:
            loop.abandon()
        if state == FINISHED:
            return
        if state == FAILED:
            raise self._failed(self._performer.failure(loop.job.code, loop.job.stop & ~WAIT))
        answers = [row.answer for row in loop.rows]
        if isinstance(self._performer, VirtualPerformer) and not self._writes_shared(loop):
            answers = finish_apart(self._performer, self.devices, answers, self._advance)
        if set(answers) != {DONE}:
            raise self._wrong(answers)

    def _writes_shared(self, loop: Prepared) -> bool:
        """Does a result go over an argument that several devices read? All must have come to a stop together for it."""
        source = dict(self.executable.aliases)
        for number in (source[k] for k in self.executable.shared):
            places = [ctypes.c_void_p.from_address(row.arguments + 8 * number).value for row in loop.rows]
            if len(set(places)) < len(places):
                return True
        return False

    def _advance(self, place: int) -> int:
        return self._running[place].advance(self._step)

    def _look_after(self, loop: Prepared) -> None:
        """A collective waits: is there still hope?"""
        try:
            self._performer.tick()
        except RunError as error:
            raise self._failed(error) from None
        if self._watchdog is not None:
            self._watchdog.tick(loop.job.made, loop.history[-1].begin)

    def _failed(self, error: BaseException) -> BaseException:
        return error if self._watchdog is None else self._watchdog.failed(error)

    def _call_helpers(self) -> None:
        """Let as many threads help as this driver may use; others of the process may use more or fewer."""
        if self._helpers is not None:
            pool, workers, spin = self._helpers
            pool.configure(workers, spin)

    def _wrong(self, stops: Sequence[int]) -> RunError:
        """What the devices' answers mean, when they are neither all at the end nor all in one collective."""
        false = next((e for s in stops if (e := check_error(self.executable, s)) is not None), None)
        if false is not None:
            return false
        if stops.count(stops[0]) != len(stops):
            return self._diverged(stops)
        return RunError(
            f"the step of {self.executable.name} stopped at collective {stops[0]}, which it does not have",
            fix="the compiled object is damaged: remove it from the cache",
        )

    def _check_count(self, arguments: Sequence[Any]) -> None:
        layouts = self._tables.layouts
        if len(arguments) != len(layouts):
            names = ", ".join(a.name or f"arg{i}" for i, a in enumerate(layouts))
            raise InputError(
                f"{self.executable.name} takes {len(layouts)} arguments, {len(arguments)} were given",
                fix=f"its parameters are: {names or '(none)'}",
            )
        if not self.executable.donated or len(set(map(id, arguments))) == len(arguments):
            return
        places: dict[int, list[int]] = {}
        for k, a in enumerate(arguments):
            if isinstance(a, Array):
                places.setdefault(id(a), []).append(k)
        for number in self.executable.donated:
            same = places.get(id(arguments[number]), ())
            if len(same) > 1:
                raise InputError(
                    "an array is donated and passed a second time",
                    where=" and ".join(self._tables.titles[k]() for k in same),
                    fix="pass a copy, or do not donate it",
                )

    def _compare_inputs(self, arguments: Sequence[Any]) -> None:
        """Raise `InputError` unless all ranks were given the same global values."""
        plain = {k: np.ascontiguousarray(a) for k, a in enumerate(arguments) if not isinstance(a, Array)}
        mine = {k: hashlib.sha256(a.tobytes()).hexdigest() for k, a in plain.items()}
        for other in self.transport.exchange_objects(mine):
            different = [k for k in plain if other.get(k) != mine[k]]
            if different or len(other) != len(mine):
                raise InputError(
                    "the ranks were given different values",
                    where=self._tables.titles[different[0]]() if different else None,
                    fix="a NumPy argument is the global value: seed random numbers alike on every rank",
                )

    def _diverged(self, stops: Sequence[int]) -> RunError:
        def place_of(stop: int) -> str:
            call = self._calls.get(stop & ~WAIT) if stop != DONE else None
            return "at the end" if call is None else f"in {call.op} %{call.name}"

        places = "; ".join(f"device {d} is {place_of(s)}" for d, s in zip(self.devices, stops, strict=True))
        return RunError(
            f"the devices of {self.executable.name} took different ways: {places}",
            fix="a condition that guards collectives must have the same value on all devices",
        )


def _address_of(step: Any) -> int:
    """Where a step's machine code is: that of a loaded program, or of a ``STEP_TYPE`` function."""
    address = getattr(step, "address", None)
    return int(address if address is not None else ctypes.cast(step, ctypes.c_void_p).value or 0)


def _passed_by(executable: Executable, devices: Sequence[int]) -> list[int]:
    """For each of this process's devices the groups of `Executable.once` that another one computes for it, as bits."""
    masks = [0] * len(devices)
    for n, groups in enumerate(executable.once):
        grid = groups_grid(groups.mesh, groups.axes)
        group_of = np.empty(executable.num_devices, np.int64)
        group_of[grid] = np.arange(len(grid))[:, None]
        seen: set[int] = set()
        for i, device in enumerate(devices):
            masks[i] |= (int(group_of[device]) in seen) << n
            seen.add(int(group_of[device]))
    return masks


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def program_hash(executable: Executable) -> str:
    """What makes two ranks run the same program: everything but the machine code, which may differ by CPU."""
    parts = (
        executable.name,
        executable.num_devices,
        executable.arguments,
        executable.results,
        executable.arena_bytes,
        executable.collectives,
        executable.donated,
    )
    return hashlib.sha256(repr(parts).encode() + executable.constants).hexdigest()


def _agree(executable: Executable, transport: Transport) -> str:
    """The program's hash, once all ranks have the same."""
    if transport.process_count == 1:
        return "0"
    # The others may still be compiling.
    mine = program_hash(executable)
    hashes = transport.exchange_objects(mine, patience=PATIENCE)
    if len(set(hashes)) > 1:
        groups: dict[str, list[int]] = {}
        for rank, digest in enumerate(hashes):
            groups.setdefault(digest, []).append(rank)
        text = "; ".join(f"ranks {ranks} have {digest[:12]}" for digest, ranks in groups.items())
        raise InputError(
            f"the ranks hold different programs ({text})",
            fix="give all ranks the same file, annotations, mesh and shardc version",
        )
    return mine
