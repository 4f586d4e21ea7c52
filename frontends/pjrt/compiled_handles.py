"""What PJRT asks about compiled programs, and what it is told: names, devices, kinds of results."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from shardc.frontends.pjrt.abi.executables import (
    ExecutableFingerprintArgs,
    ExecutableNameArgs,
    ExecutableOutputDimensionsArgs,
    ExecutableOutputElementTypesArgs,
    ExecutableOutputMemoryKindsArgs,
    ExecutableParameterMemoryKindsArgs,
    ExecutableSizeOfGeneratedCodeInBytesArgs,
    LoadedExecutableAddressableDeviceLogicalIdsArgs,
    LoadedExecutableAddressableDevicesArgs,
    LoadedExecutableFingerprintArgs,
    LoadedExecutableGetDeviceAssignmentArgs,
    LoadedExecutableGetExecutableArgs,
)
from shardc.frontends.pjrt.compile import CompiledProgram
from shardc.frontends.pjrt.element_types import TOKEN, element_type_number
from shardc.frontends.pjrt.kept_memory import KeptMemory
from shardc.frontends.pjrt.loaded_program import LoadedProgram, Output
from shardc.frontends.pjrt.native.executables import ExecutableRecord
from shardc.frontends.pjrt.native.programs import ProgramRecord
from shardc.frontends.pjrt.protos.messages import ComputationDevice, DeviceAssignmentProto
from shardc.frontends.pjrt.topology import MEMORY_KINDS
from shardc.hlo.errors import InputError
from shardc.native.lowlevel.records import ACQUIRE, RELAXED, address_of

__all__ = ["CompiledHandle", "CompiledHandles"]

#: Programs among which nobody looks for forgotten ones.
_FEW = 64


@dataclass(frozen=True, eq=False)
class CompiledHandle:
    """A compiled program for the client: ``device_ids`` by number in the program, ``local_devices`` the client's
    records of those in this process with their numbers. ``loaded`` runs it, as long as its handle is not released."""

    number: int
    compiled: CompiledProgram
    device_ids: tuple[int, ...]
    local_devices: tuple[tuple[int, int], ...]
    record: ExecutableRecord
    loaded: list[weakref.ref[LoadedProgram]] = field(default_factory=list)
    memory: KeptMemory = field(default_factory=KeptMemory)

    @property
    def is_wanted(self) -> bool:
        """Whether the client still has a handle of the compiled program."""
        return self.record.handles.load(ACQUIRE) > 0 or any(r() is not None for r in self.loaded)

    @cached_property
    def name(self) -> str:
        return self.compiled.executable.name

    @cached_property
    def tokens(self) -> tuple[bool, ...]:
        """Whether each argument is a token."""
        arguments = self.compiled.border.arguments
        return () if arguments is None else tuple(a.is_token for a in arguments)

    @cached_property
    def outputs(self) -> tuple[tuple[int, tuple[int, ...], str], ...]:
        """By result: PJRT's number of its element type, its dimensions on a device, the kind of its memory."""
        found = iter(self.compiled.executable.results)
        border = self.compiled.border.results
        out: list[tuple[int, tuple[int, ...], str]] = []
        for k in range(len(self.compiled.executable.results) if border is None else len(border)):
            if border is not None and border[k].is_token:
                out.append((TOKEN, (), MEMORY_KINDS[0]))
                continue
            shape = next(found).local_shape
            kind = border[k].memory_kind if border is not None else ""
            out.append((element_type_number(shape.dtype), shape.dims, kind or MEMORY_KINDS[0]))
        return tuple(out)

    def outputs_in(self, memories: Sequence[Sequence[int]]) -> list[Output]:
        """The results for `load_program`; ``memories`` are by device the records of its memories, by `MEMORY_KINDS`."""
        return [
            Output(number, tuple(m[_kind_number(kind)] for m in memories), number == TOKEN)
            for number, _, kind in self.outputs
        ]

    @cached_property
    def assignment(self) -> bytes:
        """The device assignment as a message."""
        options = self.compiled.program.options
        partitions = options.num_partitions
        columns = (ComputationDevice(self.device_ids[p::partitions]) for p in range(partitions))
        return DeviceAssignmentProto(options.num_replicas, partitions, tuple(columns)).to_bytes()


def _kind_number(kind: str) -> int:
    if kind not in MEMORY_KINDS:
        raise InputError(f"there is no memory of kind {kind!r}", fix=f"use one of {', '.join(MEMORY_KINDS)}")
    return MEMORY_KINDS.index(kind)


