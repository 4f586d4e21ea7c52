"""What the native collective executor of ranks of one node is put together from; see
`shardc.collectives.shared_memory.native_executor`.

Telling the others (``publish``), reading what they told (``collect``), the work and who does it (``work``, ``pieces``),
results outside of the heap (``unstage``), and the row in the control table (``mark``).
"""

from __future__ import annotations

import ctypes

from llvmlite import ir

from shardc.collectives.call.control_table import row_offset
from shardc.collectives.shared_memory.record_views import (
    CollectiveRun,
    RecordView,
    answer_with,
    entry_of,
    equals,
    function_of,
)
from shardc.collectives.shared_memory.records import CLAIMED, DONE, HEAD, CallRecord, ShareRecord, StateRecord
from shardc.native.collectives.work import COPY, RESOLVE, WORK
from shardc.native.llvm.flow import at_byte, counted, define, greatest, number, row_of
from shardc.native.math.vector import I1, I32, I64, PTR, constant
from shardc.native.threads.meeting import ARRIVE

__all__ = ["MISMATCH", "emit_collect", "emit_mark", "emit_pieces", "emit_publish", "emit_unstage", "emit_work"]

#: The answer when another process is in another collective.
MISMATCH = -1


def emit_mark(module: ir.Module) -> None:
    """``void mark(ptr place, ptr state, ptr call, i64 what, i64 since)``: say in the control table where we are.

    ``place`` is the row's part of this thread.
    """
    _, b = define(module, "mark", [PTR, PTR, PTR, I64, I64], internal=True)
    place, state, call, what, since = b.function.args
    run = CollectiveRun.of(b, state, call)
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


def _head(run: CollectiveRun) -> dict[str, ir.Value]:
    """What the processes of a collective must have alike."""
    of_call = {name: run.call.get(name) for name in ("sequence", "index", "signature")}
    return of_call | {name: run.state.get(name) for name in ("step", "values", "weighted")}


def emit_publish(module: ir.Module) -> None:
    """``void publish(ptr state, ptr call)``: into my record goes what the others need."""
    _, b = define(module, "publish", [PTR, PTR], internal=True)
    run = CollectiveRun.of(b, *b.function.args)
    call, channel = run.call, run.channel
    entries, own, sizes = call.get("entries"), call.get("own"), call.get("sizes")
    b.call(function_of(module, RESOLVE), [call.get("cells"), entries, own])
    record = run.record_of(channel.get("position"))
    for n, value in enumerate([*_head(run).values(), call.get("when")]):
        b.store(value, entry_of(b, record, number(n)))
    b.store(number(0), at_byte(b, record, number(CLAIMED)))
    body, offset = at_byte(b, record, number(HEAD)), b.alloca(I64)
    copy = function_of(module, COPY)
    with b.if_else(equals(b, call.get("direct"), 0)) as (small, direct):
        with small:
            mail = call.get("mail")
            with counted(b, number(0), call.get("operands")) as e:
                to = at_byte(b, body, row_of(b, mail, e, I64))
                b.call(copy, [to, row_of(b, own, e), row_of(b, sizes, e, I64), number(0)])
        with direct:
            heap, alone = run.state.get("heap"), equals(b, channel.get("members"), 1)
            operands, staging = call.get("operands"), call.get("staging")
            with counted(b, number(0), entries) as e:
                address = row_of(b, own, e, I64)
                nobody = equals(b, address, 0)
                b.store(b.select(nobody, number(0), b.sub(address, heap)), offset)
                inside = b.icmp_unsigned("<", b.sub(address, heap), run.state.get("heap_bytes"))
                with b.if_then(b.not_(b.or_(b.or_(alone, nobody), inside))):
                    staged = row_of(b, staging, e)
                    b.store(b.sub(b.ptrtoint(staged, I64), heap), offset)
                    with b.if_then(b.icmp_signed("<", e, operands)):
                        b.call(copy, [staged, row_of(b, own, e), row_of(b, sizes, e, I64), number(0)])
                b.store(b.load(offset, typ=I64), entry_of(b, body, e))
    b.ret_void()


