"""What the processes of a job exchange between steps, and from which line of the user's: for those who wait."""

from __future__ import annotations

from dataclasses import dataclass

from shardc.collectives.call.stamp import SAME_CALLS
from shardc.hlo.errors import RunError

__all__ = ["GATHER", "WATCHED", "RankExchange"]

GATHER = "a gather of values"

#: Seconds that a wait lasts longer where a watchdog knows better who is missing.
WATCHED = 3.0


@dataclass(frozen=True, slots=True)
class RankExchange:
    """``what`` a rank waits in, and ``where`` in the user's code it is called (empty: not known).

    >>> RankExchange("making mean", "train.py:4").text
    'making mean at train.py:4'
    """

    what: str
    where: str = ""

    @staticmethod
    def here(what: str) -> RankExchange:
        """One that the caller is about to begin."""
        from shardc.hlo.numpy.recorder import user_line

        file, line = user_line()
        return RankExchange(what, f"{file}:{line}" if file else "")

    @property
    def text(self) -> str:
        return f"{self.what} at {self.where}" if self.where else self.what

    def late(self, rank: int, seconds: float, whom: str = "other ranks") -> RunError:
        """Nobody came for ``seconds``."""
        return RunError(
            f"rank {rank} waited {seconds:g} s in {self.what} for {whom}",
            where=self.where or None,
            fix="another rank stopped, died or is much slower; set SHARDC_TIMEOUT=seconds to wait longer, 0: no limit",
        )

    def other(self, rank: int, theirs: RankExchange, their_rank: int) -> RunError:
        """``their_rank`` is in another exchange than ``rank``, which is in this one."""
        return RunError(
            f"rank {their_rank} is in {theirs.text}, but rank {rank} is in {self.text}",
            where=self.where or None,
            fix=SAME_CALLS,
        )

    def failed(self, rank: int, error: Exception) -> RunError:
        """MPI answered with an error."""
        return RunError(
            f"MPI failed on rank {rank} in {self.what}: {error}",
            where=self.where or None,
            fix="another rank died, or took a different branch and sent something else",
        )
