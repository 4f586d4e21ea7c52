"""The processes of a job as JAX sees them: whose devices are whose, and what connects those of a program.

Under an MPI launcher MPI tells who this process is, and connects it with the others; nobody calls anything. Under
``jax.distributed.initialize()`` JAX tells it, and its store of values: started by an MPI launcher the processes meet
through MPI all the same, otherwise in the memory of their machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

from shardc.collectives.call.transport import Transport
from shardc.compiler.executable import Executable
from shardc.compiler.load.step import step_drive
from shardc.frontends.pjrt.key_values import JaxKeyValues
from shardc.hlo.config import Config
from shardc.hlo.errors import EnvironmentProblem
from shardc.launcher.driver.executables import ProgramCompilation
from shardc.launcher.jobs.job import CodeCache, job_transport, local_transport, threads_per_process
from shardc.launcher.jobs.mpi_environment import detect_launcher
from shardc.launcher.jobs.watchdog import start_watchdog
from shardc.native.llvm.target import Target, common_target, host_target

__all__ = ["Processes", "ProgramPlacement", "find_processes"]


@dataclass(frozen=True)
class ProgramPlacement:
    """Where a program runs: ``transport`` connects the processes, which run its devices by ``owners`` (empty: as the
    transport has it). It is compiled for ``machine`` (None: this process's), which all of them are."""

    transport: Transport
    owners: tuple[int, ...] = ()
    machine: Target | None = None

    def build(self, compilation: ProgramCompilation) -> Executable:
        """Compile; every process does so for itself, and all make the same instructions."""
        return compilation.build(self.machine)[0]


@dataclass(frozen=True)
class Processes:
    """The processes of the job; this one is number ``index``. Each has ``device_counts`` devices, whose ids follow one
    another from process to process, and is a machine of ``targets``. ``config`` are the settings for programs of this
    process."""

    index: int
    device_counts: tuple[int, ...]
    targets: tuple[Target, ...]
    transport: Transport
    config: Config

    @property
    def count(self) -> int:
        return len(self.device_counts)

    @cached_property
    def owners(self) -> tuple[int, ...]:
        """The process of each device, by id."""
        return tuple(p for p, count in enumerate(self.device_counts) for _ in range(count))

    @property
    def devices(self) -> range:
        """The ids of this process's devices."""
        ends = list(accumulate(self.device_counts, initial=0))
        return range(ends[self.index], ends[self.index + 1])

    def place(self, devices: Sequence[int]) -> ProgramPlacement:
        """Where a program runs whose devices have these ids: in the processes that have them, in the order of their
        numbers. Others only compile it: JAX asks them what its results are like."""
        owners = tuple(self.owners[d] for d in devices)
        members = tuple(sorted(set(owners)))
        if len(members) == 1 or self.index not in members:
            return ProgramPlacement(local_transport(self.config))
        machine = common_target([self.targets[p] for p in members])
        if machine == host_target():
            machine = None  # as in jobs of one kind of machine: the cache knows it by that
        return ProgramPlacement(self._group(members), tuple(map(members.index, owners)), machine)

    def _group(self, members: tuple[int, ...]) -> Transport:
        """What connects some of the processes, the same whenever it is asked for."""
        return self._groups.get(members) or self._groups.setdefault(members, self.transport.among(members))

    @cached_property
    def _groups(self) -> dict[tuple[int, ...], Transport]:
        return {tuple(range(self.count)): self.transport}


def find_processes(options: Mapping[str, object], config: Config, num_devices: int) -> Processes:
    """The job of this process, which has ``num_devices``; all processes of the job call this together.

    ``options`` are those of Client_Create. Raises `EnvironmentProblem` where ``jax.distributed`` and
    MPI say different things, and for processes of several machines that MPI does not connect.
    """
    told = options.get("node_id"), options.get("num_nodes")
    if detect_launcher() is not None:
        transport, threads = job_transport(config), threads_per_process(config)
        found = transport.process_index, transport.process_count
        if told not in (found, (None, None)):
            raise EnvironmentProblem(
                f"jax.distributed counts this process as {told[0]} of {told[1]}, but MPI as {found[0]} of {found[1]}",
                fix="omit jax.distributed.initialize(), which shardc does not need under an MPI launcher; or give it "
                "MPI's rank and size",
            )
    elif told in ((None, None), (0, 1)):
        return Processes(0, (num_devices,), (), local_transport(config), config)
    else:
        from jax._src import distributed

        from shardc.launcher.transports.among_processes import key_value_transport  # as `job_transport` does

        index, count = (int(str(n)) for n in told)
        store = JaxKeyValues(distributed.global_state.client)
        transport, threads = key_value_transport(config, CodeCache(config), store, index, count)
    start_watchdog(transport, config.timeout, step_drive(config), config.record_to)
    everybody = transport.exchange_objects((num_devices, host_target()), doing="the start of the client")
    counts, targets = (tuple(part) for part in zip(*everybody, strict=True))
    return Processes(transport.process_index, counts, targets, transport, replace(config, num_threads=threads))
