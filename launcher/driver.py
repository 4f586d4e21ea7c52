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
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.collectives.control import program_number
from shardc.collectives.memory import aligned_bytes
from shardc.collectives.transport import Transport
from shardc.compiler.executable import ARENA_HEADER, DONE, PASSED_BY, Executable, check_error
from shardc.compiler.load import step_drive
from shardc.hlo.config import Config
from shardc.hlo.errors import InputError, RunError
from shardc.hlo.groups import groups_grid
from shardc.launcher.arguments import BufferPool, place
from shardc.launcher.array import Array
from shardc.launcher.layout import Layout
from shardc.launcher.standing import Plan
from shardc.launcher.watchdog import Watchdog, start_watchdog
from shardc.native.drive import FAILED, FINISHED, JOB_BYTES, START, WAIT, WAITING, Prepared
from shardc.native.pool import SPIN, Pool, Row, pool_object
from shardc.native.pool import pool as process_pool

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

#: How much longer than usual ranks wait for each other before the first step.
_COMPILE_PATIENCE = 20.0


class _Device:
    """One device of this process: its memory, and what the step takes, made once and filled anew for each step."""

    def __init__(self, number: int, executable: Executable, constants: Block, arena: Block, passed_by: int = 0) -> None:
        self.number = number
        self.arena = arena
        self.arguments = (ctypes.c_void_p * max(1, len(executable.arguments)))()
        self.results = (ctypes.c_void_p * max(1, len(executable.results)))()
        self._constants = constants
        self.arena[:ARENA_HEADER] = 0
        self.arena[PASSED_BY : PASSED_BY + 8].view(np.uint64)[0] = passed_by
        self._resume_point = self.arena[:PASSED_BY]
        self._step = (self.arena.ctypes.data, self.arguments, self.results, constants.ctypes.data, number)

    def begin(self) -> None:
        """The next call of `advance` starts at the beginning."""
        self._resume_point[:] = 0

    def advance(self, step: Step) -> int:
        """Run to the next stop."""
        return step(*self._step)

    def row(self) -> Row:
        """What `advance` passes, as the pool takes it."""
        tables = (ctypes.addressof(self.arguments), ctypes.addressof(self.results))
        return Row(self.arena.ctypes.data, *tables, self._constants.ctypes.data, self.number, 0)


