"""The native performer of ranks of one node. ::

    i32 shardc_shared(ptr state, i32 index, i32 phase, i64 deadline)

(`shardc.native.drive` says what is asked of it.) Every rank can address the heaps of the others
(`shardc.collectives.heap`), so a collective is: tell the others where my operands and results lie, wait until all have,
do pieces of the work into everybody's results while there are any, wait until all are done. Small operands are copied
into memory that everybody reads, and every rank does all of the work for itself: one wait instead of two.

Where a program has started a collective and does something else meanwhile, the first half is done at the start, the
rest at the end, or by a thread of its own (``shardc_shared_helper``) in between.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from shardc.collectives.control import ARRIVING, COMPUTING, FINISHING, WORKING, row_offset
from shardc.collectives.shared_records import (
    ANNOUNCED,
    ARRIVED,
    CLAIMED,
    DONE,
    EARLY,
    HEAD,
    IDLE,
    LEFT,
    REUSE,
    SLOT_BYTES,
    SLOTS,
    WORKED,
    CallRecord,
    ChannelRecord,
    ShareRecord,
    StateRecord,
)
from shardc.native.drive import DONE_PHASE, START
from shardc.native.flow import at_byte, counted, define, greatest, number, row_of
from shardc.native.jit import TargetModule, new_module
from shardc.native.meeting import ARRIVE, NOW
from shardc.native.meeting import WAIT_SHARING as WAIT
from shardc.native.target import Target
from shardc.native.vector import I1, I32, I64, PTR, constant
from shardc.native.work import COPY, RESOLVE, WORK

__all__ = ["HELPER", "MISMATCH", "NO_CALL", "SHARED", "UNFINISHED", "shared_module"]

SHARED, HELPER = "shardc_shared", "shardc_shared_helper"

#: Answers besides 0 and 1: another process is in another collective; there is no such collective, or it was not
#: started; it was started and not finished.
MISMATCH, NO_CALL, UNFINISHED = -1, -2, -3

#: Nanoseconds that a helper waits before it looks whether it shall end.
_HELPER_PATIENCE = 20_000_000
_VOID = ir.VoidType()
#: As many cores as one likes.
_ANY = constant(I32, 2**31 - 1)


@dataclass(frozen=True, slots=True)
class _View:
    """A record in memory, field by field."""

    b: ir.IRBuilder
    address: ir.Value
    kind: type[ctypes.Structure]

    def at(self, name: str) -> ir.Value:
        return at_byte(self.b, self.address, number(getattr(self.kind, name).offset))

    def get(self, name: str) -> ir.Value:
        pointer = any(f[0] == name and f[1] is ctypes.c_void_p for f in self.kind._fields_)
        return self.b.load(self.at(name), typ=PTR if pointer else I64)

    def put(self, name: str, value: ir.Value | int) -> None:
        self.b.store(number(value) if isinstance(value, int) else value, self.at(name))


@dataclass(frozen=True, slots=True)
class _Run:
    """A call that is under way, as the functions below see it."""

    b: ir.IRBuilder
    state: _View
    call: _View
    channel: _View

    @staticmethod
    def of(b: ir.IRBuilder, state: ir.Value, call: ir.Value) -> _Run:
        view = _View(b, call, CallRecord)
        return _Run(b, _View(b, state, StateRecord), view, _View(b, view.get("channel"), ChannelRecord))

    @property
    def slot(self) -> ir.Value:
        return self.b.and_(self.call.get("sequence"), number(SLOTS - 1))

    def meeting(self, offset: int) -> ir.Value:
        """The address of a meeting of the slot."""
        place = self.b.add(self.b.mul(self.slot, number(SLOT_BYTES)), number(offset))
        return at_byte(self.b, self.channel.get("slots"), place)

    def target(self, rounds: int) -> ir.Value:
        """What a meeting's counter is when all have come for the last time of this round, ``rounds`` rounds later."""
        b = self.b
        past = b.ashr(self.call.get("sequence"), number(SLOTS.bit_length() - 1))
        return b.trunc(b.mul(self.channel.get("members"), b.add(past, number(rounds))), I32)

    def record_of(self, member: ir.Value) -> ir.Value:
        """The record of a member."""
        first = row_of(self.b, self.channel.get("records"), member)
        return at_byte(self.b, first, self.b.mul(self.slot, self.channel.get("stride")))


