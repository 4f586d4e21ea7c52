"""Permutes of slices against NumPy: evaluated, compiled, inside manual computations; refused where ambiguous."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardc
from shardc.hlo.errors import ShardcError, UnsupportedError, VerificationError
from shardc.hlo.evaluate import evaluate_spmd
from shardc.hlo.text.reader import read_hlo
from shardc.hlo.verify import verify
from shardc.partitioner.prepare.adopt_partitioned import adopt

PARTS = "sharding={devices=[4,1]<=[4]}"
#: How offsets may be written so that they are the same on all devices: constants, what is made of them, and a
#: scalar argument.
OFFSETS = {
    "constant": "{n} = s32[] constant({v})",
    "computed": "{n}.a = s32[] constant({v})\n  {n}.b = s32[] constant(1)\n"
    "  {n}.c = s32[] add({n}.a, {n}.b)\n  {n} = s32[] subtract({n}.c, {n}.b)",
    "argument": "{n}.a = s32[] constant({v})\n  {n} = s32[] add({n}.a, zero)",
}


def text(r: random.Random, kind: str) -> tuple[str, dict[str, Any]]:
    """A program for 4 devices whose result is that of the permute, and the numbers in it."""
    x, y = ([r.randint(1, 5) for _ in range(2)] for _ in range(2))
    sizes = [r.randint(1, min(a, b)) for a, b in zip(x, y, strict=True)]
    begin, end = ([r.randint(0, n - s) for n, s in zip(dims, sizes, strict=True)] for dims in (x, y))
    targets = r.sample(range(4), 4)
    pairs = [p for p in enumerate(targets) if r.random() < 0.7] or [(0, 1)]
    lines = [OFFSETS[kind].format(n=f"{n}{d}", v=v) for n, at in (("b", begin), ("e", end)) for d, v in enumerate(at)]
    shape, whole = f"f32[{y[0]},{y[1]}]", "(f32[{},{}], {}, (s32[], s32[]), (s32[], s32[]))"
    told = f"(x, y, b, e), source_target_pairs={{{','.join(f'{{{s},{t}}}' for s, t in pairs)}}}, channel_id=1, "
    told += f"slice_sizes={{{{{sizes[0]},{sizes[1]}}}}}"
    if r.random() < 0.5:
        made = f"s = ({whole.format(*x, shape)}, {shape}) collective-permute-start{told}\n"
        made += f"  ROOT c = {shape} collective-permute-done(s)"
    else:
        made = f"ROOT c = {shape} collective-permute{told}"
    program = (
        f"HloModule m, num_partitions=4\nENTRY e_spmd {{\n  zero = s32[] parameter(0)\n"
        f"  x = f32[{x[0]},{x[1]}] parameter(1), {PARTS}\n  y = {shape} parameter(2), {PARTS}\n  "
        + "\n  ".join(lines)
        + f"\n  b = (s32[], s32[]) tuple(b0, b1)\n  e = (s32[], s32[]) tuple(e0, e1)\n  {made}\n}}"
    )
    return program, {"x": x, "y": y, "sizes": sizes, "begin": begin, "end": end, "pairs": pairs}


def expected(told: dict[str, Any], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    out = y.copy()
    (a, b), (c, d), (h, w) = told["begin"], told["end"], told["sizes"]
    for s, t in told["pairs"]:
        out[t, c : c + h, d : d + w] = x[s, a : a + h, b : b + w]
    return out


@pytest.mark.parametrize("seed", range(12))
def test_slices_arrive_and_the_rest_stays(seed: int) -> None:
    r = random.Random(seed)
    program, told = text(r, sorted(OFFSETS)[seed % len(OFFSETS)])
    numbers = np.random.default_rng(seed)
    x, y = (np.where(a > 1, -0.0, a) for a in (numbers.standard_normal((4, *told[k])) for k in "xy"))
    x, y = x.astype(np.float32), y.astype(np.float32)
    want = expected(told, x, y).view(np.uint32)
    zero = np.int32(0)
    module = read_hlo(program)
    evaluated = np.stack([d[0] for d in evaluate_spmd(module, [[zero, x[k], y[k]] for k in range(4)])])
    np.testing.assert_array_equal(evaluated.view(np.uint32), want, err_msg=program)
    whole = [a.reshape(-1, a.shape[-1]) for a in (x, y)]
    got = np.asarray(shardc.Program(module).partition().compile()(zero, *whole)).reshape(y.shape)
    np.testing.assert_array_equal(got.view(np.uint32), want, err_msg=program)


def test_replicas_receive_by_their_number() -> None:
    body = """HloModule m, num_partitions=2, replica_count=2
