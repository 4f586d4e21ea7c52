"""What a stamp tells of the ranks' differences."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shardc.collectives.call.stamp import StepStamp, Told, digest_of
from shardc.hlo.errors import InputError, RunError

WORD = 1 << 64
WORDS = st.integers(0, WORD - 1)


def stamp(step: int, digests: list[int], *, signed: bool = False) -> StepStamp:
    """As ranks sum; ``signed``: as a record in memory has it."""
    sums = [sum(digests) % WORD, sum((k + 1) * d for k, d in enumerate(digests)) % WORD]
    return StepStamp(step, *(s - WORD if signed and s >= WORD // 2 else s for s in sums))


def told(count: int) -> Told:
    return Told("train", [lambda k=k: f"argument {k}" for k in range(count)])  # type: ignore[misc]


@given(st.lists(WORDS, min_size=1, max_size=40), st.data())
def test_the_one_argument_that_differs_is_named(digests: list[int], data: st.DataObject) -> None:
    k = data.draw(st.integers(0, len(digests) - 1))
    other = list(digests)
    other[k] = data.draw(WORDS.filter(lambda d: d != digests[k]))
    mine = stamp(3, digests, signed=data.draw(st.booleans()))
    found = told(len(digests)).difference(mine, stamp(3, other, signed=True), (0, 5), "m.py:1")
    assert isinstance(found, InputError) and "rank 5 has another value than rank 0 in step 3 of train" in str(found)
    # A difference of 2^60 times something can be that of several arguments: then all are named.
    assert found.where == f"argument {k}" or f"argument {k}" in str(found.where).split("some of ")[1].split(", ")
    if (digests[k] - other[k]) % 2:
        assert found.where == f"argument {k}"


@given(st.lists(WORDS, max_size=20))
def test_equal_ranks_differ_in_nothing(digests: list[int]) -> None:
    both = stamp(7, digests), stamp(7, digests, signed=True)
    assert told(len(digests)).difference(*both, (0, 1)) is None
    found = told(len(digests)).difference(both[0], stamp(8, digests), (0, 1))
    assert isinstance(found, RunError) and "rank 1 is in step 8 of train, but rank 0 is in step 7" in str(found)


def test_several_differences_name_all_that_it_could_be() -> None:
    found = told(3).difference(stamp(1, [5, 6, 7]), stamp(1, [9, 6, 8]), (1, 0))
    assert found is not None and found.where == "some of argument 0, argument 1, argument 2"


def test_digests() -> None:
    assert digest_of(np.float64(-1).tobytes()) != digest_of(np.float64(-2).tobytes())
    assert digest_of(np.float32(0.0).tobytes()) != digest_of(np.float32(-0.0).tobytes())
    assert digest_of(bytes(8) + b"a") != digest_of(bytes(9))
    assert 0 <= digest_of(b"\xff" * 9) < WORD
