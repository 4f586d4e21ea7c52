"""What the writers of files share: an executable under a C name, its target, and what its object needs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from shardc.compiler.executable import ArraySpec, Executable, custom_call_symbol
from shardc.native.llvm import blas
from shardc.native.llvm.jit import undefined_symbols
from shardc.native.llvm.symbols import C_SYMBOLS, MATH_SYMBOLS, PARALLEL
from shardc.native.llvm.target import Target

__all__ = ["AheadProgram", "array_text", "c_string", "identifier"]


def identifier(text: str) -> str:
    """A C identifier for any text. Example: ``identifier("jit_train-step.1") == "jit_train_step_1"``."""
    name = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_") or "program"
    return f"p{name}" if name[0].isdigit() else name


def c_string(text: str) -> str:
    """``text`` as a C string literal, in UTF-8."""
    plain = "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\\\?' else f"\\{b:03o}" for b in text.encode())
    return f'"{plain}"'


def array_text(spec: ArraySpec) -> str:
    """One line about an argument or a result, for comments."""
    text = f"{spec.name}: {spec.local_shape}" if spec.name else str(spec.local_shape)
    if spec.global_shape != spec.local_shape:
        text += f", a part of {spec.global_shape}"
    return (text + (f", sharding {spec.sharding}" if spec.sharding is not None else "")).replace("*/", "* /")


@dataclass(frozen=True)
class AheadProgram:
    """``executable`` compiled for ``target``, to be called ``name`` in C; its step is ``name_step``."""

    executable: Executable
    target: Target
    name: str

    @property
    def macro(self) -> str:
        """The beginning of the header's constants."""
        return self.name.upper()

    @property
    def distributed(self) -> bool:
        """Several devices, or collectives of one: the step stops, and the collectives' runtime is needed."""
        return self.executable.num_devices > 1 or bool(self.executable.collectives)

    @cached_property
    def needs(self) -> dict[str, list[str]]:
        """Symbols that the object takes from elsewhere, by where: c, math, blas, lapack, pool, custom_calls."""
        found: dict[str, list[str]] = {}
        for symbol in undefined_symbols(*self.executable.objects):
            plain = symbol.removeprefix("_") if "apple" in self.target.triple else symbol
            found.setdefault(_library_of(plain), []).append(plain)
        return found


def _library_of(symbol: str) -> str:
    if symbol in blas.SYMBOLS:
        return "lapack" if "LAPACKE" in symbol else "blas"
    if symbol in MATH_SYMBOLS:
        return "math"
    if symbol == PARALLEL:
        return "pool"
    if symbol.startswith(custom_call_symbol("")):
        return "custom_calls"
    return "c" if symbol in C_SYMBOLS else "other"
