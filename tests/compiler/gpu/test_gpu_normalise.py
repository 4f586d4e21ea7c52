"""Row kernels on GPUs: reductions and what reads them, in registers where rows fit, else read again."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.compiler.gpu.launches import KernelLaunch
from shardc.compiler.gpu.reductions import row_kernel
from tests.compiler.gpu.gpu_runner import assemble_kernel, assert_light, check_gpu, emulated, kernel_ptx
from tests.compiler.gpu.reduction_texts import arguments, emitter_name, layer_norm, softmax


@pytest.mark.parametrize("dims", [(300, 2), (70, 17), (40, 128), (5, 1000), (3, 777), (2, 6000)])
@pytest.mark.parametrize("in_place", [None, {0: 0}])
def test_softmax(dims: tuple[int, int], in_place: dict[int, int] | None) -> None:
    text = softmax(*dims)
    assert emitter_name(text) == "row kernel"
    check_gpu(text, arguments(text), ulp=16, in_place=in_place)


@pytest.mark.parametrize("in_place", [None, {0: 0}])
@pytest.mark.parametrize("columns", [40001, 70000])
def test_long_rows_are_read_again(columns: int, in_place: dict[int, int] | None) -> None:
    """What is kept of them lies in the result's row, or in shared memory."""
    text = softmax(1, columns)
    check_gpu(text, arguments(text), ulp=16, in_place=in_place)


@pytest.mark.parametrize("dims", [(5, 37), (40, 64), (2, 1000)])
@pytest.mark.parametrize("in_place", [None, {0: 0}])
def test_rows_of_more_values_than_registers(
    monkeypatch: pytest.MonkeyPatch, dims: tuple[int, int], in_place: dict[int, int] | None
) -> None:
    """What the plan keeps lies in shared memory."""
    monkeypatch.setattr(row_kernel, "_WANTED", 0)
    monkeypatch.setattr(row_kernel, "_MOST", 0)
    text = softmax(*dims)
    (step,) = emulated(text)[1].steps
    assert isinstance(step, KernelLaunch)
    assert step.shape.shared_bytes >= 4 * dims[1]
    check_gpu(text, arguments(text), ulp=16, in_place=in_place)


@pytest.mark.parametrize("dims", [(33, 64), (3, 1000)])
def test_narrow_floats(dims: tuple[int, int]) -> None:
    text = softmax(*dims, "bf16")
    check_gpu(text, arguments(text), ulp=4)


@pytest.mark.parametrize("dims", [(33, 96), (4, 1500), (2, 20011)])
@pytest.mark.parametrize("in_place", [None, {0: 0}, {2: 2}, {2: 1}])
def test_layer_norm(dims: tuple[int, int], in_place: dict[int, int] | None) -> None:
    """One pass for several results; a value per row is overwritten by another when all have read it."""
    text = layer_norm(*dims)
    rng = np.random.default_rng(0)
    x = rng.standard_normal(dims).astype(np.float32)
    given = [x, rng.standard_normal(dims[1]).astype(np.float32), rng.standard_normal(dims[0]).astype(np.float32)]
    check_gpu(text, given, ulp=64, in_place=in_place)


def test_rows_of_several_dimensions_and_broadcasts_along_them() -> None:
    text = """HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[2,3,4,6] parameter(0)
  g = f32[4] parameter(1)
  zero = f32[] constant(0)
  s = f32[2,3] reduce(x, zero), dimensions={2,3}, to_apply=add
  sb = f32[2,3,4,6] broadcast(s), dimensions={0,1}
  gb = f32[2,3,4,6] broadcast(g), dimensions={2}
  d = f32[2,3,4,6] divide(x, sb)
  m = f32[2,3,4,6] multiply(d, gb)
  ROOT t = (f32[2,3,4,6], f32[2,3]) tuple(m, s)
}
"""
    check_gpu(text, [np.abs(a) + 1 for a in arguments(text)], ulp=32)


@pytest.mark.parametrize(("columns", "dtype"), [(128, "f32"), (1024, "bf16"), (4096, "f32"), (32768, "bf16")])
def test_rows_in_registers_are_read_once(columns: int, dtype: str) -> None:
    text = softmax(16384, columns, dtype)
    code = kernel_ptx(text).decode()
    elements = columns * (4 if dtype == "f32" else 2) // 16
    loads = code.count("ld.global")
    assert loads == code.count("ld.global.nc.v4")
    assert loads * 1024 >= elements  # every 16 bytes by one thread, of at most so many
    assert_light(assemble_kernel(text), 64)


@pytest.mark.parametrize("columns", [1000, 8192, 100000])
def test_layer_norms_need_few_registers(columns: int) -> None:
    assert_light(assemble_kernel(layer_norm(4096, columns)), 80)
