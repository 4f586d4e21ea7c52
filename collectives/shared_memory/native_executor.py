"""The native collective executor of ranks of one node. ::

    i32 shardc_shared(ptr state, i32 index, i32 phase, i64 deadline)

(`shardc.native.drive.drive_loop` says what is asked of it.) Every rank can address the heaps of the others
(`shardc.collectives.shared_memory.heap`), so a collective is: tell the others where my operands and results lie, wait
until all have,
do pieces of the work into everybody's results while there are any, wait until all are done. Small operands are copied
into memory that everybody reads, and every rank does all of the work for itself: one wait instead of two.

Where a program has started a collective and does something else meanwhile, the first half is done at the start, the
rest at the end, or by a thread of its own (``shardc_shared_helper``) in between.
"""

from __future__ import annotations

from llvmlite import ir

from shardc.collectives.call.control_table import ARRIVING, COMPUTING, FINISHING, WORKING, row_offset
from shardc.collectives.shared_memory.native_steps import (
    MISMATCH,
    emit_collect,
    emit_mark,
    emit_pieces,
    emit_publish,
    emit_unstage,
    emit_work,
)
from shardc.collectives.shared_memory.record_views import (
    CollectiveRun,
    RecordView,
    answer_with,
    equals,
    function_of,
    is_null,
)
from shardc.collectives.shared_memory.records import (
    ANNOUNCED,
    ARRIVED,
    DONE,
    EARLY,
    IDLE,
    LEFT,
    REUSE,
    WORKED,
    CallRecord,
    StateRecord,
)
from shardc.native.collectives.work import COPY, RESOLVE, WORK
from shardc.native.drive.drive_loop import DONE_PHASE, START
from shardc.native.llvm.flow import at_byte, define, greatest, number, row_of
from shardc.native.llvm.jit import TargetModule, new_module
from shardc.native.llvm.target import Target
from shardc.native.math.vector import I1, I32, I64, PTR, constant
from shardc.native.threads.meeting import ARRIVE, NOW
from shardc.native.threads.meeting import WAIT_SHARING as WAIT

__all__ = ["HELPER", "MISMATCH", "NO_CALL", "SHARED", "UNFINISHED", "shared_module"]

SHARED, HELPER = "shardc_shared", "shardc_shared_helper"

#: Answers besides 0, 1 and `MISMATCH`: there is no such collective, or it was not started; it was started and not
#: finished.
NO_CALL, UNFINISHED = -2, -3

#: Nanoseconds that a helper waits before it looks whether it shall end.
_HELPER_PATIENCE = 20_000_000
_VOID = ir.VoidType()
#: As many cores as one likes.
_ANY = constant(I32, 2**31 - 1)


def shared_module(target: Target | None = None) -> TargetModule:
    """The module of `SHARED` and `HELPER`; it needs `shardc.native.threads.meeting` and
    `shardc.native.collectives.work`.
    """
    module = new_module("shared", target)
    for name, arguments, result in (
        (WAIT, [PTR, I32, I64, I64, I32], I1),
        (ARRIVE, [PTR, I32], _VOID),
        (NOW, [], I64),
        (WORK, [PTR, PTR, PTR, I64, I64], _VOID),
        (RESOLVE, [PTR, I64, PTR], _VOID),
        (COPY, [PTR, PTR, I64, I64], _VOID),
    ):
        ir.Function(module, ir.FunctionType(result, arguments), name)
    for emit in (
        emit_mark, emit_publish, emit_collect, emit_pieces, emit_work, emit_unstage, _emit_complete, _emit_await,
        _emit_begin, _emit_hand_over, _emit_perform, _emit_helper,
    ):  # fmt: skip
        emit(module)
    return module


