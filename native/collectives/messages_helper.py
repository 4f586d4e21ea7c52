"""The IR of `shardc.native.collectives.messages`, fourth part: who goes through a call, the one who asks or a thread
of its own.
"""

from __future__ import annotations

__all__ = ["HELPER"]

# Of a call that a thread helps with, the caller does what needs no waiting, at the start, and then hands it over.
HELPER = """
define i32 @shardc_messages(ptr %state, i32 %index, i32 %phase, i64 %deadline) {
entry:
  %entered = call i64 @shardc_now()
  %calls.p = getelementptr %state, ptr %state, i64 0, i32 7
  %calls = load ptr, ptr %calls.p, align 8
  %call.p = getelementptr ptr, ptr %calls, i32 %index
  %call = load ptr, ptr %call.p, align 8
  %helped.p = getelementptr %call, ptr %call, i64 0, i32 12
  %helped = load i64, ptr %helped.p, align 8
  %alone = icmp eq i64 %helped, 0
  br i1 %alone, label %plain, label %both
plain:
  %answer = call i32 @run(ptr %state, ptr %call, i32 %phase, i64 %entered, i64 %deadline)
  ret i32 %answer
both:
  switch i32 %phase, label %plain [
    i32 1, label %start
    i32 2, label %done
  ]
start:
  %begun = call i32 @run(ptr %state, ptr %call, i32 1, i64 %entered, i64 %deadline)
  %cursor.p = getelementptr %call, ptr %call, i64 0, i32 1
  %cursor = load i64, ptr %cursor.p, align 8
  %well = icmp eq i32 %begun, 0
  %left = icmp ne i64 %cursor, 0
  %hand = and i1 %well, %left
  br i1 %hand, label %hand.over, label %begun.all
begun.all:
  ret i32 %begun
hand.over:
  %given.p = getelementptr %call, ptr %call, i64 0, i32 15
  %given.old = load i64, ptr %given.p, align 8
  %given.new = add i64 %given.old, 1
  store i64 %given.new, ptr %given.p, align 8
  %queue.p = getelementptr %state, ptr %state, i64 0, i32 20
  %queue = load ptr, ptr %queue.p, align 8
  %mask.p = getelementptr %state, ptr %state, i64 0, i32 21
  %mask = load i64, ptr %mask.p, align 8
  %handed.p = getelementptr %state, ptr %state, i64 0, i32 23
  %handed = load i64, ptr %handed.p, align 8
  %place = and i64 %handed, %mask
  %entry.p = getelementptr ptr, ptr %queue, i64 %place
  store ptr %call, ptr %entry.p, align 8
  %handed.new = add i64 %handed, 1
  store i64 %handed.new, ptr %handed.p, align 8
  %word = getelementptr %state, ptr %state, i64 0, i32 22
  %count = trunc i64 %handed.new to i32
  call void @shardc_arrive(ptr %word, i32 %count)
  ret i32 0
done:
  call void @show_place(ptr %state, ptr %call, i32 2)
  call void @show(ptr %state, i64 $EXPECTING$, i64 %entered)
  %wanted.p = getelementptr %call, ptr %call, i64 0, i32 15
  %wanted.wide = load i64, ptr %wanted.p, align 8
  %wanted = trunc i64 %wanted.wide to i32
  %over = getelementptr %call, ptr %call, i64 0, i32 13
  %until = add i64 %entered, %deadline
  %met = call i1 @wait_for(ptr %state, ptr %over, i32 %wanted, i64 %until)
  br i1 %met, label %ended, label %later
later:
  ret i32 1
ended:
  call void @show_completed(ptr %state)
  %now = call i64 @shardc_now()
  call void @show(ptr %state, i64 $COMPUTING$, i64 %now)
  %result.p = getelementptr %call, ptr %call, i64 0, i32 14
  %result.wide = load i64, ptr %result.p, align 8
  %result = trunc i64 %result.wide to i32
  ret i32 %result
}

define internal i1 @wait_for(ptr %state, ptr %meeting, i32 %goal, i64 %until) {
  %watch.p = getelementptr %state, ptr %state, i64 0, i32 17
  %watch = load i64, ptr %watch.p, align 8
  %cores.p = getelementptr %state, ptr %state, i64 0, i32 18
  %cores.wide = load i64, ptr %cores.p, align 8
  %cores = trunc i64 %cores.wide to i32
  %met = call i1 @shardc_wait_sharing(ptr %meeting, i32 %goal, i64 %watch, i64 %until, i32 %cores)
  ret i1 %met
}

; The thread: one call after the other, until it is told to stop.
define void @shardc_messages_helper(ptr %state) {
entry:
  %own.p = getelementptr %state, ptr %state, i64 0, i32 19
  %own = load ptr, ptr %own.p, align 8
  %queue.p = getelementptr %state, ptr %state, i64 0, i32 20
  %queue = load ptr, ptr %queue.p, align 8
  %mask.p = getelementptr %state, ptr %state, i64 0, i32 21
  %mask = load i64, ptr %mask.p, align 8
  %word = getelementptr %state, ptr %state, i64 0, i32 22
  %stop.p = getelementptr %state, ptr %state, i64 0, i32 25
  br label %idle
idle:
  %taken = phi i64 [ 0, %entry ], [ %taken, %look ], [ %following, %over ]
  %following = add i64 %taken, 1
  %goal = trunc i64 %following to i32
  %now = call i64 @shardc_now()
  %until = add i64 %now, 20000000
  %met = call i1 @wait_for(ptr %state, ptr %word, i32 %goal, i64 %until)
  br i1 %met, label %take, label %look
look:
  %stop = load atomic i64, ptr %stop.p acquire, align 8
  %stops = icmp ne i64 %stop, 0
  br i1 %stops, label %end, label %idle
take:
  %place = and i64 %taken, %mask
  %entry.p = getelementptr ptr, ptr %queue, i64 %place
  %call = load ptr, ptr %entry.p, align 8
  br label %go.on
go.on:
  %entered = call i64 @shardc_now()
  %answer = call i32 @run(ptr %own, ptr %call, i32 2, i64 %entered, i64 20000000)
  %waits = icmp eq i32 %answer, 1
  br i1 %waits, label %still, label %over
still:
  %stop.now = load atomic i64, ptr %stop.p acquire, align 8
  %stops.now = icmp ne i64 %stop.now, 0
  br i1 %stops.now, label %end, label %go.on
over:
  %result.p = getelementptr %call, ptr %call, i64 0, i32 14
  %answer.wide = sext i32 %answer to i64
  store i64 %answer.wide, ptr %result.p, align 8
  %over.word = getelementptr %call, ptr %call, i64 0, i32 13
  %given.p = getelementptr %call, ptr %call, i64 0, i32 15
  %given.wide = load i64, ptr %given.p, align 8
  %given = trunc i64 %given.wide to i32
  call void @shardc_arrive(ptr %over.word, i32 %given)
  br label %idle
end:
  ret void
}
"""
