"""A scheduler that makes nothing, for tests of the interface alone: jobs end when the test says so."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from shardc.service.api.app import create_app
from shardc.service.api.context import ApiSettings, Ending
from shardc.service.jobs import Job
from shardc.service.orders import CompileOrder, Order, order_key
from shardc.service.scheduler.refusals import MissingPrograms, NoSuchJob, QueueFull
from shardc.service.scheduler.statistics import SchedulerStatistics
from shardc.service.store.store import Store

PROGRAM = b"HloModule m\n\nENTRY e {\n  ROOT p = f32[4] parameter(0)\n}\n"


class FakeScheduler:
    """As `shardc.service.scheduler.scheduler.Scheduler`, without workers; `change` says how a job goes on."""

    def __init__(self, store: Store, queue_limit: int = 3) -> None:
        self.store, self.queue_limit = store, queue_limit
        self.held: dict[str, Job] = {}
        self.watching: dict[str, list[Callable[[Job], None]]] = {}
        self._names = (f"job-{n}" for n in itertools.count(1))
        self._lock = threading.Lock()

    def submit(self, order: Order) -> Job:
        if not self.store.has_program(order.program):
            raise MissingPrograms([order.program])
        key = order_key(replace(order, cpu=None) if isinstance(order, CompileOrder) else order)
        if sum(not job.over for job in self.held.values()) >= self.queue_limit:
            raise QueueFull(self.queue_limit, 7)
        entry = self.store.find(key)
        state: Any = "queued" if entry is None else "done"
        job = Job(next(self._names), key, order.kind, order.name, state, time.time(), entry=entry)  # type: ignore[attr-defined]
        self.held[job.id] = job
        return job

    def job(self, job_id: str) -> Job | None:
        return self.held.get(job_id)

    def jobs(self, limit: int) -> list[Job]:
        return list(self.held.values())[::-1][:limit]

    def cancel(self, job_id: str) -> Job | None:
        job = self.held[job_id]
        return job if job.over else self.change(job_id, state="cancelled")

    def watch(self, job_id: str, callback: Callable[[Job], None]) -> Callable[[], None]:
        if job_id not in self.held:
            raise NoSuchJob(job_id)
        with self._lock:
            self.watching.setdefault(job_id, []).append(callback)
            callback(self.held[job_id])
        return lambda: self.watching[job_id].remove(callback)

    def change(self, job_id: str, **fields: Any) -> Job:
        with self._lock:
            self.held[job_id] = job = replace(self.held[job_id], **fields)
            for callback in self.watching.get(job_id, ()):
                callback(job)
        return job

    def statistics(self) -> SchedulerStatistics:
        return SchedulerStatistics(1, 0, 0, 0.0, {"inspect": 2}, {"inspect": 0.5}, {("inspect", "done"): 2}, {}, 0, 0)


class Api:
    """An application over a fake scheduler and a real store, and a client in the same process."""

    def __init__(self, folder: Path, settings: ApiSettings, headers: Mapping[str, str]) -> None:
        self.store = Store(str(folder / "store"), folder / "state", 10**9, b"k" * 32)
        self.scheduler = FakeScheduler(self.store)
        self.ending = Ending()
        self.app = create_app(self.scheduler, self.store, settings, self.ending)  # type: ignore[arg-type]
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:1", headers=headers)

    async def upload(self, data: bytes = PROGRAM) -> str:
        answer = await self.client.post("/v1/programs", content=data, headers={"Content-Type": "text/plain"})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["program"])

    async def submit(self, **fields: Any) -> httpx.Response:
        return await self.client.post("/v1/jobs", json={"kind": "inspect", **fields})


@asynccontextmanager
async def opened(folder: Path, settings: ApiSettings | None = None, headers: Mapping[str, str] | None = None):
    folder.mkdir(parents=True, exist_ok=True)
    api = Api(folder, settings or ApiSettings(), headers or {})
    try:
        async with asyncio.timeout(60):
            yield api
    finally:
        await api.client.aclose()
        api.store.close()