def shared_module(target: Target | None = None) -> TargetModule:
    """The module of `SHARED` and `HELPER`; it needs `shardc.native.meeting` and `shardc.native.work`."""
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
        _emit_mark, _emit_publish, _emit_collect, _emit_pieces, _emit_work, _emit_unstage, _emit_complete, _emit_await,
        _emit_begin, _emit_hand_over, _emit_perform, _emit_helper,
    ):  # fmt: skip
        emit(module)
    return module


def _function(module: ir.Module, name: str) -> Any:
    return module.globals[name]


def _entry(b: ir.IRBuilder, table: ir.Value, index: ir.Value) -> ir.Value:
    return b.gep(table, [index], source_etype=I64)


def _is(b: ir.IRBuilder, value: ir.Value, n: int) -> ir.Value:
    return b.icmp_signed("==", value, number(n))


def _is_null(b: ir.IRBuilder, pointer: ir.Value) -> ir.Value:
    return b.icmp_unsigned("==", b.ptrtoint(pointer, I64), number(0))


def _answer(b: ir.IRBuilder, value: int) -> None:
    b.ret(constant(I32, value))


def _emit_mark(module: ir.Module) -> None:
    """``void mark(ptr place, ptr state, ptr call, i64 what, i64 since)``: say in the control table where we are.

    ``place`` is the row's part of this thread.
    """
    _, b = define(module, "mark", [PTR, PTR, PTR, I64, I64], internal=True)
    place, state, call, what, since = b.function.args
    run = _Run.of(b, state, call)
    values = {
        "program": run.state.get("program"),
        "channel": run.channel.get("number"),
        "sequence": run.call.get("sequence"),
        "index": run.call.get("index"),
        "since": since,
        "state": what,
    }
    for name, value in values.items():
        b.store(value, at_byte(b, place, number(row_offset(name) - row_offset("state"))))
    b.ret_void()


def _emit_publish(module: ir.Module) -> None:
    """``void publish(ptr state, ptr call)``: into my record goes what the others need."""
    _, b = define(module, "publish", [PTR, PTR], internal=True)
    run = _Run.of(b, *b.function.args)
    call, channel = run.call, run.channel
    entries, own, sizes = call.get("entries"), call.get("own"), call.get("sizes")
    b.call(_function(module, RESOLVE), [call.get("cells"), entries, own])
    record = run.record_of(channel.get("position"))
    for n, name in enumerate(("sequence", "index", "signature", "when")):
        b.store(call.get(name), _entry(b, record, number(n)))
    b.store(number(0), at_byte(b, record, number(CLAIMED)))
    body, offset = at_byte(b, record, number(HEAD)), b.alloca(I64)
    copy = _function(module, COPY)
    with b.if_else(_is(b, call.get("direct"), 0)) as (small, direct):
        with small:
            mail = call.get("mail")
            with counted(b, number(0), call.get("operands")) as e:
                to = at_byte(b, body, row_of(b, mail, e, I64))
                b.call(copy, [to, row_of(b, own, e), row_of(b, sizes, e, I64), number(0)])
        with direct:
            heap, alone = run.state.get("heap"), _is(b, channel.get("members"), 1)
            operands, staging = call.get("operands"), call.get("staging")
            with counted(b, number(0), entries) as e:
                address = row_of(b, own, e, I64)
                nobody = _is(b, address, 0)
                b.store(b.select(nobody, number(0), b.sub(address, heap)), offset)
                inside = b.icmp_unsigned("<", b.sub(address, heap), run.state.get("heap_bytes"))
                with b.if_then(b.not_(b.or_(b.or_(alone, nobody), inside))):
                    staged = row_of(b, staging, e)
                    b.store(b.sub(b.ptrtoint(staged, I64), heap), offset)
                    with b.if_then(b.icmp_signed("<", e, operands)):
                        b.call(copy, [staged, row_of(b, own, e), row_of(b, sizes, e, I64), number(0)])
                b.store(b.load(offset, typ=I64), _entry(b, body, e))
    b.ret_void()


