"""Executables, loaded and not: what they say of themselves."""

from __future__ import annotations

from shardc.native.lowlevel.kinds import address, i32, i64, u8
from shardc.native.lowlevel.records import Record

__all__ = [
    "CompileArgs", "ExecutableDeserializeAndLoadArgs", "ExecutableDestroyArgs", "ExecutableFingerprintArgs",
    "ExecutableGetCompileOptionsArgs", "ExecutableGetCompiledMemoryStatsArgs", "ExecutableGetCostAnalysisArgs",
    "ExecutableNameArgs", "ExecutableNumOutputsArgs", "ExecutableNumPartitionsArgs", "ExecutableNumReplicasArgs",
    "ExecutableOptimizedProgramArgs", "ExecutableOutputDimensionsArgs", "ExecutableOutputElementTypesArgs",
    "ExecutableOutputMemoryKindsArgs", "ExecutableParameterMemoryKindsArgs", "ExecutableSerializeArgs",
    "ExecutableSizeOfGeneratedCodeInBytesArgs", "LoadedExecutableAddressableDeviceLogicalIdsArgs",
    "LoadedExecutableAddressableDevicesArgs", "LoadedExecutableDeleteArgs", "LoadedExecutableDestroyArgs",
    "LoadedExecutableFingerprintArgs", "LoadedExecutableGetDeviceAssignmentArgs",
    "LoadedExecutableGetExecutableArgs", "LoadedExecutableIsDeletedArgs", "PjrtLoadOptions", "PjrtLogicalDeviceIds",
]  # fmt: skip


class ExecutableDestroyArgs(Record):
    struct_size: i64
    extension_start: address
    executable: address


class LoadedExecutableDestroyArgs(Record):
    struct_size: i64
    extension_start: address
    executable: address


class LoadedExecutableGetExecutableArgs(Record):
    struct_size: i64
    extension_start: address
    loaded_executable: address
    executable: address


class LoadedExecutableGetDeviceAssignmentArgs(Record):
    struct_size: i64
    extension_start: address
    executable: address
    serialized_bytes: address
    serialized_bytes_size: i64
    serialized_device_assignment: address
    serialized_device_assignment_deleter: address


class ExecutableNameArgs(Record):
    struct_size: i64
    extension_start: address
    executable: address
    executable_name: address
    executable_name_size: i64


class ExecutableNumReplicasArgs(Record):
    struct_size: i64
    extension_start: address
    executable: address
    num_replicas: i64


class ExecutableNumPartitionsArgs(Record):
    struct_size: i64
    extension_start: address
    executable: address
    num_partitions: i64


class PjrtLogicalDeviceIds(Record):
    replica: i32
    partition: i32


class LoadedExecutableAddressableDevicesArgs(Record):
    struct_size: i64
    extension_start: address
    executable: address
    addressable_devices: address
    num_addressable_devices: i64


class LoadedExecutableAddressableDeviceLogicalIdsArgs(Record):
    struct_size: i64
    extension_start: address
    executable: address
    addressable_device_logical_ids: address
    num_addressable_device_logical_ids: i64


class ExecutableOptimizedProgramArgs(Record):
    struct_size: i64
    extension_start: address
    executable: address
    program: address


class LoadedExecutableDeleteArgs(Record):
    struct_size: i64
    extension_start: address
    executable: address


class LoadedExecutableIsDeletedArgs(Record):
    struct_size: i64
    extension_start: address
    executable: address
    is_deleted: u8


class ExecutableNumOutputsArgs(Record):
    struct_size: i64
    extension_start: address
    executable: address
    num_outputs: i64


class ExecutableSizeOfGeneratedCodeInBytesArgs(Record):
    struct_size: i64
    extension_start: address
    executable: address
    size_in_bytes: i64


class ExecutableFingerprintArgs(Record):
    struct_size: i64
    extension_start: address
    executable: address
    executable_fingerprint: address
    executable_fingerprint_size: i64


class ExecutableGetCostAnalysisArgs(Record):
    struct_size: i64
    extension_start: address
    executable: address
    num_properties: i64
    properties: address


class ExecutableGetCompiledMemoryStatsArgs(Record):
    struct_size: i64
    extension_start: address
    executable: address
    generated_code_size_in_bytes: i64
    argument_size_in_bytes: i64
    output_size_in_bytes: i64
    alias_size_in_bytes: i64
    temp_size_in_bytes: i64
    host_generated_code_size_in_bytes: i64
    host_argument_size_in_bytes: i64
    host_output_size_in_bytes: i64
    host_alias_size_in_bytes: i64
    host_temp_size_in_bytes: i64
    peak_memory_in_bytes: i64
    total_size_in_bytes: i64
    total_allocation_bytes: i64
    indefinite_allocations: i64
    peak_unpadded_heap_bytes: i64


class ExecutableOutputElementTypesArgs(Record):
    struct_size: i64
    extension_start: address
    executable: address
    output_types: address
    num_output_types: i64


class ExecutableOutputDimensionsArgs(Record):
    struct_size: i64
    extension_start: address
    executable: address
    num_outputs: i64
    dims: address
    dim_sizes: address


class ExecutableParameterMemoryKindsArgs(Record):
    struct_size: i64
    extension_start: address
    executable: address
    num_parameters: i64
    memory_kinds: address
    memory_kind_sizes: address


class ExecutableOutputMemoryKindsArgs(Record):
    struct_size: i64
    extension_start: address
    executable: address
    num_outputs: i64
    memory_kinds: address
    memory_kind_sizes: address


class ExecutableSerializeArgs(Record):
    struct_size: i64
    extension_start: address
    executable: address
    serialized_bytes: address
    serialized_bytes_size: i64
    serialized_executable: address
    serialized_executable_deleter: address


class ExecutableGetCompileOptionsArgs(Record):
    struct_size: i64
    extension_start: address
    executable: address
    serialized_bytes: address
    serialized_bytes_size: i64
    serialized_compile_options: address
    serialized_compile_options_deleter: address


class PjrtLoadOptions(Record):
    struct_size: i64
    computation_origin: address
    computation_origin_size: i64
    multi_slice_config: address


class ExecutableDeserializeAndLoadArgs(Record):
    struct_size: i64
    extension_start: address
    client: address
    serialized_executable: address
    serialized_executable_size: i64
    loaded_executable: address
    overridden_serialized_compile_options: address
    overridden_serialized_compile_options_size: i64
    load_options: address


class LoadedExecutableFingerprintArgs(Record):
    struct_size: i64
    extension_start: address
    executable: address
    executable_fingerprint: address
    executable_fingerprint_size: i64


class CompileArgs(Record):
    struct_size: i64
    extension_start: address
    topology: address
    program: address
    compile_options: address
    compile_options_size: i64
    client: address
    executable: address
