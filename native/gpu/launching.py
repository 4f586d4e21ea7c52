"""What a launch may ask for, checked before it is made: the driver itself would only say "invalid value"."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.native.gpu.problems import GpuFault, GpuProblem
from shardc.native.gpu.runtime import LaunchShape

__all__ = ["PLAIN_SHARED_BYTES", "check_arguments", "check_shape", "check_shared"]

#: Shared memory that a kernel may have without asking for more when it is loaded.
PLAIN_SHARED_BYTES = 48 << 10
_MOST_BLOCKS = (2**31 - 1, 65535, 65535)
_MOST_THREADS = 1024


def check_shape(name: str, shape: LaunchShape, shared_bytes: int) -> None:
    """``shared_bytes``: what the kernel was loaded for. GpuFault for a shape that no GPU takes."""
    for axis, (blocks, most) in enumerate(zip(shape.grid, _MOST_BLOCKS, strict=True)):
        if not 1 <= blocks <= most:
            raise GpuFault(f"a grid of {blocks} blocks along axis {axis}; there may be 1 to {most}", where=name)
    if not 1 <= shape.threads <= _MOST_THREADS:
        raise GpuFault(f"blocks of {shape.threads} threads; there may be 1 to {_MOST_THREADS}", where=name)
    if shape.shared_bytes > max(shared_bytes, PLAIN_SHARED_BYTES):
        raise GpuFault(
            f"{shape.shared_bytes} bytes of shared memory, but the kernel was loaded for {shared_bytes}", where=name
        )


def check_arguments(name: str, pointers: Sequence[int]) -> None:
    """GpuFault for an array that is not where vectors of 16 bytes can be read."""
    together = 0
    for pointer in pointers:
        together |= pointer
    if together % 16:
        number, pointer = next((n, p) for n, p in enumerate(pointers) if p % 16)
        raise GpuFault(f"array {number} is at {pointer:#x}, which is no multiple of 16", where=name)


def check_shared(name: str, shared_bytes: int, most: int) -> None:
    """GpuProblem when the chip has less shared memory than a kernel wants."""
    if shared_bytes > most:
        raise GpuProblem(
            f"the kernel needs {shared_bytes} bytes of shared memory per block, but this GPU has {most}",
            where=name,
            fix="compile the program for this GPU",
        )