def _emit_collect(module: ir.Module) -> None:
    """``i32 collect(ptr state, ptr call)``: read the others' records; `MISMATCH` if one is of another collective."""
    _, b = define(module, "collect", [PTR, PTR], I32, internal=True)
    run = _Run.of(b, *b.function.args)
    call, channel = run.call, run.channel
    at, imported, width = call.get("at"), call.get("imported"), call.get("width")
    entries_of, heaps = call.get("entries_of"), channel.get("heaps")
    direct = b.icmp_signed("!=", call.get("direct"), number(0))
    heads = [call.get(name) for name in ("sequence", "index", "signature")]
    call.put("latest", 0)
    with counted(b, number(0), channel.get("members")) as m:
        record = run.record_of(m)
        b.store(record, b.gep(at, [m], source_etype=PTR))
        found = [row_of(b, record, number(n), I64) for n in range(len(heads))]
        same = constant(I1, 1)
        for mine, other in zip(heads, found, strict=True):
            same = b.and_(same, b.icmp_signed("==", mine, other))
        with b.if_then(b.not_(same)):
            for name, value in zip(("member", "sequence", "index", "signature"), (m, *found), strict=True):
                run.state.put(f"found_{name}", value)
            _answer(b, MISMATCH)
        when = row_of(b, record, number(len(heads)), I64)
        call.put("latest", greatest(b, call.get("latest"), when))
        with b.if_then(direct):
            heap = row_of(b, heaps, m, I64)
            row = b.gep(imported, [b.mul(m, width)], source_etype=I64)
            body = at_byte(b, record, number(HEAD))
            with counted(b, number(0), row_of(b, entries_of, m, I64)) as e:
                offset = row_of(b, body, e, I64)
                b.store(b.select(_is(b, offset, 0), number(0), b.add(heap, offset)), _entry(b, row, e))
    _answer(b, 0)


def _emit_pieces(module: ir.Module) -> None:
    """``void pieces(ptr call, i64, i64)``: do pieces of a direct collective's work while there are any, as the pool
    calls it.

    The pieces of all its groups are numbered, and every member has a range of them. Who takes the next one of a range
    says so in the member's record; a process begins with its own and goes on with those of who comes after it. One that
    comes late finds everything done by those who would have waited for it.
    """
    _, b = define(module, "pieces", [PTR, I64, I64], internal=True)
    address = b.function.args[0]
    run = _Run.of(b, address, address)
    call, channel = run.call, run.channel
    done, total, members = run.meeting(DONE), call.get("pieces"), channel.get("members")
    target = b.trunc(b.add(call.get("base"), total), I32)
    take = _emit_take(module)
    with counted(b, number(0), members) as k:
        member = b.srem(b.add(channel.get("position"), k), members)
        first, end = (b.sdiv(b.mul(total, m), members) for m in (member, b.add(member, number(1))))
        claimed = at_byte(b, row_of(b, call.get("at"), member), number(CLAIMED))
        b.call(take, [call.get("shares"), claimed, first, b.sub(end, first), done, target])
    b.ret_void()


