"""How processes of a node that also exchange messages find each other's memory; see
`shardc.native.collectives.messages`."""

from __future__ import annotations

from shardc.native.collectives.message_records import HEADS, Call, Entries, Entry, Head, Imports, State
from shardc.native.collectives.work import place_of_cell
from shardc.native.lowlevel.builtins import as_i32, as_u64, inline
from shardc.native.lowlevel.kinds import address, i32, i64
from shardc.native.lowlevel.records import ACQUIRE, RELAXED, RELEASE

__all__ = ["any_differs", "bring_back", "goal_of", "import_entries", "is_ours", "publish", "write_head"]


@inline
def goal_of(call: Call) -> i32:
    """What a meeting of a call counts when all have come in this round."""
    return as_i32(call.rounds * call.channel.members)


@inline
def _head_of(call: Call, position: i64) -> Head:
    """The head that the process at a position of the node shows for a call's exchange."""
    return call.channel.heads[position][call.sequence & HEADS - 1]


def write_head(call: Call, head: Head) -> None:
    """Say what is exchanged; who reads it meanwhile finds no number, or all of it."""
    head.sequence.store(0, RELEASE)
    head.index = call.index
    head.signature = call.signature
    head.stamp = call.stamp
    head.sequence.store(call.sequence, RELEASE)


def is_ours(state: State, call: Call, peer: i64, head: Head) -> bool:
    """Is a header that ``peer`` sent or shows ours? Otherwise it is noted."""
    mine = call.stamp
    other = head.stamp
    if (
        head.sequence.load(RELAXED) == call.sequence
        and head.index == call.index
        and head.signature == call.signature
        and mine.program == other.program
        and mine.step == other.step
        and mine.values == other.values
        and mine.weighted == other.weighted
    ):
        return True
    state.peer = peer
    state.seen = head
    return False


def any_differs(state: State, call: Call) -> bool:
    """Has a process of the node another collective as this exchange?"""
    for k in range(call.channel.members):
        head = _head_of(call, k)
        if head.sequence.load(ACQUIRE) == call.sequence and not is_ours(state, call, -1 - k, head):
            return True
    return False


def publish(state: State, call: Call, table: Entries) -> None:
    """Show the head of this exchange, and where in the heap operands and results lie; what lies elsewhere gets a
    stand-in."""
    write_head(call, _head_of(call, call.channel.position))
    for k in range(table.count):
        entry: Entry = table.entries[k]
        real = place_of_cell(entry.cell)
        shown = real
        if not _is_inside(state, real, entry.nbytes):
            shown = entry.staging
            if entry.operand != 0:
                table.copy(shown, real, entry.nbytes, 0)
        entry.published[0] = shown - state.heap
        entry.effective = shown
        entry.real = real


@inline
def _is_inside(state: State, at: address, nbytes: i64) -> bool:
    """Do bytes lie in this process's heap?"""
    offset = as_u64(at - state.heap)
    size = as_u64(state.heap_bytes)
    return offset < size and as_u64(offset + as_u64(nbytes)) <= size


def bring_back(table: Entries) -> None:
    """Bring results that were written to a stand-in to their place."""
    for k in range(table.count):
        entry: Entry = table.entries[k]
        if entry.effective != entry.real and entry.operand == 0:
            table.copy(entry.real, entry.effective, entry.nbytes, 0)


def import_entries(table: Imports) -> None:
    """Turn what the processes of the node have shown into addresses."""
    for k in range(table.count):
        found = table.imports[k]
        found.out[0] = found.heap + found.word[0]
