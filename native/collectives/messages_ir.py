"""The IR of `shardc.native.collectives.messages`, first part: messages, and the steps one after the other."""

from __future__ import annotations

from shardc.native.collectives.messages_helper import HELPER
from shardc.native.collectives.messages_node import NODE, SHOWING
from shardc.native.collectives.messages_tables import TABLES

__all__ = ["MESSAGES"]

_RECORDS = """
%step = type { i64, i64, i64, ptr, i64, i64, ptr, i64 }
%table = type { ptr, i64, i64, i64, i64, ptr, ptr, i64 }
%channel = type { i64, ptr, ptr, i64, i64, i64 }
%call = type { ptr, i64, i64, i64, ptr, ptr, ptr, i64, i64, i64, ptr, i64, i64, i64, i64, i64, [4 x i64] }
%state = type { ptr, ptr, ptr, ptr, i64, i64, i64, ptr, i64, i64, i64, i64, i64, i64, i64, ptr, i64, i64, i64,
                ptr, ptr, i64, i64, i64, i64, i64, [4 x i64], [4 x i64] }
%entry = type { ptr, i64, i64, ptr, ptr, ptr, ptr, i64 }
%import = type { ptr, i64, ptr }

declare i32 @nanosleep(ptr, ptr)
declare i32 @sched_yield()
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i64 @shardc_now()
declare i1 @shardc_wait_sharing(ptr, i32, i64, i64, i32)
declare void @shardc_arrive(ptr, i32)
"""

_POSTING = """
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
  %stamp.p = getelementptr %call, ptr %call, i64 0, i32 16
  %stamp = load <4 x i64>, ptr %stamp.p, align 8
  %stamp.at = getelementptr i64, ptr %head, i64 3
  store <4 x i64> %stamp, ptr %stamp.at, align 8
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
  %same.abc = and i1 %same.ab, %same.c
  %stamp.p = getelementptr %call, ptr %call, i64 0, i32 16
  %stamp = load <4 x i64>, ptr %stamp.p, align 8
  %d.p = getelementptr i64, ptr %header, i64 3
  %d = load <4 x i64>, ptr %d.p, align 8
  %unlike = icmp ne <4 x i64> %d, %stamp
  %unlike.bits = bitcast <4 x i1> %unlike to i4
  %same.d = icmp eq i4 %unlike.bits, 0
  %same = and i1 %same.abc, %same.d
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
  %seen.d = getelementptr %state, ptr %state, i64 0, i32 27
  store <4 x i64> %d, ptr %seen.d, align 8
  ret i1 false
}
"""

_PERFORM = """
define internal i32 @run(ptr %state, ptr %call, i32 %phase, i64 %entered, i64 %deadline) {
entry:
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
  %counter.p = getelementptr %channel, ptr %channel, i64 0, i32 1
  %count.p = load ptr, ptr %counter.p, align 8
  %count = load i64, ptr %count.p, align 8
  %count.next = add i64 %count, 1
  store i64 %count.next, ptr %count.p, align 8
  store i64 %count.next, ptr %sequence.p, align 8
  %rounds.p = getelementptr %call, ptr %call, i64 0, i32 11
  %rounds = load i64, ptr %rounds.p, align 8
  %rounds.next = add i64 %rounds, 1
  store i64 %rounds.next, ptr %rounds.p, align 8
  %stamp.own = getelementptr %state, ptr %state, i64 0, i32 26
  %stamp = load <4 x i64>, ptr %stamp.own, align 8
  %stamp.p = getelementptr %call, ptr %call, i64 0, i32 16
  store <4 x i64> %stamp, ptr %stamp.p, align 8
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
  %here = and i1 %there, %is.last
  br i1 %here, label %met, label %compared
compared:
  %differs = call i1 @any_differs(ptr %state, ptr %call, ptr %step)
  br i1 %differs, label %diverged, label %alike
alike:
  br i1 %there, label %met, label %later
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

MESSAGES = _RECORDS + TABLES + _POSTING + NODE + SHOWING + _PERFORM + HELPER
