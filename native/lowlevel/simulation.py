"""Native functions as plain Python, by several threads of several processes, in an order that a test chooses.

One thread runs at a time. Before each atomic operation, and wherever one waits, another may take its turn: every
behaviour of sequentially consistent memory is such an order (plain accesses between two atomic operations are one
step, as they are for programs without data races). What weaker orders allow besides is not seen.

`explore` goes through all orders with few preemptions, one after another: iterative context bounding (Musuvathi and
Qadeer, "Iterative context bounding for systematic testing of multithreaded programs", PLDI 2007). Most mistakes show
with two. `ThreadSimulation` with a random choice samples orders of larger programs.

Time passes when it is asked for, and jumps to where a sleeper wakes when nobody else can run.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from shardc.native.lowlevel.builtins import Static
from shardc.native.lowlevel.platform import PLATFORM, Platform
from shardc.native.lowlevel.records import RUN, Record
from shardc.native.lowlevel.sources import signature_of

__all__ = ["Deadlock", "Endless", "Process", "SimulatedThread", "ThreadSimulation", "explore"]


#: What memory is full of that was freed: a reference in it is none, rather than one to anywhere.
_FREED = b"\0"


class Deadlock(AssertionError):
    """All threads wait for each other."""


class Endless(AssertionError):
    """More turns than a simulation may take."""


class _Abandoned(BaseException):
    """The simulation is over: the thread ends where it is."""


@dataclass(eq=False)
class Process:
    """A process: its number, the memory of its programs, and what it runs on (default: as this machine)."""

    number: int = 1
    statics: dict[Static, Record] = field(default_factory=dict)
    platform: Platform | None = None


@dataclass(eq=False)
class SimulatedThread:
    """A thread. ``waits_on`` is an address where it sleeps, ``wakes_at`` when it wakes by itself."""

    run: Callable[[], Any]
    process: Process
    number: int
    turn: threading.Lock = field(default_factory=threading.Lock)
    waits_on: int | None = None
    wakes_at: int | None = None
    is_over: bool = False
    #: Others need not wait for its end.
    is_detached: bool = False
    result: Any = None

    @property
    def can_run(self) -> bool:
        return not self.is_over and self.waits_on is None and self.wakes_at is None


#: Among how many to choose who goes on, and whether the first of them, who runs now, could go on.
Choose = Callable[[int, bool], int]


class ThreadSimulation:
    """Threads that take turns as ``choose`` says; ``tick`` are the nanoseconds that pass when the clock is read.

    Example::

        simulation = ThreadSimulation()
        waiting = simulation.start(wait, meeting, 2)
        simulation.start(arrive, meeting, 2)
        simulation.run()
        assert waiting.result
    """

    def __init__(self, choose: Choose = lambda count, preempts: 0, tick: int = 1000, most: int = 100_000) -> None:
        self._choose, self._tick, self._left = choose, tick, most
        self._time = 1
        self._tasks: list[SimulatedThread] = []
        self._current: SimulatedThread | None = None
        self._over = threading.Lock()
        self._problem: BaseException | None = None
        self._is_closed = False
        #: Memory that was allocated: itself, its bytes, and whether it was not freed yet.
        self._memory: dict[int, tuple[Any, int, bool]] = {}
        self._functions: dict[int, Any] = {}
        self._addresses: dict[Any, tuple[int, Any]] = {}

    def start(self, function: Callable[..., Any], *arguments: Any, process: Process | None = None) -> SimulatedThread:
        """A thread that calls ``function`` as soon as it is its turn."""
        if process is None:
            process = self._tasks[0].process if self._tasks else Process()
        task = SimulatedThread(lambda: function(*arguments), process, len(self._tasks) + 1)
        task.turn.acquire()
        self._tasks.append(task)
        threading.Thread(target=self._live, args=(task,), daemon=True).start()
        return task

    def run(self) -> None:
        """All threads to their ends; `Deadlock` or `Endless`, or what one of them raises."""
        self._over.acquire()
        self._go_on(None)
        self._over.acquire()
        self._is_closed = True
        for task in self._tasks:  # helpers still wait, and others of a simulation that failed
            if not task.is_over:
                task.turn.release()
        self._over.release()
        if self._problem is not None:
            raise self._problem

    def _live(self, task: SimulatedThread) -> None:
        RUN.set(_View(self, task))
        PLATFORM.set(task.process.platform)
        task.turn.acquire()
        try:
            if not self._is_closed:
                task.result = task.run()
        except _Abandoned:
            return
        except BaseException as problem:
            self._problem = self._problem or problem
        task.is_over = True
        if not self._is_closed:
            self._go_on(None)

    @property
    def _is_over(self) -> bool:
        return all(t.is_over or t.is_detached for t in self._tasks)

    def turn(self, *, passes: bool) -> None:
        """Another thread may go on; where the caller ``passes`` its turn, the next one does."""
        assert self._current is not None
        self._left -= 1
        if self._left < 0:
            self._fail(Endless("the threads take turns forever"))
        others = self._others(self._current)
        if others:
            order = [self._current, *others]
            self._pass_to(others[0] if passes else order[self._choose(len(order), True)])

    def sleep(self, on: int | None, nanoseconds: int | None) -> None:
        """The caller sleeps on an address, or only for so long."""
        task = self._current
        assert task is not None
        task.waits_on = on
        task.wakes_at = None if nanoseconds is None else self._time + max(1, nanoseconds)
        self._go_on(task)

    def wake(self, address: int, count: int) -> None:
        for task in [t for t in self._tasks if t.waits_on == address][:count]:
            task.waits_on = task.wakes_at = None

    def now(self) -> int:
        self._time += self._tick
        for task in self._tasks:
            if task.wakes_at is not None and task.wakes_at <= self._time:
                task.waits_on = task.wakes_at = None
        return self._time

    def _others(self, task: SimulatedThread | None) -> list[SimulatedThread]:
        """Who else can run, in turn."""
        at = self._tasks.index(task) + 1 if task else 0
        return [t for t in self._tasks[at:] + self._tasks[:at] if t.can_run and t is not task]

    def _go_on(self, task: SimulatedThread | None) -> None:
        """``task`` cannot: somebody else, or it itself when its time has come."""
        ready = self._others(None)
        if not ready:
            timed = [t for t in self._tasks if t.wakes_at is not None and not t.is_over]
            if timed:
                first = min(timed, key=lambda t: t.wakes_at or 0)
                self._time = max(self._time, first.wakes_at or 0)
                first.waits_on = first.wakes_at = None
                ready = [first]
        if self._problem is None and ready and not self._is_over:
            chosen = ready[self._choose(len(ready), False)] if len(ready) > 1 else ready[0]
            self._pass_to(chosen, task)
            return
        if self._problem is None and not self._is_over:
            self._problem = Deadlock(
                "all threads wait: " + ", ".join(str(t.number) for t in self._tasks if not t.is_over)
            )
        self._over.release()
        if task is not None:
            task.turn.acquire()
            raise _Abandoned

    def _pass_to(self, chosen: SimulatedThread, task: SimulatedThread | None = None) -> None:
        """``chosen`` goes on; the caller, unless it has ended, when it is its turn again."""
        before = self._current if self._current is not None and not self._current.is_over else None
        self._current = chosen
        if chosen is before:
            return
        chosen.turn.release()
        if before is not None:
            before.turn.acquire()
            if self._is_closed:
                raise _Abandoned

    def _fail(self, problem: BaseException) -> None:
        self._problem = problem
        self._over.release()
        assert self._current is not None
        self._current.turn.acquire()
        raise _Abandoned

    @property
    def allocated(self) -> list[int]:
        """Where memory lies that was not freed; AssertionError where somebody wrote into memory that was."""
        freed = [at for at, (_, nbytes, is_there) in self._memory.items() if not is_there]
        for at in freed:
            nbytes = self._memory[at][1]
            assert ctypes.string_at(at, nbytes) == _FREED * nbytes, "memory is written into that was freed"
        return [at for at in self._memory if at not in freed]

    def allocate(self, alignment: int, nbytes: int) -> int:
        """Memory that stays when it is freed, so that whoever still uses it is seen: it is full of zeros."""
        memory = ctypes.create_string_buffer(nbytes + alignment)
        at = ctypes.addressof(memory) + -ctypes.addressof(memory) % alignment
        ctypes.memset(at, 0x5A, nbytes)
        self._memory[at] = memory, nbytes, True
        return at

    def free(self, address: int) -> None:
        """Memory that is not used any more; AssertionError where that was said before."""
        memory, nbytes, is_there = self._memory.get(address, (None, 0, False))
        assert is_there, "memory is freed that is not there"
        ctypes.memset(address, _FREED[0], nbytes)
        self._memory[address] = memory, nbytes, False

    def address_of(self, function: Callable[..., Any]) -> int:
        """A number for ``function``; native code may call it, too."""
        found = self._addresses.get(function)
        if found is None:
            thunk = signature_of(function).c_type(function)
            found = self._addresses[function] = ctypes.cast(thunk, ctypes.c_void_p).value or 0, thunk
            self._functions[found[0]] = function
        return found[0]

    def function_at(self, address: int) -> Callable[..., Any] | None:
        return self._functions.get(address)


@dataclass(frozen=True)
class _View:
    """A simulation as one of its threads sees it."""

    simulation: ThreadSimulation
    task: SimulatedThread

    def before_atomic(self) -> None:
        self.simulation.turn(passes=False)

    def address_of_function(self, function: Callable[..., Any]) -> int:
        return self.simulation.address_of(function)

    def function_at(self, address: int) -> Callable[..., Any] | None:
        return self.simulation.function_at(address)

    def memory_of(self, static: Static) -> Record:
        return self.task.process.statics.setdefault(static, static.made())

    def now(self) -> int:
        return self.simulation.now()

    def pass_turn(self) -> None:
        self.simulation.turn(passes=True)

    def sleep(self, nanoseconds: int) -> None:
        self.simulation.sleep(None, nanoseconds)

    def wait_on(self, address: int, nanoseconds: int | None) -> None:
        self.simulation.sleep(address, nanoseconds)

    def wake(self, address: int, count: int) -> None:
        self.simulation.wake(address, count)

    def process(self) -> int:
        return self.task.process.number

    def thread(self) -> int:
        return self.task.number

    def allocate(self, alignment: int, nbytes: int) -> int:
        return self.simulation.allocate(alignment, nbytes)

    def free(self, address: int) -> None:
        self.simulation.free(address)

    def start_thread(self, function: Callable[..., Any], argument: int) -> None:
        self.simulation.start(function, argument, process=self.task.process).is_detached = True


def explore(program: Callable[[Choose], None], preemptions: int = 2, most: int = 100_000) -> int:
    """Call ``program`` with every choice of turns that preempts a thread at most so often; how many there were.

    ``program`` makes a `ThreadSimulation` of what it is given, runs it and checks what came out. `Endless` where there
    are more than ``most``.
    """
    prefix: list[int] = []
    for runs in range(1, most + 1):
        trail: list[tuple[int, int, bool]] = []

        def choose(
            count: int, preempts: bool, trail: list[tuple[int, int, bool]] = trail, prefix: list[int] = prefix
        ) -> int:
            choice = prefix[len(trail)] if len(trail) < len(prefix) else 0
            trail.append((choice, count, preempts))
            return choice

        program(choose)
        following = _next_prefix(trail, preemptions)
        if following is None:
            return runs
        prefix = following
    raise Endless(f"there are more than {most} orders")


def _next_prefix(trail: list[tuple[int, int, bool]], preemptions: int) -> list[int] | None:
    """The choices up to the last one that can be another, with that one."""
    for at in reversed(range(len(trail))):
        choice, count, preempts = trail[at]
        spent = sum(1 for c, _, p in trail[:at] if p and c) + preempts
        if choice + 1 < count and spent <= preemptions:
            return [*(c for c, _, _ in trail[:at]), choice + 1]
    return None
