"""The memory that a program was planned for: it goes along in the header of the text, and schedules stay within it."""

from __future__ import annotations

from shardc.hlo.errors import InputError
from shardc.hlo.ir.ir import Module

__all__ = ["memory_limit", "with_memory_limit"]

#: The name of the frontend attribute.
_NAME = "shardc.memory"


def with_memory_limit(module: Module, nbytes: float) -> Module:
    """``module``, each device of which shall take no more than ``nbytes``."""
    others = tuple((k, v) for k, v in module.attrs.get("frontend_attributes", ()) if k != _NAME)
    return module.with_(attrs={**module.attrs, "frontend_attributes": (*others, (_NAME, str(int(nbytes))))})


def memory_limit(module: Module) -> int | None:
    """The bytes that each device may take, where that was said. Raises `InputError` for no number of bytes."""
    text = dict(module.attrs.get("frontend_attributes", ())).get(_NAME)
    if text is None:
        return None
    if not text.isdecimal():
        raise InputError(f"{_NAME} is {text!r}", where=module.name, fix="give a number of bytes per device")
    return int(text)
