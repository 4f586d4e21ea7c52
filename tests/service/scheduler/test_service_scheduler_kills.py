"""Servers with one state are killed again and again while they work: every job that a client heard of ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from scheduler_support import ManualWorkers, Task, a_scheduler, a_store, over, until

SERVER = Path(__file__).with_name("scheduler_server.py")


def test_no_job_is_lost_when_servers_are_killed(tmp_path: Path) -> None:
    kill_servers(tmp_path, kills=2)


@pytest.mark.full
def test_no_job_is_lost_when_servers_are_killed_again_and_again(tmp_path: Path) -> None:
    kill_servers(tmp_path, kills=20)


def kill_servers(state: Path, kills: int) -> None:
    """Two servers; the older one is killed when the younger one has taken some orders, and another one starts."""
    lists: list[Path] = []
    servers: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        lists.append(state / f"ids-{len(lists)}")
        servers.append(subprocess.Popen([sys.executable, str(SERVER), str(state), str(lists[-1])]))

    def known(path: Path) -> list[str]:
        return path.read_text().splitlines() if path.exists() else []

    try:
        start()
        for _ in range(kills):
            start()
            until(lambda: len(known(lists[-1])) > 5)
            servers[-2].kill()
            servers[-2].wait()
    finally:
        for server in servers:
            server.kill()
            server.wait()
    with a_store(state) as store, a_scheduler(state, ManualWorkers(4, Task.succeed), store) as scheduler:
        ids = [job_id for path in lists for job_id in known(path)]
        assert len(ids) > 5 * kills
        for job_id in ids:
            job = scheduler.job(job_id)
            assert job is not None
            ended = over(scheduler, job)
            assert ended.state in ("done", "cancelled") or "stopped" in str(ended.problem)
            if ended.state == "done":
                assert store.read(ended.key, "report.json") == b"{}"
        assert scheduler._jobs.journal.others() == []
    assert not list(state.glob("*damaged*"))
