"""The worker: the thread that runs steps in their order, and does for them what takes Python."""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from shardc.frontends.pjrt.loaded_program import LoadedProgram
from shardc.frontends.pjrt.native.errors import INTERNAL, INVALID_ARGUMENT
from shardc.frontends.pjrt.native.queue import CONTINUE, FAIL, OVER, RELEASE_PROGRAM, SERVE_NEXT, STOPPED, TURN
from shardc.frontends.pjrt.native.tasks import ASKS
from shardc.hlo.errors import InputError, RunError
from shardc.native.drive.records import FINISHED

__all__ = ["StepWorker"]


T = TypeVar("T")

#: What native code asks whether a task belongs to Python that a step calls.
_RUN_INSIDE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_size_t)


class StepWorker:
    """Serves the process's queue of steps from a thread of its own until the process ends; ``address`` finds native
    functions by their names. A program that runs is one of `add`."""

    def __init__(self, address: Callable[[str], int]) -> None:
        self._programs: dict[int, LoadedProgram] = {}
        self._serve = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int32, ctypes.c_void_p)(address("shardc_pjrt_serve"))
        self._current = ctypes.CFUNCTYPE(ctypes.c_size_t)(address("shardc_pjrt_current_program"))
        self._close = ctypes.CFUNCTYPE(None)(address("shardc_pjrt_close_queue"))
        self._fork = ctypes.CFUNCTYPE(None)(address("shardc_pjrt_leave_queue"))
        kinds = (ctypes.c_int32, ctypes.c_char_p, ctypes.c_int64)
        self._make_error = ctypes.CFUNCTYPE(ctypes.c_size_t, *kinds)(address("shardc_pjrt_make_error"))
        self._functions = ctypes.CFUNCTYPE(ctypes.c_size_t)(address("shardc_pjrt_current_functions"))
        self._set_calling = ctypes.CFUNCTYPE(None, ctypes.c_int32, _RUN_INSIDE)(address("shardc_pjrt_set_calling"))
        self._serve_inside = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_size_t, ctypes.c_int32, ctypes.c_void_p)(
            address("shardc_pjrt_serve_inside")
        )
        self._return_to = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_size_t)(address("shardc_pjrt_return_to"))
        self._take_turn = ctypes.CFUNCTYPE(ctypes.c_int64)(address("shardc_pjrt_take_turn"))
        self._lock = threading.Lock()
        self._turns: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._inside = _RUN_INSIDE(self._run_inside)
        self._calling: list[int] = []
        self._thread = threading.Thread(target=self._work, name="shardc-steps", daemon=True)
        self._thread.start()
        atexit.register(self._end)
        os.register_at_fork(after_in_child=self._fork)

    def in_turn(self, function: Callable[[], T]) -> T:
        """What ``function`` gives, called behind all steps that were asked for before and in front of those asked for
        later: where the processes of a job come together, they do so in one order."""
        if threading.current_thread() is self._thread:
            return function()
        turn: Future[T] = Future()
        with self._lock:
            if not self._take_turn():
                raise MemoryError("there is no memory left on this machine")
            self._turns.append((turn, function))
        return turn.result()

    def add(self, program: LoadedProgram) -> None:
        """``program`` may run; it stays until native code releases it."""
        self._programs[program.handle] = program

    def _work(self) -> None:
        answer, error = SERVE_NEXT, 0
        while (state := self._serve(answer, error)) != STOPPED:
            answer, error = self._attend(state)

    def _attend(self, state: int) -> tuple[int, int]:
        """What the current task needs of Python; what `serve` is told then, and an error."""
        handle = self._current()
        if state == RELEASE_PROGRAM:
            self._programs.pop(handle, None)
            return OVER, 0
        if state == TURN:
            self._do_turn()
            return OVER, 0
        program = self._programs[handle]
        driver = program.driver
        try:
            if state == ASKS:
                driver.begin()
                return CONTINUE, 0
            if not driver.executable.hosts:
                return OVER if driver.attend(state) else CONTINUE, 0
            with program.functions.of(self._functions()), self._python_of(handle):
                return OVER if driver.attend(state) else CONTINUE, 0
        except BaseException as error:
            driver.abandon()
            return FAIL, self._error(error)

    def _do_turn(self) -> None:
        with self._lock:
            turn, function = self._turns.popleft()
        try:
            turn.set_result(function())
        except BaseException as error:
            turn.set_exception(error)

    @contextmanager
    def _python_of(self, handle: int) -> Iterator[None]:
        """Within the block a program calls functions of Python, which may run other programs."""
        self._calling.append(handle)
        self._set_calling(1, self._inside)
        try:
            yield
        finally:
            self._calling.pop()
            self._set_calling(len(self._calling), self._inside)

    def _run_inside(self, task: int) -> int:
        """Run a task that a function asked for which a step calls; not that of another thread, which waits its turn."""
        if threading.current_thread() is not self._thread:
            return 0
        outer = self._return_to(task)
        answer, error = SERVE_NEXT, 0
        if (handle := self._current()) in self._calling:
            name = self._programs[handle].driver.executable.name
            again = RunError(f"{name} is called by Python that it calls", fix="take the inner call out")
            answer, error = FAIL, self._error(again)
        while (state := self._serve_inside(task, answer, error)) != FINISHED:
            answer, error = self._attend(state)
        self._return_to(outer)
        return 1

    def _error(self, error: BaseException) -> int:
        """A native error with the words of a Python one."""
        code = INVALID_ARGUMENT if isinstance(error, InputError) else INTERNAL
        text = str(error).encode()
        return int(self._make_error(code, text, len(text)))

    def _end(self) -> None:
        """All steps that were asked for are done before the process ends, and no step is under way then."""
        self._close()
        self._thread.join()
