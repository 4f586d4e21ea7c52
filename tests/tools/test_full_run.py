"""The runner of `make test-full`, on tiny parts: what passes, fails, hangs, crashes, and is stopped half-way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tools.full_run import run, status
from tools.full_run.parts import PARTS, PATHS
from tools.full_run.run import Part, Result, Test, run_parts

TESTS = """
import os, time
import pytest

@pytest.mark.parametrize("seed", range(10, 16))
def test_seeds(seed):
    pass

def test_wrong():
    assert False

@pytest.mark.skip(reason="there is no GPU here")
def test_gpu():
    pass

def test_counts(record_property):
    record_property("figure: placements", "16 of 16")
"""
ENDLESS = """
import time

def test_first():
    pass

def test_endless():
    time.sleep(600)

def test_never():
    pass
"""
CRASH = """
import os

def test_crash():
    os._exit(3)

def test_behind():
    pass
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # most of a second to load
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for name, text in (("mixed", TESTS), ("endless", ENDLESS), ("crash", CRASH)):
        (tmp_path / f"test_{name}.py").write_text(text)
    return tmp_path


def part(folder: Path, name: str, *options: str, minutes: float = 1) -> Part:
    words = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "-c", str(folder / "pytest.ini"))
    return Part(name, f"tests called {name}", (*words, str(folder / f"test_{name}.py")), minutes)


def started(parts: list[Part], folder: Path, root: Path, hours: float = 1) -> tuple[dict[str, Result], list[str]]:
    """The results, and the lines that were told."""
    told: list[str] = []
    results = run_parts(parts, folder / "kept", root, hours=hours, report=lambda _: None, say=told.append)
    return results, told


@pytest.mark.parametrize("workers", ["0", "2"])
def test_outcomes_reasons_and_figures_are_recorded(folder: Path, repository: Path, workers: str) -> None:
    results, _ = started([part(folder, "mixed", "-p", "xdist", "-n", workers)], folder, repository)
    mixed = results["mixed"]
    assert mixed.code == 1 and mixed.failed and not mixed.stopped
    assert mixed.planned == len(mixed.tests) == 9
    by_name = {t.id.partition("::")[2]: t for t in mixed.tests}
    assert by_name["test_seeds[12]"].outcome == "passed"
    assert by_name["test_wrong"].outcome == "failed"
    assert by_name["test_gpu"].why == "there is no GPU here"
    assert by_name["test_counts"].figures == {"placements": "16 of 16"}


def test_a_part_ends_at_its_limit_and_keeps_what_it_had(
    folder: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "GRACE", 5.0)
    parts = [part(folder, "endless", minutes=0.05), Part("next", "", (sys.executable, "-c", ""), 1)]
    results, _ = started(parts, folder, repository)
    endless = results["endless"]
    assert "limit" in endless.stopped and endless.code is None
    assert [(t.id.partition("::")[2], t.outcome) for t in endless.tests][:1] == [("test_first", "passed")]
    assert endless.planned == 3 > len(endless.tests)
    assert results["next"].code == 0
    text = status.not_run(parts, results)
    assert "of 3" in text and "limit" in text


def test_what_ignores_an_interrupt_is_killed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the processes that it started."""
    monkeypatch.setattr(run, "GRACE", 0.5)
    code = (
        "import os, signal, sys, time; signal.signal(signal.SIGINT, signal.SIG_IGN); os.fork();"
        f"open({str(folder)!r} + f'/pid-{{os.getpid()}}', 'w').close(); time.sleep(600)"
    )
    results, _ = started([Part("deaf", "", (sys.executable, "-c", code), 0.05)], folder, folder)
    assert results["deaf"].stopped
    pids = [int(p.name.partition("-")[2]) for p in folder.glob("pid-*")]
    assert len(pids) == 2
    assert not any(alive(pid) for pid in pids)


def alive(pid: int) -> bool:
    """A child of nobody's that ended may wait for its parent."""
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_crash_is_a_failure(folder: Path, repository: Path) -> None:
    results, _ = started(
        [part(folder, "crash", "-p", "xdist", "-n", "1"), Part("exit", "", (sys.executable, "-c", "exit(7)"), 1)],
        folder,
        repository,
    )
    assert results["crash"].failed
    assert {t.id.partition("::")[2]: t.outcome for t in results["crash"].tests} == {
        "test_crash": "failed",
        "test_behind": "passed",
    }
    assert results["exit"].failed and results["exit"].code == 7


