"""Runs a program on this process's GPU: all of its devices, as virtual ones, share it.

What a step does is data (`shardc.compiler.gpu_program`). Runs of work that the host need not look at become graphs, and
a call returns when they are launched: arrays stay on the GPU, and reading one waits for it. Collectives that go through
the host are done by the loop that drives steps on a CPU (`shardc.native.drive.drive_loop`), for which the walk through
this step is one more step function.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shardc.collectives.call.call import CollectiveCall
from shardc.collectives.call.transport import Transport
from shardc.collectives.gpu.group_work import DeviceCollectives
from shardc.collectives.gpu.places import BufferPlaces
from shardc.collectives.gpu.routes import Routes, choose_routes
from shardc.collectives.gpu.virtual import VirtualCollectives
from shardc.compiler.executable import ARENA_HEADER, DONE, Executable, encode_failed_check
from shardc.compiler.gpu_program import CheckStep, GpuProgram, LaunchStep, ProductStep, leaf_steps
from shardc.compiler.load.gpu import host_kernels, images_here, need_device
from shardc.compiler.profile import ProfileRecord
from shardc.hlo.config import Config
from shardc.hlo.errors import RunError
from shardc.launcher.arrays.sharded_array import ShardedArray
from shardc.launcher.driver.driver import STEP_TYPE
from shardc.launcher.driver.step_driver import StepDriver
from shardc.launcher.gpu.checks import Checks
from shardc.launcher.gpu.device_contexts import context_of_process
from shardc.launcher.gpu.devices import gpu_errors
from shardc.launcher.gpu.graphs import GraphCache
from shardc.launcher.gpu.host_steps import HostSteps
from shardc.launcher.gpu.memory import GpuContext
from shardc.launcher.gpu.plan import cut
from shardc.launcher.gpu.staged import Staged
from shardc.launcher.gpu.streams import StepCode, Streams
from shardc.launcher.gpu.tables import GpuTables
from shardc.launcher.gpu.timed import Timed
from shardc.launcher.gpu.walk import Walk
from shardc.native.gpu.runtime import Kernel
from shardc.native.threads.pool import pool, pool_object

if TYPE_CHECKING:
    from shardc.launcher.driver.checked import StepCheck

__all__ = ["GpuDriver"]

#: What the walk answers the loop when it raised: no collective and no check has this number.
_RAISED = encode_failed_check(1 << 20)


class GpuDriver(StepDriver):
    """A program for GPUs loaded on this process's devices. Calling it starts one step on global arguments.

    ``context`` is the GPU. Making a driver is collective, as for `shardc.launcher.driver.driver.Driver`.
    """

    def __init__(
        self,
        executable: Executable,
        context: GpuContext,
        transport: Transport,
        config: Config,
        check: StepCheck | None = None,
        *,
        array_type: type[ShardedArray],
        nccl: bool = False,
    ) -> None:
        super().__init__(executable, transport, config, check)
        assert executable.gpu is not None
        program: GpuProgram = executable.gpu
        need_device(executable, context.runtime.target)
        self.context = context
        self._tables: GpuTables = GpuTables(executable, self.devices, transport, context, array_type)
        routes = choose_routes(executable.collectives, transport.ownership(executable.num_devices), nccl)
        with gpu_errors():
            self._places = self._laid_out()
            self._streams = Streams(context, self._code(program, routes, config), self._places)
        self.graphs = GraphCache(self._streams, self._tables)
        staged = Staged(context, routes.staged, self._places, transport) if routes.staged else None
        self._nodes = cut(
            program.steps, {c.index for c in routes.staged}, {c.index for c in routes.staged if c.asynchronous}
        )
        self._host = host_kernels(executable, config)
        hosts = HostSteps(context, self._host.functions)
        code = self._streams.code
        self._walk = Walk(context, self.graphs, self._places, hosts, code.checks, staged, code.timed)
        self._walking: Iterator[int] = iter(())
        self._round = _Round(len(self.devices))
        self._error: BaseException | None = None
        if staged is not None:
            self._native = STEP_TYPE(self._advance)
            address = int(ctypes.cast(self._native, ctypes.c_void_p).value or 0)
            self._connect(staged.calls, staged.rows(), address, pool(pool_object()), config)

    @staticmethod
    def of(
        executable: Executable,
        transport: Transport,
        config: Config,
        check: StepCheck | None = None,
        *,
        array_type: type[ShardedArray],
    ) -> GpuDriver:
        """``executable`` on the GPU that this process has in its job; in a job all ranks call this together.

        `EnvironmentProblem` where there is none that can run it.
        """
        assert executable.gpu is not None
        context, nccl = context_of_process(executable.gpu.target, transport)
        return GpuDriver(executable, context, transport, config, check, array_type=array_type, nccl=nccl)

    @property
    def collectives_done(self) -> int:
        return super().collectives_done + self.graphs.collectives

    def clear_records(self) -> None:
        """The next step is the one that `records` is to tell of."""
        if self._streams.code.timed is not None:
            with gpu_errors():
                self._streams.code.timed.clear(self.context.main)

    def records(self) -> dict[int, ProfileRecord]:
        """What each device did in the last steps of a program compiled for profiling, when they are over."""
        if self._streams.code.timed is None:
            return {}
        with gpu_errors():
            return self._streams.code.timed.records()

    def _laid_out(self) -> dict[int, BufferPlaces]:
        """Where each device's memory is; arenas and constants are this driver's."""
        executable, pool = self.executable, self.context.pool
        arena_bytes = max(executable.arena_bytes, ARENA_HEADER)
        self._constants = pool.lease(len(executable.constants))
        self.context.upload(self._constants.address, np.frombuffer(executable.constants, np.uint8))
        self._arenas = [pool.lease(arena_bytes) for _ in self.devices]
        arguments, results = self._tables.arguments.addresses, self._tables.results.addresses
        return {
            d: BufferPlaces(self._arenas[i].address, self._constants.address, arguments[i], results[i])
            for i, d in enumerate(self.devices)
        }

    def _code(self, program: GpuProgram, routes: Routes, config: Config) -> StepCode:
        """The loaded program."""
        runtime, executable = self.context.runtime, self.executable
        steps = list(leaf_steps(program.steps))
        kernels: dict[str, Kernel] = {}
        launched = [s for s in steps if isinstance(s, LaunchStep)]
        if launched:
            module = runtime.load(images_here(program, runtime.target, executable.name), program.ptx)
            shared: dict[str, int] = {}
            for step in launched:
                shared[step.symbol] = max(shared.get(step.symbol, 0), step.shape.shared_bytes)
            kernels = {symbol: module.kernel(symbol, nbytes) for symbol, nbytes in shared.items()}
        ways: dict[int, DeviceCollectives] = {}
        virtual = VirtualCollectives(runtime, routes.within, executable.num_devices, self.devices)
        ways.update((c.index, virtual) for c in routes.within)
        ways.update(self._nccl(routes.by_nccl))
        checks = None
        if any(isinstance(s, CheckStep) for s in steps):
            checks = Checks(self.context, executable, self.devices)
        products = _products(runtime, [s for s in steps if isinstance(s, ProductStep)])
        timed = None
        if executable.profile is not None:
            timed = Timed(runtime, program, executable.profile, self.devices)
        return StepCode(kernels, self._calls, ways, checks, products, timed)

    def _nccl(self, calls: Sequence[CollectiveCall]) -> Mapping[int, DeviceCollectives]:
        if not calls:
            return {}
        from shardc.collectives.gpu.nccl import NcclCollectives

        ways = NcclCollectives(self.context.runtime, calls, self.executable.num_devices, self.transport)
        return {c.index: ways for c in calls}

    def _step_once(self) -> None:
        with gpu_errors():
            self._walking = self._walk.run(self._nodes)
            if self._loop is None:
                for stop in self._walking:
                    raise AssertionError(f"the step stopped at collective {stop}")
                return
            self._error, self._round.asked = None, 0
            self._drive(self._loop)

    def _finish(self, answers: list[int]) -> None:
        if self._error is not None:
            raise self._error
        if set(answers) != {DONE}:
            raise RunError(f"the step of {self.executable.name} stopped at {answers}", fix="please report this")

    def _advance(self, *_: Any) -> int:
        """The step function of every device: all of them walk together, when the first one is asked."""
        return self._round.answer(self._next_stop)

    def _next_stop(self) -> int:
        try:
            return next(self._walking, DONE)
        except BaseException as error:
            self._error = error
            return _RAISED


class _Round:
    """Devices that are asked one by one, by whatever thread, and get one answer for all of them."""

    def __init__(self, devices: int) -> None:
        self._devices, self._lock = devices, threading.Lock()
        self._answer = DONE
        self.asked = 0

    def answer(self, find: Any) -> int:
        with self._lock:
            if self.asked == 0:
                self._answer = find()
            self.asked = (self.asked + 1) % self._devices
            return self._answer


def _products(runtime: Any, steps: Sequence[ProductStep]) -> Any:
    if not steps:
        return None
    from shardc.native.gpu.cuda.cublaslt import Products

    return Products(runtime, max(s.workspace.nbytes for s in steps))
