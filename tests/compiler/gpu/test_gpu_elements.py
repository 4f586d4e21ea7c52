"""Every elementwise op of every kind of type as GPU code: assembled, and under emulation against the evaluator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from shardc.hlo.ir.ir import Instruction
from shardc.hlo.ir.types import DTYPES
from shardc.native.gpu.emulated.coroutines import compile_emulated, load_emulated, new_emulated_module
from shardc.native.gpu.runtime import LaunchShape
from shardc.native.gpu.target import gpu_target
from tests.compiler.gpu.element_kernels import COUNT, THREADS, define, elementwise, name_of
from tests.compiler.kernel_runner import Array, expected, random

OFTEN = ("f32", "f64", "bf16", "s32", "u8", "c64", "pred")
SELDOM = ("f16", "s4", "s8", "s64", "u64", "u32", "c128", "f8e4m3fn", "f8e5m2")
#: Units in the last place of the result (of a complex one's size): the functions' tolerance on the CPU.
ULP, COMPLEX_ULP = 3, 16
#: Registers of a thread that has four elements.
REGISTERS, COMPLEX_REGISTERS = 90, 128
#: Complex powers keep their logarithm in two parts.
POWER_REGISTERS = 168
#: Bytes of stack that a division's rare cases take, which NVIDIA's assembler makes a call; complex functions divide
#: several times.
DIVISION_STACK, COMPLEX_STACK = 32, 128
_DOMAIN = {"log": (0, 9), "log-plus-one": (-1, 9), "sqrt": (0, 9), "rsqrt": (0, 9), "acosh": (1, 9), "power": (0, 9)}
_DOMAIN |= dict.fromkeys(("asin", "acos", "atanh"), (-1, 1))


def _operand(i: Instruction, number: int) -> Array:
    """Everyday numbers within the op's domain, and zeros of both signs."""
    shape = i.operands[number].shape
    x = random(shape, number)
    if shape.dtype.is_float:
        low, high = _DOMAIN.get(i.opcode, (-9, 9))
        wide = np.abs(x.astype(np.float64))
        x = (low + wide % (high - low) if low > -9 else x.astype(np.float64)).astype(x.dtype)
        if i.opcode not in ("rsqrt", "log", "power", "divide", "remainder"):
            x[:2] = [0.0, -0.0]
    if i.opcode in ("divide", "remainder") and number and shape.dtype.is_integer:
        x = np.where(x == 0, np.ones_like(x), x)
    return x


def _close(got: Array, wanted: Array, ulp: int) -> bool:
    if wanted.dtype.kind in "biu" or "int" in wanted.dtype.name:
        return bool((got == wanted).all())
    if wanted.dtype.kind == "c":
        epsilon = np.finfo(wanted.dtype).eps
        return bool((np.abs(got - wanted) <= COMPLEX_ULP * epsilon * np.maximum(np.abs(wanted), 1)).all())
    if wanted.dtype.itemsize < 4:  # rounded once more: the next value at most
        width = np.dtype(f"i{wanted.dtype.itemsize}")
        near = np.abs(got.view(width).astype(np.int64) - wanted.view(width).astype(np.int64)) <= 1
        return bool((near | (np.isnan(got.astype(np.float64)) & np.isnan(wanted.astype(np.float64)))).all())
    with np.errstate(all="ignore"):
        near = np.abs(got - wanted) <= ulp * np.spacing(np.abs(wanted))
    return bool((near | (got == wanted) | (np.isnan(got) & np.isnan(wanted))).all())


@pytest.mark.parametrize("dtype", [*OFTEN, *(pytest.param(d, marks=pytest.mark.full) for d in SELDOM)])
def test_values(dtype: str) -> None:
    module = new_emulated_module(dtype)
    ops = list(elementwise(dtype))
    for i in ops:
        define(module, gpu_target("cuda-emulated"), i)
    loaded = load_emulated(compile_emulated(module))
    assert len(ops) > 20
    for i in ops:
        operands = [_operand(i, n) for n in range(len(i.operands))]
        out = np.empty(COUNT, i.shape.dtype.numpy)
        places = [a.ctypes.data for a in (*operands, out)]
        loaded.launch(name_of(i), LaunchShape((1, 1, 1), THREADS), places)
        with np.errstate(all="ignore"):
            (wanted,) = expected(i, operands)
        assert _close(out, np.asarray(wanted), ULP), (i.opcode, dtype, out, wanted)


@pytest.mark.parametrize(
    ("arch", "dtypes"),
    [
        ("sm_80", ("f32", "bf16", "s32", "pred")),
        ("sm_90", ("f64", "u8")),
        *(pytest.param(arch, (*OFTEN, *SELDOM), marks=pytest.mark.full) for arch in ("sm_80", "sm_90")),
    ],
)
def test_code(arch: str, dtypes: tuple[str, ...]) -> None:
    """In a process of its own: LLVM ends it where it cannot lower something."""
    command = [sys.executable, "-m", "tests.compiler.gpu.element_kernels", f"cuda:{arch}", *dtypes]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=root)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [line.split() for line in done.stdout.splitlines()]
    assert {r[0] for r in rows} == set(dtypes)
    for dtype, name, registers, stack in rows:
        is_complex = DTYPES[dtype].is_complex
        complex_registers = POWER_REGISTERS if name.startswith("power_") else COMPLEX_REGISTERS
        most = (complex_registers, COMPLEX_STACK) if is_complex else (REGISTERS, DIVISION_STACK)
        assert (int(registers) <= most[0]) & (int(stack) <= most[1]), (dtype, name, registers, stack)


def test_every_type_is_here_or_small() -> None:
    """The others are small floats and integers, which are handled as those here are."""
    missing = set(DTYPES) - set(OFTEN) - set(SELDOM)
    assert all(DTYPES[d].bits <= 16 for d in missing if not d.startswith("token")), missing
