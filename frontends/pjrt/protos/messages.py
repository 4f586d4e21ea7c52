"""The messages about shapes, shardings, devices and options of compilation: one class each, one line per field.

Names and numbers are those of XLA's ``xla_data.proto`` and ``compile_options.proto``; fields that nobody here reads or
writes are left out.
"""

from __future__ import annotations

from shardc.frontends.pjrt.protos.wire import Message, number

__all__ = [
    "AxisRefProto", "CompileOptionsProto", "ComputationDevice", "DeviceAssignmentProto", "DimensionShardingProto",
    "ExecutableBuildOptionsProto", "LayoutProto", "MeshAxisProto", "MeshProto", "NamedShardingProto", "OpMetadataProto",
    "OpShardingProto", "OptionOverrideProto", "ProgramShapeProto", "ShapeProto", "SplitConfigProto", "SubAxisProto",
    "TileProto",
]  # fmt: skip


class TileProto(Message):
    dimensions: tuple[int, ...] = number(1)


class SplitConfigProto(Message):
    dimension: int = number(1)
    split_indices: tuple[int, ...] = number(2)


class LayoutProto(Message):
    minor_to_major: tuple[int, ...] = number(1)
    tiles: tuple[TileProto, ...] = number(6)
    element_size_in_bits: int = number(7)
    memory_space: int = number(8)
    tail_padding_alignment_in_elements: int = number(16)
    split_configs: tuple[SplitConfigProto, ...] = number(17)


class ShapeProto(Message):
    element_type: int = number(2)
    dimensions: tuple[int, ...] = number(3)
    tuple_shapes: tuple[ShapeProto, ...] = number(4)
    layout: LayoutProto | None = number(5)
    is_dynamic_dimension: tuple[bool, ...] = number(6)


class ProgramShapeProto(Message):
    parameters: tuple[ShapeProto, ...] = number(1)
    result: ShapeProto | None = number(2)
    parameter_names: tuple[str, ...] = number(3)


# --- shardings ----------------------------------------------------------------------------------------------


class OpMetadataProto(Message):
    op_type: str = number(1)
    op_name: str = number(2)
    source_file: str = number(3)
    source_line: int = number(4)
    stack_frame_id: int = number(15)
    scheduling_name: str = number(16)
    source_end_line: int = number(17)
    source_column: int = number(18)
    source_end_column: int = number(19)


class MeshAxisProto(Message):
    name: str = number(1)
    size: int = number(2)


class MeshProto(Message):
    axes: tuple[MeshAxisProto, ...] = number(1)
    device_ids: tuple[int, ...] = number(2)


class SubAxisProto(Message):
    pre_size: int = number(1)
    size: int = number(2)


class AxisRefProto(Message):
    mesh_axis_index: int = number(1)
    sub_axis_info: SubAxisProto | None = number(2)


class DimensionShardingProto(Message):
    axes: tuple[AxisRefProto, ...] = number(1)
    is_closed: bool = number(2)


class NamedShardingProto(Message):
    tuple_shardings: tuple[NamedShardingProto, ...] = number(1)
    mesh: MeshProto | None = number(2)
    dim_shardings: tuple[DimensionShardingProto, ...] = number(3)
    replicated_axes: tuple[AxisRefProto, ...] = number(4)
    unreduced_axes: tuple[AxisRefProto, ...] = number(5)
    metadata: tuple[OpMetadataProto, ...] = number(6)


class OpShardingProto(Message):
    type: int = number(1)
    tile_assignment_dimensions: tuple[int, ...] = number(3)
    tile_assignment_devices: tuple[int, ...] = number(4)
    tuple_shardings: tuple[OpShardingProto, ...] = number(5)
    replicate_on_last_tile_dim: bool = number(6)
    metadata: tuple[OpMetadataProto, ...] = number(7)
    last_tile_dims: tuple[int, ...] = number(8)
    iota_reshape_dims: tuple[int, ...] = number(9)
    iota_transpose_perm: tuple[int, ...] = number(10)
    is_shard_group: bool = number(11)
    shard_group_id: int = number(12)
    shard_group_type: int = number(13)
    named_sharding: NamedShardingProto | None = number(14)


# --- compilation --------------------------------------------------------------------------------------------


class ComputationDevice(Message):
    replica_device_ids: tuple[int, ...] = number(1)


class DeviceAssignmentProto(Message):
    """The global device of each replica of each computation, that is partition."""

    replica_count: int = number(1)
    computation_count: int = number(2)
    computation_devices: tuple[ComputationDevice, ...] = number(3)


class OptionOverrideProto(Message):
    string_field: str | None = number(1)
    bool_field: bool | None = number(2)
    int_field: int | None = number(3)
    double_field: float | None = number(4)


class ExecutableBuildOptionsProto(Message):
    """``debug_options`` are XLA's own, unread."""

    device_ordinal: int = number(1)
    result_layout: ShapeProto | None = number(2)
    debug_options: bytes = number(3)
    num_replicas: int = number(4)
    num_partitions: int = number(5)
    use_spmd_partitioning: bool = number(6)
    use_auto_spmd_partitioning: bool = number(7)
    device_assignment: DeviceAssignmentProto | None = number(9)
    alias_passthrough_params: bool = number(10)
    allow_spmd_sharding_propagation_to_output: tuple[bool, ...] = number(12)
    fdo_profile: bytes = number(14)
    device_memory_size: int = number(15)
    allow_spmd_sharding_propagation_to_parameters: tuple[bool, ...] = number(18)
    use_shardy_partitioner: bool = number(19)
    exec_time_optimization_effort: float = number(20, single=True)
    memory_fitting_effort: float = number(21, single=True)
    process_index: int = number(22)
    process_count: int = number(23)
    optimization_level: int = number(24)
    memory_fitting_level: int = number(25)
    slice_size: int = number(26)


class CompileOptionsProto(Message):
    argument_layouts: tuple[ShapeProto, ...] = number(1)
    parameter_is_tupled_arguments: bool = number(2)
    executable_build_options: ExecutableBuildOptionsProto = number(3)
    compile_portable_executable: bool = number(4)
    profile_version: int = number(5)
    env_option_overrides: dict[str, OptionOverrideProto] = number(7)
