"""The messages of HLO programs: one class each, one line per field.

Names and numbers are those of XLA's ``hlo.proto`` and ``xla_data.proto``, and for configurations of ``xla.proto``;
fields that only passes and runtimes of XLA know are left out.
"""

from __future__ import annotations

from shardc.frontends.pjrt.protos.messages import (
    DeviceAssignmentProto,
    OpMetadataProto,
    OpShardingProto,
    ProgramShapeProto,
    ShapeProto,
)
from shardc.frontends.pjrt.protos.wire import Message, number

__all__ = [
    "AliasEntryProto", "BufferDonorEntryProto", "BufferDonorsProto", "CholeskyOptionsProto",
    "CollectiveDeviceListProto", "ConvolutionDimsProto", "DotDimsProto", "FrontendAttributesProto", "GatherDimsProto",
    "HloComputationProto", "HloInstructionProto", "HloModuleConfigProto", "HloModuleProto", "HloModuleWithConfigProto",
    "InputOutputAliasProto", "IotaGroupsProto", "LiteralProto", "OutputOperandAliasProto", "PaddingConfigProto",
    "PaddingDimensionProto", "ParameterReplicationProto", "PrecisionConfigProto", "RaggedDotDimsProto",
    "ReplicaGroupProto", "ResultAccuracyProto", "ScatterDimsProto", "SliceDimensionProto", "SourceTargetProto",
    "ToleranceProto", "TriangularSolveProto", "WindowDimensionProto", "WindowProto",
]  # fmt: skip


class LiteralProto(Message):
    """An array's elements in the field of their type; those of fixed width as they lie in memory."""

    shape: ShapeProto | None = number(1)
    preds: tuple[bool, ...] | bytes = number(2)
    u8s: bytes = number(3)
    s32s: tuple[int, ...] = number(4)
    s64s: tuple[int, ...] = number(5)
    u32s: tuple[int, ...] = number(6)
    u64s: tuple[int, ...] = number(7)
    f32s: bytes = number(8)
    f64s: bytes = number(9)
    tuple_literals: tuple[LiteralProto, ...] = number(10)
    f16s: bytes = number(11)
    c64s: bytes = number(12)
    bf16s: bytes = number(13)
    s8s: bytes = number(15)
    u16s: bytes = number(16)
    s16s: bytes = number(17)
    c128s: bytes = number(18)
    f8e5m2s: bytes = number(19)
    f8e4m3fns: bytes = number(20)
    s4s: bytes = number(21)
    u4s: bytes = number(22)
    f8e4m3b11fnuzs: bytes = number(23)
    f8e5m2fnuzs: bytes = number(24)
    f8e4m3fnuzs: bytes = number(25)
    s2s: bytes = number(26)
    u2s: bytes = number(27)
    f8e4m3s: bytes = number(28)
    f8e3m4s: bytes = number(29)
    f4e2m1fns: bytes = number(32)
    f8e8m0fnus: bytes = number(33)


class WindowDimensionProto(Message):
    size: int = number(1)
    stride: int = number(2)
    padding_low: int = number(3)
    padding_high: int = number(4)
    window_dilation: int = number(5)
    base_dilation: int = number(6)
    window_reversal: bool = number(7)


class WindowProto(Message):
    dimensions: tuple[WindowDimensionProto, ...] = number(1)


class ConvolutionDimsProto(Message):
    kernel_input_feature_dimension: int = number(3)
    kernel_output_feature_dimension: int = number(4)
    kernel_spatial_dimensions: tuple[int, ...] = number(6)
    input_batch_dimension: int = number(7)
    input_feature_dimension: int = number(8)
    output_batch_dimension: int = number(9)
    output_feature_dimension: int = number(10)
    input_spatial_dimensions: tuple[int, ...] = number(11)
    output_spatial_dimensions: tuple[int, ...] = number(12)


class SliceDimensionProto(Message):
    start: int = number(1)
    limit: int = number(2)
    stride: int = number(3)


class PaddingDimensionProto(Message):
    edge_padding_low: int = number(1)
    edge_padding_high: int = number(2)
    interior_padding: int = number(3)


class PaddingConfigProto(Message):
    dimensions: tuple[PaddingDimensionProto, ...] = number(1)


