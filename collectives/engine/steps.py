"""The steps of one process in one collective, a list that native code goes through.

Places are named by device and operand, not by address: one list serves every step of the program. A `WaitStep` ends
when all messages posted so far have arrived and left; everything else happens at once, in order. See
`shardc.collectives.engine.plan_messages` for who makes the lists and `shardc.native.collectives.messages` for who goes
through them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = [
    "HEADER_BYTES",
    "ArriveStep",
    "AwaitArrivalStep",
    "BeginStep",
    "BringBackStep",
    "CheckHeaderStep",
    "CheckRowsStep",
    "CopyBytesStep",
    "CopyRowsStep",
    "HeaderStep",
    "ImportStep",
    "MessageStep",
    "PublishStep",
    "ReceiveRowsStep",
    "ReceiveStep",
    "ReduceStep",
    "RowPart",
    "RowTables",
    "SendRowsStep",
    "SendStep",
    "StepPlace",
    "WaitStep",
    "ZeroStep",
]

#: A header says which collective a message belongs to; what follows it in a message stays aligned.
HEADER_BYTES = 64


@dataclass(frozen=True, slots=True)
class StepPlace:
    """A byte in memory: ``space`` is ``operand`` or ``result`` (number ``index`` of ``device``), or ``scratch``."""

    space: str
    device: int
    index: int
    offset: int

    def at(self, nbytes: int) -> StepPlace:
        """The place ``nbytes`` further."""
        return replace(self, offset=self.offset + nbytes)


@dataclass(frozen=True, slots=True)
class BeginStep:
    """Take the next number of the channel."""


@dataclass(frozen=True, slots=True)
class HeaderStep:
    """Write the header of this exchange."""

    place: StepPlace


@dataclass(frozen=True, slots=True)
class SendStep:
    """Post a message to ``process``; ``kind`` tells messages of one exchange apart."""

    process: int
    place: StepPlace
    nbytes: int
    kind: int


@dataclass(frozen=True, slots=True)
class ReceiveStep:
    """Post the place for a message of at most ``nbytes`` bytes."""

    process: int
    place: StepPlace
    nbytes: int
    kind: int


@dataclass(frozen=True, slots=True)
class WaitStep:
    """Go on when all posted messages are done; ``nbytes`` move meanwhile."""

    nbytes: int


@dataclass(frozen=True, slots=True)
class CheckHeaderStep:
    """Compare a header that ``process`` sent with our own."""

    process: int
    place: StepPlace


@dataclass(frozen=True, slots=True)
class ReduceStep:
    """Combine ``count`` elements of operand ``index``'s type by the fixed tree and write them to all targets."""

    index: int
    sources: tuple[StepPlace, ...]
    targets: tuple[StepPlace, ...]
    count: int


@dataclass(frozen=True, slots=True)
class CopyBytesStep:
    """Copy bytes to all targets."""

    source: StepPlace
    targets: tuple[StepPlace, ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
class ZeroStep:
    """Write zeros."""

    target: StepPlace
    nbytes: int


@dataclass(frozen=True, slots=True)
class RowTables:
    """The updates of a ragged exchange that come to ``receiver``: by position of the sender its sizes and targets, and
    its starts (None: it is on another node); and the sizes that the receiver was told."""

    receiver: int
    senders: tuple[int, ...]
    starts: tuple[StepPlace | None, ...]
    sizes: tuple[StepPlace, ...]
    targets: tuple[StepPlace, ...]
    received: StepPlace


@dataclass(frozen=True, slots=True)
class CheckRowsStep:
    """Go on only if all rows that come fit."""

    tables: RowTables


@dataclass(frozen=True, slots=True)
class CopyRowsStep:
    """The result becomes the output, with the rows of those senders whose ``data`` can be addressed."""

    tables: RowTables
    data: tuple[StepPlace | None, ...]
    output: StepPlace
    result: StepPlace


@dataclass(frozen=True, slots=True)
class RowPart:
    """Bytes ``low`` to ``low + nbytes``, at most, of an update: rows of which the words ``begin`` and ``size`` tell the
    first one and the number, among ``rows`` at ``place``."""

    place: StepPlace
    begin: StepPlace
    size: StepPlace
    rows: int
    low: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class SendRowsStep:
    """Post a message of rows, if there are any."""

    process: int
    part: RowPart
    kind: int


@dataclass(frozen=True, slots=True)
class ReceiveRowsStep:
    """Post the place for one."""

    process: int
    part: RowPart
    kind: int


@dataclass(frozen=True, slots=True)
class PublishStep:
    """Show the processes of this node where our operands and results lie."""


@dataclass(frozen=True, slots=True)
class ArriveStep:
    """Tell the processes of this node that we are at the beginning of the collective, or at its end (``last``)."""

    last: bool


@dataclass(frozen=True, slots=True)
class AwaitArrivalStep:
    """Go on when all processes of this node have arrived there."""

    last: bool


@dataclass(frozen=True, slots=True)
class ImportStep:
    """Look where the operands and results of this node's processes lie."""


@dataclass(frozen=True, slots=True)
class BringBackStep:
    """Bring results that others wrote elsewhere to their place."""


MessageStep = (
    BeginStep
    | HeaderStep
    | SendStep
    | ReceiveStep
    | WaitStep
    | CheckHeaderStep
    | ReduceStep
    | CopyBytesStep
    | ZeroStep
    | CheckRowsStep
    | CopyRowsStep
    | SendRowsStep
    | ReceiveRowsStep
    | PublishStep
    | ArriveStep
    | AwaitArrivalStep
    | ImportStep
    | BringBackStep
)
