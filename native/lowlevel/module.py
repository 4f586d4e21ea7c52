"""Modules of functions of the low-level language: from Python functions to LLVM's text."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from shardc.native.llvm.target import Target, host_target
from shardc.native.lowlevel.builtins import Static, symbol_of
from shardc.native.lowlevel.expressions import llvm_type
from shardc.native.lowlevel.kinds import FunctionKind
from shardc.native.lowlevel.platform import PLATFORM, Platform, platform_of
from shardc.native.lowlevel.sources import signature_of
from shardc.native.lowlevel.statements import emit_function

__all__ = ["compile_functions"]

_INTRINSICS = """declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"""


def compile_functions(
    functions: Sequence[Callable[..., Any]], target: Target | None = None, platform: Platform | None = None
) -> str:
    """The IR of a module with ``functions`` under their exported names, and what they call.

    Functions that are exported and not among ``functions`` are called by their names, for the linker to find; all
    others are put into the module. ``platform`` is that of ``target``, where nothing else is said. `LanguageError` for
    a function that is not of the language.
    """
    triple = (target or host_target()).triple
    module = _ModuleText(functions)
    token = PLATFORM.set(platform or platform_of(triple))
    try:
        return f'target triple = "{triple}"\n{module.text()}'
    finally:
        PLATFORM.reset(token)


class _ModuleText:
    """What of a module is declared, and what is still to be emitted."""

    def __init__(self, functions: Sequence[Callable[..., Any]]) -> None:
        self._wanted = tuple(functions)
        self._names: dict[str, Any] = {}
        self._texts: dict[str, str] = {}
        self._open: deque[tuple[Any, FunctionKind, str]] = deque()

    def text(self) -> str:
        """Everything."""
        for function in self._wanted:
            self.function(function)
        while self._open:
            function, signature, head = self._open.popleft()
            self._texts[head] = f"define {head} {{\n{emit_function(self, function, signature)}\n}}"
        return "\n\n".join([_INTRINSICS, *filter(None, self._texts.values())]) + "\n"

    def function(self, function: Any) -> str:
        """The name of a function. It is defined later in this module, where it is not another's."""
        symbol = symbol_of(function)
        name = symbol or f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        known = self._names.setdefault(name, function)
        if known is function and f"@{name}" not in self._texts:
            self._texts[f"@{name}"] = ""
            self._declare(function, name, symbol is None)
        elif known is not function and not getattr(function, "external", False):
            raise ValueError(f"two functions of the module are called {name}: rename one")
        return f"@{name}"

    def _declare(self, function: Any, name: str, internal: bool) -> None:
        signature = signature_of(function)
        result = llvm_type(signature.result)
        parameters = ", ".join(map(llvm_type, signature.arguments))
        if getattr(function, "external", False) or not (internal or function in self._wanted):
            rest = self.variadic(function)
            self._texts[f"@{name}"] = f"declare {result} @{name}({rest.partition('(')[2] if rest else parameters + ')'}"
            return
        inline = " alwaysinline" if getattr(function, "inline", False) else ""
        self._open.append(
            (function, signature, f"{'internal ' if internal else ''}{result} @{name}({parameters}){inline}")
        )

    def variadic(self, function: Any) -> str:
        """The type by which C's functions with any number of arguments are called; else nothing."""
        if not getattr(function, "variadic", False):
            return ""
        signature = signature_of(function)
        return f"{llvm_type(signature.result)} ({llvm_type(signature.arguments[0])}, ...)"

    def static(self, static: Static) -> str:
        """The memory of a `Static`."""
        name = f"@{static.name}"
        if name not in self._texts:
            initial = "zeroinitializer"
            if static.initial:
                record = static.made()
                content = ctypes.string_at(ctypes.addressof(record), static.nbytes)
                initial = 'c"' + "".join(f"\\{byte:02x}" for byte in content) + '"'
            self._texts[name] = f"{name} = internal global [{static.nbytes} x i8] {initial}, align 128"
        return name
