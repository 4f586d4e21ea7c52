"""Threads of several processes meet: counters in memory that they share, and a sleep on them.

A *meeting* is 8 bytes, zero at first: a counter of 32 bits that only grows (and wraps around), and the number of those
who sleep until it has grown. ::

    i1   shardc_wait(ptr meeting, i32 target, i64 spin, i64 end)
    i1   shardc_wait_sharing(ptr meeting, i32 target, i64 spin, i64 end, i32 cores)
    void shardc_arrive(ptr meeting, i32 target)

``shardc_wait`` returns true when the counter is at ``target`` or past it, false when the monotonic clock has passed
``end`` (nanoseconds) first; it watches for ``spin`` nanoseconds, then sleeps. ``shardc_arrive`` adds one, and wakes the
sleepers if that makes it ``target``: all who meet agree on when that is. What was written before an arrival can be
read after the wait.

Where more threads meet than there are ``cores``, one that watches may keep another from coming.
``shardc_wait_sharing`` watches only when those who have not come are fewer than the cores, so that they have one. Else
it lets others run as long as it would have watched: a core where all sleep at once is slow to come back, on virtual
machines some 40 us.

On Linux sleepers sleep in the kernel (a futex that processes share); elsewhere they look again after growing pauses.
"""

from __future__ import annotations

from functools import lru_cache

from shardc.native.llvm.jit import compile_ir
from shardc.native.llvm.target import Target, host_target
from shardc.native.threads.clock import now_ir
from shardc.native.threads.pool import futex_number, pause_of

__all__ = ["ARRIVE", "NOW", "WAIT", "WAIT_SHARING", "meeting_ir", "meeting_object"]

WAIT, WAIT_SHARING, ARRIVE, NOW = "shardc_wait", "shardc_wait_sharing", "shardc_arrive", "shardc_now"

#: Nanoseconds between looks where there is no futex: at first, and at most.
_FIRST_PAUSE, _LAST_PAUSE = 20_000, 1_000_000

_FUTEX = """
declare i64 @syscall(i64, ...)

define internal void @sleep_on(ptr %word, i32 %old, i64 %nanoseconds, i64 %pause) {
  %time = alloca [2 x i64], align 16
  call void @put_time(ptr %time, i64 %nanoseconds)
  call i64 (i64, ...) @syscall(i64 $SYS_FUTEX$, ptr %word, i32 0, i32 %old, ptr %time)
  ret void
}

define internal void @wake(ptr %word) {
  call i64 (i64, ...) @syscall(i64 $SYS_FUTEX$, ptr %word, i32 1, i32 2147483647)
  ret void
}
"""

_POLLING = """
declare i32 @nanosleep(ptr, ptr)

define internal void @sleep_on(ptr %word, i32 %old, i64 %nanoseconds, i64 %pause) {
  %time = alloca [2 x i64], align 16
  %early = icmp slt i64 %nanoseconds, %pause
  %short = select i1 %early, i64 %nanoseconds, i64 %pause
  call void @put_time(ptr %time, i64 %short)
  call i32 @nanosleep(ptr %time, ptr null)
  ret void
}

define internal void @wake(ptr %word) {
  ret void
}
"""

