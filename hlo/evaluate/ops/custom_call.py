"""NumPy meaning: the custom calls whose targets are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from shardc.hlo.errors import InputError, UnsupportedError
from shardc.hlo.evaluate.interpreter import Interpreter, LockStep, OpMeaning
from shardc.hlo.evaluate.ops import checks
from shardc.hlo.evaluate.ops.lapack import call_lapack
from shardc.hlo.evaluate.ops.manual import to_global, to_local
from shardc.hlo.evaluate.ops.processes import run_processes
from shardc.hlo.evaluate.values import Value
from shardc.hlo.ir.callbacks import is_callback
from shardc.hlo.ir.custom_calls import ENTER_MANUAL, LEAVE_MANUAL, MARKERS, SINK
from shardc.hlo.ir.ir import Instruction, has_side_effect
from shardc.hlo.ir.lapack import LAPACK, attributes_of
from shardc.hlo.transforms.expand_lapack_layouts import has_other_layouts
from shardc.hlo.transforms.known_custom_calls import expand_custom_call, unknown_call

__all__ = ["CUSTOM_CALL"]


def _marker(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    """Annotations: the value goes through."""
    if len(operands) == 1 and [s.dims for s in i.operands[0].shape.leaves()] != [s.dims for s in i.shape.leaves()]:
        raise UnsupportedError(
            f"{i.attrs['custom_call_target']} changes {i.operands[0].shape} to {i.shape}: a manual computation needs "
            "its devices",
            where=f"%{i.name}",
            fix="partition the program first",
        )
    return operands[0] if len(operands) == 1 else tuple(operands)


def _lapack(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    """One of LAPACK's routines, in the type that the operands are held in."""
    shapes = tuple(i.shape.leaves())
    empty = [np.empty(s.dims, m.storage_type(s.dtype)) for s in shapes]
    results = call_lapack(LAPACK[i.attrs["custom_call_target"]], attributes_of(i), operands, empty, i.place)
    return tuple(results) if i.shape.is_tuple else results[0]


Meaning = Callable[[Interpreter, Instruction, Sequence[Value]], Value]
_TARGETS: Mapping[str, Meaning] = MappingProxyType(
    {
        **dict.fromkeys(sorted(MARKERS), _marker),
        **dict.fromkeys(LAPACK, _lapack),
        **checks.MEANINGS,
        SINK: lambda m, i, operands: (),
        "interpreter.run_parallel": run_processes,
    }
)


def _custom_call(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    target = i.attrs["custom_call_target"]
    own = m.custom_calls.get(target)
    if own is not None and own.evaluate is not None:
        return _own(m, i, operands, own.evaluate)
    if own is None and target in _TARGETS and not has_other_layouts(i):
        return _TARGETS[target](m, i, operands)
    computation = m.constant(i, lambda: expand_custom_call(i, m.custom_calls))
    if computation is None:
        raise unknown_call(i, m.custom_calls, "evaluated" if own is not None else "")
    return m.run_one(computation, operands)


def _own(m: Interpreter, i: Instruction, operands: Sequence[Value], evaluate: Callable[..., Value]) -> Value:
    """A user's NumPy function; what it gives must be what the call promises."""
    given = evaluate(i, *operands)
    results = tuple(np.asarray(x) for x in (given if isinstance(given, (tuple, list)) else (given,)))
    shapes = tuple(s for s in i.shape.leaves() if s.is_array)
    if is_callback(i) and len(results) == len(shapes):  # it knows no wider types
        pairs = zip(results, shapes, strict=True)
        results = tuple(x.astype(m.storage_type(s.dtype)) if x.dtype == s.dtype.numpy else x for x, s in pairs)
    found = [(x.shape, x.dtype) for x in results]
    if found != [(s.dims, m.storage_type(s.dtype)) for s in shapes]:
        text = ", ".join(f"{x.dtype}{list(x.shape)}" for x in results)
        raise InputError(
            f"the function for {i.attrs['custom_call_target']} gives {text}, not {i.shape}", where=f"%{i.name}"
        )
    return results if i.shape.is_tuple else results[0]


_ACROSS_DEVICES: Mapping[str, LockStep] = MappingProxyType(
    {**dict.fromkeys(ENTER_MANUAL, to_local), **dict.fromkeys(LEAVE_MANUAL, to_global)}
)


def _for_devices(
    m: Interpreter, i: Instruction, devices: Sequence[int], operands: Sequence[Sequence[Value]]
) -> list[Value]:
    across = _ACROSS_DEVICES.get(i.attrs["custom_call_target"])
    if across is not None and len(devices) > 1:
        return list(across(m, i, devices, operands))
    first = operands[0]
    if not has_side_effect(i) and all(v is f for o in operands for v, f in zip(o, first, strict=True)):
        return [_custom_call(m, i, first)] * len(devices)
    return [_custom_call(m, i, o) for o in operands]


CUSTOM_CALL = OpMeaning(lockstep=_for_devices)
