"""TensorFlow in: a compiled ``tf.function`` becomes a module of ours, with the names of its variables.

``experimental_get_compiler_ir`` gives HLO. Its parameters are the function's tensors, then what it captures: variables
and constants. Changed variables are results after the function's own, over the memory of their argument.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardc.frontends.foreign import describe_error, number_names
from shardc.hlo.errors import EnvironmentProblem, InputError, UnsupportedError
from shardc.hlo.ir.ir import Module
from shardc.hlo.text.reader import read_hlo
from shardc.hlo.units import kind_text
from shardc.launcher.arrays.array import Array

__all__ = ["TensorflowProgram", "TensorflowSignature", "program_from_tensorflow"]


@dataclass(frozen=True, slots=True)
class TensorflowSignature:
    """How parameters and results belong to a function: ``inputs`` come first, then ``captured`` variables and tensors.

    ``updates`` maps numbers of results to those of parameters. ``outputs`` is the structure of the function's result.
    """

    tensorflow: Any
    names: tuple[str, ...]
    dims: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype[Any], ...]
    inputs: int
    captured: tuple[Any, ...]
    outputs: Any
    updates: Mapping[int, int]

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The values of the program's parameters for a call; variables have their values of now."""
        given = _tensors(self.tensorflow, args, kwargs)
        if len(given) != self.inputs:
            raise InputError(
                f"the call has {len(given)} tensors, but the function was read with {self.inputs}",
                where="call of a TensorFlow program",
                fix="pass arguments like those given to from_tensorflow",
            )
        values = [_array(v) for v in (*given, *self.captured)]
        for value, name, dims, dtype in zip(values, self.names, self.dims, self.dtypes, strict=True):
            if value.shape != dims or value.dtype != dtype:
                raise InputError(
                    f"the argument is {value.dtype}{list(value.shape)}, but the program takes {dtype}{list(dims)}",
                    where=name,
                    fix="read the function again with these arguments",
                )
        return values

    def unflatten(self, results: Sequence[Array]) -> Any:
        """The function's result; what it changes is assigned to the variables."""
        tf = self.tensorflow
        for result, parameter in self.updates.items():
            self.captured[parameter - self.inputs].assign(np.asarray(results[result]))
        leaves = iter(results)
        flat = [None if s is None else tf.constant(np.asarray(next(leaves))) for s in tf.nest.flatten(self.outputs)]
        return tf.nest.pack_sequence_as(self.outputs, flat)


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
    cannot compile, and for results that are neither the function's nor variables'.
    """
    tf = require_tensorflow()
    named = dict(kwargs or {})
    if not hasattr(function, "experimental_get_compiler_ir"):
        raise InputError(
            f"{kind_text(function)} is not a compiled TensorFlow function",
            fix="pass tf.function(f, jit_compile=True)",
        )
    concrete = function.get_concrete_function(*args, **named)
    text = _hlo(function, args, named)
    module = read_hlo(text)
    captured = tuple(_variable_of(concrete, handle) for handle in concrete.captured_inputs)
    count = len(module.parameters) - len(captured)
    if count != len(_tensors(tf, args, named)):
        raise UnsupportedError(
            f"the HLO has {len(module.parameters)} parameters for {count} arguments and {len(captured)} captured "
            "values",
            where=str(getattr(concrete, "name", "")),
            fix="pass tensors, not Python numbers, as arguments",
        )
    names = _names(concrete, captured, count)
    shapes = [p.shape for p in module.parameters]
    updates = {a.output[0]: a.parameter for a in module.aliases if a.output}
    _check_results(tf, module, concrete, updates, count, captured)
    signature = TensorflowSignature(
        tf, names, tuple(s.dims for s in shapes), tuple(s.dtype.numpy for s in shapes), count, captured,
        concrete.structured_outputs, updates,
    )  # fmt: skip
    results = [f"new {names[updates[k]]}" if k in updates else f"result[{k}]" for k in range(len(module.results))]
    module = module.with_(arg_names=names, result_names=tuple(results))
    return TensorflowProgram(module, signature, hashlib.sha256(repr((text, names)).encode()).hexdigest())


def _hlo(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    try:
        return str(function.experimental_get_compiler_ir(*args, **kwargs)(stage="hlo"))
    except Exception as e:
        raise UnsupportedError(
            f"TensorFlow returned no HLO for the function: {describe_error(e)}",
            fix="make it with tf.function(f, jit_compile=True), for arguments of known shapes",
        ) from e


def _tensors(tf: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The tensors and arrays among the arguments, in TensorFlow's order; plain values are a part of the program."""
    return [v for v in tf.nest.flatten((tuple(args), dict(kwargs))) if hasattr(v, "shape")]


def _array(value: Any) -> np.ndarray[Any, Any]:
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


def _variable_of(concrete: Any, handle: Any) -> Any:
    """The variable that a captured handle belongs to, else the captured tensor itself."""
    return next((v for v in concrete.variables if getattr(v, "handle", None) is handle), handle)


def _names(concrete: Any, captured: Sequence[Any], count: int) -> tuple[str, ...]:
    """Names as TensorFlow has them; those that several have get a number, as Keras gives its layers."""
    own = [str(i.name).split(":")[0] for i in concrete.inputs]
    found = own[:count]
    for k, value in enumerate(captured):
        variable = hasattr(value, "assign")
        path = str(getattr(value, "path", None) or getattr(value, "name", "")) if variable else own[count + k]
        found.append(path.split(":")[0])
    return number_names(found, "_")


def _check_results(
    tf: Any, module: Module, concrete: Any, updates: Mapping[int, int], count: int, captured: Sequence[Any]
) -> None:
    own = sum(s is not None for s in tf.nest.flatten(concrete.structured_outputs))
    late = set(range(own, len(module.results)))
    if late != set(updates) or any(p < count or not hasattr(captured[p - count], "assign") for p in updates.values()):
        raise UnsupportedError(
            f"the HLO has {len(module.results)} results for {own} of the function and {len(updates)} changed variables",
            where=str(getattr(concrete, "name", "")),
            fix="return tensors, and change variables with assign",
        )
