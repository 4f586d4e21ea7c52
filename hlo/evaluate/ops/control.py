"""NumPy meaning: tuples, calls, loops and branches, for all devices in lock step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shardc.hlo.evaluate.interpreter import Interpreter, OpMeaning, lockstep
from shardc.hlo.evaluate.ops.custom_call import CUSTOM_CALL
from shardc.hlo.evaluate.values import Value
from shardc.hlo.ir.infer.control import branches_of
from shardc.hlo.ir.ir import Computation, Instruction

__all__ = ["ROWS"]

Operands = Sequence[Sequence[Value]]


def _tuple(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    return tuple(operands)


def _get_tuple_element(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    return operands[0][i.attrs["index"]]


def _first(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    return operands[0]


def _after_all(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    return None


def _call(m: Interpreter, i: Instruction, devices: Sequence[int], operands: Operands) -> Sequence[Value]:
    body: Computation = i.attrs["to_apply"]
    return m.run(body, devices, operands)


def _fusion(m: Interpreter, i: Instruction, devices: Sequence[int], operands: Operands) -> Sequence[Value]:
    body: Computation = i.attrs["calls"]
    return m.run(body, devices, operands)


def _while(m: Interpreter, i: Instruction, devices: Sequence[int], operands: Operands) -> Sequence[Value]:
    """Devices whose condition is false wait at the end while the others go round."""
    state: list[Value] = [o[0] for o in operands]
    going = list(range(len(devices)))
    while going:
        here = [devices[k] for k in going]
        wanted = m.run(i.attrs["condition"], here, [(state[k],) for k in going])
        going = [k for k, w in zip(going, wanted, strict=True) if w]
        here = [devices[k] for k in going]
        if going:
            for k, v in zip(going, m.run(i.attrs["body"], here, [(state[k],) for k in going]), strict=True):
                state[k] = v
    return state


def _conditional(m: Interpreter, i: Instruction, devices: Sequence[int], operands: Operands) -> Sequence[Value]:
    """Each branch runs on the devices that chose it; an index out of range chooses the last branch."""
    branches = branches_of(i.attrs)
    chosen: list[int] = []
    for o in operands:
        index = int(o[0])
        if o[0].dtype == np.bool_:
            index = 1 - index
        chosen.append(index if 0 <= index < len(branches) else len(branches) - 1)
    out: list[Value] = [None] * len(devices)
    for number, branch in enumerate(branches):
        here = [k for k, c in enumerate(chosen) if c == number]
        if here:
            results = m.run(branch, [devices[k] for k in here], [(operands[k][number + 1],) for k in here])
            for k, v in zip(here, results, strict=True):
                out[k] = v
    return out


def _async_start(m: Interpreter, i: Instruction, devices: Sequence[int], operands: Operands) -> Sequence[Value]:
    results = m.run(i.attrs["calls"], devices, operands)
    return [(tuple(o), r) for o, r in zip(operands, results, strict=True)]


def _second(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    return operands[0][1]


def _copy_start(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    return (operands[0], operands[0], np.zeros((), np.uint32))


def _copy_done(m: Interpreter, i: Instruction, operands: Sequence[Value]) -> Value:
    return operands[0][0]


ROWS: Mapping[str, OpMeaning] = {
    "parameter": OpMeaning(_first),
    "tuple": OpMeaning(_tuple),
    "get-tuple-element": OpMeaning(_get_tuple_element),
    "call": lockstep(_call),
    "while": lockstep(_while),
    "conditional": lockstep(_conditional),
    "fusion": lockstep(_fusion),
    "custom-call": CUSTOM_CALL,
    "optimization-barrier": OpMeaning(_first),
    "after-all": OpMeaning(_after_all),
    "add-dependency": OpMeaning(_first),
    "domain": OpMeaning(_first),
    "copy-start": OpMeaning(_copy_start),
    "copy-done": OpMeaning(_copy_done),
    "async-start": lockstep(_async_start),
    "async-update": OpMeaning(_first),
    "async-done": OpMeaning(_second),
}
