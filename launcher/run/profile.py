"""Profiles: what each kernel of a step takes, beside what the machine could do; as rows, a table and a trace."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardc.compiler.executable import Executable
from shardc.compiler.lower.for_gpu import machine_of
from shardc.compiler.measured import write_measured
from shardc.compiler.profile import ProfilePlan, ProfileRecord, ProfileStep
from shardc.costs.machines.measured_roofline import Roofline, described_roofline, roofline
from shardc.hlo.config import Config
from shardc.hlo.errors import InputError
from shardc.launcher.driver.communication import (
    CollectiveEvent,
    Counts,
    communication_summary,
    communication_times,
    counts,
    recent_events,
)
from shardc.launcher.jobs.job import threads_per_process
from shardc.launcher.run.output_files import write_text
from shardc.native.gpu.target import target_of

__all__ = ["COLUMNS", "Profile", "ProfileRow", "profile_steps", "table_cells"]

#: Numbers of tracks in traces, beyond those of devices and threads.
_EXPOSED, _UNDER_WAY = 2000, 2001

#: Shares of the roofline beyond which it is measured again.
_CLEARLY = 1.2
#: Titles of `table_cells`.
COLUMNS = ("kernel", "at", "holds", "times", "us", "threads", "GB/s", "GF/s", "% of step", "% of roofline")


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """A site of the step: ``seconds`` for all its executions in one step, the median over steps on the slowest
    device. ``of_step`` and ``of_roofline`` are shares; work in caches may go beyond the roofline, which memory makes.
    ``threads`` is how many threads were at work on average; 0 where nobody can tell (several devices in a process).
    """

    site: ProfileStep
    calls: int
    seconds: float
    of_step: float
    of_roofline: float
    threads: float = 0.0

    @property
    def bytes_per_second(self) -> float:
        return self.calls * (self.site.read + self.site.written) / self.seconds if self.seconds else 0.0

    @property
    def flops_per_second(self) -> float:
        return self.calls * self.site.flops / self.seconds if self.seconds else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            **asdict(self.site),
            "calls": self.calls,
            "seconds": self.seconds,
            "bytes_per_second": self.bytes_per_second,
            "flops_per_second": self.flops_per_second,
            "of_step": self.of_step,
            "of_roofline": self.of_roofline,
            "threads": self.threads,
        }


@dataclass(frozen=True, slots=True)
class Profile:
    """``rows``, longest first; ``step_seconds`` is the median of ``all_steps``, the slowest device's seconds in each
    step; ``roofline`` is one device's.

    ``events`` are the last step's, by device: rows (site, begin, end) in nanoseconds; ``chunks`` are the pieces of
    kernels that threads computed in it, by rank: rows (thread, begin, end, first chunk, behind the last). Print it for
    a table.

    ``communication`` is what collectives took in all steps (`communication_summary`), ``collective_events`` are those
    of the last step, by rank; ``collective_names`` what their numbers mean. ``key`` is the program's, for
    `write_measured`.
    """

    program: str
    rows: tuple[ProfileRow, ...]
    all_steps: tuple[float, ...]
    roofline: Roofline
    sites: tuple[ProfileStep, ...]
    events: Mapping[int, NDArray[np.int64]]
    ranks: Mapping[int, int]
    dropped: int
    chunks: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)
    communication: Mapping[str, Any] = field(default_factory=dict)
    collective_events: Mapping[int, Sequence[CollectiveEvent]] = field(default_factory=dict)
    collective_names: Mapping[int, str] = field(default_factory=dict)
    key: str = ""

    def __str__(self) -> str:
        lines = [[*COLUMNS], *(list(cells) for cells in table_cells(self.as_dict()["summary"]))]
        widths = [max(len(line[n]) for line in lines) for n in range(len(COLUMNS))]
        text = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines]
        return "\n".join([self.title, *text])

    @property
    def step_seconds(self) -> float:
        return statistics.median(self.all_steps)

    @property
    def title(self) -> str:
        peak = self.roofline.flops_per_second["f32"] / 1e9
        limits = f"{self.roofline.bytes_per_second / 1e9:.1f} GB/s, {peak:.0f} GF/s (f32)"
        return f"{self.program}: step {self.step_seconds * 1e3:.3f} ms; roofline of a device {limits}"

    def summary(self) -> list[ProfileRow]:
        """The rows with those of one kernel and source line added up."""
        groups: dict[tuple[str, ...], list[ProfileRow]] = {}
        for row in self.rows:
            groups.setdefault((row.site.kernel, row.site.source, row.site.holds), []).append(row)
        return sorted(map(_added, groups.values()), key=lambda r: (-r.seconds, r.site.name))

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON: ``kernels`` by site, ``summary`` by function and source line."""
        limits = {"bytes_per_second": self.roofline.bytes_per_second, **self.roofline.flops_per_second}
        return {
            "title": self.title,
            "step_seconds": self.step_seconds,
            "roofline": limits,
            "summary": [r.as_dict() for r in self.summary()],
            "kernels": [r.as_dict() for r in self.rows],
        }

    def trace(self, path: str | Path) -> None:
        """Write the last step as a Chrome trace (JSON), which https://ui.perfetto.dev opens: a track per device, and
        where a process has one device a track per thread."""
        write_text(Path(path), json.dumps(self.trace_events()))

    def trace_events(self) -> dict[str, Any]:
        """The content of `trace`; a process per rank, times in microseconds."""
        starts = [int(e[:, 1].min()) for e in self.events.values() if len(e)]
        first = min(starts, default=0)
        out: list[dict[str, Any]] = []
        for device, events in sorted(self.events.items()):
            place = {"pid": self.ranks[device], "tid": device}
            out.append({"name": "process_name", "ph": "M", **place, "args": {"name": f"rank {self.ranks[device]}"}})
            out.append({"name": "thread_name", "ph": "M", **place, "args": {"name": f"device {device}"}})
            out += [
                {
                    "name": self.sites[site].name, "cat": self.sites[site].kind, "ph": "X", **place,
                    "ts": (begin - first) / 1e3, "dur": (end - begin) / 1e3, "args": _facts(self.sites[site]),
                }
                for site, begin, end in events.tolist()
            ]  # fmt: skip
            out += self._thread_events(device, first)
        for rank in sorted(self.collective_events):
            out += self._communication_events(rank, first)
        return {"traceEvents": out, "displayTimeUnit": "ns", "otherData": {"program": self.program}}

    def _communication_events(self, rank: int, first: int) -> list[dict[str, Any]]:
        """Two tracks of a rank: when it did nothing but a collective, and when transfers were under way."""
        out: list[dict[str, Any]] = []
        started: dict[int, int] = {}

        def add(tid: int, name: str, begin: int, end: int) -> None:
            place = {"pid": rank, "tid": tid, "ts": (begin - first) / 1e3, "dur": (end - begin) / 1e3}
            out.append({"name": name, "cat": "communication", "ph": "X", **place})

        for index, phase, begin, end in self.collective_events[rank]:
            name = self.collective_names.get(index, str(index))
            add(_EXPOSED, name + ("", " start", " done")[phase], begin, end)
            if phase == 1:
                started[index] = begin
            else:
                add(_UNDER_WAY, name, started.pop(index, begin), end)
        tracks = ((_EXPOSED, "communication, exposed"), (_UNDER_WAY, "communication in flight"))
        names: list[dict[str, Any]] = [
            {"name": "thread_name", "ph": "M", "pid": rank, "tid": tid, "args": {"name": name}} for tid, name in tracks
        ]
        return [*names, *out] if out else []

    def write_measured(self, path: str | Path) -> None:
        """Write the times of kernels and collectives for a later compilation (``SHARDC_PROFILE``, ``--profile-in``)."""
        seconds: dict[str, float] = {}
        for row in self.rows:
            if row.site.kind in ("kernel", "collective"):
                seconds[row.site.name] = row.seconds / row.calls
        for call in self.communication.get("collectives", ()):
            if call["asynchronous"]:
                seconds[call["name"]] = (call["exposed"] + call["hidden"]) / call["times"]
        write_measured(Path(path), self.key, self.program, seconds)

    def _thread_events(self, device: int, first: int) -> list[dict[str, Any]]:
        """The tracks of the threads of a process that has only this device."""
        rank = self.ranks[device]
        pieces = self.chunks.get(rank, np.empty((0, 5), np.int64))
        if list(self.ranks.values()).count(rank) > 1 or not len(pieces):
            return []
        numbers = {thread: 1000 + n for n, thread in enumerate(dict.fromkeys(pieces[:, 0].tolist()))}
        out: list[dict[str, Any]] = [
            {"name": "thread_name", "ph": "M", "pid": rank, "tid": tid, "args": {"name": f"thread {tid - 1000}"}}
            for tid in numbers.values()
        ]
        for (thread, begin, end, low, high), site in zip(
            pieces.tolist(), _sites_of(pieces, self.events[device]).tolist(), strict=True
        ):
            place = {"pid": rank, "tid": numbers[thread], "ts": (begin - first) / 1e3, "dur": (end - begin) / 1e3}
            facts = {"first chunk": low, "chunks": high - low}
            out.append({"name": self.sites[site].name, "cat": "chunks", "ph": "X", **place, "args": facts})
        return out