class DotDimsProto(Message):
    lhs_contracting_dimensions: tuple[int, ...] = number(1)
    rhs_contracting_dimensions: tuple[int, ...] = number(2)
    lhs_batch_dimensions: tuple[int, ...] = number(3)
    rhs_batch_dimensions: tuple[int, ...] = number(4)


class RaggedDotDimsProto(Message):
    dot_dimension_numbers: DotDimsProto | None = number(1)
    lhs_ragged_dimensions: tuple[int, ...] = number(2)
    rhs_group_dimensions: tuple[int, ...] = number(3)


class GatherDimsProto(Message):
    offset_dims: tuple[int, ...] = number(1)
    collapsed_slice_dims: tuple[int, ...] = number(2)
    start_index_map: tuple[int, ...] = number(3)
    index_vector_dim: int = number(4)
    operand_batching_dims: tuple[int, ...] = number(5)
    start_indices_batching_dims: tuple[int, ...] = number(6)


class ScatterDimsProto(Message):
    update_window_dims: tuple[int, ...] = number(1)
    inserted_window_dims: tuple[int, ...] = number(2)
    scatter_dims_to_operand_dims: tuple[int, ...] = number(3)
    index_vector_dim: int = number(4)
    input_batching_dims: tuple[int, ...] = number(5)
    scatter_indices_batching_dims: tuple[int, ...] = number(6)


class PrecisionConfigProto(Message):
    operand_precision: tuple[int, ...] = number(1)
    algorithm: int = number(2)


class TriangularSolveProto(Message):
    left_side: bool = number(1)
    lower: bool = number(2)
    unit_diagonal: bool = number(3)
    transpose_a: int = number(4)


class CholeskyOptionsProto(Message):
    lower: bool = number(1)


class ParameterReplicationProto(Message):
    replicated_at_leaf_buffers: tuple[bool, ...] = number(1)


class ToleranceProto(Message):
    atol: float = number(1)
    rtol: float = number(2)
    ulps: int = number(3)


class ResultAccuracyProto(Message):
    mode: int | None = number(1)
    tolerance: ToleranceProto | None = number(2)


class FrontendAttributesProto(Message):
    map: dict[str, str] = number(1)


class OutputOperandAliasProto(Message):
    output_shape_index: tuple[int, ...] = number(1)
    operand_index: int = number(2)
    operand_shape_index: tuple[int, ...] = number(3)


class ReplicaGroupProto(Message):
    replica_ids: tuple[int, ...] = number(1)


class IotaGroupsProto(Message):
    num_replica_groups: int = number(1)
    num_devices_per_group: int = number(2)
    iota_reshape_dims: tuple[int, ...] = number(3)
    iota_transpose_perm: tuple[int, ...] = number(4)


class CollectiveDeviceListProto(Message):
    replica_groups: tuple[ReplicaGroupProto, ...] = number(1)
    iota_replica_group_list: IotaGroupsProto | None = number(2)


class SourceTargetProto(Message):
    source: int = number(1)
    target: int = number(2)


