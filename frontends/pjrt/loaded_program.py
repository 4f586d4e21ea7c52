"""A program loaded on devices of the client: what compiling ends with, and what Execute runs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from shardc.collectives.call.transport import Transport
from shardc.compiler.executable import Executable
from shardc.compiler.load.step import load_step
from shardc.frontends.pjrt.callbacks import HostFunctions
from shardc.frontends.pjrt.native.programs import ArgumentRecord, OutputRecord, ProgramRecord
from shardc.hlo.config import Config
from shardc.hlo.ir.callbacks import calls_of
from shardc.launcher.arrays.array import Array
from shardc.launcher.driver.driver import Driver
from shardc.launcher.driver.native_step import DriverRecord
from shardc.launcher.jobs.job import threads_per_process
from shardc.native.lowlevel.records import address_of, reference

__all__ = ["LoadedProgram", "Output", "load_program"]


@dataclass(frozen=True, slots=True)
class Output:
    """A result as the client sees it: PJRT's number of its element type, and by device of this process the address of
    the record of the memory that it lies in. ``is_token``: it has no elements, and the step does not make it."""

    element_type: int
    memories: tuple[int, ...]
    is_token: bool = False


@dataclass(frozen=True, eq=False)
class LoadedProgram:
    """``driver`` runs the program's steps on this process's devices, which are ``driver.devices`` by their numbers in
    the program; None where it has none of them. ``record`` is what native code knows of it, and stays where it is as
    long as this value. ``functions`` are those of Python that the step calls. ``again`` loads it once more."""

    driver: Driver | None
    record: ProgramRecord
    functions: HostFunctions
    again: Callable[[], LoadedProgram]
    keep: tuple[Any, ...]

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
    outputs: Sequence[Output],
    tokens: Sequence[bool] = (),
    owners: tuple[int, ...] = (),
) -> LoadedProgram:
    """``executable`` linked into this process and loaded on its devices.

    ``transport`` connects the processes that run it, who meet before its first step. ``devices`` are the addresses of
    the client's records of those in this process, by their numbers in the program. ``outputs`` are the client's
    results, and ``tokens`` says by argument of the client's which are tokens (empty: none is); the executable's are
    those without the tokens. ``owners`` are the processes by device, where these are not as the transport has them.
    """
    functions = HostFunctions()
    again = partial(load_program, executable, config, transport, number, devices, outputs, tokens, owners)
    if not devices:
        return _of_other_processes(number, functions, again)
    custom_calls = {**config.custom_calls, **calls_of(functions)}
    settings = replace(config, num_threads=threads_per_process(config), custom_calls=custom_calls)
    step = load_step(executable, config.custom_calls, config)
    late = transport.process_count > 1
    driver = Driver(executable, step, transport, settings, step.pool, array_type=Array, owners=owners, late=late)
    native = driver.native()
    tokens = tokens or [False] * len(executable.arguments)
    arguments = _arguments(executable, tokens)
    records, kept = _outputs(executable, outputs)
    places = np.array(devices, np.int64)
    record = ProgramRecord(
        number=number,
        devices=places.ctypes.data,
        arguments=ctypes.addressof(arguments),
        num_arguments=len(tokens),
        num_donated=sum(record.donated for record in arguments),
        outputs=ctypes.addressof(records),
        num_outputs=len(outputs),
        asks=int(late),
        calls=int(bool(executable.hosts)),
    )
    record.step = reference(ctypes.addressof(native.record))
    return LoadedProgram(driver, record, functions, again, (native, places, arguments, records, kept))


def _of_other_processes(number: int, functions: HostFunctions, again: Callable[[], LoadedProgram]) -> LoadedProgram:
    """A program that runs in other processes only."""
    record, step = ProgramRecord(number=number), DriverRecord()
    record.step = reference(ctypes.addressof(step))
    return LoadedProgram(None, record, functions, again, (step,))


def _arguments(executable: Executable, tokens: Sequence[bool]) -> ctypes.Array[ArgumentRecord]:
    """The records of arguments. One that is donated stays the client's where no result could lie in its memory."""
    numbers = iter(range(len(executable.arguments)))
    sizes = {result.local_shape.nbytes for result in executable.results}
    found = (ArgumentRecord * max(1, len(tokens)))()
    for record, is_token in zip(found, tokens, strict=False):
        record.number = -1 if is_token else next(numbers)
        fits = record.number >= 0 and executable.arguments[record.number].local_shape.nbytes in sizes
        record.donated = fits and record.number in executable.donated
    return found


def _outputs(executable: Executable, outputs: Sequence[Output]) -> tuple[ctypes.Array[OutputRecord], list[Any]]:
    """The records of results, and what they point to."""
    numbers = iter(range(len(executable.results)))
    found = (OutputRecord * max(1, len(outputs)))()
    kept: list[Any] = []
    for record, output in zip(found, outputs, strict=False):
        number = -1 if output.is_token else next(numbers)
        dims = np.array(executable.results[number].local_shape.dims if number >= 0 else (), np.int64)
        memories = np.array(output.memories, np.int64)
        kept += [dims, memories]
        record.__init__(number, output.element_type, len(dims), dims.ctypes.data, memories.ctypes.data)
    return found, kept
