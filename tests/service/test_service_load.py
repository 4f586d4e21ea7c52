"""Many clients at once: nothing is lost, nothing is wrong, and each distinct order is carried out once."""

from __future__ import annotations

import hashlib
import random
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

import shardc
from tests.service.service_harness import Caller, Service
from tests.service.service_programs import small

CLIENTS = 32
#: What is asked about each program, and the file that is compared.
ORDERS: tuple[tuple[str, Mapping[str, Any], str], ...] = (
    ("partition", {}, "partitioned.hlo"),
    ("compile", {"page": False}, "executable.shardc"),
    ("simulate", {"machine": "h100-dgx:2", "page": False}, "simulation.json"),
    ("explain", {"remedies": 0}, "explanation.json"),
)
NOWHERE = "0" * 64


@dataclass
class Findings:
    """What all clients have seen, so that a difference between any two of them is found."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    keys: dict[tuple[str, str], str] = field(default_factory=dict)
    digests: dict[tuple[str, str], str] = field(default_factory=dict)
    contents: dict[tuple[str, str], bytes] = field(default_factory=dict)
    jobs: set[str] = field(default_factory=set)

    def agree(self, what: tuple[str, str], job: Mapping[str, Any], name: str, content: bytes) -> None:
        digest = hashlib.sha256(content).hexdigest()
        told = {a["name"]: a for a in job["entry"]["artifacts"]}[name]
        assert (told["sha256"], told["bytes"]) == (digest, len(content))
        with self.lock:
            assert self.keys.setdefault(what, job["key"]) == job["key"]
            assert self.digests.setdefault(what, digest) == digest
            self.contents.setdefault(what, content)
            assert job["id"] not in self.jobs
            self.jobs.add(job["id"])


class Client:
    """One of them: requests of every sort, in an order of its own, until it has made ``requests`` of them."""

    def __init__(self, caller: Caller, number: int, programs: list[str], findings: Findings) -> None:
        self.caller, self.number, self.programs, self.findings = caller, number, programs, findings
        self.chance = random.Random(number)
        self.requests = 0
        caller.http.event_hooks["response"].append(self._count)

    def _count(self, response: httpx.Response) -> None:
        self.requests += 1
        assert response.status_code < 500, response.request.url

    def run(self, requests: int) -> int:
        acts: list[Callable[[], None]] = [self.result, self.result, self.result, self.look, self.mistake, self.cancel]
        while self.requests < requests:
            self.chance.choice(acts)()
        return self.requests

    def result(self) -> None:
        """An order from its program to the bytes of its answer."""
        text = self.chance.choice(self.programs)
        kind, fields, name = self.chance.choice(ORDERS)
        job = self.caller.made(kind, text, **fields)
        assert job["kind"] == kind
        self.findings.agree((kind, text), job, name, self.caller.file(job["key"], name))

    def look(self) -> None:
        """What reads, and changes nothing."""
        http = self.caller.http
        path = self.chance.choice(
            ("/v1/machines", "/v1/targets", "/v1/info", "/v1/jobs?limit=5", "/healthz", "/metrics")
        )
        assert http.get(path).status_code == 200
        known = self.caller.upload(self.chance.choice(self.programs))
        assert http.head(f"/v1/programs/{known}").status_code == 200

    def mistake(self) -> None:
        """What is answered with an error, and with the right one."""
        http, program = self.caller.http, hashlib.sha256(self.programs[0].encode()).hexdigest()
        asked: tuple[tuple[int, Callable[[], httpx.Response]], ...] = (
            (404, lambda: http.get(f"/v1/artifacts/{NOWHERE}")),
            (404, lambda: http.get("/v1/jobs/nobody")),
            (404, lambda: http.post("/v1/jobs", json={"kind": "partition", "program": NOWHERE})),
            (422, lambda: http.post("/v1/jobs", json={"kind": "partition", "program": program, "speed": 11})),
            (422, lambda: http.post("/v1/jobs", json={"kind": "divine", "program": program})),
            (401, lambda: http.get("/v1/jobs", headers={"Authorization": "Bearer wrong"})),
        )
        status, ask = self.chance.choice(asked)
        answer = ask()
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"].startswith("application/problem+json")
        assert answer.json()["status"] == status

    def cancel(self) -> None:
        """An order of nobody else's, which is taken back. It ends, whichever of the two was quicker."""
        program = self.caller.upload(self.chance.choice(self.programs))
        job = self.caller.submit("inspect", program, name=f"client-{self.number}-{self.requests}")
        assert self.caller.http.delete(f"/v1/jobs/{job['id']}").is_success
        assert self.caller.over(job)["state"] in ("cancelled", "done")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("load"), workers=2) as service:
        yield service


def shared_makings(caller: Caller) -> int:
    """How many orders of the kinds in `ORDERS` were given to workers."""
    kinds = "|".join(kind for kind, _, _ in ORDERS)
    pattern = re.compile(rf'shardc_makings_total\{{.*kind="({kinds})".*\}}')
    return int(sum(value for sample, value in caller.figures().items() if pattern.fullmatch(sample)))


def load(service: Service, programs: list[str], requests: int) -> None:
    findings = Findings()

    def one(number: int) -> int:
        with service.caller() as caller:
            return Client(caller, number, programs, findings).run(requests)

    with service.caller() as caller:
        before = shared_makings(caller)
        with ThreadPoolExecutor(CLIENTS) as pool:
            made = list(pool.map(one, range(CLIENTS)))
        assert len(made) == CLIENTS
        assert min(made) >= requests
        assert shared_makings(caller) - before == len(findings.keys)
        assert len(set(findings.keys.values())) == len(findings.keys)
        assert caller.figure("shardc_jobs_queued") == caller.figure("shardc_jobs_running") == 0
        for job in list(findings.jobs)[:100]:
            assert caller.job(job)["state"] == "done"


def compare_with_here(service: Service, programs: list[str], folder: Path) -> None:
    """What the service has made is what is made without one."""
    with service.caller() as caller:
        for text in programs:
            path = folder / "program.hlo"
            path.write_text(text, encoding="utf-8")
            job = caller.made("partition", text)
            here = shardc.load(path).propagate().partition().as_text()
            assert caller.file(job["key"], "partitioned.hlo").decode() == here


def test_thirty_two_clients(service: Service, tmp_path: Path) -> None:
    programs = [small(n) for n in range(3)]
    load(service, programs, 20)
    compare_with_here(service, programs, tmp_path)


def test_an_order_in_flight_is_made_once(service: Service) -> None:
    """All ask at the same moment for what nobody has asked for yet."""
    text, together = small(99), threading.Barrier(CLIENTS)

    def one(_: int) -> tuple[str, str]:
        with service.caller() as caller:
            program = caller.upload(text)
            together.wait(60)
            job = caller.over(caller.submit("compile", program, page=False))
            assert job["state"] == "done", job
            return job["id"], hashlib.sha256(caller.file(job["key"], "executable.shardc")).hexdigest()

    with service.caller() as caller:
        before = shared_makings(caller)
        with ThreadPoolExecutor(CLIENTS) as pool:
            answers = list(pool.map(one, range(CLIENTS)))
        assert shared_makings(caller) - before == 1
    assert len({job for job, _ in answers}) == CLIENTS
    assert len({digest for _, digest in answers}) == 1


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_thirty_two_clients_with_a_thousand_requests_each(service: Service, tmp_path: Path) -> None:
    programs = [small(n) for n in range(200, 216)]
    load(service, programs, 1000)
    compare_with_here(service, programs, tmp_path)
