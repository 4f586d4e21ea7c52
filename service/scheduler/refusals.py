"""The errors with which the scheduler refuses an order: queue full, shutting down, program not uploaded."""

from __future__ import annotations

from collections.abc import Sequence

from shardc.hlo.errors import InputError, RunError
from shardc.hlo.units import count_text

__all__ = ["Closing", "MissingPrograms", "NoSuchJob", "QueueFull"]


class QueueFull(RunError):
    """As many orders wait as may; ``retry_after`` are the seconds after which it is worth asking again."""

    def __init__(self, waiting: int, retry_after: int) -> None:
        super().__init__(
            f"the service is busy: {count_text(waiting, 'order')} wait already", fix=f"try again in {retry_after} s"
        )
        self.retry_after = retry_after


class Closing(RunError):
    """The service takes no more orders."""

    def __init__(self) -> None:
        super().__init__("the service is shutting down", fix="try again when it is back")


class NoSuchJob(InputError):
    """No job has this name, or it was forgotten."""

    def __init__(self, job_id: str) -> None:
        super().__init__("no such job", where=job_id[:64], fix="jobs are forgotten a day after their end; submit again")


class MissingPrograms(InputError):
    """The order names programs (``missing``, SHA-256 in hexadecimal) that the store does not have."""

    def __init__(self, missing: Sequence[str]) -> None:
        named = ", ".join(missing)
        super().__init__(f"the service does not have the program {named}", fix="upload it, then submit again")
        self.missing = tuple(missing)
