"""Kernels of every emitter with one barrier removed (``python -m tests.compiler.gpu.planted_barriers [all]``).

Prints ``kind | which one was removed (0: none) | what became of it``: ``ok`` when all orders of threads gave the
evaluator's values all the same, else ``orders`` (they disagree, or threads diverged), ``values`` or ``crash``. Every
try is a process of its own: without a barrier, indices may be anything.
"""

from __future__ import annotations

import os
import sys
import zlib

import numpy as np

from shardc.compiler.gpu.kernel import emit_gpu_kernel
from shardc.native.gpu.emulated.coroutines import EmulatedCode, GridFault, new_emulated_module
from shardc.native.gpu.target import gpu_target
from shardc.native.llvm.target import host_target
from tests.compiler.gpu.gpu_kinds import KINDS, Kind, instruction_of
from tests.compiler.gpu.gpu_runner import run_gpu_kernel
from tests.compiler.gpu.test_gpu_every_kernel import arguments
from tests.compiler.kernel_runner import assert_close, expected

_WHOLE = EmulatedCode._suspend


class _Barriers:
    """Counts barriers as they are emitted, and leaves out number ``without`` (from 1 on)."""

    def __init__(self, without: int) -> None:
        self.count = 0
        whole = _WHOLE

        def suspend(code: EmulatedCode, b: object, state: str, kind: str) -> None:
            self.count += kind in ("barrier", "warp_barrier")
            if kind not in ("barrier", "warp_barrier") or self.count != without:
                whole(code, b, state, kind)

        EmulatedCode._suspend = suspend  # type: ignore[method-assign]


def outcome(kind: Kind, without: int) -> str:
    _Barriers(without)
    i = instruction_of(kind)
    given = arguments(i)
    try:
        results = run_gpu_kernel(i, given, in_place=dict(kind.in_place))
    except (AssertionError, GridFault):
        return f"{without} | orders"
    for got, wanted, shape in zip(results, expected(i, given), i.shape.leaves(), strict=True):
        try:
            assert_close(got, np.asarray(wanted), shape, kind.ulp)
        except AssertionError:
            return f"{without} | values"
    return f"{without} | ok"


def apart(kind: Kind, without: int) -> str:
    """`outcome` in a process of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.write(writer, outcome(kind, without).encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as told:
        return told.read() or f"{without} | crash"


def barriers_of(kind: Kind) -> int:
    """How many barriers the kernel's code has."""
    barriers = _Barriers(0)
    target, aliased = gpu_target("cuda-emulated"), frozenset(dict(kind.in_place))
    emit_gpu_kernel(new_emulated_module("count"), instruction_of(kind), "k", target, aliased)
    return barriers.count


def main(everything: bool) -> None:
    host_target()
    counts = [(kind, barriers_of(kind)) for kind in KINDS]
    with_barriers = [(kind, count) for kind, count in counts if count]
    chosen = with_barriers if everything else {k.emitter: (k, n) for k, n in with_barriers}.values()
    for kind, count in chosen:
        one = zlib.crc32(kind.name.encode()) % count + 1
        for without in range(count + 1) if everything else [one]:
            print(f"{kind.name} | {apart(kind, without)}", flush=True)


if __name__ == "__main__":
    main(len(sys.argv) > 1)