def _emit_take(module: ir.Module) -> ir.Function:
    """``void take(ptr shares, ptr claimed, i64 first, i64 count, ptr done, i32 target)``: pieces of one range."""
    function, b = define(module, "take", [PTR, PTR, I64, I64, PTR, I32], internal=True)
    shares, claimed, first, count, done, target = function.args
    place = b.alloca(PTR)
    look, claim, mine, find, further, work, over = (
        b.append_basic_block(n) for n in ("look", "claim", "mine", "find", "further", "work", "over")
    )
    b.branch(look)
    b.position_at_end(look)
    b.cbranch(b.icmp_signed("<", b.load_atomic(claimed, "monotonic", 8, typ=I64), count), claim, over)
    b.position_at_end(claim)
    taken = b.atomic_rmw("add", claimed, number(1), "acq_rel")
    b.cbranch(b.icmp_signed("<", taken, count), mine, over)
    b.position_at_end(mine)
    piece = b.add(first, taken)
    b.store(shares, place)
    b.branch(find)
    b.position_at_end(find)
    share = _View(b, b.load(place, typ=PTR), ShareRecord)
    inside = b.sub(piece, share.get("first"))
    b.cbranch(b.icmp_signed("<", inside, share.get("pieces")), work, further)
    b.position_at_end(further)
    b.store(at_byte(b, share.address, number(ctypes.sizeof(ShareRecord))), place)
    b.branch(find)
    b.position_at_end(work)
    tables = [share.get(n) for n in ("work", "operands", "results")]
    b.call(_function(module, WORK), [*tables, inside, share.get("pieces")])
    b.call(_function(module, ARRIVE), [done, target])
    b.branch(look)
    b.position_at_end(over)
    b.ret_void()
    return function


def _emit_work(module: ir.Module) -> None:
    """``void work(ptr state, ptr call)``: pieces of the work of all groups; of a small collective that of my groups."""
    _, b = define(module, "work", [PTR, PTR], internal=True)
    state, address = b.function.args
    call, process = _View(b, address, CallRecord), _View(b, state, StateRecord)
    resolve, pieces = _function(module, RESOLVE), _function(module, "pieces")
    kind = ir.FunctionType(_VOID, [PTR, PTR, I64, I64])
    parallel = b.inttoptr(b.load(process.at("parallel"), typ=I64), kind.as_pointer())
    shares, step = call.get("shares"), number(ctypes.sizeof(ShareRecord))
    direct, threads = b.icmp_signed("!=", call.get("direct"), number(0)), call.get("threads")
    with counted(b, number(0), call.get("share_count")) as k:
        share = _View(b, at_byte(b, shares, b.mul(k, step)), ShareRecord)
        for cells, out in (("sources", "operands"), ("targets", "results")):
            b.call(resolve, [share.get(cells), share.get("count"), share.get(out)])
        with b.if_then(b.not_(direct)):
            tables = [share.get(n) for n in ("work", "operands", "results")]
            b.call(_function(module, WORK), [*tables, number(0), number(1)])
    with b.if_then(direct), b.if_else(b.icmp_signed(">", threads, number(1))) as (several, one):
        with several:
            b.call(parallel, [pieces, address, threads, call.get("nanoseconds")])
        with one:
            b.call(pieces, [address, number(0), number(1)])
    b.ret_void()


def _emit_unstage(module: ir.Module) -> None:
    """``void unstage(ptr state, ptr call)``: results that lie outside of the heap get what was staged for them."""
    _, b = define(module, "unstage", [PTR, PTR], internal=True)
    run = _Run.of(b, *b.function.args)
    call = run.call
    own, sizes, staging = call.get("own"), call.get("sizes"), call.get("staging")
    heap, size = run.state.get("heap"), run.state.get("heap_bytes")
    with counted(b, call.get("operands"), call.get("entries")) as e:
        address = row_of(b, own, e, I64)
        outside = b.icmp_unsigned(">=", b.sub(address, heap), size)
        with b.if_then(b.and_(outside, b.not_(_is(b, address, 0)))):
            arguments = [row_of(b, own, e), row_of(b, staging, e), row_of(b, sizes, e, I64), number(0)]
            b.call(_function(module, COPY), arguments)
    b.ret_void()


