"""Stamps: what the ranks of a job must have in common in a step, carried by the header of every collective.

A stamp is the program's number, how many steps of it this process has begun, and two sums over the digests d(k) of its
plain arguments: of d(k), and of (k + 1) * d(k), modulo 2^64. Who meets another stamp knows what differs, and by the two
sums also which argument, if it is one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from shardc.hlo.errors import InputError, RunError, ShardcError

__all__ = ["SAME_CALLS", "SAME_VALUES", "Stamping", "StepStamp", "Told", "digest_of"]

#: What to do where ranks have come to different places.
SAME_CALLS = (
    "call the same programs in the same order on all ranks: look for a call that one of them skips, repeats, or "
    "makes with another dtype, shape, number or static value"
)

SAME_VALUES = (
    "a plain argument is the global value: give all ranks the same value, and use one random seed on every rank"
)

_WORD = (1 << 64) - 1


def digest_of(data: bytes) -> int:
    """A word for the bytes of an argument: those themselves where there is room."""
    if len(data) > 8:
        data = hashlib.blake2b(data, digest_size=8).digest()
    return int.from_bytes(data, "little")


@dataclass(frozen=True, slots=True)
class StepStamp:
    """One process's in one step; words may be signed."""

    step: int
    values: int
    weighted: int


@runtime_checkable
class Stamping(Protocol):
    """A collective executor among processes: ``program`` is the program's number in the control table, ``told`` how
    messages call it, and `stamp` what the next step's collectives say of it."""

    program: int
    told: Told

    def stamp(self, step: int, values: int, weighted: int) -> None: ...


@dataclass
class Told:
    """How messages call the program, its arguments by number, and (program, index) of a collective of any program."""

    program: str = "the program"
    titles: Sequence[Callable[[], str]] = ()
    place: Callable[[int, int], str] = lambda program, index: f"collective {index} of another program"

    def difference(
        self, mine: StepStamp, other: StepStamp, ranks: tuple[int, int], where: str | None = None, when: str = "in"
    ) -> ShardcError | None:
        """What is wrong when ``ranks`` (mine, the other) met with these in a collective, which is ``where``."""
        if mine.step != other.step:
            return RunError(
                f"rank {ranks[1]} is in step {other.step} of {self.program}, but rank {ranks[0]} is in step "
                f"{mine.step}",
                where=where,
                fix="call the program the same number of times on all ranks: look for a call that one rank skips or "
                "repeats, or for an error that it catches",
            )
        found = self._which((mine.values - other.values) & _WORD, (mine.weighted - other.weighted) & _WORD)
        if not found:
            return None
        return InputError(
            f"the ranks were given different values: rank {ranks[1]} has another value than rank {ranks[0]} "
            f"{when} step "
            f"{mine.step} of {self.program}",
            where=found[0] if len(found) == 1 else f"some of {', '.join(found)}",
            fix=f"{SAME_VALUES}; or look for a step that one of them skipped",
        )

    def _which(self, values: int, weighted: int) -> list[str]:
        """The argument whose digests differ; all that it could be where several do."""
        if not values and not weighted:
            return []
        one = [k for k in range(len(self.titles)) if (k + 1) * values & _WORD == weighted]
        return [self.titles[k]() for k in (one if len(one) == 1 else range(len(self.titles)))]
