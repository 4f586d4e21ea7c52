"""What breaks while the service works: its processes, its disk, what is stored. Jobs end, and nothing is corrupt."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.service.service_harness import Caller, Problem, Service, children, eventually
from tests.service.service_programs import large, small

LINUX = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="reads /proc")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("faults"), options=("--grace", "0.2")) as service:
        yield service


def running(caller: Caller, job: Mapping[str, Any]) -> dict[str, Any]:
    """The job, once a worker is at it."""
    found = eventually(lambda: (j := caller.job(job["id"]))["state"] != "queued" and j, "the job to begin")
    assert found["state"] == "running", found
    return dict(found)


def everything(caller: Caller, job: Mapping[str, Any]) -> dict[str, bytes]:
    """All artifacts of a job."""
    return {a["name"]: caller.file(job["key"], a["name"]) for a in job["entry"]["artifacts"]}


@LINUX
def test_a_killed_worker_costs_its_job_and_nothing_else(service: Service) -> None:
    with service.caller() as caller:
        caller.made("partition", small(1))
        job = running(caller, caller.submit("compile", caller.upload(large(40, 1)), page=False))
        time.sleep(0.1)
        for pid in children(service.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended = caller.over(job)
        assert ended["state"] == "failed", ended
        assert ended["problem"]["error"] == "RunError"
        assert "kill" in ended["problem"]["what"].lower(), ended["problem"]
        assert caller.made("partition", small(2))["state"] == "done"
        again = caller.submit("compile", caller.upload(large(40, 1)), page=False)
        assert caller.over(again)["state"] == "done", "a failure is not remembered"


def test_the_server_killed_in_the_middle_of_a_job(service: Service) -> None:
    with service.caller() as caller:
        first = running(caller, caller.submit("compile", caller.upload(large(40, 2)), page=False))
        waiting = [caller.submit("partition", caller.upload(small(n))) for n in (11, 12)]
    service.restart()
    with service.caller() as caller:
        for job in (first, *waiting):
            ended = caller.over(caller.job(job["id"]))
            assert ended["state"] == "done", ended
            everything(caller, ended)


def test_a_server_told_to_end_leaves_no_job_behind(service: Service) -> None:
    with service.caller() as caller:
        job = running(caller, caller.submit("compile", caller.upload(large(40, 3)), page=False))
        other = caller.submit("partition", caller.upload(small(3)))
    assert service.stop() == 0, service.log()
    assert "Traceback" not in service.log()
    service.start()
    with service.caller() as caller:
        for left in (job, other):
            assert caller.over(caller.job(left["id"]))["state"] == "done"


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(bytes(content))


def shorten(path: Path, at: int) -> None:
    path.write_bytes(path.read_bytes()[:at])


def remove(path: Path, at: int) -> None:
    path.unlink()


def damage(service: Service, content: bytes, how: Callable[[Path, int], None]) -> None:
    """Do something to the middle of these bytes where the store has them."""
    found = [(p, p.read_bytes().find(content)) for p in service.store_folder.rglob("*") if p.is_file()]
    found = [(path, at) for path, at in found if at >= 0]
    assert len(found) == 1, found
    path, at = found[0]
    how(path, at + len(content) // 2)


def test_damaged_artifacts_are_found_and_made_again(service: Service) -> None:
    """Whatever happens to a file, nobody gets other bytes than those that were made, and who orders again gets them."""
    damages = {small(20 + n): how for n, how in enumerate((flip, shorten, remove))}
    good: dict[str, tuple[str, bytes]] = {}
    with service.caller() as caller:
        for text in damages:
            job = caller.made("partition", text)
            good[text] = job["key"], caller.file(job["key"], "partitioned.hlo")
    service.kill()
    for text, how in damages.items():
        damage(service, good[text][1], how)
    service.start()
    with service.caller() as caller:
        before = caller.figure("shardc_makings_total")
        for text, (key, content) in good.items():
            with pytest.raises(Problem) as caught:
                caller.file(key, "partitioned.hlo")
            assert caught.value.status == 404
            again = caller.made("partition", text)
            assert (again["key"], again["cached"]) == (key, False)
            assert caller.file(key, "partitioned.hlo") == content
        assert caller.figure("shardc_makings_total") - before == len(good)


def test_manifests_that_others_wrote_are_not_believed(service: Service) -> None:
    """Who can write into the store, but has no key, cannot make the service hand out his bytes."""
    with service.caller() as caller:
        job = caller.made("partition", small(30))
        key, name = job["key"], job["entry"]["artifacts"][0]["name"]
        content = caller.file(key, name)
    service.kill()
    manifests = [
        p for p in service.store_folder.rglob("*.json") if key in p.read_text(encoding="utf-8", errors="ignore")
    ]
    assert manifests
    for path in manifests:
        text = path.read_text(encoding="utf-8")
        sizes = f'"bytes":{len(content)}', f'"bytes": {len(content)}'
        assert any(size in text for size in sizes), text
        for size in sizes:
            text = text.replace(size, f'"bytes": {len(content) - 1}')
        path.write_text(text, encoding="utf-8")
    service.start()
    with service.caller() as caller:
        with pytest.raises(Problem) as caught:
            caller.file(key, name)
        assert caught.value.status == 404
        assert caller.made("partition", small(30))["cached"] is False


def test_an_index_that_is_lost_is_made_from_the_store(service: Service) -> None:
    with service.caller() as caller:
        job = caller.made("partition", small(31))
        content = everything(caller, job)
    service.kill()
    indices = list(service.state_folder.glob("*.sqlite*"))
    assert indices
    for path in indices:
        path.write_bytes(b"this is no database" * 100)
    service.start()
    with service.caller() as caller:
        again = caller.made("partition", small(31))
        assert (again["key"], again["cached"]) == (job["key"], True)
        assert everything(caller, again) == content


def on_a_small_disk(folder: Path, kibibytes: int) -> tuple[str, ...]:
    """The words that put a command into a world where ``folder`` is a disk of this size; skips where that is not
    allowed."""
    folder.mkdir()
    mount = f'mount -t tmpfs -o size={kibibytes}k,mode=0700 none "{folder}"'
    words = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
    if shutil.which("unshare") is None or subprocess.run([*words, mount], capture_output=True, check=False).returncode:
        pytest.skip("this system lets nobody mount a disk of his own")
    return (*words, f'{mount} && exec "$0" "$@"')


def test_a_full_disk(tmp_path: Path) -> None:
    """What can never fit is refused and costs nothing else; for the rest gives way what was used long ago."""
    wrapper = on_a_small_disk(tmp_path / "disk", 640)
    with Service(tmp_path / "service", store=str(tmp_path / "disk" / "store"), wrapper=wrapper) as service:
        with service.caller() as caller:
            first = caller.made("partition", small(40))
            content = everything(caller, first)
            with pytest.raises(Problem) as caught:
                caller.upload(large(40, 5) + "// " + "x" * 700_000)
            assert caught.value.status in (500, 503, 507)
            assert caught.value.problem["error"] in ("EnvironmentProblem", "RunError")
            assert caller.made("partition", small(40))["cached"]
            for n in range(12):
                job = caller.over(caller.submit("compile", caller.upload(small(41)), name=f"n{n}", page=True))
                if job["state"] == "failed":
                    assert job["problem"]["error"] in ("EnvironmentProblem", "RunError")
                    assert "Traceback" not in str(job["problem"])
                else:
                    everything(caller, job)
            assert caller.figure("shardc_store_evicted") > 0, "the disk was never full"
            again = everything(caller, caller.made("partition", small(40)))
            assert again["partitioned.hlo"] == content["partitioned.hlo"]
            assert caller.http.get("/healthz").status_code == 200
        assert "Traceback" not in service.log()


@LINUX
def test_a_disk_that_others_fill(tmp_path: Path) -> None:
    """The job whose result has no place fails and says so; when there is place again, the same order is done."""
    disk = tmp_path / "disk"
    wrapper = on_a_small_disk(disk, 4096)
    store = str(disk / "store")
    with Service(tmp_path / "service", store=store, wrapper=wrapper) as service, service.caller() as caller:
        program = caller.upload(small(42))
        filler = Path(f"/proc/{service.pid}/root{disk}/filler")  # the disk is there for the server alone
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        job = caller.over(caller.submit("compile", program))
        assert (job["state"], job["problem"]["error"]) == ("failed", "EnvironmentProblem"), job
        assert "full" in job["problem"]["what"]
        filler.unlink()
        everything(caller, caller.over(caller.submit("compile", program)))


def test_two_servers_on_one_store(tmp_path: Path) -> None:
    """Each has a state of its own; what one has made, the other has."""
    store = str(tmp_path / "store")
    texts = [small(n) for n in range(50, 54)]
    key = os.urandom(32).hex()
    for name in ("one", "two"):
        (tmp_path / name / "state").mkdir(parents=True)
        (tmp_path / name / "state" / "key").write_text(key, encoding="ascii")
        (tmp_path / name / "state" / "key").chmod(0o600)
    with Service(tmp_path / "one", store=store) as one, Service(tmp_path / "two", store=store) as two:

        def ask(service: Service) -> list[tuple[str, bytes]]:
            with service.caller() as caller:
                jobs = [caller.made("partition", text) for text in texts]
                return [(j["key"], caller.file(j["key"], "partitioned.hlo")) for j in jobs]

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(ask, (one, two) * 4))
        assert all(answer == answers[0] for answer in answers)
        with one.caller() as first, two.caller() as second:
            job = first.made("partition", small(60))
            assert second.made("partition", small(60))["cached"]
            assert everything(second, job) == everything(first, job)


@pytest.mark.full
def test_a_server_takes_over_the_jobs_of_one_that_was_killed(tmp_path: Path) -> None:
    """Two of them share store and state."""
    shared = {"store": str(tmp_path / "store"), "state": tmp_path / "state"}
    with Service(tmp_path / "one", **shared) as one, Service(tmp_path / "two", **shared) as two:
        with one.caller() as caller:
            job = running(caller, caller.submit("compile", caller.upload(large(40, 6)), page=False))
        one.kill()
        with two.caller() as caller:
            ended = caller.over(caller.job(job["id"]))
            assert ended["state"] == "done", ended
            assert everything(caller, ended)
        one.start()


def test_runaways_are_stopped(tmp_path: Path) -> None:
    """Too long and too large: an error that says which, and the next job is done."""
    options = ("--time-limit", "8", "--memory-limit", "500M")
    numbers = ",".join(["1.25"] * 4_000_000)
    big = "f32[4000000]{0}"
    memory = f"ENTRY main {{\n  c = {big} constant({{{numbers}}})\n  ROOT y = {big} negate(c)\n}}\n"
    with Service(tmp_path, options=options, workers=2) as service, service.caller() as caller:
        slow = caller.submit("compile", caller.upload(large(1000, 7)), page=False)
        job = caller.over(caller.submit("inspect", caller.upload(f"HloModule memory\n\n{memory}")))
        assert (job["state"], job["problem"]["error"]) == ("failed", "RunError"), job
        assert "memory" in job["problem"]["what"], job
        job = caller.over(slow)
        assert (job["state"], job["problem"]["error"]) == ("failed", "RunError"), job
        assert "exceeded its limit of 8 s" in job["problem"]["what"], job
        caller.made("partition", small(70))
