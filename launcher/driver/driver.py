"""Runs the compiled step on this process's devices, collective by collective.

All devices run to their next collective, must stop at the same one, the transport's collective executor does it, and
they go on: a loop in native code (`shardc.native.drive.drive_loop`), which comes back when the step is over, while it
waits for other processes, and when something is wrong.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.call.memory import NO_MEMORY, aligned_bytes, check_memory, out_of_memory
from shardc.collectives.call.transport import Transport
from shardc.collectives.in_process.executor import InProcessExecutor
from shardc.compiler.executable import ARENA_HEADER, DONE, PASSED_BY, Executable, check_error
from shardc.compiler.profile import ProfileRecord
from shardc.hlo.config import Config
from shardc.hlo.errors import RunError
from shardc.hlo.ir.groups import groups_grid
from shardc.launcher.arrays.sharded_array import ShardedArray
from shardc.launcher.driver.diverging_groups import finish_diverging_groups
from shardc.launcher.driver.host_calls import HostCalls, is_host
from shardc.launcher.driver.native_step import NativeStep, native_step
from shardc.launcher.driver.step_driver import StepDriver
from shardc.launcher.driver.step_tables import StepTables
from shardc.native.drive.drive_loop import ANSWERED, WAIT, Prepared
from shardc.native.threads.cores import usable_cores
from shardc.native.threads.pool import SPIN, Pool, Row, pool_object
from shardc.native.threads.pool import pool as process_pool

if TYPE_CHECKING:
    from shardc.launcher.driver.checked import StepCheck

__all__ = ["STEP_TYPE", "Driver", "Step"]

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


class Driver(StepDriver):
    """A loaded program on its devices. Calling it runs one step on global arguments.

    ``step`` is the native function (or anything that behaves like it); ``transport`` says which devices are ours.
    Making a driver is collective: all processes of the job must hold the same program; if it is ``late``, its first
    step is. ``pool`` are the threads that devices run on and kernels call for help: ``config.num_threads`` with the
    caller's own. ``check`` compares steps, ``array_type`` is what results are.
    """

    def __init__(
        self,
        executable: Executable,
        step: Step,
        transport: Transport,
        config: Config,
        pool: Pool | None = None,
        check: StepCheck | None = None,
        *,
        array_type: type[ShardedArray],
        owners: tuple[int, ...] = (),
        late: bool = False,
    ) -> None:
        super().__init__(executable, transport, config, check, owners, late)
        self._step = step
        masks = _passed_by(executable, self.devices)
        self._tables = tables = StepTables(executable, self.devices, transport, array_type, masks)
        self._constants = aligned_bytes(len(executable.constants))
        self._constants[:] = np.frombuffer(executable.constants, np.uint8)
        arena_bytes = max(executable.arena_bytes, ARENA_HEADER)
        count = len(self.devices)
        check_memory(arena_bytes * count, count, f"temporaries of program {executable.name}")

        def arena(device: int) -> NDArray[np.uint8]:
            try:
                return transport.empty(arena_bytes)
            except NO_MEMORY:
                where = f"temporaries of device {device}, program {executable.name}"
                raise out_of_memory(arena_bytes, where) from None

        self._running = [
            _Device(d, tables.arguments.of(i), tables.results.of(i), self._constants, arena(d), mask)
            for i, (d, mask) in enumerate(zip(self.devices, masks, strict=True))
        ]
        self._hosts = HostCalls(executable, config.custom_calls, shared=transport.process_count > 1)
        self._rows = (Row * len(self._running))(*(d.row() for d in self._running))
        self._config, self._pool = config, pool
        self._helpers: tuple[Pool, int, int] | None = None
        self._native: NativeStep | None = None
        if not late:
            self._load()

    def _meet(self) -> None:
        super()._meet()
        self._load()
        if self._native is not None:
            self._native.connect(self._loop, self._helpers)

    def _load(self) -> None:
        """Make the loop over collectives; the processes call this together."""
        executable, config, pool = self.executable, self._config, self._pool
        # The same answer on all ranks, of which some may have one device and others two: connecting is collective.
        if executable.num_devices > self.transport.process_count or self._calls:
            calls, sections = executable.collectives, executable.sections
            threads = pool or process_pool(pool_object())
            self._connect(calls, self._rows, _address_of(self._step), threads, config, sections)
        if pool is not None:
            # Threads that share cores with others sleep at once instead of watching for work.
            count = config.num_threads or usable_cores()
            busy = 1 + (0 if self._loop is None else self._executor.threads)
            self._helpers = pool, max(0, count - busy), SPIN if count <= usable_cores() else 0

    def native(self) -> NativeStep:
        """The step for native code that runs it; as long as this driver."""
        tables = self._tables
        addresses = tables.arguments.addresses, tables.results.addresses
        sizes = [layout.local_bytes for layout in tables.layouts]
        self._native = native_step(*addresses, tables.result_columns(), sizes, _address_of(self._step), self._rows)
        self._native.connect(self._loop, self._helpers)
        return self._native

    def clear_records(self) -> None:
        """Forget what was recorded of earlier steps, by a step compiled for profiling."""
        plan = self.executable.profile
        assert plan is not None
        for arena in self.arenas.values():
            plan.record_integers(arena)[:] = 0

    def records(self) -> dict[int, ProfileRecord]:
        """What the steps since recorded, by device."""
        plan = self.executable.profile
        assert plan is not None
        return {d: plan.read(arena) for d, arena in self.arenas.items()}

    @property
    def arenas(self) -> dict[int, Block]:
        """Each device's arena, by its number."""
        return {d.number: d.arena for d in self._running}

    def _run_step(self, arguments: Sequence[Any]) -> list[ShardedArray]:
        if self._hosts.calling:
            raise RunError(
                f"{self.executable.name} calls a Python function that calls the program again",
                fix="remove the inner call",
            )
        return super()._run_step(arguments)

    def _step_once(self) -> None:
        self._call_helpers()
        if self._loop is not None:
            self._drive(self._loop)
            return
        self._running[0].begin()
        self._rows[0].answer = self._running[0].advance(self._step)
        self.attend(ANSWERED)

    def attend(self, state: int) -> bool:
        if self._loop is not None:
            return super().attend(state)
        if (answer := self._pass_hosts(0, self._rows[0].answer)) != DONE:
            raise self._wrong([answer])
        return True

    def _finish(self, answers: list[int]) -> None:
        if isinstance(self._executor, InProcessExecutor) and not self._writes_shared():
            answers = finish_diverging_groups(self._executor, self.devices, answers, self._advance)
        if set(answers) != {DONE}:
            raise self._wrong(answers)

    def _writes_shared(self) -> bool:
        """Whether a result overwrites an argument that several devices read. For this, all devices must have stopped
        together."""
        source = dict(self.executable.aliases)
        for number in (source[k] for k in self.executable.shared):
            places = [ctypes.c_void_p.from_address(row.arguments + 8 * number).value for row in self._rows]
            if len(set(places)) < len(places):
                return True
        return False

    def _advance(self, place: int) -> int:
        """One device to its next stop, and past its calls of Python."""
        return self._pass_hosts(place, self._running[place].advance(self._step))

    def _pass_hosts(self, place: int, answer: int) -> int:
        """Where a device that has stopped with ``answer`` stops for something else than Python."""
        device = self._running[place]
        while is_host(answer):
            self._hosts.make(answer, self._rows[place])
            answer = device.advance(self._step)
        return answer

    def _call_python(self, loop: Prepared) -> None:
        """Call by call, in each the devices in turn; who is further on waits for the others."""
        rows = loop.rows
        try:
            while waiting := [row.answer for row in rows if is_host(row.answer)]:
                stopped = [k for k, row in enumerate(rows) if row.answer == min(waiting)]
                for k in stopped:
                    self._hosts.make(rows[k].answer, rows[k])
                for k in stopped:
                    rows[k].answer = self._running[k].advance(self._step)
        except RunError as error:
            raise self._failed(error) from error.__cause__

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
            f"the step of {self.executable.name} stopped at collective {stops[0]}, which does not exist",
            fix="the compiled object is damaged: remove it from the cache",
        )

    def _diverged(self, stops: Sequence[int]) -> RunError:
        def place_of(stop: int) -> str:
            call = self._calls.get(stop & ~WAIT) if stop != DONE else None
            return "at the end" if call is None else f"in {call.op} %{call.name}"

        places = "; ".join(f"device {d} is {place_of(s)}" for d, s in zip(self.devices, stops, strict=True))
        return RunError(
            f"the devices of {self.executable.name} took different branches: {places}",
            fix="a condition around collectives must have the same value on all devices",
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
