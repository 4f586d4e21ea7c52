"""Programs that are tables of calls of routines, against the evaluator and against code of their own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.compiler.cache.serialize import read_bytes, to_bytes
from shardc.compiler.emit.cpu_executable import build_executable
from shardc.compiler.emit.step import SYMBOL
from shardc.compiler.executable import Executable
from shardc.compiler.load.step import load_step, run_single
from shardc.compiler.routines.known import KNOWN
from shardc.compiler.routines.table import WRITERS
from shardc.hlo.config import Config
from shardc.hlo.evaluate import evaluate
from shardc.hlo.ir.build import make_module
from shardc.hlo.ir.ir import Computation, Instruction, Module
from shardc.native.llvm.target import CPUS, host_target, named_target
from shardc.native.routines.records import ROUTINE_STEP
from tests.compiler.checking import assert_close, program, random_arguments
from tests.compiler.kernel_runner import compile_and_run
from tests.compiler.test_convolutions import convolutions
from tests.compiler.test_products import ORDERS, Sizes, dot


def alone(i: Instruction) -> Module:
    """The program that does ``i``."""
    return make_module("program", Computation("main", (*i.operands, i), i))


def built(module: Module) -> Executable:
    return build_executable(module, Config(), host_target())


def check(module: Module, symbol: str = ROUTINE_STEP, seed: int = 0) -> list[np.ndarray]:
    """Compile and run; compare with the evaluator."""
    executable, args = built(module), random_arguments(module, seed)
    assert executable.symbol == symbol
    got = run_single(executable, args)
    assert_close(got, evaluate(module, args))
    return got


PROGRAMS = {
    "copy": "x = f32[6,5] parameter(0)\nROOT r = f32[30] reshape(x)",
    "concatenate": "x = f32[2,3,4] parameter(0)\ny = f32[2,5,4] parameter(1)\nz = f32[2,0,4] parameter(2)\n"
    "ROOT r = f32[2,8,4] concatenate(x, y, z), dimensions={1}",
    "several": "x = s8[7,9] parameter(0)\ny = s8[7,9] parameter(1)\nc = s8[7,18] concatenate(x, y), dimensions={1}\n"
    "t = s8[9,7] transpose(x), dimensions={1,0}\nROOT r = (s8[7,18], s8[9,7], s8[7,9]) tuple(c, t, y)",
    "stack": "x = f32[7] parameter(0)\ny = f32[7] parameter(1)\na = f32[1,7] reshape(x)\nb = f32[1,7] reshape(y)\n"
    "ROOT r = f32[2,7] concatenate(a, b), dimensions={0}",
    "dot": "x = f32[6,4] parameter(0)\ny = f32[4,15] parameter(1)\na = f32[2,3,4] reshape(x)\n"
    "b = f32[4,3,5] reshape(y)\n"
    "d = f32[2,3,3,5] dot(a, b), lhs_contracting_dims={2}, rhs_contracting_dims={0}\nROOT r = f32[90] reshape(d)",
    "transpose": "x = f64[3,4,5,2] parameter(0)\nROOT r = f64[5,2,3,4] transpose(x), dimensions={2,3,0,1}",
    "transpose c64": "x = c64[33,17] parameter(0)\nROOT r = c64[17,33] transpose(x), dimensions={1,0}",
    "transpose c128": "x = c128[5,3] parameter(0)\nROOT r = c128[3,5] transpose(x), dimensions={1,0}",
    "transpose bf16": "x = bf16[40,24] parameter(0)\nROOT r = bf16[24,40] transpose(x), dimensions={1,0}",
    "transpose pred": "x = pred[9,4] parameter(0)\nROOT r = pred[4,9] transpose(x), dimensions={1,0}",
    "slice": "x = s32[10,12] parameter(0)\nROOT r = s32[3,5] slice(x), slice={[2:9:3], [1:11:2]}",
    "nothing": "x = s32[10] parameter(0)\nROOT r = s32[0] slice(x), slice={[3:3]}",
    "reverse": "x = f32[4,5,6] parameter(0)\nROOT r = f32[4,5,6] reverse(x), dimensions={0,2}",
    "broadcast": "x = f32[5] parameter(0)\nROOT r = f32[4,5,3] broadcast(x), dimensions={1}",
    "scalar": "x = f32[] parameter(0)\nROOT r = f32[4,5] broadcast(x), dimensions={}",
    "pad": "x = f32[5,6] parameter(0)\nv = f32[] parameter(1)\nROOT r = f32[15,3] pad(x, v), padding=2_4_1x-2_-1",
    "cut": "x = f32[5] parameter(0)\nv = f32[] parameter(1)\nROOT r = f32[2] pad(x, v), padding=-4_-3_1",
    "constant": "x = f32[3] parameter(0)\nc = f32[2] constant({7, 8})\n"
    "ROOT r = f32[5] concatenate(c, x), dimensions={0}",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    module = program(PROGRAMS[name])
    for got, wanted in zip(check(module), evaluate(module, random_arguments(module)), strict=True):
        if name != "dot":
            np.testing.assert_array_equal(got, wanted)


SIZES: list[Sizes] = [
    (1, 64, 16, 32), (4, 8, 8, 8), (1, 1, 1, 1), (3, 5, 33, 7), (1, 13, 17, 200), (2, 1, 40, 9), (7, 4, 1, 12),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("order", ORDERS)
def test_products_are_the_bits_of_kernels_in_registers(dtype: str, sizes: Sizes, order: tuple[str, str]) -> None:
    i = dot(dtype, sizes, order)
    executable = built(alone(i))
    if executable.symbol == SYMBOL:  # lowered to sums of elements
        assert 1 in sizes[1:3]
        return
    args = random_arguments(alone(i), 1)
    (got,) = run_single(executable, args)
    assert_close([got], evaluate(alone(i), args))
    if order[1].endswith("n"):  # others are multiplied by the library, or copied before
        np.testing.assert_array_equal(got, compile_and_run(i, args)[0])


@settings(max_examples=60, deadline=None)
@given(convolutions("f32"), st.integers(0, 1000))
def test_convolutions(i: Instruction, seed: int) -> None:
    executable, args = built(alone(i)), random_arguments(alone(i), seed)
    assert_close(run_single(executable, args), evaluate(alone(i), args))


def test_a_small_convolution_is_a_table() -> None:
    body = "x = f32[2,8,8,3] parameter(0)\nw = f32[3,3,3,8] parameter(1)\n"
    window = "window={size=3x3 pad=1_1x1_1}, dim_labels="
    check(program(body + f"ROOT r = f32[2,8,8,8] convolution(x, w), {window}b01f_01io->b01f"))
    turned = body.replace("[2,8,8,3]", "[2,3,8,8]").replace("[3,3,3,8]", "[8,3,3,3]")
    check(program(turned + f"ROOT r = f32[2,8,8,8] convolution(x, w), {window}bf01_oi01->bf01"))


def comparator(dtype: str, direction: str = "LT") -> str:
    """That of `jax.lax.sort`."""
    head = f"less {{\n  x = {dtype}[] parameter(0)\n  y = {dtype}[] parameter(1)\n"
    if dtype == "s32":
        return head + f"  ROOT r = pred[] compare(x, y), direction={direction}\n}}"
    sides = "".join(
        f"  z{v} = pred[] compare({v}, zero), direction=EQ\n  a{v} = f32[] select(z{v}, zero, {v})\n"
        f"  n{v} = pred[] compare({v}, {v}), direction=NE\n  b{v} = f32[] select(n{v}, none, a{v})\n"
        for v in "xy"
    )
    constants = "  zero = f32[] constant(0)\n  none = f32[] constant(nan)\n"
    return f"{head}{constants}{sides}  ROOT r = pred[] compare(bx, by), direction={direction}, type=TOTALORDER\n}}"


@pytest.mark.parametrize("dtype", ["f32", "s32"])
@pytest.mark.parametrize(
    ("dims", "along"), [((7,), 0), ((1,), 0), ((1000,), 0), ((5, 17, 3), 1), ((4, 33), 1), ((33, 4), 0)]
)
def test_sorts(dtype: str, dims: tuple[int, ...], along: int) -> None:
    text = f"{dtype}[{','.join(map(str, dims))}]"
    body = f"x = {text} parameter(0)\nROOT r = {text} sort(x), dimensions={{{along}}}, is_stable=true, to_apply=less"
    module = program(body, comparator(dtype))
    rng = np.random.default_rng(3)
    bits = rng.integers(-(2**31), 2**31, dims).astype(np.int32)
    special = rng.choice(np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1e-45, -1e-45], np.float32), dims)
    x = np.where(rng.random(dims) < 0.5, bits, special.view(np.int32)).view(np.float32 if dtype == "f32" else np.int32)
    executable = built(module)
    assert executable.symbol == ROUTINE_STEP
    (got,), (wanted,) = run_single(executable, [x]), evaluate(module, [x])
    np.testing.assert_array_equal(got.view(np.int32), wanted.view(np.int32))


LARGE = {
    "product": "x = f32[128,128] parameter(0)\ny = f32[128,128] parameter(1)\n"
    "ROOT r = f32[128,128] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "transpose": "x = f32[80,80] parameter(0)\nROOT r = f32[80,80] transpose(x), dimensions={1,0}",
    "integers": "x = s32[8,8] parameter(0)\ny = s32[8,8] parameter(1)\n"
    "ROOT r = s32[8,8] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "arithmetic": "x = f32[8,8] parameter(0)\nt = f32[8,8] transpose(x), dimensions={1,0}\nROOT r = f32[8,8] add(x, t)",
    "two types": "x = f32[3] parameter(0)\ny = bf16[4] parameter(1)\nROOT r = f32[7] concatenate(x, y), dimensions={0}",
    "patches": "x = f32[2,32,32,8] parameter(0)\nw = f32[3,3,8,8] parameter(1)\n"
    "ROOT r = f32[2,32,32,8] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
}


def test_other_orders_have_code_of_their_own() -> None:
    body = "x = f32[9] parameter(0)\nROOT r = f32[9] sort(x), dimensions={0}, to_apply=less"
    check(program(body, comparator("f32", "GT")), SYMBOL)
    check(program(body.replace("f32", "s32"), comparator("s32", "GT")), SYMBOL)
    plain = "less {\nx = f32[] parameter(0)\ny = f32[] parameter(1)\nROOT r = pred[] compare(x, y), direction=LT\n}"
    check(program(body, plain), SYMBOL)


@pytest.mark.parametrize("name", LARGE)
def test_what_is_large_or_computes_has_code_of_its_own(name: str) -> None:
    check(program(LARGE[name]), SYMBOL)


def test_what_is_known_is_written() -> None:
    assert set(WRITERS) == KNOWN


def test_one_object_for_all() -> None:
    first, second = (built(program(PROGRAMS[name])) for name in ("slice", "reverse"))
    assert first.objects == second.objects
    assert load_step(first).address == load_step(second).address


def test_what_is_kept_runs() -> None:
    module = program(PROGRAMS["constant"])
    again = read_bytes(to_bytes(built(module)), "the test")
    args = random_arguments(module)
    assert_close(run_single(again, args), evaluate(module, args))


@pytest.mark.parametrize("cpu", CPUS)
def test_objects_for_other_processors(cpu: str) -> None:
    target = named_target(cpu, "" if cpu == "apple-m1" else "linux")
    executable = build_executable(program(PROGRAMS["transpose"]), Config(), target)
    assert executable.symbol == ROUTINE_STEP and all(executable.objects)
