"""An exchange between the processes of a job, outside of a step: its name, and the line of the user's code."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.collectives.call.stamp import SAME_CALLS
from shardc.hlo.errors import RunError

__all__ = ["GATHER", "WATCHED", "RankExchange"]

GATHER = "a gather of values"

#: A wait lasts so many seconds longer where a watchdog can name the missing rank.
WATCHED = 3.0


@dataclass(frozen=True, slots=True)
class RankExchange:
    """``what`` is the name of the exchange, and ``where`` the line of the user's code that calls it (empty: not known).

    >>> RankExchange("the compilation of mean", "train.py:4").text
    'the compilation of mean at train.py:4'
    """

    what: str
    where: str = ""

    @staticmethod
    def here(what: str) -> RankExchange:
        """The exchange that the caller is about to begin."""
        from shardc.hlo.numpy.recorder import user_line

        file, line = user_line()
        return RankExchange(what, f"{file}:{line}" if file else "")

    @property
    def text(self) -> str:
        return f"{self.what} at {self.where}" if self.where else self.what

    def late(self, rank: int, seconds: float, whom: str = "other ranks") -> RunError:
        """The error after ``seconds`` without the other ranks."""
        return RunError(
            f"rank {rank} waited {seconds:g} s in {self.what} for {whom}",
            where=self.where or None,
            fix="another rank stopped, died or is much slower; set SHARDC_TIMEOUT=seconds to wait longer, 0: no limit",
        )

    def other(self, rank: int, theirs: RankExchange, their_rank: int) -> RunError:
        """The error where ``their_rank`` is in another exchange than ``rank``, which is in this one."""
        return RunError(
            f"rank {their_rank} is in {theirs.text}, but rank {rank} is in {self.text}",
            where=self.where or None,
            fix=SAME_CALLS,
        )

    def failed(self, rank: int, error: Exception) -> RunError:
        """The error for one of MPI's own."""
        return RunError(
            f"MPI failed on rank {rank} in {self.what}: {error}",
            where=self.where or None,
            fix="another rank died, or took a different branch and sent something else",
        )
