"""The worker: the thread that runs steps in their order, and does for them what takes Python."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from shardc.frontends.pjrt.loaded_program import LoadedProgram
from shardc.frontends.pjrt.native.library import Library
from shardc.frontends.pjrt.native.queue import CONTINUE, COPY, FAIL, OVER, RELEASE_PROGRAM, Question
from shardc.frontends.pjrt.native.tasks import ASKS
from shardc.launcher.driver.driver import Driver
from shardc.native.lowlevel.records import address_of

__all__ = ["StepWorker", "step_worker"]

#: How long a process that ends waits for steps of its own, and between two looks.
_LAST_SECONDS, _LOOK_SECONDS = 2.0, 0.002

_ATTEND = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_size_t)


class StepWorker:
    """Serves the process's queue of steps from a thread of its own until the process ends. There is one in a process.

    A program that is loaded comes in by `add`. While a function of Python is called, there may be more threads.
    """

    def __init__(self, library: Library) -> None:
        self._programs: dict[int, LoadedProgram] = {}
        self._threads: list[threading.Thread] = []
        self._process = os.getpid()
        self._make_error = library.make_error
        self._serve = library.function("shardc_pjrt_serve", None, keeps_gil=False)
        self._is_idle = library.function("shardc_pjrt_is_idle", ctypes.c_bool)
        self._stand_still = library.function("shardc_pjrt_stand_still", ctypes.c_bool, ctypes.c_size_t)
        self._step_again = library.function("shardc_pjrt_step_again", None, ctypes.c_size_t, keeps_gil=False)
        self._attend = _ATTEND(self._attended)
        library.function("shardc_pjrt_open_queue", None, _ATTEND)(self._attend)
        self._start()
        # Steps that still run need what other exit handlers give back: the shared memory of ranks, and the row in the
        # watchdog's table. So they are waited for before all of those, and once more: handlers may begin further steps.
        threading._register_atexit(self._end)  # type: ignore[attr-defined]
        atexit.register(self._end)
        os.register_at_fork(after_in_child=library.function("shardc_pjrt_leave_queue", None))

    def add(self, program: LoadedProgram) -> None:
        """``program`` may run; it stays until native code releases it."""
        self._programs[program.handle] = program

    def wait(self) -> None:
        """Wait until no step is left. A function of Python that a step calls does not wait for that step."""
        if threading.current_thread() in self._threads:
            return
        while not self._is_idle():
            time.sleep(_LOOK_SECONDS)

    def _start(self) -> None:
        self._threads = [t for t in self._threads if t.is_alive()]
        thread = threading.Thread(target=self._serve, name="shardc-steps", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _attended(self, place: int) -> int:
        """What a step needs of Python; called by who runs it, with the address of a `Question`."""
        question = Question.at(place)
        if question.state == RELEASE_PROGRAM:
            released = self._programs.pop(address_of(question.program), None)
            while released is not None:
                released = self._programs.pop(released.record.copy, None)
            return OVER
        if question.state == COPY:
            return self._copy(question)
        handle = address_of(question.program)
        program = self._programs[handle]
        driver = program.driver
        assert driver is not None, "a program of other processes has no steps"
        try:
            if question.state == ASKS:
                driver.begin()
                return CONTINUE
            with self._python_of(program, driver, question):
                return OVER if driver.attend(question.state) else CONTINUE
        except BaseException as error:
            driver.abandon()
            question.error = self._make_error(error)
            return FAIL

    def _copy(self, question: Question) -> int:
        """Load a program once more, with memory of its own."""
        program = self._programs[address_of(question.program)]
        try:
            copy = program.again()
        except BaseException as error:
            question.error = self._make_error(error)
            return FAIL
        self.add(copy)
        program.record.copy = copy.handle
        return CONTINUE

    @contextmanager
    def _python_of(self, program: LoadedProgram, driver: Driver, question: Question) -> Iterator[None]:
        """Within the block functions of Python are called, if the program has some: its step stands still."""
        if not driver.executable.hosts:
            yield
            return
        if self._stand_still(program.handle):
            self._start()
        try:
            with program.functions.of(question.functions):
                yield
        finally:
            self._step_again(program.handle)

    def _end(self) -> None:
        """Before the process ends, wait for the steps that were asked for: without limit where other processes wait for
        them, not at all where an interrupt ends it. A step that goes on behind that keeps its code and memory. A child
        after fork has no steps."""
        if os.getpid() != self._process:
            return
        together = any(p.record.asks for p in self._programs.values())
        interrupted = isinstance(getattr(sys, "last_value", None), KeyboardInterrupt)
        end = time.monotonic() + (0 if interrupted else _LAST_SECONDS)
        while not self._is_idle() and (together or time.monotonic() < end):
            time.sleep(_LOOK_SECONDS)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))


@cache
def step_worker(library: Library) -> StepWorker:
    """The worker of this process."""
    return StepWorker(library)
