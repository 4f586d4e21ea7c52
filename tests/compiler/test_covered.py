"""Bytes under a changing set of intervals against counting them one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shardc.compiler.lower.buffers.covered import Covered

_interval = st.tuples(st.integers(0, 30), st.integers(1, 12)).map(lambda v: (v[0], v[0] + v[1]))


@given(st.lists(st.tuples(_interval, st.booleans()), max_size=25))
def test_covered_bytes_are_those_of_the_union(changes: list[tuple[tuple[int, int], bool]]) -> None:
    covered = Covered(end for interval, _ in changes for end in interval)
    there: list[tuple[int, int]] = []
    assert covered.nbytes == 0
    for interval, comes in changes:
        if not comes and interval not in there:
            continue
        (there.append if comes else there.remove)(interval)
        covered.change(*interval, 1 if comes else -1)
        assert covered.nbytes == len({byte for low, high in there for byte in range(low, high)})
