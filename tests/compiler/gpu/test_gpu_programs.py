"""Whole programs for GPUs under emulation, against the evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings

from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.ir import Module
from shardc.native.gpu.emulated.threads import FORWARD, ThreadOrder
from tests.compiler.checking import assert_close, random_arguments
from tests.compiler.gpu.program_runner import built, run
from tests.compiler.test_programs import CASES, HALF, donated, floats, module_of
from tests.compiler.test_random_programs import modules


def check(module: Module, tolerance: float = 2e-5, order: ThreadOrder = FORWARD) -> None:
    """Built, run with donated arguments apart from results and in their place, and compared."""
    arguments: Sequence[Any] = random_arguments(module)
    executable = built(module)
    wanted = evaluate(module, arguments)
    for shared in (False, True) if executable.aliases else (False,):
        (got,) = run(executable, [arguments], shared=shared, order=order)
        assert_close(got, wanted, tolerance)


@pytest.mark.parametrize("name", CASES)
def test_gpu_program(name: str) -> None:
    check(module_of(*CASES[name]), order=ThreadOrder.random(len(name)))


@pytest.mark.parametrize("name", HALF)
def test_gpu_program_in_half_precision(name: str) -> None:
    check(module_of(*HALF[name]), tolerance=0.05)


def test_gpu_program_with_a_donated_argument() -> None:
    check(module_of(donated, (floats(9), floats(9)), donate_argnums=(0,)))


@settings(max_examples=12, deadline=None, derandomize=True, print_blob=False)
@given(modules())
def test_random_gpu_programs(module: Module) -> None:
    check(module.with_(donors=tuple(range(len(module.parameters)))), tolerance=1e-4)
