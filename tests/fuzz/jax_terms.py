"""JAX programs as data: what the fuzzer draws, runs, prints and makes small.

A `Body` is a list of steps over numbered values: its inputs first, then the one result of each step. The operations are
rows of the tables in ``jax_ops.py`` and ``jax_transforms.py``; a step may hold bodies of its own (loops, branches,
gradients).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["EXACT_LIMITS", "Body", "Case", "Context", "Op", "Step", "Value", "is_float", "is_int", "run"]

#: Up to which magnitude a type holds every whole number; integers wrap around and have no limit.
EXACT_LIMITS = {"bfloat16": 2.0**8, "float16": 2.0**11, "float32": 2.0**24, "float64": 2.0**53}
EXACT_LIMITS |= {"complex64": 2.0**24, "complex128": 2.0**53}


@dataclass(frozen=True)
class Value:
    """What is known of a value: ``exact`` ones are whole numbers whose bits depend on no order of sums, and ``bound``
    is the largest magnitude."""

    shape: tuple[int, ...]
    dtype: str
    exact: bool = True
    bound: float = 4.0

    def like(self, other: Value) -> bool:
        return self.shape == other.shape and self.dtype == other.dtype

    @property
    def size(self) -> int:
        size = 1
        for n in self.shape:
            size *= n
        return size


@dataclass(frozen=True)
class Step:
    op: str
    inputs: tuple[int, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    bodies: tuple[Body, ...] = ()


@dataclass(frozen=True)
class Body:
    """``exact`` and ``bound`` are those of the first result."""

    inputs: tuple[Value, ...]
    steps: tuple[Step, ...]
    results: tuple[int, ...]
    exact: bool = True
    bound: float = 4.0


@dataclass(frozen=True)
class Case:
    """A program with its mesh, a sharding for each argument (None: left to propagation) and its switches."""

    seed: int
    body: Body
    mesh: Mapping[str, int]
    specs: tuple[tuple[Any, ...] | None, ...]
    x64: bool = False
    jit: bool = True


@dataclass(frozen=True)
class Context:
    """Where a program is traced: JAX's mesh, and whether floats are double (for a more exact result). With ``whole``
    all values are replicated outside of shard_map: XLA's partitioner, which ends the process on some, does nothing."""

    mesh: Any
    widen: bool = False
    whole: bool = False

    def dtype(self, name: str) -> str:
        if not self.widen:
            return name
        return {"float32": "float64", "bfloat16": "float64", "float16": "float64", "complex64": "complex128"}.get(
            name, name
        )


@dataclass(frozen=True)
class Op:
    """``draw(drawer)`` gives the inputs and parameters of a step, or None where nothing fits. ``apply(context, step,
    *arrays)`` is the operation in JAX. ``result(values, step)`` says whether the result is exact, and its bound."""

    draw: Callable[[Any], Step | None]
    apply: Callable[..., Any]
    result: Callable[[list[Value], Step], tuple[bool, float]]


def is_float(value: Value) -> bool:
    return value.dtype in ("bfloat16", "float16", "float32", "float64")


def is_int(value: Value) -> bool:
    return value.dtype.startswith(("int", "uint"))


def run(table: Mapping[str, Op], body: Body, context: Context, *args: Any) -> tuple[Any, ...]:
    """The results of a body for arrays or tracers of JAX."""
    values = list(args)
    for step in body.steps:
        values.append(table[step.op].apply(context, step, *(values[i] for i in step.inputs)))
    return tuple(values[i] for i in body.results)
