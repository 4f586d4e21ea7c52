"""The worker: the thread that runs steps in their order, and does for them what takes Python."""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from collections.abc import Callable

from shardc.frontends.pjrt.loaded_program import LoadedProgram
from shardc.frontends.pjrt.native.errors import INTERNAL, INVALID_ARGUMENT
from shardc.frontends.pjrt.native.queue import CONTINUE, FAIL, OVER, RELEASE_PROGRAM, SERVE_NEXT, STOPPED
from shardc.frontends.pjrt.native.tasks import ASKS
from shardc.hlo.errors import InputError

__all__ = ["StepWorker"]


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
        self._thread = threading.Thread(target=self._work, name="shardc-steps", daemon=True)
        self._thread.start()
        atexit.register(self._end)
        os.register_at_fork(after_in_child=self._fork)

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
        driver = self._programs[handle].driver
        try:
            if state == ASKS:
                driver.begin()
                return CONTINUE, 0
            return OVER if driver.attend(state) else CONTINUE, 0
        except BaseException as error:
            driver.abandon()
            return FAIL, self._error(error)

    def _error(self, error: BaseException) -> int:
        """A native error with the words of a Python one."""
        code = INVALID_ARGUMENT if isinstance(error, InputError) else INTERNAL
        text = str(error).encode()
        return int(self._make_error(code, text, len(text)))

    def _end(self) -> None:
        """All steps that were asked for are done before the process ends, and no step is under way then."""
        self._close()
        self._thread.join()
