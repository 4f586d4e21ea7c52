"""Small programs with chosen shardings, and the comparison of partitioned against unpartitioned runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from shardc.costs.machines.machine import Machine, load_machine
from shardc.hlo.evaluate import evaluate, evaluate_spmd
from shardc.hlo.ir.build import make_module
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, DimSharding, Sharding
from shardc.hlo.ir.types import Shape, dtype_of
from shardc.hlo.verify import verify
from shardc.partitioner.equivalence import gather_results, scatter_arguments
from shardc.partitioner.options import PartitionOptions
from shardc.partitioner.partition import partition

Choose = Callable[[Instruction], Sharding]


def layout(
    mesh: Mesh, *dims: str | Sequence[str] | None, unreduced: Iterable[str] = (), reduction: str = "sum"
) -> Sharding:
    """A sharding from axis names; sub-axes as ``x:(1)2``."""
    parts = []
    for d in dims:
        names = () if d is None else (d,) if isinstance(d, str) else d
        parts.append(DimSharding(tuple(map(axis, names))))
    return Sharding(mesh, tuple(parts), (), tuple(map(axis, unreduced)), reduction)


def axis(text: str) -> AxisRef:
    """``x`` or ``x:(1)2``."""
    name, _, rest = text.partition(":")
    if not rest:
        return AxisRef(name)
    pre, _, size = rest[1:].partition(")")
    return AxisRef(name, int(pre), int(size))


def random_sharding(rng: random.Random, mesh: Mesh, rank: int, used: float = 0.7) -> Sharding:
    """Axes (sometimes both halves of one) dealt to dimensions at random."""
    pieces: list[AxisRef] = []
    for name, size in mesh.axes:
        if size % 2 == 0 and size > 2 and rng.random() < 0.3:
            pieces += [AxisRef(name, 1, 2), AxisRef(name, 2, size // 2)]
        else:
            pieces.append(AxisRef(name))
    rng.shuffle(pieces)
    dims: list[list[AxisRef]] = [[] for _ in range(rank)]
    for p in pieces:
        if rank and rng.random() < used:
            dims[rng.randrange(rank)].append(p)
    return Sharding(mesh, tuple(DimSharding(merged(mesh, d)) for d in dims))


def merged(mesh: Mesh, axes: Sequence[AxisRef]) -> tuple[AxisRef, ...]:
    """Halves of an axis that follow each other become the axis."""
    out: list[AxisRef] = []
    for a in axes:
        if out and not a.is_full and out[-1].name == a.name and out[-1].pre * out[-1].size == a.pre:
            out[-1] = AxisRef(a.name)
        else:
            out.append(a)
    return tuple(out)


def with_shardings(computation: Computation, mesh: Mesh, choose: Choose) -> Module:
    """A propagated module: every instruction gets ``choose(instruction)``, leaf by leaf for tuples."""
    return make_module("test", _shard(computation, choose, {}), mesh=mesh)


def _shard(computation: Computation, choose: Choose, done: dict[Computation, Computation]) -> Computation:
    new: dict[Instruction, Instruction] = {}
    for i in computation:
        attrs = dict(i.attrs)
        for role, value in i.attrs.items():
            if i.opcode not in ("call", "while", "conditional"):
                continue
            if isinstance(value, Computation):
                attrs[role] = _shard(value, choose, done)
            elif isinstance(value, tuple) and value and isinstance(value[0], Computation):
                attrs[role] = tuple(_shard(c, choose, done) for c in value)
        operands = tuple(new[o] for o in i.operands)
        new[i] = i.replace(operands=operands, attrs=attrs, sharding=sharding_for(i, choose))
    if computation not in done:
        done[computation] = Computation(computation.name, new.values(), new[computation.root])
    return done[computation]


def sharding_for(i: Instruction, choose: Choose) -> Any:
    if not i.shape.is_tuple:
        return choose(i)
    leaves = i.shape.leaves()
    return tuple(choose(Instruction(i.opcode, s, i.operands, i.attrs, name=i.name)) for s in leaves)


def integers(rng: np.random.Generator, shape: Shape, low: int = -4, high: int = 5) -> Any:
    """Small integers as whatever type, so that sums are exact."""
    dtype = shape.dtype.numpy
    if shape.dtype.kind == "pred":
        return rng.integers(0, 2, shape.dims).astype(bool)
    if shape.dtype.kind == "unsigned":
        low = 0
    return rng.integers(low, high, shape.dims).astype(dtype)


def run_partitioned(
    module: Module, args: Sequence[Any], machine: Machine | None = None, options: PartitionOptions | None = None
) -> tuple[Module, list[Any]]:
    """The partitioned module (verified) and its gathered results."""
    local = partition(module, machine=machine, options=options)
    verify(local)
    results = evaluate_spmd(local, scatter_poisoned(local, args))
    return local, gather_results(local, results)


def with_slow_arithmetic() -> Machine:
    """A machine on which arithmetic takes all the time: plans split whatever they may."""
    machine = load_machine("h100-dgx")
    device = machine.device
    flops = {kind: rate / 1e9 for kind, rate in device.flops.items()}
    rates = device.vector_flops / 1e9, device.special_flops / 1e9
    return replace(machine, device=replace(device, flops=flops, vector_flops=rates[0], special_flops=rates[1]))


def check(
    module: Module,
    args: Sequence[Any] | None = None,
    seed: int = 0,
    machine: Machine | None = None,
    options: PartitionOptions | None = None,
) -> Module:
    """Partition, run, and compare exactly with the unpartitioned run; returns the partitioned module."""
    if args is None:
        rng = np.random.default_rng(seed)
        args = [integers(rng, p.shape) for p in module.parameters]
    want = evaluate(module, args)
    local, got = run_partitioned(module, args, machine, options)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, w)
        assert g.dtype == w.dtype
    return local


def collectives(module: Module) -> list[str]:
    """Opcodes of the collectives of a partitioned module, in order."""
    from shardc.hlo.ir.opset import COLLECTIVES

    return [i.opcode for i in module.instructions() if i.opcode in COLLECTIVES]


def scatter_poisoned(module: Module, args: Sequence[Any]) -> list[list[Any]]:
    """Per-device arguments as `scatter_arguments`, their padding filled with values that must never matter."""
    out = []
    inside = scatter_arguments(module, [np.ones(a.shape, a.dtype) for a in args])
    for values, marks in zip(scatter_arguments(module, args), inside, strict=True):
        out.append([np.where(m == 1, v, poison(v.dtype)) for v, m in zip(values, marks, strict=True)])
    return out


def poison(dtype: np.dtype[Any]) -> Any:
    kind = dtype_of(dtype)
    if kind.is_float or kind.is_complex:
        return np.asarray(np.nan).astype(dtype)[()]
    return dtype.type(1) if dtype == np.bool_ else dtype.type(ml_dtypes.iinfo(dtype).max)
