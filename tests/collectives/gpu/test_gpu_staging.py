"""Where collectives through the host have their operands and results there."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from shardc.collectives.call.call import CollectiveCall
from shardc.collectives.call.membership import check_call
from shardc.collectives.call.memory import PASSED_BY
from shardc.collectives.gpu.staging import stage_calls
from tests.collectives.oracle import OPS, make_case


def calls() -> list[CollectiveCall]:
    """Every op, each second one asynchronous, and an all-reduce in place."""
    made = [make_case(n, op, 0, ("f32", "s8"), 5 + n, index=n).call for n, op in enumerate(OPS)]
    made = [replace(c, asynchronous=c.index % 2 == 1) for c in made]
    last = make_case(9, "all-reduce", 0, ("f32",), 33, index=9).call
    return [*made, replace(last, operands=tuple(replace(o, result=o.operand) for o in last.operands))]


def spans(call: CollectiveCall) -> list[tuple[int, int]]:
    refs = {r for o in call.operands for r in (o.operand, o.result)}
    return [(r.offset, r.offset + r.nbytes) for r in refs]


def apart(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> bool:
    return all(b <= c or d <= a for a, b in one for c, d in other)


def test_calls_stay_what_they_are_in_arenas_of_their_own() -> None:
    staging = stage_calls(calls())
    for old, new in zip(calls(), staging.calls, strict=True):
        check_call(new, 8)
        assert replace(new, operands=old.operands) == old
        for o in new.operands:
            assert {o.operand.space, o.result.space} == {"arena"}
            assert o.operand.offset % 64 == o.result.offset % 64 == 0
        assert min(a for a, _ in spans(new)) >= PASSED_BY + 8
        assert max(b for _, b in spans(new)) <= staging.nbytes
    (in_place,) = staging.calls[-1].operands
    assert in_place.operand == in_place.result


def test_what_is_under_way_is_apart_from_everything() -> None:
    made = stage_calls(calls()).calls
    for one, other in combinations(made, 2):
        if one.asynchronous or other.asynchronous:
            assert apart(spans(one), spans(other))
    together = [c for c in made if not c.asynchronous]
    assert not apart(spans(together[0]), spans(together[1])), "others take the same memory"


def test_what_comes_and_goes() -> None:
    staging = stage_calls(calls())
    for call in calls():
        assert [there for there, _ in staging.incoming(call.index)] == [o.operand for o in call.operands]
        assert [there for there, _ in staging.outgoing(call.index)] == [o.result for o in call.operands]
        for there, here in (*staging.incoming(call.index), *staging.outgoing(call.index)):
            assert there.nbytes == here.nbytes
