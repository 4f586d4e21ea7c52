"""MLIR attributes in the plain form."""

from __future__ import annotations

import re
from typing import Any

from shardc.hlo.stablehlo.mlir.bindings import Bindings

__all__ = ["AttributeReader"]

#: Element types of which the bindings give the bytes; asking for others may end the process.
_BUFFERED = frozenset({"i1", "i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64", "f16", "f32", "f64"})


class AttributeReader:
    """Attribute values in the plain form.

    Numbers, strings, bools and types are themselves (a type is an index into the type table, as ``("type", i)``),
    arrays are tuples, dictionaries and dimension numbers are dicts, enumerations and symbol references strings.
    Constants are ``("dense", type, bytes, is splat)``, the bytes of one element for a splat, or
    ``("dense_text", type, text)`` for element types without a buffer. A sharding is ``("sharding", mesh, dims,
    replicated, unreduced, reduction)``: mesh a name or a mesh, dims of (axes, closed, priority), an axis
    (name, pre, size). Replica groups over mesh axes are ``("axis_groups", mesh, axes)``. Anything else is
    ``("other", text)``.
    """

    def __init__(self, bindings: Bindings, type_of: Any) -> None:
        self.bindings, self.ir, self.sdy = bindings, bindings.ir, bindings.sdy
        self.type_of = type_of
        s = bindings.stablehlo
        self.records: dict[str, tuple[Any, str]] = {
            "#stablehlo.gather<": (
                s.GatherDimensionNumbers,
                "offset_dims collapsed_slice_dims operand_batching_dims start_indices_batching_dims start_index_map "
                "index_vector_dim",
            ),
            "#stablehlo.scatter<": (
                s.ScatterDimensionNumbers,
                "update_window_dims inserted_window_dims input_batching_dims scatter_indices_batching_dims "
                "scattered_dims_to_operand_dims index_vector_dim",
            ),
            "#stablehlo.dot<": (
                s.DotDimensionNumbers,
                "lhs_batching_dimensions rhs_batching_dimensions lhs_contracting_dimensions rhs_contracting_dimensions",
            ),
            "#stablehlo.conv<": (
                s.ConvDimensionNumbers,
                "input_batch_dimension input_feature_dimension input_spatial_dimensions "
                "kernel_input_feature_dimension kernel_output_feature_dimension kernel_spatial_dimensions "
                "output_batch_dimension output_feature_dimension output_spatial_dimensions",
            ),
            "#stablehlo.channel_handle<": (s.ChannelHandle, "handle channel_type"),
            "#stablehlo.output_operand_alias<": (
                s.OutputOperandAlias,
                "output_tuple_indices operand_index operand_tuple_indices",
            ),
            "#chlo.ragged_dot<": (
                getattr(bindings.chlo, "RaggedDotDimensionNumbers", None),
                "lhs_batching_dimensions rhs_batching_dimensions lhs_contracting_dimensions "
                "rhs_contracting_dimensions lhs_ragged_dimensions rhs_group_dimensions",
            ),
            "#stablehlo.dot_algorithm<": (
                getattr(s, "DotAlgorithm", None),
                "lhs_precision_type rhs_precision_type accumulation_type lhs_component_count rhs_component_count "
                "num_primitive_operations allow_imprecise_accumulation",
            ),
        }

    def __call__(self, attribute: Any) -> Any:
        ir = self.ir
        if isinstance(attribute, (ir.IntegerAttr, ir.FloatAttr, ir.BoolAttr, ir.FlatSymbolRefAttr)):
            return attribute.value
        if isinstance(attribute, ir.StringAttr):
            return attribute.value_bytes.decode(errors="backslashreplace")  # bytes of anything, such as addresses
        if isinstance(attribute, (ir.DenseI64ArrayAttr, ir.DenseI32ArrayAttr, ir.DenseBoolArrayAttr)):
            return tuple(attribute)
        if isinstance(attribute, ir.DenseElementsAttr):
            return self.dense(attribute)
        if isinstance(attribute, ir.ArrayAttr):
            return tuple(self(a) for a in attribute)
        if isinstance(attribute, ir.DictAttr):
            named = (attribute[i] for i in range(len(attribute)))
            return {n.name: self(n.attr) for n in named}
        if isinstance(attribute, ir.TypeAttr):
            return ("other", str(attribute.value))
        if isinstance(attribute, ir.UnitAttr):
            return True
        return self.from_dialect(attribute)

    def from_dialect(self, attribute: Any) -> Any:
        sdy, text = self.sdy, str(attribute)
        if text.startswith("#sdy.sharding<"):
            return self.sharding(sdy.TensorShardingAttr(attribute))
        if text.startswith("#sdy.sharding_per_value<"):
            return tuple(self(a) for a in sdy.TensorShardingPerValueAttr(attribute).shardings)
        if text.startswith("#sdy.mesh<"):
            return self.mesh(attribute)
        if text.startswith("#sdy<manual_axes"):
            axes = sdy.ManualAxesAttr(attribute)
            return tuple(axes[i] for i in range(len(axes)))
        if text.startswith("#stablehlo.replica_group_mesh_axes<"):
            return axis_groups(text)
        enumeration = re.fullmatch(r"#\w+<\w+ (\w+)>", text)
        if enumeration:
            return enumeration.group(1)
        for prefix, (cast, fields) in self.records.items():
            if cast is not None and text.startswith(prefix):
                record = cast(attribute)
                return {f: self.field(getattr(record, f)) for f in fields.split()}
        return ("other", text)

    def field(self, value: Any) -> Any:
        if isinstance(value, (int, bool, str)):
            return value
        return tuple(value) if isinstance(value, (list, tuple)) else str(value)

    def dense(self, attribute: Any) -> tuple[Any, ...]:
        type_ = attribute.type
        dims = tuple(type_.shape)
        plain = ("tensor", str(type_.element_type), dims)
        if plain[1] not in _BUFFERED:
            return self.dense_text(attribute, plain)
        splat = bool(attribute.is_splat) and len(attribute) > 0
        if splat and dims:
            scalar = self.ir.RankedTensorType.get([], type_.element_type)
            attribute = self.ir.DenseElementsAttr.get_splat(scalar, attribute.get_splat_value())
        return ("dense", plain, memoryview(attribute).tobytes(), splat)

    def dense_text(self, attribute: Any, plain: tuple[Any, ...]) -> tuple[Any, ...]:
        text = re.fullmatch(r"dense<(.*)> : [^:]*", str(attribute), re.DOTALL)
        return ("dense_text", plain, text.group(1)) if text else ("other", str(attribute))

    def mesh(self, attribute: Any) -> tuple[Any, ...]:
        mesh = self.sdy.MeshAttr(attribute)
        axes = (self.sdy.MeshAxisAttr(a) for a in mesh.axes)
        return (tuple((a.name, a.size) for a in axes), tuple(mesh.device_ids))

    def sharding(self, sharding: Any) -> tuple[Any, ...]:
        reference = sharding.mesh_or_ref
        named = isinstance(reference, self.ir.FlatSymbolRefAttr)
        dims = []
        for d in sharding.dimension_shardings:
            dim = self.sdy.DimensionShardingAttr(d)
            dims.append((self.axes(dim.axes), bool(dim.is_closed), dim.priority))
        kind = str(getattr(sharding, "reduction_op", "sum")).rsplit(".", 1)[-1].lower()
        return (
            "sharding",
            reference.value if named else self.mesh(reference),
            tuple(dims),
            self.axes(sharding.replicated_axes),
            self.axes(getattr(sharding, "unreduced_axes", ())),
            kind,
        )

    def axes(self, axes: Any) -> tuple[Any, ...]:
        out = []
        for a in axes:
            axis = self.sdy.AxisRefAttr(a)
            part = axis.sub_axis_info
            info = None if part is None else self.sdy.SubAxisInfoAttr(part)
            out.append((axis.name, 1, 0) if info is None else (axis.name, info.pre_size, info.size))
        return tuple(out)


_NAME = r'name = "((?:[^"\\]|\\.)*)"'
_AXIS = re.compile(rf"<{_NAME}(?:, sub_axis_info = \((\d+)\)(\d+))?>")
_MESH_AXIS = re.compile(rf"<{_NAME}, size = (\d+)>")


def axis_groups(text: str) -> tuple[Any, ...]:
    """Replica groups over axes of a mesh; the bindings show them as text only."""
    mesh, _, axes = text.rpartition("axes = [")
    refs = tuple((n, int(pre or 1), int(size or 0)) for n, pre, size in _AXIS.findall(axes))
    symbol = re.search(r'mesh = @(?:"([^"]*)"|([\w.$-]+))', mesh)
    if symbol:
        return ("axis_groups", symbol.group(1) or symbol.group(2), refs)
    ids = re.search(r"device_ids ?= ?dense<\[?([\d, ]*)\]?>", mesh)
    numbers = tuple(int(n) for n in ids.group(1).split(",")) if ids else ()
    return ("axis_groups", (tuple((n, int(size)) for n, size in _MESH_AXIS.findall(mesh)), numbers), refs)
