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
from shardc.frontends.pjrt.abi.clients import ClientCreateArgs
from shardc.frontends.pjrt.key_values import ClientKeyValues
from shardc.hlo.config import Config
from shardc.hlo.errors import EnvironmentProblem, UnsupportedError
from shardc.launcher.driver.executables import ProgramCompilation, share_executable
from shardc.launcher.jobs.job import job_transport, key_value_transport, local_transport, threads_per_process
from shardc.launcher.jobs.mpi_environment import detect_launcher

__all__ = ["Processes", "ProgramPlacement", "find_processes"]


@dataclass(frozen=True)
class ProgramPlacement:
    """Where a program runs: ``transport`` connects the processes, which run its devices by ``owners`` (empty: as the
    transport has it)."""

    transport: Transport
    owners: tuple[int, ...] = ()

    def build(self, compilation: ProgramCompilation) -> Executable:
        """Compile; rank 0 does it for all processes of a job, who call this together."""
        if self.transport.process_count == 1:
            return compilation.build(None)[0]
        return share_executable(compilation, self.transport)[0]

    @property
    def is_collective(self) -> bool:
        """Must the processes of the job come together to compile, load and run?"""
        return self.transport.process_count > 1


@dataclass(frozen=True)
class Processes:
    """The processes of the job; this one is number ``index``. Each has ``device_counts`` devices, whose ids follow one
    another from process to process. ``config`` are the settings for programs of this process."""

    index: int
    device_counts: tuple[int, ...]
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
        """Where a program runs whose devices have these ids.

        Raises `UnsupportedError` for devices of a part of the job's processes, or only of others.
        """
        owners = tuple(self.owners[d] for d in devices)
        if set(owners) == {self.index}:
            return ProgramPlacement(local_transport(self.config))
        if len(set(owners)) == self.count:
            return ProgramPlacement(self.transport, owners)
        raise UnsupportedError(
            f"a program on devices of processes {', '.join(map(str, sorted(set(owners))))}, compiled by process "
            f"{self.index} of {self.count}",
            fix="use devices of all processes (jax.devices()) or of one, by itself (jax.local_devices())",
        )


def find_processes(
    options: Mapping[str, object], args: ClientCreateArgs, config: Config, num_devices: int
) -> Processes:
    """The job of this process, which has ``num_devices``; all processes of the job call this together.

    ``options`` and ``args`` are what Client_Create was given. Raises `EnvironmentProblem` where ``jax.distributed`` and
    MPI say different things, and for processes of several machines that MPI does not connect.
    """
    told = options.get("node_id"), options.get("num_nodes")
    if detect_launcher() is not None:
        transport, threads = job_transport(config), threads_per_process(config)
        found = transport.process_index, transport.process_count
        if told not in (found, (None, None)):
            raise EnvironmentProblem(
                f"jax.distributed calls this process {told[0]} of {told[1]}, and MPI {found[0]} of {found[1]}",
                fix="leave jax.distributed.initialize() out: under an MPI launcher shardc needs no call; or give it "
                "MPI's rank and size",
            )
    elif told in ((None, None), (0, 1)):
        return Processes(0, (num_devices,), local_transport(config), config)
    else:
        index, count = (int(str(n)) for n in told)
        transport, threads = key_value_transport(config, ClientKeyValues(args), index, count)
    counts = transport.exchange_objects(num_devices, doing="making the client")
    return Processes(transport.process_index, tuple(counts), transport, replace(config, num_threads=threads))
