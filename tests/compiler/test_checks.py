"""`check.*` custom calls in compiled code: a false one fails the run, whatever drives it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardc
from shardc.compiler.cache.serialize import read_bytes, to_bytes
from shardc.compiler.emit.cpu_executable import build_executable
from shardc.compiler.load.step import run_single
from shardc.hlo.errors import RunError, UnsupportedError
from shardc.hlo.evaluate import evaluate
from shardc.native.llvm.target import host_target
from tests.compiler.checking import CHECKED, program

NAN, INF = np.nan, np.inf
CALL = 'custom_call_target="check.{}", custom_call_has_side_effect=true'


def outcome(run: Any) -> bool:
    try:
        run()
    except RunError as e:
        assert "check." in e.what and "%c" in str(e.where)
        return False
    return True


def check_holds(kind: str, dtype: str, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> bool:
    """What compiled code answers, which must be the evaluator's."""
    text = f"{dtype}{list(x.shape)}"
    module = program(
        f"x = {text} parameter(0)\ny = {text} parameter(1)\n"
        f"c = () custom-call(x, y), {CALL.format(kind)}\nROOT r = {text} add(x, y)"
    )
    executable = build_executable(module, CHECKED, host_target())
    compiled = outcome(lambda: run_single(executable, [x, y]))
    assert compiled == outcome(lambda: evaluate(module, [x, y]))
    return compiled


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "f8e4m3fn"])
def test_close_is_three_units_in_the_last_place(dtype: str) -> None:
    kind = np.dtype({"bf16": "bfloat16", "f8e4m3fn": "float8_e4m3fn"}.get(dtype, "float" + dtype[1:]))
    start = np.array([1.0, -2.0, 0.0, 0.0], kind)
    bits = np.dtype(f"u{kind.itemsize}")
    far = (start.view(bits) + np.array([3, 3, 3, 3], bits)).view(kind)
    assert check_holds("expect_close", dtype, start, far)
    assert not check_holds("expect_close", dtype, start, (far.view(bits) + np.array([0, 1, 0, 0], bits)).view(kind))
    below = np.array([1.0, -2.0, -0.0, NAN], kind)
    assert not check_holds("expect_close", dtype, np.array([1.0, -2.0, 0.0, 0.0], kind), below)
    assert check_holds("expect_close", dtype, np.array([1.0, -2.0, 0.0, NAN], kind), below)


def test_close_counts_across_zero_and_by_parts() -> None:
    tiny = np.array([1e-45], np.float32)
    assert check_holds("expect_close", "f32", -tiny, 2 * tiny)
    assert not check_holds("expect_close", "f32", -2 * tiny, 2 * tiny)
    z = np.array([1 + 2j, complex(NAN, INF)], np.complex64)
    assert check_holds("expect_close", "c64", z, z)
    assert not check_holds("expect_close", "c64", z, np.conj(z))


def test_equal_and_almost_equal() -> None:
    x = np.array([1.0, NAN, -INF], np.float32)
    assert check_holds("expect_eq", "f32", x, x)
    assert not check_holds("expect_eq", "f32", x, x + np.array([1e-7, 0, 0], np.float32))
    assert check_holds("expect_almost_eq", "f32", x, x + np.array([9e-4, 0, 0], np.float32))
    assert not check_holds("expect_almost_eq", "f32", x, x + np.array([2e-3, 0, 0], np.float32))
    n = np.array([3, -3], ml_dtypes.int4)
    assert check_holds("expect_eq", "s4", n, n) and not check_holds("expect_eq", "s4", n, n[::-1].copy())


LOOP = """
condition { t.0 = (s32[], f32[]) parameter(0)
  n.0 = s32[] get-tuple-element(t.0), index=0
  limit = s32[] constant(4)
  ROOT go = pred[] compare(n.0, limit), direction=LT }
body { t = (s32[], f32[]) parameter(0)
  n = s32[] get-tuple-element(t), index=0
  x = f32[] get-tuple-element(t), index=1
  three = s32[] constant(3)
  bound = pred[] compare(n, three), direction=LT
  yes = pred[] constant(true)
  c = () custom-call(bound, yes), custom_call_target="check.expect_eq", custom_call_has_side_effect=true
  one = s32[] constant(1)
  next = s32[] add(n, one)
  ROOT r = (s32[], f32[]) tuple(next, x) }
callee { q = f32[] parameter(0)
  begin = s32[] parameter(1)
  i = (s32[], f32[]) tuple(begin, q)
  w = (s32[], f32[]) while(i), condition=condition, body=body
  ROOT out = f32[] negate(q) }
"""


@pytest.mark.parametrize("start, good", [(4, True), (2, False)])
def test_checks_in_loops_that_nobody_reads(start: int, good: bool) -> None:
    module = program(
        "v = f32[] parameter(0)\nb = s32[] parameter(1)\nROOT k = f32[] call(v, b), to_apply=callee", before=LOOP
    )
    args = [np.float32(1.5), np.int32(start)]
    executable = read_bytes(to_bytes(build_executable(module, CHECKED, host_target(), fold=False)))
    assert outcome(lambda: run_single(executable, args)) == good
    assert outcome(lambda: evaluate(module, args)) == good


def test_drivers_report_a_false_check() -> None:
    text = (
        "HloModule m\nENTRY e {\n  x = f32[8] parameter(0)\n  y = f32[8] parameter(1)\n"
        f"  c = () custom-call(x, y), {CALL.format('expect_eq')}\n  ROOT z = f32[8] add(x, y)\n}}\n"
    )
    from shardc.hlo.text.reader import read_hlo
    from shardc.stages.stages import Program

    program = Program(read_hlo(text)).annotate({"x": shardc.P("d")}, mesh=shardc.Mesh({"d": 2}))
    compiled = program.propagate().partition().compile("cpu")
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(np.asarray(compiled(x, x)), 2 * x)
    with pytest.raises(RunError, match=r"check\.expect_eq is false"):
        compiled(x, x[::-1].copy())
    np.testing.assert_array_equal(np.asarray(compiled(x, x)), 2 * x)


def test_unknown_checks_are_refused() -> None:
    module = program(
        'x = f32[] parameter(0)\nc = () custom-call(x, x), custom_call_target="check.odd"\nROOT r = f32[] negate(x)'
    )
    with pytest.raises(UnsupportedError, match="unknown check"):
        build_executable(module, CHECKED, host_target())
