"""The IR of `shardc.native.messages`."""

from __future__ import annotations

__all__ = ["MESSAGES"]

_RECORDS = """
%step = type { i64, i64, i64, ptr, i64, i64, ptr, i64 }
%table = type { ptr, i64, i64, i64, i64, ptr, ptr, i64 }
%channel = type { i64, i64, ptr, i64, i64, i64 }
%call = type { ptr, i64, i64, i64, ptr, ptr, ptr, i64, i64, i64, ptr, i64 }
%state = type { ptr, ptr, ptr, ptr, i64, i64, i64, ptr, i64, i64, i64, i64, i64, i64, i64, ptr, i64, i64, i64 }
%entry = type { ptr, i64, i64, ptr, ptr, ptr, ptr, i64 }
%import = type { ptr, i64, ptr }

declare i32 @nanosleep(ptr, ptr)
declare i32 @sched_yield()
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i64 @shardc_now()
declare i1 @shardc_wait_sharing(ptr, i32, i64, i64, i32)
declare void @shardc_arrive(ptr, i32)
"""

_HELPERS = """
; Between two polls: let others run, or sleep, the longer the longer it has taken already.
define internal void @pause_polling(i64 %waited, i64 %busy) {
entry:
  %time = alloca [2 x i64], align 16
  %early = icmp slt i64 %waited, %busy
  br i1 %early, label %yield, label %sleep
yield:
  call i32 @sched_yield()
  ret void
sleep:
  %part = sdiv i64 %waited, 50
  %long = icmp sgt i64 %part, 1000000
  %nanoseconds = select i1 %long, i64 1000000, i64 %part
  store i64 0, ptr %time, align 8
  %rest.p = getelementptr i64, ptr %time, i64 1
  store i64 %nanoseconds, ptr %rest.p, align 8
  call i32 @nanosleep(ptr %time, ptr null)
  ret void
}

define internal ptr @place(ptr %base, i64 %offset) {
  %pointer = load ptr, ptr %base, align 8
  %place = getelementptr i8, ptr %pointer, i64 %offset
  ret ptr %place
}

; Where a table's cells are now.
define internal void @resolve(ptr %table) {
entry:
  %sources.p = getelementptr %table, ptr %table, i64 0, i32 1
  %sources = load i64, ptr %sources.p, align 8
  %targets.p = getelementptr %table, ptr %table, i64 0, i32 2
  %targets = load i64, ptr %targets.p, align 8
  %cells.p = getelementptr %table, ptr %table, i64 0, i32 5
  %cells = load ptr, ptr %cells.p, align 8
  %pointers.p = getelementptr %table, ptr %table, i64 0, i32 6
  %pointers = load ptr, ptr %pointers.p, align 8
  %all = add i64 %sources, %targets
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k.next, %look ]
  %left = icmp ult i64 %k, %all
  br i1 %left, label %look, label %done
look:
  %base.p = getelementptr { ptr, i64 }, ptr %cells, i64 %k, i32 0
  %base = load ptr, ptr %base.p, align 8
  %offset.p = getelementptr { ptr, i64 }, ptr %cells, i64 %k, i32 1
  %offset = load i64, ptr %offset.p, align 8
  %here = call ptr @place(ptr %base, i64 %offset)
  %entry.p = getelementptr ptr, ptr %pointers, i64 %k
  store ptr %here, ptr %entry.p, align 8
  %k.next = add i64 %k, 1
  br label %next
done:
  ret void
}

; Pieces ``begin`` to ``end`` of a table's elements.
define internal void @reduce_piece(ptr %table, i64 %begin, i64 %end) {
entry:
  %function.p = getelementptr %table, ptr %table, i64 0, i32 0
  %function = load ptr, ptr %function.p, align 8
  %sources.p = getelementptr %table, ptr %table, i64 0, i32 1
  %sources = load i64, ptr %sources.p, align 8
  %targets.p = getelementptr %table, ptr %table, i64 0, i32 2
  %targets = load i64, ptr %targets.p, align 8
  %elements.p = getelementptr %table, ptr %table, i64 0, i32 3
  %elements = load i64, ptr %elements.p, align 8
  %item.p = getelementptr %table, ptr %table, i64 0, i32 4
  %item = load i64, ptr %item.p, align 8
  %pointers.p = getelementptr %table, ptr %table, i64 0, i32 6
  %pointers = load ptr, ptr %pointers.p, align 8
  %results = getelementptr ptr, ptr %pointers, i64 %sources
  %piece = udiv i64 $PIECE$, %item
  %lo = mul i64 %begin, %piece
  %beyond = mul i64 %end, %piece
  %over = icmp ugt i64 %beyond, %elements
  %hi = select i1 %over, i64 %elements, i64 %beyond
  %count = sub i64 %hi, %lo
  %offset = mul i64 %lo, %item
  call void %function(ptr %pointers, i64 %sources, i64 %offset, ptr %results, i64 %targets, i64 %offset, i64 %count,
                      i1 false)
  ret void
}

; The same for a copy: to every target that is neither the source nor the target before.
define internal void @copy_piece(ptr %table, i64 %begin, i64 %end) {
entry:
  %function.p = getelementptr %table, ptr %table, i64 0, i32 0
  %function = load ptr, ptr %function.p, align 8
  %targets.p = getelementptr %table, ptr %table, i64 0, i32 2
  %targets = load i64, ptr %targets.p, align 8
  %elements.p = getelementptr %table, ptr %table, i64 0, i32 3
  %elements = load i64, ptr %elements.p, align 8
  %pointers.p = getelementptr %table, ptr %table, i64 0, i32 6
  %pointers = load ptr, ptr %pointers.p, align 8
  %source = load ptr, ptr %pointers, align 8
  %lo = mul i64 %begin, $PIECE$
  %beyond = mul i64 %end, $PIECE$
  %over = icmp ugt i64 %beyond, %elements
  %hi = select i1 %over, i64 %elements, i64 %beyond
  %count = sub i64 %hi, %lo
  %from = getelementptr i8, ptr %source, i64 %lo
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %following, %more ]
  %left = icmp ult i64 %k, %targets
  br i1 %left, label %look, label %done
look:
  %following = add i64 %k, 1
  %target.p = getelementptr ptr, ptr %pointers, i64 %following
  %target = load ptr, ptr %target.p, align 8
  %before.p = getelementptr ptr, ptr %pointers, i64 %k
  %before = load ptr, ptr %before.p, align 8
  %itself = icmp eq ptr %target, %source
  %again = icmp eq ptr %target, %before
  %known = or i1 %itself, %again
  br i1 %known, label %more, label %copy
copy:
  %to = getelementptr i8, ptr %target, i64 %lo
  call void %function(ptr %to, ptr %from, i64 %count, i64 0)
  br label %more
more:
  br label %next
done:
  ret void
}

; All pieces, on the pool's threads where it pays.
define internal void @all_pieces(ptr %state, ptr %table, ptr %piece) {
entry:
  call void @resolve(ptr %table)
  %sources.p = getelementptr %table, ptr %table, i64 0, i32 1
  %sources = load i64, ptr %sources.p, align 8
  %targets.p = getelementptr %table, ptr %table, i64 0, i32 2
  %targets = load i64, ptr %targets.p, align 8
  %elements.p = getelementptr %table, ptr %table, i64 0, i32 3
  %elements = load i64, ptr %elements.p, align 8
  %item.p = getelementptr %table, ptr %table, i64 0, i32 4
  %item = load i64, ptr %item.p, align 8
  %nbytes = mul i64 %elements, %item
  %each = udiv i64 $PIECE$, %item
  %more = sub i64 %each, 1
  %up = add i64 %elements, %more
  %pieces = udiv i64 %up, %each
  %parts = add i64 %sources, %targets
  %moved = mul i64 %nbytes, %parts
  %large = icmp ugt i64 %moved, $PARALLEL$
  br i1 %large, label %shared, label %alone
alone:
  call void %piece(ptr %table, i64 0, i64 %pieces)
  ret void
shared:
  %parallel.p = getelementptr %state, ptr %state, i64 0, i32 3
  %parallel = load ptr, ptr %parallel.p, align 8
  %nanoseconds = udiv i64 %moved, 10
  call void %parallel(ptr %piece, ptr %table, i64 %pieces, i64 %nanoseconds)
  ret void
}

; Post a message; MPI's error code.
define internal i32 @post(ptr %state, ptr %call, ptr %step, ptr %function) {
  %peer.p = getelementptr %step, ptr %step, i64 0, i32 1
  %peer.wide = load i64, ptr %peer.p, align 8
  %peer = trunc i64 %peer.wide to i32
  %kind.p = getelementptr %step, ptr %step, i64 0, i32 2
  %kind = load i64, ptr %kind.p, align 8
  %base.p = getelementptr %step, ptr %step, i64 0, i32 3
  %base = load ptr, ptr %base.p, align 8
  %offset.p = getelementptr %step, ptr %step, i64 0, i32 4
  %offset = load i64, ptr %offset.p, align 8
  %place = call ptr @place(ptr %base, i64 %offset)
  %nbytes.p = getelementptr %step, ptr %step, i64 0, i32 5
  %nbytes.wide = load i64, ptr %nbytes.p, align 8
  %nbytes = trunc i64 %nbytes.wide to i32
  %sequence.p = getelementptr %call, ptr %call, i64 0, i32 3
  %sequence = load i64, ptr %sequence.p, align 8
  %turn = and i64 %sequence, 4095
  %shifted = shl i64 %turn, 2
  %tag.wide = or i64 %shifted, %kind
  %tag = trunc i64 %tag.wide to i32
  %byte.p = getelementptr %state, ptr %state, i64 0, i32 4
  %byte = load i64, ptr %byte.p, align 8
  %channel.p = getelementptr %call, ptr %call, i64 0, i32 6
  %channel = load ptr, ptr %channel.p, align 8
  %communicator = load i64, ptr %channel, align 8
  %posted.p = getelementptr %call, ptr %call, i64 0, i32 2
  %posted = load i64, ptr %posted.p, align 8
  %size.p = getelementptr %state, ptr %state, i64 0, i32 5
  %size = load i64, ptr %size.p, align 8
  %requests.p = getelementptr %call, ptr %call, i64 0, i32 4
  %requests = load ptr, ptr %requests.p, align 8
  %at = mul i64 %posted, %size
  %request = getelementptr i8, ptr %requests, i64 %at
  %more = add i64 %posted, 1
  store i64 %more, ptr %posted.p, align 8
  %code = call i32 %function(ptr %place, i32 %nbytes, i64 %byte, i32 %peer, i32 %tag, i64 %communicator, ptr %request)
  ret i32 %code
}

; Poll until all posted messages are done (0), there is an error (its code, below 0: ours), or the time is up (-1).
define internal i32 @wait_messages(ptr %state, ptr %call, i64 %nbytes, i64 %entered, i64 %deadline) {
entry:
  %flag = alloca i32, align 4
  %testall.p = getelementptr %state, ptr %state, i64 0, i32 2
  %testall = load ptr, ptr %testall.p, align 8
  %spin.p = getelementptr %state, ptr %state, i64 0, i32 6
  %spin = load i64, ptr %spin.p, align 8
  %posted.p = getelementptr %call, ptr %call, i64 0, i32 2
  %posted.wide = load i64, ptr %posted.p, align 8
  %posted = trunc i64 %posted.wide to i32
  %requests.p = getelementptr %call, ptr %call, i64 0, i32 4
  %requests = load ptr, ptr %requests.p, align 8
  %statuses.p = getelementptr %call, ptr %call, i64 0, i32 5
  %statuses = load ptr, ptr %statuses.p, align 8
  %since.p = getelementptr %call, ptr %call, i64 0, i32 9
  %moving = mul i64 %nbytes, 20
  %busy = add i64 %spin, %moving
  br label %poll
poll:
  store i32 0, ptr %flag, align 4
  %code = call i32 %testall(i32 %posted, ptr %requests, ptr %flag, ptr %statuses)
  %wrong = icmp ne i32 %code, 0
  br i1 %wrong, label %failed, label %look
look:
  %done = load i32, ptr %flag, align 4
  %complete = icmp ne i32 %done, 0
  br i1 %complete, label %over, label %time
time:
  %now = call i64 @shardc_now()
  %since = load i64, ptr %since.p, align 8
  %inside = sub i64 %now, %entered
  %late = icmp sgt i64 %inside, %deadline
  br i1 %late, label %leave, label %pause
pause:
  %waited = sub i64 %now, %since
  call void @pause_polling(i64 %waited, i64 %busy)
  br label %poll
over:
  store i64 0, ptr %posted.p, align 8
  ret i32 0
leave:
  ret i32 -1
failed:
  ret i32 %code
}

define internal void @write_head(ptr %call, ptr %head) {
  %sequence.p = getelementptr %call, ptr %call, i64 0, i32 3
  %sequence = load i64, ptr %sequence.p, align 8
  store atomic i64 0, ptr %head release, align 8
  %own.p = getelementptr %call, ptr %call, i64 0, i32 7
  %own = load <2 x i64>, ptr %own.p, align 8
  %own.at = getelementptr i64, ptr %head, i64 1
  store <2 x i64> %own, ptr %own.at, align 8
  store atomic i64 %sequence, ptr %head release, align 8
  ret void
}

; Is a header that arrived ours?
define internal i1 @is_ours(ptr %state, ptr %call, ptr %step, ptr %header) {
entry:
  %sequence.p = getelementptr %call, ptr %call, i64 0, i32 3
  %sequence = load i64, ptr %sequence.p, align 8
  %index.p = getelementptr %call, ptr %call, i64 0, i32 7
  %index = load i64, ptr %index.p, align 8
  %signature.p = getelementptr %call, ptr %call, i64 0, i32 8
  %signature = load i64, ptr %signature.p, align 8
  %a = load i64, ptr %header, align 8
  %b.p = getelementptr i64, ptr %header, i64 1
  %b = load i64, ptr %b.p, align 8
  %c.p = getelementptr i64, ptr %header, i64 2
  %c = load i64, ptr %c.p, align 8
  %same.a = icmp eq i64 %a, %sequence
  %same.b = icmp eq i64 %b, %index
  %same.c = icmp eq i64 %c, %signature
  %same.ab = and i1 %same.a, %same.b
  %same = and i1 %same.ab, %same.c
  br i1 %same, label %yes, label %no
yes:
  ret i1 true
no:
  %peer.p = getelementptr %step, ptr %step, i64 0, i32 1
  %peer = load i64, ptr %peer.p, align 8
  %who = getelementptr %state, ptr %state, i64 0, i32 9
  store i64 %peer, ptr %who, align 8
  %seen.a = getelementptr %state, ptr %state, i64 0, i32 10
  store i64 %a, ptr %seen.a, align 8
  %seen.b = getelementptr %state, ptr %state, i64 0, i32 11
  store i64 %b, ptr %seen.b, align 8
  %seen.c = getelementptr %state, ptr %state, i64 0, i32 12
  store i64 %c, ptr %seen.c, align 8
  ret i1 false
}
"""

