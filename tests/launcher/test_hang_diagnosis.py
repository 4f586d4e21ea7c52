"""Who is named when ranks wait: from where each of them stands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardc.collectives.call.call import BufferRef, CollectiveCall, CollectiveOperand
from shardc.collectives.call.control_table import ARRIVING, COMPUTING, EXCHANGING, EXPECTING, GONE, OUTSIDE
from shardc.collectives.call.membership import Ownership
from shardc.hlo.ir.groups import ListGroups, ListPairs
from shardc.hlo.ir.types import DTYPES
from shardc.launcher.jobs.hang_diagnosis import (
    culprits,
    diagnose_hang,
    diverged_ranks,
    is_deadlocked,
    is_standstill,
    waits_for_the_ended,
)
from shardc.launcher.jobs.rank_status import (
    DEAD,
    RUNNING,
    STOPPED,
    UNKNOWN,
    CollectivePlan,
    Peer,
    RankStatus,
    process_state,
    this_process,
)

PLACE = CollectiveOperand(BufferRef("arena", 0, 64, 4), BufferRef("arena", 0, 128, 4), DTYPES["f32"], 1)
CALLS = [
    CollectiveCall(0, "all-reduce", "add", ListGroups(((0, 1), (2, 3))), (PLACE,), "rows", "m.py:1", "it was cut"),
    CollectiveCall(1, "all-reduce", "add", ListGroups(((0, 1, 2, 3),)), (PLACE,), "all", "m.py:2"),
    CollectiveCall(2, "collective-permute", "", ListPairs(((0, 1), (3, 2))), (PLACE,), "turn", "m.py:3"),
]
PLANS = {n: CollectivePlan.of(name, CALLS, Ownership(4, 4)) for n, name in ((5, "step"), (6, "other"))}


def at(rank: int, state: int, index: int = 0, way: tuple[int, ...] = (), process: str = RUNNING) -> RankStatus:
    recent = tuple((i, 0, 0.5) for i in way)
    numbers = {"program": 5, "index": index, "completed": len(way), "waited": 2_000_000_000, "begun": len(way)}
    return RankStatus(Peer(rank, "host", 100 + rank, 1), process, state, recent=recent, **numbers)  # type: ignore[arg-type]


def names(found: list[RankStatus]) -> list[int]:
    return [s.rank for s in culprits(found, PLANS)]


WAITING = [at(rank, ARRIVING, 1) for rank in range(4)]


@pytest.mark.parametrize(
    ("changed", "guilty"),
    [
        ({2: at(2, OUTSIDE, 0)}, [2]),
        ({2: at(2, COMPUTING, 0), 3: at(3, OUTSIDE)}, [2, 3]),
        ({0: at(0, ARRIVING, 0), 1: at(1, COMPUTING)}, [1]),
        ({1: at(1, ARRIVING, 1, process=DEAD), 3: at(3, OUTSIDE)}, [1]),
        ({1: at(1, COMPUTING, process=STOPPED), 3: at(3, OUTSIDE)}, [1]),
        ({1: at(1, GONE), 3: at(3, OUTSIDE)}, [1]),
        ({1: at(1, GONE, process=DEAD)}, [1]),
        ({}, []),
    ],
)
def test_who_keeps_the_others_waiting(changed: dict[int, RankStatus], guilty: list[int]) -> None:
    found = [changed.get(rank, s) for rank, s in enumerate(WAITING)]
    assert names(found) == guilty


def test_who_is_not_waited_for_is_not_named() -> None:
    found = [at(0, ARRIVING), at(1, OUTSIDE), at(2, OUTSIDE), at(3, COMPUTING)]
    assert names(found) == [1]  # 2 and 3 are in another group


@pytest.mark.parametrize(
    ("ways", "guilty"),
    [
        (((0, 1, 0), (0, 1, 0), (0, 1, 1), (0, 1, 0)), [2]),
        (((0, 1), (0, 1, 0), (0, 1, 0, 1), (0,)), []),
        (((0, 1), (0, 2), (0, 1), (0, 2)), [0, 1, 2, 3]),
        (((0, 1), (1, 0), (0, 1), (0,)), [1]),
        (((), (1,), (), ()), []),
    ],
)
def test_who_took_another_way(ways: tuple[tuple[int, ...], ...], guilty: list[int]) -> None:
    found = [at(rank, ARRIVING, way[-1] if way else 0, way) for rank, way in enumerate(ways)]
    assert [s.rank for s in diverged_ranks(found)] == guilty


def test_who_gets_on_by_another_way_is_not_lost() -> None:
    still = [at(0, ARRIVING, 2, (0, 1, 2)), at(1, ARRIVING, 2, (0, 1, 2)), at(2, ARRIVING, 1, (0, 1, 1)), at(3, GONE)]
    assert diverged_ranks(still)
    assert is_standstill(still, still)
    for rank, other in ((2, at(2, COMPUTING, 1, (0, 1, 1))), (2, replace(still[2], begun=9)), (0, at(0, EXPECTING, 2))):
        moving = [other if s.rank == rank else s for s in still]
        assert not is_standstill(moving, still)
        assert not is_standstill(still, moving)
    computing = [at(2, COMPUTING, 1, (0, 1, 1)) if s.rank == 2 else s for s in still]
    assert not is_standstill(computing, computing)
    assert not is_standstill(still, [])


def test_only_the_end_of_a_long_way_is_known() -> None:
    long = at(1, ARRIVING, 1, (0, 1, 0, 1))
    found = [at(0, ARRIVING, 1, (0, 1, 0, 1)), replace(long, recent=long.recent[2:]), at(2, ARRIVING, 1, (0, 1, 0, 1))]
    assert not diverged_ranks(found)
    assert [s.rank for s in diverged_ranks([found[0], replace(found[1], recent=((1, 0, 0.5),) * 2), found[2]])] == [1]


def test_the_message_has_everything() -> None:
    found = [at(0, ARRIVING, 0), at(1, COMPUTING, 2, (0, 1, 2), STOPPED), at(2, ARRIVING, 1), at(3, ARRIVING, 1)]
    assert str(diagnose_hang(found, PLANS, "after 2 s")) == (
        "rank 1 (pid 101 on host) did not reach all-reduce %rows (collective 0), group 0,1 (after 2 s)\n"
        "  rank 1 (pid 101 on host): it is stopped (state T); it computes in a step, after 3 collectives, the last "
        "collective-permute %turn (collective 2); its last: %rows 0.5 ms, %all 0.5 ms, %turn 0.5 ms\n"
        "  rank 0 (pid 100 on host): it waits in all-reduce %rows (collective 0), group 0,1, for 2.0 s\n"
        "  rank 2 (pid 102 on host): it waits in all-reduce %all (collective 1), group 0,1,2,3, for 2.0 s\n"
        "  rank 3 (pid 103 on host): it waits in all-reduce %all (collective 1), group 0,1,2,3, for 2.0 s\n"
        "  where: m.py:1 (it was cut)\n"
        "  fix: something stopped that process (SIGSTOP, a debugger)"
    )


def test_what_is_not_known_is_not_said() -> None:
    found = [RankStatus(Peer(rank, "host", 100 + rank, 1), DEAD if rank == 1 else RUNNING) for rank in range(3)]
    assert found[0].state == UNKNOWN
    said = str(diagnose_hang(found, {}, "seen by the launcher"))
    assert said.startswith(
        "rank 1 (pid 101 on host) failed (seen by the launcher)\n  rank 1 (pid 101 on host): it died\n"
    )
    assert "rank 0" not in said


def test_pairs_are_told_by_rank() -> None:
    collective = PLANS[5].collectives[2]
    assert [collective.devices[r] for r in range(4)] == ["pairs 0 to 1", "pairs 0 to 1", "pairs 3 to 2", "pairs 3 to 2"]
    assert collective.together(3) == {2, 3}
    assert CollectivePlan.from_json(PLANS[5].to_json()) == PLANS[5]


def test_processes_of_this_machine() -> None:
    mine = this_process(3)
    assert (mine.rank, process_state(mine)) == (3, RUNNING)
    assert process_state(replace(mine, pid=1 << 30)) == DEAD


def looked(found: list[RankStatus], *idle: int) -> list[RankStatus]:
    """The same a look later; ``idle`` ranks have not looked themselves."""
    return [s if s.rank in idle else replace(s, polls=s.polls + 1) for s in found]


def exchanging(rank: int, note: str = "the compilation of f") -> RankStatus:
    return met(replace(at(rank, EXCHANGING), note=note, exchanges=1), 0, 1, 2, 3)


def met(status: RankStatus, *ranks: int) -> RankStatus:
    """It has begun one exchange, with ``ranks``."""
    return replace(status, met=dict.fromkeys(ranks, 1))


OTHER = replace(at(3, ARRIVING, 1), program=6, step=2)


@pytest.mark.parametrize(
    ("changed", "idle", "ranks"),
    [
        ({}, (), ()),
        ({3: OTHER}, (), (0, 1, 2, 3)),
        ({3: OTHER}, (3,), ()),  # it may only not have noticed yet that all have come
        ({3: exchanging(3)}, (3,), (0, 1, 2, 3)),
        ({2: at(2, COMPUTING), 3: exchanging(3)}, (), (0, 1, 3)),
        ({2: at(2, COMPUTING), 3: replace(OTHER, index=0)}, (), ()),  # 3 waits for 2 only, and the others for both
        ({r: exchanging(r) for r in (1, 2, 3)}, (), (0, 1, 2, 3)),
        ({r: exchanging(r) for r in range(4)}, (), ()),
        ({0: met(at(0, ARRIVING, 1), 3), 3: exchanging(3)}, (), (1, 2, 3, 0)),  # 3 needs 1 and 2
        ({r: met(at(r, ARRIVING, 1), 3) for r in range(3)} | {3: exchanging(3)}, (), ()),  # it may leave
        ({3: met(exchanging(3), 2)}, (), (0, 1, 2, 3)),  # of some ranks, of which 2 waits for it elsewhere
        ({2: met(at(2, ARRIVING, 1), 3), 3: met(exchanging(3), 2)}, (), ()),
        ({2: met(exchanging(2), 2, 3), 3: met(exchanging(3), 2, 3)}, (), ()),  # which both are in
        ({0: at(0, ARRIVING, 0), 1: at(1, ARRIVING, 0), 2: at(2, OUTSIDE), 3: exchanging(3)}, (), ()),
        ({3: at(3, EXPECTING, 1)}, (), ()),
    ],
)
def test_who_waits_for_processes_that_wait_for_it(
    changed: dict[int, RankStatus], idle: tuple[int, ...], ranks: tuple[int, ...]
) -> None:
    before = [changed.get(rank, s) for rank, s in enumerate(WAITING)]
    found = looked(before, *idle)
    assert tuple(r for r in range(4) if is_deadlocked(found, before, r, PLANS)) == tuple(sorted(ranks))
    moved = [replace(s, sequence=s.sequence + 1, exchanges=s.exchanges + 1) for s in found]
    assert not any(is_deadlocked(moved, before, r, PLANS) for r in range(4))


def test_who_came_to_something_else_is_named_with_what_it_does() -> None:
    found = [replace(s, step=9) for s in WAITING[:3]]
    said = str(diagnose_hang([*found, exchanging(3, "the compilation of f(float32[8])")], PLANS, ""))
    assert said.startswith("rank 3 (pid 103 on host) reached another collective than the others\n")
    assert (
        "rank 3 (pid 103 on host): it waits for the other ranks in the compilation of f(float32[8]), for 2.0 s" in said
    )
    assert "rank 0 (pid 100 on host): it waits in all-reduce %all (collective 1) of step, step 9, group 0,1,2,3" in said
    assert "where: m.py:2" in said and "fix: call the same programs" in said
    said = str(diagnose_hang([*found, OTHER], PLANS, ""))
    assert "rank 3 (pid 103 on host): it waits in all-reduce %all (collective 1) of other, step 2" in said
    said = str(diagnose_hang([WAITING[0], OTHER], PLANS, ""))
    assert "rank 0 (pid 100 on host) and rank 3 (pid 103 on host) wait for each other at different places" in said
    late = [at(0, OUTSIDE), *(exchanging(r) for r in (1, 2, 3))]
    assert str(diagnose_hang(late, PLANS, "after 2 s")).startswith(
        "rank 0 (pid 100 on host) did not take part in the compilation of f"
    )


def test_who_has_ended_while_another_waits_outside_of_a_step() -> None:
    waiting = replace(met(exchanging(0), 0, 1), place="train.py:4")
    ended = at(1, GONE)
    assert waits_for_the_ended([waiting, ended], 0, PLANS)
    said = str(diagnose_hang([waiting, ended], PLANS, ""))
    assert said.startswith("rank 1 (pid 101 on host) did not take part in the compilation of f\n")
    assert (
        "rank 0 (pid 100 on host): it waits for the other ranks in the compilation of f at train.py:4, for 2.0 s"
        in said
    )
    assert "where: train.py:4\n" in said and "fix: call the same programs in the same order on all ranks" in said
    # Who has been there, and has ended behind it, is not waited for.
    assert not waits_for_the_ended([waiting, replace(ended, met={0: 1, 1: 1})], 0, PLANS)
    assert not waits_for_the_ended([at(0, COMPUTING), ended], 0, PLANS)
