"""The scheduler of emulated threads, as IR: one native call runs a whole launch.

Blocks run one after another. Of a block, one warp after another makes a step: all of its lanes run until each waits or
is done. Lanes of a warp have to wait at the same site, and so have all threads of a block when nothing else is left to
do; everything else is a fault. In which order blocks, warps and lanes take their turns says the launch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

from shardc.native.gpu.emulated.records import (
    COPY_BYTES,
    FAULT,
    LAUNCH,
    MOST_COPIES,
    STATE,
    THREAD,
    THREAD_BYTES,
    WARP,
    load_field,
    store_field,
)
from shardc.native.llvm.flow import at_byte, counted, define, number
from shardc.native.llvm.jit import new_module
from shardc.native.math.vector import I1, I8, I32, I64, PTR, constant, intrinsic

__all__ = ["ORDERS", "RUN", "scheduler_module"]

#: The function: (launch) -> nothing; what went wrong stands in the launch.
RUN = "shardc_emulated_run"
ORDERS = {"forward": 0, "reverse": 1, "random": 2}
_NULL = ir.Constant(PTR, None)
#: (array of pointers, device, thread) -> the coroutine
_START = ir.FunctionType(PTR, [PTR, I32, PTR])


def scheduler_module() -> ir.Module:
    """The module with the function `RUN`, to be compiled as `compile_emulated` does."""
    module = new_module("emulated_scheduler")
    allocate = _allocate(module)
    permute = _permute(module)
    step = _step(module, permute)
    block = _run_block(module, permute, step, _settle(module))
    function, b = define(module, RUN, [PTR])
    (launch,) = function.args
    store_field(b, launch, LAUNCH["allocate"], b.ptrtoint(allocate, I64))
    store_field(b, launch, LAUNCH["frames"], _NULL)
    x, y, z = (b.zext(load_field(b, launch, LAUNCH["grid"], n), I64) for n in range(3))
    count = b.mul(b.mul(x, y), z)
    _prepare_launch(b, launch)
    order = load_field(b, launch, LAUNCH["block_order"])
    b.call(permute, [launch, order, b.trunc(count, I32)])
    with counted(b, number(0), count) as k:
        at = b.zext(_entry(b, order, k), I64)
        with _unless_failed(b, launch):
            for axis, place in enumerate((b.urem(at, x), b.urem(b.udiv(at, x), y), b.udiv(at, b.mul(x, y)))):
                store_field(b, launch, LAUNCH["block"], b.trunc(place, I32), axis)
            b.call(block, [launch])
    frames = load_field(b, launch, LAUNCH["frames"])
    b.call(_external(module, "free", ir.VoidType(), [PTR]), [frames])
    b.ret_void()
    return module


def _external(module: ir.Module, name: str, result: ir.Type, arguments: list[ir.Type]) -> ir.Function:
    found = module.globals.get(name)
    return found or ir.Function(module, ir.FunctionType(result, arguments), name)


def _entry(b: ir.IRBuilder, table: ir.Value, index: ir.Value) -> ir.Value:
    return b.load(b.gep(table, [index], source_etype=I32), typ=I32)


def _failed(b: ir.IRBuilder, launch: ir.Value) -> ir.Value:
    return b.icmp_unsigned("!=", load_field(b, launch, LAUNCH["fault"]), constant(I32, FAULT["none"]))


@contextmanager
def _unless_failed(b: ir.IRBuilder, launch: ir.Value) -> Iterator[None]:
    with b.if_then(b.not_(_failed(b, launch))):
        yield


def _fail(b: ir.IRBuilder, launch: ir.Value, kind: str, *where: ir.Value) -> None:
    """Note a fault and where it is, unless there is one already."""
    with _unless_failed(b, launch):
        store_field(b, launch, LAUNCH["fault"], constant(I32, FAULT[kind]))
        for n, value in enumerate(where):
            store_field(b, launch, LAUNCH["where"], value, n)


def _context(b: ir.IRBuilder, launch: ir.Value, thread: ir.Value) -> ir.Value:
    """The record of ``thread`` (i64)."""
    return at_byte(b, load_field(b, launch, LAUNCH["contexts"]), b.mul(thread, number(THREAD_BYTES)))


def _allocate(module: ir.Module) -> ir.Function:
    """(launch, thread, bytes) -> the thread's frame, which every block uses again."""
    function, b = define(module, "shardc.allocate", [PTR, I32, I64], PTR, internal=True)
    launch, thread, size = function.args
    room = b.and_(b.add(size, number(63)), number(-64))
    missing = b.icmp_unsigned("==", b.ptrtoint(load_field(b, launch, LAUNCH["frames"]), I64), number(0))
    with b.if_then(missing, likely=False):
        allocate = _external(module, "aligned_alloc", PTR, [I64, I64])
        threads = b.zext(load_field(b, launch, LAUNCH["threads"]), I64)
        store_field(b, launch, LAUNCH["frames"], b.call(allocate, [number(64), b.mul(room, threads)]))
    b.ret(at_byte(b, load_field(b, launch, LAUNCH["frames"]), b.mul(room, b.zext(thread, I64))))
    return function


