"""How processes of a node that also exchange messages find each other's memory; see
`shardc.native.collectives.messages`."""

from __future__ import annotations

from shardc.native.collectives.heads import heads_agree, write_head
from shardc.native.collectives.message_records import HEADS, Call, Entries, Entry, Head, Imports, State
from shardc.native.collectives.node_heap import is_in_heap
from shardc.native.collectives.work import place_of_cell
from shardc.native.lowlevel.builtins import as_i32, inline
from shardc.native.lowlevel.kinds import i32, i64
from shardc.native.lowlevel.records import ACQUIRE

__all__ = ["any_differs", "bring_back", "goal_of", "import_entries", "is_ours", "publish", "write_own_head"]


@inline
def goal_of(call: Call) -> i32:
    """What a meeting of a call counts when all have come in this round."""
    return as_i32(call.rounds * call.channel.members)


@inline
def _head_of(call: Call, position: i64) -> Head:
    """The head that the process at a position of the node shows for a call's exchange."""
    return call.channel.heads[position][call.sequence & HEADS - 1]


def write_own_head(call: Call, head: Head) -> None:
    """Say what this process exchanges."""
    write_head(head, call.sequence, call.index, call.signature, call.stamp)


def is_ours(state: State, call: Call, peer: i64, head: Head) -> bool:
    """Whether a header that ``peer`` sent or shows belongs to this call. Otherwise it is recorded in ``state``."""
    if heads_agree(head, call.sequence, call.index, call.signature, call.stamp):
        return True
    state.peer = peer
    state.seen = head
    return False


def any_differs(state: State, call: Call) -> bool:
    """Whether a process of the node has another collective as this exchange."""
    for k in range(call.channel.members):
        head = _head_of(call, k)
        if head.sequence.load(ACQUIRE) == call.sequence and not is_ours(state, call, -1 - k, head):
            return True
    return False


def publish(state: State, call: Call, table: Entries) -> None:
    """Show the head of this exchange, and where in the heap operands and results lie; what lies elsewhere gets a
    stand-in."""
    write_own_head(call, _head_of(call, call.channel.position))
    for k in range(table.count):
        entry: Entry = table.entries[k]
        real = place_of_cell(entry.cell)
        shown = real
        if not is_in_heap(real, entry.nbytes, state.heap, state.heap_bytes):
            shown = entry.staging
            if entry.operand != 0:
                table.copy(shown, real, entry.nbytes, 0)
        entry.published[0] = shown - state.heap
        entry.effective = shown
        entry.real = real


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
