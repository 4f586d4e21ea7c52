"""Asynchronous wrappers: their short spellings ``custom-call-start``, ``-update`` and ``-done``, and their rules.

``X-start(...)`` stands for an ``async-start`` that calls a computation with the one instruction X, and takes X's
attributes. Opcodes with a start form of their own (all-reduce, all-gather, collective-permute, copy, send, recv)
are not spelled so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardc.hlo.ir.ir import NO_ATTRS, Computation, Instruction
from shardc.hlo.ir.opset import OPS, Op
from shardc.hlo.ir.types import Shape

__all__ = ["START_ATTRIBUTES", "check_start_shape", "check_wrapper", "split_spelling", "wrap", "wrapped_instruction"]

_OWN_FORMS = frozenset({"send", "recv", "async", "parameter", "constant"})
#: Attributes in a short spelling that are the start's and not the wrapped operation's.
START_ATTRIBUTES: Mapping[str, str] = {"async_execution_thread": "str"}


def split_spelling(spelled: str) -> tuple[Op, str] | None:
    """The wrapped operation and the step (``start``, ``update``, ``done``) of a short spelling, else None."""
    inner, _, step = spelled.rpartition("-")
    op = OPS.get(inner)
    if op is None or step not in ("start", "update", "done") or inner in _OWN_FORMS or f"{inner}-start" in OPS:
        return None
    return op, step


def wrap(op: Op, shape: Shape, operands: tuple[Instruction, ...], attrs: Mapping[str, Any]) -> Computation:
    """The computation with the one instruction ``op`` that a start with these operands calls."""
    parameters = [
        Instruction("parameter", o.shape, (), {"index": i}, name=f"param_{i}") for i, o in enumerate(operands)
    ]
    root = Instruction(op.opcode, shape, parameters, attrs or NO_ATTRS, name=op.opcode)
    return Computation("async_wrapped", [*parameters, root], root)


def wrapped_instruction(operands: tuple[Instruction, ...]) -> Instruction | None:
    """The wrapped instruction of an update or a done with these operands, found through the chain back to the start."""
    start = _find_start(operands)
    return None if start is None else start.attrs["calls"].root


def _find_start(operands: tuple[Instruction, ...]) -> Instruction | None:
    while operands and operands[0].opcode == "async-update":
        operands = operands[0].operands
    return operands[0] if operands and operands[0].opcode == "async-start" else None


def check_start_shape(shape: Shape | None) -> str | None:
    """What is wrong with the shape of a start, which gives ((operands...), result, ...)."""
    if shape is not None and shape.is_tuple and len(shape.elements) >= 2 and shape.elements[0].is_tuple:
        return None
    return f"an asynchronous start has a shape such as ((operands...), result, context), found {shape}"


def check_wrapper(
    opcode: str, shape: Shape | None, operands: tuple[Instruction, ...], attrs: Mapping[str, Any]
) -> str | None:
    """What is wrong with a wrapper.

    A start has the shape of one; an update or done follows a start, and names no computation but the start's.
    """
    if opcode == "async-start":
        return None if shape is None else check_start_shape(shape)
    start = _find_start(operands)
    if start is None:
        return "an asynchronous update or done must take what a start or update gives"
    thread, own = attrs.get("async_execution_thread"), str(start.attrs.get("async_execution_thread", "main"))
    if thread is not None and thread != own:
        return f"its async_execution_thread is {thread!r}, the start's is {own!r}"
    calls = attrs.get("calls")
    if calls is not None and calls.root is not start.attrs["calls"].root:
        return f"computation {calls.name!r} is not the one that the start calls"
    return None