def _permute(module: ir.Module) -> ir.Function:
    """(launch, table, count): the numbers below ``count`` (i32) in the launch's order."""
    function, b = define(module, "shardc.permute", [PTR, PTR, I32], internal=True)
    launch, table, count = function.args
    order = load_field(b, launch, LAUNCH["order"])
    backwards = b.icmp_unsigned("==", order, constant(I32, ORDERS["reverse"]))
    wide = b.zext(count, I64)
    with counted(b, number(0), wide) as k:
        low = b.trunc(k, I32)
        value = b.select(backwards, b.sub(b.sub(count, constant(I32, 1)), low), low)
        b.store(value, b.gep(table, [k], source_etype=I32))
    with b.if_then(b.icmp_unsigned("==", order, constant(I32, ORDERS["random"]))), counted(b, number(1), wide) as k:
        other = b.urem(_random(b, launch), b.add(k, number(1)))
        here, there = (b.gep(table, [n], source_etype=I32) for n in (k, other))
        x, y = b.load(here, typ=I32), b.load(there, typ=I32)
        b.store(y, here)
        b.store(x, there)
    b.ret_void()
    return function


def _random(b: ir.IRBuilder, launch: ir.Value) -> ir.Value:
    """The next number of a linear congruential generator, its upper half."""
    state = b.add(
        b.mul(load_field(b, launch, LAUNCH["random"]), number(6364136223846793005)), number(1442695040888963407)
    )
    store_field(b, launch, LAUNCH["random"], state)
    return b.lshr(state, number(32))


def _same(b: ir.IRBuilder, thread: ir.Value, other: ir.Value) -> ir.Value:
    state, site = ([load_field(b, t, THREAD[n]) for t in (thread, other)] for n in ("state", "site"))
    return b.and_(b.icmp_unsigned("==", *state), b.icmp_unsigned("==", *site))


def _compare(b: ir.IRBuilder, launch: ir.Value, first: ir.Value, thread: ir.Value) -> None:
    """A fault when a thread does not wait where the first one does."""
    with b.if_then(b.not_(_same(b, first, thread)), likely=False):
        where = [load_field(b, t, THREAD[n]) for t in (first, thread) for n in ("number", "site")]
        _fail(b, launch, "diverged", *where)