def _sites_of(chunks: NDArray[np.int64], events: NDArray[np.int64]) -> NDArray[np.int64]:
    """The site that each piece of work belongs to: what the only device of the process was at when it began."""
    place = np.searchsorted(events[:, 1], chunks[:, 1], side="right") - 1
    return np.asarray(events[np.maximum(place, 0), 0])


def _added(rows: Sequence[ProfileRow]) -> ProfileRow:
    """Executions of the same function on the same shapes as one row."""
    seconds = sum(r.seconds for r in rows)
    least = sum(r.of_roofline * r.seconds for r in rows)
    calls, share = sum(r.calls for r in rows), sum(r.of_step for r in rows)
    busy = sum(r.threads * r.seconds for r in rows)
    parts = (least / seconds, busy / seconds) if seconds else (0.0, 0.0)
    return ProfileRow(rows[0].site, calls, seconds, share, *parts)


def _facts(site: ProfileStep) -> dict[str, Any]:
    facts = asdict(site)
    return {k: v for k, v in facts.items() if k not in ("kind", "name") and v != ""}


def table_cells(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """One line of text for each of ``rows`` (`ProfileRow.as_dict`), under `COLUMNS`."""
    return [
        (
            r["kernel"],
            _place(r["op_name"] or r["name"], r["source"]),
            _short(r["holds"], 76),
            str(r["calls"]),
            f"{r['seconds'] * 1e6:.1f}",
            f"{r['threads']:.1f}" if r["threads"] else "",
            f"{r['bytes_per_second'] / 1e9:.1f}",
            f"{r['flops_per_second'] / 1e9:.1f}",
            f"{100 * r['of_step']:.1f}",
            f"{100 * r['of_roofline']:.0f}" if r["of_roofline"] <= 1 else "> 100",
        )
        for r in rows
    ]


def _place(name: str, source: str) -> str:
    """What the program calls it, and file:line."""
    line = source.rpartition("/")[2]
    return _short(name, 40) + (f" ({line})" if line else "")


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2 - 1]}..{text[1 - most // 2 :]}"


def profile_steps(compiled: Any, arguments: Sequence[Any], steps: int = 5, warmup: int = 2) -> Profile:
    """Run a program that was compiled for profiling on flat ``arguments``; every rank of a job calls it."""
    for name, number, least in (("steps", steps, 1), ("warmup", warmup, 0)):
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < least:
            raise InputError(f"{name}={number!r}", where="profile", fix=f"give a number, {least} or more")
    driver = compiled.driver
    plan: ProfilePlan = driver.executable.profile
    expected = len(driver.executable.arguments)
    if len(arguments) != expected:
        raise InputError(
            f"{driver.executable.name} takes {expected} flat arguments, but was given {len(arguments)}",
            fix="pass the leaves of trees: .profile(*jax.tree.leaves((state, batch)))",
        )
    values = [driver.put(number, a) for number, a in enumerate(arguments)]
    seconds: list[float] = []
    records: list[dict[int, ProfileRecord]] = []
    before: Counts = {}
    begin = 0
    log = compiled.step.log if driver.executable.gpu is None else None
    for number in range(warmup + steps):
        driver.clear_records()
        if log is not None:
            log.clear()
        driver.transport.exchange_objects(number)  # start together
        if number == warmup:
            before = counts(driver)
        begin = time.monotonic_ns()
        compiled.run(values)
        if number >= warmup:
            found = driver.records()
            records.append(found)
            seconds.append(max(float(r.nanoseconds.sum()) * 1e-9 for r in found.values()))
        for donated in driver.executable.donated:
            values[donated] = driver.put(donated, arguments[donated])
    index = driver.transport.process_index
    alone = len(driver.devices) == 1
    chunks = log.read() if log is not None and alone else np.empty((0, 5), np.int64)
    mine = _Measured(index, records, seconds, chunks, before, counts(driver), recent_events(driver, begin))
    everybody = driver.transport.exchange_objects(mine)
    devices = len(driver.devices)
    made = _profile(driver.executable, plan, everybody, _roofline(driver.executable, compiled.config, devices))
    if max((r.of_roofline for r in made.rows), default=0.0) <= _CLEARLY:
        return made
    again = _roofline(driver.executable, compiled.config, devices, again=True)
    return _profile(driver.executable, plan, everybody, again)


def _roofline(executable: Executable, config: Config, devices: int, *, again: bool = False) -> Roofline:
    """A device's share of that of the GPU, as its kind is described, or of this machine where it runs the step or
    emulates it: as many devices work at a time as there are threads."""
    if executable.gpu is not None and target_of(executable.target).kind == "nvptx":
        return described_roofline(machine_of(target_of(executable.target), config).device).share(devices)
    threads = threads_per_process(config)
    return roofline(config, threads, again=again).share(min(devices, threads))


@dataclass(frozen=True, slots=True)
class _Measured:
    """What one rank found: as in `Profile`; ``before`` and ``after`` are its collectives' `Counts`."""

    rank: int
    records: list[dict[int, ProfileRecord]]
    seconds: list[float]
    chunks: NDArray[np.int64]
    before: Counts
    after: Counts
    events: list[CollectiveEvent]


def _profile(executable: Executable, plan: ProfilePlan, everybody: Sequence[_Measured], limits: Roofline) -> Profile:
    steps = len(everybody[0].records)
    merged: list[dict[int, ProfileRecord]] = [
        {d: r for m in everybody for d, r in m.records[n].items()} for n in range(steps)
    ]
    ranks = {d: m.rank for m in everybody for d in m.records[-1]}
    chunks = {m.rank: m.chunks for m in everybody}
    all_steps = tuple(max(m.seconds[n] for m in everybody) for n in range(steps))
    step = statistics.median(all_steps)
    calls = merged[-1][min(ranks)].calls
    times = np.median([np.max([r.nanoseconds for r in found.values()], axis=0) for found in merged], axis=0) * 1e-9
    busy = _threads(merged[-1], ranks, chunks, len(plan.sites))
    rows = []
    for site, count, spent, threads in zip(plan.sites, calls.tolist(), times.tolist(), busy.tolist(), strict=True):
        if not count:
            continue
        least = count * limits.seconds(site.read + site.written, site.flops, site.dtype)
        ratio = least / spent if spent and site.kind in ("kernel", "copy") else 0.0
        rows.append(ProfileRow(site, count, spent, spent / step if step else 0.0, ratio, threads))
    rows.sort(key=lambda r: (-r.seconds, r.site.name))
    last = merged[-1]
    spent_on = communication_times(
        executable.collectives, steps, [m.before for m in everybody], [m.after for m in everybody]
    )
    return Profile(
        executable.name, tuple(rows), all_steps, limits, plan.sites, {d: r.events for d, r in last.items()}, ranks,
        sum(r.dropped for r in last.values()), chunks, communication_summary(spent_on, step),
        {m.rank: m.events for m in everybody}, {c.index: c.name for c in executable.collectives}, plan.program,
    )  # fmt: skip


def _threads(
    last: Mapping[int, ProfileRecord], ranks: Mapping[int, int], chunks: Mapping[int, NDArray[np.int64]], sites: int
) -> NDArray[np.float64]:
    """By site, how many threads were at work on average in the last step: one where no work was handed out."""
    found = np.zeros(sites)
    for device, record in last.items():
        if list(ranks.values()).count(ranks[device]) > 1 or not len(record.events):
            continue
        pieces = chunks[ranks[device]]
        site = _sites_of(pieces, record.events)
        busy = np.bincount(site, (pieces[:, 2] - pieces[:, 1]).astype(float), minlength=sites)
        mine = np.where(busy > 0, busy / np.maximum(record.nanoseconds, 1), record.calls > 0)
        found = np.maximum(found, mine)
    return found
