"""Where a value lies: in the device's memory, or in pinned memory of its host.

A shape says it as XLA does, by the memory space of its layout: ``f32[8]{0:S(5)}`` lies in host memory. Programs ask for
it by custom calls whose value is their operand: JAX's ``annotate_device_placement``, XLA's ``MoveToHost`` and
``MoveToDevice``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.ir.types import Layout, Shape

__all__ = [
    "DEVICE",
    "PINNED_HOST",
    "annotate",
    "has_host_memory",
    "is_host",
    "memory_kind_of",
    "on_device",
    "on_host",
    "placed_in",
]

DEVICE, PINNED_HOST = "device", "pinned_host"

#: XLA's number of the host's memory.
_HOST_SPACE = "S(5)"
_SPACE = re.compile(r"S\(\d+\)")

#: What JAX's call says of where its value goes.
_PLACEMENT = "_xla_buffer_placement"
_TARGETS: Mapping[str, str] = MappingProxyType(
    {"MoveToHost": PINNED_HOST, "PinToHost": PINNED_HOST, "MoveToDevice": DEVICE, "PinToDevice": DEVICE}
)


def is_host(shape: Shape) -> bool:
    """Whether an array of this shape lies in host memory.

    >>> is_host(on_host(array_shape("f32", 8)))
    True
    """
    return shape.layout is not None and _HOST_SPACE in shape.layout.suffix


def on_host(shape: Shape) -> Shape:
    """The same array in host memory; of a tuple, all of it."""
    if shape.is_tuple:
        return replace(shape, elements=tuple(map(on_host, shape.elements)))
    if is_host(shape) or not shape.is_array:
        return shape
    rows = tuple(reversed(range(shape.rank)))
    layout = shape.layout or Layout(rows)
    return replace(shape, layout=replace(layout, suffix=_SPACE.sub("", layout.suffix) + _HOST_SPACE))


def on_device(shape: Shape) -> Shape:
    """The same array in the device's memory; of a tuple, all of it."""
    if shape.is_tuple:
        return replace(shape, elements=tuple(map(on_device, shape.elements)))
    if not is_host(shape) or shape.layout is None:
        return shape
    suffix = shape.layout.suffix.replace(_HOST_SPACE, "")
    default = not suffix and shape.layout.minor_to_major == tuple(reversed(range(shape.rank)))
    return replace(shape, layout=None if default else replace(shape.layout, suffix=suffix))


def placed_in(shape: Shape, memory: Shape) -> Shape:
    """The array ``shape`` in the kind of memory that ``memory``, an array of any size, lies in."""
    return on_host(shape) if is_host(memory) else on_device(shape)


def memory_kind_of(i: Instruction) -> str | None:
    """The memory kind that a custom call asks for its value; None of any other instruction.

    Raises `UnsupportedError` for kinds that nobody here knows.
    """
    if i.opcode != "custom-call":
        return None
    target = i.attrs["custom_call_target"]
    if target != "annotate_device_placement":
        return _TARGETS.get(target)
    kind = dict(i.attrs.get("frontend_attributes", ())).get(_PLACEMENT, DEVICE)
    if kind not in (DEVICE, PINNED_HOST):
        raise UnsupportedError(
            f"memory kind {kind!r} is not supported", where=i.place, fix=f"use {DEVICE!r} or {PINNED_HOST!r}"
        )
    return str(kind)


def annotate(value: Instruction, kind: str) -> Instruction:
    """The call that puts ``value`` into memory of ``kind``, as XLA spells it."""
    target = "MoveToHost" if kind == PINNED_HOST else "MoveToDevice"
    attrs = MappingProxyType({"custom_call_target": target})
    return Instruction(
        "custom-call", on_device(value.shape), (value,), attrs, name=f"{value.name}.{kind}", sharding=value.sharding,
        metadata=value.metadata, origin=value.origin,
    )  # fmt: skip


def has_host_memory(module: Module) -> bool:
    """Whether the program keeps anything in host memory."""
    if any(is_host(s) for i in (*module.parameters, module.entry.root) for s in i.shape.leaves()):
        return True
    return any(memory_kind_of(i) == PINNED_HOST or is_host(i.shape) for i in module.instructions())