def _emit_complete(module: ir.Module) -> None:
    """``i32 complete(ptr place, ptr state, ptr call, i64 now, i64 end)``: the rest of an announced collective."""
    _, b = define(module, "complete", [PTR, PTR, PTR, I64, I64], I32, internal=True)
    place, state, address, now, end = b.function.args
    run = CollectiveRun.of(b, state, address)
    call, spin, cores = run.call, run.state.get("spin"), b.trunc(run.state.get("cores"), I32)
    wait, mark = function_of(module, WAIT), function_of(module, "mark")
    direct = b.icmp_signed("!=", call.get("direct"), number(0))

    def wait_for(meeting: ir.Value, target: ir.Value, what: int, since: ir.Value) -> None:
        with b.if_then(equals(b, call.get("resumed"), 0)):
            b.call(mark, [place, state, address, number(what), since])
        met = b.call(wait, [meeting, target, spin, end, cores])
        with b.if_then(b.not_(met), likely=False):
            call.put("resumed", 1)
            answer_with(b, 1)
        call.put("resumed", 0)

    with b.if_then(equals(b, call.get("stage"), ANNOUNCED)):
        wait_for(run.meeting(ARRIVED), run.target(1), ARRIVING, now)
        b.call(mark, [place, state, address, number(WORKING), now])
        code = b.call(function_of(module, "collect"), [state, address])
        with b.if_then(b.icmp_signed("!=", code, constant(I32, 0)), likely=False):
            b.ret(code)
        begin = b.call(function_of(module, NOW), [])
        b.call(function_of(module, "work"), [state, address])
        with b.if_then(b.icmp_signed("!=", call.get("started"), number(0))):
            end_of_work = b.call(function_of(module, NOW), [])
            skew = greatest(b, b.sub(call.get("latest"), call.get("when")), number(0))
            alone = b.add(skew, b.sub(end_of_work, begin))
            helped = b.sub(end_of_work, call.get("when"))
            taken = b.select(equals(b, call.get("handed"), 0), alone, helped)
            call.put("transfers", b.add(call.get("transfers"), number(1)))
            call.put("transfer_ns", b.add(call.get("transfer_ns"), taken))
        call.put("stage", WORKED)
    with b.if_then(b.and_(direct, b.icmp_signed(">", run.channel.get("members"), number(1)))):
        everything = b.trunc(b.add(call.get("base"), call.get("pieces")), I32)
        wait_for(run.meeting(DONE), everything, FINISHING, b.call(function_of(module, NOW), []))
        b.call(function_of(module, "unstage"), [state, address])
    b.call(function_of(module, ARRIVE), [run.meeting(LEFT), run.target(1)])
    call.put("stage", IDLE)
    count = at_byte(b, place, number(row_offset("completed") - row_offset("state")))
    b.store(b.add(b.load(count, typ=I64), number(1)), count)
    answer_with(b, 0)


def _emit_await(module: ir.Module) -> None:
    """``i32 await(ptr place, ptr state, ptr call, i64 now, i64 end)``: the same, also when the helper has it."""
    _, b = define(module, "await", [PTR, PTR, PTR, I64, I64], I32, internal=True)
    place, state, address, now, end = b.function.args
    run = CollectiveRun.of(b, state, address)
    call = run.call
    code = b.alloca(I32)
    with b.if_else(equals(b, call.get("handed"), 0)) as (mine, helpers):
        with mine:
            b.store(b.call(function_of(module, "complete"), [place, state, address, now, end]), code)
        with helpers:
            target = b.trunc(call.get("runs"), I32)
            b.call(function_of(module, "mark"), [place, state, address, number(FINISHING), call.get("when")])
            _emit_show_helper(b, run.state.get("row"))
            met = b.call(function_of(module, WAIT), [call.at("done"), target, run.state.get("spin"), end, _ANY])
            with b.if_then(b.not_(met), likely=False):
                answer_with(b, 1)
            b.store(b.trunc(call.get("answer"), I32), code)
            call.put("handed", 0)
    answer = b.load(code, typ=I32)
    with b.if_then(b.icmp_signed("==", answer, constant(I32, 0)), likely=True):
        b.store(ir.Constant(PTR, None), b.gep(run.channel.get("pending"), [run.slot], source_etype=PTR))
    b.ret(answer)


def _emit_show_helper(b: ir.IRBuilder, row: ir.Value) -> None:
    """Who waits for the helper waits for what the helper waits for: its part of our row is copied."""
    waits = b.load(at_byte(b, row, number(row_offset("helper_state"))), typ=I64)
    with b.if_then(b.or_(equals(b, waits, ARRIVING), equals(b, waits, FINISHING))):
        for name in ("program", "channel", "sequence", "index", "since", "state"):
            value = b.load(at_byte(b, row, number(row_offset(f"helper_{name}"))), typ=I64)
            b.store(value, at_byte(b, row, number(row_offset(name))))


