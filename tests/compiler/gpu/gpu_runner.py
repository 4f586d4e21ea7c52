"""Compile one instruction's GPU kernel, run it under emulation in several orders of its threads, or assemble it.

Every run starts from other garbage in results and scratch memory, has guard bytes around every array, and must leave
operands alone; all runs must agree to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shardc.compiler.gpu.kernel import emit_gpu_kernel
from shardc.compiler.gpu.launches import Fill, LaunchArray, Launches
from shardc.compiler.tuning import DEFAULT, Tuning
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.text.reader import read_hlo
from shardc.native.gpu.emulated.coroutines import (
    FORWARD,
    REVERSE,
    EmulatedModule,
    ThreadOrder,
    compile_emulated,
    load_emulated,
    new_emulated_module,
)
from shardc.native.gpu.nvptx import emit_ptx, new_nvptx_module
from shardc.native.gpu.target import gpu_target
from tests.compiler.kernel_runner import assert_close, expected, fusion

if TYPE_CHECKING:
    from shardc.native.gpu.assemble import Usage

Array = np.ndarray[Any, Any]

#: Orders that every kernel runs in.
ORDERS = (FORWARD, REVERSE, ThreadOrder("random", 1), ThreadOrder("random", 2))
#: Guard bytes on both sides of an array; a multiple of its alignment.
_GUARD, _ALIGNMENT = 256, 256
_GUARD_BYTE = 0xA5
#: What memory holds before it is written, by run.
_GARBAGE = (0xFF, 0x01, 0x7B, 0x00)


class Place:
    """Memory of ``nbytes`` with guards around it; ``skew`` moves its start off the widest alignment."""

    def __init__(self, nbytes: int, garbage: int = 0, skew: int = 16) -> None:
        self._raw = np.full(nbytes + 2 * _GUARD + _ALIGNMENT, _GUARD_BYTE, np.uint8)
        self._start = _GUARD + (-(self._raw.ctypes.data + _GUARD)) % _ALIGNMENT + skew
        self.bytes = self._raw[self._start : self._start + nbytes]
        self.bytes[:] = garbage
        self.address = self.bytes.ctypes.data if nbytes else self._raw.ctypes.data + self._start

    def check(self, what: str) -> None:
        """Nobody wrote outside."""
        end = self._start + self.bytes.size
        outside = np.concatenate([self._raw[: self._start], self._raw[end:]])
        assert (outside == _GUARD_BYTE).all(), f"{what}: bytes around the array were overwritten"


def as_instruction(what: Instruction | str) -> Instruction:
    """An instruction, or HLO text whose entry becomes one fused kernel."""
    return what if isinstance(what, Instruction) else fusion(read_hlo(what).entry)


def emulated(
    what: Instruction | str, in_place: Mapping[int, int] | None = None, tuning: Tuning = DEFAULT, arch: str = "sm_80"
) -> tuple[EmulatedModule, Launches]:
    """The kernel as code for the emulation, and its launches."""
    module = new_emulated_module("test")
    target = gpu_target(f"cuda-emulated:{arch}")
    launches = emit_gpu_kernel(module, as_instruction(what), "k", target, frozenset(in_place or ()), tuning)
    return load_emulated([compile_emulated(module)]), launches


def run_gpu_kernel(
    what: Instruction | str,
    arguments: Sequence[Any],
    *,
    in_place: Mapping[int, int] | None = None,
    orders: Sequence[ThreadOrder] = ORDERS,
    tuning: Tuning = DEFAULT,
    device: int = 0,
    exact: bool = True,
    arch: str = "sm_80",
) -> list[Array]:
    """Results of the kernel under emulation, of the first order.

    ``in_place`` maps operands to the results whose memory they share. With ``exact`` all orders must give the same
    bits; without, the same up to rounding (for atomics on floats).
    """
    i = as_instruction(what)
    module, launches = emulated(i, in_place, tuning, arch)
    runs = [
        _run(i, module, launches, arguments, in_place or {}, order, device, _GARBAGE[n % len(_GARBAGE)])
        for n, order in enumerate(orders)
    ]
    for order, results in zip(orders[1:], runs[1:], strict=True):
        for n, (first, other, shape) in enumerate(zip(runs[0], results, i.shape.leaves(), strict=True)):
            if exact:
                same = first.tobytes() == other.tobytes()
                assert same, (
                    f"result {n} depends on the order of threads ({orders[0]} and {order}), or is not all written"
                )
            else:
                assert_close(other, first, shape, 64)
    return runs[0]


def _run(
    i: Instruction,
    module: EmulatedModule,
    launches: Launches,
    arguments: Sequence[Any],
    in_place: Mapping[int, int],
    order: ThreadOrder,
    device: int,
    garbage: int,
) -> list[Array]:
    shapes = [o.shape for o in i.operands]
    given = [np.ascontiguousarray(a, s.dtype.numpy).reshape(s.dims) for a, s in zip(arguments, shapes, strict=True)]
    operands = [Place(a.nbytes) for a in given]
    for place, a in zip(operands, given, strict=True):
        place.bytes[:] = a.reshape(-1).view(np.uint8)
    results = [Place(s.nbytes, garbage) for s in i.shape.leaves()]
    for operand, result in in_place.items():
        results[result] = operands[operand]
    scratch = Place(launches.scratch_bytes, garbage, skew=0)

    def address(a: LaunchArray) -> int:
        places = {"operand": operands, "result": results}.get(a.role)
        return scratch.address + a.index if places is None else places[a.index].address

    for step in launches.steps:
        if isinstance(step, Fill):
            target = (
                scratch.bytes[step.place.index :] if step.place.role == "scratch" else results[step.place.index].bytes
            )
            target[: step.nbytes] = step.byte
        else:
            module.launch(step.symbol, step.shape, [address(a) for a in step.arguments], device, order)
    for n, (place, a) in enumerate(zip(operands, given, strict=True)):
        place.check(f"operand {n}")
        if n not in in_place:
            assert place.bytes.tobytes() == a.tobytes(), f"operand {n} was changed"
    for n, place in enumerate(results):
        place.check(f"result {n}")
    scratch.check("scratch")
    return [p.bytes.view(s.dtype.numpy).reshape(s.dims).copy() for p, s in zip(results, i.shape.leaves(), strict=True)]


def check_gpu(
    what: Instruction | str,
    arguments: Sequence[Any],
    *,
    ulp: float = 0,
    in_place: Mapping[int, int] | None = None,
    **options: Any,
) -> None:
    """The kernel under emulation and the evaluator agree: exactly, or within ``ulp`` units of the largest magnitude."""
    i = as_instruction(what)
    wanted = expected(i, list(arguments))
    got = run_gpu_kernel(i, arguments, in_place=in_place, **options)
    for g, w, s in zip(got, wanted, i.shape.leaves(), strict=True):
        assert_close(g, np.asarray(w), s, ulp)


def kernel_ptx(
    what: Instruction | str, arch: str = "sm_90", in_place: Mapping[int, int] | None = None, tuning: Tuning = DEFAULT
) -> bytes:
    """The kernel as PTX."""
    target = gpu_target(f"cuda:{arch}")
    module = new_nvptx_module("test", target)
    emit_gpu_kernel(module, as_instruction(what), "k", target, frozenset(in_place or ()), tuning)
    return emit_ptx(module, target)


def assemble_kernel(
    what: Instruction | str,
    archs: Sequence[str] = ("sm_80", "sm_90"),
    in_place: Mapping[int, int] | None = None,
    tuning: Tuning = DEFAULT,
) -> dict[str, dict[str, Usage]]:
    """What each function of the kernel takes of a chip, by architecture and symbol."""
    from shardc.native.gpu.assemble import assemble

    return {arch: dict(assemble(kernel_ptx(what, arch, in_place, tuning), arch).kernels) for arch in archs}


def assert_light(usage: Mapping[str, Mapping[str, Usage]], registers: int) -> None:
    """No spills anywhere, and at most so many registers."""
    assert usage
    for arch, kernels in usage.items():
        assert kernels
        for symbol, u in kernels.items():
            assert u.spill_stores == u.spill_loads == 0, f"{symbol} spills on {arch}: {u}"
            assert u.registers <= registers, f"{symbol} takes {u.registers} registers on {arch}, at most {registers}"
