"""Ops that a lowering pass writes as simpler ones: compiled code against the evaluator."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from shardc.compiler.emit.cpu_executable import build_executable
from shardc.compiler.load.step import run_single
from shardc.compiler.lower.expand.ops import EXPANSIONS
from shardc.hlo.errors import RunError
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.opset import OPS
from shardc.native.llvm.target import host_target
from tests.compiler.checking import CHECKED, SUM, check, program

RNG = np.random.default_rng(5)


def floats(*dims: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(dims).astype(dtype)


RAGGED = {
    "rows": ("f32[11,4]", "f32[3,4,5]", "s32[3]", "f32[11,5]", "lhs_contracting_dims={1}, rhs_contracting_dims={1}, "
             "lhs_ragged_dims={0}, rhs_group_dims={0}", [[2, 5, 3]]),
    "rows of batches": (
        "f32[2,6,4]", "f32[2,4,3,5]", "s32[2,3]", "f32[2,6,5]", "lhs_contracting_dims={2}, rhs_contracting_dims={1}, "
        "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_ragged_dims={1}, rhs_group_dims={2}", [[[1, 2, 3], [0, 4, 0]]]),
    "contracted": ("f32[4,9]", "f32[9,5]", "s64[3]", "f32[3,4,5]", "lhs_contracting_dims={1}, "
                   "rhs_contracting_dims={0}, lhs_ragged_dims={1}", [[0, 4, 3]]),
    "contracted in batches": (
        "bf16[2,4,9]", "bf16[2,9,5]", "s32[2,2]", "f32[2,2,4,5]", "lhs_contracting_dims={2}, "
        "rhs_contracting_dims={1}, lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_ragged_dims={2}", [[[4, 5], [1, 2]]]),
    "batch": ("f32[5,2,3]", "f32[5,3,4]", "s32[2]", "f32[5,2,4]", "lhs_batch_dims={0}, rhs_batch_dims={0}, "
              "lhs_contracting_dims={2}, rhs_contracting_dims={1}, lhs_ragged_dims={0}", [[1, 2]]),
}  # fmt: skip


@pytest.mark.parametrize("case", list(RAGGED))
def test_ragged_dot(case: str) -> None:
    lhs, rhs, sizes, result, attributes, values = RAGGED[case]
    module = program(
        f"x = {lhs} parameter(0)\ny = {rhs} parameter(1)\ng = {sizes} parameter(2)\n"
        f"ROOT r = {result} ragged-dot(x, y, g), {attributes}"
    )
    args = [floats(*p.shape.dims, dtype=p.shape.dtype.numpy) for p in module.parameters[:2]]
    (out,) = check(module, [*args, np.array(values[0], module.parameters[2].shape.dtype.numpy)])
    assert np.any(out)


def test_scaled_dot() -> None:
    module = program(
        "x = f8e4m3fn[4,8] parameter(0)\ny = f8e5m2[8,6] parameter(1)\na = f8e8m0fnu[4,2] parameter(2)\n"
        "b = bf16[4,6] parameter(3)\n"
        "ROOT r = f32[4,6] scaled-dot(x, y, a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )
    kinds = [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e8m0fnu, ml_dtypes.bfloat16]
    dims = [(4, 8), (8, 6), (4, 2), (4, 6)]
    check(module, [np.abs(floats(*d)).astype(k) for d, k in zip(dims, kinds, strict=True)])


SCAN = """
step { a = f32[3] parameter(0)
  n = s32[3] parameter(1)
  c = f32[3] parameter(2)
  t = f32[] parameter(3)
  f = f32[3] convert(n)
  p = f32[3] multiply(a, c)
  d = f32[3] add(p, f)
  one = f32[] constant(1)
  u = f32[] add(t, one)
  uu = f32[3] broadcast(u), dimensions={}
  o = f32[3] multiply(d, uu)
  ROOT r = (f32[3], f32[3], f32[]) tuple(o, d, u) }
