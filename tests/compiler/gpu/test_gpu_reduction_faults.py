"""Reductions without one of their barriers: the orders of threads must tell."""

from __future__ import annotations

import pytest
from llvmlite import ir

from shardc.hlo.ir.ir import Instruction
from shardc.native.gpu.emulated.coroutines import EmulatedCode
from tests.compiler.gpu.gpu_runner import as_instruction, check_gpu
from tests.compiler.gpu.reduction_texts import layer_norm, reduced, softmax, totals
from tests.compiler.kernel_runner import random


def _nothing(self: EmulatedCode, b: ir.IRBuilder) -> None:
    pass


@pytest.mark.parametrize(
    ("what", "in_place"),
    [
        (reduced((2, 3000), [1]), {}),
        (reduced((300, 64), [0]), {}),
        (softmax(2, 3000), {}),
        (totals((2, 3000), 1), {}),
        (layer_norm(2, 3000), {2: 1}),
    ],
    ids=["rows", "columns", "softmax", "totals", "layer norm in place"],
)
def test_a_missing_barrier_is_seen(
    monkeypatch: pytest.MonkeyPatch, what: str | Instruction, in_place: dict[int, int]
) -> None:
    i = as_instruction(what)
    given = [random(o.shape, n) for n, o in enumerate(i.operands)]
    check_gpu(i, given, ulp=256, in_place=in_place)
    monkeypatch.setattr(EmulatedCode, "barrier", _nothing)
    with pytest.raises(AssertionError):
        check_gpu(i, given, ulp=256, in_place=in_place)
