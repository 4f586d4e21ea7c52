"""Loops, choices, checks, steps of the host and asynchronous collectives on an emulated GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardc
from shardc import Mesh
from shardc.compiler.gpu_program import CheckStep, HostStep, RepeatStep, leaf_steps
from shardc.hlo.config import Config
from shardc.hlo.errors import RunError
from shardc.hlo.text.reader import read_hlo
from shardc.launcher.gpu.plan import LoopNode, Segment, cut
from tests.compiler.test_overlap import KINDS
from tests.compiler.test_overlap import module_of as pair_module
from tests.launcher.gpu.gpu_driving import WHILE, Counting, cpu_driver, gpu_driver, gpu_executable, values

X = np.linspace(-2, 2, 64, dtype=np.float32)


def tanh(times: int) -> np.ndarray:
    x = X
    for _ in range(times):
        x = np.tanh(x)
    return x


@pytest.mark.parametrize("turns", [0, 1, 5])
def test_a_loop_whose_end_shows_in_memory(turns: int) -> None:
    runtime = Counting()
    driver = gpu_driver(read_hlo(WHILE.replace("START", "start = s32[] copy(n)")), runtime=runtime)
    for _ in range(4):  # eagerly, then by graphs
        runtime.waits = 0
        (got,) = driver([np.int32(turns), X])
        assert runtime.waits == turns + 1, "the host looks at the predicate, and at nothing else"
        np.testing.assert_allclose(np.asarray(got), tanh(turns), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("turns", [3, 20, 300])
def test_a_loop_of_known_length_is_never_looked_at(turns: int) -> None:
    runtime = Counting()
    driver = gpu_driver(read_hlo(WHILE.replace("START", f"start = s32[] constant({turns})")), runtime=runtime)
    n, x = driver.put(0, np.int32(0)), driver.put(1, X)
    driver([n, x])
    runtime.waits = 0
    (got,) = driver([n, x])
    assert runtime.waits == 0
    np.testing.assert_allclose(np.asarray(got), tanh(turns), rtol=1e-4, atol=1e-6)


def test_short_loops_become_part_of_a_segment() -> None:
    def plan(turns: int) -> tuple[Any, ...]:
        module = read_hlo(WHILE.replace("START", f"start = s32[] constant({turns})"))
        program = gpu_executable(module).gpu
        assert program is not None
        repeat = next(s for s in program.steps if isinstance(s, RepeatStep))
        assert repeat.trips == turns
        return cut(program.steps, (), ())

    assert [type(n) for n in plan(20)] == [Segment]
    loop = next(n for n in plan(300) if isinstance(n, LoopNode))
    assert (loop.predicate, loop.trips, loop.condition) == (None, 300, ())


CHOICE = """HloModule choice

double { p = f32[64] parameter(0)  ROOT r = f32[64] add(p, p) }
square { p = f32[64] parameter(0)  ROOT r = f32[64] multiply(p, p) }
negate { p = f32[64] parameter(0)  ROOT r = f32[64] negate(p) }

ENTRY main {
  n = s32[] parameter(0)
  x = f32[64] parameter(1)
  a = f32[64] conditional(n, x, x, x), branch_computations={double, square, negate}
  zero = s32[] constant(0)
  p = pred[] compare(n, zero), direction=LT
  b = f32[64] conditional(p, x, a), true_computation=double, false_computation=negate
  ROOT out = (f32[64], f32[64]) tuple(a, b)
}
"""


@pytest.mark.parametrize("number", [-1, 0, 1, 2, 7])
def test_choices(number: int) -> None:
    driver = gpu_driver(read_hlo(CHOICE))
    first = {0: X + X, 1: X * X}.get(number, -X)
    for _ in range(3):
        a, b = values(driver([np.int32(number), X]))
        np.testing.assert_array_equal(a, first)
        np.testing.assert_array_equal(b, X + X if number < 0 else -first)


FFT = """HloModule fft

ENTRY main {
  x = f32[4,64] parameter(0)
  scaled = f32[4,64] add(x, x)
  f = c64[4,33] fft(scaled), fft_type=RFFT, fft_length={64}
  ROOT y = f32[4,33] abs(f)
}
"""


def test_what_gpus_have_no_code_for_runs_on_the_host() -> None:
    module = read_hlo(FFT)
    program = gpu_executable(module).gpu
    assert program is not None
    assert any(isinstance(s, HostStep) for s in leaf_steps(program.steps))
    driver, x = gpu_driver(module), np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    for k in (1, 2, 3):
        (got,) = values(driver([x * np.float32(k)]))
        np.testing.assert_allclose(got, np.abs(np.fft.rfft(2 * k * x)), rtol=1e-4, atol=1e-4)


CHECKED = """HloModule m

