"""The limits of a task: time, memory, and bytes of its answer."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TaskLimits"]


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """``seconds`` by the clock, ``memory_bytes`` of address space for data (0: as much as there is),
    ``answer_bytes`` of the largest answer."""

    seconds: float = 600.0
    memory_bytes: int = 0
    answer_bytes: int = 2_000_000_000
