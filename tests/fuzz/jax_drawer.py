"""Draws JAX programs by seed: steps are chosen from the tables while they fit what there is."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax_terms import EXACT_LIMITS, Body, Case, Context, Op, Step, Value, is_float, is_int

__all__ = ["Drawer", "draw_case"]

MESHES = (
    (2,),
    (3,),
    (4,),
    (5,),
    (6,),
    (7,),
    (8,),
    (12,),
    (2, 2),
    (2, 3),
    (3, 2),
    (2, 4),
    (4, 2),
    (1, 4),
    (2, 1),
    (2, 2, 2),
    (3, 4),
    (2, 5),
)
SIZES = (1, 2, 2, 3, 3, 4, 4, 4, 5, 6, 6, 7, 8, 8, 8, 9, 12, 16)
NARROW = (
    ("float32",) * 8 + ("int32",) * 3 + ("bfloat16", "float16", "int8", "uint8", "uint32", "int16", "bool", "complex64")
)
WIDE = (*NARROW, "float64", "float64", "int64", "int64", "uint64", "complex128")


class Drawer:
    """Grows one body. ``axes`` are the mesh axes that collectives may name: those of the enclosing shard_map."""

    def __init__(
        self,
        r: random.Random,
        table: Mapping[str, Op],
        context: Context,
        inputs: Sequence[Value],
        x64: bool,
        depth: int = 0,
        axes: Mapping[str, int] | None = None,
        constraints: bool = True,
    ) -> None:
        self.r, self.table, self.context, self.x64, self.depth = r, table, context, x64, depth
        self.axes = dict(axes or {})
        self.constraints = constraints
        self.inputs = tuple(inputs)
        self.values = list(inputs)
        self.steps: list[Step] = []
        self.name = ""

    def pick(self, fits: Callable[[Value], bool] = lambda v: True) -> int | None:
        """A value that fits, a late one more often than an early one."""
        found = [i for i, v in enumerate(self.values) if fits(v)]
        if not found:
            return None
        return found[max(self.r.randrange(len(found)), self.r.randrange(len(found)))]

    def tamed(self, index: int, limit: float) -> int:
        """The value, or one of a magnitude of at most ``limit`` that is made of it."""
        value = self.values[index]
        if value.dtype == "bool" or value.bound <= limit:
            return index
        return self.add(Step("tame", (index,), {"limit": float(limit)}))

    def smooth(self, fits: Callable[[Value], bool] = lambda v: True, limit: float = 4.0) -> int | None:
        """A float, small enough for functions that grow."""
        i = self.pick(lambda v: is_float(v) and fits(v))
        return None if i is None else self.tamed(i, limit)

    def add(self, step: Step) -> int:
        """Appends a step, if JAX takes it; its value's number."""
        op = self.table[step.op]
        values = [self.values[i] for i in step.inputs]
        if self.axes:
            shape, dtype = self._in_mesh(op, step, values)
        else:
            got = jax.eval_shape(
                lambda *a: op.apply(self.context, step, *a), *(jax.ShapeDtypeStruct(v.shape, v.dtype) for v in values)
            )
            shape, dtype = got.shape, str(got.dtype)
        exact, bound = op.result(values, step)
        if is_int(Value((), dtype)) and step.op not in ("tame", "iota"):
            bound = math.inf  # integers wrap around
        result = Value(tuple(shape), dtype, exact, bound)
        if dtype in EXACT_LIMITS and exact and bound > EXACT_LIMITS[dtype]:
            raise ValueError("beyond what the type holds exactly")
        self.steps.append(step)
        self.values.append(result)
        return len(self.values) - 1

    def _in_mesh(self, op: Op, step: Step, values: list[Value]) -> tuple[tuple[int, ...], str]:
        """The shape of a step within shard_map, where axes have names."""
        seen: list[Any] = []

        def body(*arrays: Any) -> Any:
            got = op.apply(self.context, step, *arrays)
            seen.append((got.shape, str(got.dtype)))
            return ()

        mapped = jax.shard_map(
            body, mesh=self.context.mesh, in_specs=jax.P(), out_specs=(), axis_names=set(self.axes), check_vma=False
        )
        jax.eval_shape(mapped, *(jax.ShapeDtypeStruct(v.shape, v.dtype) for v in values))
        return seen[0]

    def grow(self, count: int) -> None:
        """Up to ``count`` further steps."""
        names = [n for n, op in self.table.items() if self._allowed(n)]
        for _ in range(3 * count):
            if len(self.steps) >= count:
                return
            before = len(self.steps)
            try:
                self.name = self.r.choice(names)
                step = self.table[self.name].draw(self)
                if step is not None:
                    self.add(step)
                    if self.values[-1].size > 4096:
                        raise ValueError("too large")
            except (TypeError, ValueError, ZeroDivisionError, NotImplementedError):
                # JAX refuses the step: without it.
                del self.steps[before:], self.values[len(self.inputs) + before :]

    def _allowed(self, name: str) -> bool:
        if name.startswith("collective."):
            return bool(self.axes)
        if name.startswith("transform."):
            return self.depth < 2
        if name in ("constraint", "shard_map"):
            return self.constraints and self.depth == 0
        return True

    def body(self, inputs: Sequence[Value], count: int, like: Value | None = None, **options: Any) -> Body:
        """A body over ``inputs``; its one result is like ``like``, where that is given (an input has to be so)."""
        options = {"axes": self.axes, "constraints": False, **options}
        inner = Drawer(self.r, self.table, self.context, inputs, self.x64, self.depth + 1, **options)
        inner.grow(count)
        result = inner.result_like(like) if like is not None else inner.last()
        known = inner.values[result]
        return Body(inner.inputs, tuple(inner.steps), (result,), known.exact, known.bound)

    def last(self) -> int:
        return len(self.values) - 1

    def result_like(self, like: Value) -> int:
        """A value with the shape and type, no larger and no less exact; a sum over another one is added to it."""
        fits = [
            i for i, v in enumerate(self.values) if v.like(like) and v.exact >= like.exact and i >= len(self.inputs)
        ]
        start = next(i for i, v in enumerate(self.values) if v.like(like))
        index = fits[-1] if fits else start
        others = [i for i, v in enumerate(self.values) if i != index and v.exact >= like.exact and self._mixes(v, like)]
        if others and like.dtype != "bool":
            index = self.add(Step("mix", (index, others[-1])))
        return self.tamed(index, like.bound)

    def _mixes(self, v: Value, like: Value) -> bool:
        return (is_float(v) and is_float(like)) or (is_int(v) and (is_int(like) or is_float(like)) and v.bound <= 64)


