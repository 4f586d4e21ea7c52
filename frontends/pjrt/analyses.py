"""What compiled programs say of their insides: layouts, shardings, the optimised program, costs, memory, options.

What few programs are asked for is imported when one is: the lowering and the writer of XLA's messages would take as
long as all else that the client needs to start.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shardc.compiler.executable import ArraySpec
from shardc.frontends.pjrt.abi.base import PjrtNamedValue
from shardc.frontends.pjrt.abi.clients import PjrtProgram
from shardc.frontends.pjrt.abi.executables import (
    ExecutableGetCompiledMemoryStatsArgs,
    ExecutableGetCompileOptionsArgs,
    ExecutableGetCostAnalysisArgs,
    ExecutableOptimizedProgramArgs,
    ExecutableSerializeArgs,
)
from shardc.frontends.pjrt.abi.extensions import LayoutsExecutableLayoutsArgs, ShardingsArgs
from shardc.frontends.pjrt.border import BorderArray
from shardc.frontends.pjrt.compiled_handles import CompiledHandle, CompiledHandles
from shardc.frontends.pjrt.native.library import Library
from shardc.frontends.pjrt.protos.messages import DeviceAssignmentProto, OpShardingProto
from shardc.frontends.pjrt.protos.shardings import sharding_message
from shardc.frontends.pjrt.serialized_program import serialize

__all__ = ["CompiledAnalyses"]

_FORMAT = "hlo_with_config"
_FLOAT = 3


class CompiledAnalyses:
    """PJRT's functions about the insides of compiled programs. What takes long is made when it is first asked for."""

    def __init__(self, handles: CompiledHandles, library: Library) -> None:
        self._of = handles.of_executable
        self._layout = library.function("shardc_pjrt_layout_of_rank", ctypes.c_void_p, ctypes.c_int64)
        self._deleter = library.address("shardc_pjrt_delete_nothing")
        self._programs: dict[int, tuple[CompiledHandle, bytes]] = {}

    def functions(self) -> dict[str, Callable[[Any], None]]:
        """By PJRT's names."""
        return {
            "Executable_OptimizedProgram": self.optimized_program,
            "Executable_GetCostAnalysis": self.costs,
            "Executable_GetCompiledMemoryStats": self.memory,
            "Executable_GetCompileOptions": self.options,
            "Executable_Serialize": self.serialize,
        }

    # --- layouts and shardings ------------------------------------------------------------------------------

    def output_layouts(self, args: LayoutsExecutableLayoutsArgs) -> None:
        handle = self._of(args.executable)
        self._tell_layouts(handle, args, [len(dims) for _, dims, _ in handle.outputs])

    def parameter_layouts(self, args: LayoutsExecutableLayoutsArgs) -> None:
        handle = self._of(args.executable)
        specs = _with_tokens(handle.compiled.executable.arguments, handle.compiled.border.arguments)
        self._tell_layouts(handle, args, [0 if s is None else s.local_shape.rank for s in specs])

    def _tell_layouts(self, handle: CompiledHandle, args: LayoutsExecutableLayoutsArgs, ranks: Sequence[int]) -> None:
        args.num_layouts = len(ranks)
        args.layouts = handle.memory.numbers(map(self._layout, ranks))

    def parameter_shardings(self, args: ShardingsArgs) -> None:
        handle = self._of(args.executable)
        self._tell_shardings(handle, args, handle.compiled.executable.arguments, handle.compiled.border.arguments)

    def output_shardings(self, args: ShardingsArgs) -> None:
        handle = self._of(args.executable)
        self._tell_shardings(handle, args, handle.compiled.executable.results, handle.compiled.border.results)

    def _tell_shardings(
        self,
        handle: CompiledHandle,
        args: ShardingsArgs,
        specs: Sequence[ArraySpec],
        border: Sequence[BorderArray] | None,
    ) -> None:
        """None where there are no arrays: the client takes an empty list for a tuple of nothing."""
        found = [_sharding(s).to_bytes() for s in _with_tokens(specs, border)]
        args.num_shardings = len(found)
        args.shardings = handle.memory.numbers(map(handle.memory.text_of, found)) if found else 0
        args.sharding_sizes = handle.memory.numbers(map(len, found)) if found else 0

    # --- the program and its costs --------------------------------------------------------------------------

    def optimized_program(self, args: ExecutableOptimizedProgramArgs) -> None:
        """The per-device program before it is fused; asked twice, first for its size."""
        handle, program = self._of(args.executable), PjrtProgram.at(args.program)
        _, code = self._programs.get(handle.number, (None, b""))
        if not code:
            from shardc.frontends.pjrt.protos.modules import module_with_config

            assignment = DeviceAssignmentProto.read(handle.assignment)
            code = module_with_config(handle.compiled.program.partitioned.compiled_module, assignment)
        if program.code:
            self._programs.pop(handle.number, None)
            ctypes.memmove(program.code, code, len(code))
        else:
            self._programs[handle.number] = handle, code
        text = handle.memory.text(_FORMAT)
        program.code_size, program.format, program.format_size = len(code), text.data, text.nbytes

    def costs(self, args: ExecutableGetCostAnalysisArgs) -> None:
        """Of one device: arithmetic, and what the fused kernels read and write."""
        from shardc.compiler.lower.pipeline import lower
        from shardc.costs.kernels.program_work import program_work

        handle = self._of(args.executable)
        program = handle.compiled.program
        work = program_work(lower(program.partitioned.compiled_module, program.config).module)
        named = {
            "flops": work.flops,
            "transcendentals": work.transcendentals,
            "bytes accessed": work.bytes_read + work.bytes_written,
            "bytes accessedout{}": work.bytes_written,
        }
        args.num_properties, args.properties = len(named), _named_floats(handle, named)

    def memory(self, args: ExecutableGetCompiledMemoryStatsArgs) -> None:
        executable = self._of(args.executable).compiled.executable
        bytes_of = executable.memory
        args.generated_code_size_in_bytes = sum(map(len, executable.objects))
        args.argument_size_in_bytes = bytes_of["argument_bytes"]
        args.output_size_in_bytes = bytes_of["result_bytes"]
        args.alias_size_in_bytes = bytes_of["aliased_bytes"]
        args.temp_size_in_bytes = bytes_of["temporary_bytes"] + bytes_of["communication_bytes"]
        args.host_generated_code_size_in_bytes = args.host_argument_size_in_bytes = args.host_output_size_in_bytes = 0
        args.host_alias_size_in_bytes = args.host_temp_size_in_bytes = 0
        args.peak_memory_in_bytes = args.total_size_in_bytes = bytes_of["peak_bytes"]
        args.total_allocation_bytes = bytes_of["peak_bytes"]
        args.indefinite_allocations, args.peak_unpadded_heap_bytes = 0, args.temp_size_in_bytes

    def serialize(self, args: ExecutableSerializeArgs) -> None:
        serialize(self._of(args.executable), args)

    def options(self, args: ExecutableGetCompileOptionsArgs) -> None:
        handle = self._of(args.executable)
        message = handle.compiled.program.options.message
        args.serialized_bytes = args.serialized_compile_options = handle.memory.text_of(message)
        args.serialized_bytes_size = len(message)
        args.serialized_compile_options_deleter = self._deleter


def _with_tokens(specs: Sequence[ArraySpec], border: Sequence[BorderArray] | None) -> list[ArraySpec | None]:
    """What the client counts as arguments or results; None for its tokens."""
    remaining = iter(specs)
    return [None if b.is_token else next(remaining) for b in border] if border is not None else list(specs)


def _sharding(spec: ArraySpec | None) -> OpShardingProto:
    """What is the same on all devices, or not known to be otherwise, is replicated."""
    return OpShardingProto() if spec is None or spec.sharding is None else sharding_message(spec.sharding)


def _named_floats(handle: CompiledHandle, named: Mapping[str, float]) -> int:
    """The address of an array of named numbers."""
    values = (PjrtNamedValue * len(named))()
    for value, (name, number) in zip(values, named.items(), strict=True):
        text = handle.memory.text(name)
        bits = int.from_bytes(struct.pack("<f", number), "little")
        value.__init__(ctypes.sizeof(PjrtNamedValue), 0, text.data, text.nbytes, _FLOAT, bits, 1)
    return handle.memory.answer(values)