_MEETING = """
declare i32 @sched_yield()

define internal void @put_time(ptr %time, i64 %nanoseconds) {
  %seconds = sdiv i64 %nanoseconds, 1000000000
  %rest = srem i64 %nanoseconds, 1000000000
  %rest.p = getelementptr i64, ptr %time, i64 1
  store i64 %seconds, ptr %time, align 8
  store i64 %rest, ptr %rest.p, align 8
  ret void
}

define i64 @shardc_now() {
  %time = call i64 @now()
  ret i64 %time
}

define i1 @shardc_wait(ptr %word, i32 %target, i64 %spin, i64 %end) {
  %met = call i1 @shardc_wait_sharing(ptr %word, i32 %target, i64 %spin, i64 %end, i32 2147483647)
  ret i1 %met
}

define i1 @shardc_wait_sharing(ptr %word, i32 %target, i64 %spin, i64 %end, i32 %cores) {
entry:
  %first = load atomic i32, ptr %word acquire, align 4
  %first.gap = sub i32 %first, %target
  %at.once = icmp sge i32 %first.gap, 0
  br i1 %at.once, label %yes, label %watch
watch:
  %sleepers = getelementptr i32, ptr %word, i64 1
  %start = call i64 @now()
  %tired = add i64 %start, %spin
  %missing = sub i32 %target, %first
  %room = icmp slt i32 %missing, %cores
  %spins = icmp sgt i64 %spin, 0
  br i1 %spins, label %awake, label %sleep
awake:
  br i1 %room, label %round, label %yield
yield:
  call i32 @sched_yield()
  %value.then = load atomic i32, ptr %word acquire, align 4
  %gap.then = sub i32 %value.then, %target
  %there.then = icmp sge i32 %gap.then, 0
  br i1 %there.then, label %yes, label %look.up
look.up:
  %then = call i64 @now()
  %still = icmp slt i64 %then, %tired
  br i1 %still, label %yield, label %sleep
round:
  %k = phi i32 [ 0, %awake ], [ %following, %again ], [ 0, %clock ]
  %seen = load atomic i32, ptr %word acquire, align 4
  %seen.gap = sub i32 %seen, %target
  %there = icmp sge i32 %seen.gap, 0
  br i1 %there, label %yes, label %pause
pause:
  $PAUSE$
  %following = add i32 %k, 1
  %few = icmp ult i32 %following, 32
  br i1 %few, label %again, label %clock
again:
  br label %round
clock:
  %now = call i64 @now()
  %early = icmp slt i64 %now, %tired
  br i1 %early, label %round, label %sleep
sleep:
  %nap = phi i64 [ $FIRST_PAUSE$, %watch ], [ $FIRST_PAUSE$, %look.up ], [ $FIRST_PAUSE$, %clock ], [ %longer, %woken ]
  atomicrmw add ptr %sleepers, i32 1 seq_cst
  %value = load atomic i32, ptr %word seq_cst, align 4
  %gap = sub i32 %value, %target
  %reached = icmp sge i32 %gap, 0
  br i1 %reached, label %up, label %time
up:
  atomicrmw sub ptr %sleepers, i32 1 seq_cst
  br label %yes
time:
  %moment = call i64 @now()
  %left = sub i64 %end, %moment
  %late = icmp sle i64 %left, 0
  br i1 %late, label %no, label %lie
lie:
  call void @sleep_on(ptr %word, i32 %value, i64 %left, i64 %nap)
  atomicrmw sub ptr %sleepers, i32 1 seq_cst
  br label %woken
woken:
  %double = shl i64 %nap, 1
  %much = icmp sgt i64 %double, $LAST_PAUSE$
  %longer = select i1 %much, i64 $LAST_PAUSE$, i64 %double
  br label %sleep
no:
  atomicrmw sub ptr %sleepers, i32 1 seq_cst
  ret i1 false
yes:
  ret i1 true
}

define void @shardc_arrive(ptr %word, i32 %target) {
entry:
  %before = atomicrmw add ptr %word, i32 1 seq_cst
  %count = add i32 %before, 1
  %last = icmp eq i32 %count, %target
  br i1 %last, label %look, label %done
look:
  %sleepers.p = getelementptr i32, ptr %word, i64 1
  %sleepers = load atomic i32, ptr %sleepers.p seq_cst, align 4
  %any = icmp ne i32 %sleepers, 0
  br i1 %any, label %call, label %done
call:
  call void @wake(ptr %word)
  br label %done
done:
  ret void
}
"""


def meeting_ir(target: Target | None = None, *, futex: bool | None = None) -> str:
    """The IR text for ``target`` (default: this machine); ``futex`` overrides how threads sleep."""
    triple = (target or host_target()).triple
    number = futex_number(triple)
    pause, declaration = pause_of(triple)
    text = (
        declaration + (_FUTEX if (bool(number) if futex is None else futex) else _POLLING) + now_ir(triple) + _MEETING
    )
    values = {
        "SYS_FUTEX": number,
        "PAUSE": pause,
        "FIRST_PAUSE": _FIRST_PAUSE,
        "LAST_PAUSE": _LAST_PAUSE,
    }
    for name, value in values.items():
        text = text.replace(f"${name}$", str(value))
    return f'target triple = "{triple}"\n{text}'


@lru_cache(maxsize=8)
def meeting_object(target: Target | None = None, *, futex: bool | None = None) -> bytes:
    """The object file of `meeting_ir`."""
    return compile_ir(meeting_ir(target, futex=futex), target)
