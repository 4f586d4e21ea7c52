"""Ragged exchanges among virtual devices against NumPy: types, groups, sizes; and tables that do not fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardc.collectives.in_process.transport import LocalTransport
from shardc.hlo.errors import RunError, ShardcError
from tests.collectives.oracle import perform
from tests.collectives.ragged_cases import RaggedCase, assert_ragged, ragged_case, ragged_memory

GROUPS = (((0, 1, 2, 3),), ((0, 2), (3, 1)), ((1,), (0,)), ((2, 0, 1), (5, 4, 3)))


def check(case: RaggedCase) -> None:
    memories = {d: ragged_memory(case, d) for d in range(case.num_devices)}
    perform(LocalTransport(), [case.call], case.num_devices, memories)
    for d, memory in memories.items():
        assert_ragged(case, d, memory)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    st.integers(0, 10_000),
    st.sampled_from(GROUPS),
    st.sampled_from(["f32", "bf16", "pred", "f64", "s8", "c64", "f8e4m3fn"]),
    st.integers(0, 40),
    st.integers(1, 3),
    st.booleans(),
)
def test_random(
    seed: int, groups: tuple[tuple[int, ...], ...], dtype: str, row: int, per_peer: int, in_place: bool
) -> None:
    check(ragged_case(seed, groups, dtype, row, per_peer=per_peer, in_place=in_place))


@pytest.mark.parametrize("in_place", [False, True])
def test_large_ones_are_done_by_several_threads(in_place: bool) -> None:
    check(ragged_case(1, GROUPS[0], "f32", 700, rows=301, per_peer=2, in_place=in_place))


def changed(table: int, update: int, value: int) -> RaggedCase:
    case = ragged_case(4, GROUPS[0], "f32", 5)
    for v in case.values:
        for k in range(2, 6):
            v[k][:] = 0
    case.values[2][table][update] = value
    return case


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (changed(3, 1, -2), "device 2 sends -2 rows"),
        (changed(2, 1, 10), "device 2 sends 0 rows from row 10 of its data to device 1, but its data has 9 rows"),
        (changed(3, 3, 1 << 62), "device 2 sends 4611686018427387904 rows from row 0 of its data to device 3"),
        (changed(4, 0, -1), "to row -1 of an output that has 12"),
        (changed(4, 0, 13), "to row 13 of an output that has 12"),
        (changed(3, 1, 2), "device 2 sends 2 rows to device 1, whose recv_sizes say 0"),
        (changed(5, 1, 7), "device 1 sends 0 rows to device 2, whose recv_sizes say 7"),
    ],
)
def test_tables_that_do_not_fit(case: RaggedCase, message: str) -> None:
    memories = {d: ragged_memory(case, d) for d in range(case.num_devices)}
    with pytest.raises(RunError, match=message) as caught:
        perform(LocalTransport(), [case.call], case.num_devices, memories)
    assert caught.value.fix and "t.py:1" in str(caught.value)
    for d, memory in memories.items():
        o = case.call.operands[1]
        assert np.all(memory.arena[o.result.offset :][: o.result.nbytes] == 0xAB), d


def test_rows_that_two_senders_write() -> None:
    case = changed(3, 1, 0)
    for sender, receiver, target in ((0, 1, 4), (3, 1, 5)):
        case.values[sender][3][receiver] = case.values[receiver][5][sender] = 2
        case.values[sender][4][receiver] = target
    with pytest.raises(RunError, match="device 0 and device 3 both write row 5 of the output of device 1"):
        check(case)


def test_a_call_without_its_rows() -> None:
    case = ragged_case(4, GROUPS[0], "f32", 5)
    object.__setattr__(case.call, "ragged", None)
    with pytest.raises(ShardcError, match="six operands"):
        check(case)
