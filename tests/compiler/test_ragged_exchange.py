"""Ragged exchanges in compiled programs on virtual devices, against the evaluator and NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.compiler.lower.expand.resolve_groups import ResolveGroups
from shardc.compiler.lower.for_gpu import lower_for_gpu
from shardc.compiler.lower.pipeline import lower
from shardc.hlo.errors import RunError
from shardc.hlo.evaluate import evaluate_spmd
from shardc.hlo.ir.types import DTYPES
from shardc.hlo.text.reader import read_hlo
from shardc.native.gpu.target import gpu_target
from shardc.stages.stages import Program
from tests.collectives.oracle import random_values
from tests.collectives.ragged_cases import ragged_tables

DEVICES = 4
DATA, OUTPUT = 10, 12


def program(groups: str, dtype: str, row: tuple[int, ...], updates: int, kind: str = "s32", more: str = "") -> str:
    rest = "".join(f",{n}" for n in row)
    return f"""HloModule m, num_partitions={DEVICES}
ENTRY e {{
  data = {dtype}[{DATA}{rest}] parameter(0)
  output = {dtype}[{OUTPUT}{rest}] parameter(1)
  starts = {kind}[{updates}] parameter(2)
  sizes = {kind}[{updates}] parameter(3)
  targets = {kind}[{updates}] parameter(4)
  received = {kind}[{updates}] parameter(5)
  ROOT r = {dtype}[{OUTPUT}{rest}] ragged-all-to-all(data, output, starts, sizes, targets, received),
    replica_groups={groups}, channel_id=1{more}
}}"""


def arguments(
    seed: int, groups: str, dtype: str, row: tuple[int, ...], per_peer: int, kind: str = "s32"
) -> list[np.ndarray]:
    """The devices' parts one after the other."""
    rng = np.random.default_rng(seed)
    members = [list(map(int, g.split(","))) for g in groups.strip("{}").split("},{")]
    tables = np.zeros((4, DEVICES, len(members[0]) * per_peer), DTYPES[kind].numpy)
    for group in members:
        tables[:, group] = ragged_tables(rng, len(group), per_peer, DATA, OUTPUT)
    values = [
        random_values(rng, DTYPES[dtype], DEVICES * n * int(np.prod(row))).reshape(-1, *row) for n in (DATA, OUTPUT)
    ]
    return [*values, *(t.reshape(-1) for t in tables)]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    st.integers(0, 10_000),
    st.sampled_from(["{{0,1,2,3}}", "{{0,2},{3,1}}", "{{3},{1},{2},{0}}"]),
    st.sampled_from(["f32", "bf16", "pred", "s4"]),
    st.sampled_from([(), (3,), (2, 5)]),
    st.integers(1, 2),
    st.sampled_from(["s32", "s64", "u8"]),
)
def test_random(seed: int, groups: str, dtype: str, row: tuple[int, ...], per_peer: int, kind: str) -> None:
    args = arguments(seed, groups, dtype, row, per_peer, kind)
    module = read_hlo(program(groups, dtype, row, len(args[2]) // DEVICES, kind))
    wanted = evaluate_spmd(module, list(zip(*[np.split(a, DEVICES) for a in args], strict=True)))
    got = Program(module).compile("cpu")(*args)
    np.testing.assert_array_equal(np.asarray(got), np.concatenate([device[0] for device in wanted]))


def test_an_exchange_stays_one_on_cpus_and_becomes_gathers_on_gpus() -> None:
    module = read_hlo(program("{{0,1,2,3}}", "f32", (3,), 4))
    assert [c.instruction.opcode for c in lower(module).collectives] == ["ragged-all-to-all"]
    assert {c.instruction.opcode for c in lower_for_gpu(module, gpu_target("cuda:sm_90")).collectives} == {"all-gather"}


@pytest.mark.parametrize("groups", ["{{0,1,2,3}}", "{{0,2},{3,1}}"])
def test_gathers_mean_the_same(groups: str) -> None:
    args = arguments(3, groups, "f32", (3,), 2)
    module = read_hlo(program(groups, "f32", (3,), len(args[2]) // DEVICES))
    gathered = ResolveGroups(ragged=False).run(module)
    assert "ragged-all-to-all" not in {i.opcode for i in gathered.instructions()}
    parts = list(zip(*[np.split(a, DEVICES) for a in args], strict=True))
    for got, wanted in zip(evaluate_spmd(gathered, parts), evaluate_spmd(module, parts), strict=True):
        np.testing.assert_array_equal(got[0], wanted[0])


def test_the_output_is_updated_in_place() -> None:
    args = arguments(1, "{{0,1,2,3}}", "f32", (256,), 1)
    text = program("{{0,1,2,3}}", "f32", (256,), 4).replace(
        "HloModule m,", "HloModule m, input_output_alias={ {}: (1, {}, may-alias) },"
    )
    plan = lower(read_hlo(text)).plan
    assert plan.arena_bytes < args[1].nbytes // DEVICES


def test_tables_that_do_not_fit() -> None:
    args = arguments(2, "{{0,1,2,3}}", "f32", (3,), 1)
    args[3][5] = DATA + 1
    module = read_hlo(program("{{0,1,2,3}}", "f32", (3,), 4))
    with pytest.raises(RunError, match="device 1 sends 11 rows") as compiled:
        Program(module).compile("cpu")(*args)
    with pytest.raises(RunError, match="device 1 sends 11 rows") as evaluated:
        evaluate_spmd(module, list(zip(*[np.split(a, DEVICES) for a in args], strict=True)))
    assert str(compiled.value.fix) == str(evaluated.value.fix)
