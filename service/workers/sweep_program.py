"""Orders of kind ``sweep``: meshes and annotations ranked by predicted time.

Where there are several workers, each candidate is a piece of the order (`shardc.service.workers.pieces`). A sweep
goes on as its outcomes say and nothing else, so the order's task is done from the beginning each time that it is asked,
which takes no time: candidates that were found before are known, and what `SweepFacts` says stands for the programs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shardc.analysis.sweep.assess import Outcome, SweepCandidate, SweepSettings, assess
from shardc.analysis.sweep.inputs import SweepProgram
from shardc.analysis.sweep.meshes import device_counts, parse_limit
from shardc.analysis.sweep.plan import SweepFacts, SweepPlan, plan, with_text_specs
from shardc.analysis.sweep.result_cache import OutcomeCache
from shardc.analysis.sweep.sets import AnnotationSet, SetFile, need_own_names, sets_of
from shardc.analysis.sweep.where import assessor_here
from shardc.analysis.sweep.workers import Assessment, Assessor, Done, ProgramSource, read_again
from shardc.costs.machines.machine import load_machine
from shardc.hlo.codec import plain
from shardc.hlo.errors import InputError, RunError
from shardc.launcher.executors.problems import from_problem
from shardc.partitioner.program import SourceProgram
from shardc.service.orders import SweepOrder
from shardc.service.workers.pieces import PIECE_FILE, OrderPiece, PieceResult, WantedPieces
from shardc.service.workers.workbench import Workbench, mesh_of

__all__ = ["sweep_program"]

#: Pieces that are asked for at a time: more would only fill the server's memory.
_MOST_PIECES = 1000


@dataclass(frozen=True, slots=True)
class _Which:
    """Which candidate a piece is."""

    source: int
    devices: int
    mesh: Mapping[str, int]
    set: str
    for_machine: bool

    @staticmethod
    def of(task: Assessment) -> _Which:
        c = task.candidate
        return _Which(c.source, c.devices, c.mesh, c.name, task.settings.for_machine)


class _MissingOutcomes(Exception):
    """Candidates whose outcomes are not known: how a sweep is left that others have to help with."""

    def __init__(self, tasks: Sequence[Assessment]) -> None:
        self.tasks = tasks


def sweep_program(bench: Workbench, order: SweepOrder) -> dict[str, bytes] | WantedPieces:
    """``sweep.json``; or, where several workers are worth it, the candidates that they should assess."""
    part = bench.part
    if part.piece:
        outcome = _assess(bench, order, plain.from_json(_Which, part.piece, "piece"))
        return {PIECE_FILE: plain.to_json(outcome).encode()}
    load_machine(bench.need_machine())  # wrong machines are told before anything else
    if part.notes:
        programs, seen = [], plain.from_plain(tuple[SweepFacts, ...], plain.read_json(part.notes))
    else:
        programs = _read(bench, order)
        seen = tuple(p.facts for p in programs)
    planned = _plan(bench, order, seen)
    alone = bool(programs) and planned.workers(part.workers) == 1
    assessor = assessor_here([p.program for p in programs]) if alone else _look_up_in(part.found)
    done, most = 0, planned.work

    def report(number: int, of: int) -> None:
        nonlocal done, most
        done, most = number, of
        bench.progress({"stage": "sweep", "done": done, "of": most})

    with bench.stage("sweep"):
        try:
            found = planned.find(assessor, OutcomeCache(bench.config(), planned.settings.machine), report)
        except _MissingOutcomes as e:
            digests, notes = _digests(order), plain.to_json(seen, tuple[SweepFacts, ...])
            wanted = (OrderPiece(digests[task.candidate.source], plain.to_json(_Which.of(task))) for task in e.tasks)
            return WantedPieces(tuple(wanted), notes, "sweep", done, most)
    return {"sweep.json": plain.to_json(replace(found, machine=bench.shown_machine)).encode()}


def _look_up_in(workers: Mapping[str, PieceResult]) -> Assessor:
    """Takes outcomes from what ``workers`` found; raises `_MissingOutcomes` when some are missing."""

    def look_up(tasks: Sequence[Assessment], done: Done) -> None:
        wanted = []
        for number, task in enumerate(tasks):
            found = workers.get(plain.to_json(_Which.of(task)))
            if found is None:
                wanted.append(task)
            else:
                done(number, _outcome(found))
        if wanted:
            raise _MissingOutcomes(wanted[:_MOST_PIECES])

    return look_up


def _outcome(found: PieceResult) -> Outcome | RunError:
    if found.problem is None:
        return plain.from_json(Outcome, found.text, "outcome")
    problem = from_problem(found.problem)
    return problem if isinstance(problem, RunError) else RunError(problem.what, where=problem.where, fix=problem.fix)


def _assess(bench: Workbench, order: SweepOrder, which: _Which) -> Outcome:
    """What comes of one candidate; kept here at once, so that little is lost with the server."""
    source = _source(bench, order, _digests(order)[which.source])
    specs = next(s.specs for s in _sets(order).sets if s.name == which.set)
    candidate = SweepCandidate(which.devices, which.mesh, which.set, specs, which.source)
    settings = replace(_settings(bench, order), for_machine=which.for_machine)
    program = _program(bench, source)
    with bench.stage("sweep"):
        outcome = assess(program, candidate, settings)
        OutcomeCache(program.config, settings.machine).keep(Assessment(source.digest, candidate, settings), outcome)
    return outcome


def _plan(bench: Workbench, order: SweepOrder, seen: Sequence[SweepFacts]) -> SweepPlan:
    own = order.mesh or seen[0].mesh
    if not order.devices and own is None:
        raise InputError(
            "the number of devices is missing", where="order.devices", fix="give numbers of devices, or a mesh"
        )
    return plan(
        seen,
        counts=device_counts(order.devices or math.prod((own or {}).values())),
        weak=bool(order.programs),
        settings=_settings(bench, order),
        sets=_sets(order),
        axes=dict(order.axes) or None,
        meshes=order.meshes,
        limit=order.limit,
        refine=order.refine,
    )


def _settings(bench: Workbench, order: SweepOrder) -> SweepSettings:
    return SweepSettings(bench.need_machine(), order.mapping, order.uneven, order.ignore_memory)


def _sets(order: SweepOrder) -> SetFile:
    """The annotations to choose from, the order's own in each."""
    need_own_names([s.name for s in order.sets], "order.sets")
    given = [
        AnnotationSet(
            s.name,
            s.annotations,
            {axis: parse_limit(sizes, f"order.sets, {s.name}, {axis}") for axis, sizes in s.axes.items()},
        )
        for s in order.sets
    ]
    sets = (replace(s, specs={**s.specs, **order.annotations}) for s in given or sets_of(None).sets)
    return with_text_specs(SetFile(tuple(sets), order.set_axes))


def _read(bench: Workbench, order: SweepOrder) -> list[SweepProgram]:
    if order.programs and order.programs[0] != order.program:
        fix = "for weak scaling give all programs, otherwise none"
        raise InputError("the order's program is not the first of its programs", where="order.programs", fix=fix)
    sources = [_source(bench, order, digest) for digest in _digests(order)]
    read_again.cache_clear()  # what reading warns of, each order tells
    return [SweepProgram(_program(bench, source), source) for source in sources]


def _source(bench: Workbench, order: SweepOrder, digest: str) -> ProgramSource:
    mesh = mesh_of(order.mesh)
    return ProgramSource(bench.program_data(digest), order.name, () if mesh is None else mesh.axes)


def _program(bench: Workbench, source: ProgramSource) -> SourceProgram:
    with bench.stage("read"):
        return replace(read_again(source), config=bench.config())


def _digests(order: SweepOrder) -> tuple[str, ...]:
    """The programs, by number as candidates count them."""
    return order.programs or (order.program,)