def _emit_begin(module: ir.Module) -> None:
    """``i32 begin(ptr place, ptr state, ptr call, i64 now, i64 end)``: announce a collective.

    Its slot may still be in use by one that was started `SLOTS` collectives ago: that one is finished first.
    """
    _, b = define(module, "begin", [PTR, PTR, PTR, I64, I64], I32, internal=True)
    place, state, address, now, end = b.function.args
    run = CollectiveRun.of(b, state, address)
    call, channel = run.call, run.channel
    with b.if_then(equals(b, call.get("stage"), IDLE)):
        call.put("started", 0)
        sequence = channel.get("sequence")
        call.put("sequence", sequence)
        channel.put("sequence", b.add(sequence, number(1)))
        base = b.gep(channel.get("bases"), [run.slot], source_etype=I64)
        before = b.load(base, typ=I64)
        call.put("base", before)
        b.store(b.add(before, call.get("pieces")), base)
        call.put("stage", REUSE)
    pending = b.gep(channel.get("pending"), [run.slot], source_etype=PTR)
    earlier = b.load(pending, typ=PTR)
    with b.if_then(b.not_(is_null(b, earlier)), likely=False):
        code = b.call(function_of(module, "await"), [place, state, earlier, now, end])
        with b.if_then(b.icmp_signed("!=", code, constant(I32, 0))):
            b.ret(code)
        RecordView(b, earlier, CallRecord).put("stage", EARLY)
    cores = b.trunc(run.state.get("cores"), I32)
    arguments = [run.meeting(LEFT), run.target(0), run.state.get("spin"), end, cores]
    met = b.call(function_of(module, WAIT), arguments)
    with b.if_then(b.not_(met), likely=False):
        with b.if_then(equals(b, call.get("resumed"), 0)):
            b.call(function_of(module, "mark"), [place, state, address, number(ARRIVING), now])
            call.put("resumed", 1)
        answer_with(b, 1)
    call.put("resumed", 0)
    call.put("when", now)
    b.call(function_of(module, "publish"), [state, address])
    b.store(address, pending)
    call.put("stage", ANNOUNCED)
    b.call(function_of(module, ARRIVE), [run.meeting(ARRIVED), run.target(1)])
    answer_with(b, 0)


def _emit_hand_over(module: ir.Module) -> None:
    """``void hand_over(ptr state, ptr call)``: the helper shall complete it, where there is one and it is worth it."""
    _, b = define(module, "hand_over", [PTR, PTR], internal=True)
    run = CollectiveRun.of(b, *b.function.args)
    call, state = run.call, run.state
    worth = b.and_(equals(b, state.get("helps"), 1), b.icmp_signed("!=", call.get("direct"), number(0)))
    with b.if_then(worth):
        call.put("handed", 1)
        call.put("runs", b.add(call.get("runs"), number(1)))
        count = state.get("handed")
        place = b.gep(state.get("queue"), [b.and_(count, state.get("mask"))], source_etype=PTR)
        b.store(call.address, place)
        following = b.add(count, number(1))
        state.put("handed", following)
        b.call(function_of(module, ARRIVE), [state.at("posted"), b.trunc(following, I32)])
    b.ret_void()


