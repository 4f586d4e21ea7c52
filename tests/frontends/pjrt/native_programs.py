"""Programs run through PJRT_LoadedExecutable_Execute by hand, without a client of JAX."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np

from shardc.collectives.in_process.transport import LocalTransport
from shardc.frontends.pjrt.abi.buffers import BufferDeleteArgs, BufferDestroyArgs
from shardc.frontends.pjrt.abi.execution import LoadedExecutableExecuteArgs, PjrtExecuteOptions
from shardc.frontends.pjrt.loaded_program import LoadedProgram, Output, load_program
from shardc.frontends.pjrt.native.contexts import ContextRecord, HostFunctionsRecord
from shardc.frontends.pjrt.native.library import library
from shardc.frontends.pjrt.native.records import BlockRecord, BufferRecord, DeviceRecord, ErrorRecord, MemoryRecord
from shardc.frontends.pjrt.step_worker import step_worker
from shardc.hlo.config import Config
from shardc.native.lowlevel.records import RELAXED, address_of, reference

_A = ctypes.c_size_t


class NativeError(Exception):
    """An error of PJRT's: its message, and its code."""


@cache
def native() -> Any:
    return library(Config.from_environment().cache_dir)


@cache
def devices() -> tuple[tuple[DeviceRecord, ...], MemoryRecord]:
    return tuple(DeviceRecord(local_hardware_id=k) for k in range(8)), MemoryRecord()


def problem_of(error: int) -> NativeError:
    record = ErrorRecord.at(error)
    found = NativeError(ctypes.string_at(record.message.data, record.message.nbytes).decode(), record.code)
    native().release_error(error)
    return found


@dataclass
class Buffer:
    """A buffer of one device; it is destroyed with this."""

    handle: int

    @property
    def record(self) -> BufferRecord:
        return BufferRecord.at(self.handle)

    @property
    def data(self) -> int:
        return int(self.record.block.data)

    @property
    def state(self) -> int:
        return int(self.record.state.load(RELAXED))

    def read(self) -> np.ndarray[Any, Any]:
        """The elements when they are there; `NativeError`."""
        event = address_of(self.record.ready)
        native().function("shardc_pjrt_await_event", None, _A, keeps_gil=False)(event)
        error = native().function("shardc_pjrt_error_of_event", _A, _A)(event)
        if error:
            raise problem_of(error)
        dims = [self.record.dims[k] for k in range(self.record.rank)]
        nbytes = 4 * int(np.prod(dims))
        return np.frombuffer(ctypes.string_at(self.data, nbytes), np.float32).reshape(dims).copy()

    def delete(self) -> None:
        """Give up the memory."""
        args = BufferDeleteArgs(buffer=self.handle)
        native().function("shardc_pjrt_buffer_delete", _A, _A, keeps_gil=False)(address_of(args))

    def __del__(self) -> None:
        args = BufferDestroyArgs(buffer=self.handle)
        native().function("shardc_pjrt_buffer_destroy", _A, _A, keeps_gil=False)(address_of(args))


def put(device: int, value: Any, block: int = 0) -> Buffer:
    """A buffer of floats, in ``block`` (whose reference it takes) or memory of its own."""
    array = np.ascontiguousarray(value, np.float32)
    records, memory = devices()
    if not block:
        block = native().make_block(address_of(records[device]), array.nbytes)
        ctypes.memmove(BlockRecord.at(block).data, array.ctypes.data, array.nbytes)
    return Buffer(native().make_buffer(address_of(records[device]), address_of(memory), 11, array.shape, block))


@dataclass
class Program:
    """A compiled program, loaded for `execute`."""

    compiled: Any
    loaded: LoadedProgram = field(init=False)
    #: The functions of Python that it calls, as jaxlib passes them with an execution.
    context: ContextRecord = field(init=False)
    keep: list[Any] = field(init=False)

    def __post_init__(self) -> None:
        executable = self.compiled.executable
        records, memory = devices()
        count = executable.num_devices
        places = [address_of(d) for d in records[:count]]
        outputs = [Output(11, (address_of(memory),) * count) for _ in executable.results]
        self.loaded = load_program(executable, self.compiled.config, LocalTransport(), 0, places, outputs)
        step_worker(native()).add(self.loaded)
        calls = [c.evaluate for c in self.compiled.config.custom_calls.values() if isinstance(c.evaluate, partial)]
        functions = list(calls[0].args[0]) if calls else []
        items = (ctypes.py_object * max(1, len(functions)))(*functions)
        passed = HostFunctionsRecord(count=len(functions))
        passed.items = reference(ctypes.addressof(items))
        self.context = ContextRecord(functions=address_of(passed) if functions else 0)
        self.keep = [functions, items, passed]

    def __call__(self, *rows: Sequence[Buffer], kept: Sequence[int] = ()) -> list[list[Buffer]]:
        """Execute with the arguments of each device; the results of each."""
        count = self.loaded.record.num_outputs
        given = [(_A * max(1, len(row)))(*(b.handle for b in row)) for row in rows]
        made = [(_A * max(1, count))() for _ in rows]
        lists = (_A * len(rows))(*map(ctypes.addressof, given)), (_A * len(rows))(*map(ctypes.addressof, made))
        numbers = (ctypes.c_int64 * max(1, len(kept)))(*kept)
        options = PjrtExecuteOptions(
            context=address_of(self.context),
            non_donatable_input_indices=ctypes.addressof(numbers),
            num_non_donatable_input_indices=len(kept),
        )
        args = LoadedExecutableExecuteArgs(
            executable=self.loaded.handle,
            options=address_of(options),
            argument_lists=ctypes.addressof(lists[0]),
            num_devices=len(rows),
            num_args=len(rows[0]),
            output_lists=ctypes.addressof(lists[1]),
        )
        error = native().function("shardc_pjrt_execute", _A, _A, keeps_gil=False)(address_of(args))
        if error:
            raise problem_of(error)
        return [[Buffer(row[k]) for k in range(count)] for row in made]

    def set_expected(self, nanoseconds: int) -> None:
        """What the step is believed to take: 0 or much has it run by the worker, little by the caller."""
        self.loaded.record.expected = nanoseconds


__all__ = ["Buffer", "NativeError", "Program", "devices", "native", "problem_of", "put"]
