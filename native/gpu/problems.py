"""What can go wrong with GPUs, told in this floor's words.

The floors above know the error family of `shardc.hlo.errors`, which this one may not import: the launcher turns a
`GpuProblem` into an `EnvironmentProblem` and a `GpuFault` into a `RunError`.
"""

from __future__ import annotations

__all__ = ["GpuError", "GpuFault", "GpuProblem", "out_of_memory"]


class GpuError(Exception):
    """``what`` is one sentence, ``where`` names a kernel or device, ``fix`` says what the user can do."""

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        text = self.what
        if self.where is not None:
            text += f"\n  where: {self.where}"
        if self.fix is not None:
            text += f"\n  fix: {self.fix}"
        return text


class GpuProblem(GpuError):
    """The machine lacks something: a driver, a library, memory, a GPU that can run this code."""


class GpuFault(GpuError):
    """Work that was started on the device went wrong."""


def out_of_memory(nbytes: int, free: int, total: int, device: str) -> GpuProblem:
    """What is said when ``nbytes`` bytes do not fit."""
    return GpuProblem(
        f"out of memory: {nbytes:,} bytes are needed, but only {free:,} of {total:,} are free",
        where=device,
        fix="use more devices, a sharding that splits the largest arrays, or smaller arrays",
    )
