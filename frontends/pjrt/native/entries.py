"""The functions that PJRT's table points at, one per entry.

Each looks first whether the client's structure is as large as the one that the plug-in knows: an older client's is not,
and nothing may be written behind its end. Then it goes on to the native function of that name or, with its number, to
`trampoline.call_python`. These few instructions per entry are LLVM's text, because they differ in a number only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import ModuleType
from typing import Any

from shardc.frontends.pjrt.abi import base, buffers, clients, devices, executables, execution, topologies, transfers
from shardc.frontends.pjrt.abi.functions import FUNCTIONS
from shardc.frontends.pjrt.native.buffers import BUFFER_FUNCTIONS
from shardc.frontends.pjrt.native.clients import CLIENT_FUNCTIONS
from shardc.frontends.pjrt.native.contexts import CONTEXT_FUNCTIONS
from shardc.frontends.pjrt.native.devices import DEVICE_FUNCTIONS
from shardc.frontends.pjrt.native.errors import ERROR_FUNCTIONS
from shardc.frontends.pjrt.native.events import EVENT_FUNCTIONS
from shardc.frontends.pjrt.native.executables import EXECUTABLE_FUNCTIONS
from shardc.frontends.pjrt.native.execute import EXECUTE_FUNCTIONS
from shardc.frontends.pjrt.native.trampoline import call_python, refuse_structure
from shardc.frontends.pjrt.native.transfers import TRANSFER_FUNCTIONS
from shardc.native.lowlevel.builtins import symbol_of
from shardc.native.lowlevel.records import Record, places_of

__all__ = ["NATIVE", "args_of", "entries_text", "entry_symbol", "struct_size"]

#: By PJRT's names without prefix: what native code does by itself.
NATIVE: Mapping[str, Callable[..., Any]] = {
    **ERROR_FUNCTIONS,
    **EVENT_FUNCTIONS,
    **DEVICE_FUNCTIONS,
    **CLIENT_FUNCTIONS,
    **BUFFER_FUNCTIONS,
    **CONTEXT_FUNCTIONS,
    **TRANSFER_FUNCTIONS,
    **EXECUTE_FUNCTIONS,
    **EXECUTABLE_FUNCTIONS,
}

_STRUCTURES: tuple[ModuleType, ...] = (
    base, buffers, clients, devices, executables, execution, topologies, transfers
)  # fmt: skip


@cache
def args_of(function: str) -> type[Record]:
    """The structure that a function of PJRT's takes: ``args_of("Buffer_Delete")``."""
    name = function.replace("_", "") + "Args"
    found: type[Record] = next(getattr(m, name) for m in _STRUCTURES if hasattr(m, name))
    return found


def struct_size(structure: type[Record]) -> int:
    """How large a structure says that it is: up to the end of its last field, without the padding behind it."""
    places = places_of(structure)
    field = list(places)[-1]
    return structure.offset_of(field) + places[field].nbytes


def entry_symbol(number: int) -> str:
    """The name of an entry's function."""
    return f"shardc_pjrt_entry_{number}"


def entries_text(count: int) -> str:
    """LLVM's text of the functions of all entries, those of PJRT first."""
    return "\n".join(map(_entry_text, range(count)))


def _entry_text(number: int) -> str:
    name = FUNCTIONS[number] if number < len(FUNCTIONS) else ""
    native = NATIVE.get(name)
    call = f"@{symbol_of(native)}(" if native else f"@{symbol_of(call_python)}(i64 {number}, "
    lines = [f"define ptr @{entry_symbol(number)}(ptr %args) {{"]
    if name and not name.startswith("Error_"):  # some of those have no result, and all are as they always were
        lines += [
            "%size = load i64, ptr %args",
            f"%small = icmp ult i64 %size, {struct_size(args_of(name))}",
            "br i1 %small, label %refuse, label %go",
            f"refuse:\n%refused = call ptr @{symbol_of(refuse_structure)}(i64 {number})\nret ptr %refused",
            "go:",
        ]
    return "\n".join([*lines, f"%result = tail call ptr {call}ptr %args)", "ret ptr %result", "}"])
