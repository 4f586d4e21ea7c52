"""Orders that several hands carry out together: which pieces wait, and what came of the others."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shardc.hlo.errors import EnvironmentProblem, RunError
from shardc.launcher.executors.problems import to_problem
from shardc.service.scheduler.queue import Making
from shardc.service.workers.pieces import Found, Piece, Pieces

__all__ = ["WEATHER", "Shared"]

#: What may be otherwise another time: a worker was killed, at work or when it started.
WEATHER = (RunError, EnvironmentProblem)


@dataclass(eq=False)
class Shared:
    """The pieces of ``making``, whose text is ``order``; it must be over at ``until`` of `time.monotonic`.

    A piece whose worker fails is tried once more: it may have been the weather. For one thread at a time.
    """

    making: Making
    order: str
    until: float
    going: int = 0
    error: Exception | None = None
    progress: Mapping[str, Any] = field(default_factory=dict)
    _waiting: deque[Piece] = field(default_factory=deque)
    _found: dict[str, Found] = field(default_factory=dict)
    _failed: set[str] = field(default_factory=set)

    def want(self, wanted: Pieces) -> None:
        """All of these are to be done. Raises `RunError` for pieces of programs that are not the order's."""
        if not {piece.program for piece in wanted.pieces} <= set(self.making.programs):
            raise RunError("a worker's message is damaged: a piece of another order")
        self._waiting.extend(wanted.pieces)
        done = max(wanted.done, self.progress.get("done", 0))  # another worker may know less of earlier sweeps
        self.progress = {"stage": wanted.stage, "done": done, "of": max(wanted.of, done)}

    def take(self) -> Piece | None:
        """A piece that nobody has, for `put` or `fail`; None when there is none, or no use in it."""
        if self.error is not None or self.making.unwanted or not self._waiting:
            return None
        self.going += 1
        return self._waiting.popleft()

    def put(self, piece: Piece, found: Found) -> None:
        """A worker has ``found`` this, or will not find anything."""
        self.going -= 1
        self._found[piece.text] = found
        done = self.progress["done"] + 1
        self.progress = {**self.progress, "done": done, "of": max(self.progress["of"], done)}

    def fail(self, piece: Piece, error: Exception) -> None:
        """No worker has done it. What is no fault of the worker, the whole order fails with."""
        if isinstance(error, WEATHER) and piece.text not in self._failed:
            self.going -= 1
            self._failed.add(piece.text)
            self._waiting.append(piece)
        elif isinstance(error, RunError):
            self.put(piece, Found(problem=to_problem(error)))
        else:
            self.give_up(error)

    def give_up(self, error: Exception) -> None:
        """The order fails: a piece that somebody had is not done, others are not to be begun."""
        self.going -= 1
        self.error = self.error or error

    def found(self, wanted: Pieces) -> dict[str, Found]:
        """What came of pieces that are done, in their order."""
        return {piece.text: self._found[piece.text] for piece in wanted.pieces}
