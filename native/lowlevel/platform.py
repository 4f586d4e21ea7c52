"""What differs between the systems that code is made for."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from shardc.native.llvm.target import host_target

__all__ = ["PLATFORM", "Platform", "platform", "platform_of"]


@dataclass(frozen=True, slots=True)
class Platform:
    """Numbers of system calls and constants of the C library; ``futex`` is 0 where there is none or none is known."""

    futex: int
    #: ``CLOCK_MONOTONIC``, ``PTHREAD_CREATE_DETACHED``, ``SIG_SETMASK``.
    clock: int
    detached: int
    set_mask: int
    #: What tells a core that it watches memory: by instruction set.
    x86: bool
    arm: bool


PLATFORM: ContextVar[Platform | None] = ContextVar("PLATFORM", default=None)


def platform() -> Platform:
    """The one that code is made for, or runs on. In the low-level language its fields are constants, and of an ``if``
    that asks for them only one branch is compiled."""
    return PLATFORM.get() or platform_of(host_target().triple)


def platform_of(triple: str, *, futex: bool | None = None) -> Platform:
    """By target triple; ``futex`` overrides how threads sleep."""
    cpu = triple.split("-", maxsplit=1)[0]
    apple = any(word in triple for word in ("darwin", "macos", "apple"))
    number = {"x86_64": 202, "aarch64": 98}.get(cpu, 0) if "linux" in triple else 0
    return Platform(
        futex=number if futex in (None, True) else 0,
        clock=6 if apple else 1,
        detached=2 if apple else 1,
        set_mask=3 if apple else 2,
        x86=cpu == "x86_64",
        arm=cpu in ("aarch64", "arm64"),
    )
