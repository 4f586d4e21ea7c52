"""A program loaded on devices of the client: what compiling ends with, and what Execute runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shardc.collectives.call.transport import Transport
from shardc.compiler.executable import Executable
from shardc.compiler.load.step import load_step
from shardc.frontends.pjrt.native.programs import ProgramRecord
from shardc.hlo.config import Config
from shardc.launcher.arrays.array import Array
from shardc.launcher.driver.driver import Driver
from shardc.launcher.jobs.job import threads_per_process
from shardc.native.lowlevel.records import address_of

__all__ = ["LoadedProgram", "load_program"]


@dataclass(frozen=True, eq=False)
class LoadedProgram:
    """``driver`` runs the program's steps on this process's devices, which are ``driver.devices`` by their numbers in
    the program. In that order ``devices`` are the addresses of the client's records of them, and ``memories`` by
    result those of the memories that its shards are said to lie in.

    Shapes, donated arguments and aliases are `driver.executable`'s. ``record`` stays where it is as long as this value:
    its address is the ``PJRT_LoadedExecutable*``.
    """

    driver: Driver
    devices: tuple[int, ...]
    memories: tuple[tuple[int, ...], ...]
    record: ProgramRecord

    @property
    def handle(self) -> int:
        """The ``PJRT_LoadedExecutable*``."""
        return address_of(self.record)


def load_program(
    executable: Executable,
    config: Config,
    transport: Transport,
    number: int,
    devices: Sequence[int],
    memories: Sequence[Sequence[int]],
) -> LoadedProgram:
    """``executable`` linked into this process and loaded on its devices; see `LoadedProgram`.

    ``transport`` is the job's where the program runs on devices of several processes, who then call this together, and
    a `LocalTransport` otherwise.
    """
    settings = replace(config, num_threads=threads_per_process(config))
    step = load_step(executable, config.custom_calls, config)
    driver = Driver(executable, step, transport, settings, step.pool, array_type=Array)
    record = ProgramRecord(number=number)
    return LoadedProgram(driver, tuple(devices), tuple(map(tuple, memories)), record)
