"""The reference evaluator: the meaning of every op in NumPy, one table per op family, merged here.

Start with `interpreter`, which runs computations; `ops` has the tables, `values` the form of run-time values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from shardc.hlo.errors import InputError
from shardc.hlo.evaluate.interpreter import Interpreter, OpMeaning
from shardc.hlo.evaluate.ops import (
    collective,
    contraction,
    control,
    elementwise,
    indexing,
    linalg,
    processes,
    random,
    reduction,
    shape,
    window,
)
from shardc.hlo.evaluate.values import Array, Value, flatten, unflatten
from shardc.hlo.ir.custom_calls import CustomCalls, has_manual_computation
from shardc.hlo.ir.ir import Computation, Module
from shardc.hlo.units import count_text

__all__ = ["ROWS", "evaluate", "evaluate_computation", "evaluate_spmd"]

NO_CALLS: CustomCalls = MappingProxyType({})

ROWS: Mapping[str, OpMeaning] = MappingProxyType(
    {
        **elementwise.ROWS,
        **contraction.ROWS,
        **reduction.ROWS,
        **shape.ROWS,
        **indexing.ROWS,
        **window.ROWS,
        **linalg.ROWS,
        **random.ROWS,
        **control.ROWS,
        **collective.ROWS,
        **processes.ROWS,
    }
)


def evaluate(
    module: Module, args: Sequence[Array], *, float64: bool = False, custom_calls: CustomCalls = NO_CALLS
) -> list[Array]:
    """The flattened results of a global program for the flattened arrays of its parameters.

    Shardings are ignored. With ``float64`` all f16, bf16, f32 and c64 values are computed in f64 and c128, results
    too: the reference that errors are measured against. ``custom_calls`` gives the user's own targets. Arguments are
    never written; results may be views of them, or read-only. Raises `InputError` when arguments do not fit,
    `UnsupportedError` for ops without a meaning here, `RunError` when a ``check.*`` custom call is false.
    Example: ``evaluate(module, [np.ones((2, 3), np.float32)])``.
    """
    devices = module.mesh.size if module.mesh is not None and has_manual_computation(module) else 1
    interpreter = Interpreter(ROWS, devices, float64=float64, custom_calls=custom_calls)
    return evaluate_devices(module, [args] * devices, interpreter)[0]


def evaluate_spmd(
    module: Module,
    args_per_device: Sequence[Sequence[Array]],
    *,
    float64: bool = False,
    custom_calls: CustomCalls = NO_CALLS,
) -> list[list[Array]]:
    """The flattened results on every device of a per-device program, run in lock step.

    There are ``replica_count * num_partitions`` devices, replica major. Raises as `evaluate`, and `RunError` when
    devices of one collective take different ways through the program (it would hang).
    """
    interpreter = Interpreter(ROWS, module.num_partitions, module.replica_count, float64, custom_calls)
    count = interpreter.num_partitions * interpreter.replica_count
    if len(args_per_device) != count:
        raise InputError(
            f"arguments were given for {count_text(len(args_per_device), 'device')}, but the program runs on {count}"
        )
    return evaluate_devices(module, args_per_device, interpreter)


def evaluate_devices(
    module: Module, args_per_device: Sequence[Sequence[Array]], interpreter: Interpreter
) -> list[list[Array]]:
    """`evaluate_spmd` on a given interpreter."""
    checked = {id(args): _arguments(module, args, interpreter) for args in args_per_device}
    arguments = [checked[id(args)] for args in args_per_device]
    with np.errstate(all="ignore"):
        results = interpreter.run(module.entry, range(len(arguments)), arguments)
    return [list(flatten(r)) for r in results]


def evaluate_computation(computation: Computation, args: Sequence[Value], *, float64: bool = False) -> Value:
    """The value of one computation, a tuple where its root is one; ``args`` are values of its parameters."""
    with np.errstate(all="ignore"):
        return Interpreter(ROWS, float64=float64).run_one(computation, args)


def _arguments(module: Module, args: Sequence[Array], interpreter: Interpreter) -> list[Value]:
    shapes = [(p, leaf) for p in module.parameters for leaf in p.shape.leaves() if leaf.is_array]
    if len(args) != len(shapes):
        raise InputError(
            f"the program has {count_text(len(shapes), 'parameter')}, but got {count_text(len(args), 'argument')}",
            where=module.name,
        )

    def checked() -> Iterator[Array]:
        for k, (x, (p, leaf)) in enumerate(zip(args, shapes, strict=True)):
            x = np.asarray(x)
            stored = interpreter.storage_type(leaf.dtype)
            if x.shape != leaf.dims or x.dtype not in (leaf.dtype.numpy, stored):
                raise InputError(f"argument {k} is {x.dtype}{list(x.shape)}, not {leaf}", where=f"%{p.name}")
            yield x.astype(stored, copy=False)

    leaves = checked()
    return [unflatten(p.shape, leaves) for p in module.parameters]
