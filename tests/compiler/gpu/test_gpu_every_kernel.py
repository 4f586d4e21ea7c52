"""Every op that is a kernel's concern, and every hero: under emulation against the evaluator, in four orders of threads,
and assembled for two chips without spills, within the hero's registers."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.compiler.gpu.kernel import HEROES
from shardc.compiler.gpu.samples import sample
from shardc.compiler.gpu.support import gpu_hero
from shardc.compiler.kernels.support import KERNELS
from shardc.hlo.ir import Instruction
from tests.compiler.gpu.gpu_runner import assemble_kernel, assert_light, check_gpu
from tests.compiler.kernel_runner import Array, random

OPS = [opcode for opcode, why in KERNELS.items() if not why]
MADE = [opcode for opcode in OPS if gpu_hero(opcode) is not None]
#: What the host computes, as the op matrix says.
ON_THE_HOST = {"fft"}
#: Units in the last place of the largest result, where the evaluator's functions or order of sums are not ours.
ULP = 8
#: Registers of a thread; double precision and long polynomials take the most.
REGISTERS = {"loop": 64, "sort": 64, "top-k": 64}
MOST_REGISTERS = 128


def arguments(i: Instruction) -> list[Array]:
    """Small numbers; indices within their array, positive definite matrices, triangles that are well conditioned."""
    found = [random(o.shape, n, low=0, high=4) for n, o in enumerate(i.operands)]
    if i.opcode == "cholesky":
        x = found[0].astype(np.float64)
        found[0] = (x @ x.swapaxes(-1, -2) + np.eye(x.shape[-1])).astype(np.float32)
    if i.opcode == "triangular-solve":
        found[0] = (found[0] / 9 + 2 * np.eye(found[0].shape[-1])).astype(np.float32)
    if i.opcode in ("batch-norm-inference", "batch-norm-grad"):
        found[-1 if i.opcode == "batch-norm-inference" else 3] **= 2
    return found


def test_only_what_is_named_runs_on_the_host() -> None:
    assert set(OPS) - set(MADE) == ON_THE_HOST


@pytest.mark.parametrize("opcode", MADE)
def test_op(opcode: str) -> None:
    i = sample(opcode)
    check_gpu(i, arguments(i), ulp=ULP)
    assert_light(assemble_kernel(i), REGISTERS.get(str(gpu_hero(opcode)), MOST_REGISTERS))


def test_every_hero_has_a_sample() -> None:
    assert {h.name for h in HEROES} == {gpu_hero(opcode) for opcode in MADE}
