"""Who keeps the others waiting: from where the processes of a job are to the error that names them."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from shardc.collectives.call.control_table import (
    ARRIVING,
    COMPUTING,
    EXCHANGING,
    EXPECTING,
    FINISHING,
    GONE,
    OUTSIDE,
    WORKING,
)
from shardc.collectives.call.stamp import SAME_CALLS
from shardc.hlo.errors import InputError, RunError
from shardc.hlo.files import make_folder
from shardc.hlo.units import count_text
from shardc.launcher.jobs.rank_status import (
    DEAD,
    RUNNING,
    STOPPED,
    UNKNOWN,
    CollectivePlan,
    NamedCollective,
    RankStatus,
)
from shardc.launcher.run.output_files import write_text
from shardc.native.drive.drive_loop import DONE_PHASE, START

__all__ = [
    "culprits",
    "diagnose_hang",
    "diverged_ranks",
    "is_deadlocked",
    "is_standstill",
    "waits_for_the_ended",
    "write_flight_recorder",
]

log = logging.getLogger("shardc")


#: The programs that ranks run, by number.
Plans = Mapping[int, CollectivePlan]

#: Collectives of a flight recorder that are shown.
_SHOWN = 8

_PHASES = {START: "the start of ", DONE_PHASE: "the end of "}


def culprits(found: Sequence[RankStatus], plans: Plans) -> list[RankStatus]:
    """The ranks that the others wait for: dead ranks; else stopped ones; else those that took another branch than most;
    else those that have ended or do something else while others wait for them; else those that wait in another program
    or exchange than most. Empty if no rank waits."""
    for process in (DEAD, STOPPED):
        gone = [s for s in found if s.process == process and not (process == DEAD and s.state == GONE)]
        if gone:
            return gone
    astray = diverged_ranks(found)
    if astray:
        return astray
    waiting = [s for s in found if _waits(s)]
    needed = {r for s in waiting for r in _partners(s, plans, found)}
    absent = [s for s in found if s.rank in needed and not _waits(s)]
    ended = [s for s in absent if s.state == GONE]
    busy = [s for s in absent if s.state in (OUTSIDE, COMPUTING)]
    return ended or busy or absent or _in_minority(found)


def is_deadlocked(found: Sequence[RankStatus], before: Sequence[RankStatus], rank: int, plans: Plans) -> bool:
    """Whether ``rank``, which has again found others missing, waits for processes that wait for it. A rank that waits
    for all others shows by ``polls`` that it has looked since ``before``. So a process that was at another place both
    times did not reach it in between.
    """
    then = {s.rank: s for s in before}
    here = {
        s.rank: s
        for s in found
        if s.rank in then
        and s.state in (ARRIVING, EXCHANGING)
        and _place(s) == _place(then[s.rank])
        and (s.polls > then[s.rank].polls or s.state == EXCHANGING)
    }
    blocked = set(here)
    while True:
        held = {
            r
            for r in blocked
            if any(_place(here[m]) != _place(here[r]) for m in _awaited(here[r], here, plans, blocked))
        }
        if held == blocked:
            return rank in held
        blocked = held


def waits_for_the_ended(found: Sequence[RankStatus], rank: int, plans: Plans) -> bool:
    """Whether ``rank`` waits, outside of a step, for a process that has ended."""
    mine = next(s for s in found if s.rank == rank)
    ended = {s.rank for s in found if s.state == GONE}
    return mine.state == EXCHANGING and not ended.isdisjoint(_partners(mine, plans, found))


def _awaited(s: RankStatus, here: Mapping[int, RankStatus], plans: Plans, blocked: set[int]) -> list[int]:
    return [r for r in _partners(s, plans, [*here.values()]) if r in blocked and r != s.rank]


def _place(s: RankStatus) -> tuple[object, ...]:
    """Where a process waits, the same for all that meet there."""
    if s.state == EXCHANGING:
        return ("exchange", (s.group, s.exchanges))
    return (s.program, s.channel, s.sequence, s.index)


def _partners(s: RankStatus, plans: Plans, found: Sequence[RankStatus]) -> frozenset[int]:
    """The ranks whom a waiting process needs; itself among them."""
    if s.state == EXCHANGING:
        # Who has been in it may have left it already.
        return frozenset(e.rank for e in found if e == s or e.met.get(s.rank, 0) < s.met.get(e.rank, 0))
    collective = _collective(s, plans)
    return frozenset() if collective is None else collective.together(s.rank)


def _in_minority(found: Sequence[RankStatus]) -> list[RankStatus]:
    """Those that wait in another program or exchange than most; all where there is no majority."""
    groups: dict[tuple[object, ...], list[RankStatus]] = {}
    for s in found:
        if _waits(s):
            groups.setdefault(_place(s)[: 2 if s.state == EXCHANGING else 1], []).append(s)
    if len(groups) < 2:
        return []
    most = max(len(group) for group in groups.values())
    leading = [group for group in groups.values() if len(group) == most]
    kept = leading[0] if len(leading) == 1 else []
    return [s for s in found if _waits(s) and s not in kept]


def is_standstill(found: Sequence[RankStatus], before: Sequence[RankStatus]) -> bool:
    """Whether every rank waits for others of this node or has ended, at the same place as ``before``. Groups of ranks
    may have different trip counts of a loop, and so take different branches for a while. That is no hang as long as one
    of them makes progress.
    """
    same = [(s.rank, s.state, s.completed, s.begun) for s in found] == [
        (s.rank, s.state, s.completed, s.begun) for s in before
    ]
    return same and all(s.state in (ARRIVING, FINISHING, GONE) or s.process != RUNNING for s in found)


def diverged_ranks(found: Sequence[RankStatus]) -> list[RankStatus]:
    """Those whose n-th collective of a program was another one than most had, for the first n where they differ; all
    that differ there when there is no majority."""
    for program in {s.program: None for s in found if s.recent}:
        ways = [(s, _collectives_reached(s)) for s in found if s.program == program and s.recent]
        for n in sorted(set.intersection(*(set(way) for _, way in ways))):
            takers: dict[tuple[int, int], list[RankStatus]] = {}
            for s, way in ways:
                takers.setdefault(way[n], []).append(s)
            if len(takers) > 1:
                most = max(len(group) for group in takers.values())
                leading = [group for group in takers.values() if len(group) == most]
                kept = leading[0] if len(leading) == 1 else []
                return [s for s, _ in ways if s not in kept]
    return []


def _collectives_reached(s: RankStatus) -> dict[int, tuple[int, int]]:
    """The collectives and phases that a process reached, by number."""
    first = s.begun - len(s.recent)
    return {first + n: (index, phase) for n, (index, phase, _) in enumerate(s.recent)}


def diagnose_hang(found: Sequence[RankStatus], plans: Plans, why: str) -> RunError:
    """The error that names the missing ranks, their state, and the collective in which the others wait. ``why`` is the
    reason for the check, for example ``after 60 s``; empty where the states say it all.
    """
    because = f" ({why})" if why else ""
    guilty = culprits(found, plans)
    astray = guilty == diverged_ranks(found) != []
    minority = not astray and guilty == _in_minority(found) != []
    waiting = [s for s in found if _waits(s) and s not in guilty]
    met = max(waiting, key=lambda s: (bool(_needs(s, guilty, plans)), s.waited), default=None)
    collective = None if met is None else _collective(met, plans)
    if not guilty:
        what = f"the ranks of this node wait for others{because}"
    elif astray:
        what = f"{_names(guilty)} took another branch of the program than the others{because}"
    elif minority:
        what = f"{_names(guilty)} reached another collective than the others{because}"
        if len(guilty) == sum(_waits(s) for s in found):
            what = f"{_names(guilty)} wait for each other at different places{because}"
    elif met is not None and collective is not None:
        what = f"{_names(guilty)} did not reach {collective}, {collective.devices[met.rank]}{because}"
    elif met is not None and met.state == EXCHANGING:
        what = f"{_names(guilty)} did not take part in {met.note}{because}"
    else:
        what = f"{_names(guilty)} failed{because}"
    lines = [f"{s.peer}: {_doing(s, plans)}{_history(s, plans) * (not minority)}" for s in guilty]
    lines += [
        f"{s.peer}: {_doing(s, plans)}{_history(s, plans) * astray}"
        for s in found
        if s not in guilty and s.state != UNKNOWN
    ]
    where = collective.place if collective is not None else _last_place(guilty, plans)
    if met is not None and met.state == EXCHANGING:
        where = met.place or where
    return RunError(
        "\n  ".join([what, *lines]), where=where or None, fix=SAME_CALLS if minority else _remedy(guilty, astray)
    )


def _waits(s: RankStatus) -> bool:
    return s.process not in (DEAD, STOPPED) and s.state in (ARRIVING, FINISHING, EXPECTING, EXCHANGING)


def _collective(s: RankStatus, plans: Plans) -> NamedCollective | None:
    plan = None if s.state == EXCHANGING else plans.get(s.program)
    return None if plan is None else plan.collectives.get(s.index)


def _needs(s: RankStatus, guilty: Sequence[RankStatus], plans: Plans) -> bool:
    collective = _collective(s, plans)
    return collective is not None and any(g.rank in collective.together(s.rank) for g in guilty)


def _names(guilty: Sequence[RankStatus]) -> str:
    return " and ".join(str(s.peer) for s in guilty)


def _doing(s: RankStatus, plans: Plans) -> str:
    """What a process does, in words."""
    collective, before = _collective(s, plans), f"after {count_text(s.completed, 'collective')}"
    phase = _PHASES.get(s.phase, "")
    at = f"{phase}{collective}" if collective is not None else f"collective {s.index}"
    if s.program in plans and s.step:
        at += f" of {plans[s.program].name}, step {s.step}"
    if s.state == EXCHANGING:
        at = f"{s.note} at {s.place}" if s.place else s.note
        doing = f"it waits for the other ranks in {at}, for {s.waited / 1e9:.1f} s"
    elif s.state in (ARRIVING, FINISHING, EXPECTING):
        doing = "it waits for messages from other nodes in " if s.state == EXPECTING else "it waits in "
        doing += f"{at}, {collective.devices[s.rank]}, " if collective is not None else f"{at} "
        doing += f"for {s.waited / 1e9:.1f} s"
    else:
        last = f", the last {collective}" if s.completed and collective else ""
        doing = {
            OUTSIDE: f"it is in the user's code, outside of a step, {before}",
            COMPUTING: f"it computes in a step, {before}{last}",
            WORKING: f"it works on {at}",
            GONE: f"it has ended, {before}",
        }.get(s.state, f"it is in state {s.state}")
    if s.process == DEAD and s.state != GONE:
        return "it died" + ("" if s.state == UNKNOWN else f"; last seen: {doing}")
    return ("it is stopped (state T); " if s.process == STOPPED else "") + doing


def _history(s: RankStatus, plans: Plans) -> str:
    """The last collectives of a process, newest last."""
    plan = plans.get(s.program)
    if plan is None or not s.recent:
        return ""
    words = []
    for index, phase, took in s.recent[-_SHOWN:]:
        collective = plan.collectives.get(index)
        name = f"%{collective.name}" if collective is not None else str(index)
        mark = {START: " start", DONE_PHASE: " done"}.get(phase, "")
        words.append(f"{name}{mark} " + ("unfinished" if took is None else f"{took:.3g} ms"))
    return "; its last: " + ", ".join(words)


def _last_place(guilty: Sequence[RankStatus], plans: Plans) -> str:
    collectives = [collective for s in guilty if (collective := _collective(s, plans)) is not None and s.completed]
    return collectives[0].place if collectives else ""


def _remedy(guilty: Sequence[RankStatus], astray: bool) -> str:
    if any(s.process == DEAD for s in guilty):
        return "look at that process's own output and at the system's log (out of memory?)"
    if any(s.process == STOPPED for s in guilty):
        return "something stopped that process (SIGSTOP, a debugger)"
    if guilty and all(s.state == GONE for s in guilty):
        return SAME_CALLS
    if astray:
        return "a condition that guards collectives must have the same value on all ranks"
    return "find out what delays that rank; set SHARDC_TIMEOUT=seconds to wait longer, 0: no limit"


def write_flight_recorder(
    folder: Path, who: str, error: BaseException, found: Sequence[RankStatus], plans: Plans
) -> None:
    """Write where all processes were, and their last collectives, when ``who`` reported ``error`` for the job."""
    data = {
        "error": str(error),
        "processes": [asdict(s) for s in found],
        "programs": {str(number): plan.to_json() for number, plan in plans.items()},
    }
    try:
        make_folder(folder, "environment variable SHARDC_DUMP_TO")
        write_text(folder / f"flight-recorder.{who}.json", json.dumps(data, indent=1))
    except InputError as e:  # what ends the job is the error to tell
        log.warning("SHARDC_DUMP_TO: no flight recorder of %s: %s", who, e)
