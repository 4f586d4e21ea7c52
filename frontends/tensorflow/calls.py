"""How a call of a TensorFlow function becomes arguments of its program, and results become the function's."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shardc.hlo.errors import InputError
from shardc.launcher.arrays.array import Array
from shardc.launcher.arrays.gather import gather

__all__ = ["FunctionArguments", "TensorflowSignature", "array_of"]

_AGAIN = "read the function again with these arguments"


@dataclass(frozen=True, slots=True)
class FunctionArguments:
    """How a function takes arguments: ``parameters`` as in Python, and the ``specs`` that it was traced with.

    ``specs`` are the arguments, with TensorFlow's specifications in place of tensors and variables. Other values are
    part of the program.
    """

    tensorflow: Any
    parameters: inspect.Signature
    specs: Any = None

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments by position and by name, as TensorFlow orders them, with defaults for those left out."""
        try:
            bound = self.parameters.bind(*args, **kwargs)
        except TypeError as e:
            raise InputError(
                f"the arguments do not fit the function: {e}",
                where="call of a TensorFlow program",
                fix=f"its parameters are {self.parameters}",
            ) from None
        bound.apply_defaults()
        return bound.args, bound.kwargs

    def traced(self, args: Sequence[Any], kwargs: Mapping[str, Any], signature: Any) -> FunctionArguments:
        """These, with specs: a trace's ``signature`` names the tensors, but not what other objects are."""
        nest, given = self.tensorflow.nest, (tuple(args), dict(kwargs))
        pairs = zip(nest.flatten(signature), nest.flatten(given), strict=True)
        return replace(self, specs=nest.pack_sequence_as(given, [s if _is_tensor(s) else v for s, v in pairs]))

    def tensors(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The tensors, arrays and variables of a call, each variable once; other values must be those of ``specs``."""
        nest, given = self.tensorflow.nest, self.bind(args, kwargs)
        try:
            nest.assert_same_structure(self.specs, given)
        except (TypeError, ValueError) as e:
            raise InputError(
                f"the call differs from the one that the function was read with: {str(e).splitlines()[0]}",
                where="call of a TensorFlow program",
                fix="pass arguments like those given to from_tensorflow",
            ) from None
        found: dict[tuple[Any, ...], Any] = {}
        for n, (spec, value) in enumerate(zip(nest.flatten(self.specs), nest.flatten(given), strict=True)):
            if _is_tensor(spec):
                alias = getattr(spec, "alias_id", None)  # that of a variable, which TensorFlow passes once
                found.setdefault((n,) if alias is None else (alias, id(value)), _like(spec, value))
            elif not (spec is value or spec == value or (spec != spec and value != value)):  # noqa: PLR0124  # NaN
                raise InputError(
                    f"the program was made for {spec!r}, but the call passes {value!r}",
                    where="call of a TensorFlow program",
                    fix=f"{_AGAIN}, or pass a tensor there in both places",
                )
        return list(found.values())


@dataclass(frozen=True, slots=True)
class TensorflowSignature:
    """How parameters and results belong to a function.

    The values of a call are its ``inputs`` tensors, then the ``captured`` variables and tensors. Those in ``fixed`` are
    no parameters, or nothing reads them: TensorFlow compiled them in. ``numbers`` are those of the program's
    parameters. ``updates`` maps numbers of results to those of the captured values that they change. ``outputs`` is the
    structure of the function's result.
    """

    arguments: FunctionArguments
    names: tuple[str, ...]
    dims: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype[Any], ...]
    inputs: int
    captured: tuple[Any, ...]
    fixed: Mapping[int, np.ndarray[Any, Any]]
    numbers: frozenset[int]
    outputs: Any
    updates: Mapping[int, int]

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The values of the program's parameters for a call; variables have their values of now."""
        given = self.arguments.tensors(args, kwargs)
        if len(given) != self.inputs:
            raise InputError(
                f"the call has {len(given)} tensors, but the function was read with {self.inputs}",
                where="call of a TensorFlow program",
                fix="pass arguments like those given to from_tensorflow",
            )
        values = []
        for k, value in enumerate(map(array_of, (*given, *self.captured))):
            if k in self.fixed and not np.array_equal(value, self.fixed[k], equal_nan=value.dtype.kind in "fc"):
                held = None if k < self.inputs else self.captured[k - self.inputs]
                what = f"tensor {k} of the call" if held is None else f"the variable {getattr(held, 'name', k)}"
                raise InputError(
                    f"{what} is {value}, but TensorFlow compiled the function for {self.fixed[k]}",
                    where="call of a TensorFlow program",
                    fix=_AGAIN,
                )
            if k in self.numbers:
                values.append(value)
        for value, name, dims, dtype in zip(values, self.names, self.dims, self.dtypes, strict=True):
            if value.shape != dims or value.dtype != dtype:
                raise InputError(
                    f"the argument is {value.dtype}{list(value.shape)}, but the program takes {dtype}{list(dims)}",
                    where=name,
                    fix=f"convert it, or {_AGAIN}",
                )
        return values

    def unflatten(self, results: Sequence[Array]) -> Any:
        """The function's result; what it changes is assigned to the variables. In a job each rank gets whole values."""
        tf, whole = self.arguments.tensorflow, [gather(r) for r in results]
        for result, variable in self.updates.items():
            self.captured[variable].assign(whole[result])
        leaves = iter(whole)
        flat = [None if s is None else tf.constant(next(leaves)) for s in tf.nest.flatten(self.outputs)]
        return tf.nest.pack_sequence_as(self.outputs, flat)


def array_of(value: Any) -> np.ndarray[Any, Any]:
    """The values of a tensor, a variable or an array."""
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


def _is_tensor(spec: Any) -> bool:
    """Whether a trace takes a tensor or a variable where its signature has ``spec``."""
    return hasattr(spec, "dtype") and hasattr(spec, "shape")


def _like(spec: Any, value: Any) -> Any:
    """A number in place of a tensor as one of the type that ``spec`` has, where that loses nothing; else ``value``."""
    if hasattr(value, "shape"):
        return value
    array, dtype = np.asarray(value), np.dtype(spec.dtype.as_numpy_dtype)
    return array.astype(dtype) if np.can_cast(array.dtype, dtype, "same_kind") else array