class Driver:
    """A loaded program on its devices. Calling it runs one step on global arguments.

    ``step`` is the native function (or anything that behaves like it); ``transport`` says which devices are ours.
    Making a driver is collective: all processes of the job must hold the same program. ``pool`` are the threads that
    devices run on and kernels call for help: ``config.num_threads`` with the caller's own.
    """

    def __init__(
        self, executable: Executable, step: Step, transport: Transport, config: Config, pool: Pool | None = None
    ) -> None:
        self.executable = executable
        self.transport = transport
        self._number = program_number(_agree(executable, transport))
        self.devices = transport.ownership(executable.num_devices).devices(transport.process_index)
        self._step = step
        self._calls = {c.index: c for c in executable.collectives}
        self._arguments = [Layout.of(spec, executable.num_devices) for spec in executable.arguments]
        self._results = [Layout.of(spec, executable.num_devices) for spec in executable.results]
        self._constants = aligned_bytes(len(executable.constants))
        self._constants[:] = np.frombuffer(executable.constants, np.uint8)
        arena_bytes = max(executable.arena_bytes, ARENA_HEADER)
        masks = _passed_by(executable, self.devices)
        self._running = [
            _Device(d, executable, self._constants, transport.empty(arena_bytes), mask)
            for d, mask in zip(self.devices, masks, strict=True)
        ]
        self._donations = {n: f"{executable.name} as {self._title(n)}" for n in executable.donated}
        #: Results that may be written over a donated argument, and over which.
        self._sources = dict(executable.aliases)
        self._shared = frozenset(executable.shared)
        self._titles = [partial(self._title, n) for n in range(len(self._arguments))]
        self._pool = BufferPool(transport.empty)
        self._compares_inputs = config.check and transport.process_count > 1
        threads = config.num_threads or _cores()
        #: The loop over collectives; None for one device that has none.
        self._watchdog: Watchdog | None = None
        self._loop: Prepared | None = None
        if len(self._running) > 1 or self._calls:
            self._loop = self._connected(pool or process_pool(pool_object()), config)
        # Threads that share cores with others sleep at once instead of watching for work.
        self._helpers = None if pool is None else (pool, threads - 1, SPIN if threads <= _cores() else 0)
        #: Steps run.
        self.steps = 0

    def _connected(self, pool: Pool, config: Config) -> Prepared:
        """The loop over this program's collectives, with the performer that the transport makes for them."""
        rows = (Row * len(self._running))(*(d.row() for d in self._running))
        performer = self.transport.connect(self.executable.collectives, self.executable.num_devices, rows, pool)
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
        if self._loop is None:
            return self._step_alone(arguments)
        placed, ours = self._place(arguments)
        results = self._result_blocks(placed, ours)
        self._pool.settle()
        self._fill_tables(arguments, placed, results)
        self._run(self._loop)
        self.steps += 1
        free = [b for blocks in ours.values() for b in blocks] + self._donate(arguments)
        if free:
            in_results = {id(b) for blocks in results for b in blocks}
            self._pool.give(b for b in free if id(b) not in in_results)
        return [self._array(layout, [r[k] for r in results]) for k, layout in enumerate(self._results)]

    def _step_alone(self, arguments: Sequence[Any]) -> list[Array]:
        """The same for one device that exchanges nothing: steps of microseconds feel every list that is made."""
        (device,) = self._running
        blocks: list[Block] = []
        copies: list[Block] = []
        ours: set[int] = set()
        for k, (value, layout) in enumerate(zip(arguments, self._arguments, strict=True)):
            block = None
            if type(value) is Array and value._layout.same_data(layout):
                block = value._blocks.get(device.number)
            if block is not None:
                device.arguments[k] = value._address(device.number)
                if k in self._donations and not value._shared:
                    ours.add(k)
            else:
                (block,), copied = place(value, layout, self.devices, self._pool, self._titles[k])
                device.arguments[k] = block.ctypes.data
                if copied:
                    ours.add(k)
                    copies.append(block)
            blocks.append(block)
        made = [
            self._result_alone(k, device, blocks[a] if (a := self._sources.get(k, -1)) in ours else None)
            for k in range(len(self._results))
        ]
        self._pool.settle()
        self._run_alone(device)
        self.steps += 1
        free = copies + self._donate(arguments)
        if free:
            in_results = {id(a._blocks[device.number]) for a in made}
            self._pool.give(b for b in free if id(b) not in in_results)
        return made

    def _result_alone(self, number: int, device: _Device, block: Block | None) -> Array:
        """Result ``number``, still to be written: into ``block``, an argument's, or fresh memory."""
        layout = self._results[number]
        if block is None:
            block = self._pool.take(layout.local_bytes)
            address = block.ctypes.data
        else:
            address = device.arguments[self._sources[number]] or 0
        device.results[number] = address
        return Array(layout, {device.number: block}, self.transport, {device.number: address})

    def _fill_tables(
        self, arguments: Sequence[Any], placed: Sequence[Sequence[Block]], results: Sequence[Sequence[Block]]
    ) -> None:
        """Where the arguments and results of each device lie."""
        for i, device in enumerate(self._running):
            known: dict[int, int] = {}
            for k, (value, blocks) in enumerate(zip(arguments, placed, strict=True)):
                block = blocks[i]
                ours = isinstance(value, Array) and value._blocks.get(device.number) is block
                address = value._address(device.number) if ours else block.ctypes.data
                device.arguments[k] = known[id(block)] = address
            for k, block in enumerate(results[i]):
                address = known.get(id(block))
                device.results[k] = block.ctypes.data if address is None else address

    def put(self, number: int, value: Any) -> Array:
        """Argument ``number`` on its devices, to be passed to several steps; always a copy."""
        layout = self._arguments[number]
        blocks, copied = place(value, layout, self.devices, self._pool, self._titles[number])
        if not copied:
            copies = {id(b): self._pool.take(b.size) for b in blocks}
            for b in blocks:
                copies[id(b)][:] = b
            blocks = [copies[id(b)] for b in blocks]
        return Array(layout, dict(zip(self.devices, blocks, strict=True)), self.transport)

    def _place(self, arguments: Sequence[Any]) -> tuple[list[list[Block]], dict[int, list[Block]]]:
        """Blocks by parameter and device; and by parameter those that hold copies made for this step."""
        placed, ours = [], {}
        for number, (value, layout) in enumerate(zip(arguments, self._arguments, strict=True)):
            blocks, copied = place(value, layout, self.devices, self._pool, self._titles[number])
            placed.append(blocks)
            if copied:
                ours[number] = blocks
            elif number in self.executable.donated and isinstance(value, Array) and not value._shared:
                # A donated array given in another layout was copied and is in the case above.
                ours[number] = []
        return placed, ours

    def _result_blocks(self, placed: list[list[Block]], ours: Mapping[int, list[Block]]) -> list[list[Block]]:
        """Memory for the results by device: a donated argument's where the step may write in place, else fresh.

        Of a block that several devices read (replicas) the first of them gets it, if that may write it.
        """
        columns = []
        for k, layout in enumerate(self._results):
            a = self._sources.get(k, -1)
            blocks = placed[a] if a in ours and (k in self._shared or self._exclusive(placed[a])) else ()
            free = {id(b): b for b in blocks}
            column = [free.pop(id(b), None) for b in blocks] or [None] * len(self._running)
            columns.append([self._pool.take(layout.local_bytes) if b is None else b for b in column])
        return [list(row) for row in zip(*columns, strict=True)] if columns else [[] for _ in self._running]

    @staticmethod
    def _exclusive(blocks: Sequence[Block]) -> bool:
        return len(blocks) == 1 or len({id(b) for b in blocks}) == len(blocks)

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
            while state == WAITING:
                self._performer.tick()
                if self._watchdog is not None:
                    self._watchdog.tick(loop.job.made, loop.history[-1].begin)
                state = loop.run()
        finally:
            loop.abandon()
        if state == FINISHED:
            return
        if state == FAILED:
            error = self._performer.failure(loop.job.code, loop.job.stop & ~WAIT)
            raise error if self._watchdog is None else self._watchdog.failed(error)
        raise self._wrong([row.answer for row in loop.rows])

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

    def _array(self, layout: Layout, blocks: Sequence[Block]) -> Array:
        """An `Array` of one block per distinct shard; the replicas' memory is free again."""
        first: dict[tuple[int, ...], Block] = {}
        kept: dict[int, Block] = {}
        for device, block in zip(self.devices, blocks, strict=True):
            kept[device] = block if layout.maximal else first.setdefault(layout.positions[device], block)
        used = {id(b) for b in kept.values()}
        self._pool.give(b for b in blocks if id(b) not in used)
        return Array(layout, kept, self.transport)

    def _check_count(self, arguments: Sequence[Any]) -> None:
        if len(arguments) != len(self._arguments):
            names = ", ".join(a.name or f"arg{i}" for i, a in enumerate(self._arguments))
            raise InputError(
                f"{self.executable.name} takes {len(self._arguments)} arguments, {len(arguments)} were given",
                fix=f"its parameters are: {names or '(none)'}",
            )
        if not self.executable.donated:
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
                    where=" and ".join(self._title(k) for k in same),
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
                    where=self._title(different[0]) if different else None,
                    fix="a NumPy argument is the global value: seed random numbers alike on every rank",
                )

    def _donate(self, arguments: Sequence[Any]) -> list[Block]:
        """Make donated arrays unusable; returns their blocks."""
        blocks: list[Block] = []
        for number in self.executable.donated:
            value = arguments[number]
            if isinstance(value, Array):
                blocks += value._donate(self._donations[number]).values()
        return blocks

    def _title(self, number: int) -> str:
        name = self._arguments[number].name
        return f"argument {number}" + (f" ({name})" if name else "")

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
    hashes = transport.exchange_objects(mine, patience=_COMPILE_PATIENCE)
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
