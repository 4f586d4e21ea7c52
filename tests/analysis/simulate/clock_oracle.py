"""The simulator's clock, written again in the plainest way: every iteration, fair shares by bisection, and a queue that
is walked anew whenever something happens."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shardc.analysis.simulate.timed import Timed, TimedBranches, TimedDone, TimedLoop, TimedStart, TimedWork

_CLOSE = 1e-12


@dataclass
class Run:
    """What a run comes to; ``flying`` are [work, seconds left, uses], ``limit`` of which share each kind of links."""

    limit: int = 0
    now: float = 0.0
    compute: float = 0.0
    exposed: float = 0.0
    idle: float = 0.0
    overlapped: float = 0.0
    count: dict[int, int] = field(default_factory=dict)
    waited: dict[int, float] = field(default_factory=dict)
    flying: list[tuple[int, list[float], Mapping[str, float]]] = field(default_factory=list)


def shares(uses: Sequence[Mapping[str, float]]) -> list[float]:
    """Max-min fair speeds: raise a common level by bisection, stop whoever cannot rise, again."""
    fixed: dict[int, float] = {n: 1.0 for n, u in enumerate(uses) if not any(u.values())}

    def speeds(level: float) -> list[float]:
        return [fixed.get(n, min(1.0, level / max(u.values(), default=1.0))) for n, u in enumerate(uses)]

    def load(level: float, link: str) -> float:
        return sum(r * u.get(link, 0.0) for r, u in zip(speeds(level), uses, strict=True))

    links = sorted({link for u in uses for link in u})
    while len(fixed) < len(uses):
        low, high = 0.0, 1.0
        if any(load(1.0, link) > 1 + _CLOSE for link in links):
            for _ in range(60):
                middle = (low + high) / 2
                low, high = (low, middle) if any(load(middle, x) > 1 for x in links) else (middle, high)
        else:
            low = 1.0
        level = low
        full = {link for link in links if load(level, link) > 1 - 1e-9}
        for n, r in enumerate(speeds(level)):
            if n not in fixed and (r >= 1 - 1e-9 or full & uses[n].keys()):
                fixed[n] = r
    return speeds(1.0)


def run_plainly(steps: Sequence[Timed], limit: int = 0) -> Run:
    run = Run(limit)
    _steps(run, steps)
    return run


def _steps(run: Run, steps: Sequence[Timed]) -> None:
    for step in steps:
        if isinstance(step, TimedWork):
            run.count[step.work] = run.count.get(step.work, 0) + 1
            run.compute += step.seconds
            run.overlapped += _let(run, step.seconds)
        elif isinstance(step, TimedStart):
            run.count[step.work] = run.count.get(step.work, 0) + 1
            run.idle += step.overhead
            _let(run, step.overhead)
            uses = {link: s / step.seconds for link, s in step.loads.items()} if step.seconds else {}
            run.flying.append((step.work, [step.seconds], uses))
            if step.waits:
                _wait(run, step.work)
        elif isinstance(step, TimedDone):
            _wait(run, step.work)
            run.idle += step.overhead
            _let(run, step.overhead)
        elif isinstance(step, TimedLoop):
            for _ in range(step.trips):
                _steps(run, step.condition)
                _steps(run, step.body)
            _steps(run, step.condition)
        elif isinstance(step, TimedBranches):
            tried = [copy.deepcopy(run) for _ in step.branches]
            for other, branch in zip(tried, step.branches, strict=True):
                _steps(other, branch)
            run.__dict__.update(max(tried, key=lambda r: r.now).__dict__)


def _let(run: Run, seconds: float) -> float:
    """Let seconds pass; how many of them something flew in."""
    busy = 0.0
    while seconds > 0:
        flying, rates = _served(run)
        step = min([seconds, *(left[0] / r for left, r in zip(flying, rates, strict=True))])
        for left, r in zip(flying, rates, strict=True):
            left[0] -= step * r
            left[0] = 0.0 if left[0] < 1e-11 else left[0]
        busy += step if flying else 0.0
        run.now += step
        seconds -= step
    return busy


def _served(run: Run) -> tuple[list[list[float]], list[float]]:
    """What flies, and how fast: of unfinished transfers those with fewer than the limit before them on all links."""
    open_ = [(left, uses) for _, left, uses in run.flying if left[0] > 0]
    served = [
        (left, uses)
        for n, (left, uses) in enumerate(open_)
        if not run.limit or all(sum(x in other for _, other in open_[:n]) < run.limit for x in uses)
    ]
    return [left for left, _ in served], shares([uses for _, uses in served])


def _wait(run: Run, work: int) -> None:
    mine = next(left for w, left, _ in reversed(run.flying) if w == work)
    begin = run.now
    while mine[0] > 0:
        flying, rates = _served(run)
        _let(run, min(left[0] / r for left, r in zip(flying, rates, strict=True)))
    run.exposed += run.now - begin
    run.waited[work] = run.waited.get(work, 0.0) + run.now - begin
    run.flying = [f for f in run.flying if f[1] is not mine]
