"""Modules of kernels become code in threads, while more of them are made."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from llvmlite import ir

from shardc.native.gpu.assemble import assemble
from shardc.native.gpu.images import gpu_image, new_gpu_module
from shardc.native.gpu.problems import GpuProblem
from shardc.native.gpu.runtime import Image
from shardc.native.gpu.target import GpuTarget

__all__ = ["Code", "GpuCompilation"]

#: LLVM instructions in a module before the next kernels get another.
_WEIGHT = 1200

#: An image, and the PTX that it was assembled from, if it was.
Code = tuple[Image, bytes]


class GpuCompilation:
    """The modules of one program. Which kernel is where depends on the kernels alone.

    Example: ``with GpuCompilation("step", target, threads=2) as c: emit(c.module(), ...); images = c.codes()``.
    """

    def __init__(self, name: str, target: GpuTarget, threads: int, assemblers: bool = True) -> None:
        self._name, self._target, self._assembled = name, target, assemblers and target.kind == "nvptx"
        self._helpers = ThreadPoolExecutor(threads - 1) if threads > 1 else None
        self._current: ir.Module | None = None
        self._begun: list[tuple[ir.Module, Future[Code] | None]] = []

    def module(self) -> ir.Module:
        """Where the next kernel goes."""
        if self._current is None or _weight(self._current) >= _WEIGHT:
            self._complete()
            self._current = new_gpu_module(self._name, self._target)
        return self._current

    def _complete(self) -> None:
        """Nothing comes to the current module any more."""
        module, self._current = self._current, None
        if module is not None and _weight(module):
            future = None if self._helpers is None else self._helpers.submit(self._compiled, module)
            self._begun.append((module, future))

    def codes(self) -> list[Code]:
        """The code of all modules, in order."""
        self._complete()
        made: list[Code] = []
        for module, future in reversed(self._begun):
            if future is None or future.cancel():  # not begun: this thread has nothing else to do
                made.append(self._compiled(module))
            else:
                made.append(future.result())
        return made[::-1]

    def _compiled(self, module: ir.Module) -> Code:
        image = gpu_image(module, self._target)
        if not self._assembled:
            return image, b""
        try:
            cubin = assemble(image.data, self._target.arch)
        except GpuProblem:  # no assembler here: the driver assembles it when it is loaded
            return image, b""
        return Image("cubin", cubin.data), image.data

    def __enter__(self) -> GpuCompilation:
        return self

    def __exit__(self, *problem: object) -> None:
        if self._helpers is not None:
            self._helpers.shutdown(cancel_futures=True)


def _weight(module: ir.Module) -> int:
    return sum(len(b.instructions) for f in module.functions for b in f.blocks)
