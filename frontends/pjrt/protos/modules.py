"""A module as XLA's messages: what JAX prints as the text of a compiled program.

A partitioned module is written as it stands, with its collectives over groups of devices. What only HLO text can
say, and no program of JAX has (domains, sparsity, statistics, tiles of layouts), is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from shardc.frontends.pjrt.protos import hlo_messages as hlo
from shardc.frontends.pjrt.protos.messages import (
    DeviceAssignmentProto,
    LayoutProto,
    OpMetadataProto,
    ProgramShapeProto,
    ShapeProto,
)
from shardc.frontends.pjrt.protos.shardings import sharding_message
from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.groups import IotaGroups, Pairs, ReplicaGroups
from shardc.hlo.ir.ir import Computation, Instruction, Metadata, Module, called_computations
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.opset import ConvDims, Window
from shardc.hlo.ir.types import Shape
from shardc.hlo.text.body import OPCODE_SPELLING
from shardc.hlo.text.manual import XlaForm, as_manual, computations_as_written
from shardc.hlo.text.metadata import metadata_as_written
from shardc.hlo.text.names import PrintedNames
from shardc.hlo.text.notations.tiles import parse_groups, print_groups

__all__ = ["ELEMENT_TYPES", "literal_of", "module_message", "module_with_config", "shape_message"]

_TYPE_NAMES = (
    "pred s8 s16 s32 s64 u8 u16 u32 u64 f16 f32 f64 tuple opaque c64 bf16 token c128 f8e5m2 f8e4m3fn s4 u4 "
    "f8e4m3b11fnuz f8e5m2fnuz f8e4m3fnuz s2 u2 f8e4m3 f8e3m4 s1 u1 f4e2m1fn f8e8m0fnu buffer"
)

#: XLA's number of each element type.
ELEMENT_TYPES: Mapping[str, int] = {name: number for number, name in enumerate(_TYPE_NAMES.split(), 1)}


def module_with_config(module: Module, assignment: DeviceAssignmentProto | None = None) -> bytes:
    """``module`` and its configuration, serialized: PJRT's format ``hlo_with_config``."""
    config = hlo.HloModuleConfigProto(
        entry_computation_layout=_program_shape(module.entry),
        replica_count=module.replica_count,
        num_partitions=module.num_partitions,
        use_spmd_partitioning=module.num_partitions > 1,
        static_device_assignment=assignment,
        allow_spmd_sharding_propagation_to_output=(False,),
        allow_spmd_sharding_propagation_to_parameters=(False,),
        use_shardy_partitioner=True,
    )
    return hlo.HloModuleWithConfigProto(module_message(module), config).to_bytes()


def module_message(module: Module) -> hlo.HloModuleProto:
    """``module`` as a message; names are made unique. Raises `UnsupportedError` for element types that XLA lacks."""
    known = computations_as_written(module)
    writer = _ModuleWriter(module, known)
    entry = writer.ids[module.entry]
    aliases = tuple(
        hlo.AliasEntryProto(a.output, a.parameter, a.parameter_index, 2 if a.must else 1) for a in module.aliases
    )
    return hlo.HloModuleProto(
        name=module.name,
        entry_computation_name=writer.names.computations[module.entry],
        computations=tuple(map(writer.computation, known)),
        host_program_shape=_program_shape(module.entry),
        entry_computation_id=entry,
        input_output_alias=hlo.InputOutputAliasProto(aliases),
        buffer_donor=hlo.BufferDonorsProto(tuple(hlo.BufferDonorEntryProto(p) for p in module.donors)),
    )


