"""``collective-permute`` with ``slice_sizes``: a slice of the input is sent, and written into the output.

HLO does not say whose offsets count where those of sender and receiver differ, nor which pair moves which of several
slices. So it has a meaning where offsets are the same on all devices and there is one slice: the short program that
`expand_permute` writes, which the evaluator runs and `open_permutes` puts in its place for everything else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Set
from typing import NoReturn

import numpy as np

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.ir import Computation, Instruction, Module, called_computations, rebuild_module
from shardc.hlo.ir.make import inline
from shardc.hlo.ir.operations import Operations
from shardc.hlo.ir.opset import OPS
from shardc.hlo.ir.participants import pairs_of_devices
from shardc.hlo.ir.sharding import AnySharding, TileSharding
from shardc.hlo.ir.types import array_shape

__all__ = ["expand_permute", "need_equal_offsets", "of_constants", "open_permutes", "sends_slices"]

#: Families whose operations give the same for the same operands, on every device.
_PURE = frozenset({"elementwise", "indexing", "shape"})


def sends_slices(i: Instruction) -> bool:
    """Whether ``i`` is a permute (or the start of one) of slices."""
    return "slice_sizes" in i.attrs and i.opcode.startswith("collective-permute")


def need_equal_offsets(i: Instruction, equal: bool) -> None:
    """Refuse the permute ``i`` unless its offsets are known to be ``equal`` on all devices."""
    if not equal:
        _refuse(i, "its offsets may differ between devices, and HLO does not say whose offsets apply")


def _refuse(i: Instruction, why: str) -> NoReturn:
    fix = "slice first, permute the slice, and write the received slice with dynamic-update-slice"
    raise UnsupportedError(f"collective-permute of slices: {why}", where=i.place, fix=fix)


def expand_permute(i: Instruction, partitions: int, replicas: int) -> Computation:
    """What the permute of slices ``i`` means, given its operands: offsets as those of ``dynamic-slice``, and an output
    that stays as it is where nothing arrives."""
    sizes = _slice_sizes(i)
    like: AnySharding = i.sharding if isinstance(i.sharding, TileSharding) and i.sharding.kind == "manual" else None
    p = Operations(i)
    source, output, *offsets = p.parameters
    begin, end = ([p.op("get-tuple-element", o, index=k, sharding=like) for k in range(len(sizes))] for o in offsets)
    part = p.op("dynamic-slice", source, *begin, dynamic_slice_sizes=sizes, sharding=like)
    attrs = {k: v for k, v in i.attrs.items() if k != "slice_sizes"}
    part = p.op("collective-permute", part, name=f"{i.name}.slice", sharding=like, **attrs)
    pairs = pairs_of_devices(i, partitions, replicas)
    receivers = {target for _, target in pairs}
    if len(receivers) < partitions * replicas or partitions * replicas == 1:
        kept = p.op("dynamic-slice", output, *end, dynamic_slice_sizes=sizes, sharding=like)
        part = p.op("select", _receives(p, receivers, partitions, replicas, sizes, like), part, kept, sharding=like)
    return p.build(p.op("dynamic-update-slice", output, part, *end, name=i.name, sharding=i.sharding))


def _receives(
    p: Operations, receivers: Set[int], partitions: int, replicas: int, dims: tuple[int, ...], like: AnySharding
) -> Instruction:
    """True in every element on ``receivers``, read from a table whose end stands for all devices behind it."""
    table = p.b.constant(np.array([d in receivers for d in range(max(receivers, default=0) + 2)]))
    partition, replica = (p.op(f"{name}-id", sharding=like) for name in ("partition", "replica"))
    device = partition
    if replicas > 1:
        device = p.op("add", p.op("multiply", replica, p.full(partitions, replica.shape)), partition)
    one = p.op("dynamic-slice", table, device, dynamic_slice_sizes=(1,), sharding=like)
    scalar = p.op("reshape", one, shape=array_shape("pred"), sharding=like)
    return p.op("broadcast", scalar, shape=array_shape("pred", *dims), dimensions=(), sharding=like)


def _slice_sizes(i: Instruction) -> tuple[int, ...]:
    """The sizes of the one slice; refused are several, and what does not fit."""
    slices = re.findall(r"{([\d,\s]*)}", i.attrs["slice_sizes"][1:-1])
    source, output, *offsets = (o.shape for o in i.operands)
    if len(slices) != 1 or not source.is_array or any(s.is_tuple for o in offsets for s in o.elements):
        _refuse(i, "HLO does not say which source-target pair moves which slice")
    sizes = tuple(int(n) for n in slices[0].split(",")) if slices[0].strip() else ()
    ranks = {len(sizes), source.rank, output.rank, *(len(o.elements) for o in offsets)}
    fits = len(ranks) == 1 and all(n <= min(a, b) for n, a, b in zip(sizes, source.dims, output.dims, strict=True))
    if not fits or source.dtype is not output.dtype:
        _refuse(i, f"slices of {list(sizes)} do not fit {source} and {output}, or the number of offsets")
    return sizes


def of_constants(module: Module) -> Set[Instruction]:
    """The values that are made of constants alone: the same on all devices."""
    found: set[Instruction] = set()
    for i in module.instructions():
        pure = OPS[i.opcode].family in _PURE or i.opcode in ("tuple", "get-tuple-element")
        if pure and found.issuperset(i.operands) and not any(called_computations(i)):
            found.add(i)
    return found


def open_permutes(module: Module, equal: Callable[[Instruction], bool] | None = None) -> Module:
    """The module with permutes of slices written out; the same if there are none.

    ``equal`` tells of values of ``module`` whether they are the same on all devices; without it, those of constants
    are. Raises `UnsupportedError` for permutes whose offsets may differ.
    """
    if not any(map(sends_slices, module.instructions())):
        return module
    constants = of_constants(module)

    def change(old: Instruction, operands: tuple[Instruction, ...]) -> Instruction | None:
        if old.opcode != "collective-permute" or not sends_slices(old):
            return None
        need_equal_offsets(old, all(o in constants or (equal is not None and equal(o)) for o in old.operands[2:]))
        return inline(expand_permute(old, module.num_partitions, module.replica_count), operands)

    return rebuild_module(module, change)