"""


@pytest.mark.parametrize("reverse", ["true", "false"])
@pytest.mark.parametrize("size", [1, 4])
def test_scan(reverse: str, size: int) -> None:
    module = program(
        f"x = f32[3,{size}] parameter(0)\nn = s32[3,{size}] parameter(1)\nc = f32[3] parameter(2)\n"
        f"t = f32[] parameter(3)\nROOT s = (f32[3,{size}], f32[3], f32[]) scan(x, n, c, t), dimensions={{1}}, "
        f"to_apply=step, is_reverse={reverse}, num_carries=2",
        before=SCAN,
    )
    check(module, [floats(3, size), np.arange(3 * size, dtype=np.int32).reshape(3, size), floats(3), floats()])


@pytest.mark.parametrize("target", ["s8", "u4", "s32", "f16"])
@pytest.mark.parametrize("source, random", [("f32", "u32"), ("bf16", "u16"), ("f64", "u64"), ("f16", "u8")])
def test_stochastic_convert(source: str, random: str, target: str) -> None:
    module = program(
        f"x = {source}[400] parameter(0)\nn = {random}[400] parameter(1)\n"
        f"ROOT r = {target}[400] stochastic-convert(x, n)"
    )
    kind = module.parameters[0].shape.dtype.numpy
    bits = module.parameters[1].shape.dtype.numpy
    x = np.concatenate([floats(395) * 40, [np.nan, np.inf, -np.inf, 3e4, -0.0]]).astype(kind)
    (out,) = check(module, [x, RNG.integers(0, np.iinfo(bits).max, 400, bits, endpoint=True)])
    if target == "s32" and source == "f64":
        down = np.trunc(x[:395])
        assert np.all(np.abs(out[:395] - down) <= 1) and 100 < np.sum(out[:395] != down) < 300


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "f16", "s8", "u8", "s64", "u32", "s4"])
def test_uniform_numbers_are_in_range_and_the_evaluators(dtype: str) -> None:
    low, high = (-2, 5) if dtype[0] != "u" else (2, 5)
    module = program(
        f"a = {dtype}[] constant({low})\nb = {dtype}[] constant({high})\n"
        f"x = {dtype}[30,40] rng(a, b), distribution=rng_uniform\n"
        f"y = {dtype}[30,40] rng(a, b), distribution=rng_uniform\n"
        f"ROOT r = ({dtype}[30,40], {dtype}[30,40]) tuple(x, y)"
    )
    x, y = (v.astype(np.float64) for v in check(module))
    assert low <= x.min() and x.max() < high and np.any(x != y)
    assert abs(x.mean() - (low + high - (dtype[0] in "su")) / 2) < 0.3


def test_normal_numbers_and_pred_and_state() -> None:
    module = program(
        "m = f32[] parameter(0)\nd = f32[] parameter(1)\nx = f32[10000] rng(m, d), distribution=rng_normal\n"
        "no = pred[] constant(false)\nyes = pred[] constant(true)\n"
        "p = pred[1000] rng(no, yes), distribution=rng_uniform\n"
        "s = u64[2] rng-get-and-update-state(), delta=3\nROOT r = (f32[10000], pred[1000], u64[2]) tuple(x, p, s)"
    )
    x, p, _ = check(module, [np.float32(3), np.float32(2)])
    assert abs(x.mean() - 3) < 0.1 and abs(x.std() - 2) < 0.1 and 400 < p.sum() < 600


def test_sizes_known_in_advance_are_checked() -> None:
    module = program(
        "x = f32[2,6] parameter(0)\na = s32[] parameter(1)\nb = s32[] parameter(2)\n"
        "y = f32[3,4] dynamic-reshape(x, a, b)\nn = s32[] get-dimension-size(y), dimensions={1}\n"
        "z = f32[3,<=4] set-dimension-size(y, n), dimensions={1}\nm = s32[] get-dimension-size(z), dimensions={1}\n"
        "ROOT r = (f32[3,4], s32[]) tuple(y, m)"
    )
    x = floats(2, 6)
    executable = build_executable(module, CHECKED, host_target())
    args = [x, np.int32(3), np.int32(4)]
    got = run_single(executable, args)
    np.testing.assert_array_equal(got[0], evaluate(module, args)[0])
    assert got[1] == 4
    with pytest.raises(RunError, match="dimension_size"):
        run_single(executable, [x, np.int32(4), np.int32(3)])


def test_expanded_ops_in_loops_and_called_computations() -> None:
    body = """
