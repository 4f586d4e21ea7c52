"""The drive loop's IR behind `shardc.native.drive.rows_ir`; see `shardc.native.drive.drive_loop`."""

from __future__ import annotations

__all__ = ["DRIVE"]

# Offsets in %job are those of `shardc.native.drive.drive_loop.Job`, in %record of `Record`, in %event of `Event`.
DRIVE = """
%record = type { i64, i64, i64, i64, i64, i64 }
%event = type { i64, i64, i64, i64, i64 }
%job = type { ptr, ptr, i64, ptr, ptr, ptr, i64, ptr, ptr, i64, ptr, i64, i64, i64, i64, i64, i64, ptr, i64, ptr, i64 }

; Every device starts at the beginning.
define internal void @rewind(ptr %rows, i64 %count) {
entry:
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %loop ]
  %row = getelementptr %row, ptr %rows, i64 %k
  %arena = load ptr, ptr %row, align 8
  store [$HEADER$ x i8] zeroinitializer, ptr %arena, align 8
  %next = add i64 %k, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}

; Did all devices give the first one's answer?
define internal i1 @agree(ptr %rows, i64 %count, i64 %first) {
entry:
  br label %loop
loop:
  %k = phi i64 [ 1, %entry ], [ %next, %same ]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %compare, label %yes
compare:
  %answer.p = getelementptr %row, ptr %rows, i64 %k, i32 5
  %answer = load i64, ptr %answer.p, align 8
  %equal = icmp eq i64 %answer, %first
  br i1 %equal, label %same, label %no
same:
  %next = add i64 %k, 1
  br label %loop
yes:
  ret i1 true
no:
  ret i1 false
}

; Has a device stopped to call Python?
define internal i1 @calls(ptr %rows, i64 %count) {
entry:
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %more ]
  %answer.p = getelementptr %row, ptr %rows, i64 %k, i32 5
  %answer = load i64, ptr %answer.p, align 8
  %kind = ashr i64 %answer, $HOST_SHIFT$
  %this = icmp eq i64 %kind, 1
  br i1 %this, label %yes, label %more
more:
  %next = add i64 %k, 1
  %left = icmp ult i64 %next, %count
  br i1 %left, label %loop, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; All devices to their next stop, on the pool's threads if what lies before it takes longer than calling them.
; ``stop`` is where they stand. Returns the time.
define internal i64 @advance(ptr %job, i64 %stop, i64 %begin) {
entry:
  %step = load ptr, ptr %job, align 8
  %rows.p = getelementptr %job, ptr %job, i64 0, i32 1
  %rows = load ptr, ptr %rows.p, align 8
  %count.p = getelementptr %job, ptr %job, i64 0, i32 2
  %count = load i64, ptr %count.p, align 8
  %single = icmp eq i64 %count, 1
  br i1 %single, label %one, label %several
one:
  call void @in_turn(ptr %step, ptr %rows, i64 0, i64 1)
  %end.one = call i64 @now()
  ret i64 %end.one
several:
  %table.p = getelementptr %job, ptr %job, i64 0, i32 7
  %table = load ptr, ptr %table.p, align 8
  %index = and i64 %stop, $INDEX$
  %double = shl i64 %index, 1
  %bit = lshr i64 %stop, $WAIT_SHIFT$
  %half = and i64 %bit, 1
  %odd = add i64 %double, 1
  %inside = add i64 %odd, %half
  %start = icmp slt i64 %stop, 0
  %slot = select i1 %start, i64 0, i64 %inside
  %known.p = getelementptr i64, ptr %table, i64 %slot
  %known = load i64, ptr %known.p, align 8
  %fresh = icmp eq i64 %known, 0
  %expected = select i1 %fresh, i64 $UNKNOWN$, i64 %known
  %tiny = icmp slt i64 %expected, $TINY$
  br i1 %tiny, label %inline, label %pool
inline:
  call void @in_turn(ptr %step, ptr %rows, i64 0, i64 %count)
  br label %measure
pool:
  %advance.p = getelementptr %job, ptr %job, i64 0, i32 3
  %advance = load ptr, ptr %advance.p, align 8
  call void %advance(ptr %step, ptr %rows, i64 %count, i64 %expected)
  br label %measure
measure:
  %end = call i64 @now()
  %taken = sub i64 %end, %begin
  %part = lshr i64 %known, 3
  %faded = sub i64 %known, %part
  %longer = icmp sgt i64 %taken, %faded
  %believed = select i1 %longer, i64 %taken, i64 %faded
  %least = or i64 %believed, 1
  store i64 %least, ptr %known.p, align 8
  ret i64 %end
}

; A collective, or its start or its done, that has ended: into the flight recorder and the sums.
define internal void @finish(ptr %job, i64 %index, i64 %phase, i64 %now) {
entry:
  %event = call ptr @event(ptr %job)
  %begin.p = getelementptr %event, ptr %event, i64 0, i32 2
  %begin = load i64, ptr %begin.p, align 8
  %end.p = getelementptr %event, ptr %event, i64 0, i32 3
  store i64 %now, ptr %end.p, align 8
  %taken = sub i64 %now, %begin
  %records.p = getelementptr %job, ptr %job, i64 0, i32 8
  %records = load ptr, ptr %records.p, align 8
  %second = icmp eq i64 %phase, 2
  %first = select i1 %second, i64 3, i64 1
  %record = getelementptr %record, ptr %records, i64 %index
  %count.p = getelementptr i64, ptr %record, i64 %first
  %count = load i64, ptr %count.p, align 8
  %one.more = add i64 %count, 1
  store i64 %one.more, ptr %count.p, align 8
  %sum.p = getelementptr i64, ptr %count.p, i64 1
  %sum = load i64, ptr %sum.p, align 8
  %total = add i64 %sum, %taken
  store i64 %total, ptr %sum.p, align 8
  %done.p = getelementptr %job, ptr %job, i64 0, i32 15
  %done = load i64, ptr %done.p, align 8
  %this = select i1 %second, i64 0, i64 1
  %all = add i64 %done, %this
  store i64 %all, ptr %done.p, align 8
  ret void
}

; The newest event.
define internal ptr @event(ptr %job) alwaysinline {
  %events.p = getelementptr %job, ptr %job, i64 0, i32 10
  %events = load ptr, ptr %events.p, align 8
  %made.p = getelementptr %job, ptr %job, i64 0, i32 14
  %made = load i64, ptr %made.p, align 8
  %last = sub i64 %made, 1
  %place = and i64 %last, $RING_MASK$
  %event = getelementptr %event, ptr %events, i64 %place
  ret ptr %event
}

; Whoever reads it from outside sees it once ``made`` counts it.
define internal void @begin_event(ptr %job, i64 %index, i64 %phase, i64 %now) {
  %events.p = getelementptr %job, ptr %job, i64 0, i32 10
  %events = load ptr, ptr %events.p, align 8
  %made.p = getelementptr %job, ptr %job, i64 0, i32 14
  %made = load i64, ptr %made.p, align 8
  %place = and i64 %made, $RING_MASK$
  %event = getelementptr %event, ptr %events, i64 %place
  store i64 %index, ptr %event, align 8
  %phase.p = getelementptr %event, ptr %event, i64 0, i32 1
  store i64 %phase, ptr %phase.p, align 8
  %begin.p = getelementptr %event, ptr %event, i64 0, i32 2
  store i64 %now, ptr %begin.p, align 8
  %end.p = getelementptr %event, ptr %event, i64 0, i32 3
  store i64 0, ptr %end.p, align 8
  %waits.p = getelementptr %event, ptr %event, i64 0, i32 4
  store i64 0, ptr %waits.p, align 8
  %one.more = add i64 %made, 1
  store atomic i64 %one.more, ptr %made.p release, align 8
  ret void
}

; Show the other processes whether this one is in a step, if there is a place for it.
define internal void @show(ptr %job, i64 %inside) {
entry:
  %place.p = getelementptr %job, ptr %job, i64 0, i32 17
  %place = load ptr, ptr %place.p, align 8
  %hidden = icmp eq ptr %place, null
  br i1 %hidden, label %done, label %write
write:
  %value.p = getelementptr %job, ptr %job, i64 0, i32 18
  %value = load i64, ptr %value.p, align 8
  %now = mul i64 %value, %inside
  store atomic i64 %now, ptr %place monotonic, align 8
  %mine.p = getelementptr %job, ptr %job, i64 0, i32 19
  %mine = load ptr, ptr %mine.p, align 8
  %offset.p = getelementptr %job, ptr %job, i64 0, i32 20
  %offset = load i64, ptr %offset.p, align 8
  store atomic i64 %offset, ptr %mine monotonic, align 8
  br label %done
done:
  ret void
}

; Put a value into a word that holds 0; what does it hold now?
define i64 @shardc_claim(ptr %word, i64 %value) {
  %pair = cmpxchg ptr %word, i64 0, i64 %value seq_cst seq_cst
  %held = extractvalue { i64, i1 } %pair, 0
  %free = icmp eq i64 %held, 0
  %now = select i1 %free, i64 %value, i64 %held
  ret i64 %now
}

define i32 @shardc_drive(ptr %job) {
entry:
  %rows.p = getelementptr %job, ptr %job, i64 0, i32 1
  %rows = load ptr, ptr %rows.p, align 8
  %count.p = getelementptr %job, ptr %job, i64 0, i32 2
  %count = load i64, ptr %count.p, align 8
  %perform.p = getelementptr %job, ptr %job, i64 0, i32 4
  %perform = load ptr, ptr %perform.p, align 8
  %state.p = getelementptr %job, ptr %job, i64 0, i32 5
  %state = load ptr, ptr %state.p, align 8
  %deadline.p = getelementptr %job, ptr %job, i64 0, i32 6
  %deadline = load i64, ptr %deadline.p, align 8
  %records.p = getelementptr %job, ptr %job, i64 0, i32 8
  %records = load ptr, ptr %records.p, align 8
  %calls.p = getelementptr %job, ptr %job, i64 0, i32 9
  %calls = load i64, ptr %calls.p, align 8
  %stop.p = getelementptr %job, ptr %job, i64 0, i32 11
  %waiting.p = getelementptr %job, ptr %job, i64 0, i32 12
  %code.p = getelementptr %job, ptr %job, i64 0, i32 13
  %where.p = getelementptr %job, ptr %job, i64 0, i32 16
  %first.row = getelementptr %row, ptr %rows, i64 0, i32 5
  %waiting = load i64, ptr %waiting.p, align 8
  store i64 0, ptr %waiting.p, align 8
  %entered = call i64 @now()
  %python.due = add i64 %entered, %deadline
  switch i64 %waiting, label %fresh [ i64 1, label %resume
                                      i64 2, label %continue
                                      i64 3, label %arrive ]
fresh:
  call void @rewind(ptr %rows, i64 %count)
  call void @show(ptr %job, i64 1)
  store i64 -1, ptr %stop.p, align 8
  br label %phase
continue:
  %stop.done = load i64, ptr %stop.p, align 8
  br label %phase
resume:
  %stop.before = load i64, ptr %stop.p, align 8
  br label %split
phase:
  %from = phi i64 [ -1, %fresh ], [ %stop.done, %continue ], [ %stop, %finished ]
  %begin = phi i64 [ %entered, %fresh ], [ %entered, %continue ], [ %end, %finished ]
  store i64 1, ptr %where.p, align 8
  %advanced = call i64 @advance(ptr %job, i64 %from, i64 %begin)
  br label %arrive
arrive:
  %arrived = phi i64 [ %advanced, %phase ], [ %entered, %entry ]
  %answer = load i64, ptr %first.row, align 8
  %same = call i1 @agree(ptr %rows, i64 %count, i64 %answer)
  br i1 %same, label %look, label %python
look:
  %done = icmp eq i64 %answer, -1
  br i1 %done, label %complete, label %bounds
bounds:
  %number = and i64 %answer, $INDEX$
  %negative = icmp slt i64 %answer, 0
  %beyond = icmp uge i64 %number, %calls
  %outside = or i1 %negative, %beyond
  br i1 %outside, label %python, label %known
known:
  %kind.p = getelementptr %record, ptr %records, i64 %number
  %kind = load i64, ptr %kind.p, align 8
  %unknown = icmp eq i64 %kind, 0
  br i1 %unknown, label %python, label %announce
announce:
  store i64 %answer, ptr %stop.p, align 8
  store i64 2, ptr %where.p, align 8
  br label %split
split:
  %stop = phi i64 [ %stop.before, %resume ], [ %answer, %announce ]
  %is.new = phi i1 [ false, %resume ], [ true, %announce ]
  %time = phi i64 [ 0, %resume ], [ %arrived, %announce ]
  %index = and i64 %stop, $INDEX$
  %wait = and i64 %stop, $WAIT$
  %second = icmp ne i64 %wait, 0
  %style.p = getelementptr %record, ptr %records, i64 %index
  %style = load i64, ptr %style.p, align 8
  %before = sub i64 %style, 1
  %part = select i1 %second, i64 2, i64 %before
  br i1 %is.new, label %open, label %call
open:
  call void @begin_event(ptr %job, i64 %index, i64 %part, i64 %time)
  br label %call
call:
  %index.short = trunc i64 %index to i32
  %part.short = trunc i64 %part to i32
  %code = call i32 %perform(ptr %state, i32 %index.short, i32 %part.short, i64 %deadline)
  %performed = icmp eq i32 %code, 0
  br i1 %performed, label %finished, label %unfinished
finished:
  %end = call i64 @now()
  call void @finish(ptr %job, i64 %index, i64 %part, i64 %end)
  %long = icmp sgt i64 %end, %python.due
  br i1 %long, label %pause, label %phase
pause:
  store i64 2, ptr %waiting.p, align 8
  ret i32 4
unfinished:
  %pending = icmp sgt i32 %code, 0
  br i1 %pending, label %later, label %failed
later:
  store i64 1, ptr %waiting.p, align 8
  %event = call ptr @event(ptr %job)
  %waits.p = getelementptr %event, ptr %event, i64 0, i32 4
  %waits = load i64, ptr %waits.p, align 8
  %one.more = add i64 %waits, 1
  store i64 %one.more, ptr %waits.p, align 8
  ret i32 1
failed:
  %code.wide = sext i32 %code to i64
  store i64 %code.wide, ptr %code.p, align 8
  ret i32 3
python:
  %called = call i1 @calls(ptr %rows, i64 %count)
  br i1 %called, label %host, label %answered
host:
  store i64 3, ptr %waiting.p, align 8
  ret i32 5
answered:
  store i64 0, ptr %where.p, align 8
  call void @show(ptr %job, i64 0)
  ret i32 2
complete:
  store i64 0, ptr %where.p, align 8
  call void @show(ptr %job, i64 0)
  ret i32 0
}
"""
