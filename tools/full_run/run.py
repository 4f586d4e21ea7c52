"""Runs parts one after the other, each under its time limit; what is finished stays when the run is stopped."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tools.full_run.record import VARIABLE

__all__ = ["Part", "Result", "Test", "count", "run_parts", "stored"]

#: Seconds in which an interrupted part may end by itself.
GRACE = 60.0


@dataclass(frozen=True)
class Part:
    """A command of the full run. pytest within it records its tests."""

    name: str
    what: str
    command: tuple[str, ...]
    minutes: float


@dataclass(frozen=True)
class Test:
    id: str
    outcome: str
    seconds: float = 0.0
    why: str = ""
    figures: dict[str, str] = field(default_factory=dict)

    __test__ = False  # no class of pytest's


@dataclass(frozen=True)
class Result:
    """What came of a part. ``stopped`` is why it did not end by itself, ``code`` how it ended otherwise."""

    code: int | None = None
    seconds: float = 0.0
    stopped: str = ""
    planned: int = 0
    tests: tuple[Test, ...] = ()

    @property
    def failed(self) -> bool:
        return self.code not in (0, None) or any(t.outcome == "failed" for t in self.tests)


@dataclass
class Interruption:
    """Whether somebody wants the whole run to end."""

    signal: int = 0


def run_parts(
    parts: Sequence[Part],
    folder: Path,
    root: Path,
    *,
    hours: float,
    report: Callable[[dict[str, Result]], None],
    say: Callable[[str], None],
) -> dict[str, Result]:
    """Run every part that ``folder`` has no finished result of; ``report`` is called with all results after each one.

    A part that was stopped, by its limit or with the run, is run anew by the next call.
    """
    folder.mkdir(parents=True, exist_ok=True)
    results = {p.name: r for p in parts if (r := stored(folder, p)) is not None and not r.stopped}
    end = time.monotonic() + 3600 * hours
    with interruption() as wanted:
        for part in parts:
            if part.name in results:
                say(f"{part.name}: done before")
                continue
            left = end - time.monotonic()
            if wanted.signal or left <= 0:
                why = "the run was interrupted" if wanted.signal else f"the run's {hours:g} hours were over"
                results[part.name] = Result(stopped=why)
                continue
            say(f"{part.name}: {part.what}, at most {min(60 * part.minutes, left) / 60:.0f} min")
            result = run_part(part, folder, root, min(60 * part.minutes, left), wanted)
            (folder / f"{part.name}.json").write_text(json.dumps(asdict(result)), encoding="utf-8")
            results[part.name] = result
            say(f"{part.name}: {summary(result)}")
            report(results)
    report(results)
    return results


def run_part(part: Part, folder: Path, root: Path, limit: float, wanted: Interruption) -> Result:
    """One part in a process group of its own, which is interrupted at its limit and killed if that does not help."""
    record = folder / f"{part.name}.jsonl"
    record.unlink(missing_ok=True)
    environment = {
        **os.environ,
        VARIABLE: str(record),
        "PYTEST_ADDOPTS": "-p tools.full_run.record",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH", "")))),
    }
    began, stopped = time.monotonic(), ""
    with (
        (folder / f"{part.name}.log").open("wb") as log,
        subprocess.Popen(
            part.command, cwd=root, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        ) as process,
    ):  # fmt: skip
        while process.poll() is None:
            if wanted.signal or time.monotonic() - began > limit:
                stopped = "the run was interrupted" if wanted.signal else f"its limit of {limit / 60:.0f} min was over"
                end_group(process)
            time.sleep(0.1)
    seconds = time.monotonic() - began
    planned, tests = read_record(record)
    return Result(None if stopped else process.returncode, seconds, stopped, planned, tests)


def end_group(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def interruption() -> Iterator[Interruption]:
    """Interrupts and terminations end the part that runs, and the run behind it, with everything written."""
    wanted = Interruption()

    def note(number: int, _: object) -> None:
        wanted.signal = number

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield wanted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stored(folder: Path, part: Part) -> Result | None:
    path = folder / f"{part.name}.json"
    if not path.exists():
        return None
    data = json.loads(path.read_text(encoding="utf-8"))
    return Result(**{**data, "tests": tuple(Test(**t) for t in data["tests"])})


def read_record(path: Path) -> tuple[int, tuple[Test, ...]]:
    """How many tests were planned, and those that ended; a line that was cut off is none."""
    planned, tests = 0, []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):
            entry = json.loads(line)
            if "planned" in entry:
                planned += entry["planned"]
            else:
                tests.append(Test(entry.pop("test"), **entry))
    return planned, tuple(tests)


def count(tests: Iterable[Test], outcome: str) -> int:
    return sum(t.outcome == outcome for t in tests)


def summary(result: Result) -> str:
    """One line: ``80 passed, 1 failed in 12 min``."""
    counts = [f"{n:,} {kind}" for kind in ("passed", "failed", "skipped") if (n := count(result.tests, kind))]
    if not counts:
        counts = ["passed" if result.code == 0 else "failed" if result.code is not None else "nothing ran"]
    ended = f"; {result.stopped}" if result.stopped else ""
    return f"{', '.join(counts)} in {result.seconds / 60:.1f} min{ended}"
