"""Kernels for every CPU, from plain x86-64 to AArch64: each family is made, and calls only what compiled code may."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.text.reader import read_hlo
from shardc.native.llvm.target import CPUS, named_target
from tests.compiler.kernel_runner import kernel_object, runs_here

PROGRAM = """HloModule families

sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
half { a = bf16[] parameter(0)  b = bf16[] parameter(1)  ROOT s = bf16[] add(a, b) }
ge { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = pred[] compare(a, b), direction=GE }
less { a = f16[] parameter(0)  b = f16[] parameter(1)  ROOT s = pred[] compare(a, b), direction=LT }

ENTRY main {
  x = f32[37,20] parameter(0)
  d = f64[37,20] parameter(1)
  h = f16[37,20] parameter(2)
  g = bf16[37,20] parameter(3)
  c = c64[37,20] parameter(4)
  n = s32[37,20] parameter(5)
  e = f8e4m3fn[37,20] parameter(6)
  w = f32[20,37] parameter(7)
  hw = f16[20,5] parameter(8)
  image = f32[2,9,9,3] parameter(9)
  filter = f32[3,3,3,8] parameter(10)
  square = f64[6,6] parameter(11)
  rows = s32[4,1] parameter(12)
  z = c128[6,6] parameter(13)
  state = u64[2] parameter(14)
  b8 = s8[37,20] parameter(15)
  u = u64[37,20] parameter(16)
  at = s32[] parameter(17)
  row = f32[4,20] parameter(18)
  block = f32[2,4,4,3] parameter(19)
  zero = f32[] constant(0)
  hzero = bf16[] constant(0)
  cdiv = c64[37,20] divide(c, c)
  clog = c64[37,20] log(c)
  ctanh = c64[37,20] tanh(c)
  zexp = c128[6,6] exponential(z)
  zpow = c128[6,6] power(z, z)
  cabs = f32[37,20] abs(c)
  hadd = f16[37,20] add(h, h)
  hexp = f16[37,20] exponential(h)
  gtan = bf16[37,20] tan(g)
  gmax = bf16[37,20] maximum(g, g)
  fsin = f32[37,20] sine(x)
  dlog = f64[37,20] log(d)
  dpow = f64[37,20] power(d, d)
  drem = f64[37,20] remainder(d, d)
  derf = f64[37,20] erf(d)
  hf = f32[37,20] convert(h)
  fh = f16[37,20] convert(x)
  dh = f16[37,20] convert(d)
  fg = bf16[37,20] convert(x)
  fe = f8e4m3fn[37,20] convert(x)
  eg = bf16[37,20] convert(e)
  fn = s32[37,20] convert(x)
  fu = u64[37,20] convert(d)
  uf = f32[37,20] convert(u)
  nh = f16[37,20] convert(n)
  reduced = f32[37,20] reduce-precision(x), exponent_bits=5, mantissa_bits=7
  mul = s8[37,20] multiply(b8, b8)
  div = u64[37,20] divide(u, u)
  pop = u64[37,20] popcnt(u)
  clz = s32[37,20] count-leading-zeros(n)
  shift = s8[37,20] shift-right-arithmetic(b8, b8)
  cmp = pred[37,20] compare(g, g), direction=LT
  sumr = f32[37] reduce(x, zero), dimensions={1}, to_apply=sum
  sumc = bf16[20] reduce(g, hzero), dimensions={0}, to_apply=half
  sumall = f32[] reduce(x, zero), dimensions={0,1}, to_apply=sum
  pool = f32[37,20] reduce-window(x, zero), window={size=3x3 pad=1_1x1_1}, to_apply=sum
  run = f32[37,20] reduce-window(x, zero), window={size=1x20 pad=0_0x19_0}, to_apply=sum
  t = f32[20,37] transpose(x), dimensions={1,0}
  th = f16[20,37] transpose(h), dimensions={1,0}
  dotf = f32[37,37] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  doth = f16[37,5] dot(h, hw), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  conv = f32[2,9,9,8] convolution(image, filter), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  sel = f32[2,9,9,3] select-and-scatter(image, block, zero), window={size=1x2x2x1 stride=1x2x2x1}, \
    select=ge, scatter=sum
  sorted = f16[37,20] sort(h), dimensions={1}, to_apply=less
  sc = f32[37,20] scatter(x, rows, row), update_window_dims={1}, inserted_window_dims={0}, \
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum
  ga = f32[4,20] gather(x, rows), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, \
    index_vector_dim=1, slice_sizes={1,20}
  ds = f32[3,20] dynamic-slice(x, at, at), dynamic_slice_sizes={3,20}
  dus = f32[37,20] dynamic-update-slice(x, row, at, at)
  pad = f32[40,22] pad(x, zero), padding=1_2x2_0
  rev = f32[37,20] reverse(x), dimensions={1}
  cat = f32[74,20] concatenate(x, x), dimensions={0}
  chol = f64[6,6] cholesky(square), lower=true
  tri = f64[6,6] triangular-solve(square, square), left_side=true, lower=true, unit_diagonal=false, \
    transpose_a=NO_TRANSPOSE
  fft = c64[37,11] fft(x), fft_type=RFFT, fft_length={20}
  iota = f16[37,20] iota(), iota_dimension=1
  ROOT all = (f32[37,20]) tuple(fsin)
}
"""


def kernels() -> dict[str, Instruction]:
    module = read_hlo(PROGRAM)
    skipped = ("parameter", "constant", "tuple")
    return {i.name: i for i in module.entry.instructions if i.opcode not in skipped}


FIRST = ("x86-64", "x86-64-v3", "aarch64")


@pytest.mark.parametrize("cpu", [pytest.param(c, marks=() if c in FIRST else pytest.mark.full) for c in sorted(CPUS)])
def test_every_family_is_made(cpu: str) -> None:
    found = kernels()
    assert len(found) == PROGRAM.split("hzero = ")[1].count(" = ") - 1
    for i in found.values():
        kernel_object(i, named_target(cpu, "linux"))


def test_what_runs_here() -> None:
    assert not runs_here(named_target("apple-m1", "macos")) or sys.platform == "darwin"


#: Files whose kernels all go through `compile_and_run`.
SUITES = (
    "test_kernels_elementwise", "test_kernels_loops", "test_kernels_updates", "test_kernels_windows",
    "test_kernels_linalg", "test_kernels_table", "test_cumulative", "test_topk_types", "test_property",
    "test_small_float_codes", "test_convolutions", "test_pooling", "test_alternate_loads",
)  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3", "x86-64-v4", "aarch64", "neoverse-v1"])
def test_kernel_tests_as_for_another_cpu(cpu: str, repository: Path) -> None:
    """All kernels of the suites are made for the CPU; where it is no more than this one, they also run so."""
    files = [str(repository / "tests" / "compiler" / f"{name}.py") for name in SUITES]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:xdist", *files]
    environment = {**os.environ, "SHARDC_TEST_CPU": cpu}
    done = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