ENTRY e_spmd { x = f32[4] parameter(0)
  z = s32[] constant(1)
  i = (s32[]) tuple(z)
  ROOT c = f32[4] collective-permute(x, x, i, i), source_target_pairs={{0,1}}, slice_sizes={{2}}}"""
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    for channel, pairs in (("", ((0, 2), (1, 3))), (", channel_id=1", ((0, 1), (2, 3)))):
        got = evaluate_spmd(read_hlo(body.replace("{{2}}", "{{2}}" + channel)), [[d] for d in x])
        want = x.copy()
        for s, t in pairs:
            want[t, 1:3] = x[s, 1:3]
        np.testing.assert_array_equal(np.stack([d[0] for d in got]), want)


MANUAL = """HloModule m, num_partitions=4
ENTRY e {
  p = f32[8,4] parameter(0), sharding={devices=[4,1]<=[4]}
  s = f32[8,4] custom-call(p), custom_call_target="Sharding", sharding={devices=[4,1]<=[4]}
  l = f32[2,4] custom-call(s), custom_call_target="SPMDFullToShardShape", sharding={manual}
  z = s32[] constant(0), sharding={manual}
  o = s32[] constant(1), sharding={manual}
  i = (s32[], s32[]) tuple(z, o), sharding={{manual}, {manual}}
  j = (s32[], s32[]) tuple(o, z), sharding={{manual}, {manual}}
  c = f32[2,4] collective-permute(l, l, i, j), PAIRS, channel_id=1, slice_sizes={{1,3}}, sharding={manual}
  t = f32[2,4] custom-call(c), custom_call_target="Sharding", sharding={manual}
  ROOT g = f32[8,4] custom-call(t), custom_call_target="SPMDShardToFullShape", sharding={devices=[4,1]<=[4]}
}"""


@pytest.mark.parametrize("pairs", [[(0, 1), (1, 2), (2, 3), (3, 0)], [(0, 2), (3, 1)]], ids=["all", "some"])
def test_inside_of_manual_computations(pairs: list[tuple[int, int]]) -> None:
    listed = ",".join(f"{{{s},{t}}}" for s, t in pairs)
    program = shardc.Program(read_hlo(MANUAL.replace("PAIRS", f"source_target_pairs={{{listed}}}")))
    x = np.random.default_rng(0).standard_normal((4, 2, 4)).astype(np.float32)
    want = expected({"pairs": pairs, "begin": (0, 1), "end": (1, 0), "sizes": (1, 3)}, x, x).reshape(8, 4)
    np.testing.assert_array_equal(np.asarray(program.partition().compile()(x.reshape(8, 4))), want)


REFUSED = {
    "own offsets": (("  o = s32[] parameter(1)", ""), "whose offsets apply"),
    "device numbers": (("  d = u32[] partition-id()\n  o = s32[] convert(d)", ""), "whose offsets apply"),
    "several slices": (("  o = s32[] constant(1)", "{{1},{1}}"), "which source-target pair moves which slice"),
    "too large": (("  o = s32[] constant(1)", "{{5}}"), "do not fit"),
}


@pytest.mark.parametrize(("pairs", "message"), [("{0,1},{0,0}", "occurs twice"), ("{0,2}", "device 2 does not exist")])
def test_pairs_of_one_slice_are_those_of_a_permute(pairs: str, message: str) -> None:
    body = MANUAL.replace("num_partitions=4", "num_partitions=2").replace("PAIRS", f"source_target_pairs={{{pairs}}}")
    with pytest.raises(VerificationError, match=message):
        verify(read_hlo(body.replace("[4,1]<=[4]", "[2,1]<=[2]").replace("2,4]", "4,4]")))


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_ambiguous_is_refused_with_its_place(case: str, tmp_path: Path) -> None:
    (line, sizes), message = REFUSED[case]
    body = (
        "HloModule m, num_partitions=2\nENTRY e_spmd {\n  x = f32[4] parameter(0)\n"
        f"{line}\n  i = (s32[]) tuple(o)\n  ROOT c = f32[4] collective-permute(x, x, i, i), "
        f"source_target_pairs={{{{0,1}}}}, channel_id=1, slice_sizes={sizes or '{{2}}'}\n}}"
    )
    if case == "own offsets":
        body = body.replace("parameter(1)", "parameter(1), sharding={manual}")
        body = body.replace("s32[] parameter(1)", "s32[1] parameter(1)").replace("o = ", "q = ")
        body = body.replace("  i =", "  o = s32[] reshape(q)\n  i =")
    path = tmp_path / "m.hlo"
    path.write_text(body)
    line_number = next(n for n, row in enumerate(body.splitlines(), 1) if "ROOT" in row)
    with pytest.raises(UnsupportedError, match=message) as caught:
        shardc.load(path).partition().compile()
    assert f"m.hlo:{line_number}" in str(caught.value)
    module = adopt(read_hlo(body))
    x, own = np.ones(4, np.float32), [[np.array([k], np.int32)] if case == "own offsets" else [] for k in range(2)]
    with pytest.raises(ShardcError, match=message):
        evaluate_spmd(module, [[x, *own[k]] for k in range(2)])
