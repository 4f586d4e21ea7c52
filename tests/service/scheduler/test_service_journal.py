"""The journal: what it forgets, what the disk refuses, and files that are no journals."""

from __future__ import annotations

import sqlite3
import stat
import time
from dataclasses import replace
from pathlib import Path

import pytest
from scheduler_support import ManualWorkers, Task, a_scheduler, a_store, an_order, over, until

from shardc.hlo.errors import EnvironmentProblem
from shardc.service.jobs import Artifact, Job, StoreEntry
from shardc.service.scheduler.journal import Journal
from shardc.service.scheduler.refusals import Closing


def a_job(number: int = 0, created: float = 1.0) -> Job:
    return Job(f"job-{number}", "k" * 64, "partition", "a\nname", "queued", created)


def test_jobs_are_read_as_they_were_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    artifact = Artifact("report.json", 2, "0" * 64, "application/json")
    done = replace(
        a_job(),
        state="done",
        started=2.0,
        finished=3.0,
        entry=StoreEntry("k" * 64, (artifact,), {"seconds": {"a": 0.5}}, "s"),
    )
    journal.add(a_job(), "{}")
    assert journal.note([done]) == [done]
    assert journal.job(done.id) == done
    late = replace(done, state="failed", problem={"what": "late"})
    assert journal.note([late]) == [done]
    assert journal.cancel(done.id) == done
    assert journal.cancel("other") is None
    journal.close()
    assert stat.S_IMODE((tmp_path / "journal.sqlite").stat().st_mode) == 0o600


def test_old_jobs_are_forgotten_and_open_ones_never(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for number in range(10):
        job = a_job(number)
        journal.add(job if number in (0, 7) else replace(job, state="done", finished=100.0 + number))
    journal.forget(before=103.0, most=100)
    assert [job.id for job in journal.jobs(100)] == [f"job-{n}" for n in (9, 8, 7, 6, 5, 4, 3, 0)]
    journal.forget(before=0.0, most=2)
    assert [job.id for job in journal.jobs(100)] == ["job-9", "job-8", "job-7", "job-0"]
    assert [job.id for job in journal.jobs(1)] == ["job-9"]
    journal.close()


def test_a_closed_journal_says_so(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.close()
    with pytest.raises(Closing):
        journal.jobs(1)


@pytest.mark.parametrize("content", [b"x" * 5000, b"SQLite format 3\0" + b"\x7f" * 5000])
def test_a_damaged_journal_is_put_aside_with_a_warning(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "journal.sqlite").write_bytes(content)
    journal = Journal(tmp_path)
    assert "is damaged" in caplog.text
    journal.add(a_job())
    assert len(journal.jobs(5)) == 1
    journal.close()
    (aside,) = tmp_path.glob("journal.damaged-*")
    assert aside.read_bytes() == content


def test_a_journal_of_another_version_is_refused(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "journal.sqlite")
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(EnvironmentProblem, match="version 99"):
        Journal(tmp_path)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem):
        Journal(tmp_path / "file" / "state")


def test_only_one_server_claims_a_key(tmp_path: Path) -> None:
    one, two = Journal(tmp_path), Journal(tmp_path)
    assert one.claim("key")
    assert one.claim("key")
    assert not two.claim("key")
    assert two.is_claimed_by_other("key")
    assert not one.is_claimed_by_other("key")
    two.release("key")
    assert not two.claim("key")
    one.close()
    assert two.claim("key")
    two.close()


def refuse(journal: Journal, refused: bool) -> None:
    """Have the disk be full, as far as SQLite sees it, or not any more."""
    database = journal._database
    pages = database.execute("PRAGMA page_count").fetchone()[0]
    database.execute(f"PRAGMA max_page_count = {pages if refused else 1_000_000}")


def test_a_full_disk_refuses_new_work_and_loses_no_end(tmp_path: Path) -> None:
    workers = ManualWorkers()
    with a_store(tmp_path) as store, a_scheduler(tmp_path, workers, store) as scheduler:
        job = scheduler.submit(an_order())
        task = workers.task(0)
        journal = scheduler._jobs.journal
        refuse(journal, True)
        with pytest.raises(EnvironmentProblem, match="cannot be used"):
            for number in range(1, 200):
                scheduler.submit(an_order(number))
        task.succeed(b" " * 10)
        assert over(scheduler, job).state == "done"
        cached = [scheduler.submit(an_order()) for _ in range(200)]
        assert all(job.cached and scheduler.job(job.id) == job for job in cached)
        refuse(journal, False)
        until(lambda: all(journal.job(job.id) == job for job in cached))
        assert over(scheduler, job) == journal.job(job.id)


def test_what_is_over_is_forgotten_by_the_scheduler(tmp_path: Path) -> None:
    workers = ManualWorkers(answer=Task.succeed)
    with a_store(tmp_path) as store:
        with a_scheduler(tmp_path, workers, store) as scheduler:
            job = over(scheduler, scheduler.submit(an_order()))
        journal = Journal(tmp_path)
        journal.add(replace(job, id="old", finished=time.time() - 90_000))
        journal.close()
        with a_scheduler(tmp_path, workers, store) as scheduler:
            until(lambda: scheduler.job("old") is None)
            assert scheduler.job(job.id) == job


def test_a_claim_that_could_not_be_given_back_is_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workers = ManualWorkers()
    refused = []

    def release(journal: Journal, key: str) -> None:
        if not refused:
            refused.append(key)
            raise EnvironmentProblem("the disk is full")
        released(journal, key)

    released = Journal.release
    monkeypatch.setattr(Journal, "release", release)
    other = Journal(tmp_path)
    with a_scheduler(tmp_path, workers) as scheduler:
        job = scheduler.submit(an_order())
        workers.task(0).succeed()
        assert over(scheduler, job).state == "done"
        until(lambda: not other.is_claimed_by_other(job.key))
        assert refused == [job.key]
    other.close()