class HloInstructionProto(Message):
    """An instruction; which fields count is a matter of its opcode. Groups that are an iota are read in either of two
    places, by the release of jaxlib."""

    name: str = number(1)
    opcode: str = number(2)
    shape: ShapeProto | None = number(3)
    metadata: OpMetadataProto | None = number(7)
    literal: LiteralProto | None = number(8)
    parameter_number: int = number(9)
    fusion_kind: str = number(11)
    tuple_index: int = number(13)
    dimensions: tuple[int, ...] = number(14)
    window: WindowProto | None = number(15)
    convolution_dimension_numbers: ConvolutionDimsProto | None = number(16)
    slice_dimensions: tuple[SliceDimensionProto, ...] = number(17)
    exponent_bits: int = number(18)
    mantissa_bits: int = number(19)
    dynamic_slice_sizes: tuple[int, ...] = number(20)
    padding_config: PaddingConfigProto | None = number(21)
    outfeed_config: str = number(22)
    distribution: int = number(23)
    epsilon: float = number(24, single=True)
    feature_index: int = number(25)
    channel_id: int = number(26)
    infeed_config: str = number(27)
    custom_call_target: str = number(28)
    outfeed_shape: ShapeProto | None = number(29)
    dot_dimension_numbers: DotDimsProto | None = number(30)
    fft_type: int = number(31)
    fft_length: tuple[int, ...] = number(32)
    gather_dimension_numbers: GatherDimsProto | None = number(33)
    gather_slice_sizes: tuple[int, ...] = number(34)
    id: int = number(35)
    operand_ids: tuple[int, ...] = number(36)
    control_predecessor_ids: tuple[int, ...] = number(37)
    called_computation_ids: tuple[int, ...] = number(38)
    sharding: OpShardingProto | None = number(40)
    backend_config: str = number(43)
    is_host_transfer: bool = number(47)
    scatter_dimension_numbers: ScatterDimsProto | None = number(48)
    feature_group_count: int = number(50)
    precision_config: PrecisionConfigProto | None = number(51)
    source_target_pairs: tuple[SourceTargetProto, ...] = number(52)
    constrain_layout: bool = number(56)
    operand_shapes_with_layout: tuple[ShapeProto, ...] = number(57)
    batch_group_count: int = number(58)
    triangular_solve_options: TriangularSolveProto | None = number(59)
    is_stable: bool = number(60)
    parameter_replication: ParameterReplicationProto | None = number(61)
    cholesky_options: CholeskyOptionsProto | None = number(62)
    comparison_direction: str = number(63)
    custom_call_has_side_effect: bool = number(65)
    delta: int = number(66)
    indices_are_sorted: bool = number(67)
    frontend_attributes: FrontendAttributesProto | None = number(68)
    unique_indices: bool = number(69)
    rng_algorithm: int = number(70)
    use_global_device_ids: bool = number(71)
    comparison_type: str = number(72)
    output_operand_aliasing: tuple[OutputOperandAliasProto, ...] = number(74)
    padding_type: int = number(75)
    custom_call_schedule: int = number(76)
    custom_call_api_version: int = number(77)
    async_execution_thread: str = number(79)
    cross_program_prefetch_index: int | None = number(80)
    k: int = number(81)
    largest: bool = number(85)
    collective_device_list: CollectiveDeviceListProto | None = number(87)
    is_composite: bool = number(89)
    ragged_dot_dimension_numbers: RaggedDotDimsProto | None = number(90)
    result_accuracy: ResultAccuracyProto | None = number(91)
    iota_collective_device_list: IotaGroupsProto | None = number(92)


class HloComputationProto(Message):
    name: str = number(1)
    instructions: tuple[HloInstructionProto, ...] = number(2)
    program_shape: ProgramShapeProto | None = number(4)
    id: int = number(5)
    root_id: int = number(6)
    is_fusion_computation: bool = number(7)
    execution_thread: str = number(8)


class AliasEntryProto(Message):
    """``kind`` is 1 for a result that may lie in the parameter's memory, 2 for one that must."""

    output_shape_index: tuple[int, ...] = number(1)
    parameter_number: int = number(2)
    parameter_shape_index: tuple[int, ...] = number(3)
    kind: int = number(4)


class InputOutputAliasProto(Message):
    entries: tuple[AliasEntryProto, ...] = number(1)


class BufferDonorEntryProto(Message):
    parameter_number: int = number(1)
    parameter_shape_index: tuple[int, ...] = number(2)


class BufferDonorsProto(Message):
    entries: tuple[BufferDonorEntryProto, ...] = number(1)


class HloModuleProto(Message):
    name: str = number(1)
    entry_computation_name: str = number(2)
    computations: tuple[HloComputationProto, ...] = number(3)
    host_program_shape: ProgramShapeProto | None = number(4)
    id: int = number(5)
    entry_computation_id: int = number(6)
    input_output_alias: InputOutputAliasProto | None = number(8)
    spmd_output_sharding: OpShardingProto | None = number(12)
    spmd_parameters_shardings: tuple[OpShardingProto, ...] = number(14)
    buffer_donor: BufferDonorsProto | None = number(18)


class HloModuleConfigProto(Message):
    entry_computation_layout: ProgramShapeProto | None = number(1)
    replica_count: int = number(4)
    num_partitions: int = number(5)
    use_spmd_partitioning: bool = number(7)
    static_device_assignment: DeviceAssignmentProto | None = number(15)
    allow_spmd_sharding_propagation_to_output: tuple[bool, ...] = number(27)
    allow_spmd_sharding_propagation_to_parameters: tuple[bool, ...] = number(33)
    use_shardy_partitioner: bool = number(34)


class HloModuleWithConfigProto(Message):
    hlo_module: HloModuleProto | None = number(1)
    config: HloModuleConfigProto | None = number(2)
