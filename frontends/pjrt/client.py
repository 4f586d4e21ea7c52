"""The client: this process's devices and memories, and the programs that JAX has compiled for them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, replace

from shardc.compiler.executable import Executable
from shardc.frontends.pjrt.abi.base import PjrtNamedValue
from shardc.frontends.pjrt.abi.clients import (
    ClientCompileArgs,
    ClientCreateArgs,
    ClientDestroyArgs,
    PjrtProgram,
)
from shardc.frontends.pjrt.abi.executables import ExecutableDeserializeAndLoadArgs
from shardc.frontends.pjrt.callbacks import HostFunctions
from shardc.frontends.pjrt.compile import compile_jaxlib_program
from shardc.frontends.pjrt.compile_options import CompileOptions
from shardc.frontends.pjrt.compiled_handles import CompiledHandles
from shardc.frontends.pjrt.kept_memory import KeptMemory, take_text
from shardc.frontends.pjrt.loaded_program import LoadedProgram, load_program
from shardc.frontends.pjrt.native.records import ClientRecord, DeviceRecord, MemoryRecord
from shardc.frontends.pjrt.processes import Processes, find_processes
from shardc.frontends.pjrt.serialized_program import take_serialized
from shardc.frontends.pjrt.step_worker import StepWorker
from shardc.frontends.pjrt.topology import MEMORY_KINDS, PLATFORM_NAME, PLATFORM_VERSION, DeviceTopology, Topologies
from shardc.hlo.config import Config
from shardc.hlo.errors import InputError, UnsupportedError
from shardc.hlo.ir.callbacks import calls_of
from shardc.hlo.units import count_text
from shardc.launcher.driver.compiled import job_config
from shardc.launcher.driver.compiled_programs import compiled_programs
from shardc.native.lowlevel.records import address_of, reference

__all__ = ["Clients", "PjrtClient"]

_MOST_DEVICES = 4096


@dataclass(frozen=True, eq=False)
class PjrtClient:
    """A client with the records that its handles point at; ``memories`` are by device of this process their records,
    by `MEMORY_KINDS`."""

    processes: Processes
    topology: DeviceTopology
    record: ClientRecord
    devices: tuple[DeviceRecord, ...]
    memories: Mapping[int, tuple[int, ...]]
    kept: KeptMemory

    @property
    def handle(self) -> int:
        return address_of(self.record)

    @staticmethod
    def of(processes: Processes, topology: DeviceTopology) -> PjrtClient:
        kept = KeptMemory()
        record = ClientRecord(
            process_index=processes.index,
            platform_name=kept.text(PLATFORM_NAME),
            platform_version=kept.text(PLATFORM_VERSION),
            topology=topology.handle,
        )
        devices = []
        memories = {}
        for n, description in enumerate(topology.descriptions):
            is_local = n in processes.devices
            device = DeviceRecord(
                client=address_of(record),
                local_hardware_id=processes.devices.index(n) if is_local else -1,
                is_addressable=is_local,
            )
            device.description = reference(address_of(description))
            devices.append(device)
            if is_local:
                memories[n] = _memories(kept, n, address_of(device))
                device.memories, device.num_memories = kept.numbers(memories[n]), len(memories[n])
                device.default_memory = memories[n][0]
        local = [address_of(devices[n]) for n in processes.devices]
        everywhere = [m for of_device in memories.values() for m in of_device]
        record.devices, record.num_devices = reference(kept.numbers(map(address_of, devices))), len(devices)
        record.addressable_devices, record.num_addressable_devices = reference(kept.numbers(local)), len(local)
        record.memories, record.num_memories = reference(kept.numbers(everywhere)), len(everywhere)
        return PjrtClient(processes, topology, record, tuple(devices), memories, kept)

    def default_devices(self, count: int) -> tuple[int, ...]:
        """Ids of devices for a program that does not say where it runs: this process's, where these are enough."""
        ids = self.processes.devices if count <= len(self.processes.devices) else range(len(self.devices))
        if count > len(ids):
            raise InputError(
                f"the program is for {count_text(count, 'device')}, but there are {len(ids)}",
                fix=f"set SHARDC_NUM_DEVICES={count}, which gives a process {count_text(count, 'device')}",
            )
        return tuple(ids)[:count]


def _memories(kept: KeptMemory, device_id: int, device: int) -> tuple[int, ...]:
    """The records of a device's memories."""
    devices = kept.numbers([device])
    out = []
    for kind_id, kind in enumerate(MEMORY_KINDS):
        number = device_id * len(MEMORY_KINDS) + kind_id
        text = kept.text(f"SHARDC_{kind.upper()}_{number}")
        record = MemoryRecord(
            id=number, kind_id=kind_id, kind=kept.text(kind), debug_string=text, to_string=text,
            devices=devices, num_devices=1,
        )  # fmt: skip
        out.append(kept.keep(record))
    return tuple(out)