def _emit_complete(module: ir.Module) -> None:
    """``i32 complete(ptr place, ptr state, ptr call, i64 now, i64 end)``: the rest of an announced collective."""
    _, b = define(module, "complete", [PTR, PTR, PTR, I64, I64], I32, internal=True)
    place, state, address, now, end = b.function.args
    run = _Run.of(b, state, address)
    call, spin, cores = run.call, run.state.get("spin"), b.trunc(run.state.get("cores"), I32)
    wait, mark = _function(module, WAIT), _function(module, "mark")
    direct = b.icmp_signed("!=", call.get("direct"), number(0))

    def wait_for(meeting: ir.Value, target: ir.Value, what: int, since: ir.Value) -> None:
        with b.if_then(_is(b, call.get("resumed"), 0)):
            b.call(mark, [place, state, address, number(what), since])
        met = b.call(wait, [meeting, target, spin, end, cores])
        with b.if_then(b.not_(met), likely=False):
            call.put("resumed", 1)
            _answer(b, 1)
        call.put("resumed", 0)

    with b.if_then(_is(b, call.get("stage"), ANNOUNCED)):
        wait_for(run.meeting(ARRIVED), run.target(1), ARRIVING, now)
        b.call(mark, [place, state, address, number(WORKING), now])
        code = b.call(_function(module, "collect"), [state, address])
        with b.if_then(b.icmp_signed("!=", code, constant(I32, 0)), likely=False):
            b.ret(code)
        begin = b.call(_function(module, NOW), [])
        b.call(_function(module, "work"), [state, address])
        with b.if_then(b.icmp_signed("!=", call.get("started"), number(0))):
            end_of_work = b.call(_function(module, NOW), [])
            skew = greatest(b, b.sub(call.get("latest"), call.get("when")), number(0))
            alone = b.add(skew, b.sub(end_of_work, begin))
            helped = b.sub(end_of_work, call.get("when"))
            taken = b.select(_is(b, call.get("handed"), 0), alone, helped)
            call.put("transfers", b.add(call.get("transfers"), number(1)))
            call.put("transfer_ns", b.add(call.get("transfer_ns"), taken))
        call.put("stage", WORKED)
    with b.if_then(b.and_(direct, b.icmp_signed(">", run.channel.get("members"), number(1)))):
        everything = b.trunc(b.add(call.get("base"), call.get("pieces")), I32)
        wait_for(run.meeting(DONE), everything, FINISHING, b.call(_function(module, NOW), []))
        b.call(_function(module, "unstage"), [state, address])
    b.call(_function(module, ARRIVE), [run.meeting(LEFT), run.target(1)])
    call.put("stage", IDLE)
    count = at_byte(b, place, number(row_offset("completed") - row_offset("state")))
    b.store(b.add(b.load(count, typ=I64), number(1)), count)
    _answer(b, 0)


def _emit_await(module: ir.Module) -> None:
    """``i32 await(ptr place, ptr state, ptr call, i64 now, i64 end)``: the same, also when the helper has it."""
    _, b = define(module, "await", [PTR, PTR, PTR, I64, I64], I32, internal=True)
    place, state, address, now, end = b.function.args
    run = _Run.of(b, state, address)
    call = run.call
    code = b.alloca(I32)
    with b.if_else(_is(b, call.get("handed"), 0)) as (mine, helpers):
        with mine:
            b.store(b.call(_function(module, "complete"), [place, state, address, now, end]), code)
        with helpers:
            target = b.trunc(call.get("runs"), I32)
            with b.if_then(_is(b, call.get("resumed"), 0)):
                b.call(_function(module, "mark"), [place, state, address, number(FINISHING), now])
            met = b.call(_function(module, WAIT), [call.at("done"), target, run.state.get("spin"), end, _ANY])
            with b.if_then(b.not_(met), likely=False):
                _answer(b, 1)
            b.store(b.trunc(call.get("answer"), I32), code)
            call.put("handed", 0)
    answer = b.load(code, typ=I32)
    with b.if_then(b.icmp_signed("==", answer, constant(I32, 0)), likely=True):
        b.store(ir.Constant(PTR, None), b.gep(run.channel.get("pending"), [run.slot], source_etype=PTR))
    b.ret(answer)


