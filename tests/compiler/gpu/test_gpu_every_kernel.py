"""Every op that is a kernel's concern and every kind of kernel: under emulation against the evaluator, in several
orders of threads, and assembled for two chips without spills, within so many registers."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.compiler.cpu.support import KERNELS
from shardc.compiler.gpu.function import GpuKernel
from shardc.compiler.gpu.kernel import KERNEL_EMITTERS, find_kernel_emitter
from shardc.compiler.gpu.samples import sample
from shardc.compiler.gpu.support import kernel_emitter_name
from shardc.hlo.ir.ir import Instruction
from shardc.native.gpu.emulated.coroutines import EmulatedCode
from shardc.native.gpu.target import gpu_target
from shardc.native.llvm.jit import new_module
from tests.compiler.gpu.gpu_kinds import KINDS, Kind, instruction_of
from tests.compiler.gpu.gpu_runner import ORDERS, assemble_kernel, assert_light, check_gpu
from tests.compiler.kernel_runner import Array, random

OPS = [opcode for opcode, why in KERNELS.items() if not why]
MADE = [opcode for opcode in OPS if kernel_emitter_name(opcode) is not None]
#: What the host computes, as the op matrix says.
ON_THE_HOST = {"fft"}
#: Units in the last place of the largest result, where the evaluator's functions or order of sums are not ours.
ULP = 8
#: Registers that a thread of an op's sample takes at most; products hold a tile of results.
REGISTERS, PRODUCT_REGISTERS = 64, 255


def arguments(i: Instruction) -> list[Array]:
    """Small numbers; indices within their array, positive definite matrices, triangles that are well conditioned."""
    found = [random(o.shape, n, low=0, high=8) for n, o in enumerate(i.operands)]
    if i.opcode == "cholesky":
        x = found[0].astype(np.float64)
        found[0] = (x @ x.swapaxes(-1, -2) + np.eye(x.shape[-1])).astype(found[0].dtype)
    if i.opcode == "triangular-solve":
        found[0] = (found[0] / 9 + 2 * np.eye(found[0].shape[-1])).astype(found[0].dtype)
    if i.opcode in ("batch-norm-inference", "batch-norm-grad"):
        found[-1 if i.opcode == "batch-norm-inference" else 3] **= 2
    return found


def maker(i: Instruction, in_place: dict[int, int] | None = None) -> str:
    """The emitter that takes an instruction."""
    emitter = find_kernel_emitter(GpuKernel(new_module("m"), i, "k", gpu_target("cuda"), frozenset(in_place or ())))
    return "" if emitter is None else emitter.name


def test_only_what_is_named_runs_on_the_host() -> None:
    assert set(OPS) - set(MADE) == ON_THE_HOST


@pytest.mark.parametrize("opcode", MADE)
def test_op(opcode: str) -> None:
    i = sample(opcode)
    check_gpu(i, arguments(i), ulp=ULP, orders=ORDERS[1:3])
    assert_light(assemble_kernel(i), PRODUCT_REGISTERS if maker(i) in ("product", "convolution") else REGISTERS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_kind(kind: Kind) -> None:
    i, in_place = instruction_of(kind), dict(kind.in_place)
    assert maker(i, in_place) == kind.emitter
    check_gpu(i, arguments(i), ulp=kind.ulp, in_place=in_place)
    assert_light(assemble_kernel(i, in_place=in_place), kind.registers)


def test_a_sort_without_barriers_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the orders of threads are for."""
    monkeypatch.setattr(EmulatedCode, "barrier", lambda code, b: None)
    i = sample("sort")
    with pytest.raises(AssertionError, match="order of threads"):
        check_gpu(i, arguments(i), orders=ORDERS)


def test_every_kernel_form_has_kinds() -> None:
    assert {h.name for h in KERNEL_EMITTERS} == {k.emitter for k in KINDS}
