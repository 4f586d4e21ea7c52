"""What the native executor of ranks of one node is put together from; see
`shardc.collectives.shared_memory.native_executor`.

Telling the others (`publish`), reading what they told (`collect`), the work and who does it (`work_together`), and
results outside of the heap (`unstage`).
"""

from __future__ import annotations

from shardc.collectives.shared_memory.records import SLOTS, CallRecord, MemberRecord, SlotRecord, StateRecord
from shardc.native.collectives.heads import heads_agree, write_head
from shardc.native.collectives.node_heap import is_in_heap
from shardc.native.collectives.work import RAGGED, WRONG_ROWS, check_rows, copy_memory_of, do_work, resolve
from shardc.native.lowlevel.builtins import as_i32, inline
from shardc.native.lowlevel.kinds import address, i32, i64
from shardc.native.lowlevel.records import ACQ_REL, RELAXED, Atomic, address_of
from shardc.native.threads.meeting import Meeting, arrive

__all__ = ["MISMATCH", "collect", "goal_of", "publish", "slot_of", "unstage", "work_together"]

#: The answer when another process is in another collective.
MISMATCH = -1


@inline
def slot_of(call: CallRecord) -> SlotRecord:
    return call.channel.slots[call.sequence & SLOTS - 1]


@inline
def goal_of(call: CallRecord, rounds: i64) -> i32:
    """What a meeting counts when all have come for the last time of this round of slots, ``rounds`` rounds later."""
    return as_i32(call.channel.members * (call.sequence // SLOTS + rounds))


@inline
def _record_of(call: CallRecord, member: i64) -> MemberRecord:
    channel = call.channel
    return MemberRecord.at(channel.records[member] + (call.sequence & SLOTS - 1) * channel.stride)


def publish(state: StateRecord, call: CallRecord) -> None:
    """Into my record goes what the others need."""
    resolve(call.cells, call.entries, call.own)
    record = _record_of(call, call.channel.position)
    write_head(record.head, call.sequence, call.index, call.signature, state.stamp)
    record.head.when = call.when
    record.claimed.store(0, RELAXED)
    if call.direct == 0:
        body = address_of(record.body)
        for k in range(call.operands):
            copy_memory_of(body + call.mail[k], call.own[k], call.sizes[k], 0)
        return
    for k in range(call.entries):
        shown = call.own[k]
        alone = call.channel.members == 1 or shown == 0
        if not alone and not is_in_heap(shown, call.sizes[k], state.heap, state.heap_bytes):
            shown = call.staging[k]
            if k < call.operands:
                copy_memory_of(shown, call.own[k], call.sizes[k], 0)
        record.body[k] = 0 if shown == 0 else shown - state.heap


def collect(state: StateRecord, call: CallRecord) -> i32:
    """Read the others' records; `MISMATCH` if one is of another collective."""
    call.latest = 0
    for member in range(call.channel.members):
        record = _record_of(call, member)
        call.member_records[member] = address_of(record)
        if not heads_agree(record.head, call.sequence, call.index, call.signature, state.stamp):
            state.found_member = member
            state.found = record.head
            return MISMATCH
        call.latest = max(call.latest, record.head.when)
        if call.direct != 0:
            heap = call.channel.heaps[member]
            row = call.imported.behind(member * call.width)
            for k in range(call.entries_of[member]):
                offset = record.body[k]
                row[k] = 0 if offset == 0 else heap + offset
    return 0


def work_together(state: StateRecord, call: CallRecord) -> i32:
    """Pieces of the work of all groups; of a small collective that of my groups. `WRONG_ROWS` where rows do not fit."""
    for k in range(call.share_count):
        share = call.shares[k]
        resolve(share.sources, share.count, share.operands)
        resolve(share.targets, share.count, share.results)
        if share.work.op == RAGGED:
            moved = check_rows(share.work, share.operands)
            if moved < 0:
                return WRONG_ROWS
            call.row_bytes += moved
        if call.direct == 0:
            do_work(share.work, share.operands, share.results, 0, 1)
    if call.checks != 0:
        # Before that nobody goes on and writes to what is still to be checked.
        arrive(slot_of(call).done, as_i32(call.base + call.pieces + call.checks))
    if call.direct != 0 and call.threads > 1:
        state.parallel(_do_pieces, address_of(call), call.threads, call.nanoseconds)
    elif call.direct != 0:
        _do_pieces(address_of(call), 0, 1)
    return 0


def _do_pieces(context: address, begin: i64, end: i64) -> None:
    """Do pieces of a direct collective's work while there are any, as the pool calls it.

    The pieces of all its groups are numbered, and every member has a range of them. Who takes the next one of a range
    says so in the member's record; a process begins with its own and goes on with those of who comes after it. One that
    comes late finds everything done by those who would have waited for it.
    """
    call = CallRecord.at(context)
    members = call.channel.members
    goal = as_i32(call.base + call.pieces + call.checks)
    for k in range(members):
        member = (call.channel.position + k) % members
        first = call.pieces * member // members
        behind = call.pieces * (member + 1) // members
        claimed = MemberRecord.at(call.member_records[member]).claimed
        _take_pieces(call, claimed, first, behind - first, slot_of(call).done, goal)


def _take_pieces(call: CallRecord, claimed: Atomic[i64], first: i64, count: i64, done: Meeting, goal: i32) -> None:
    """Pieces of one range."""
    while claimed.load(RELAXED) < count:
        taken = claimed.add(1, ACQ_REL)
        if taken >= count:
            return
        k = 0
        while first + taken - call.shares[k].first >= call.shares[k].pieces:
            k += 1
        share = call.shares[k]
        do_work(share.work, share.operands, share.results, first + taken - share.first, share.pieces)
        arrive(done, goal)


def unstage(state: StateRecord, call: CallRecord) -> None:
    """Results that lie outside of the heap get what was staged for them."""
    for k in range(call.operands, call.entries):
        at = call.own[k]
        if at != 0 and not is_in_heap(at, call.sizes[k], state.heap, state.heap_bytes):
            copy_memory_of(at, call.staging[k], call.sizes[k], 0)
