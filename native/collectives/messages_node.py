"""The IR of `shardc.native.collectives.messages`, third part: how the processes of a node meet and find each other's
memory, and
what they show."""

from __future__ import annotations

__all__ = ["NODE", "SHOWING"]

NODE = """
; One of the two meetings (``which``: 0 or 1) of a call.
define internal ptr @meeting_of(ptr %call, i64 %which) {
  %meetings.p = getelementptr %call, ptr %call, i64 0, i32 10
  %meetings = load ptr, ptr %meetings.p, align 8
  %at = mul i64 %which, 128
  %meeting = getelementptr i8, ptr %meetings, i64 %at
  ret ptr %meeting
}

; Its count when all have come in this round.
define internal i32 @goal_of(ptr %call) {
  %channel.p = getelementptr %call, ptr %call, i64 0, i32 6
  %channel = load ptr, ptr %channel.p, align 8
  %members.p = getelementptr %channel, ptr %channel, i64 0, i32 3
  %members = load i64, ptr %members.p, align 8
  %rounds.p = getelementptr %call, ptr %call, i64 0, i32 11
  %rounds = load i64, ptr %rounds.p, align 8
  %goal.wide = mul i64 %rounds, %members
  %goal = trunc i64 %goal.wide to i32
  ret i32 %goal
}

; The head that the process at a position of the node shows for a call's exchange.
define internal ptr @head_of(ptr %call, i64 %position) {
  %channel.p = getelementptr %call, ptr %call, i64 0, i32 6
  %channel = load ptr, ptr %channel.p, align 8
  %heads.p = getelementptr %channel, ptr %channel, i64 0, i32 2
  %heads = load ptr, ptr %heads.p, align 8
  %row.p = getelementptr ptr, ptr %heads, i64 %position
  %row = load ptr, ptr %row.p, align 8
  %sequence.p = getelementptr %call, ptr %call, i64 0, i32 3
  %sequence = load i64, ptr %sequence.p, align 8
  %slot = and i64 %sequence, $MASK$
  %at = mul i64 %slot, 64
  %head = getelementptr i8, ptr %row, i64 %at
  ret ptr %head
}

; Show the head of this exchange, and where in the heap operands and results lie; what lies elsewhere gets a stand-in.
define internal void @publish(ptr %state, ptr %call, ptr %table) {
entry:
  %channel.p = getelementptr %call, ptr %call, i64 0, i32 6
  %channel = load ptr, ptr %channel.p, align 8
  %position.p = getelementptr %channel, ptr %channel, i64 0, i32 4
  %position = load i64, ptr %position.p, align 8
  %head = call ptr @head_of(ptr %call, i64 %position)
  call void @write_head(ptr %call, ptr %head)
  %heap.p = getelementptr %state, ptr %state, i64 0, i32 13
  %heap = load i64, ptr %heap.p, align 8
  %size.p = getelementptr %state, ptr %state, i64 0, i32 14
  %size = load i64, ptr %size.p, align 8
  %copy.p = getelementptr %table, ptr %table, i64 0, i32 0
  %copy = load ptr, ptr %copy.p, align 8
  %count.p = getelementptr %table, ptr %table, i64 0, i32 1
  %count = load i64, ptr %count.p, align 8
  %entries.p = getelementptr %table, ptr %table, i64 0, i32 5
  %entries = load ptr, ptr %entries.p, align 8
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %following, %show ]
  %left = icmp ult i64 %k, %count
  br i1 %left, label %look, label %done
look:
  %following = add i64 %k, 1
  %e = getelementptr %entry, ptr %entries, i64 %k
  %base = load ptr, ptr %e, align 8
  %offset.p = getelementptr %entry, ptr %e, i64 0, i32 1
  %offset = load i64, ptr %offset.p, align 8
  %real = call ptr @place(ptr %base, i64 %offset)
  %nbytes.p = getelementptr %entry, ptr %e, i64 0, i32 2
  %nbytes = load i64, ptr %nbytes.p, align 8
  %real.i = ptrtoint ptr %real to i64
  %within = sub i64 %real.i, %heap
  %end = add i64 %within, %nbytes
  %begins = icmp ult i64 %within, %size
  %ends = icmp ule i64 %end, %size
  %inside = and i1 %begins, %ends
  br i1 %inside, label %show, label %outside
outside:
  %staging.p = getelementptr %entry, ptr %e, i64 0, i32 3
  %staging = load ptr, ptr %staging.p, align 8
  %operand.p = getelementptr %entry, ptr %e, i64 0, i32 7
  %operand = load i64, ptr %operand.p, align 8
  %reads = icmp ne i64 %operand, 0
  br i1 %reads, label %stage, label %staged
stage:
  call void %copy(ptr %staging, ptr %real, i64 %nbytes, i64 0)
  br label %staged
staged:
  br label %show
show:
  %effective = phi ptr [ %real, %look ], [ %staging, %staged ]
  %effective.i = ptrtoint ptr %effective to i64
  %shown = sub i64 %effective.i, %heap
  %word.p = getelementptr %entry, ptr %e, i64 0, i32 4
  %word = load ptr, ptr %word.p, align 8
  store i64 %shown, ptr %word, align 8
  %effective.p = getelementptr %entry, ptr %e, i64 0, i32 5
  store ptr %effective, ptr %effective.p, align 8
  %real.p = getelementptr %entry, ptr %e, i64 0, i32 6
  store ptr %real, ptr %real.p, align 8
  br label %next
done:
  ret void
}

; Bring results that were written to a stand-in to their place.
define internal void @bring_back(ptr %table) {
entry:
  %copy.p = getelementptr %table, ptr %table, i64 0, i32 0
  %copy = load ptr, ptr %copy.p, align 8
  %count.p = getelementptr %table, ptr %table, i64 0, i32 1
  %count = load i64, ptr %count.p, align 8
  %entries.p = getelementptr %table, ptr %table, i64 0, i32 5
  %entries = load ptr, ptr %entries.p, align 8
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %following, %more ]
  %left = icmp ult i64 %k, %count
  br i1 %left, label %look, label %done
look:
  %following = add i64 %k, 1
  %e = getelementptr %entry, ptr %entries, i64 %k
  %effective.p = getelementptr %entry, ptr %e, i64 0, i32 5
  %effective = load ptr, ptr %effective.p, align 8
  %real.p = getelementptr %entry, ptr %e, i64 0, i32 6
  %real = load ptr, ptr %real.p, align 8
  %operand.p = getelementptr %entry, ptr %e, i64 0, i32 7
  %operand = load i64, ptr %operand.p, align 8
  %elsewhere = icmp ne ptr %effective, %real
  %result = icmp eq i64 %operand, 0
  %needed = and i1 %elsewhere, %result
  br i1 %needed, label %back, label %more
back:
  %nbytes.p = getelementptr %entry, ptr %e, i64 0, i32 2
  %nbytes = load i64, ptr %nbytes.p, align 8
  call void %copy(ptr %real, ptr %effective, i64 %nbytes, i64 0)
  br label %more
more:
  br label %next
done:
  ret void
}

; Has a process of the node another collective as this exchange?
define internal i1 @any_differs(ptr %state, ptr %call, ptr %step) {
entry:
  %channel.p = getelementptr %call, ptr %call, i64 0, i32 6
  %channel = load ptr, ptr %channel.p, align 8
  %members.p = getelementptr %channel, ptr %channel, i64 0, i32 3
  %members = load i64, ptr %members.p, align 8
  %sequence.p = getelementptr %call, ptr %call, i64 0, i32 3
  %sequence = load i64, ptr %sequence.p, align 8
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %following, %look ], [ %following, %compare ]
  %left = icmp ult i64 %k, %members
  br i1 %left, label %look, label %no
look:
  %following = add i64 %k, 1
  %head = call ptr @head_of(ptr %call, i64 %k)
  %shown = load atomic i64, ptr %head acquire, align 8
  %there = icmp eq i64 %shown, %sequence
  br i1 %there, label %compare, label %next
compare:
  %peer = sub i64 -1, %k
  %peer.p = getelementptr %step, ptr %step, i64 0, i32 1
  store i64 %peer, ptr %peer.p, align 8
  %ours = call i1 @is_ours(ptr %state, ptr %call, ptr %step, ptr %head)
  br i1 %ours, label %next, label %yes
yes:
  ret i1 true
no:
  ret i1 false
}

; Turn what the processes of the node have shown into addresses.
define internal void @import(ptr %table) {
entry:
  %count.p = getelementptr %table, ptr %table, i64 0, i32 1
  %count = load i64, ptr %count.p, align 8
  %imports.p = getelementptr %table, ptr %table, i64 0, i32 5
  %imports = load ptr, ptr %imports.p, align 8
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %following, %look ]
  %left = icmp ult i64 %k, %count
  br i1 %left, label %look, label %done
look:
  %following = add i64 %k, 1
  %one = getelementptr %import, ptr %imports, i64 %k
  %word = load ptr, ptr %one, align 8
  %shown = load i64, ptr %word, align 8
  %heap.p = getelementptr %import, ptr %one, i64 0, i32 1
  %heap = load i64, ptr %heap.p, align 8
  %address = add i64 %heap, %shown
  %out.p = getelementptr %import, ptr %one, i64 0, i32 2
  %out = load ptr, ptr %out.p, align 8
  store i64 %address, ptr %out, align 8
  br label %next
done:
  ret void
}
"""

