"""The machine that code is made for: triple, CPU, features, and LLVM's target machine for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import llvmlite.binding as llvm

__all__ = [
    "CPUS", "SYSTEMS", "Target", "borrow_target_machine", "common_target", "host_target", "named_target",
    "target_machine",
]  # fmt: skip

_V2 = "+cx16,+popcnt,+sahf,+sse3,+sse4.1,+sse4.2,+ssse3"
_V3 = f"{_V2},+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe"
_V4 = f"{_V3},+avx512bw,+avx512cd,+avx512dq,+avx512f,+avx512vl"

#: SSE4a's moves of bits have no AVX encoding. One of them among AVX instructions takes some 200 cycles on a Zen 3:
#: Jacobi's method in 3-D, whose rows had two, took 1.61 ms an iteration with them and 0.47 without.
_SLOW = frozenset(("sse4a",))
#: CPUs that code can be made for by name: architecture and features. The x86-64 levels are those of the psABI.
CPUS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "x86-64": ("x86_64", "+sse2"),
        "x86-64-v2": ("x86_64", f"+sse2,{_V2}"),
        "x86-64-v3": ("x86_64", f"+sse2,{_V3}"),
        "x86-64-v4": ("x86_64", f"+sse2,{_V4}"),
        "aarch64": ("aarch64", "+neon"),
        "apple-m1": ("arm64", "+neon,+fullfp16"),
        "neoverse-n1": ("aarch64", "+neon,+fullfp16"),
        "neoverse-v1": ("aarch64", "+neon,+fullfp16,+bf16"),
    }
)
#: Operating systems by name: what follows the architecture in a triple.
SYSTEMS: Mapping[str, str] = MappingProxyType({"linux": "unknown-linux-gnu", "macos": "apple-macosx"})

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
        return "+f16c" in self.features.split(",") or self.triple.startswith(("aarch64", "arm64", "nvptx", "amdgcn"))

    @property
    def has_bf16(self) -> bool:
        """Brain floats are rounded to in hardware: NaNs become the quiet one, the others what rounding gives."""
        return self.triple.startswith("nvptx")

    def __str__(self) -> str:
        return f"{self.triple} {self.cpu}"


@lru_cache(maxsize=1)
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()


@lru_cache(maxsize=1)
def host_target() -> Target:
    """This machine, with only the features that its operating system enables, and code is faster with."""
    _initialize()
    features = llvm.get_host_cpu_features()
    features.update(dict.fromkeys(_SLOW & features.keys(), False))
    return Target(llvm.get_default_triple(), llvm.get_host_cpu_name(), features.flatten())


def common_target(targets: Sequence[Target]) -> Target | None:
    """What the CPUs of ``targets`` have in common; None for different operating systems or architectures.

    Example: a Zen 4 and a Haswell have AVX2, and no AVX-512, in common.
    """
    first = targets[0]
    if all(t == first for t in targets):
        return first
    if any(t.triple != first.triple for t in targets):
        return None
    present = [{f for f in t.features.split(",") if f.startswith("+")} for t in targets]
    named = dict.fromkeys(f[1:] for t in targets for f in t.features.split(",") if f)
    features = ",".join(("+" if all(f"+{n}" in p for p in present) else "-") + n for n in sorted(named))
    cpu = first.cpu if all(t.cpu == first.cpu for t in targets) else "generic"
    return Target(first.triple, "x86-64" if cpu == "generic" and first.triple.startswith("x86_64") else cpu, features)


def named_target(cpu: str, system: str = "") -> Target:
    """A CPU of `CPUS` under an operating system, ``linux`` or ``macos``; KeyError for other names.

    Without ``system`` it is this machine's, or Linux. Example: ``named_target("x86-64-v3")``.
    """
    architecture, features = CPUS[cpu]
    default = "macos" if cpu == "apple-m1" or "apple" in llvm.get_default_triple() else "linux"
    system = system or default
    architecture = "arm64" if system == "macos" and architecture == "aarch64" else architecture
    architecture = "aarch64" if system == "linux" and architecture == "arm64" else architecture
    name = "generic" if cpu == "aarch64" else cpu
    return Target(f"{architecture}-{SYSTEMS[system]}", name, features)


def target_machine(target: Target | None = None, *, opt: int = 2) -> Any:
    """A fresh LLVM target machine (position-independent code) with code generation level ``opt`` (0..3)."""
    _initialize()
    target = target or host_target()
    description = llvm.Target.from_triple(target.triple)
    return description.create_target_machine(
        cpu=target.cpu, features=target.features, opt=opt, reloc="pic", codemodel="default"
    )


@contextmanager
def borrow_target_machine(target: Target | None = None, *, opt: int = 2) -> Iterator[Any]:
    """A target machine that nobody else uses meanwhile: one that was made before, if one is free.

    It knows the CPU already, which makes a third of the time that a small module takes; what it compiles is the same.
    """
    free = _free_machines(target or host_target(), opt)
    try:
        machine = free.pop()
    except IndexError:
        machine = target_machine(target, opt=opt)
    yield machine
    free.append(machine)


@lru_cache(maxsize=32)
def _free_machines(target: Target, opt: int) -> list[Any]:
    return []
