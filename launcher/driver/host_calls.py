"""Calls of Python from a step: the step waits, operands are read, the function is called, and its results are written.

Functions get copies of the operands, which they may keep. Their results must have the shapes and element types of the
call. Any exception ends the step: `RunError`, with the exception as its cause. Where other processes take part in the
step, it ends the job: they wait for what the call would have sent, so nobody can go on.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.compiler.executable import HOST, WAIT, Executable, HostArray, HostCall
from shardc.hlo.errors import InputError, RunError
from shardc.hlo.ir.custom_calls import CustomCalls
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import Shape
from shardc.native.threads.pool import Row

__all__ = ["HostCalls", "is_host"]

_Function = Callable[[Sequence[NDArray[Any]]], Sequence[NDArray[Any]]]


def is_host(answer: int) -> bool:
    """Whether this answer of a step is a call of Python."""
    return HOST <= answer < WAIT


class HostCalls:
    """The calls of ``executable``, by number; `InputError` for one whose function is not among ``custom_calls``.

    ``shared`` says that other processes take part in the step.
    """

    def __init__(self, executable: Executable, custom_calls: CustomCalls, *, shared: bool = False) -> None:
        self._calls = executable.hosts
        self._shared = shared
        #: Whether a function is being called.
        self.calling = False
        self._functions = [_function(executable, call, custom_calls) for call in executable.hosts]

    def make(self, answer: int, row: Row) -> None:
        """The call that the device of ``row`` has stopped for."""
        number = answer - HOST
        self.calling = True
        try:
            self._make(self._calls[number], self._functions[number], row)
        except RunError as error:
            if self._shared:
                import traceback

                from shardc.launcher.jobs.failures import end_job

                if error.__cause__ is not None:
                    traceback.print_exception(error.__cause__)
                end_job(error, sys.modules.get("mpi4py.MPI"))
            raise
        finally:
            self.calling = False

    def _make(self, call: HostCall, function: _Function, row: Row) -> None:
        given = [_array(row, a).copy() for a in call.operands]
        try:
            made = function(given)
        except Exception as e:
            raise RunError(
                f"{call.title} raised {type(e).__name__}: {e}", where=call.place, fix="see the exception above"
            ) from e
        found = [(x.shape, x.dtype) for x in made]
        if found != [(a.shape.dims, a.shape.dtype.numpy) for a in call.results]:
            text = ", ".join(f"{x.dtype}{list(x.shape)}" for x in made) or "nothing"
            raise RunError(
                f"{call.title} returned {text}, not {call.shape}",
                where=call.place,
                fix="return arrays with the shapes of the call",
            )
        for x, a in zip(made, call.results, strict=True):
            _array(row, a)[...] = x


def _function(executable: Executable, call: HostCall, custom_calls: CustomCalls) -> _Function:
    own = custom_calls.get(call.target)
    if own is None or own.evaluate is None:
        raise InputError(
            f"{executable.name} calls Python ({call.title}), but its functions are not available in this process",
            where=call.place,
            fix=f"compile the function itself, or pass custom_calls= with an evaluate function for {call.target!r}",
        )
    attrs = {"custom_call_target": call.target, "backend_config": call.config, "frontend_attributes": call.marks}
    operands = [Instruction("parameter", a.shape, attrs={"index": k}) for k, a in enumerate(call.operands)]
    instruction = Instruction("custom-call", call.shape, operands, attrs, name=call.name)
    evaluate = own.evaluate

    def function(given: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        results = evaluate(instruction, *given)
        return [np.asarray(x) for x in (results if isinstance(results, tuple | list) else (results,))]

    return function


_BASES: Mapping[str, Callable[[Row, int], int]] = {
    "arena": lambda row, index: row.arena,
    "constant": lambda row, index: row.constants,
    "argument": lambda row, index: _entry(row.arguments, index),
    "result": lambda row, index: _entry(row.results, index),
}


def _entry(table: int, index: int) -> int:
    return ctypes.c_void_p.from_address(table + 8 * index).value or 0


def _array(row: Row, array: HostArray) -> NDArray[Any]:
    """Where ``array`` lies in the memory of the device of ``row``."""
    shape: Shape = array.shape
    if not shape.nbytes:
        return np.empty(shape.dims, shape.dtype.numpy)
    start = _BASES[array.place.space](row, array.place.index) + array.place.offset
    data: NDArray[Any] = np.frombuffer(memoryview((ctypes.c_uint8 * shape.nbytes).from_address(start)), np.uint8)
    return data.view(shape.dtype.numpy).reshape(shape.dims)