def _warp_end(b: ir.IRBuilder, launch: ir.Value, warp: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The first thread of a warp and how many lanes there are."""
    first = b.mul(warp, number(WARP))
    rest = b.sub(b.zext(load_field(b, launch, LAUNCH["threads"]), I64), first)
    return first, b.select(b.icmp_unsigned("<", rest, number(WARP)), rest, number(WARP))


def _step(module: ir.Module, permute: ir.Function) -> ir.Function:
    """(launch, warp) -> whether the warp ran."""
    function, b = define(module, "shardc.step", [PTR, I64], I1, internal=True)
    launch, warp = function.args
    begin, lanes = _warp_end(b, launch, warp)
    first = _context(b, launch, begin)
    with counted(b, number(1), lanes) as k:
        _compare(b, launch, first, _context(b, launch, b.add(begin, k)))
    state = load_field(b, first, THREAD["state"])
    waits = b.icmp_unsigned(">=", state, constant(I32, STATE["block"]))
    with b.if_then(b.or_(waits, _failed(b, launch))):
        b.ret(constant(I1, 0))
    order = load_field(b, launch, LAUNCH["lane_order"])
    b.call(permute, [launch, order, b.trunc(lanes, I32)])
    with counted(b, number(0), lanes) as k:
        lane = b.zext(_entry(b, order, k), I64)
        _resume(b, launch, _context(b, launch, b.add(begin, lane)))
    b.ret(constant(I1, 1))
    return function


def _resume(b: ir.IRBuilder, launch: ir.Value, thread: ir.Value) -> None:
    """The thread runs until it waits or is done; the first time, it is made."""
    handle = load_field(b, thread, THREAD["handle"])
    store_field(b, thread, THREAD["site"], constant(I32, 0))
    with b.if_else(b.icmp_unsigned("==", b.ptrtoint(handle, I64), number(0))) as (new, old):
        with new:
            start = b.inttoptr(load_field(b, launch, LAUNCH["start"]), _START.as_pointer())
            arrays, device = (load_field(b, launch, LAUNCH[n]) for n in ("arrays", "device"))
            store_field(b, thread, THREAD["handle"], b.call(start, [arrays, device, thread]))
        with old:
            b.call(_external(b.module, "llvm.coro.resume", ir.VoidType(), [PTR]), [handle])


def _settle(module: ir.Module) -> ir.Function:
    """(launch) -> whether there is more to do. All threads of the block wait, or are done: let them pass the
    barrier."""
    function, b = define(module, "shardc.settle", [PTR], I1, internal=True)
    (launch,) = function.args
    threads = b.zext(load_field(b, launch, LAUNCH["threads"]), I64)
    first = _context(b, launch, number(0))
    with counted(b, number(1), threads) as k:
        _compare(b, launch, first, _context(b, launch, k))
    done = b.icmp_unsigned("==", load_field(b, first, THREAD["state"]), constant(I32, STATE["done"]))
    with b.if_then(b.or_(done, _failed(b, launch))):
        b.ret(constant(I1, 0))
    with counted(b, number(0), threads) as k:
        store_field(b, _context(b, launch, k), THREAD["state"], constant(I32, STATE["ready"]))
    b.ret(constant(I1, 1))
    return function


def _prepare_launch(b: ir.IRBuilder, launch: ir.Value) -> None:
    """What is the same for all blocks. Lanes that a last warp lacks show nothing useful to the others."""
    threads = b.zext(load_field(b, launch, LAUNCH["threads"]), I64)
    contexts, copies = (load_field(b, launch, LAUNCH[n]) for n in ("contexts", "copies"))
    whole = b.and_(b.add(threads, number(WARP - 1)), number(-WARP))
    nothing = [constant(I8, 0xFF), b.mul(whole, number(THREAD_BYTES)), constant(I1, 0)]
    intrinsic(b, "llvm.memset", ir.VoidType(), [contexts, *nothing])
    with counted(b, number(0), threads) as k:
        thread = _context(b, launch, k)
        store_field(b, thread, THREAD["number"], b.trunc(k, I32))
        store_field(b, thread, THREAD["launch"], launch)
        store_field(b, thread, THREAD["copies"], at_byte(b, copies, b.mul(k, number(MOST_COPIES * COPY_BYTES))))


def _prepare(b: ir.IRBuilder, launch: ir.Value, threads: ir.Value) -> ir.Value:
    """Fresh threads, and shared memory that holds nothing useful; its bytes with those of the guard."""
    with counted(b, number(0), threads) as k:
        thread = _context(b, launch, k)
        for name in ("state", "site", "meetings", "first_copy", "next_copy", "group"):
            store_field(b, thread, THREAD[name], constant(I32, 0))
        store_field(b, thread, THREAD["handle"], _NULL)
    sizes = [b.zext(load_field(b, launch, LAUNCH[n]), I64) for n in ("shared_bytes", "guard_bytes")]
    size = b.add(*sizes)
    place = load_field(b, launch, LAUNCH["shared"])
    intrinsic(b, "llvm.memset", ir.VoidType(), [place, constant(I8, 0xFF), size, constant(I1, 0)])
    return size


def _run_block(module: ir.Module, permute: ir.Function, step: ir.Function, settle: ir.Function) -> ir.Function:
    """(launch): one block."""
    function, b = define(module, "shardc.block", [PTR], internal=True)
    (launch,) = function.args
    threads = b.zext(load_field(b, launch, LAUNCH["threads"]), I64)
    size = _prepare(b, launch, threads)
    warps = b.udiv(b.add(threads, number(WARP - 1)), number(WARP))
    order = load_field(b, launch, LAUNCH["warp_order"])
    # Forwards and in reverse a warp goes on while it can; at random, others come in between.
    greedy = b.icmp_unsigned("!=", load_field(b, launch, LAUNCH["order"]), constant(I32, ORDERS["random"]))
    phase, over = function.append_basic_block("phase"), function.append_basic_block("over")
    b.branch(phase)
    b.position_at_end(phase)
    b.call(permute, [launch, order, b.trunc(warps, I32)])
    ran: ir.Value
    flag = LAUNCH["ran"]
    store_field(b, launch, flag, constant(I32, 0))
    with counted(b, number(0), warps) as k:
        warp = b.zext(_entry(b, order, k), I64)
        again, next_warp = function.append_basic_block("again"), function.append_basic_block("next")
        b.branch(again)
        b.position_at_end(again)
        ran = b.call(step, [launch, warp])
        store_field(b, launch, flag, b.or_(load_field(b, launch, flag), b.zext(ran, I32)))
        b.cbranch(b.and_(ran, greedy), again, next_warp)
        b.position_at_end(next_warp)
    settled = function.append_basic_block("settled")
    b.cbranch(b.icmp_unsigned("!=", load_field(b, launch, flag), constant(I32, 0)), phase, settled)
    b.position_at_end(settled)
    b.cbranch(b.call(settle, [launch]), phase, over)
    b.position_at_end(over)
    _check_guard(b, launch, size)
    b.ret_void()
    return function


def _check_guard(b: ir.IRBuilder, launch: ir.Value, size: ir.Value) -> None:
    """Nobody wrote behind the block's shared memory: all bytes there are still set."""
    place = load_field(b, launch, LAUNCH["shared"])
    begin = b.zext(load_field(b, launch, LAUNCH["shared_bytes"]), I64)
    wide = ir.VectorType(I64, 8)
    before = b.block
    head, body, done = (b.append_basic_block(n) for n in ("head", "guard", "guarded"))
    b.branch(head)
    b.position_at_end(head)
    at, kept = b.phi(I64), b.phi(wide)
    at.add_incoming(begin, before)
    kept.add_incoming(constant(wide, -1), before)
    b.cbranch(b.icmp_unsigned("<", at, size), body, done)
    b.position_at_end(body)
    kept.add_incoming(b.and_(kept, b.load(at_byte(b, place, at), typ=wide, align=1)), body)
    at.add_incoming(b.add(at, number(64)), body)
    b.branch(head)
    b.position_at_end(done)
    wrong = b.icmp_unsigned("!=", intrinsic(b, "llvm.vector.reduce.and", I64, [kept]), number(-1))
    with b.if_then(wrong, likely=False), counted(b, begin, size) as k:
        changed = b.icmp_unsigned("!=", b.load(at_byte(b, place, k), typ=I8), constant(I8, 0xFF))
        with b.if_then(changed):
            _fail(b, launch, "shared", b.trunc(k, I32))