class _ModuleWriter:
    def __init__(self, module: Module, known: Sequence[Computation]) -> None:
        self.entry = module.entry
        self.names = PrintedNames(known)
        self.form: XlaForm = as_manual(module, known, for_xla=False)
        self.metadata = metadata_as_written(module)
        self.ids: dict[Computation, int] = {c: n for n, c in enumerate(known)}
        #: An instruction's number has its computation's in the upper half.
        self.numbers = {i: self.ids[c] << 32 | n for c in known for n, i in zip(count(), c)}
        called = [(i.opcode, callee) for c in known for i in c for _, callee in called_computations(i)]
        self.fused = {callee for opcode, callee in called if opcode == "fusion"}

    def computation(self, c: Computation) -> hlo.HloComputationProto:
        by_name = {i.name: self.numbers[i] for i in c}
        return hlo.HloComputationProto(
            name=self.names.computations[c],
            instructions=tuple(self.instruction(i, by_name) for i in c),
            program_shape=_program_shape(c),
            id=self.ids[c],
            root_id=self.numbers[c.root],
            is_fusion_computation=c in self.fused,
        )

    def instruction(self, i: Instruction, by_name: Mapping[str, int]) -> hlo.HloInstructionProto:
        attrs = self.form.attributes(i)
        sharding = self.form.sharding(i)
        predecessors = (by_name.get(n) for n in attrs.get("control-predecessors", ()))
        return hlo.HloInstructionProto(
            name=self.names.instructions[i],
            opcode=OPCODE_SPELLING.get(i.opcode, i.opcode),
            shape=shape_message(i.shape),
            metadata=_metadata(self.metadata.get(i, i.metadata)),
            id=self.numbers[i],
            operand_ids=tuple(self.numbers[o] for o in i.operands),
            control_predecessor_ids=tuple(p for p in predecessors if p is not None),
            called_computation_ids=tuple(self.ids[c] for c in _callees(i)),
            sharding=None if sharding is None else sharding_message(sharding),
            **_fields(i, attrs),
        )


def _callees(i: Instruction) -> list[Computation]:
    """The computations that ``i`` calls, in XLA's order."""
    callees = dict(called_computations(i)) if i.opcode in ("while", "select-and-scatter") else {}
    first = "body" if i.opcode == "while" else "select"
    return [callees.pop(first), *callees.values()] if callees else [c for _, c in called_computations(i)]


# --- shapes and values --------------------------------------------------------------------------------------

_SUFFIX = re.compile(r"(?:E\((?P<bits>\d+)\))?(?:S\((?P<space>\d+)\))?\Z")


def shape_message(shape: Shape) -> ShapeProto:
    """``shape`` as a message, with its layout."""
    kind = ELEMENT_TYPES.get(shape.dtype.name)
    if kind is None:
        raise UnsupportedError(f"XLA's messages have no element type {shape.dtype}")
    if shape.elements:
        return ShapeProto(kind, tuple_shapes=tuple(map(shape_message, shape.elements)))
    if not shape.is_array:
        return ShapeProto(kind)
    order = tuple(reversed(range(shape.rank))) if shape.layout is None else shape.layout.minor_to_major
    suffix = _SUFFIX.match("" if shape.layout is None else shape.layout.suffix)
    said = {k: int(v or 0) for k, v in suffix.groupdict().items()} if suffix else {"bits": 0, "space": 0}
    layout = LayoutProto(order, element_size_in_bits=said["bits"], memory_space=said["space"])
    return ShapeProto(kind, shape.dims, layout=layout, is_dynamic_dimension=shape.dynamic or (False,) * shape.rank)


def _program_shape(c: Computation) -> ProgramShapeProto:
    parameters = tuple(shape_message(p.shape) for p in c.parameters)
    return ProgramShapeProto(parameters, shape_message(c.root.shape), tuple(p.name for p in c.parameters))


def _literal(literal: Literal) -> hlo.LiteralProto:
    shape = shape_message(literal.shape)
    if literal.elements is not None:
        return hlo.LiteralProto(shape, tuple_literals=tuple(map(_literal, literal.elements)))
    dtype, array = literal.shape.dtype, literal.array
    values: Any
    if dtype.name in ("s32", "s64", "u32", "u64"):
        values = tuple(array.ravel().tolist())
    elif dtype.bits < 8:  # the low bits of a byte for each
        values = (np.ascontiguousarray(array).view(np.uint8) & ((1 << dtype.bits) - 1)).tobytes()
    else:
        values = array.tobytes()
    return hlo.LiteralProto(shape, **{f"{dtype.name}s": values})


