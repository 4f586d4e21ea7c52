"""Cumulative windows: a running total gives the bits of the windows taken one by one."""

from __future__ import annotations

import numpy as np
import pytest

from shardc.hlo.evaluate import evaluate
from tests.compiler.checking import compiled_results, program

BODY = """
op {{ a = {0}[] parameter(0)
  b = {0}[] parameter(1)
  ROOT r = {0}[] {1}(a, b) }}
"""
TWO = """
op { a = f32[] parameter(0)
  n = s32[] parameter(1)
  b = f32[] parameter(2)
  m = s32[] parameter(3)
  c = f32[] subtract(b, a)
  k = s32[] subtract(n, m)
  ROOT r = (f32[], s32[]) tuple(c, k) }
"""


def windows(dims: tuple[int, ...], d: int, size: int, low: int, high: int) -> str:
    sizes = "x".join(str(size if k == d else 1) for k in range(len(dims)))
    pads = "x".join(f"{low}_{high}" if k == d else "0_0" for k in range(len(dims)))
    return f"window={{size={sizes} pad={pads}}}"


@pytest.mark.parametrize("dtype", ["f32", "bf16", "s8", "c64", "pred", "f64"])
@pytest.mark.parametrize(
    "dims, d", [((7,), 0), ((300,), 0), ((5, 33), 1), ((5, 33), 0), ((3, 4, 1), 1), ((2, 6, 50), 1)]
)
def test_one_pass_is_every_window(dtype: str, dims: tuple[int, ...], d: int) -> None:
    rng = np.random.default_rng(4)
    text = f"{dtype}[{','.join(map(str, dims))}]"
    opcodes = {"pred": ["xor", "or"], "c64": ["add"], "s8": ["multiply", "minimum"]}.get(dtype, ["add", "maximum"])
    one = "(1, 2)" if dtype == "c64" else "1"
    for opcode in opcodes:
        for low, high in ((dims[d] - 1, 0), (dims[d] + 1, 0), (0, dims[d] - 1)):
            size = max(low, high) + 1
            module = program(
                f"x = {text} parameter(0)\nz = {dtype}[] constant({one})\n"
                f"ROOT r = {text} reduce-window(x, z), {windows(dims, d, size, low, high)}, to_apply=op",
                BODY.format(dtype, opcode),
            )
            x = (rng.standard_normal(dims) * 3).astype(module.parameters[0].shape.dtype.numpy)
            (got,), (wanted,) = compiled_results(module, [x]), evaluate(module, [x])
            np.testing.assert_array_equal(got.view(np.uint8), wanted.view(np.uint8))


@pytest.mark.parametrize("low, high", [(256, 0), (0, 256)])
def test_what_follows_a_nan_is_one(low: int, high: int) -> None:
    module = program(
        f"x = f64[3,257] parameter(0)\nz = f64[] constant(-inf)\n"
        f"ROOT r = f64[3,257] reduce-window(x, z), {windows((3, 257), 1, 257, low, high)}, to_apply=op",
        BODY.format("f64", "maximum"),
    )
    x = np.random.default_rng(7).standard_normal((3, 257))
    x[1, 133], x[2, 256] = np.nan, np.nan
    given = x if low else x[:, ::-1]
    (got,) = compiled_results(module, [np.ascontiguousarray(given)])
    np.testing.assert_array_equal(got if low else got[:, ::-1], np.maximum.accumulate(x, axis=1))


def test_several_arrays_run_together() -> None:
    module = program(
        "x = f32[6,21] parameter(0)\ny = s32[6,21] parameter(1)\nz = f32[] constant(0.5)\nk = s32[] constant(9)\n"
        "ROOT r = (f32[6,21], s32[6,21]) reduce-window(x, y, z, k), window={size=6x1 pad=5_0x0_0}, to_apply=op",
        TWO,
    )
    rng = np.random.default_rng(6)
    args = [rng.standard_normal((6, 21)).astype(np.float32), rng.integers(-9, 9, (6, 21), np.int32)]
    for got, wanted in zip(compiled_results(module, args), evaluate(module, args), strict=True):
        np.testing.assert_array_equal(got, wanted)
