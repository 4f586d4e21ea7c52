"""Metrics in the form of Prometheus: requests are counted here, scheduler and store are asked when metrics are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from shardc.service.scheduler.scheduler import Scheduler
    from shardc.service.store.store import Store

__all__ = ["METRICS_TYPE", "Metrics"]

METRICS_TYPE = CONTENT_TYPE_LATEST

_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """A registry of its own, so that several applications in one process do not add up."""

    def __init__(self, scheduler: Scheduler, store: Store) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "shardc_http_requests",
            "Requests that were answered.",
            ("route", "method", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "shardc_http_seconds",
            "Seconds until the response started.",
            ("route",),
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self.streams = Gauge("shardc_http_streams", "Event streams that are open.", registry=self._registry)
        self._registry.register(_Figures(scheduler, store))

    def count(self, route: str, method: str, status: int, seconds: float) -> None:
        """A request was answered; ``route`` is the path's pattern, so that there are few of them."""
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """All of it."""
        return generate_latest(self._registry)


class _Figures(Collector):
    """What scheduler and store count, as metrics."""

    def __init__(self, scheduler: Scheduler, store: Store) -> None:
        self._scheduler, self._store = scheduler, store

    def describe(self) -> list[Metric]:
        return []  # or else registering would ask scheduler and store

    def collect(self) -> Iterator[Metric]:
        counted = self._scheduler.statistics()
        yield GaugeMetricFamily("shardc_jobs_queued", "Jobs in the queue.", counted.queued)
        yield GaugeMetricFamily("shardc_jobs_running", "Jobs that workers carry out.", counted.running)
        yield GaugeMetricFamily("shardc_jobs_elsewhere", "Jobs whose work another server does.", counted.elsewhere)
        yield GaugeMetricFamily(
            "shardc_queue_oldest_seconds", "Seconds that the first order in the queue has waited.", counted.oldest
        )
        tables = (
            ("makings", "Orders handed to a worker.", counted.tasks),
            ("making_seconds", "Seconds that workers spent on orders.", counted.seconds),
            ("jobs_cached", "Jobs whose result existed already.", counted.cached),
        )
        for name, text, table in tables:
            family = CounterMetricFamily(f"shardc_{name}", text, labels=("kind",))
            for kind, value in sorted(table.items()):
                family.add_metric((kind,), value)
            yield family
        jobs = CounterMetricFamily("shardc_jobs", "Jobs that have ended.", labels=("kind", "state"))
        for (kind, ended), number in sorted(counted.ended.items()):
            jobs.add_metric((kind, ended), number)
        yield jobs
        yield CounterMetricFamily(
            "shardc_jobs_joined", "Jobs that joined a running job with the same order.", counted.joined
        )
        yield CounterMetricFamily("shardc_jobs_requeued", "Jobs that went back into the queue.", counted.requeued)
        for name, number in asdict(self._store.statistics()).items():
            if isinstance(number, int | float):  # there is a text besides, which says what is wrong with it
                yield GaugeMetricFamily(f"shardc_store_{name}", f"The store's {name.replace('_', ' ')}.", number)