def literal_of(message: hlo.LiteralProto, shape: Shape) -> Literal:
    """The constant of array ``shape`` that ``message`` holds."""
    field, dtype = getattr(message, f"{shape.dtype.name}s"), shape.dtype.numpy
    array = np.frombuffer(field, dtype) if isinstance(field, bytes) else np.array(field, dtype)
    layout = message.shape.layout if message.shape else None
    order = layout.minor_to_major[::-1] if layout else tuple(range(shape.rank))
    return Literal(array.reshape([shape.dims[d] for d in order]).transpose(np.argsort(order)))


def _metadata(metadata: Metadata | None) -> OpMetadataProto | None:
    if metadata is None:
        return None
    names = ("op_type", "op_name", "source_file", "source_line", "source_end_line", "source_column")
    return OpMetadataProto(
        **{name: getattr(metadata, name) for name in names}, source_end_column=metadata.source_end_column
    )


# --- attributes ---------------------------------------------------------------------------------------------

_PRECISIONS = ("default", "high", "highest")
_ALGORITHM_NAMES = (
    "unset dot_any_f8_any_f8_f32 dot_any_f8_any_f8_f32_fast_accum dot_f16_f16_f16 dot_f16_f16_f32 dot_bf16_bf16_bf16 "
    "dot_bf16_bf16_f32 dot_bf16_bf16_f32_x3 dot_bf16_bf16_f32_x6 dot_tf32_tf32_f32 dot_tf32_tf32_f32_x3 "
    "dot_f32_f32_f32 dot_f64_f64_f64 dot_bf16_bf16_f32_x9"
)
_ALGORITHMS = _ALGORITHM_NAMES.split()

#: Attributes whose value is a word -> the message's field and the words by their numbers.
_WORDS: Mapping[str, tuple[str, Sequence[str]]] = {
    "fft_type": ("fft_type", ("FFT", "IFFT", "RFFT", "IRFFT")),
    "distribution": ("distribution", ("rng_invalid", "rng_uniform", "rng_normal")),
    "padding_type": ("padding_type", ("PADDING_INVALID", "PADDING_VALID", "PADDING_SAME")),
    "schedule": ("custom_call_schedule", ("SCHEDULE_NONE", "SCHEDULE_LATEST", "SCHEDULE_EARLIEST")),
    "rng-bit-generator algorithm": ("rng_algorithm", ("rng_default", "rng_three_fry", "rng_philox")),
    "api_version": (
        "custom_call_api_version",
        (
            *("API_VERSION_UNSPECIFIED", "API_VERSION_ORIGINAL", "API_VERSION_STATUS_RETURNING"),
            *("API_VERSION_STATUS_RETURNING_UNIFIED", "API_VERSION_TYPED_FFI"),
        ),
    ),
}

_SAME_NAMES = (
    "dimensions exponent_bits mantissa_bits dynamic_slice_sizes epsilon feature_index channel_id fft_length "
    "custom_call_target is_host_transfer constrain_layout is_stable custom_call_has_side_effect delta "
    "indices_are_sorted unique_indices use_global_device_ids async_execution_thread k largest is_composite "
    "feature_group_count batch_group_count backend_config infeed_config outfeed_config cross_program_prefetch_index"
)

#: Attributes whose value is the message's field of the same name, or of another.
_SAME: Mapping[str, str] = {name: name for name in _SAME_NAMES.split()} | {
    "kind": "fusion_kind",
    "direction": "comparison_direction",
    "type": "comparison_type",
}


def _window(window: Window) -> hlo.WindowProto:
    return hlo.WindowProto(
        tuple(
            hlo.WindowDimensionProto(d.size, d.stride, d.pad_low, d.pad_high, d.rhs_dilate, d.lhs_dilate, d.reversal)
            for d in window.dims
        )
    )


def _convolution_dims(d: ConvDims) -> hlo.ConvolutionDimsProto:
    return hlo.ConvolutionDimsProto(
        *(d.rhs_input_feature, d.rhs_output_feature, d.rhs_spatial, d.lhs_batch, d.lhs_feature, d.out_batch),
        *(d.out_feature, d.lhs_spatial, d.out_spatial),
    )