_NODES = """
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

# A process's row in the control table, from its field ``state`` on: see `shardc.native.messages.SHOWN`.
_SHOWING = """
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

_PERFORM = """
define i32 @shardc_messages(ptr %state, i32 %index, i32 %phase, i64 %deadline) {
entry:
  %entered = call i64 @shardc_now()
  %calls.p = getelementptr %state, ptr %state, i64 0, i32 7
  %calls = load ptr, ptr %calls.p, align 8
  %call.p = getelementptr ptr, ptr %calls, i32 %index
  %call = load ptr, ptr %call.p, align 8
  %steps = load ptr, ptr %call, align 8
  %cursor.p = getelementptr %call, ptr %call, i64 0, i32 1
  %channel.p = getelementptr %call, ptr %call, i64 0, i32 6
  %channel = load ptr, ptr %channel.p, align 8
  %sequence.p = getelementptr %call, ptr %call, i64 0, i32 3
  %first = load i64, ptr %cursor.p, align 8
  %goes.on = icmp ne i64 %first, 0
  %starts = icmp eq i32 %phase, 1
  %twice = and i1 %starts, %goes.on
  br i1 %twice, label %started.twice, label %look
look:
  ; The done of a collective that was over when it started.
  %ends = icmp eq i32 %phase, 2
  %idle = xor i1 %goes.on, true
  %nothing = and i1 %ends, %idle
  br i1 %nothing, label %started, label %shown
shown:
  call void @show_place(ptr %state, ptr %call, i32 %phase)
  br label %loop
loop:
  %k = load i64, ptr %cursor.p, align 8
  %step = getelementptr %step, ptr %steps, i64 %k
  %op = load i64, ptr %step, align 8
  %base.p = getelementptr %step, ptr %step, i64 0, i32 3
  %base = load ptr, ptr %base.p, align 8
  %offset.p = getelementptr %step, ptr %step, i64 0, i32 4
  %offset = load i64, ptr %offset.p, align 8
  %nbytes.p = getelementptr %step, ptr %step, i64 0, i32 5
  %nbytes = load i64, ptr %nbytes.p, align 8
  %table.p = getelementptr %step, ptr %step, i64 0, i32 6
  %table = load ptr, ptr %table.p, align 8
  %is.last = icmp ne i64 %nbytes, 0
  switch i64 %op, label %end [
    i64 1, label %begin
    i64 2, label %header
    i64 3, label %send
    i64 4, label %receive
    i64 5, label %wait
    i64 6, label %check
    i64 7, label %reduce
    i64 8, label %copy
    i64 9, label %zero
    i64 10, label %arrive
    i64 11, label %await
    i64 12, label %publish
    i64 13, label %import
    i64 14, label %bring.back
  ]
next:
  %k.now = load i64, ptr %cursor.p, align 8
  %k.next = add i64 %k.now, 1
  store i64 %k.next, ptr %cursor.p, align 8
  br label %loop
begin:
  %count.p = getelementptr %channel, ptr %channel, i64 0, i32 1
  %count = load i64, ptr %count.p, align 8
  %count.next = add i64 %count, 1
  store i64 %count.next, ptr %count.p, align 8
  store i64 %count.next, ptr %sequence.p, align 8
  %rounds.p = getelementptr %call, ptr %call, i64 0, i32 11
  %rounds = load i64, ptr %rounds.p, align 8
  %rounds.next = add i64 %rounds, 1
  store i64 %rounds.next, ptr %rounds.p, align 8
  call void @show_place(ptr %state, ptr %call, i32 %phase)
  br label %next
header:
  %header.at = call ptr @place(ptr %base, i64 %offset)
  call void @write_head(ptr %call, ptr %header.at)
  br label %next
send:
  %isend.p = getelementptr %state, ptr %state, i64 0, i32 0
  %isend = load ptr, ptr %isend.p, align 8
  %sent = call i32 @post(ptr %state, ptr %call, ptr %step, ptr %isend)
  %sent.well = icmp eq i32 %sent, 0
  br i1 %sent.well, label %next, label %failed
receive:
  %irecv.p = getelementptr %state, ptr %state, i64 0, i32 1
  %irecv = load ptr, ptr %irecv.p, align 8
  %taken = call i32 @post(ptr %state, ptr %call, ptr %step, ptr %irecv)
  %taken.well = icmp eq i32 %taken, 0
  br i1 %taken.well, label %next, label %failed
wait:
  br i1 %starts, label %started, label %waiting
waiting:
  call void @show_once(ptr %state, ptr %call, i64 $EXPECTING$, i64 %entered)
  %arrived = call i32 @wait_messages(ptr %state, ptr %call, i64 %nbytes, i64 %entered, i64 %deadline)
  switch i32 %arrived, label %failed [
    i32 0, label %met
    i32 -1, label %later
  ]
check:
  %seen = call ptr @place(ptr %base, i64 %offset)
  %ours = call i1 @is_ours(ptr %state, ptr %call, ptr %step, ptr %seen)
  br i1 %ours, label %next, label %diverged
reduce:
  call void @all_pieces(ptr %state, ptr %table, ptr @reduce_piece)
  br label %next
copy:
  call void @all_pieces(ptr %state, ptr %table, ptr @copy_piece)
  br label %next
zero:
  %zeros = call ptr @place(ptr %base, i64 %offset)
  call void @llvm.memset.p0.i64(ptr %zeros, i8 0, i64 %nbytes, i1 false)
  br label %next
arrive:
  %arriving.at = call ptr @meeting_of(ptr %call, i64 %nbytes)
  %arriving.goal = call i32 @goal_of(ptr %call)
  call void @shardc_arrive(ptr %arriving.at, i32 %arriving.goal)
  br label %next
await:
  br i1 %starts, label %started, label %meeting
meeting:
  %met.state = select i1 %is.last, i64 $FINISHING$, i64 $ARRIVING$
  call void @show_once(ptr %state, ptr %call, i64 %met.state, i64 %entered)
  %met.at = call ptr @meeting_of(ptr %call, i64 %nbytes)
  %met.goal = call i32 @goal_of(ptr %call)
  %spin.p = getelementptr %state, ptr %state, i64 0, i32 17
  %spin = load i64, ptr %spin.p, align 8
  %until = add i64 %entered, %deadline
  %cores.p = getelementptr %state, ptr %state, i64 0, i32 18
  %cores.wide = load i64, ptr %cores.p, align 8
  %cores = trunc i64 %cores.wide to i32
  %there = call i1 @shardc_wait_sharing(ptr %met.at, i32 %met.goal, i64 %spin, i64 %until, i32 %cores)
  br i1 %there, label %met, label %missing
missing:
  %differs = call i1 @any_differs(ptr %state, ptr %call, ptr %step)
  br i1 %differs, label %diverged, label %later
met:
  call void @show_over(ptr %state, ptr %call)
  br label %next
publish:
  call void @publish(ptr %state, ptr %call, ptr %table)
  br label %next
import:
  call void @import(ptr %table)
  br label %next
bring.back:
  call void @bring_back(ptr %table)
  br label %next
end:
  store i64 0, ptr %cursor.p, align 8
  call void @show_completed(ptr %state)
  %ended = call i64 @shardc_now()
  call void @show(ptr %state, i64 $COMPUTING$, i64 %ended)
  ret i32 0
started:
  call void @show(ptr %state, i64 $COMPUTING$, i64 %entered)
  ret i32 0
later:
  ret i32 1
failed:
  %code = phi i32 [ %sent, %send ], [ %taken, %receive ], [ %arrived, %waiting ]
  %code.wide = sext i32 %code to i64
  %code.p = getelementptr %state, ptr %state, i64 0, i32 8
  store i64 %code.wide, ptr %code.p, align 8
  ret i32 -1
diverged:
  ret i32 -2
started.twice:
  ret i32 -3
}
"""

MESSAGES = _RECORDS + _HELPERS + _NODES + _SHOWING + _PERFORM