def _emit_begin(module: ir.Module) -> None:
    """``i32 begin(ptr place, ptr state, ptr call, i64 now, i64 end)``: announce a collective.

    Its slot may still be in use by one that was started `SLOTS` collectives ago: that one is finished first.
    """
    _, b = define(module, "begin", [PTR, PTR, PTR, I64, I64], I32, internal=True)
    place, state, address, now, end = b.function.args
    run = _Run.of(b, state, address)
    call, channel = run.call, run.channel
    with b.if_then(_is(b, call.get("stage"), IDLE)):
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
    with b.if_then(b.not_(_is_null(b, earlier)), likely=False):
        code = b.call(_function(module, "await"), [place, state, earlier, now, end])
        with b.if_then(b.icmp_signed("!=", code, constant(I32, 0))):
            b.ret(code)
        _View(b, earlier, CallRecord).put("stage", EARLY)
    cores = b.trunc(run.state.get("cores"), I32)
    arguments = [run.meeting(LEFT), run.target(0), run.state.get("spin"), end, cores]
    met = b.call(_function(module, WAIT), arguments)
    with b.if_then(b.not_(met), likely=False):
        with b.if_then(_is(b, call.get("resumed"), 0)):
            b.call(_function(module, "mark"), [place, state, address, number(ARRIVING), now])
            call.put("resumed", 1)
        _answer(b, 1)
    call.put("resumed", 0)
    call.put("when", now)
    b.call(_function(module, "publish"), [state, address])
    b.store(address, pending)
    call.put("stage", ANNOUNCED)
    b.call(_function(module, ARRIVE), [run.meeting(ARRIVED), run.target(1)])
    _answer(b, 0)


def _emit_hand_over(module: ir.Module) -> None:
    """``void hand_over(ptr state, ptr call)``: the helper shall complete it, where there is one and it is worth it."""
    _, b = define(module, "hand_over", [PTR, PTR], internal=True)
    run = _Run.of(b, *b.function.args)
    call, state = run.call, run.state
    worth = b.and_(_is(b, state.get("helps"), 1), b.icmp_signed("!=", call.get("direct"), number(0)))
    with b.if_then(worth):
        call.put("handed", 1)
        call.put("runs", b.add(call.get("runs"), number(1)))
        count = state.get("handed")
        place = b.gep(state.get("queue"), [b.and_(count, state.get("mask"))], source_etype=PTR)
        b.store(call.address, place)
        following = b.add(count, number(1))
        state.put("handed", following)
        b.call(_function(module, ARRIVE), [state.at("posted"), b.trunc(following, I32)])
    b.ret_void()