class Clients:
    """PJRT's functions about clients. ``worker`` runs every loaded program, and keeps it until its handle is
    released."""

    def __init__(self, topologies: Topologies, handles: CompiledHandles, worker: StepWorker) -> None:
        self._by_handle: dict[int, PjrtClient] = {}
        self._topologies, self._handles, self._worker = topologies, handles, worker

    def create(self, args: ClientCreateArgs) -> None:
        options = read_options(args)
        count = options.get("num_devices", 1)
        if not isinstance(count, int) or not 1 <= count <= _MOST_DEVICES:
            raise InputError(f"num_devices is {count!r}", fix=f"give a number from 1 to {_MOST_DEVICES}")
        processes = find_processes(options, _config(), count)
        processes.transport.wait_first(self._worker.wait)
        topology = DeviceTopology.of(processes.owners)
        self._topologies.add(topology)
        client = PjrtClient.of(processes, topology)
        self._by_handle[client.handle] = client
        args.client = client.handle

    def destroy(self, args: ClientDestroyArgs) -> None:
        """Its memory stays: programs and buffers may still be on their way."""

    def compile(self, args: ClientCompileArgs) -> None:
        args.executable = self.load(self._by_handle[args.client], *_take_program(args)).handle

    def deserialize(self, args: ExecutableDeserializeAndLoadArgs) -> None:
        given, options = take_serialized(args)
        client = self._by_handle[args.client]
        args.loaded_executable = self.load(client, given.code, options, given.read_executable(options)).handle

    def load(
        self, client: PjrtClient, code: bytes, options: CompileOptions, executable: Executable | None = None
    ) -> LoadedProgram:
        """Compile ``code``, unless its ``executable`` is there, and load it on its devices. In a job each process does
        so when it likes; those that run it meet before the first step."""
        ids = options.devices or client.default_devices(options.num_devices)
        unknown = [i for i in ids if not 0 <= i < len(client.devices)]
        if unknown or len(ids) != options.num_devices:
            raise InputError(
                f"the program is for {count_text(options.num_devices, 'device')}, but was given devices {list(ids)}",
                fix="give as many of jax.devices()",
            )
        placement = client.processes.place(ids)
        config = client.processes.config
        build = placement.build if executable is None else lambda _: executable
        compiled = compile_jaxlib_program(code, options, config, build)
        if executable is None:
            compiled.program.tell_shardings()
        here = [(n, i) for n, i in enumerate(ids) if i in client.memories]
        local = [(address_of(client.devices[i]), n) for n, i in here]
        handle = self._handles.add(compiled, ids, local)
        loaded = load_program(
            compiled.executable,
            config,
            placement.transport,
            handle.number,
            [device for device, _ in local],
            handle.outputs_in([client.memories[i] for _, i in here]),
            handle.tokens,
            placement.owners,
        )
        self._worker.add(loaded)
        compiled_programs().add(compiled.known)
        self._handles.hold(handle, loaded)
        return loaded


def _config() -> Config:
    """The settings of programs that jaxlib passes: they may call Python."""
    return replace(job_config(), custom_calls=calls_of(HostFunctions()))


def _take_program(args: ClientCompileArgs) -> tuple[bytes, CompileOptions]:
    program = PjrtProgram.at(args.program)
    form = take_text(program.format, program.format_size)
    if form != "mlir":
        raise UnsupportedError(f"programs in the form {form!r} are not supported", fix="pass StableHLO, as 'mlir'")
    options = CompileOptions.read(ctypes.string_at(args.compile_options, args.compile_options_size))
    return ctypes.string_at(program.code, program.code_size), options


def read_options(args: ClientCreateArgs) -> dict[str, object]:
    """What a client is created with, by name."""
    out: dict[str, object] = {}
    step = ctypes.sizeof(PjrtNamedValue)
    for n in range(args.num_options):
        value = PjrtNamedValue.at(args.create_options + n * step)
        out[take_text(value.name, value.name_size)] = _value_of(value)
    return out


def _value_of(value: PjrtNamedValue) -> object:
    """A text, a number, numbers, a float, or a truth value."""
    match value.type:
        case 0:
            return take_text(value.u, value.value_size)
        case 1:
            return value.u
        case 2:
            return tuple((ctypes.c_int64 * value.value_size).from_address(value.u))
        case 3:
            return ctypes.c_float.from_buffer(ctypes.c_int32(value.u & 0xFFFFFFFF)).value
    return bool(value.u & 0xFF)
