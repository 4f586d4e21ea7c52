"""Emulated copies from global to shared memory: a list per thread, worked off when the thread waits."""

from __future__ import annotations

from llvmlite import ir

from shardc.native.gpu.emulated.records import (
    COPY,
    COPY_BYTES,
    FAULT,
    LAUNCH,
    MOST_COPIES,
    THREAD,
    load_field,
    store_field,
)
from shardc.native.llvm.flow import at_byte
from shardc.native.math.vector import I1, I8, I32, I64, PTR, constant, intrinsic

__all__ = ["finish_copies", "start_copy"]

_VOID = ir.VoidType()


def _copy_at(b: ir.IRBuilder, thread: ir.Value, number: ir.Value) -> ir.Value:
    at = b.mul(b.urem(number, constant(I32, MOST_COPIES)), constant(I32, COPY_BYTES))
    return at_byte(b, load_field(b, thread, THREAD["copies"]), b.zext(at, I64))


def start_copy(module: ir.Module) -> ir.Function:
    """(thread, to, source, bytes, bytes that are copied): what lay there before is gone at once."""
    found = module.globals.get("shardc.start_copy")
    if found is not None:
        return found
    function = ir.Function(module, ir.FunctionType(_VOID, [PTR, PTR, PTR, I32, I32]), "shardc.start_copy")
    function.linkage = "internal"
    function.attributes.add("noinline")
    b = ir.IRBuilder(function.append_basic_block())
    thread, to, source, nbytes, copied = function.args
    intrinsic(b, "llvm.memset", _VOID, [to, constant(I8, 0xFF), b.zext(nbytes, I64), constant(I1, 0)])
    first, following = (load_field(b, thread, THREAD[n]) for n in ("first_copy", "next_copy"))
    with b.if_then(b.icmp_unsigned(">=", b.sub(following, first), constant(I32, MOST_COPIES))):
        launch = load_field(b, thread, THREAD["launch"])
        store_field(b, launch, LAUNCH["fault"], constant(I32, FAULT["copies"]))
        store_field(b, launch, LAUNCH["where"], load_field(b, thread, THREAD["number"]))
        b.ret_void()
    record = _copy_at(b, thread, following)
    taken = b.icmp_unsigned("!=", copied, constant(I32, 0))
    store_field(b, record, COPY["to"], to)
    store_field(b, record, COPY["source"], b.select(taken, source, ir.Constant(PTR, None)))
    store_field(b, record, COPY["nbytes"], nbytes)
    store_field(b, record, COPY["group"], load_field(b, thread, THREAD["group"]))
    store_field(b, thread, THREAD["next_copy"], b.add(following, constant(I32, 1)))
    b.ret_void()
    return function


def finish_copies(module: ir.Module) -> ir.Function:
    """(thread, pending): the copies of all but the last ``pending`` groups arrive."""
    found = module.globals.get("shardc.finish_copies")
    if found is not None:
        return found
    function = ir.Function(module, ir.FunctionType(_VOID, [PTR, I32]), "shardc.finish_copies")
    function.linkage = "internal"
    function.attributes.add("noinline")
    b = ir.IRBuilder(function.append_basic_block())
    thread, pending = function.args
    group = load_field(b, thread, THREAD["group"])
    head, look, land, done = (function.append_basic_block(n) for n in ("head", "look", "land", "done"))
    b.branch(head)
    b.position_at_end(head)
    first = load_field(b, thread, THREAD["first_copy"])
    b.cbranch(b.icmp_unsigned("==", first, load_field(b, thread, THREAD["next_copy"])), done, look)
    b.position_at_end(look)
    record = _copy_at(b, thread, first)
    age = b.sub(group, load_field(b, record, COPY["group"]))
    b.cbranch(b.icmp_unsigned(">", age, pending), land, done)
    b.position_at_end(land)
    to, source = (load_field(b, record, COPY[n]) for n in ("to", "source"))
    size = b.zext(load_field(b, record, COPY["nbytes"]), I64)
    none = b.icmp_unsigned("==", b.ptrtoint(source, I64), constant(I64, 0))
    with b.if_else(none) as (zeros, bytes_):
        with zeros:
            intrinsic(b, "llvm.memset", _VOID, [to, constant(I8, 0), size, constant(I1, 0)])
        with bytes_:
            intrinsic(b, "llvm.memcpy", _VOID, [to, source, size, constant(I1, 0)])
    store_field(b, thread, THREAD["first_copy"], b.add(first, constant(I32, 1)))
    b.branch(head)
    b.position_at_end(done)
    b.ret_void()
    return function
