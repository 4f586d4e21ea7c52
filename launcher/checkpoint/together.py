"""Runs an action on all ranks. If one rank fails, all of them raise, and none waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from shardc.collectives.call.transport import Transport
from shardc.hlo.errors import InputError, RunError, ShardcError

__all__ = ["Together"]

T = TypeVar("T")


#: Disks are waited for: so many times longer than usual, and one more time for so many bytes.
_FACTOR, _BYTES = 5.0, 1 << 30


class Together:
    """The ranks of a job on ``transport``, each of which reads or writes up to ``nbytes`` bytes meanwhile."""

    def __init__(self, transport: Transport, nbytes: int = 0) -> None:
        self._transport = transport
        self._timeout_factor = _FACTOR + nbytes / _BYTES
        self.rank, self.ranks = transport.process_index, transport.process_count

    def do(self, what: str, action: Callable[[], T]) -> list[T]:
        """Everybody's result of ``action``, by rank. Where it fails its own error is raised, on the other ranks a
        `RunError` that names the first rank that failed. All ranks call it together."""
        failure: Exception | None = None
        result: Any = None
        try:
            result = action()
        except Exception as e:  # whatever it is, the others must hear of it
            failure = _ours(e, what)
        answers = self._transport.exchange_objects(
            (_text(failure), result), doing=what, timeout_factor=self._timeout_factor
        )
        if failure is not None:
            raise failure
        failed = next((rank for rank, (text, _) in enumerate(answers) if text is not None), None)
        if failed is not None:
            raise RunError(f"rank {failed} failed {what}: {answers[failed][0]}")
        return [value for _, value in answers]

    def on_first(self, what: str, action: Callable[[], T]) -> T | None:
        """The same on rank 0 alone; returns its result to all."""
        return self.do(what, lambda: action() if self.rank == 0 else None)[0]


def _ours(error: Exception, what: str) -> Exception:
    if isinstance(error, OSError) and not isinstance(error, ShardcError):
        return InputError(
            f"{what} failed: {error.strerror or error}",
            where=str(error.filename or "") or None,
            fix="check the permissions of this place and the free space of its disk, or name another one",
        )
    return error


def _text(failure: Exception | None) -> str | None:
    if failure is None:
        return None
    return str(failure) if isinstance(failure, ShardcError) else f"{type(failure).__name__}: {failure}"