ENTRY e {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  c = () custom-call(x, y), custom_call_target="check.expect_eq", custom_call_has_side_effect=true
  two = f32[8] add(y, y)
  d = () custom-call(x, two), custom_call_target="check.expect_close", custom_call_has_side_effect=true
  ROOT z = f32[8] add(x, y)
}
"""


def test_the_first_false_check_is_told_and_the_next_step_runs() -> None:
    program = shardc.Program(read_hlo(CHECKED)).annotate({"x": shardc.P("d")}, mesh=Mesh({"d": 2}))
    executable = gpu_executable(program)
    assert executable.gpu is not None
    assert sum(isinstance(s, CheckStep) for s in leaf_steps(executable.gpu.steps)) == 2
    driver, x, zero = gpu_driver(executable), np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(values(driver([zero, zero]))[0], zero)
        with pytest.raises(RunError, match=r"check\.expect_close is false") as told:
            driver([x, x])
        assert "%d" in str(told.value.where)
        with pytest.raises(RunError, match=r"check\.expect_eq is false"):
            driver([x, x[::-1].copy()])


ALWAYS = Config(overlap="always", overlap_memory=8.0)


@pytest.mark.parametrize("kind", KINDS)
def test_asynchronous_collectives(kind: str) -> None:
    """One goes on beside a product, in a stream of its own."""
    shape = KINDS[kind].split()[0]
    module = pair_module(
        f"x = f32[4,4] parameter(0)\nw = f32[4,4] parameter(1)\nc = {KINDS[kind].replace('V', 'x')}\n"
        "d = f32[4,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        f"n = {shape} negate(c)\ns = f32[4,4] sine(d)\nROOT t = ({shape}, f32[4,4]) tuple(n, s)"
    )
    executable = gpu_executable(module, ALWAYS)
    (call,) = executable.collectives
    assert call.asynchronous
    rng = np.random.default_rng(0)
    args = [rng.standard_normal((4, 4)).astype(np.float32) for _ in range(2)]
    want = values(cpu_driver(module)(args))
    for seed in range(6):
        driver = gpu_driver(executable, seed)
        for _ in range(3):
            for got, w in zip(values(driver(args)), want, strict=True):
                np.testing.assert_allclose(got, w, rtol=1e-5, atol=1e-6)


_MESH = Mesh({"d": 2, "m": 2})


def _apart(sizes: str | tuple[str, ...]) -> Any:
    """A manual computation whose loop turns as often as each group's ``n`` says, with collectives inside."""
    jax = pytest.importorskip("jax")
    from jax.sharding import PartitionSpec as Spec

    def local(x: Any, n: Any) -> Any:
        def body(carry: Any) -> Any:
            turn, v = carry
            turned = jax.lax.ppermute(v, "m", [(0, 1)])
            whole = jax.lax.all_gather(v, "m")
            return turn + 1, v + 2 * jax.lax.psum(v, "m") + 3 * turned - whole[0]

        _, v = jax.lax.while_loop(lambda c: c[0] < n[0], body, (0, x))
        return v + jax.lax.psum(v, ("d", "m"))

    specs = (Spec("d", "m"), Spec(sizes))
    function = jax.shard_map(local, mesh=_MESH.to_jax(), in_specs=specs, out_specs=Spec("d", "m"), check_vma=False)
    x, n = np.zeros((4, 4), np.int32), np.zeros(2 if sizes == "d" else 4, np.int32)
    return shardc.from_jax(jax.jit(function), x, n)


@pytest.mark.parametrize("turns", [[0, 0], [3, 3], [1, 4], [0, 3]])
def test_groups_loop_differently_often(turns: list[int]) -> None:
    program = _apart("d")
    driver, cpu = gpu_driver(program), cpu_driver(program)
    x, n = np.arange(16, dtype=np.int32).reshape(4, 4), np.array(turns, np.int32)
    want = values(cpu([x, n]))
    for _ in range(3):
        np.testing.assert_array_equal(values(driver([x, n])), want)


def test_members_of_a_group_may_not() -> None:
    driver = gpu_driver(_apart(("d", "m")))
    x = np.ones((4, 4), np.int32)
    with pytest.raises(RunError, match=r"took different branches: device 1 reached .*, but device 0 did not"):
        driver([x, np.array([1, 2, 1, 1], np.int32)])
    want = values(cpu_driver(_apart(("d", "m")))([x, np.array([2, 2, 1, 1], np.int32)]))
    np.testing.assert_array_equal(values(driver([x, np.array([2, 2, 1, 1], np.int32)])), want)
