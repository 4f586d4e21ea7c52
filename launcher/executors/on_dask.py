"""Tasks on the workers of a Dask cluster: each worker has children while somebody here uses it, by a plug-in.

Payloads and answers are bytes, as everywhere; that Dask itself pickles calls between client, scheduler and workers, who
trust each other, is why its cluster must be the operator's own.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from shardc.hlo.errors import EnvironmentProblem
from shardc.launcher.executors.children import Children
from shardc.launcher.executors.limits import TaskLimits
from shardc.launcher.executors.running import Kind, Outcome, Running, Unfinished, Workers, outcome_of
from shardc.launcher.executors.tasks import Progress

try:
    from distributed import Client, WorkerPlugin, get_worker
except ImportError as e:
    raise EnvironmentProblem("the package distributed is not installed", fix="pip install 'shardc[dask]'") from e

__all__ = ["on_dask"]

#: Seconds that a scheduler gets to answer.
_CONNECTING = 15.0
#: Seconds after which workers are counted again.
_COUNTING = 5.0
#: Payloads from so many bytes on go to the cluster apart from the call, once for equal ones.
_LARGE = 100_000


class _Lender(WorkerPlugin):  # type: ignore[misc]
    """Has children on a worker, from when it is registered to when it is taken back."""

    def __init__(self, name: str, environment: Mapping[str, str], tasks: Mapping[str, str]) -> None:
        self.name, self._environment, self._tasks = name, dict(environment), dict(tasks)

    def setup(self, worker: Any) -> None:
        self.children = Children(self._environment, self._tasks)
        self.unwanted: set[int] = set()

    def teardown(self, worker: Any) -> None:
        self.children.close()


def _on_this_worker(name: str, number: int, task: str, payload: bytes, limits: TaskLimits, tell: bool) -> Outcome:
    worker = get_worker()
    lender: _Lender = worker.plugins[name]

    def progress(news: Mapping[str, Any]) -> None:
        worker.log_event(name, {"number": number, "news": dict(news)})

    def unwanted() -> bool:
        return number in lender.unwanted

    heard = progress if tell else None
    try:
        return outcome_of(lambda: lender.children.call(task, payload, limits, heard, unwanted))
    finally:
        lender.unwanted.discard(number)


def _forget(name: str, number: int, dask_worker: Any) -> None:
    """Nobody wants the task any more; called on all workers."""
    dask_worker.plugins[name].unwanted.add(number)


class _Cluster:
    """The workers of a cluster. A thread talks to it, so that nobody waits for the network."""

    kind: Kind = "dask"

    def __init__(self, client: Client, name: str, errands: ThreadPoolExecutor) -> None:
        self.unfinished = Unfinished()
        self._client, self._name, self._errands = client, name, errands
        self._executor = client.get_executor(pure=False)
        self._count, self._counted = 1, 0.0
        self._count_workers()

    @property
    def count(self) -> int:
        """The threads of all workers that were there when it was last asked, or shortly before: clusters grow and
        shrink; one that has none yet may get some for the first task."""
        if time.monotonic() - self._counted > _COUNTING:
            self._counted = time.monotonic()
            with suppress(RuntimeError):  # at the end nobody counts any more
                self._errands.submit(self._count_workers)
        return self._count

    def submit(self, task: str, payload: bytes, limits: TaskLimits, progress: Progress | None = None) -> Running:
        running = Running(task)
        number = self.unfinished.add(running, progress)
        self._errands.submit(self._send, running, number, payload, limits, progress is not None)
        return running

    def receive(self, event: tuple[float, Mapping[str, Any]]) -> None:
        """A worker says how far a task is."""
        _, news = event
        self.unfinished.report_progress(news["number"], news["news"])

    def _count_workers(self) -> None:
        self._count = max(1, sum(self._client.nthreads().values()))
        self._counted = time.monotonic()

    def _send(self, running: Running, number: int, payload: bytes, limits: TaskLimits, tell: bool) -> None:
        if running.is_stopped():
            return
        try:
            data = payload if len(payload) < _LARGE else self._client.scatter(payload)
            call = self._executor.submit(_on_this_worker, self._name, number, running.task, data, limits, tell)
        except Exception as e:
            running.give_up(e)
        else:
            running.follow(call, lambda: self._errands.submit(self._tell, number))

    def _tell(self, number: int) -> None:
        self._client.run(_forget, self._name, number, on_error="ignore")


@contextmanager
def on_dask(address: str, environment: Mapping[str, str], tasks: Mapping[str, str]) -> Iterator[Workers]:
    """The workers of the cluster whose scheduler has this ``address``, for as long as the block takes."""
    try:
        client = Client(address, timeout=_CONNECTING, set_as_default=False)
    except (OSError, ValueError, ImportError) as e:
        what = f"no Dask scheduler answers at {address!r}: {str(e).splitlines()[0]}"
        raise EnvironmentProblem(
            what, fix="give the address that the scheduler prints, such as tcp://host:8786"
        ) from None
    name = f"shardc-{uuid.uuid4().hex}"
    errands = ThreadPoolExecutor(1, thread_name_prefix="shardc-dask")
    try:
        client.register_plugin(_Lender(name, environment, tasks))
        cluster = _Cluster(client, name, errands)
        client.subscribe_topic(name, cluster.receive)
        try:
            yield cluster
        finally:
            cluster.unfinished.stop()
            errands.shutdown(wait=True)
            with suppress(OSError, TimeoutError):  # a cluster that is gone has no plug-ins
                client.unregister_worker_plugin(name)
    finally:
        errands.shutdown(wait=True, cancel_futures=True)
        client.close()
