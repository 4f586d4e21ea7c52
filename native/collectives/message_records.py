"""What the message executor works on; see `shardc.native.collectives.messages`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from shardc.native.collectives.heads import Head, Stamp
from shardc.native.collectives.helper_queue import HelperQueue
from shardc.native.collectives.ragged import RaggedRows
from shardc.native.collectives.status import Status
from shardc.native.collectives.work import Cell, ReduceElements
from shardc.native.lowlevel.kinds import Count, Pointer, address, i32, i64, u8
from shardc.native.lowlevel.records import Record, Span
from shardc.native.threads.meeting import Meeting
from shardc.native.threads.pool_records import Piece

__all__ = [
    "HEADS", "MEETING_BYTES", "Call", "Channel", "CopyBytes", "Entries", "Entry", "Flag", "Head", "Import", "Imports",
    "IncomingRows", "MeetingLine", "MessageOp", "PartRecord", "PostMessage", "Stamp", "State", "StepRecord",
    "TableRecord", "Word",
]  # fmt: skip

#: The newest headers that a process shows on a channel, a power of two.
HEADS = 64

#: ``MPI_Isend`` and ``MPI_Irecv``: memory, bytes, type, rank, tag, communicator, request.
PostMessage = Callable[[address, i32, i64, i32, i32, i64, address], i32]
#: `shardc.native.collectives.work`'s copy: to, from, bytes, whether past the caches.
CopyBytes = Callable[[address, address, i64, i64], None]


class MessageOp:
    """`StepRecord.op`. Of `ARRIVE` and `AWAIT` ``nbytes`` is the meeting: 0 at the beginning, 1 at the end."""

    END, BEGIN, HEADER, SEND, RECEIVE, WAIT, CHECK, REDUCE, COPY, ZERO, ARRIVE, AWAIT = range(12)
    PUBLISH, IMPORT, BRING_BACK = range(12, 15)
    CHECK_ROWS, COPY_ROWS, SEND_ROWS, RECEIVE_ROWS = range(15, 19)


class Flag(Record):
    """An answer of MPI's."""

    value: i32
    spare: i32


class StepRecord(Record):
    """``peer`` is a rank of the call's communicator; ``kind`` tells messages of a call apart; ``table`` is the address
    of a `TableRecord`, of `Entries`, of `Imports`, of an `IncomingRows` or of a `PartRecord`."""

    op: i64
    peer: i64
    kind: i64
    cell: Cell
    nbytes: i64
    table: address
    spare: i64


class TableRecord(Record):
    """``cells`` are the ``sources`` and then the ``targets``, ``pointers`` as many words to work in; ``elements`` of
    ``item`` bytes each. One of ``reduce`` and ``copy`` is there."""

    reduce: ReduceElements
    copy: CopyBytes
    sources: i64
    targets: i64
    elements: i64
    item: i64
    cells: Span[Cell]
    pointers: Span[address]


class IncomingRows(Record):
    """What comes to one device of a ragged exchange from ``members``: their starts, sizes, targets and data, sender by
    sender, then received sizes, output and result. ``cells`` say where these lie (null: far away), ``pointers`` are as
    many words to work in. ``arrived`` are the bytes of rows that have come in all exchanges."""

    rows: RaggedRows
    members: i64
    cells: Span[Cell]
    pointers: Span[address]
    arrived: i64


class Word(Record):
    """A number in a table."""

    value: i64


class PartRecord(Record):
    """A part of an update: bytes from ``low`` on of rows, of which a word at ``begin`` tells the first and one at
    ``size`` the number, among ``rows`` of ``row_bytes``."""

    begin: Cell
    size: Cell
    rows: i64
    row_bytes: i64
    low: i64


class Entry(Record):
    """An operand (``operand``: 1) or result of this process that others of its node use: its ``cell``, a stand-in of
    ``nbytes`` in the heap (``staging``) for when it lies elsewhere, and the word where the others read its offset."""

    cell: Cell
    nbytes: i64
    staging: address
    published: Span[i64]
    effective: address
    real: address
    operand: i64


class Entries(Record):
    """The entries of a process."""

    copy: CopyBytes
    count: i64
    entries: Span[Entry]


class Import(Record):
    """``out[0]`` becomes the address of an entry: ``heap``, as mapped here, and what its word says."""

    word: Span[i64]
    heap: i64
    out: Span[i64]


class Imports(Record):
    """The entries of all processes that meet."""

    count: i64
    imports: Span[Import]


class Channel(Record):
    """A communicator, and the address of the number of exchanges that have begun on it, of all programs: whichever they
    run, the n-th exchanges of two processes meet.

    ``members`` processes of this node meet; ``heads`` are the last `HEADS` headers of each, by position. ``number`` is
    for the control table."""

    communicator: i64
    counter: Span[i64]
    heads: Span[Span[Head]]
    members: i64
    position: i64
    number: i64


class MeetingLine(Record):
    """A meeting on a cache line of its own, and the next one, which is fetched with it."""

    meeting: Meeting
    spare: Annotated[Span[u8], Count(120)]


#: Bytes of the two meetings of a collective.
MEETING_BYTES = 256


class Call(Record):
    """A collective: its ``steps``, which is next (``cursor``), how many requests are ``posted`` (to ``peers``), the
    number of its exchange, since when it waits (ns of the monotonic clock, 0: it does not); the ``meetings`` of this
    node's processes at its beginning and its end, and in which of their ``rounds`` it is. Where a thread helps
    (``helped``), ``over`` is a meeting that counts how often it has done what was ``given``, with ``result``. ``stamp``
    is the `State`'s when it began."""

    steps: Span[StepRecord]
    cursor: i64
    posted: i64
    sequence: i64
    requests: address
    statuses: address
    peers: Span[i64]
    channel: Pointer[Channel]
    index: i64
    signature: i64
    since: i64
    meetings: Span[MeetingLine]
    rounds: i64
    helped: i64
    over: Meeting
    result: i64
    given: i64
    stamp: Stamp


class State(Record):
    """What native code knows of a program.

    Functions of MPI and of the pool, sizes and values of MPI's handles, `Call` records by index; what went wrong: MPI's
    ``code``, or the header (``seen``) of ``peer`` (a rank, or -1 - a place among those who meet in the node); the heap;
    where this thread says what it does; and for how many nanoseconds it watches (``watch``) a meeting before it sleeps,
    if the missing are fewer than the ``cores``.

    ``helper`` is the state of the thread that helps: calls are handed to it in ``queue``. ``stamp`` is what headers say
    of the step.
    """

    isend: PostMessage
    irecv: PostMessage
    testall: Callable[[i32, address, Flag, address], i32]
    parallel: Callable[[Piece, address, i64, i64], None]
    byte: i64
    request_bytes: i64
    spin: i64
    calls: Span[Pointer[Call]]
    code: i64
    peer: i64
    seen: Head
    heap: address
    heap_bytes: i64
    row: Pointer[Status] | None
    program: i64
    watch: i64
    cores: i64
    helper: Pointer[State]
    queue: HelperQueue
    stamp: Stamp
