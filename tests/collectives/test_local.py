"""Virtual devices against the meaning of each collective, over random groups and types."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.collectives.call.call import BufferRef
from shardc.collectives.call.memory import aligned_bytes
from shardc.collectives.in_process.transport import LocalTransport
from shardc.hlo.errors import UnsupportedError, VerificationError
from shardc.hlo.ir.groups import ListGroups, ListPairs
from tests.collectives.oracle import (
    AXES,
    OPS,
    Case,
    DeviceMemory,
    assert_same,
    expected,
    make_case,
    memory_for,
    perform,
)


def run_local(case: Case) -> dict[int, DeviceMemory]:
    memories = {d: memory_for(case, d) for d in range(case.num_devices)}
    perform(LocalTransport(), [case.call], case.num_devices, memories)
    return memories


def check(case: Case) -> None:
    memories = run_local(case)
    want = expected(case)
    for d, memory in memories.items():
        assert_same(case, d, memory, want[d])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.integers(0, 10_000),
    st.sampled_from(OPS),
    st.integers(0, len(AXES) - 1),
    st.lists(
        st.sampled_from(["f32", "bf16", "f16", "f64", "s32", "u8", "c64", "f8e4m3fn", "s4"]), min_size=1, max_size=3
    ),
    st.integers(0, 40),
)
def test_random(seed: int, op: str, axes: int, dtypes: list[str], n: int) -> None:
    check(make_case(seed, op, axes, tuple(d for d in dtypes if d != "s4" or op not in OPS[::2]), n))


@pytest.mark.parametrize("op", OPS)
def test_large_ones_are_done_by_several_threads(op: str) -> None:
    check(make_case(3, op, 1, ("f32", "u8"), 12_345))


@pytest.mark.parametrize("reduction", ["add", "multiply", "maximum", "minimum", "and", "or"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "s64", "u16", "pred"])
@pytest.mark.parametrize("op", ["all-reduce", "reduce-scatter"])
def test_reductions(reduction: str, dtype: str, op: str) -> None:
    case = make_case(7, op, 1, (dtype,), 9, reduction)
    if reduction in ("and", "or") and dtype in ("f32", "bf16"):
        with pytest.raises(UnsupportedError, match=r"with reduction '(and|or)'"):
            check(case)
    else:
        check(case)


def test_bf16_sums_round_once() -> None:
    case = make_case(1, "all-reduce", 1, ("bf16",), 1)
    for d, v in enumerate(case.operands):
        v[0][:] = 256 if d == 0 else 1
    memories = run_local(case)
    o = case.call.operands[0]
    # One by one in bf16 the ones would be lost: 256 + 1 = 256.
    assert float(memories[3].view(o.result, o.dtype)[0]) == 264


def test_signed_zeros_and_nans_do_not_depend_on_the_position_in_a_buffer() -> None:
    case = make_case(1, "all-reduce", 0, ("f32",), 67, "maximum")
    for group in case.call.groups.expand():
        case.operands[group[0]][0][:] = -0.0
        case.operands[group[1]][0][:] = 0.0
        case.operands[group[0]][0][5] = np.nan
    memories = run_local(case)
    o = case.call.operands[0]
    got = memories[0].view(o.result, o.dtype)
    assert np.isnan(got[5])
    assert set(np.signbit(np.delete(got, 5))) == {True}  # the first member wins a tie


def test_all_reduce_in_place() -> None:
    case = make_case(3, "all-reduce", 1, ("f32",), 16)
    (o,) = case.call.operands
    case.call = replace(case.call, operands=(replace(o, result=o.operand),))
    check(case)


@pytest.mark.parametrize("op", ["all-gather", "reduce-scatter", "all-to-all", "collective-permute"])
def test_others_in_place_are_refused(op: str) -> None:
    case = make_case(3, op, 1, ("f32",), 16)
    (o,) = case.call.operands
    big, small = sorted((o.operand, o.result), key=lambda r: -r.nbytes)
    inside = BufferRef("arena", 0, big.offset + big.nbytes - small.nbytes, small.nbytes)
    o = replace(o, operand=inside if small is o.operand else big, result=inside if small is o.result else big)
    with pytest.raises(VerificationError, match="overlaps an operand"):
        run_local(Case(replace(case.call, operands=(o,)), case.num_devices, case.operands))


def test_spaces() -> None:
    case = make_case(5, "all-gather", 0, ("s32",), 4)
    (o,) = case.call.operands
    o = replace(o, operand=BufferRef("argument", 1, 0, 16), result=BufferRef("result", 0, 0, 32))
    call = replace(case.call, operands=(o,))
    memories = {
        d: DeviceMemory(aligned_bytes(64), [aligned_bytes(4), aligned_bytes(16)], [aligned_bytes(32)], aligned_bytes(0))
        for d in range(8)
    }
    for d, m in memories.items():
        m.view(o.operand, o.dtype)[:] = d
    perform(LocalTransport(), [call], 8, memories)
    assert memories[1].view(o.result, o.dtype).tolist() == [1, 1, 1, 1, 5, 5, 5, 5]


def test_empty_groups_mean_everybody() -> None:
    case = make_case(2, "all-reduce", 4, ("f64",), 3)
    want = ListGroups((tuple(range(8)),))
    all_of_them = Case(replace(case.call, groups=want), 8, case.operands)
    memories = run_local(Case(replace(case.call, groups=ListGroups()), 8, case.operands))
    assert_same(all_of_them, 5, memories[5], expected(all_of_them)[5])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"groups": ListGroups(((0, 1), (1, 2)))}, "do not cover"),
        ({"groups": ListGroups(((0, 1, 2), (3,)))}, "different sizes"),
        ({"op": "collective-permute", "groups": ListPairs(((0, 1), (0, 2)))}, "source of two pairs"),
        ({"op": "collective-permute", "groups": ListPairs(((0, 9),))}, "outside of 0..3"),
        ({"op": "reduce-scatter", "groups": ListGroups(((0, 1, 2, 3),))}, "cannot be cut"),
        ({"op": "all-gather", "groups": ListGroups(((0, 1, 2, 3),))}, "has buffers of"),
    ],
)
def test_bad_calls(change: dict[str, object], message: str) -> None:
    case = make_case(2, "all-reduce", 7, ("f64",), 3)
    with pytest.raises(VerificationError, match=message) as failure:
        run_local(Case(replace(case.call, **change), 4, case.operands))
    assert "t.py:1" in str(failure.value)


def test_unknown_operation() -> None:
    case = make_case(2, "all-reduce", 7, ("f64",), 3)
    with pytest.raises(UnsupportedError, match="broadcast"):
        run_local(Case(replace(case.call, op="collective-broadcast"), 4, case.operands))
