"""Top-k on a GPU under emulation against the evaluator: rows of one tile, of several, and long lists."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.hlo.ir.types import array_shape as f
from tests.compiler.gpu.gpu_runner import ORDERS, assemble_kernel, assert_light, check_gpu
from tests.compiler.gpu.test_gpu_sorting import few_values
from tests.compiler.kernel_runner import instruction

FEW = ORDERS[1:3]


@pytest.mark.parametrize(
    ("dims", "k", "largest"),
    [
        ((5,), 5, True),
        ((3, 40), 1, False),
        ((2, 3, 300), 7, False),
        ((3, 9000), 5, True),
        ((5000,), 1500, False),
        ((2, 4500), 3000, True),
    ],
)
def test_equal_values_come_in_order_of_position(dims: tuple[int, ...], k: int, largest: bool) -> None:
    i = instruction("topk", f("f32", *dims), k=k, largest=largest)
    check_gpu(i, few_values(i), orders=FEW)


@pytest.mark.parametrize("dtype", ["u8", "bf16", "f8e5m2"])
def test_values_of_every_kind(dtype: str) -> None:
    i = instruction("topk", f(dtype, 2, 600), k=9, largest=True)
    check_gpu(i, few_values(i), orders=FEW[:1])


def test_tiles_keep_their_best_twice() -> None:
    i = instruction("topk", f("f32", 30000), k=1000, largest=True)
    check_gpu(i, [np.random.default_rng(3).standard_normal(30000).astype(np.float32)], orders=FEW[1:])


def test_code_is_light() -> None:
    assert_light(assemble_kernel(instruction("topk", f("bf16", 8, 50257), k=40, largest=True)), registers=64)
