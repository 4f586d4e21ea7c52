"""Compiled programs as handles; what they say is Python's to tell, but for the counts that JAX asks for at each
execution, and nobody calls Python to end them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shardc.frontends.pjrt.abi.executables import (
    ExecutableDestroyArgs,
    ExecutableNumOutputsArgs,
    ExecutableNumPartitionsArgs,
    ExecutableNumReplicasArgs,
    LoadedExecutableDeleteArgs,
    LoadedExecutableDestroyArgs,
    LoadedExecutableIsDeletedArgs,
)
from shardc.frontends.pjrt.native.programs import ProgramRecord
from shardc.frontends.pjrt.native.queue import release_program
from shardc.native.lowlevel.builtins import as_u8, exported
from shardc.native.lowlevel.kinds import address, i64
from shardc.native.lowlevel.records import ACQUIRE, RELEASE, Atomic, Record

__all__ = ["EXECUTABLE_FUNCTIONS", "ExecutableRecord", "delete_nothing"]


class ExecutableRecord(Record):
    """PJRT_Executable. Python forgets it some time after its last handle."""

    vtable: address
    number: i64
    handles: Atomic[i64]
    num_replicas: i64
    num_partitions: i64
    num_outputs: i64


@exported("shardc_pjrt_executable_destroy")
def _destroy_executable(args: ExecutableDestroyArgs) -> address:
    if args.executable != 0:
        ExecutableRecord.at(args.executable).handles.add(-1, RELEASE)
    return 0


@exported("shardc_pjrt_num_replicas")
def _num_replicas(args: ExecutableNumReplicasArgs) -> address:
    args.num_replicas = ExecutableRecord.at(args.executable).num_replicas
    return 0


@exported("shardc_pjrt_num_partitions")
def _num_partitions(args: ExecutableNumPartitionsArgs) -> address:
    args.num_partitions = ExecutableRecord.at(args.executable).num_partitions
    return 0


@exported("shardc_pjrt_num_outputs")
def _num_outputs(args: ExecutableNumOutputsArgs) -> address:
    args.num_outputs = ExecutableRecord.at(args.executable).num_outputs
    return 0


@exported("shardc_pjrt_loaded_executable_delete")
def _delete_loaded(args: LoadedExecutableDeleteArgs) -> address:
    ProgramRecord.at(args.executable).deleted.store(1, RELEASE)
    return 0


@exported("shardc_pjrt_loaded_executable_is_deleted")
def _is_loaded_deleted(args: LoadedExecutableIsDeletedArgs) -> address:
    args.is_deleted = as_u8(ProgramRecord.at(args.executable).deleted.load(ACQUIRE) != 0)
    return 0


@exported("shardc_pjrt_loaded_executable_destroy")
def _destroy_loaded(args: LoadedExecutableDestroyArgs) -> address:
    """Nothing runs it from now on. Without memory even for telling so, it stays."""
    if args.executable != 0:
        program = ProgramRecord.at(args.executable)
        program.deleted.store(1, RELEASE)
        release_program(program)
    return 0


@exported("shardc_pjrt_delete_nothing")
def delete_nothing(at: address) -> None:
    """The deleter of what stays as long as the handle that it was asked of."""


#: By PJRT's names.
EXECUTABLE_FUNCTIONS: Mapping[str, Callable[..., object]] = {
    "Executable_Destroy": _destroy_executable,
    "Executable_NumOutputs": _num_outputs,
    "Executable_NumPartitions": _num_partitions,
    "Executable_NumReplicas": _num_replicas,
    "LoadedExecutable_Delete": _delete_loaded,
    "LoadedExecutable_IsDeleted": _is_loaded_deleted,
    "LoadedExecutable_Destroy": _destroy_loaded,
}
