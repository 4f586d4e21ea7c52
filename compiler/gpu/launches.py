"""What the kernel of an instruction becomes on a GPU: launches over its arrays, and scratch memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shardc.native.gpu.runtime import LaunchShape

__all__ = ["Fill", "KernelLaunch", "LaunchArray", "Launches"]


@dataclass(frozen=True, slots=True)
class LaunchArray:
    """An array of a launch: operand leaf or result leaf ``index`` of the instruction, or scratch memory from byte
    ``index`` on (a multiple of 256)."""

    role: Literal["operand", "result", "scratch"]
    index: int


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """A launch of the function ``symbol`` on ``arguments``."""

    symbol: str
    shape: LaunchShape
    arguments: tuple[LaunchArray, ...]


@dataclass(frozen=True, slots=True)
class Fill:
    """``nbytes`` bytes become ``byte``."""

    place: LaunchArray
    byte: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Launches:
    """One after another; ``scratch_bytes`` are uninitialised and free again afterwards."""

    steps: tuple[KernelLaunch | Fill, ...]
    scratch_bytes: int = 0
