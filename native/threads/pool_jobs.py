"""The thread pool's IR, second part: jobs, who does them, and how workers start; see `shardc.native.threads.pool`."""

from __future__ import annotations

__all__ = ["JOBS", "STARTING", "TYPES"]

# A slot: ticket (generation, first and end of the indices that nobody has taken: 32, 16 and 16 bits), function,
# context, count, pieces per index; on a cache line of its own: indices not done, caller sleeps, slot is taken.
TYPES = """
%slot = type { i64, ptr, ptr, i64, i64, [24 x i8], i32, i32, i32, [52 x i8] }
@slots = internal global [$SLOTS$ x %slot] zeroinitializer, align 128
@epoch = internal global i32 0, align 64
@sleepers = internal global i32 0, align 64
@limit = internal global i32 0, align 64
@caller = internal global i32 -1, align 64
@calling = internal global ptr null, align 8
@unshared = internal global i64 0, align 64
@spin = internal global i64 0, align 8
@started = internal global i32 0, align 4
@owner = internal global i32 0, align 4
@starting = internal global i32 0, align 4

declare i32 @getpid()
declare ptr @pthread_self()
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_destroy(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_setdetachstate(ptr, i32)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
"""

JOBS = """
; Do pieces of a slot's job while there are any, from the first on or from the last back; how many were done? Threads
; that start at opposite ends mostly meet the same part of the data in one kernel after the other.
define internal i32 @work(ptr %slot, i1 %backwards) {
entry:
  %function.p = getelementptr %slot, ptr %slot, i64 0, i32 1
  %context.p = getelementptr %slot, ptr %slot, i64 0, i32 2
  %count.p = getelementptr %slot, ptr %slot, i64 0, i32 3
  %grain.p = getelementptr %slot, ptr %slot, i64 0, i32 4
  %pending = getelementptr %slot, ptr %slot, i64 0, i32 6
  %waits = getelementptr %slot, ptr %slot, i64 0, i32 7
  %step = select i1 %backwards, i64 -1, i64 65536
  br label %look
look:
  %done = phi i32 [ 0, %entry ], [ %done, %claim ], [ %one.more, %finished ]
  %ticket = load atomic i64, ptr %slot acquire, align 8
  %function = load atomic ptr, ptr %function.p acquire, align 8
  %context = load atomic ptr, ptr %context.p acquire, align 8
  %count = load atomic i64, ptr %count.p acquire, align 8
  %grain = load atomic i64, ptr %grain.p acquire, align 8
  %past = and i64 %ticket, 65535
  %shifted = lshr i64 %ticket, 16
  %first = and i64 %shifted, 65535
  %open = icmp ult i64 %first, %past
  br i1 %open, label %claim, label %nothing
claim:
  %following = add i64 %ticket, %step
  %pair = cmpxchg ptr %slot, i64 %ticket, i64 %following acq_rel monotonic
  %ours = extractvalue { i64, i1 } %pair, 1
  br i1 %ours, label %run, label %look
run:
  %last.one = sub i64 %past, 1
  %index = select i1 %backwards, i64 %last.one, i64 %first
  %begin = mul i64 %index, %grain
  %full = add i64 %begin, %grain
  %beyond = icmp ugt i64 %full, %count
  %end = select i1 %beyond, i64 %count, i64 %full
  call void %function(ptr %context, i64 %begin, i64 %end)
  %one.more = add i32 %done, 1
  %before = atomicrmw sub ptr %pending, i32 1 seq_cst
  %last = icmp eq i32 %before, 1
  br i1 %last, label %complete, label %finished
complete:
  %asleep = load atomic i32, ptr %waits seq_cst, align 4
  %must.wake = icmp ne i32 %asleep, 0
  br i1 %must.wake, label %tell, label %finished
tell:
  call void @wake(ptr %pending, i32 1)
  br label %finished
finished:
  br label %look
nothing:
  ret i32 %done
}

; Who found work watches for more; who was woken for nothing sleeps at once, since somebody else may want the core.
; A worker that finds itself on the core of a caller, where the system likes to wake it, goes to another one; unless it
; was the last caller itself, by a job of its own.
define internal ptr @worker(ptr %number) {
entry:
  %id = ptrtoint ptr %number to i32
  %parity = and i32 %id, 1
  %backwards = icmp eq i32 %parity, 0
  %mask = alloca [16 x i64], align 8
  call void @allowed(ptr %mask)
  %self = call ptr @pthread_self()
  br label %top
top:
  %warm = phi i1 [ false, %entry ], [ false, %unwanted ], [ true, %scanned ], [ true, %watching ], [ false, %sleep ]
  %limit = load atomic i32, ptr @limit acquire, align 4
  %wanted = icmp slt i32 %id, %limit
  br i1 %wanted, label %serve, label %unwanted
unwanted:
  call void @sleep_on(ptr @limit, i32 %limit)
  br label %top
serve:
  %seen = load atomic i32, ptr @epoch seq_cst, align 4
  %here = call i32 @core()
  %there = load atomic i32, ptr @caller monotonic, align 4
  %whose = load atomic ptr, ptr @calling monotonic, align 8
  %same.core = icmp eq i32 %here, %there
  %others = icmp ne ptr %whose, %self
  %together = and i1 %same.core, %others
  br i1 %together, label %part, label %look
part:
  call void @leave(i32 %there, ptr %mask)
  br label %look
look:
  br label %scan
scan:
  %k = phi i64 [ 0, %look ], [ %next, %scan ]
  %total = phi i32 [ 0, %look ], [ %sum, %scan ]
  %slot = getelementptr [$SLOTS$ x %slot], ptr @slots, i64 0, i64 %k
  %did = call i32 @work(ptr %slot, i1 %backwards)
  %sum = add i32 %total, %did
  %next = add i64 %k, 1
  %more = icmp ult i64 %next, $SLOTS$
  br i1 %more, label %scan, label %scanned
scanned:
  %busy = icmp ne i32 %sum, 0
  br i1 %busy, label %top, label %idle
idle:
  br i1 %warm, label %watching, label %sleep
watching:
  %changed = call i1 @watch(ptr @epoch, i32 %seen)
  br i1 %changed, label %top, label %sleep
sleep:
  atomicrmw add ptr @sleepers, i32 1 seq_cst
  call void @sleep_on(ptr @epoch, i32 %seen)
  atomicrmw sub ptr @sleepers, i32 1 seq_cst
  br label %top
}

define void @shardc_parallel(ptr %function, ptr %context, i64 %count, i64 %nanoseconds) {
  call void @share(ptr %function, ptr %context, i64 %count, i64 1, i64 %nanoseconds)
  ret void
}

; The same with at least ``least`` indices together.
define internal void @share(ptr %function, ptr %context, i64 %count, i64 %least, i64 %nanoseconds) {
entry:
  %limit = load atomic i32, ptr @limit acquire, align 4
  %helped = icmp sgt i32 %limit, 0
  %several = icmp ugt i64 %count, 1
  %parallel = and i1 %helped, %several
  br i1 %parallel, label %check, label %alone
check:
  %ready = call i1 @ready(i32 %limit)
  br i1 %ready, label %scan, label %alone
scan:
  %k = phi i64 [ 0, %check ], [ %next, %taken ]
  %slot = getelementptr [$SLOTS$ x %slot], ptr @slots, i64 0, i64 %k
  %busy.p = getelementptr %slot, ptr %slot, i64 0, i32 8
  %pair = cmpxchg ptr %busy.p, i32 0, i32 1 acq_rel monotonic
  %ours = extractvalue { i32, i1 } %pair, 1
  br i1 %ours, label %post, label %taken
taken:
  %next = add i64 %k, 1
  %more = icmp ult i64 %next, $SLOTS$
  br i1 %more, label %scan, label %alone
post:
  %rounded = add i64 %count, 65534
  %fitting = udiv i64 %rounded, 65535
  %coarse = icmp ugt i64 %least, %fitting
  %grain = select i1 %coarse, i64 %least, i64 %fitting
  %most = add i64 %count, %grain
  %more.than = sub i64 %most, 1
  %indices = udiv i64 %more.than, %grain
  call void @post(ptr %slot, ptr %function, ptr %context, i64 %count, i64 %grain, i64 %indices)
  call void @call_help(i64 %indices, i64 %nanoseconds)
  call i32 @work(ptr %slot, i1 false)
  call void @join(ptr %slot)
  store atomic i32 0, ptr %busy.p release, align 4
  ret void
alone:
  %any = icmp ne i64 %count, 0
  br i1 %any, label %all, label %done
all:
  call void %function(ptr %context, i64 0, i64 %count)
  br label %done
done:
  ret void
}

; Steps of several devices: a job is the step function and a table of rows.
define internal void @advance_rows(ptr %job, i64 %begin, i64 %end) {
  %step = load ptr, ptr %job, align 8
  %rows.p = getelementptr ptr, ptr %job, i64 1
  %rows = load ptr, ptr %rows.p, align 8
  call void @in_turn(ptr %step, ptr %rows, i64 %begin, i64 %end)
  ret void
}

define void @shardc_pool_advance(ptr %step, ptr %rows, i64 %count, i64 %nanoseconds) {
entry:
  %job = alloca [2 x ptr], align 8
  %rows.p = getelementptr ptr, ptr %job, i64 1
  store ptr %step, ptr %job, align 8
  store ptr %rows, ptr %rows.p, align 8
  %pieces = udiv i64 %nanoseconds, $PIECE$
  %some = add i64 %pieces, 1
  %more = add i64 %count, %pieces
  %grain = udiv i64 %more, %some
  call void @share(ptr @advance_rows, ptr %job, i64 %count, i64 %grain, i64 %nanoseconds)
  ret void
}

; Open a slot's next job.
define internal void @post(ptr %slot, ptr %function, ptr %context, i64 %count, i64 %grain, i64 %indices) {
entry:
  %function.p = getelementptr %slot, ptr %slot, i64 0, i32 1
  %context.p = getelementptr %slot, ptr %slot, i64 0, i32 2
  %count.p = getelementptr %slot, ptr %slot, i64 0, i32 3
  %grain.p = getelementptr %slot, ptr %slot, i64 0, i32 4
  %pending = getelementptr %slot, ptr %slot, i64 0, i32 6
  %here = call i32 @core()
  store atomic i32 %here, ptr @caller monotonic, align 4
  %self = call ptr @pthread_self()
  store atomic ptr %self, ptr @calling monotonic, align 8
  %old = load atomic i64, ptr %slot monotonic, align 8
  %generation = lshr i64 %old, 32
  %following = add i64 %generation, 1
  %closed = shl i64 %following, 32
  %open = or i64 %closed, %indices
  store atomic i64 %closed, ptr %slot seq_cst, align 8
  store atomic ptr %function, ptr %function.p release, align 8
  store atomic ptr %context, ptr %context.p release, align 8
  store atomic i64 %count, ptr %count.p release, align 8
  store atomic i64 %grain, ptr %grain.p release, align 8
  %pieces = trunc i64 %indices to i32
  store atomic i32 %pieces, ptr %pending release, align 4
  store atomic i64 %open, ptr %slot seq_cst, align 8
  atomicrmw add ptr @epoch, i32 1 seq_cst
  ret void
}

; Wake sleepers if too few workers are awake for a job, and work enough has met too few.
define internal void @call_help(i64 %count, i64 %nanoseconds) {
entry:
  %sleepers = load atomic i32, ptr @sleepers seq_cst, align 4
  %asleep = icmp sgt i32 %sleepers, 0
  br i1 %asleep, label %compare, label %done
compare:
  %pieces = trunc i64 %count to i32
  %others = sub i32 %pieces, 1
  %limit = load atomic i32, ptr @limit acquire, align 4
  %enough = icmp slt i32 %others, %limit
  %useful = select i1 %enough, i32 %others, i32 %limit
  %awake = sub i32 %limit, %sleepers
  %missing = sub i32 %useful, %awake
  %few = icmp sgt i32 %missing, 0
  br i1 %few, label %add, label %done
add:
  %before = atomicrmw add ptr @unshared, i64 %nanoseconds monotonic
  %total = add i64 %before, %nanoseconds
  %much = icmp sge i64 %total, $WAKE$
  br i1 %much, label %call, label %done
call:
  store atomic i64 0, ptr @unshared monotonic, align 8
  call void @wake(ptr @epoch, i32 %missing)
  br label %done
done:
  ret void
}

; Wait until the pieces that others took are done.
define internal void @join(ptr %slot) {
entry:
  %pending = getelementptr %slot, ptr %slot, i64 0, i32 6
  %waits = getelementptr %slot, ptr %slot, i64 0, i32 7
  br label %look
look:
  %left = load atomic i32, ptr %pending acquire, align 4
  %complete = icmp eq i32 %left, 0
  br i1 %complete, label %done, label %watch
watch:
  %changed = call i1 @watch(ptr %pending, i32 %left)
  br i1 %changed, label %look, label %sleep
sleep:
  store atomic i32 1, ptr %waits seq_cst, align 4
  %still = load atomic i32, ptr %pending seq_cst, align 4
  %late = icmp eq i32 %still, 0
  br i1 %late, label %awake, label %wait
wait:
  call void @sleep_on(ptr %pending, i32 %still)
  br label %awake
awake:
  store atomic i32 0, ptr %waits seq_cst, align 4
  br label %look
done:
  ret void
}
"""

