"""The machine that code is made for: triple, CPU, features, and LLVM's target machine for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm

__all__ = ["Target", "host_target", "target_machine"]

#: Widest vector registers by feature, in bits; the first feature that a CPU has decides.
_VECTOR_BITS = (("+avx512f", 512), ("+avx", 256), ("+sse2", 128), ("+neon", 128))


@dataclass(frozen=True, slots=True)
class Target:
    """An LLVM target: ``triple``, ``cpu`` and the flat feature string (``+avx2,-avx512f,...``).

    Example: ``Target("x86_64-unknown-linux-gnu", "x86-64", "+sse2")``.
    """

    triple: str
    cpu: str
    features: str

    @property
    def vector_bits(self) -> int:
        """Bits of the widest vector register (128 when nothing is known)."""
        present = set(self.features.split(","))
        return next((bits for name, bits in _VECTOR_BITS if name in present), 128)

    @property
    def has_f16(self) -> bool:
        """Half precision converts in hardware, so that LLVM calls no runtime routine for it."""
        return "+f16c" in self.features.split(",") or self.triple.startswith(("aarch64", "arm64"))

    def __str__(self) -> str:
        return f"{self.triple} {self.cpu}"


@lru_cache(maxsize=1)
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()


@lru_cache(maxsize=1)
def host_target() -> Target:
    """This machine, with only the features that its operating system enables."""
    _initialize()
    features = llvm.get_host_cpu_features()
    return Target(llvm.get_default_triple(), llvm.get_host_cpu_name(), features.flatten())


def target_machine(target: Target | None = None, *, opt: int = 2) -> Any:
    """A fresh LLVM target machine (position-independent code) with code generation level ``opt`` (0..3)."""
    _initialize()
    target = target or host_target()
    description = llvm.Target.from_triple(target.triple)
    return description.create_target_machine(
        cpu=target.cpu, features=target.features, opt=opt, reloc="pic", codemodel="default"
    )
