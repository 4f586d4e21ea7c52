"""The thread pool's IR, first part: how threads wait, and where they run; see `shardc.native.threads.pool`."""

from __future__ import annotations

__all__ = ["CONDITION", "FUTEX", "SPINNING"]

# sleep_on: return once the word is not ``old`` any more, or earlier. wake: let up to ``count`` sleepers look.
# core: where the thread runs (-1: who knows). allowed: where it may. leave: go on another core of those.
FUTEX = """
declare i64 @syscall(i64, ...)

define internal void @sleep_on(ptr %word, i32 %old) {
  call i64 (i64, ...) @syscall(i64 $SYS_FUTEX$, ptr %word, i32 128, i32 %old, ptr null)
  ret void
}

define internal void @wake(ptr %word, i32 %count) {
  call i64 (i64, ...) @syscall(i64 $SYS_FUTEX$, ptr %word, i32 129, i32 %count)
  ret void
}

define internal void @reset_sleep() {
  ret void
}

declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)

define internal i32 @core() {
  %core = call i32 @sched_getcpu()
  ret i32 %core
}

define internal void @allowed(ptr %mask) {
  store [16 x i64] zeroinitializer, ptr %mask, align 8
  call i32 @sched_getaffinity(i32 0, i64 128, ptr %mask)
  ret void
}

define internal void @leave(i32 %core, ptr %mask) {
entry:
  %others = alloca [16 x i64], align 8
  %known = icmp ult i32 %core, 1024
  br i1 %known, label %without, label %done
without:
  %all = load [16 x i64], ptr %mask, align 8
  store [16 x i64] %all, ptr %others, align 8
  %index = lshr i32 %core, 6
  %word = zext i32 %index to i64
  %place = getelementptr i64, ptr %others, i64 %word
  %cores = load i64, ptr %place, align 8
  %position = and i32 %core, 63
  %shift = zext i32 %position to i64
  %bit = shl i64 1, %shift
  %rest = xor i64 %bit, -1
  %left = and i64 %cores, %rest
  store i64 %left, ptr %place, align 8
  call i32 @sched_setaffinity(i32 0, i64 128, ptr %others)
  call i32 @sched_setaffinity(i32 0, i64 128, ptr %mask)
  br label %done
done:
  ret void
}
"""

CONDITION = """
@mutex = internal global [128 x i8] zeroinitializer, align 64
@condition = internal global [128 x i8] zeroinitializer, align 64

declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)

define internal void @sleep_on(ptr %word, i32 %old) {
entry:
  call i32 @pthread_mutex_lock(ptr @mutex)
  br label %look
look:
  %now = load atomic i32, ptr %word seq_cst, align 4
  %same = icmp eq i32 %now, %old
  br i1 %same, label %wait, label %done
wait:
  call i32 @pthread_cond_wait(ptr @condition, ptr @mutex)
  br label %look
done:
  call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}

define internal void @wake(ptr %word, i32 %count) {
  call i32 @pthread_mutex_lock(ptr @mutex)
  call i32 @pthread_cond_broadcast(ptr @condition)
  call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}

define internal void @reset_sleep() {
  call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  call i32 @pthread_cond_init(ptr @condition, ptr null)
  ret void
}

define internal i32 @core() {
  ret i32 -1
}

define internal void @allowed(ptr %mask) {
  ret void
}

define internal void @leave(i32 %core, ptr %mask) {
  ret void
}
"""

SPINNING = """
; Watch a word for as long as configured; has it changed from ``old``?
define internal i1 @watch(ptr %word, i32 %old) {
entry:
  %spin = load atomic i64, ptr @spin monotonic, align 8
  %start = call i64 @now()
  br label %round
round:
  %k = phi i32 [ 0, %entry ], [ %following, %again ], [ 0, %clock ]
  %now = load atomic i32, ptr %word acquire, align 4
  %same = icmp eq i32 %now, %old
  br i1 %same, label %pause, label %changed
pause:
  $PAUSE$
  %following = add i32 %k, 1
  %more = icmp ult i32 %following, 32
  br i1 %more, label %again, label %clock
again:
  br label %round
clock:
  %time = call i64 @now()
  %spent = sub i64 %time, %start
  %early = icmp slt i64 %spent, %spin
  br i1 %early, label %round, label %unchanged
changed:
  ret i1 true
unchanged:
  ret i1 false
}
"""