STARTING = """
; Are there as many workers as wanted (or as can be had) in this process? Starts them.
define internal i1 @ready(i32 %wanted) {
entry:
  %pid = call i32 @getpid()
  %owner = load atomic i32, ptr @owner acquire, align 4
  %ours = icmp eq i32 %pid, %owner
  br i1 %ours, label %count, label %start
count:
  %started = load atomic i32, ptr @started acquire, align 4
  %enough = icmp sge i32 %started, %wanted
  br i1 %enough, label %yes, label %start
yes:
  ret i1 true
start:
  %done = call i1 @start(i32 %wanted, i32 %pid)
  ret i1 %done
}

; One thread starts workers; others go on alone meanwhile. A lock left by a parent process is taken over.
define internal i1 @start(i32 %wanted, i32 %pid) {
entry:
  %holder = load atomic i32, ptr @starting acquire, align 4
  %held = icmp eq i32 %holder, %pid
  br i1 %held, label %no, label %lock
lock:
  %pair = cmpxchg ptr @starting, i32 %holder, i32 %pid acq_rel monotonic
  %locked = extractvalue { i32, i1 } %pair, 1
  br i1 %locked, label %inside, label %no
inside:
  %owner = load atomic i32, ptr @owner acquire, align 4
  %ours = icmp eq i32 %owner, %pid
  br i1 %ours, label %create, label %reset
reset:
  store [$SLOTS$ x %slot] zeroinitializer, ptr @slots, align 128
  store atomic i32 0, ptr @sleepers seq_cst, align 4
  store atomic i32 0, ptr @started seq_cst, align 4
  call void @reset_sleep()
  store atomic i32 %pid, ptr @owner seq_cst, align 4
  br label %create
create:
  call void @create(i32 %wanted)
  store atomic i32 0, ptr @starting release, align 4
  ret i1 true
no:
  ret i1 false
}

; Workers take no signals: those are for the threads of the program.
define internal void @create(i32 %wanted) {
entry:
  %attributes = alloca [128 x i8], align 16
  %all = alloca [128 x i8], align 16
  %old = alloca [128 x i8], align 16
  %thread = alloca i64, align 8
  call i32 @pthread_attr_init(ptr %attributes)
  call i32 @pthread_attr_setstacksize(ptr %attributes, i64 $STACK$)
  call i32 @pthread_attr_setdetachstate(ptr %attributes, i32 $DETACHED$)
  call i32 @sigfillset(ptr %all)
  call i32 @pthread_sigmask(i32 $SETMASK$, ptr %all, ptr %old)
  br label %look
look:
  %started = load atomic i32, ptr @started acquire, align 4
  %more = icmp slt i32 %started, %wanted
  br i1 %more, label %one, label %done
one:
  %id = zext i32 %started to i64
  %number = inttoptr i64 %id to ptr
  %failed = call i32 @pthread_create(ptr %thread, ptr %attributes, ptr @worker, ptr %number)
  %good = icmp eq i32 %failed, 0
  br i1 %good, label %count, label %give.up
count:
  %now = add i32 %started, 1
  store atomic i32 %now, ptr @started release, align 4
  br label %look
give.up:
  store atomic i32 %started, ptr @limit release, align 4
  br label %done
done:
  call i32 @pthread_sigmask(i32 $SETMASK$, ptr %old, ptr null)
  call i32 @pthread_attr_destroy(ptr %attributes)
  ret void
}

define void @shardc_pool_configure(i32 %workers, i64 %spin) {
entry:
  store atomic i64 %spin, ptr @spin monotonic, align 8
  %old = atomicrmw xchg ptr @limit, i32 %workers seq_cst
  %more = icmp slt i32 %old, %workers
  br i1 %more, label %look, label %done
look:
  %pid = call i32 @getpid()
  %owner = load atomic i32, ptr @owner acquire, align 4
  %ours = icmp eq i32 %pid, %owner
  br i1 %ours, label %call, label %done
call:
  call void @wake(ptr @limit, i32 2147483647)
  br label %done
done:
  ret void
}

define i32 @shardc_pool_started() {
entry:
  %pid = call i32 @getpid()
  %owner = load atomic i32, ptr @owner acquire, align 4
  %ours = icmp eq i32 %pid, %owner
  %started = load atomic i32, ptr @started acquire, align 4
  %answer = select i1 %ours, i32 %started, i32 0
  ret i32 %answer
}
"""
