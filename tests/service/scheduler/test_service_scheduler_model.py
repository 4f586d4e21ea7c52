"""The scheduler against a model of it: any sequence of submitting, cancelling, ends of tasks, restarts and crashes."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from scheduler_support import ManualWorkers, a_scheduler, a_store, an_order, copy_state, until

from shardc.hlo.errors import RunError
from shardc.service.orders import order_key
from shardc.service.scheduler.refusals import QueueFull

WORKERS, QUEUE, KEYS = 2, 3, 5


@dataclass(eq=False)
class ModelJob:
    """A job as the model has it; ``number`` says which order."""

    id: str
    number: int
    state: str = "queued"
    downs: int = 0


@dataclass(eq=False)
class Flight:
    """A task as the model has it."""

    number: int
    jobs: list[ModelJob] = field(default_factory=list)
    running: bool = False


class SchedulerModel(RuleBasedStateMachine):
    """Two workers, a queue of three, five different orders."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="shardc-scheduler-"))
        self.states = 0
        self.jobs: list[ModelJob] = []
        self.flights: list[Flight] = []
        self.stored: set[int] = set()
        self.stack = ExitStack()
        self.whole = ExitStack()
        self.store = self.whole.enter_context(a_store(self.folder / "store"))

    @initialize()
    def begin(self) -> None:
        self.state = self.folder / "0"
        self.open()

    def open(self) -> None:
        self.workers = ManualWorkers(WORKERS)
        self.stack = ExitStack()
        self.scheduler = self.stack.enter_context(
            a_scheduler(self.state, self.workers, self.store, QUEUE, pause=3600.0)
        )

    def teardown(self) -> None:
        self.stack.close()
        self.whole.close()
        shutil.rmtree(self.folder)

    # What the model does.

    def fly(self) -> None:
        """Workers that are free take the next."""
        busy = sum(flight.running for flight in self.flights)
        for flight in [f for f in self.flights if not f.running][: WORKERS - busy]:
            flight.running = True
            for model in flight.jobs:
                model.state = "running"

    def land(self, flight: Flight, state: str) -> None:
        for model in flight.jobs:
            model.state = state
        self.flights.remove(flight)
        self.fly()

    def requeue(self, crash: bool) -> None:
        left = [w for w in self.jobs if w.state in ("queued", "running")]
        self.flights = []
        for model in left:
            model.downs += crash and model.state == "running"
            model.state = "failed" if model.downs >= 3 else "queued"
            if model.state == "queued":
                self.board(model)
        self.fly()

    def board(self, model: ModelJob) -> None:
        flight = next((f for f in self.flights if f.number == model.number), None)
        if flight is None:
            flight = Flight(model.number)
            self.flights.append(flight)
        flight.jobs.append(model)
        model.state = "running" if flight.running else "queued"

    # What happens.

    @rule(number=st.integers(0, KEYS - 1))
    def submit(self, number: int) -> None:
        waiting = len(self.flights) - min(len(self.flights), WORKERS)
        in_flight = {f.number for f in self.flights}
        if waiting >= QUEUE and number not in self.stored | in_flight:
            with pytest.raises(QueueFull):
                self.scheduler.submit(an_order(number))
            return
        job = self.scheduler.submit(an_order(number))
        model = ModelJob(job.id, number)
        self.jobs.append(model)
        if number in self.stored:
            assert job.cached
            model.state = "done"
        else:
            self.board(model)
            self.fly()

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        model = data.draw(st.sampled_from(self.jobs))
        job = self.scheduler.cancel(model.id)
        assert job is not None
        flight = next((f for f in self.flights if model in f.jobs), None)
        if flight is not None:
            model.state = "cancelled"
            flight.jobs.remove(model)
            if not flight.jobs:
                self.land(flight, "cancelled")
        assert job.state == model.state

    @precondition(lambda self: any(flight.running for flight in self.flights))
    @rule(data=st.data(), succeeds=st.booleans())
    def end_task(self, data: st.DataObject, succeeds: bool) -> None:
        flight = data.draw(st.sampled_from([f for f in self.flights if f.running]))
        (task,) = [t for t in self.live() if t.order == an_order(flight.number)]
        if succeeds:
            self.stored.add(flight.number)
            task.succeed()
        else:
            task.fail(RunError("crashed"))
        self.land(flight, "done" if succeeds else "failed")

    @precondition(lambda self: self.flights)
    @rule(crash=st.booleans())
    def restart(self, crash: bool) -> None:
        if crash:
            self.states += 1
            self.state = copy_state(self.state, self.folder / str(self.states))
        self.stack.close()
        self.requeue(crash)
        self.open()

    # What must hold.

    def live(self) -> list:  # type: ignore[type-arg]
        return [t for t in list(self.workers.tasks) if not t.running.future.done()]

    @invariant()
    def all_is_as_the_model_has_it(self) -> None:
        flying = sorted(f"program-{f.number}" for f in self.flights if f.running)
        until(lambda: sorted(t.order.name for t in self.live()) == flying)
        until(lambda: self.scheduler.statistics().running == sum(len(f.jobs) for f in self.flights if f.running))
        until(lambda: all(self.scheduler.job(w.id).state == w.state for w in self.jobs))
        waiting = [f for f in self.flights if not f.running]
        for place, flight in enumerate(waiting, 1):
            assert {self.scheduler.job(w.id).position for w in flight.jobs} == {place}
        for model in self.jobs:
            job = self.scheduler.job(model.id)
            assert (job.entry is not None) == (model.state == "done")
            assert (job.problem is not None) == (model.state == "failed")
            assert job.key == order_key(an_order(model.number))
        until(lambda: self.store.statistics().in_use == bool(self.flights))
        shown = [job.id for job in reversed(self.scheduler.jobs(1000))]
        assert shown == [model.id for model in self.jobs]


#: Nothing is shrunk: a state that is never reached takes its time to be found out.
_SETTINGS = settings(
    deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.generate)
)


def test_any_short_story() -> None:
    run_state_machine_as_test(SchedulerModel, settings=settings(_SETTINGS, max_examples=8, stateful_step_count=20))


@pytest.mark.full
def test_any_story() -> None:
    run_state_machine_as_test(SchedulerModel, settings=settings(_SETTINGS, max_examples=40, stateful_step_count=50))