def _emit_perform(module: ir.Module) -> None:
    """`SHARED`."""
    _, b = define(module, SHARED, [PTR, I32, I32, I64], I32)
    state, index, phase, deadline = b.function.args
    view = _View(b, state, StateRecord)
    wide, part = b.sext(index, I64), b.sext(phase, I64)
    with b.if_then(b.icmp_unsigned(">=", wide, view.get("count")), likely=False):
        _answer(b, NO_CALL)
    address = row_of(b, view.get("calls"), wide)
    with b.if_then(_is_null(b, address), likely=False):
        _answer(b, NO_CALL)
    call = _View(b, address, CallRecord)
    place = at_byte(b, view.get("row"), number(row_offset("state")))
    b.store(part, at_byte(b, place, number(row_offset("phase") - row_offset("state"))))
    now = b.call(_function(module, NOW), [])
    arguments = [place, state, address, now, b.add(now, deadline)]
    starts = _is(b, part, START)
    stage = call.get("stage")
    with b.if_else(_is(b, part, DONE_PHASE)) as (second, first):
        with second:
            with b.if_then(_is(b, stage, EARLY), likely=False):
                call.put("stage", IDLE)
                _answer(b, 0)
            idle = b.and_(b.icmp_signed("<", stage, number(ANNOUNCED)), _is(b, call.get("handed"), 0))
            with b.if_then(idle, likely=False):
                _answer(b, NO_CALL)
        with first:
            fresh = b.icmp_signed("<", stage, number(ANNOUNCED))
            fresh = b.and_(fresh, _is(b, call.get("handed"), 0))
            with b.if_else(fresh) as (begins, goes_on):
                with begins:
                    code = b.call(_function(module, "begin"), arguments)
                    with b.if_then(b.icmp_signed("!=", code, constant(I32, 0)), likely=False):
                        b.ret(code)
                with goes_on, b.if_then(starts):
                    _answer(b, UNFINISHED)
    with b.if_then(starts):
        call.put("started", 1)
        b.call(_function(module, "hand_over"), [state, address])
        b.store(number(COMPUTING), place)
        _answer(b, 0)
    code = b.call(_function(module, "await"), arguments)
    with b.if_then(b.icmp_signed("==", code, constant(I32, 0)), likely=True):
        b.store(number(COMPUTING), place)
    b.ret(code)


def _emit_helper(module: ir.Module) -> None:
    """`HELPER`: ``ptr (ptr state)``, the thread that completes what is handed to it, in order, until ``stop``."""
    _, b = define(module, HELPER, [PTR], PTR)
    (state,) = b.function.args
    view = _View(b, state, StateRecord)
    place = at_byte(b, view.get("row"), number(row_offset("helper_state")))
    taken = b.alloca(I64)
    b.store(number(0), taken)
    top, look, take, again, over, bye = (
        b.append_basic_block(n) for n in ("top", "look", "take", "again", "over", "bye")
    )
    now_of = _function(module, NOW)
    b.branch(top)
    b.position_at_end(top)
    count = b.add(b.load(taken, typ=I64), number(1))
    end = b.add(b.call(now_of, []), number(_HELPER_PATIENCE))
    met = b.call(_function(module, WAIT), [view.at("posted"), b.trunc(count, I32), view.get("spin"), end, _ANY])
    b.branch(look)
    b.position_at_end(look)
    stop = b.load_atomic(view.at("stop"), "acquire", 8, typ=I64)
    b.cbranch(_is(b, stop, 0), take, bye)
    b.position_at_end(take)
    chosen = b.append_basic_block("chosen")
    b.cbranch(met, chosen, top)
    b.position_at_end(chosen)
    address = row_of(b, view.get("queue"), b.and_(b.load(taken, typ=I64), view.get("mask")))
    call = _View(b, address, CallRecord)
    b.branch(again)
    b.position_at_end(again)
    now = b.call(now_of, [])
    code = b.call(_function(module, "complete"), [place, state, address, now, b.add(now, number(_HELPER_PATIENCE))])
    stop = b.load_atomic(view.at("stop"), "acquire", 8, typ=I64)
    waits = b.and_(b.icmp_signed("==", code, constant(I32, 1)), _is(b, stop, 0))
    b.cbranch(waits, again, over)
    b.position_at_end(over)
    call.put("answer", b.sext(code, I64))
    b.store(number(COMPUTING), place)
    b.call(_function(module, ARRIVE), [call.at("done"), b.trunc(call.get("runs"), I32)])
    b.store(b.add(b.load(taken, typ=I64), number(1)), taken)
    b.branch(top)
    b.position_at_end(bye)
    b.call(_function(module, ARRIVE), [view.at("ended"), constant(I32, 1)])
    b.ret(ir.Constant(PTR, None))
