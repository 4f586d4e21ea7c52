"""A gather or scatter whose indices count along one of their own dimensions has a batch, and is told so.

``x[jnp.arange(n), i]`` looks up row r of ``x`` for index r. As an index that could be any, every device needs every
row; as a batching dimension rows and indices are split together, and nothing is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardc.hlo.ir.ir import Instruction, Module, rebuild_module
from shardc.hlo.ir.literal import Literal
from shardc.hlo.ir.sharding import Sharding
from shardc.hlo.ir.types import DType

__all__ = ["NameBatches", "counted_dim"]


@dataclass(frozen=True, slots=True)
class NameBatches:
    """Index components that are 0, 1, 2, ... along a split dimension become batching dimensions."""

    name: str = "name-batches"
    why: str = "rows and their indices can be split together"

    def run(self, module: Module) -> Module:
        return rebuild_module(module, _name, _NAMES.keys())


@dataclass(frozen=True, slots=True)
class _BatchNames:
    """What the attributes are called."""

    mapped: str
    inserted: str
    batching: str
    indices_batching: str


_GATHER = _BatchNames("start_index_map", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims")
_SCATTER = _BatchNames(
    "scatter_dims_to_operand_dims", "inserted_window_dims", "input_batching_dims", "scatter_indices_batching_dims"
)
_NAMES: Mapping[str, _BatchNames] = {"gather": _GATHER, "scatter": _SCATTER}


def _name(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
    names = _NAMES[old.opcode]
    at = 1 if old.opcode == "gather" else len(operands) // 2
    x, indices = operands[0], operands[at]
    vector: int = old.attrs["index_vector_dim"]
    if vector >= indices.shape.rank or indices.opcode != "concatenate" or indices.attrs["dimensions"] != (vector,):
        return None
    attrs = dict(old.attrs)
    batches = dict(zip(attrs.get(names.batching) or (), attrs.get(names.indices_batching) or (), strict=True))
    parts, mapped = list(indices.operands), list(attrs[names.mapped])
    for part, d in _components(parts, mapped, vector):
        r = counted_dim(part)
        if r is None or r in (vector, *batches.values()) or d not in attrs[names.inserted] or len(parts) == 1:
            continue
        split = _is_split(x, d) or _is_split(indices, r) or _is_split(part, r)
        if split and x.shape.dims[d] == part.shape.dims[r]:
            batches[d] = r
            parts.remove(part)
            mapped.remove(d)
    if len(parts) == len(indices.operands):
        return None
    attrs[names.mapped] = tuple(mapped)
    attrs[names.inserted] = tuple(d for d in attrs[names.inserted] if d not in batches)
    attrs[names.batching] = tuple(sorted(batches))
    attrs[names.indices_batching] = tuple(batches[d] for d in sorted(batches))
    if attrs.get("indices_are_sorted"):
        attrs["indices_are_sorted"] = False
    fewer = _join(indices, parts, vector)
    return old.replace(operands=(*operands[:at], fewer, *operands[at + 1 :]), attrs=attrs)


def _components(parts: list[Instruction], mapped: list[int], vector: int) -> list[tuple[Instruction, int]]:
    """Parts of index vectors that are one component, with the operand's dimension that it is an index of."""
    out, k = [], 0
    for part in parts:
        size = part.shape.dims[vector]
        if size == 1 and parts.count(part) == 1:
            out.append((part, mapped[k]))
        k += size
    return out


def _join(indices: Instruction, parts: list[Instruction], vector: int) -> Instruction:
    if len(parts) == 1:
        return parts[0]
    dims = list(indices.shape.dims)
    dims[vector] = sum(p.shape.dims[vector] for p in parts)
    return indices.replace(operands=tuple(parts), shape=indices.shape.with_dims(tuple(dims)))


# -- counting ------------------------------------------------------------------------------------------------------


def counted_dim(x: Instruction) -> int | None:
    """The dimension along which ``x`` is 0, 1, 2, ..., the same at all positions of the others; None for other values.

    Example: of ``select(iota < 0, iota + n, iota)``, as JAX wraps indices, the dimension of the iota.
    """
    found: int | None = None
    if x.opcode == "iota":
        found = x.attrs["iota_dimension"] if _fits(x.shape.dtype, x.shape.dims[x.attrs["iota_dimension"]]) else None
    elif x.opcode == "constant":
        found = _counted_constant(x.attrs["literal"])
    elif x.opcode in ("copy", "convert", "custom-call") and len(x.operands) == 1:
        same = x.opcode != "custom-call" or x.attrs.get("custom_call_target") == "Sharding"
        found = counted_dim(x.operands[0]) if same and x.operands[0].shape.dims == x.shape.dims else None
        found = found if found is None or _fits(x.shape.dtype, x.shape.dims[found]) else None
    elif x.opcode == "broadcast":
        inner = counted_dim(x.operands[0])
        found = None if inner is None else x.attrs["dimensions"][inner]
    elif x.opcode == "transpose":
        inner = counted_dim(x.operands[0])
        found = None if inner is None else x.attrs["dimensions"].index(inner)
    elif x.opcode == "reshape":
        found = _reshape(x, counted_dim(x.operands[0]))
    elif x.opcode == "select":
        chosen = _chosen(x)
        found = None if chosen is None else counted_dim(chosen)
    return found if found is not None and x.shape.dims[found] > 1 else None


def _fits(dtype: DType, n: int) -> bool:
    return dtype.kind in ("signed", "unsigned") and n - 1 <= np.iinfo(dtype.numpy).max if dtype.bits >= 8 else False


def _counted_constant(literal: Literal) -> int | None:
    array: Any = literal.array
    if array is None or array.dtype.kind not in "iu" or array.size > 1 << 20:
        return None
    for d, n in enumerate(array.shape):
        line = np.arange(n).reshape([n if e == d else 1 for e in range(array.ndim)])
        if n > 1 and np.array_equal(array, np.broadcast_to(line, array.shape)):
            return d
    return None


def _reshape(x: Instruction, inner: int | None) -> int | None:
    """The same dimension after dimensions of size 1 came or went."""
    before, after = x.operands[0].shape.dims, x.shape.dims
    if inner is None or [n for n in before if n != 1] != [n for n in after if n != 1]:
        return None
    place = sum(1 for n in before[:inner] if n != 1)
    return [d for d, n in enumerate(after) if n != 1][place]


def _chosen(x: Instruction) -> Instruction | None:
    """The branch of a select whose predicate compares what counts up from 0 with 0."""
    test, yes, no = x.operands
    if test.opcode != "compare" or counted_dim(test.operands[0]) is None or not _is_zero(test.operands[1]):
        return None
    return {"LT": no, "GE": yes}.get(test.attrs["direction"])


def _is_zero(x: Instruction) -> bool:
    while x.opcode in ("broadcast", "convert", "reshape", "copy"):
        (x,) = x.operands
    return x.opcode == "constant" and bool(x.attrs["literal"].splat == 0)


def _is_split(x: Instruction, dim: int) -> bool:
    return isinstance(x.sharding, Sharding) and bool(x.sharding.dims[dim].axes)
