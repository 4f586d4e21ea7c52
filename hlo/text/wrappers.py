"""Short spellings of asynchronous wrappers: ``custom-call-start``, ``-update`` and ``-done``.

``X-start(...)`` stands for an ``async-start`` that calls a computation with the one instruction X, and takes X's
attributes. Opcodes with a start form of their own (all-reduce, all-gather, collective-permute, copy, send, recv)
are not spelled so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardc.hlo.ir.ir import NO_ATTRS, Computation, Instruction
from shardc.hlo.ir.opset import OPS, Op
from shardc.hlo.ir.types import Shape

if TYPE_CHECKING:
    from shardc.hlo.text.body import ComputationReader, Draft

__all__ = ["check_wrapper", "read_wrapped"]

_OWN_FORMS = frozenset({"send", "recv", "async", "parameter", "constant"})
_START_ATTRIBUTES = {"async_execution_thread": "str"}


def read_wrapped(reader: ComputationReader, draft: Draft) -> Instruction | None:
    """The instruction when the draft has a short spelling, else None; the position is behind its ``(``."""
    inner, _, step = draft.spelled.rpartition("-")
    row = OPS.get(inner)
    if row is None or step not in ("start", "update", "done") or inner in _OWN_FORMS or f"{inner}-start" in OPS:
        return None
    if draft.shape is None:
        raise reader.scanner.error(f"{draft.spelled} needs its shape", at=draft.op_at)
    operands = reader.read_operands()
    if step == "start":
        return _start(reader, draft, operands, row)
    opcode = f"async-{step}"
    attrs: dict[str, Any] = {}
    fields = reader.read_attributes(draft.spelled, OPS[opcode].attributes, attrs, draft.shape)
    wrapped = _wrapped_root(operands)
    if wrapped is None or wrapped.opcode != inner:
        found = "nothing" if wrapped is None else wrapped.opcode
        raise reader.scanner.error(
            f"{draft.spelled} must belong to a {inner}-start, it is given {found}", at=draft.op_at
        )
    return reader.add(draft, opcode, operands, attrs, fields)


def _start(reader: ComputationReader, draft: Draft, operands: tuple[Instruction, ...], row: Op) -> Instruction:
    shape = _start_shape(reader, draft)
    attrs: dict[str, Any] = {}
    fields = reader.read_attributes(draft.spelled, {**row.attributes, **_START_ATTRIBUTES}, attrs, shape)
    outer = {k: attrs.pop(k) for k in _START_ATTRIBUTES if k in attrs}
    for key in row.required:
        if key not in attrs:
            raise reader.scanner.error(f"{draft.spelled} %{draft.name} lacks the attribute {key}", at=draft.op_at)
    parameters = [
        Instruction("parameter", o.shape, (), {"index": i}, name=f"param_{i}") for i, o in enumerate(operands)
    ]
    root = Instruction(row.opcode, shape.elements[1], parameters, attrs or NO_ATTRS, name=row.opcode)
    outer["calls"] = reader.register(Computation("async_wrapped", [*parameters, root], root))
    return reader.add(draft, "async-start", operands, outer, fields)


def _start_shape(reader: ComputationReader, draft: Draft) -> Shape:
    """An asynchronous start gives ((operands...), result, ...)."""
    shape = draft.shape
    if shape is None or not shape.is_tuple or len(shape.elements) < 2 or not shape.elements[0].is_tuple:
        raise reader.scanner.error(
            f"an asynchronous start has a shape such as ((operands...), result, context), found {shape}",
            at=draft.op_at,
        )
    return shape


def _wrapped_root(operands: tuple[Instruction, ...]) -> Instruction | None:
    """The wrapped instruction, found through the chain of updates back to the start."""
    while operands and operands[0].opcode == "async-update":
        operands = operands[0].operands
    if not operands or operands[0].opcode != "async-start":
        return None
    calls = operands[0].attrs["calls"]
    assert isinstance(calls, Computation)
    return calls.root


def _thread(operands: tuple[Instruction, ...]) -> str:
    """The execution thread of the start; only for operands that `_wrapped_root` knows."""
    while operands[0].opcode == "async-update":
        operands = operands[0].operands
    return str(operands[0].attrs.get("async_execution_thread", "main"))


def check_wrapper(
    reader: ComputationReader, draft: Draft, operands: tuple[Instruction, ...], attrs: dict[str, Any]
) -> None:
    """A start has the shape of one; an update or done follows a start, and names no computation but the start's."""
    if draft.spelled == "async-start":
        if draft.shape is not None:
            _start_shape(reader, draft)
        return
    root = _wrapped_root(operands)
    calls = attrs.get("calls")
    if root is None:
        raise reader.scanner.error(
            "an asynchronous update or done must take what a start or update gives", at=draft.op_at
        )
    thread = attrs.get("async_execution_thread")
    if thread is not None and thread != (own := _thread(operands)):
        raise reader.scanner.error(f"its async_execution_thread is {thread!r}, the start's is {own!r}", at=draft.op_at)
    if calls is not None and calls.root is not root:
        raise reader.scanner.error(f"computation {calls.name!r} is not the one that the start calls", at=draft.op_at)