def draw_case(table: Mapping[str, Op], seed: int, make_mesh: Callable[[Mapping[str, int]], Any]) -> Case:
    """The program of a seed."""
    r = random.Random(seed)
    sizes = r.choice(MESHES)
    mesh = dict(zip("xyz", sizes, strict=False))
    x64 = r.random() < 0.3
    with jax.enable_x64(x64):
        inputs = _arguments(r, x64)
        drawer = Drawer(r, table, Context(make_mesh(mesh)), inputs, x64)
        drawer.grow(r.choice([1, 2, 3, 4, 6, 8, 12, 16, 24]))
    read = {i for step in drawer.steps for i in step.inputs}
    made = range(len(inputs), len(drawer.values))
    results = [drawer.last(), *(i for i in made if r.random() < (0.1 if i in read else 0.6))]
    specs = tuple(draw_spec(r, v.shape, mesh, even=False) if r.random() < 0.7 else None for v in inputs)
    jit = all(s is None or divides(v.shape, s, mesh) for v, s in zip(inputs, specs, strict=True))
    body = Body(inputs, tuple(drawer.steps), tuple(dict.fromkeys(results)))
    return Case(seed, body, mesh, specs, x64, jit)


def _arguments(r: random.Random, x64: bool) -> tuple[Value, ...]:
    pool = [r.choice(SIZES) if r.random() > 0.02 else 0 for _ in range(r.randint(1, 4))]
    found = []
    for _ in range(r.randint(1, 4)):
        rank = r.choice([0, 1, 1, 2, 2, 2, 3, 3, 4])
        shape = tuple(r.choice(pool) for _ in range(rank))
        while int(np.prod(shape)) > 2048:
            shape = shape[1:]
        dtype = r.choice(WIDE if x64 else NARROW)
        exact = r.random() < 0.5 or not dtype.startswith(("float", "bfloat"))
        found.append(Value(shape, dtype, exact, 1.0 if dtype == "bool" else 4.0))
    return tuple(found)


def draw_spec(r: random.Random, shape: Sequence[int], mesh: Mapping[str, int], even: bool) -> tuple[Any, ...]:
    """A PartitionSpec as data: an axis, several, or None per dimension."""
    free = list(mesh)
    r.shuffle(free)
    entries: list[Any] = []
    for n in shape:
        axes: tuple[str, ...] = ()
        while free and r.random() < 0.6:
            trial = (*axes, free[-1])
            if even and n % int(np.prod([mesh[a] for a in trial])):
                break
            axes = trial
            free.pop()
        entries.append(None if not axes else axes[0] if len(axes) == 1 else axes)
    return tuple(entries)


def divides(shape: Sequence[int], spec: Sequence[Any], mesh: Mapping[str, int]) -> bool:
    def shards(entry: Any) -> int:
        axes = () if entry is None else (entry,) if isinstance(entry, str) else entry
        return int(np.prod([mesh[a] for a in axes]))

    return all(n % shards(entry) == 0 for n, entry in zip(shape, spec, strict=False))