# A process's row in the control table, from its field ``state`` on: see `shardc.native.collectives.messages.SHOWN`.
SHOWING = """
; Say where this process is; ``what`` is a state of the control table.
define internal void @show(ptr %state, i64 %what, i64 %now) {
entry:
  %row.p = getelementptr %state, ptr %state, i64 0, i32 15
  %row = load ptr, ptr %row.p, align 8
  %none = icmp eq ptr %row, null
  br i1 %none, label %done, label %write
write:
  %since.p = getelementptr i8, ptr %row, i64 $SINCE$
  store i64 %now, ptr %since.p, align 8
  store i64 %what, ptr %row, align 8
  br label %done
done:
  ret void
}

; A wait begins, or goes on.
define internal void @show_once(ptr %state, ptr %call, i64 %what, i64 %entered) {
entry:
  %since.p = getelementptr %call, ptr %call, i64 0, i32 9
  %since = load i64, ptr %since.p, align 8
  %fresh = icmp eq i64 %since, 0
  br i1 %fresh, label %first, label %again
first:
  %now = call i64 @shardc_now()
  store i64 %now, ptr %since.p, align 8
  call void @show(ptr %state, i64 %what, i64 %now)
  ret void
again:
  ret void
}

; A wait is over.
define internal void @show_over(ptr %state, ptr %call) {
  %since.p = getelementptr %call, ptr %call, i64 0, i32 9
  %since = load i64, ptr %since.p, align 8
  store i64 0, ptr %since.p, align 8
  call void @show(ptr %state, i64 $WORKING$, i64 %since)
  ret void
}

define internal void @show_place(ptr %state, ptr %call, i32 %phase) {
entry:
  %row.p = getelementptr %state, ptr %state, i64 0, i32 15
  %row = load ptr, ptr %row.p, align 8
  %none = icmp eq ptr %row, null
  br i1 %none, label %done, label %write
write:
  %program.p = getelementptr %state, ptr %state, i64 0, i32 16
  %program = load i64, ptr %program.p, align 8
  %program.at = getelementptr i8, ptr %row, i64 $PROGRAM$
  store i64 %program, ptr %program.at, align 8
  %channel.p = getelementptr %call, ptr %call, i64 0, i32 6
  %channel = load ptr, ptr %channel.p, align 8
  %number.p = getelementptr %channel, ptr %channel, i64 0, i32 5
  %number = load i64, ptr %number.p, align 8
  %number.at = getelementptr i8, ptr %row, i64 $CHANNEL$
  store i64 %number, ptr %number.at, align 8
  %sequence.p = getelementptr %call, ptr %call, i64 0, i32 3
  %sequence = load i64, ptr %sequence.p, align 8
  %sequence.at = getelementptr i8, ptr %row, i64 $SEQUENCE$
  store i64 %sequence, ptr %sequence.at, align 8
  %index.p = getelementptr %call, ptr %call, i64 0, i32 7
  %index = load i64, ptr %index.p, align 8
  %index.at = getelementptr i8, ptr %row, i64 $INDEX$
  store i64 %index, ptr %index.at, align 8
  %phase.wide = sext i32 %phase to i64
  %phase.at = getelementptr i8, ptr %row, i64 $PHASE$
  store i64 %phase.wide, ptr %phase.at, align 8
  br label %done
done:
  ret void
}

define internal void @show_completed(ptr %state) {
entry:
  %row.p = getelementptr %state, ptr %state, i64 0, i32 15
  %row = load ptr, ptr %row.p, align 8
  %none = icmp eq ptr %row, null
  br i1 %none, label %done, label %write
write:
  %at = getelementptr i8, ptr %row, i64 $COMPLETED$
  %count = load i64, ptr %at, align 8
  %more = add i64 %count, 1
  store i64 %more, ptr %at, align 8
  br label %done
done:
  ret void
}
"""