def _groups(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of replica groups: an iota where they are one."""
    groups: ReplicaGroups = attrs["replica_groups"]
    written = groups if isinstance(groups, IotaGroups) else parse_groups(print_groups(groups))
    if not isinstance(written, IotaGroups):
        listed = tuple(map(hlo.ReplicaGroupProto, written.expand()))
        return {"collective_device_list": hlo.CollectiveDeviceListProto(listed)}
    perm = written.transpose or tuple(range(len(written.reshape)))
    iota = hlo.IotaGroupsProto(written.num_groups, written.group_size, written.reshape, perm)
    older = hlo.CollectiveDeviceListProto(iota_replica_group_list=iota)
    return {"iota_collective_device_list": iota, "collective_device_list": older}


def _pairs(pairs: Pairs) -> tuple[hlo.SourceTargetProto, ...]:
    return tuple(hlo.SourceTargetProto(s, t) for s, t in pairs.expand())


_ALIAS = re.compile(r"\{([\d,\s]*)\}\s*:\s*\(\s*(\d+)\s*,\s*\{([\d,\s]*)\}\s*\)")


def _operand_aliases(text: str) -> tuple[hlo.OutputOperandAliasProto, ...]:
    def index(inner: str) -> tuple[int, ...]:
        return tuple(int(n) for n in inner.split(",") if n.strip())

    found = _ALIAS.findall(text)
    return tuple(hlo.OutputOperandAliasProto(index(out), int(n), index(at)) for out, n, at in found)


_LIMIT = re.compile(r"(rtol|atol|ulps)=\s*([^,}\s]+)")


def _accuracy(text: str) -> hlo.ResultAccuracyProto:
    limits = dict(_LIMIT.findall(text))
    if not limits:
        return hlo.ResultAccuracyProto(mode=int("highest" in text.lower()))
    atol, rtol = (float(limits.get(name, 0)) for name in ("atol", "rtol"))
    return hlo.ResultAccuracyProto(tolerance=hlo.ToleranceProto(atol, rtol, int(limits.get("ulps", 0))))


#: Attributes that need more than another name: what they are as fields of the message.
_CONVERTED: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "literal": ("literal", _literal),
    "window": ("window", _window),
    "dim_labels": ("convolution_dimension_numbers", _convolution_dims),
    "slice": ("slice_dimensions", lambda v: tuple(hlo.SliceDimensionProto(*r) for r in v)),
    "padding": (
        "padding_config",
        lambda v: hlo.PaddingConfigProto(tuple(hlo.PaddingDimensionProto(*p) for p in v)),
    ),
    "iota_dimension": ("dimensions", lambda v: (v,)),
    "inferred_dimension": ("dimensions", lambda v: (v,)),
    "source_target_pairs": ("source_target_pairs", _pairs),
    "outfeed_shape": ("outfeed_shape", shape_message),
    "operand_layout_constraints": ("operand_shapes_with_layout", lambda v: tuple(map(shape_message, v))),
    "frontend_attributes": ("frontend_attributes", lambda v: hlo.FrontendAttributesProto(dict(v))),
    "output_to_operand_aliasing": ("output_operand_aliasing", _operand_aliases),
    "result_accuracy": ("result_accuracy", _accuracy),
    "parameter_replication": (
        "parameter_replication",
        lambda v: hlo.ParameterReplicationProto(tuple(w == "true" for w in re.findall("true|false", v))),
    ),
}


def _fields(i: Instruction, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The message's fields for the attributes of ``i``."""
    fields: dict[str, Any] = {}
    for name, value in attrs.items():
        if value is None:
            continue
        words = _WORDS.get(f"{i.opcode} {name}") or _WORDS.get(name)
        if words is not None:
            fields[words[0]] = words[1].index(value)
        elif name in _CONVERTED:
            field, convert = _CONVERTED[name]
            fields[field] = convert(value)
        elif name in _SAME:
            fields[_SAME[name]] = value
    family = _FAMILIES.get(i.opcode)
    if family is not None:
        fields |= family(attrs)
    if attrs.get("replica_groups") is not None:
        fields |= _groups(attrs)
    return fields | _precision(i, attrs)


def _precision(i: Instruction, attrs: Mapping[str, Any]) -> dict[str, Any]:
    if i.opcode not in ("dot", "ragged-dot", "scaled-dot", "convolution") and "operand_precision" not in attrs:
        return {}
    said = tuple(map(_PRECISIONS.index, attrs.get("operand_precision", ())))
    algorithm = _ALGORITHMS.index(attrs.get("algorithm") or "unset")
    return {"precision_config": hlo.PrecisionConfigProto(said or (0,) * min(2, len(i.operands)), algorithm)}


def _dot(attrs: Mapping[str, Any]) -> dict[str, Any]:
    names = ("lhs_contracting_dims", "rhs_contracting_dims", "lhs_batch_dims", "rhs_batch_dims")
    return {"dot_dimension_numbers": hlo.DotDimsProto(*(attrs.get(name, ()) for name in names))}


def _ragged_dot(attrs: Mapping[str, Any]) -> dict[str, Any]:
    dims = _dot(attrs)["dot_dimension_numbers"]
    ragged = hlo.RaggedDotDimsProto(dims, attrs.get("lhs_ragged_dims", ()), attrs.get("rhs_group_dims", ()))
    return {"ragged_dot_dimension_numbers": ragged}


def _gather(attrs: Mapping[str, Any]) -> dict[str, Any]:
    names = ("offset_dims", "collapsed_slice_dims", "start_index_map", "index_vector_dim")
    batching = ("operand_batching_dims", "start_indices_batching_dims")
    dims = hlo.GatherDimsProto(*(attrs[n] for n in names), *(attrs.get(n, ()) for n in batching))
    return {"gather_dimension_numbers": dims, "gather_slice_sizes": attrs["slice_sizes"]}


def _scatter(attrs: Mapping[str, Any]) -> dict[str, Any]:
    names = ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims", "index_vector_dim")
    batching = ("input_batching_dims", "scatter_indices_batching_dims")
    dims = hlo.ScatterDimsProto(*(attrs[n] for n in names), *(attrs.get(n, ()) for n in batching))
    return {"scatter_dimension_numbers": dims}


_TRANSPOSES = ("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")


def _triangular_solve(attrs: Mapping[str, Any]) -> dict[str, Any]:
    flags = {name: bool(attrs.get(name)) for name in ("left_side", "lower", "unit_diagonal")}
    transpose = _TRANSPOSES.index(attrs.get("transpose_a", "NO_TRANSPOSE"))
    return {"triangular_solve_options": hlo.TriangularSolveProto(**flags, transpose_a=transpose)}


def _custom_call(attrs: Mapping[str, Any]) -> dict[str, Any]:
    constrained = {"constrain_layout": True} if attrs.get("operand_layout_constraints") is not None else {}
    return constrained if attrs.get("api_version") else {"custom_call_api_version": 1, **constrained}


def _convolution(attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: attrs.get(name, 1) for name in ("feature_group_count", "batch_group_count")} | {
        "window": _window(attrs.get("window", Window(())))
    }


#: Opcodes several of whose attributes make one field.
_FAMILIES: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "topk": lambda attrs: {"is_stable": True},  # newer jaxlibs say it; for older ones it is the only kind
    "dot": _dot,
    "scaled-dot": _dot,
    "ragged-dot": _ragged_dot,
    "gather": _gather,
    "scatter": _scatter,
    "triangular-solve": _triangular_solve,
    "custom-call": _custom_call,
    "cholesky": lambda attrs: {"cholesky_options": hlo.CholeskyOptionsProto(bool(attrs.get("lower")))},
    "convolution": _convolution,
    "parameter": lambda attrs: {"parameter_number": attrs["index"]},
    "get-tuple-element": lambda attrs: {"tuple_index": attrs["index"]},
}
