"""A performer in Python: each collective is a call back into the interpreter."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence

from shardc.collectives.memory import RowMemory
from shardc.collectives.transport import Prepared
from shardc.hlo.errors import RunError
from shardc.native.drive import DONE_PHASE, PERFORM_TYPE
from shardc.native.pool import Row

__all__ = ["CallbackPerformer"]


class CallbackPerformer:
    """Calls ``perform(prepared, memories)`` for a whole collective or at its start; its done is nothing then.

    What ``perform`` raises, `failure` returns.
    """

    state = 0

    def __init__(
        self,
        prepared: Sequence[Prepared],
        rows: ctypes.Array[Row],
        perform: Callable[[Prepared, Mapping[int, RowMemory]], None],
    ) -> None:
        self._prepared = {p.call.index: p for p in prepared}
        self._memories = {int(row.device): RowMemory(row) for row in rows}
        self._perform = perform
        self._error: BaseException | None = None
        self._native = PERFORM_TYPE(self._called)
        self.function = ctypes.cast(self._native, ctypes.c_void_p).value or 0

    def _called(self, state: int, index: int, phase: int, deadline: int) -> int:
        if phase == DONE_PHASE:
            return 0
        try:
            self._perform(self._prepared[index], self._memories)
        except BaseException as error:  # nothing may leave a function that native code called
            self._error = error
            return -1
        return 0

    def tick(self) -> None:
        """Never called: `_called` does not answer that it waits."""

    def failure(self, code: int, index: int) -> BaseException:
        error, self._error = self._error, None
        return error or RunError(f"collective {index} failed with {code}")

    def close(self) -> None:
        self._memories = {}