class CompiledHandles:
    """All compiled programs of the process by number, and PJRT's functions about them. ``deleter`` is a native function
    that does nothing."""

    def __init__(self, deleter: int) -> None:
        self._by_number: dict[int, CompiledHandle] = {}
        self._numbers = itertools.count(1)
        self._deleter = deleter
        self._most = _FEW

    def add(
        self, compiled: CompiledProgram, device_ids: Sequence[int], local_devices: Sequence[tuple[int, int]]
    ) -> CompiledHandle:
        """A new one; whenever there are twice as many as were in use, those that nobody has any more are forgotten."""
        if len(self._by_number) >= self._most:
            for number, known in list(self._by_number.items()):
                if not known.is_wanted:
                    self._by_number.pop(number, None)
            self._most = max(_FEW, 2 * len(self._by_number))
        number = next(self._numbers)
        options = compiled.program.options
        record = ExecutableRecord(
            number=number, num_replicas=options.num_replicas, num_partitions=options.num_partitions
        )
        record.handles.store(1, RELAXED)  # until it is loaded
        handle = CompiledHandle(number, compiled, tuple(device_ids), tuple(local_devices), record)
        record.num_outputs = len(handle.outputs)
        self._by_number[number] = handle
        return handle

    def hold(self, handle: CompiledHandle, loaded: LoadedProgram) -> None:
        """``loaded`` is what runs it."""
        handle.loaded.append(weakref.ref(loaded))
        handle.record.handles.add(-1, RELAXED)

    def of_loaded(self, at: int) -> CompiledHandle:
        """By ``PJRT_LoadedExecutable*``."""
        return self._by_number[ProgramRecord.at(at).number]

    def of_executable(self, at: int) -> CompiledHandle:
        """By ``PJRT_Executable*``."""
        return self._by_number[ExecutableRecord.at(at).number]

    def get_executable(self, args: LoadedExecutableGetExecutableArgs) -> None:
        record = self.of_loaded(args.loaded_executable).record
        record.handles.add(1, RELAXED)
        args.executable = address_of(record)

    def addressable_devices(self, args: LoadedExecutableAddressableDevicesArgs) -> None:
        handle = self.of_loaded(args.executable)
        args.addressable_devices = handle.memory.numbers(at for at, _ in handle.local_devices)
        args.num_addressable_devices = len(handle.local_devices)

    def logical_ids(self, args: LoadedExecutableAddressableDeviceLogicalIdsArgs) -> None:
        handle = self.of_loaded(args.executable)
        partitions = handle.compiled.program.options.num_partitions
        pairs = (part for _, number in handle.local_devices for part in divmod(number, partitions))
        args.addressable_device_logical_ids = handle.memory.short_numbers(pairs)
        args.num_addressable_device_logical_ids = len(handle.local_devices)

    def device_assignment(self, args: LoadedExecutableGetDeviceAssignmentArgs) -> None:
        handle = self.of_loaded(args.executable)
        args.serialized_bytes = args.serialized_device_assignment = handle.memory.text_of(handle.assignment)
        args.serialized_bytes_size = len(handle.assignment)
        args.serialized_device_assignment_deleter = self._deleter

    def loaded_fingerprint(self, args: LoadedExecutableFingerprintArgs) -> None:
        self._tell_fingerprint(self.of_loaded(args.executable), args)

    def fingerprint(self, args: ExecutableFingerprintArgs) -> None:
        self._tell_fingerprint(self.of_executable(args.executable), args)

    def _tell_fingerprint(
        self, handle: CompiledHandle, args: ExecutableFingerprintArgs | LoadedExecutableFingerprintArgs
    ) -> None:
        text = handle.memory.text(handle.compiled.fingerprint)
        args.executable_fingerprint, args.executable_fingerprint_size = text.data, text.nbytes

    def name(self, args: ExecutableNameArgs) -> None:
        handle = self.of_executable(args.executable)
        text = handle.memory.text(handle.name)
        args.executable_name, args.executable_name_size = text.data, text.nbytes

    def code_size(self, args: ExecutableSizeOfGeneratedCodeInBytesArgs) -> None:
        args.size_in_bytes = sum(map(len, self.of_executable(args.executable).compiled.executable.objects))

    def output_element_types(self, args: ExecutableOutputElementTypesArgs) -> None:
        handle = self.of_executable(args.executable)
        args.output_types = handle.memory.short_numbers(number for number, _, _ in handle.outputs)
        args.num_output_types = len(handle.outputs)

    def output_dimensions(self, args: ExecutableOutputDimensionsArgs) -> None:
        handle = self.of_executable(args.executable)
        args.dims = handle.memory.numbers(d for _, dims, _ in handle.outputs for d in dims)
        args.dim_sizes = handle.memory.numbers(len(dims) for _, dims, _ in handle.outputs)
        args.num_outputs = len(handle.outputs)

    def output_memory_kinds(self, args: ExecutableOutputMemoryKindsArgs) -> None:
        handle = self.of_executable(args.executable)
        kinds = [kind for _, _, kind in handle.outputs]
        args.memory_kinds, args.memory_kind_sizes = handle.memory.texts(kinds)
        args.num_outputs = len(kinds)

    def parameter_memory_kinds(self, args: ExecutableParameterMemoryKindsArgs) -> None:
        handle = self.of_executable(args.executable)
        border = handle.compiled.border.arguments
        plain = [""] * len(handle.compiled.executable.arguments)
        kinds = [k or MEMORY_KINDS[0] for k in (plain if border is None else [a.memory_kind for a in border])]
        args.memory_kinds, args.memory_kind_sizes = handle.memory.texts(kinds)
        args.num_parameters = len(kinds)
