"""Programs with the plans that people write for them by hand: what plans that are found are measured against.

Each program is a function of its size and of *points*: places inside where a hand plan says how a value lies. A plan is
a spec per argument, by glob, and one per point. Without a plan the program has no annotation at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
from jax import lax
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

import shardc
from shardc import Mesh, P
from shardc.hlo.errors import InputError
from shardc.hlo.ir.ir import Module

__all__ = ["HandPlan", "Made", "PlanProgram", "Points", "Size", "abstract", "adam", "planned", "size_for"]

#: A step, its abstract arguments by name, and the arguments whose memory the results take.
Made = tuple[Callable[..., Any], dict[str, Any], tuple[str, ...]]

Spec = tuple[Any, ...]


@dataclass(frozen=True)
class Size:
    """How large a program is on so many devices: ``batch`` grows with them, ``width`` with the root of their number."""

    devices: int
    data: int
    model: int
    batch: int
    width: int

    @property
    def mesh(self) -> dict[str, int]:
        return {"data": self.data, "model": self.model}


def size_for(devices: int) -> Size:
    """The size on 4, 64, 1,024 and 16,384 devices."""
    model = {4: 2, 64: 8, 1024: 8, 16384: 16}[devices]
    width = {4: 2048, 64: 4096, 1024: 8192, 16384: 16384}[devices]
    return Size(devices, devices // model, model, 2 * devices // model, width)


@dataclass(frozen=True)
class HandPlan:
    """Specs of ``arguments`` by glob, the first that fits, and of values at ``points``."""

    name: str
    arguments: Mapping[str, Spec]
    points: Mapping[str, Spec] = field(default_factory=dict)


@dataclass(frozen=True)
class Points:
    """Constrains a value at a point, where the plan says how it lies there."""

    plan: HandPlan | None
    size: Size

    def __call__(self, name: str, x: Any) -> Any:
        if self.plan is None or name not in self.plan.points:
            return x
        mesh = AbstractMesh(tuple(self.size.mesh.values()), tuple(self.size.mesh), axis_types=(AxisType.Auto,) * 2)
        return lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec(*self.plan.points[name])))


@dataclass(frozen=True)
class PlanProgram:
    """A program and its hand plans."""

    name: str
    make: Callable[[Points, Size], Made]
    plans: tuple[HandPlan, ...]


def planned(program: PlanProgram, size: Size, plan: HandPlan | None = None) -> shardc.Program:
    """The program, annotated by ``plan``; without one it only has the mesh."""
    step, arguments, donated = program.make(Points(plan, size), size)
    numbers = tuple(n for n, name in enumerate(arguments) if name in donated)
    traced = jax.jit(step, donate_argnums=numbers).trace(*arguments.values())
    lowered = shardc.from_jax(traced)
    specs = {g: P(*s) for g, s in (plan.arguments if plan else {}).items()}
    annotated = lowered.annotate(specs, mesh=Mesh(size.mesh))
    _refuse_uneven_arguments(annotated.module)
    return annotated


def _refuse_uneven_arguments(module: Module) -> None:
    """JAX takes no argument whose dimensions its sharding does not divide: nobody writes such a plan."""
    for p, name in zip(module.parameters, module.argument_names, strict=True):
        given = p.leaf_shardings() if p.sharding is not None else ()
        for shape, sharding in zip(p.shape.leaves(), given, strict=False):
            for size, dim in zip(shape.dims, sharding.dims, strict=True):
                parts = dim.extent(sharding.mesh)
                if size % parts:
                    raise InputError(f"{size} rows are not divided by {parts} devices", where=name)


def abstract(*dims: int, dtype: Any = "bfloat16") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, dtype)


def adam(loss: Callable[..., Any]) -> Callable[..., Any]:
    """(weights, first, second, *batch) -> (weights, first, second, loss): one step of Adam."""

    def step(w: Any, m: Any, v: Any, *batch: Any) -> Any:
        value, g = jax.value_and_grad(loss)(w, *batch)
        m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b.astype(a.dtype), m, g)
        v = jax.tree.map(lambda a, b: 0.99 * a + 0.01 * jax.numpy.square(b.astype(a.dtype)), v, g)
        w = jax.tree.map(lambda a, b, c: a - (1e-3 * b / (c**0.5 + 1e-8)).astype(a.dtype), w, m, v)
        return w, m, v, value

    return step
