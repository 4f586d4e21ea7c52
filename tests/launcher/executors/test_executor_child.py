"""Children: every way in which a task can go wrong costs that task an error that says how, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from shardc.hlo.errors import EnvironmentProblem, InputError, Location, ParseError, RunError
from shardc.launcher.executors.children import Children
from shardc.launcher.executors.limits import TaskLimits
from tests.launcher.executors.executor_tasks import BAD_TASKS
from tests.launcher.test_faults import alive

#: Against hangs; nothing here takes long.
LIMITS = TaskLimits(seconds=60)


@pytest.fixture
def children() -> Iterator[Children]:
    made = Children({}, BAD_TASKS)
    yield made
    made.close()


def look(children: Children) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(children.call("look_around", b"", LIMITS))
    return found


def gone(pid: int) -> bool:
    until = time.monotonic() + 20
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.01)
    return not alive(pid)


def test_answers_of_every_size(children: Children) -> None:
    for size in (0, 1, 1 << 16, (1 << 22) + 1):
        payload = os.urandom(size)
        assert children.call("echo", payload, LIMITS) == payload


def test_a_child_is_used_again_and_sees_nothing_of_its_parent(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("SHARDC_TOKEN", "secret")
    monkeypatch.setenv("PMI_RANK", "1")
    found = look(children)
    assert found["files"] == []
    assert found["session"]
    assert "secret" not in str(found)
    assert not [name for name in found["environment"] if name.startswith(("SHARDC_", "PMI"))]
    assert look(children)["pid"] == found["pid"] != os.getpid()
    children.close()
    assert not Path(found["folder"]).exists()


def test_a_child_has_the_environment_that_it_is_given() -> None:
    children = Children({"SHARDC_CACHE_DIR": "/nowhere"}, BAD_TASKS)
    try:
        assert look(children)["environment"]["SHARDC_CACHE_DIR"] == "/nowhere"
    finally:
        children.close()


def test_errors_of_ours_arrive_as_they_are(children: Children) -> None:
    pid = look(children)["pid"]
    with pytest.raises(ParseError) as caught:
        children.call("refuse", b"write it otherwise", LIMITS)
    assert (caught.value.what, caught.value.where, caught.value.fix) == (
        "an odd word", Location("step.hlo", 3, 7), "write it otherwise",
    )  # fmt: skip
    with pytest.raises(InputError, match="no task 'other'"):
        children.call("other", b"", LIMITS)
    assert look(children)["pid"] == pid


@pytest.mark.parametrize(
    ("task", "limits", "message"),
    [
        ("fail", {}, r"'fail' failed with an unexpected error: ValueError: what nobody knows"),
        ("abort", {}, r"'abort' crashed \(SIGABRT\)\n  where: its last output: LLVM ERROR: .* %llvm\.\?odd"),
        ("leave", {}, r"'leave' crashed \(exit status 7\)"),
        ("crash_without_memory", {}, r"needs more memory than there is"),
        ("for_ever", {"seconds": 0.3}, r"'for_ever' exceeded its limit of 0\.3 s"),
        ("sleep", {"seconds": 0.3}, r"'sleep' exceeded its limit"),
        ("fill_memory", {"memory_bytes": 1 << 29}, r"more memory than the 512\.0 MiB that it may have"),
        ("nest", {}, r"nested too deeply"),
        ("large", {"answer_bytes": 999}, r"the result of 'large' has more than 999 B"),
        ("overflow", {"answer_bytes": 1 << 20}, r"the result of 'overflow' has more than 1\.0 MiB"),
        ("nonsense", {}, r"sent an unreadable answer"),
    ],
)
def test_what_goes_wrong_is_told_and_costs_no_other_task(
    task: str, limits: Mapping[str, Any], message: str, children: Children
) -> None:
    before = look(children)
    with pytest.raises(RunError, match=message):
        children.call(task, b"1000", TaskLimits(**{"seconds": 60.0, **limits}))
    assert children.call("echo", b"still here", LIMITS) == b"still here"
    after = look(children)
    if after["pid"] != before["pid"]:
        assert gone(before["pid"])
        assert not Path(before["folder"]).exists()


def test_a_full_disk_is_told(children: Children, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="'fill_disk' has no disk space: No space left on device"):
        children.call("fill_disk", b"", LIMITS)
    children.close()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(EnvironmentProblem, match="cannot create a folder for a process"):
        Children({}, BAD_TASKS).call("echo", b"", LIMITS)


def test_an_error_that_quotes_its_input_is_cut(children: Children) -> None:
    with pytest.raises(ParseError, match="odd: xxx") as caught:
        children.call("quote", b"x" * 5_000_000, LIMITS)
    assert len(caught.value.what) == 20_000


@pytest.mark.parametrize("here", [signal.SIG_DFL, signal.SIG_IGN], ids=["heard", "ignored"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_child_that_is_asked_to_end_was_killed(number: int, here: signal.Handlers, children: Children) -> None:
    """Even if its parent, as under nohup, ignores what it is asked by."""
    before = signal.signal(number, here)
    try:
        with pytest.raises(RunError, match="the process of 'sleep' was killed"):
            children.call("sleep", b"", LIMITS, lambda news: os.kill(news["pid"], number))
    finally:
        signal.signal(number, before)


def test_files_are_bounded(children: Children) -> None:
    with pytest.raises(InputError, match="not written: File too large"):
        children.call("write_much", b"", TaskLimits(60.0, answer_bytes=1 << 20))
    assert children.call("large", b"3000000", LIMITS) == bytes(3_000_000)  # the bound was that task's


def test_progress_is_heard_in_order(children: Children) -> None:
    heard: list[Mapping[str, Any]] = []
    assert children.call("steps", b"100", LIMITS, heard.append) == b"counted"
    assert heard == [{"stage": "counting", "done": n, "of": 100} for n in range(100)]


def test_a_task_that_nobody_wants_is_ended_with_what_it_started(children: Children) -> None:
    heard: list[int] = []
    with pytest.raises(RunError, match="'with_helper' was stopped"):
        children.call("with_helper", b"", LIMITS, lambda news: heard.append(news["pid"]), lambda: bool(heard))
    assert gone(heard[0])


def test_what_a_task_started_does_not_outlive_a_crash(children: Children) -> None:
    heard: list[int] = []
    with pytest.raises(RunError, match="crashed"):
        children.call("with_helper_and_crash", b"", LIMITS, lambda news: heard.append(news["pid"]))
    assert gone(heard[0])


def test_a_child_that_was_killed_costs_its_task_only(children: Children) -> None:
    def kill(news: Mapping[str, Any]) -> None:
        os.kill(news["pid"], signal.SIGKILL)

    with pytest.raises(RunError, match="the process of 'sleep' was killed"):
        children.call("sleep", b"", LIMITS, kill)
    pid = look(children)["pid"]
    os.kill(pid, signal.SIGKILL)  # an idle one costs nothing at all
    assert look(children)["pid"] != pid


def test_a_child_that_is_stopped_is_ended_by_the_clock(children: Children) -> None:
    def pause(news: Mapping[str, Any]) -> None:
        os.kill(news["pid"], signal.SIGSTOP)

    with pytest.raises(RunError, match="exceeded its limit"):
        children.call("sleep", b"5", TaskLimits(seconds=0.5), pause)


def test_a_child_that_is_stopped_while_it_is_idle_is_replaced(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardc.launcher.executors.child._WAKING", 0.5)
    monkeypatch.setattr("shardc.launcher.executors.child._END_SECONDS", 0.1)
    pid = look(children)["pid"]
    os.kill(pid, signal.SIGSTOP)
    assert look(children)["pid"] != pid


def test_a_child_that_keeps_memory_is_replaced(children: Children) -> None:
    first = children.call("grow", b"1", LIMITS)
    assert children.call("grow", b"10000000", LIMITS) == first
    assert children.call("grow", b"600000000", LIMITS) == first
    assert children.call("grow", b"1", LIMITS) != first


def test_a_child_is_replaced_after_many_tasks(children: Children) -> None:
    pids = {look(children)["pid"] for _ in range(201)}
    assert len(pids) == 2


def test_a_child_that_cannot_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", [])
        children = Children({}, BAD_TASKS)
        with pytest.raises(EnvironmentProblem, match=r"cannot start\n  where: its last output: .*ModuleNotFoundError"):
            children.call("echo", b"", LIMITS)
        patch.setattr(sys, "executable", "/nowhere/python")
        with pytest.raises(EnvironmentProblem, match="no process can be started: No such file"):
            children.call("echo", b"", LIMITS)


def test_closing_ends_what_goes_on() -> None:
    children = Children({}, BAD_TASKS)
    begun, raised = threading.Event(), list[RunError]()

    def call() -> None:
        with pytest.raises(RunError, match="'for_ever' was stopped") as caught:
            children.call("for_ever", b"", LIMITS, lambda news: begun.set())
        raised.append(caught.value)

    thread = threading.Thread(target=call)
    thread.start()
    assert begun.wait(60)
    children.close()
    thread.join(60)
    assert len(raised) == 1
    with pytest.raises(RunError, match="was stopped"):
        children.call("echo", b"", LIMITS)


PARENT = """
import sys
from shardc.launcher.executors.children import Children
from shardc.launcher.executors.limits import TaskLimits
from tests.launcher.executors.executor_tasks import BAD_TASKS
def tell(news):
    print(news["pid"], flush=True)
children = Children({}, BAD_TASKS)
children.call("sleep", b"600", TaskLimits(), tell)
"""


def test_a_child_ends_with_its_parent(repository: Path, tmp_path: Path) -> None:
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    line = [sys.executable, "-c", PARENT]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, cwd=repository, env=environ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert len(list(tmp_path.iterdir())) == 1
        parent.kill()
    assert gone(child)
    assert list(tmp_path.iterdir()) == []
