"""Calls of Python from a program: how JAX writes them, and their meaning where the functions are at hand.

A callback is a custom call that names its function by an index. It is called once with whole values, on the first
device of the mesh; once for each device where it stands in a manual computation (`EACH`), or as what looks at each
device's own shards (`LOCAL`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from shardc.hlo.errors import UnsupportedError
from shardc.hlo.ir.custom_calls import CALLBACKS, CustomCall
from shardc.hlo.ir.ir import Instruction, Module
from shardc.hlo.ir.lapack import attributes_of

__all__ = [
    "EACH",
    "LOCAL",
    "ORDERED",
    "PURE",
    "TITLE",
    "calls_of",
    "is_callback",
    "marks",
    "need_none",
    "title_of",
]

#: The target of a callback that every device makes with its own shards.
LOCAL = CALLBACKS[1]

#: Frontend attributes: what people call it; every device of a manual computation makes it; its function takes a token
#: before its operands and gives it back.
TITLE, EACH, ORDERED = "callback", "each_device", "ordered"
#: What people call the callbacks without effects.
PURE = "jax.pure_callback"


def is_callback(i: Instruction) -> bool:
    return i.opcode == "custom-call" and i.attrs["custom_call_target"] in CALLBACKS


def marks(i: Instruction) -> Mapping[str, str]:
    """The frontend attributes of a callback."""
    return dict(i.attrs.get("frontend_attributes", ()))


def title_of(i: Instruction) -> str:
    """What people call a callback: ``jax.debug.print``."""
    return marks(i).get(TITLE, f"custom call {i.attrs['custom_call_target']!r}")


def need_none(module: Module, where: str, fix: str) -> None:
    """Raise `UnsupportedError` if ``module``, which is to run ``where``, calls Python."""
    for i in filter(is_callback, module.instructions()):
        raise UnsupportedError(f"{title_of(i)} calls Python, which is not possible {where}", where=i.place, fix=fix)


def calls_of(functions: Sequence[Callable[..., Any]]) -> Mapping[str, CustomCall]:
    """The meaning of callbacks whose indices are places in ``functions``, which take and give arrays."""
    return dict.fromkeys(CALLBACKS, CustomCall(evaluate=partial(_call_function, functions)))


def _call_function(functions: Sequence[Callable[..., Any]], call: Instruction, *operands: Any) -> tuple[Any, ...]:
    """The results of a callback. Its function has copies, which are its to keep."""
    index = int(attributes_of(call)["index"])
    given = [np.array(x, o.shape.dtype.numpy) for x, o in zip(operands, call.operands, strict=True)]
    token = [None] if ORDERED in marks(call) else []
    return tuple(functions[index](*token, *given))[len(token) :]
