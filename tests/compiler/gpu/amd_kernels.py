"""Kernels of every emitter as one object for an AMD GPU (``python -m tests.compiler.gpu.amd_kernels [all]``).

Prints a line per kernel. A process of its own, since LLVM ends it where it cannot lower something.
"""

from __future__ import annotations

import sys

from shardc.compiler.gpu.kernel import emit_gpu_kernel
from shardc.compiler.gpu.launches import KernelLaunch
from shardc.native.gpu.amdgpu import emit_amdgpu, new_amdgpu_module
from shardc.native.gpu.target import gpu_target
from tests.compiler.gpu.gpu_kinds import KINDS, instruction_of


def main(everything: bool) -> None:
    target = gpu_target("rocm:gfx90a")
    module = new_amdgpu_module("kernels", target)
    kinds = KINDS if everything else {k.emitter: k for k in reversed(KINDS)}.values()
    launched = []
    for number, kind in enumerate(kinds):
        launches = emit_gpu_kernel(module, instruction_of(kind), f"k{number}", target, frozenset(dict(kind.in_place)))
        launched += [(kind, step.symbol) for step in launches.steps if isinstance(step, KernelLaunch)]
    code = emit_amdgpu(module, target)
    assert code.startswith(b"\x7fELF")
    for kind, symbol in launched:
        assert f"{symbol}.kd".encode() in code, symbol
        print(f"{kind.emitter}: {kind.name}: {symbol}")


if __name__ == "__main__":
    main(len(sys.argv) > 1)
