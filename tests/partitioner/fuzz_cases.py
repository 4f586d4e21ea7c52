"""A random program over a random mesh with random annotations, by its seed, and whether its partition is right."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
from fuzz_grow import Grown
from fuzz_manual import INSIDE
from fuzz_ops import grow
from partition_support import check, integers, random_sharding, with_shardings, with_slow_arithmetic

from shardc.costs.machines.machine import Machine, load_machine
from shardc.hlo.errors import ShardcError
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.build import make_module
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.hlo.ir.mesh import Mesh
from shardc.hlo.ir.sharding import AxisRef, DimSharding, Sharding
from shardc.launcher.arrays.gather import gather
from shardc.partitioner.options import PartitionOptions
from shardc.sharding.propagate import propagate
from shardc.stages.stages import Program

__all__ = [
    "alive",
    "annotated",
    "arguments",
    "check_case",
    "check_compiled",
    "check_plans",
    "failure",
    "make_case",
    "stored",
]

AXES = ((2,), (3,), (4,), (5,), (8,), (2, 2), (2, 3), (3, 2), (2, 4), (4, 2), (2, 2, 2), (1, 4), (7,))


def make_case(seed: int) -> Module:
    """The propagated module of a seed: every second one has a sharding of its own on every value."""
    r = random.Random(seed)
    mesh = _mesh(r)
    g = Grown(r, mesh=None if seed % 2 else mesh)
    for _ in range(r.randint(1, 3)):
        g.fresh(g.dims(r.choice([1, 2, 2, 3, 3, 4])))
    grow(g, r.randint(1, 20))
    chosen = g.values[-1:] + [v for v in g.values[:-1] if r.random() < 0.12]
    computation = alive(g.b.build(g.b.add("tuple", *chosen)))
    if seed % 2:
        used = r.choice([0.3, 0.7, 1.0])
        return with_shardings(computation, mesh, lambda i: stored(r, mesh, i, used))
    return propagate(annotated(r, computation, mesh)).module


def _mesh(r: random.Random) -> Mesh:
    sizes = r.choice(AXES)
    order = list(range(int(np.prod(sizes))))
    r.shuffle(order)
    return Mesh(dict(zip("xyz", sizes, strict=False)), tuple(order) if r.random() < 0.2 else None)


def stored(r: random.Random, mesh: Mesh, op: Instruction, used: float) -> Sharding:
    """A sharding at random; what is computed from floats may be stored as partial sums."""
    sharding = random_sharding(r, mesh, op.shape.rank, used)
    free = [n for n in mesh.axis_names if all(a.name != n for a in sharding.used_axes())]
    linear = op.opcode in ("dot", "reduce", "add", "negate", "transpose", "convolution")
    if free and linear and op.shape.dtype.is_float and r.random() < 0.2:
        return replace(sharding, unreduced=(AxisRef(r.choice(free)),))
    return sharding


def annotated(r: random.Random, computation: Computation, mesh: Mesh) -> Module:
    """Some values get dimensions that are open or closed, with priorities, and axes that stay replicated."""
    new: dict[Instruction, Instruction] = {}
    for i in computation:
        often = {"parameter": 0.8, "custom-call": 0.8}.get(i.opcode, 0.1)
        sharding = i.sharding
        if sharding is None and not i.shape.is_tuple and i.metadata is not INSIDE and r.random() < often:
            sharding = random_sharding(r, mesh, i.shape.rank)
            dims = [DimSharding(d.axes, r.random() < 0.6, r.choice([0, 0, 1]) if d.axes else 0) for d in sharding.dims]
            free = [AxisRef(n) for n in mesh.axis_names if all(a.name != n for a in sharding.used_axes())]
            kept = tuple(a for a in free if r.random() < 0.2)
            sharding = replace(sharding, dims=tuple(dims), replicated=kept)
        new[i] = i.replace(operands=tuple(new[o] for o in i.operands), sharding=sharding)
    return make_module("fuzz", Computation(computation.name, new.values(), new[computation.root]), mesh=mesh)


def alive(computation: Computation) -> Computation:
    """Without what the root does not read; parameters are numbered anew."""
    needed = {computation.root}
    for i in reversed(computation.instructions):
        if i in needed:
            needed.update(i.operands)
    new: dict[Instruction, Instruction] = {}
    index = 0
    for i in computation:
        if i in needed:
            attrs = dict(i.attrs)
            if i.opcode == "parameter":
                attrs["index"] = index
                index += 1
            new[i] = i.replace(operands=tuple(new[o] for o in i.operands), attrs=attrs)
    return Computation(computation.name, new.values(), new[computation.root])


def arguments(module: Module, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [integers(rng, p.shape) for p in module.parameters]


def check_case(module: Module, seed: int = 0) -> None:
    """Partitioned equals unpartitioned in the evaluator, exactly."""
    with np.errstate(all="ignore"):
        check(module, arguments(module, seed))


#: Plans for programs that are made at random: for the fewest bytes, and on machines of two kinds.
PLANS: tuple[tuple[Machine | None, PartitionOptions], ...] = (
    (None, PartitionOptions(plan="global", memory=1e12)),
    (None, PartitionOptions(plan="auto")),
    (load_machine("h100-dgx"), PartitionOptions(plan="global", memory=1e12)),
    (with_slow_arithmetic(), PartitionOptions(plan="global", memory=1e12)),
)


def check_plans(module: Module, seed: int = 0) -> None:
    """So it does with the layouts of plans."""
    for machine, options in PLANS:
        with np.errstate(all="ignore"):
            check(module, arguments(module, seed), machine=machine, options=options)


def check_compiled(module: Module, seed: int = 0) -> None:
    """So it does compiled, on virtual devices."""
    args = arguments(module, seed)
    with np.errstate(all="ignore"):
        want = evaluate(module, args)
    for g, w in zip(Program(module).compile().run(args), want, strict=True):
        np.testing.assert_array_equal(gather(g), w)


def failure(module: Module, seed: int = 0) -> str:
    """In a few words what goes wrong; empty when nothing does. Programs that are wrong themselves do not count."""
    try:
        with np.errstate(all="ignore"):
            evaluate(module, arguments(module, seed))
    except Exception:
        return ""
    try:
        check_case(module, seed)
    except AssertionError as error:
        return "differs" if "rrays are not equal" in str(error) else f"assertion: {str(error)[:60]}"
    except ShardcError as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0][:60]}"
    except Exception as error:
        return type(error).__name__
    return ""
