"""How fast this machine copies and multiplies: loops in native code, timed on one thread or several at once."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable

import numpy as np
from llvmlite import ir

from shardc.native.llvm.jit import Loaded, compile_ir, load_object, new_module
from shardc.native.llvm.target import host_target
from shardc.native.math.vector import F32, F64, I8, I32, I64, PTR, constant, intrinsic

__all__ = ["copy_bandwidth", "peak_flops"]

_LINE = 64
_COPIED = 64 << 20
_ROUNDS = 7
#: Products in flight: more than latency times units of any core.
_CHAINS = 12


def copy_bandwidth(threads: int) -> float:
    """Bytes per second, read and written ones counted, of copying 64 MiB: the best of `memmove` and of stores that
    bypass the caches, on one thread and on ``threads``."""
    code = _load("copy", _emit_copy)
    copy = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(code.address("copy"))
    blocks = [_lines(_COPIED, value) for value in (1, 0)]
    source, target = (b.ctypes.data for b in blocks)
    best = float("inf")
    for count in {1, threads}:
        piece = _COPIED // count // _LINE * _LINE
        for way in (copy, ctypes.memmove):
            run: Callable[[int], object] = lambda n, w=way, p=piece: w(target + n * p, source + n * p, p)  # type: ignore[misc]  # noqa: E731
            best = min(best, _fastest(run, count) / (piece * count))
    return 2 / best


def peak_flops(threads: int) -> dict[str, float]:
    """Operations per second of fused multiply-adds on vectors, by type (``f32``, ``f64``), on ``threads`` threads,
    or on one where these have no cores."""
    code = _load("peak", _emit_peak)
    found = {}
    rounds = 1_000_000
    for name in ("f32", "f64"):
        function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address(name))
        work: Callable[[int], object] = lambda n, f=function: f(rounds)  # type: ignore[misc]  # noqa: E731
        fastest = max(count / _fastest(work, count) for count in {1, threads})
        lanes = host_target().vector_bits // (32 if name == "f32" else 64)
        found[name] = 2.0 * _CHAINS * lanes * rounds * fastest
    return found


def _fastest(run: Callable[[int], object], threads: int) -> float:
    """Seconds of the best of a few rounds, in each of which every thread ``n`` does ``run(n)``."""
    gate = threading.Barrier(threads)
    spans: list[list[tuple[float, float]]] = [[] for _ in range(threads)]

    def work(number: int) -> None:
        for _ in range(_ROUNDS):
            gate.wait()
            begin = time.perf_counter()
            run(number)
            spans[number].append((begin, time.perf_counter()))

    workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    turns = zip(*spans, strict=True)
    fastest: float = min([max(end for _, end in turn) - min(begin for begin, _ in turn) for turn in turns])
    return fastest


def _lines(nbytes: int, value: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Touched memory that starts at a cache line."""
    room = np.empty(nbytes + _LINE, np.uint8)
    start = -room.ctypes.data % _LINE
    room[:] = value
    return room[start : start + nbytes]


def _load(name: str, emit: Callable[[ir.Module], list[str]]) -> Loaded:
    module = new_module(name)
    exports = emit(module)
    return load_object(compile_ir(module), exports)


def _emit_copy(module: ir.Module) -> list[str]:
    """``copy(target, source, bytes)``, line by line with non-temporal stores."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [PTR, PTR, I64]), "copy")
    target, source, count = function.args
    line = ir.VectorType(I8, _LINE)
    mark = module.add_metadata([constant(I32, 1)])

    def body(b: ir.IRBuilder, at: ir.Value) -> None:
        value = b.load(b.gep(source, [at], source_etype=I8), typ=line, align=_LINE)
        stored = b.store(value, b.gep(target, [at], source_etype=I8), align=_LINE)
        stored.set_metadata("nontemporal", mark)

    b = _count_to(function, count, _LINE, body)
    b.fence("seq_cst")
    b.ret_void()
    return ["copy"]


def _emit_peak(module: ir.Module) -> list[str]:
    """``f32(rounds)`` and ``f64(rounds)``: independent chains of multiply-adds; the answer depends on all of them."""
    for name, scalar in (("f32", F32), ("f64", F64)):
        lanes = host_target().vector_bits // (32 if name == "f32" else 64)
        vector = ir.VectorType(scalar, lanes)
        function = ir.Function(module, ir.FunctionType(I64, [I64]), name)
        places: list[ir.Value] = []

        def body(b: ir.IRBuilder, at: ir.Value, t: ir.Type = vector, places: list[ir.Value] = places) -> None:
            for place in places:
                value = intrinsic(b, "llvm.fma", t, [b.load(place, typ=t), constant(t, 0.5), constant(t, 1.0)])
                b.store(value, place)

        b = ir.IRBuilder(function.append_basic_block("entry"))
        places += [b.alloca(vector) for _ in range(_CHAINS)]
        for n, place in enumerate(places):
            b.store(constant(vector, float(n)), place)
        b = _count_to(function, function.args[0], 1, body)
        total = b.load(places[0], typ=vector)
        for place in places[1:]:
            total = b.fadd(total, b.load(place, typ=vector))
        b.ret(b.fptosi(b.extract_element(total, constant(I32, 0)), I64))
    return ["f32", "f64"]


def _count_to(
    function: ir.Function, end: ir.Value, step: int, body: Callable[[ir.IRBuilder, ir.Value], None]
) -> ir.IRBuilder:
    """``body`` at 0, ``step``, ... before ``end`` (at least once); a builder behind the loop."""
    blocks = function.basic_blocks
    entry = blocks[0] if blocks else function.append_basic_block("entry")
    loop, done = (function.append_basic_block(n) for n in ("loop", "done"))
    ir.IRBuilder(entry).branch(loop)
    b = ir.IRBuilder(loop)
    at = b.phi(I64)
    at.add_incoming(constant(I64, 0), entry)
    body(b, at)
    following = b.add(at, constant(I64, step))
    at.add_incoming(following, loop)
    b.cbranch(b.icmp_signed("<", following, end), loop, done)
    return ir.IRBuilder(done)
