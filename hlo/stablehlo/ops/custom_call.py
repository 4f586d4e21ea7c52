"""Custom calls: target, attributes, and the layouts that the called function wants."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from shardc.hlo.errors import InputError
from shardc.hlo.ir.custom_calls import CALLBACKS
from shardc.hlo.ir.groups import ListGroups
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import Layout, Shape, array_shape, tuple_shape
from shardc.hlo.stablehlo.constants import literal_from_text
from shardc.hlo.stablehlo.converter import MlirOp
from shardc.hlo.stablehlo.ops.callbacks import convert_callback
from shardc.hlo.stablehlo.tables import literal_ints

__all__ = ["convert_custom_call"]

_SHAPE_ASSERTION = "shape_assertion"
_CUSTOM_PARTITIONING = "CustomSPMDPartitioning"
_API_VERSIONS = {
    0: "API_VERSION_UNSPECIFIED",
    1: "API_VERSION_ORIGINAL",
    2: "API_VERSION_STATUS_RETURNING",
    3: "API_VERSION_STATUS_RETURNING_UNIFIED",
    4: "API_VERSION_TYPED_FFI",
}


def convert_custom_call(op: MlirOp) -> Sequence[Instruction]:
    """One instruction; several results are elements of its tuple."""
    target = op.get("call_target_name")
    if target in CALLBACKS:
        return convert_callback(op, _config(op))
    if target == _SHAPE_ASSERTION:
        return _shape_assertion(op)
    if target == _CUSTOM_PARTITIONING:
        why = "custom_partitioning gives XLA Python functions, which are not in the module"
        raise op.unsupported(why, "call the plain function: shardc partitions it itself")
    if target == "ragged_all_to_all":
        return _ragged_all_to_all(op)
    if target == "xla.sdy.FuncResultSharding":
        target = "Sharding"
    elif target.startswith("xla.sdy."):
        raise op.unsupported(f"@{target}", "export the program again with a current JAX")
    attrs: dict[str, Any] = {"custom_call_target": target}
    if op.get("has_side_effect"):
        attrs["custom_call_has_side_effect"] = True
    layouts = op.get("operand_layouts")
    if layouts is not None:
        pairs = zip(op.operands, layouts, strict=True)
        attrs["operand_layout_constraints"] = tuple(_apply_layout(o.shape, layout) for o, layout in pairs)
    aliases = op.get("output_operand_aliases") or ()
    if aliases:
        attrs["output_to_operand_aliasing"] = "{" + ", ".join(map(_alias, aliases)) + "}"
    config = _config(op)
    if config:
        attrs["backend_config"] = config
    version = op.get("api_version")
    if op.get("mhlo.backend_config") is not None and config.startswith("{"):
        version = 4  # JAX leaves the version out where the attributes have their types
    if version is not None and version > 1:
        attrs["api_version"] = _API_VERSIONS.get(version, str(version))
    frontend = _frontend(op)
    if frontend:
        attrs["frontend_attributes"] = frontend
    names = op.get("called_computations") or ()
    if names:
        attrs["called_computations"] = tuple(op.scope.converter.convert_function(n, op) for n in names)
    return _emit(op, attrs)


def _frontend(op: MlirOp) -> tuple[tuple[str, str], ...]:
    """Frontend attributes but shardings, which are read elsewhere; a sharding rule takes the name it has in HLO."""
    found = op.get("mhlo.frontend_attributes") or {}
    kept = {k: v for k, v in found.items() if isinstance(v, str) and k not in ("xla.sdy.sharding", "xla.sdy.meshes")}
    if "sdy.sharding_rule" in op.raw:
        kept["xla.sdy.sharding_rule"] = str(op.get("sdy.sharding_rule"))
    return tuple(sorted(kept.items()))


def _shape_assertion(op: MlirOp) -> Sequence[Instruction]:
    """What an exported program demands of its symbolic dimensions; known by now, as shapes are."""
    holds, *numbers = op.operands
    if holds.opcode != "constant":
        raise op.unsupported("a condition on shapes that are not known")
    if not holds.attrs["literal"].array.all():
        values = [int(n.attrs["literal"].array) if n.opcode == "constant" else "?" for n in numbers]
        message = str(op.get("error_message", ""))
        for k, v in enumerate(values):
            message = message.replace(f"{{{k}}}", str(v))
        raise InputError(message or "the program does not take arguments of these shapes", where=op.place)
    return ()


_GROUPS = re.compile(r"replica_groups = dense<(.*?)> : tensor<(\d+)x(\d+)xi64>")
_CHANNEL = re.compile(r"channel_id = (\d+)")


def _ragged_all_to_all(op: MlirOp) -> Sequence[Instruction]:
    """HLO has an op for it, StableHLO only this call."""
    config = _config(op)
    groups, channel = _GROUPS.search(config), _CHANNEL.search(config)
    if groups is None:
        raise op.unsupported(f"ragged_all_to_all with {config or 'no replica groups'}")
    ids = literal_from_text(array_shape("s64", int(groups[2]), int(groups[3])), groups[1]).array
    attrs: dict[str, Any] = {"replica_groups": ListGroups(tuple(tuple(int(d) for d in row) for row in ids))}
    if channel is not None:
        attrs["channel_id"] = int(channel[1])
    return op.emit_results("ragged-all-to-all", *op.operands, **attrs)


def _emit(op: MlirOp, attrs: dict[str, Any]) -> Sequence[Instruction]:
    layouts = op.get("result_layouts")
    if layouts is None:
        return op.emit_results("custom-call", *op.operands, **attrs)
    shapes = [_apply_layout(s, y) for s, y in zip(op.shapes, layouts, strict=True)]
    whole = shapes[0] if len(shapes) == 1 else tuple_shape(*shapes)
    sharding = op.shardings[0] if len(shapes) == 1 else None
    made = op.scope.emit("custom-call", whole, op.operands, attrs, metadata=op.metadata, sharding=sharding)
    return (made,) if len(shapes) == 1 else op.emit_elements(made)


def _apply_layout(shape: Shape, layout: Any) -> Shape:
    """``shape`` in a layout given from minor to major; the default layout stays unsaid."""
    order = literal_ints(layout)
    if not shape.is_array or order == tuple(reversed(range(shape.rank))):
        return shape.plain
    return Shape(shape.dtype, shape.dims, layout=Layout(order), dynamic=shape.dynamic)


def _alias(alias: Any) -> str:
    def path(numbers: Sequence[int]) -> str:
        return "{" + ",".join(map(str, numbers)) + "}"

    operand = f"({alias['operand_index']}, {path(alias['operand_tuple_indices'])})"
    return f"{path(alias['output_tuple_indices'])}: {operand}"


def _config(op: MlirOp) -> str:
    """Attributes as text: typed ones as MLIR writes them (which is what XLA's text has), others as they are."""
    for name in ("mhlo.backend_config", "backend_config", "mhlo.attributes"):
        value = op.get(name)
        if value:
            return value if isinstance(value, str) else format_attributes(value)
    return ""


def format_attributes(value: Any) -> str:
    """A dictionary of values that have lost their types, keys in order."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {format_attributes(v)}" for k, v in sorted(value.items())) + "}"
    if isinstance(value, tuple):
        return "[" + ", ".join(format_attributes(v) for v in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)
