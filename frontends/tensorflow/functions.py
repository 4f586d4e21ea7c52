"""TensorFlow in: a compiled ``tf.function`` becomes a module of ours, with the names of its variables.

``experimental_get_compiler_ir`` gives HLO. Its parameters are the function's tensors, then what it captures: variables
and constants. Left out are empty tensors, and those whose values TensorFlow needs in order to compile. Changed
variables are results after the function's own, over the memory of their argument.
"""

from __future__ import annotations

import hashlib
import inspect
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardc.frontends.foreign import number_names
from shardc.frontends.tensorflow.calls import FunctionArguments, TensorflowSignature, array_of
from shardc.frontends.tensorflow.traced import read_traced
from shardc.hlo.errors import EnvironmentProblem, InputError, UnsupportedError
from shardc.hlo.ir.ir import Module
from shardc.hlo.units import kind_text

__all__ = ["TensorflowProgram", "program_from_tensorflow"]


@dataclass(frozen=True, slots=True)
class TensorflowProgram:
    """A module of ours, how its values belong to a function of TensorFlow's, and a digest for the cache."""

    module: Module
    signature: TensorflowSignature
    content: str


def require_tensorflow() -> Any:
    """The module ``tensorflow``; EnvironmentProblem where it is missing."""
    try:
        import tensorflow
    except ImportError as e:
        raise EnvironmentProblem(f"this needs TensorFlow: {e}", fix="pip install tensorflow") from None
    return tensorflow


def program_from_tensorflow(
    function: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> TensorflowProgram:
    """The program of a ``tf.function`` with ``jit_compile=True`` and example arguments.

    Raises EnvironmentProblem without TensorFlow, InputError for other objects, UnsupportedError for what TensorFlow
    cannot compile, for random numbers that depend on no state, and for results that are neither the function's nor
    captured variables'.
    """
    tf = require_tensorflow()
    if not hasattr(function, "experimental_get_compiler_ir"):
        raise InputError(
            f"{kind_text(function)} is not a compiled TensorFlow function",
            fix="pass tf.function(f, jit_compile=True)",
        )
    arguments = FunctionArguments(tf, inspect.signature(function.python_function))
    args, named = arguments.bind(args, kwargs or {})
    concrete = function.get_concrete_function(*args, **named)
    module, digest = read_traced(function, concrete.graph, args, named)
    arguments = arguments.traced(args, named, concrete.structured_input_signature)
    given = arguments.tensors(args, named)
    captured = tuple(_variable_of(concrete, handle) for handle in concrete.captured_inputs)
    where = _place(function)
    fixed = _compiled_in(module, given, captured, where)
    kept = [k for k in range(len(given) + len(captured)) if k not in fixed]
    names = _names(concrete, len(given), captured, kept)
    # A result that is alone is no tuple, so the path to it is empty.
    changed = {a.output[0] if a.output else 0: a.parameter for a in module.aliases}
    updates = {k: kept[p] - len(given) for k, p in changed.items()}
    _check_results(tf, module, concrete, updates, where)
    shapes, unread = [p.shape for p in module.parameters], _unread(module, changed.values())
    fixed |= {k: array_of(captured[k - len(given)]) for p, k in enumerate(kept) if p in unread and k >= len(given)}
    signature = TensorflowSignature(
        arguments, names, tuple(s.dims for s in shapes), tuple(s.dtype.numpy for s in shapes), len(given), captured,
        fixed, frozenset(kept), concrete.structured_outputs, updates,
    )  # fmt: skip
    results = [f"new {names[changed[k]]}" if k in changed else f"result[{k}]" for k in range(len(module.results))]
    module = module.with_(arg_names=names, result_names=tuple(results))
    return TensorflowProgram(module, signature, hashlib.sha256(repr((digest, names)).encode()).hexdigest())


def _place(function: Any) -> str:
    """Where the function is written, as ``name, file:line``."""
    python = inspect.unwrap(function.python_function)
    code = getattr(python, "__code__", None)
    name = getattr(python, "__name__", "the function")
    return f"{name}, {code.co_filename}:{code.co_firstlineno}" if code else name


def _variable_of(concrete: Any, handle: Any) -> Any:
    """The variable that a captured handle belongs to, else the captured tensor itself."""
    return next((v for v in concrete.variables if getattr(v, "handle", None) is handle), handle)


def _compiled_in(
    module: Module, given: Sequence[Any], captured: Sequence[Any], where: str
) -> dict[int, np.ndarray[Any, Any]]:
    """The values that are no parameters of the module, by their numbers: empty ones, and those TensorFlow compiled in.

    The others keep their order. So shapes and types tell which these are; if they do not, that is an error.
    """
    values = (*given, *captured)
    wanted = [(p.shape.dims, p.shape.dtype.numpy) for p in module.parameters]
    ways: dict[int, list[tuple[int, ...]]] = {0: [()]}  # up to two sets of values left out so far, by their size
    for k, value in enumerate(values):
        shape = (tuple(value.shape), np.dtype(getattr(value.dtype, "as_numpy_dtype", value.dtype)))
        variable = hasattr(value, "assign")
        found: defaultdict[int, list[tuple[int, ...]]] = defaultdict(list)
        for count, sets in ways.items():
            if (variable or 0 not in shape[0]) and shape == next(iter(wanted[k - count : k - count + 1]), None):
                found[count] += sets
            if not variable and count < len(values) - len(wanted):
                found[count + 1] += [(*s, k) for s in sets]
        ways = {count: sets[:2] for count, sets in found.items()}
    sets = ways.get(len(values) - len(wanted), [])
    if len(sets) == 1:
        return {k: array_of(values[k]) for k in sets[0]}
    what = (
        f"the HLO has {len(wanted)} parameters for {len(given)} tensors of the call and {len(captured)} captured values"
    )
    if not sets:
        raise UnsupportedError(f"{what}, whose shapes differ", where=where, fix="pass and capture dense tensors only")
    raise UnsupportedError(
        f"{what}: TensorFlow compiled the other values into the HLO, and does not report which ones",
        where=where,
        fix="give sizes, shapes and numbers of iterations as Python numbers",
    )


def _unread(module: Module, changed: Iterable[int]) -> set[int]:
    """The parameters that no instruction reads, and that are no memory of a result."""
    entry = module.entry
    read = {o for i in entry for o in i.operands} | {entry.root}
    return {k for k, p in enumerate(entry.parameters) if p not in read} - set(changed)


def _names(concrete: Any, count: int, captured: Sequence[Any], kept: Sequence[int]) -> tuple[str, ...]:
    """Names as TensorFlow has them; those that several have get a number, as Keras gives its layers."""
    found = []
    for k in kept:
        value = captured[k - count] if k >= count else None
        name = str(concrete.inputs[k].name)
        if hasattr(value, "assign"):
            name = str(getattr(value, "path", None) or getattr(value, "name", ""))
        found.append(name.split(":")[0])
    return number_names(found, "_")


def _check_results(tf: Any, module: Module, concrete: Any, updates: Mapping[int, int], where: str) -> None:
    if any(variable < 0 for variable in updates.values()):
        raise UnsupportedError(
            "the function changes a variable that is one of its arguments",
            where=where,
            fix="use the variable in the function without passing it, so that the function captures it",
        )
    own = sum(s is not None for s in tf.nest.flatten(concrete.structured_outputs))
    if set(range(own, len(module.results))) != set(updates):
        raise UnsupportedError(
            f"{len(module.results)} HLO results do not match {own} results and {len(updates)} changed variables",
            where=where,
            fix="return tensors, and change variables with assign",
        )
