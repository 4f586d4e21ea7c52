"""Orders that several worker threads carry out together: which pieces wait, and the results of the others."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shardc.hlo.errors import EnvironmentProblem, RunError
from shardc.launcher.executors.problems import to_problem
from shardc.service.scheduler.queue import TaskInFlight
from shardc.service.workers.pieces import OrderPiece, PieceResult, WantedPieces

__all__ = ["TRANSIENT_ERRORS", "SharedOrder"]

#: Errors that a second try may not meet: a worker was killed, at work or when it started.
TRANSIENT_ERRORS = (RunError, EnvironmentProblem)


@dataclass(eq=False)
class SharedOrder:
    """The pieces of ``task``, whose order's text is ``order``; it must be over at ``until`` of `time.monotonic`.

    A piece whose worker fails with one of `TRANSIENT_ERRORS` is tried once more. For one thread at a time.
    """

    task: TaskInFlight
    order: str
    until: float
    in_progress: int = 0
    error: Exception | None = None
    progress: Mapping[str, Any] = field(default_factory=dict)
    _waiting: deque[OrderPiece] = field(default_factory=deque)
    _found: dict[str, PieceResult] = field(default_factory=dict)
    _failed: set[str] = field(default_factory=set)

    def want(self, wanted: WantedPieces) -> None:
        """Add the ``wanted`` pieces. Raises `RunError` for pieces of programs that are not the order's."""
        if not {piece.program for piece in wanted.pieces} <= set(self.task.programs):
            raise RunError("a worker's message is damaged: it contains a piece of another order")
        self._waiting.extend(wanted.pieces)
        done = max(wanted.done, self.progress.get("done", 0))  # another worker may know less of earlier sweeps
        self.progress = {"stage": wanted.stage, "done": done, "of": max(wanted.of, done)}

    def take(self) -> OrderPiece | None:
        """Take a piece that nobody works on; `put` or `fail` must follow. None: there is none, or the order ended."""
        if self.error is not None or self.task.unwanted or not self._waiting:
            return None
        self.in_progress += 1
        return self._waiting.popleft()

    def put(self, piece: OrderPiece, found: PieceResult) -> None:
        """Record a piece's result, which may be a problem."""
        self.in_progress -= 1
        self._found[piece.text] = found
        done = self.progress["done"] + 1
        self.progress = {**self.progress, "done": done, "of": max(self.progress["of"], done)}

    def fail(self, piece: OrderPiece, error: Exception) -> None:
        """A worker failed with ``error``. Errors of the input fail the whole order."""
        if isinstance(error, TRANSIENT_ERRORS) and piece.text not in self._failed:
            self.in_progress -= 1
            self._failed.add(piece.text)
            self._waiting.append(piece)
        elif isinstance(error, RunError):
            self.put(piece, PieceResult(problem=to_problem(error)))
        else:
            self.give_up(error)

    def give_up(self, error: Exception) -> None:
        """Fail the order: a piece in progress has no result, and no other is begun."""
        self.in_progress -= 1
        self.error = self.error or error

    def results(self, wanted: WantedPieces) -> dict[str, PieceResult]:
        """The results of pieces that are done, in their order."""
        return {piece.text: self._found[piece.text] for piece in wanted.pieces}
