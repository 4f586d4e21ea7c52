"""`difference` compares two modules as printed: for tests of readers, printers and passes.

Names are compared only on request; groups and shardings are compared as they print, so that groups over mesh axes
equal the iota they are written as.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardc.hlo.ir.groups import AxisGroups, AxisPairs, IotaGroups, ListGroups, ListPairs
from shardc.hlo.ir.ir import Computation, Instruction, Metadata, Module
from shardc.hlo.text.header import TEXT_ATTRIBUTES
from shardc.hlo.text.manual import as_written, computations_as_written
from shardc.hlo.text.metadata import metadata_as_written
from shardc.hlo.text.notations.tiles import print_groups, print_pairs, print_sharding
from shardc.hlo.units import count_text

__all__ = ["difference", "same_module"]

_FIELDS = ("num_partitions", "replica_count", "partitioned", "aliases", "donors")


def same_module(a: Module, b: Module, *, names: bool = False) -> bool:
    """True when `difference` finds none."""
    return difference(a, b, names=names) is None


def difference(a: Module, b: Module, *, names: bool = False) -> str | None:
    """The first difference in words, None when the modules are the same program; with ``names`` names count too."""
    for field in _FIELDS:
        if getattr(a, field) != getattr(b, field):
            return f"{field}: {getattr(a, field)} and {getattr(b, field)}"
    left_side, right_side = computations_as_written(a), computations_as_written(b)
    for key in TEXT_ATTRIBUTES:
        one, other = (_attribute_value(m, key, side) for m, side in ((a, left_side), (b, right_side)))
        if one != other:
            return f"{key}: {one} and {other}"
    if len(left_side) != len(right_side):
        return f"{len(left_side)} and {len(right_side)} computations"
    pairs = dict(zip(left_side, right_side, strict=True))
    if pairs.get(a.entry) is not b.entry:
        return "entry computations differ in place"
    found = _metadata(a, b, pairs)
    if found is not None:
        return found
    for left, right in pairs.items():
        found = _computations(left, right, pairs, names)
        if found is not None:
            return f"computation {left.name}: {found}"
    return None


def _attribute_value(module: Module, key: str, computations: Sequence[Computation]) -> Any:
    """An attribute of the module's text; computations that it names are told by their place."""
    said = module.attrs.get(key)
    if key != "computation_attributes" or not said:
        return said
    places = {c.name: n for n, c in enumerate(computations)}
    return [(places.get(name, name), text) for name, text in said]


def _metadata(a: Module, b: Module, pairs: dict[Computation, Computation]) -> str | None:
    """Provenance, with the names of arguments as the op_name that they are written as."""
    named_a, named_b = metadata_as_written(a), metadata_as_written(b)
    for left, right in pairs.items():
        for x, y in zip(left, right, strict=False):
            one, other = named_a.get(x, x.metadata) or Metadata(), named_b.get(y, y.metadata) or Metadata()
            if one != other:
                return f"%{x.name}: {one} and {other}"
    return None


def _computations(a: Computation, b: Computation, pairs: dict[Computation, Computation], names: bool) -> str | None:
    if len(a.instructions) != len(b.instructions):
        return f"{len(a.instructions)} and {count_text(len(b.instructions), 'instruction')}"
    if names and a.name != b.name:
        return f"named {a.name} and {b.name}"
    same: dict[Instruction, Instruction] = dict(zip(a.instructions, b.instructions, strict=True))
    if same[a.root] is not b.root:
        return f"roots differ: %{a.root.name} and %{b.root.name}"
    for left, right in same.items():
        found = _instructions(left, right, same, pairs, names)
        if found is not None:
            return f"%{left.name}: {found}"
    return None


def _instructions(
    a: Instruction,
    b: Instruction,
    same: dict[Instruction, Instruction],
    pairs: dict[Computation, Computation],
    names: bool,
) -> str | None:
    if a.opcode != b.opcode or a.shape != b.shape:
        return f"{a.shape} {a.opcode} and {b.shape} {b.opcode}"
    if names and a.name != b.name:
        return f"named {a.name} and {b.name}"
    if len(a.operands) != len(b.operands) or any(same[x] is not y for x, y in zip(a.operands, b.operands, strict=True)):
        return f"operands {[o.name for o in a.operands]} and {[o.name for o in b.operands]}"
    if a.sharding != b.sharding and (
        a.sharding is None or b.sharding is None or print_sharding(a.sharding) != print_sharding(b.sharding)
    ):
        return f"sharding {a.sharding} and {b.sharding}"
    return _attributes(a, b, pairs)


def _attributes(a: Instruction, b: Instruction, pairs: dict[Computation, Computation]) -> str | None:
    left, right = as_written(a), as_written(b)
    if left.keys() != right.keys():
        return f"attributes {sorted(left)} and {sorted(right)}"
    for key, value in left.items():
        if key != "control-predecessors" and _plain(value, pairs) != _plain(right[key], {}):
            return f"{key}: {value} and {right[key]}"
    return None


def _plain(value: Any, pairs: dict[Computation, Computation]) -> Any:
    if isinstance(value, Computation):
        return pairs.get(value, value)
    if isinstance(value, tuple) and value and isinstance(value[0], Computation):
        return tuple(pairs.get(c, c) for c in value)
    if isinstance(value, AxisGroups | IotaGroups | ListGroups):
        return print_groups(value)
    if isinstance(value, AxisPairs | ListPairs):
        return print_pairs(value)
    return value
