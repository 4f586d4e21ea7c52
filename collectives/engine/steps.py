"""What one process does in one collective, as a list of small steps that native code goes through.

Places are named by device and operand, not by address: one list serves every step of the program. A `Wait` ends when
all messages posted so far have arrived and left; everything else happens at once, in order. See
`shardc.collectives.engine.plan_messages` for who makes the lists and `shardc.native.collectives.messages` for who
goes through them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = [
    "HEADER_BYTES",
    "Arrive",
    "Await",
    "Begin",
    "BringBack",
    "Check",
    "Copy",
    "Header",
    "Import",
    "Place",
    "Publish",
    "Receive",
    "Reduce",
    "Send",
    "Step",
    "Wait",
    "Zero",
]

#: A header says which collective a message belongs to; what follows it in a message stays aligned.
HEADER_BYTES = 64


@dataclass(frozen=True, slots=True)
class Place:
    """A byte in memory: ``space`` is ``operand`` or ``result`` (number ``index`` of ``device``), or ``scratch``."""

    space: str
    device: int
    index: int
    offset: int

    def at(self, nbytes: int) -> Place:
        """The place ``nbytes`` further."""
        return replace(self, offset=self.offset + nbytes)


@dataclass(frozen=True, slots=True)
class Begin:
    """Take the next number of the channel."""


@dataclass(frozen=True, slots=True)
class Header:
    """Write the header of this exchange."""

    place: Place


@dataclass(frozen=True, slots=True)
class Send:
    """Post a message to ``process``; ``kind`` tells messages of one exchange apart."""

    process: int
    place: Place
    nbytes: int
    kind: int


@dataclass(frozen=True, slots=True)
class Receive:
    """Post the place for a message of at most ``nbytes`` bytes."""

    process: int
    place: Place
    nbytes: int
    kind: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Go on when all posted messages are done; ``nbytes`` move meanwhile."""

    nbytes: int


@dataclass(frozen=True, slots=True)
class Check:
    """Compare a header that ``process`` sent with our own."""

    process: int
    place: Place


@dataclass(frozen=True, slots=True)
class Reduce:
    """Combine ``count`` elements of operand ``index``'s type by the fixed tree and write them to all targets."""

    index: int
    sources: tuple[Place, ...]
    targets: tuple[Place, ...]
    count: int


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy bytes to all targets."""

    source: Place
    targets: tuple[Place, ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
class Zero:
    """Write zeros."""

    target: Place
    nbytes: int


@dataclass(frozen=True, slots=True)
class Publish:
    """Show the processes of this node where our operands and results lie."""


@dataclass(frozen=True, slots=True)
class Arrive:
    """Tell the processes of this node that we are at the beginning of the collective, or at its end (``last``)."""

    last: bool


@dataclass(frozen=True, slots=True)
class Await:
    """Go on when all processes of this node have arrived there."""

    last: bool


@dataclass(frozen=True, slots=True)
class Import:
    """Look where the operands and results of this node's processes lie."""


@dataclass(frozen=True, slots=True)
class BringBack:
    """Bring results that others wrote elsewhere to their place."""


Step = (
    Begin
    | Header
    | Send
    | Receive
    | Wait
    | Check
    | Reduce
    | Copy
    | Zero
    | Publish
    | Arrive
    | Await
    | Import
    | BringBack
)
