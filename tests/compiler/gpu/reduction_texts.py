"""Kernels that reduce, as HLO, for the tests of reductions on GPUs; who makes them, and arguments for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardc.compiler.gpu.function import GpuKernel
from shardc.compiler.gpu.kernel import find_kernel_emitter
from shardc.hlo.ir.ir import Instruction
from shardc.hlo.text.reader import read_hlo
from shardc.native.gpu.emulated.coroutines import new_emulated_module
from shardc.native.gpu.target import gpu_target
from tests.compiler.gpu.gpu_runner import as_instruction
from tests.compiler.kernel_runner import random

__all__ = ["REDUCERS", "arguments", "emitter_name", "layer_norm", "reduced", "root_of", "softmax", "totals"]

#: Reducers whose order matters: the last number that is no NaN; the first greatest, or NaN, with its position.
REDUCERS = """
last { last.a = f32[] parameter(0)
  last.b = f32[] parameter(1)
  last.n = pred[] compare(last.b, last.b), direction=NE
  ROOT last.r = f32[] select(last.n, last.a, last.b) }
first { first.a = f32[] parameter(0)
  first.i = s32[] parameter(1)
  first.b = f32[] parameter(2)
  first.j = s32[] parameter(3)
  first.n = pred[] compare(first.a, first.a), direction=EQ
  first.g = pred[] compare(first.b, first.a), direction=GT
  first.m = pred[] compare(first.b, first.b), direction=NE
  first.o = pred[] or(first.g, first.m)
  first.t = pred[] and(first.n, first.o)
  first.v = f32[] select(first.t, first.b, first.a)
  first.k = s32[] select(first.t, first.j, first.i)
  ROOT first.r = (f32[], s32[]) tuple(first.v, first.k) }
"""


def _one_op(name: str, opcode: str, dtype: str) -> str:
    return (
        f"{name} {{ {name}.a = {dtype}[] parameter(0)\n{name}.b = {dtype}[] parameter(1)\n"
        f"ROOT {name}.c = {dtype}[] {opcode}({name}.a, {name}.b) }}\n"
    )


def _dims(sizes: Sequence[int]) -> str:
    return ",".join(map(str, sizes))


def reduced(dims: Sequence[int], over: Sequence[int], dtype: str = "f32", opcode: str = "add", init: str = "0") -> str:
    """``opcode`` of an array over some dimensions."""
    kept = [n for d, n in enumerate(dims) if d not in over]
    return f"""HloModule m
{_one_op("op", opcode, dtype)}
ENTRY main {{
  x = {dtype}[{_dims(dims)}] parameter(0)
  z = {dtype}[] constant({init})
  ROOT r = {dtype}[{_dims(kept)}] reduce(x, z), dimensions={{{_dims(over)}}}, to_apply=op
}}
"""


def softmax(rows: int, columns: int, dtype: str = "f32") -> str:
    """Softmax of rows."""
    full, row = f"{dtype}[{rows},{columns}]", f"{dtype}[{rows}]"
    return f"""HloModule m
{_one_op("add", "add", dtype)}{_one_op("most", "maximum", dtype)}
ENTRY main {{
  x = {full} parameter(0)
  low = {dtype}[] constant(-inf)
  zero = {dtype}[] constant(0)
  m = {row} reduce(x, low), dimensions={{1}}, to_apply=most
  mb = {full} broadcast(m), dimensions={{0}}
  d = {full} subtract(x, mb)
  e = {full} exponential(d)
  s = {row} reduce(e, zero), dimensions={{1}}, to_apply=add
  sb = {full} broadcast(s), dimensions={{0}}
  ROOT p = {full} divide(e, sb)
}}
"""


def layer_norm(rows: int, columns: int) -> str:
    """Normalised rows with a gain per column, their means, and their sums of squares plus a value per row."""
    full, row, column = f"f32[{rows},{columns}]", f"f32[{rows}]", f"f32[{columns}]"
    return f"""HloModule m
{_one_op("add", "add", "f32")}
ENTRY main {{
  x = {full} parameter(0)
  g = {column} parameter(1)
  old = {row} parameter(2)
  zero = f32[] constant(0)
  part = f32[] constant({1 / columns})
  small = f32[] constant(1e-5)
  t = {row} reduce(x, zero), dimensions={{1}}, to_apply=add
  parts = {row} broadcast(part), dimensions={{}}
  mean = {row} multiply(t, parts)
  mb = {full} broadcast(mean), dimensions={{0}}
  d = {full} subtract(x, mb)
  q = {full} multiply(d, d)
  v = {row} reduce(q, zero), dimensions={{1}}, to_apply=add
  w = {row} multiply(v, parts)
  eps = {row} broadcast(small), dimensions={{}}
  we = {row} add(w, eps)
  n = {row} rsqrt(we)
  nb = {full} broadcast(n), dimensions={{0}}
  y = {full} multiply(d, nb)
  gb = {full} broadcast(g), dimensions={{1}}
  o = {full} multiply(y, gb)
  last = {row} add(v, old)
  ROOT out = ({full}, {row}, {row}) tuple(o, mean, last)
}}
"""


def arguments(text: str, seed: int = 0) -> list[np.ndarray]:
    """Random arrays for the parameters."""
    return [random(o.shape, seed + n) for n, o in enumerate(as_instruction(text).operands)]


def emitter_name(what: Instruction | str) -> str:
    """The name of who makes a kernel."""
    kernel = GpuKernel(new_emulated_module("m"), as_instruction(what), "k", gpu_target("cuda-emulated"))
    found = find_kernel_emitter(kernel)
    assert found is not None
    return found.name


def root_of(text: str) -> Instruction:
    """The last instruction alone, over parameters."""
    root = read_hlo(text).entry.root
    operands = [Instruction("parameter", o.shape, attrs={"index": n}) for n, o in enumerate(root.operands)]
    return root.replace(operands=tuple(operands))


def totals(
    dims: tuple[int, ...], d: int, dtype: str = "f32", opcode: str = "add", *, backwards: bool = False
) -> Instruction:
    """``opcode`` of all elements up to each (``backwards``: from each on) along ``d``, from an initial value."""
    size, shape = dims[d], f"{dtype}[{','.join(map(str, dims))}]"
    low, high = (0, size - 1) if backwards else (size - 1, 0)
    sizes = "x".join(str(size if k == d else 1) for k in range(len(dims)))
    pads = "x".join(f"{low}_{high}" if k == d else "0_0" for k in range(len(dims)))
    return root_of(
        f"HloModule m\n{_one_op('op', opcode, dtype)}ENTRY main {{\nx = {shape} parameter(0)\n"
        f"z = {dtype}[] parameter(1)\n"
        f"ROOT r = {shape} reduce-window(x, z), window={{size={sizes} pad={pads}}}, to_apply=op\n}}\n"
    )