def _emit_perform(module: ir.Module) -> None:
    """`SHARED`."""
    _, b = define(module, SHARED, [PTR, I32, I32, I64], I32)
    state, index, phase, deadline = b.function.args
    view = RecordView(b, state, StateRecord)
    wide, part = b.sext(index, I64), b.sext(phase, I64)
    with b.if_then(b.icmp_unsigned(">=", wide, view.get("count")), likely=False):
        answer_with(b, NO_CALL)
    address = row_of(b, view.get("calls"), wide)
    with b.if_then(is_null(b, address), likely=False):
        answer_with(b, NO_CALL)
    call = RecordView(b, address, CallRecord)
    place = at_byte(b, view.get("row"), number(row_offset("state")))
    b.store(part, at_byte(b, place, number(row_offset("phase") - row_offset("state"))))
    now = b.call(function_of(module, NOW), [])
    arguments = [place, state, address, now, b.add(now, deadline)]
    starts = equals(b, part, START)
    stage = call.get("stage")
    with b.if_else(equals(b, part, DONE_PHASE)) as (second, first):
        with second:
            with b.if_then(equals(b, stage, EARLY), likely=False):
                call.put("stage", IDLE)
                answer_with(b, 0)
            idle = b.and_(b.icmp_signed("<", stage, number(ANNOUNCED)), equals(b, call.get("handed"), 0))
            with b.if_then(idle, likely=False):
                answer_with(b, NO_CALL)
        with first:
            fresh = b.icmp_signed("<", stage, number(ANNOUNCED))
            fresh = b.and_(fresh, equals(b, call.get("handed"), 0))
            with b.if_else(fresh) as (begins, goes_on):
                with begins:
                    code = b.call(function_of(module, "begin"), arguments)
                    with b.if_then(b.icmp_signed("!=", code, constant(I32, 0)), likely=False):
                        b.ret(code)
                with goes_on, b.if_then(starts):
                    answer_with(b, UNFINISHED)
    with b.if_then(starts):
        call.put("started", 1)
        b.call(function_of(module, "hand_over"), [state, address])
        b.store(number(COMPUTING), place)
        answer_with(b, 0)
    code = b.call(function_of(module, "await"), arguments)
    with b.if_then(b.icmp_signed("==", code, constant(I32, 0)), likely=True):
        b.store(number(COMPUTING), place)
    b.ret(code)


def _emit_helper(module: ir.Module) -> None:
    """`HELPER`: ``ptr (ptr state)``, the thread that completes what is handed to it, in order, until ``stop``."""
    _, b = define(module, HELPER, [PTR], PTR)
    (state,) = b.function.args
    view = RecordView(b, state, StateRecord)
    place = at_byte(b, view.get("row"), number(row_offset("helper_state")))
    taken = b.alloca(I64)
    b.store(number(0), taken)
    top, look, take, again, over, bye = (
        b.append_basic_block(n) for n in ("top", "look", "take", "again", "over", "bye")
    )
    now_of = function_of(module, NOW)
    b.branch(top)
    b.position_at_end(top)
    count = b.add(b.load(taken, typ=I64), number(1))
    end = b.add(b.call(now_of, []), number(_HELPER_PATIENCE))
    met = b.call(function_of(module, WAIT), [view.at("posted"), b.trunc(count, I32), view.get("spin"), end, _ANY])
    b.branch(look)
    b.position_at_end(look)
    stop = b.load_atomic(view.at("stop"), "acquire", 8, typ=I64)
    b.cbranch(equals(b, stop, 0), take, bye)
    b.position_at_end(take)
    chosen = b.append_basic_block("chosen")
    b.cbranch(met, chosen, top)
    b.position_at_end(chosen)
    address = row_of(b, view.get("queue"), b.and_(b.load(taken, typ=I64), view.get("mask")))
    call = RecordView(b, address, CallRecord)
    b.branch(again)
    b.position_at_end(again)
    now = b.call(now_of, [])
    code = b.call(function_of(module, "complete"), [place, state, address, now, b.add(now, number(_HELPER_PATIENCE))])
    stop = b.load_atomic(view.at("stop"), "acquire", 8, typ=I64)
    waits = b.and_(b.icmp_signed("==", code, constant(I32, 1)), equals(b, stop, 0))
    b.cbranch(waits, again, over)
    b.position_at_end(over)
    call.put("answer", b.sext(code, I64))
    b.store(number(COMPUTING), place)
    b.call(function_of(module, ARRIVE), [call.at("done"), b.trunc(call.get("runs"), I32)])
    b.store(b.add(b.load(taken, typ=I64), number(1)), taken)
    b.branch(top)
    b.position_at_end(bye)
    b.call(function_of(module, ARRIVE), [view.at("ended"), constant(I32, 1)])
    b.ret(ir.Constant(PTR, None))