body { t = (s32[], f32[6,4]) parameter(0)
  n = s32[] get-tuple-element(t), index=0
  x = f32[6,4] get-tuple-element(t), index=1
  w = f32[2,4,4] constant({{{1,0,0,0},{0,2,0,0},{0,0,1,0},{0,0,0,1}},{{0,1,0,0},{1,0,0,0},{0,0,0,3},{0,0,1,0}}})
  g = s32[2] constant({2,3})
  y = f32[6,4] ragged-dot(x, w, g), lhs_contracting_dims={1}, rhs_contracting_dims={1}, \
lhs_ragged_dims={0}, rhs_group_dims={0}
  one = s32[] constant(1)
  next = s32[] add(n, one)
  ROOT r = (s32[], f32[6,4]) tuple(next, y) }
condition { t = (s32[], f32[6,4]) parameter(0)
  n = s32[] get-tuple-element(t), index=0
  three = s32[] constant(3)
  ROOT c = pred[] compare(n, three), direction=LT }
"""
    module = program(
        "x = f32[6,4] parameter(0)\nz = s32[] constant(0)\ni = (s32[], f32[6,4]) tuple(z, x)\n"
        "w = (s32[], f32[6,4]) while(i), condition=condition, body=body\n"
        "ROOT r = f32[6,4] get-tuple-element(w), index=1",
        SUM + body,
    )
    (out,) = check(module, [floats(6, 4)])
    assert not out[5].any() and out[4].any()


def test_the_table_names_ops() -> None:
    assert set(EXPANSIONS) <= set(OPS)


@pytest.mark.parametrize(
    "source, target",
    [
        ("f32[4,6]{0,1}", "f32[6,4]{1,0}"),
        ("f32[4,6]{1,0}", "f32[3,8]{0,1}"),
        ("f32[2,3,4]{0,2,1}", "s32[4,6]{0,1}"),
        ("s32[4,6]{0,1}", "u8[3,4,8]{1,2,0}"),
        ("u8[8,4]{0,1}", "f16[2,8]{0,1}"),
        ("f32[6]", "f32[3,2]"),
    ],
)
def test_bitcast_reads_memory_in_another_layout(source: str, target: str) -> None:
    """Of a value that lies so: a parameter of this layout, copied as XLA's layout pass does."""
    module = program(f"x = {source} parameter(0)\nc = {source} copy(x)\nROOT r = {target} bitcast(c)")
    (p,) = module.parameters
    (out,) = check(module, [np.arange(p.shape.size).reshape(p.shape.dims).astype(p.shape.dtype.numpy)])
    assert out.nbytes == p.shape.nbytes


def test_fusions_of_another_compiler_are_taken_apart() -> None:
    body = """
inner { a = f32[4] parameter(0)
  ROOT n = f32[4] negate(a) }
fused { t = (f32[4], s32[2]) parameter(0)
  u = f32[4] parameter(1)
  a = f32[4] get-tuple-element(t), index=0
  s = s32[2] get-tuple-element(t), index=1
  i = f32[4] fusion(a), kind=kLoop, calls=inner
  d = f32[4] add(i, u)
  p = f32[4] copy(u)
  ROOT r = (f32[4], s32[2], f32[4]) tuple(d, s, p) }
"""
    module = program(
        "x = f32[4] parameter(0)\ny = s32[2] parameter(1)\nt = (f32[4], s32[2]) tuple(x, y)\n"
        "ROOT f = (f32[4], s32[2], f32[4]) fusion(t, x), kind=kLoop, calls=fused",
        body,
    )
    check(module)


def test_convolution_without_spatial_dimensions_is_a_product() -> None:
    text = "x = f32[3,4] parameter(0)\ny = f32[4,5] parameter(1)\n"
    check(program(text + "ROOT r = f32[3,5] convolution(x, y), dim_labels=bf_io->bf"))