def test_a_stopped_run_goes_on_where_it_was(folder: Path, repository: Path) -> None:
    log = folder / "log"
    words = (sys.executable, "-c", f"open({str(log)!r}, 'a').write('x')")
    parts = [Part("first", "", words, 1), Part("second", "", words, 1)]
    started(parts[:1], folder, repository)
    results, told = started(parts, folder, repository)
    assert log.read_text() == "xx" and "first: done before" in told
    assert all(r.code == 0 for r in results.values())
    results, _ = started([*parts, Part("late", "", words, 1)], folder, repository, hours=0)
    assert results["first"].code == 0 and "hours were over" in results["late"].stopped
    assert log.read_text() == "xx"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_run_with_everything_written(folder: Path, number: signal.Signals) -> None:
    sleep = Part("sleep", "", (sys.executable, "-c", "import time; time.sleep(600)"), 1)
    after = Part("after", "", (sys.executable, "-c", ""), 1)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), number))
    timer.start()
    began = time.monotonic()
    reports: list[dict[str, Result]] = []
    run_parts([sleep, after], folder, folder, hours=1, report=lambda r: reports.append(dict(r)), say=lambda _: None)
    assert time.monotonic() - began < 30
    assert "interrupted" in reports[-1]["sleep"].stopped and "interrupted" in reports[-1]["after"].stopped
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_the_page(tmp_path: Path) -> None:
    parts = [Part(n, f"what {n} is", (), 1) for n in ("good", "bad", "never", "half")]
    seeds = tuple(Test(f"tests/a/test_a.py::test_seeds[{n}]", "passed", 1.0) for n in range(7, 17))
    text_read = Test("tests/c/test_hlo_text.py::test_text[a]", "passed")
    results = {
        "good": Result(0, 90.0, "", 6, (
            *seeds,
            Test("tests/c/test_jax_functions.py::test_function[sin]", "passed", 1.0, "", {"worst | error": "2 ulp"}),
            Test("tests/a/test_b.py::test_gpu", "skipped", 0.0, f"no GPU at {tmp_path.parent}/gpu"),
        )),
        "bad": Result(1, 3.0, "", 1, (Test("tests/a/test_c.py::test_wrong", "failed"),)),
        "half": Result(None, 60.0, "its limit of 1 min was over", 80, (*seeds, text_read)),
    }  # fmt: skip
    text = status.page(parts, results, status.Run("abc", "then", "now"), tmp_path)
    assert "| good | what good is | passed | 11 | 0 | 1 | 1.5 min |" in text
    assert "| bad | what bad is | failed | 0 | 1 | 0 | 0.1 min |" in text
    assert "| never | what never is | not run |" in text
    assert "| never | all | not asked for in this run |" in text
    assert "| half | 69 of 80 | its limit of 1 min was over |" in text
    assert "| good: `tests/a/test_b.py` | 1 | no GPU at ../gpu |" in text
    assert "* `tests/a/test_c.py::test_wrong`" in text
    assert "| functions of JAX | 1 of 1 |" in text
    assert "| HLO texts of XLA's tests, jaxlib as judge | 1 of 1 so far |" in text
    assert "| worst \\| error | 2 ulp |" in text
    assert "| `tests/a/test_a.py::test_seeds` | 7 to 16 | 10 |" in text
    before = "# Status\n\n<!-- full run -->\nold\n<!-- end -->\n\nby hand\n"
    after = status.insert(before, text)
    assert after.startswith("# Status\n") and after.endswith("\nby hand\n") and "old" not in after
    assert status.insert(after, text) == after
    with pytest.raises(ValueError, match="no place"):
        status.insert("# Status\n", text)


def test_every_file_with_tests_is_in_exactly_one_part(repository: Path) -> None:
    assert len({p.name for p in PARTS}) == len(PARTS)
    assert set(PATHS) < {p.name for p in PARTS}
    for path in (path for paths in PATHS.values() for path in paths):
        assert (repository / path).exists(), path
    full = [p.command for p in PARTS if "--run-full" in p.command]
    for file in (repository / "tests").rglob("test_*.py"):
        path = file.relative_to(repository)
        takers = [
            words
            for words in full
            if any(path.is_relative_to(w) for w in words if w.startswith("tests"))
            and not any(path.is_relative_to(w.removeprefix("--ignore=")) for w in words if w.startswith("--ignore="))
        ]
        assert len(takers) == 1, (path, takers)


def test_figures_are_counted_from_tests_that_exist(repository: Path) -> None:
    for name, pattern in status.FIGURES.items():
        file, _, test = pattern.removeprefix("*/").partition("::")
        (path,) = (repository / "tests").rglob(file)
        assert f"def {test.partition('[')[0]}(" in path.read_text(encoding="utf-8"), name


def test_the_command_says_what_it_can_run(repository: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.full_run", "nothing"], cwd=repository, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "no part is called nothing" in done.stderr
