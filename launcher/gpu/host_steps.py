"""What the host does in a step on a GPU: kernels that GPUs have no code for, on copies of their operands."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shardc.collectives.call.memory import aligned_bytes
from shardc.collectives.gpu.places import BufferPlaces
from shardc.compiler.gpu_program import HostStep
from shardc.launcher.gpu.memory import Block, GpuContext

__all__ = ["HostSteps"]


class HostSteps:
    """Runs `HostStep`; ``kernels`` are ``void f(ptr* operands, ptr* results, i32 device)`` by symbol."""

    def __init__(self, context: GpuContext, kernels: Mapping[str, Callable[..., Any]]) -> None:
        self._context, self._kernels = context, kernels
        self._blocks: dict[HostStep, tuple[list[Block], list[Block]]] = {}

    def run(self, step: HostStep, device: int, places: BufferPlaces) -> None:
        """Run ``step`` for ``device``, whose memory ``places`` are."""
        operands, results = self._memory(step)
        self._context.download([(places.address(r), b) for r, b in zip(step.operands, operands, strict=True)])
        self._kernels[step.symbol](_table(operands), _table(results), device)
        for ref, block in zip(step.results, results, strict=True):
            self._context.upload(places.address(ref), block)

    def _memory(self, step: HostStep) -> tuple[list[Block], list[Block]]:
        """The host's copies of a step's operands and results."""
        if step not in self._blocks:
            operands = [aligned_bytes(r.nbytes) for r in step.operands]
            # A result may lie where an operand does: so it does here, and what a kernel leaves alone stays.
            own = dict(zip(step.operands, operands, strict=True))
            self._blocks[step] = operands, [own.get(r, aligned_bytes(r.nbytes)) for r in step.results]
        return self._blocks[step]


def _table(blocks: Sequence[Block]) -> Any:
    addresses = [int(np.asarray(b).ctypes.data) for b in blocks]
    return (ctypes.c_void_p * max(1, len(blocks)))(*addresses)
