"""The interpreter that runs computations: instruction by instruction, all devices in lock step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from shardc.hlo.errors import RunError, ShardcError, UnsupportedError
from shardc.hlo.evaluate.values import COMPUTE, Value
from shardc.hlo.ir.custom_calls import CustomCalls
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.hlo.ir.types import DType

__all__ = ["Interpreter", "Local", "LockStep", "OpMeaning", "lockstep", "unsupported_op"]

Made = TypeVar("Made")
Local = Callable[["Interpreter", Instruction, Sequence[Value]], Value]
LockStep = Callable[["Interpreter", Instruction, Sequence[int], Sequence[Sequence[Value]]], Sequence[Value]]


@dataclass(frozen=True, slots=True)
class OpMeaning:
    """The meaning of one op.

    ``local(interpreter, instruction, operands)`` gives the value on one device. Ops that call computations or talk to
    other devices have ``lockstep(interpreter, instruction, devices, operands per device)`` instead, which gives one
    value per device. ``why`` explains a blank row.
    """

    local: Local | None = None
    lockstep: LockStep | None = None
    why: str = ""


def lockstep(rule: LockStep) -> OpMeaning:
    return OpMeaning(None, rule)


def unsupported_op(why: str) -> OpMeaning:
    return OpMeaning(why=why)


@dataclass(frozen=True, slots=True)
class _Step:
    """One instruction with the slots of its operands and the slots that nobody reads afterwards."""

    instruction: Instruction
    operands: tuple[int, ...]
    free: tuple[int, ...]


_REFERENCE: Mapping[str, np.dtype[Any]] = {
    **{name: np.dtype(np.float64) for name in ("bf16", "f16", "f32")},
    "c64": np.dtype(np.complex128),
}


@dataclass(slots=True)
class Interpreter:
    """One run: the op table, the devices, and plans of the computations met so far.

    Device d is replica ``d // num_partitions``, partition ``d % num_partitions``. With ``float64`` all f16, bf16,
    f32 and c64 values are held and computed in f64 and c128. ``custom_calls`` are the user's own.
    """

    rows: Mapping[str, OpMeaning]
    num_partitions: int = 1
    replica_count: int = 1
    float64: bool = False
    custom_calls: CustomCalls = field(default_factory=dict)
    plans: dict[Computation, list[_Step]] = field(default_factory=dict)
    memo: dict[object, Any] = field(default_factory=dict)

    def storage_type(self, dtype: DType) -> np.dtype[Any]:
        """The NumPy type that values of ``dtype`` are held in."""
        if self.float64 and dtype.name in _REFERENCE:
            return _REFERENCE[dtype.name]
        return dtype.numpy

    def compute(self, dtype: DType) -> np.dtype[Any]:
        """The NumPy type that arithmetic with result type ``dtype`` is done in."""
        return COMPUTE[self.storage_type(dtype)]

    def run(
        self, computation: Computation, devices: Sequence[int], arguments: Sequence[Sequence[Value]]
    ) -> list[Value]:
        """The value of ``computation`` on each of ``devices``, given each device's arguments."""
        plan = self.plans.get(computation)
        if plan is None:
            plan = self.plans[computation] = _plan(computation)
        slots: list[list[Value] | None] = [None] * len(plan)
        root = 0
        for number, step in enumerate(plan):
            i = step.instruction
            if i is computation.root:
                root = number
            if i.opcode == "parameter":
                slots[number] = [a[i.attrs["index"]] for a in arguments]
            else:
                columns = [slots[k] for k in step.operands]
                slots[number] = self._step(i, devices, columns)  # type: ignore[arg-type]
            for k in step.free:
                slots[k] = None
        result = slots[root]
        assert result is not None
        return result

    def run_one(self, computation: Computation, arguments: Sequence[Value]) -> Value:
        """The value of a computation that does not depend on the device."""
        return self.run(computation, (0,), (arguments,))[0]

    def _step(self, i: Instruction, devices: Sequence[int], columns: Sequence[list[Value]]) -> list[Value]:
        row = self.rows.get(i.opcode)
        if row is None or (row.local is None and row.lockstep is None):
            raise UnsupportedError(
                f"the evaluator cannot run {i.opcode}: {row.why if row else 'unknown operation'}", where=i.place
            )
        try:
            if row.lockstep is not None:
                operands = [[c[k] for c in columns] for k in range(len(devices))]
                return list(row.lockstep(self, i, devices, operands))
            assert row.local is not None
            if len(devices) == 1:
                return [row.local(self, i, [c[0] for c in columns])]
            if all(v is c[0] for c in columns for v in c):
                return [row.local(self, i, [c[0] for c in columns])] * len(devices)
            return [row.local(self, i, [c[k] for c in columns]) for k in range(len(devices))]
        except ShardcError:
            raise
        except MemoryError as e:
            fix = "use smaller arrays: the evaluator keeps every value whole"
            raise RunError(f"the evaluator ran out of memory in {i.opcode} to {i.shape}", where=i.place, fix=fix) from e
        except (ValueError, TypeError, IndexError, KeyError, AssertionError) as e:
            e.add_note(f"evaluating {i!r} at {i.place}")
            raise

    def constant(self, i: Instruction, make: Callable[[], Made]) -> Made:
        """What is made once per instruction and run."""
        found = self.memo.get(i)
        if found is None:
            found = self.memo[i] = make()
        return found


def _plan(computation: Computation) -> list[_Step]:
    slots = {i: k for k, i in enumerate(computation)}
    last: dict[int, int] = {}
    for k, i in enumerate(computation):
        last[k] = k
        for o in i.operands:
            last[slots[o]] = k
    last.pop(slots[computation.root], None)
    free: dict[int, list[int]] = {}
    for slot, k in last.items():
        free.setdefault(k, []).append(slot)
    return [_Step(i, tuple(slots[o] for o in i.operands), tuple(free.get(k, ()))) for k, i in enumerate(computation)]