def emit_collect(module: ir.Module) -> None:
    """``i32 collect(ptr state, ptr call)``: read the others' records; `MISMATCH` if one is of another collective."""
    _, b = define(module, "collect", [PTR, PTR], I32, internal=True)
    run = CollectiveRun.of(b, *b.function.args)
    call, channel = run.call, run.channel
    at, imported, width = call.get("at"), call.get("imported"), call.get("width")
    entries_of, heaps = call.get("entries_of"), channel.get("heaps")
    direct = b.icmp_signed("!=", call.get("direct"), number(0))
    heads = _head(run)
    call.put("latest", 0)
    with counted(b, number(0), channel.get("members")) as m:
        record = run.record_of(m)
        b.store(record, b.gep(at, [m], source_etype=PTR))
        found = [row_of(b, record, number(n), I64) for n in range(len(heads))]
        same = constant(I1, 1)
        for mine, other in zip(heads.values(), found, strict=True):
            same = b.and_(same, b.icmp_signed("==", mine, other))
        with b.if_then(b.not_(same)):
            for name, value in zip(("member", *heads), (m, *found), strict=True):
                run.state.put(f"found_{name}", value)
            answer_with(b, MISMATCH)
        when = row_of(b, record, number(len(heads)), I64)
        call.put("latest", greatest(b, call.get("latest"), when))
        with b.if_then(direct):
            heap = row_of(b, heaps, m, I64)
            row = b.gep(imported, [b.mul(m, width)], source_etype=I64)
            body = at_byte(b, record, number(HEAD))
            with counted(b, number(0), row_of(b, entries_of, m, I64)) as e:
                offset = row_of(b, body, e, I64)
                b.store(b.select(equals(b, offset, 0), number(0), b.add(heap, offset)), entry_of(b, row, e))
    answer_with(b, 0)


def emit_pieces(module: ir.Module) -> None:
    """``void pieces(ptr call, i64, i64)``: do pieces of a direct collective's work while there are any, as the pool
    calls it.

    The pieces of all its groups are numbered, and every member has a range of them. Who takes the next one of a range
    says so in the member's record; a process begins with its own and goes on with those of who comes after it. One that
    comes late finds everything done by those who would have waited for it.
    """
    _, b = define(module, "pieces", [PTR, I64, I64], internal=True)
    address = b.function.args[0]
    run = CollectiveRun.of(b, address, address)
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
    share = RecordView(b, b.load(place, typ=PTR), ShareRecord)
    inside = b.sub(piece, share.get("first"))
    b.cbranch(b.icmp_signed("<", inside, share.get("pieces")), work, further)
    b.position_at_end(further)
    b.store(at_byte(b, share.address, number(ctypes.sizeof(ShareRecord))), place)
    b.branch(find)
    b.position_at_end(work)
    tables = [share.get(n) for n in ("work", "operands", "results")]
    b.call(function_of(module, WORK), [*tables, inside, share.get("pieces")])
    b.call(function_of(module, ARRIVE), [done, target])
    b.branch(look)
    b.position_at_end(over)
    b.ret_void()
    return function


def emit_work(module: ir.Module) -> None:
    """``void work(ptr state, ptr call)``: pieces of the work of all groups; of a small collective that of my groups."""
    _, b = define(module, "work", [PTR, PTR], internal=True)
    state, address = b.function.args
    call, process = RecordView(b, address, CallRecord), RecordView(b, state, StateRecord)
    resolve, pieces = function_of(module, RESOLVE), function_of(module, "pieces")
    kind = ir.FunctionType(ir.VoidType(), [PTR, PTR, I64, I64])
    parallel = b.inttoptr(b.load(process.at("parallel"), typ=I64), kind.as_pointer())
    shares, step = call.get("shares"), number(ctypes.sizeof(ShareRecord))
    direct, threads = b.icmp_signed("!=", call.get("direct"), number(0)), call.get("threads")
    with counted(b, number(0), call.get("share_count")) as k:
        share = RecordView(b, at_byte(b, shares, b.mul(k, step)), ShareRecord)
        for cells, out in (("sources", "operands"), ("targets", "results")):
            b.call(resolve, [share.get(cells), share.get("count"), share.get(out)])
        with b.if_then(b.not_(direct)):
            tables = [share.get(n) for n in ("work", "operands", "results")]
            b.call(function_of(module, WORK), [*tables, number(0), number(1)])
    with b.if_then(direct), b.if_else(b.icmp_signed(">", threads, number(1))) as (several, one):
        with several:
            b.call(parallel, [pieces, address, threads, call.get("nanoseconds")])
        with one:
            b.call(pieces, [address, number(0), number(1)])
    b.ret_void()


def emit_unstage(module: ir.Module) -> None:
    """``void unstage(ptr state, ptr call)``: results that lie outside of the heap get what was staged for them."""
    _, b = define(module, "unstage", [PTR, PTR], internal=True)
    run = CollectiveRun.of(b, *b.function.args)
    call = run.call
    own, sizes, staging = call.get("own"), call.get("sizes"), call.get("staging")
    heap, size = run.state.get("heap"), run.state.get("heap_bytes")
    with counted(b, call.get("operands"), call.get("entries")) as e:
        address = row_of(b, own, e, I64)
        outside = b.icmp_unsigned(">=", b.sub(address, heap), size)
        with b.if_then(b.and_(outside, b.not_(equals(b, address, 0)))):
            arguments = [row_of(b, own, e), row_of(b, staging, e), row_of(b, sizes, e, I64), number(0)]
            b.call(function_of(module, COPY), arguments)
    b.ret_void()
