"""The machine's memory bandwidth: what kernels bound by memory are held against.

python benchmarks/bandwidth.py [--mebibytes N] [--rounds N]

Copies an array of 64 MiB (much more than any cache keeps) into another by `memcpy` and by a loop of vector loads and
stores that bypass the cache, on one core and on all cores at once; the best of the medians is the copy bandwidth. A
byte that is copied counts twice: read and written. Reading alone (a sum that nobody uses) is measured beside it.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from shardc.native.llvm.jit import Loaded, compile_ir, load_object, new_module
from shardc.native.math.vector import I64, PTR

__all__ = ["Bandwidth", "bandwidth"]

_LINE = 64


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bytes per second: ``copy`` and ``read`` with all cores, ``copy_one`` and ``read_one`` with one of them."""

    copy: float
    read: float
    copy_one: float
    read_one: float


def bandwidth(nbytes: int = 64 << 20, rounds: int = 15) -> Bandwidth:
    """Measure; ``nbytes`` is the size of the array."""
    code = _routines()
    copy = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(code.address("copy"))
    read = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(code.address("read"))
    source, target = _lines(nbytes, 1), _lines(nbytes, 0)
    start, end = source.ctypes.data, target.ctypes.data
    ways: tuple[Callable[[int, int], object], ...] = (
        lambda at, n: ctypes.memmove(end + at, start + at, n),
        lambda at, n: copy(end + at, start + at, n),
    )
    cores = sorted(os.sched_getaffinity(0))

    def best(ways: Sequence[Callable[[int, int], object]], count: int) -> float:
        return max(nbytes / _median(way, nbytes, cores[:count], rounds) for way in ways)

    def reading(at: int, n: int) -> object:
        return read(start + at, n)

    result = Bandwidth(
        copy=2 * max(best(ways, 1), best(ways, len(cores))),
        read=max(best([reading], 1), best([reading], len(cores))),
        copy_one=2 * best(ways, 1),
        read_one=best([reading], 1),
    )
    np.testing.assert_array_equal(source, target)
    return result


def _lines(nbytes: int, value: int) -> np.ndarray:
    """An array that starts at a cache line, touched."""
    room = np.empty(nbytes + _LINE, np.uint8)
    first = -room.ctypes.data % _LINE
    lines = room[first : first + nbytes]
    lines[:] = value
    return lines


def _median(way: Callable[[int, int], object], nbytes: int, cores: Sequence[int], rounds: int) -> float:
    """Seconds that all pieces take together, one thread per core, each doing its piece; started together."""
    piece = nbytes // len(cores) // _LINE * _LINE
    gate = threading.Barrier(len(cores))
    ends: list[list[tuple[float, float]]] = [[] for _ in cores]

    def work(number: int) -> None:
        size = piece if number + 1 < len(cores) else nbytes - number * piece
        if len(cores) > 1:
            os.sched_setaffinity(0, {cores[number]})
        for _ in range(rounds + 1):
            gate.wait()
            begin = time.perf_counter()
            way(number * piece, size)
            ends[number].append((begin, time.perf_counter()))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(cores))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    spans = [max(e for _, e in turn) - min(b for b, _ in turn) for turn in zip(*ends, strict=True)]
    return statistics.median(spans[1:])


def _routines() -> Loaded:
    """``copy(target, source, bytes)`` with stores past the cache, and ``read(source, bytes)``."""
    module = new_module("bandwidth")
    words = ir.VectorType(I64, 8)
    for name in ("copy", "read"):
        reads = name == "read"
        arguments = [PTR, I64] if reads else [PTR, PTR, I64]
        function = ir.Function(module, ir.FunctionType(I64 if reads else ir.VoidType(), arguments), name)
        entry, loop, done = (function.append_basic_block(n) for n in ("entry", "loop", "done"))
        ir.IRBuilder(entry).branch(loop)
        b = ir.IRBuilder(loop)
        at = b.phi(I64)
        zero = ir.Constant(words, [0] * 8)
        sums = [b.phi(words) for _ in range(4)]
        at.add_incoming(ir.Constant(I64, 0), entry)
        for number, total in enumerate(sums):
            place = b.gep(function.args[0 if reads else 1], [at], source_etype=ir.IntType(8))
            line = b.gep(place, [ir.Constant(I64, number * _LINE)], source_etype=ir.IntType(8))
            value = b.load(line, typ=words, align=8)
            total.add_incoming(zero, entry)
            total.add_incoming(b.add(total, value) if reads else zero, loop)
            if not reads:
                there = b.gep(function.args[0], [at], source_etype=ir.IntType(8))
                there = b.gep(there, [ir.Constant(I64, number * _LINE)], source_etype=ir.IntType(8))
                stored = b.store(value, there, align=_LINE)
                stored.set_metadata("nontemporal", module.add_metadata([ir.Constant(ir.IntType(32), 1)]))
        following = b.add(at, ir.Constant(I64, 4 * _LINE))
        at.add_incoming(following, loop)
        b.cbranch(b.icmp_unsigned("<", following, function.args[-1]), loop, done)
        b = ir.IRBuilder(done)
        if reads:
            total = b.add(b.add(sums[0], sums[1]), b.add(sums[2], sums[3]))
            b.ret(b.extract_element(total, ir.Constant(ir.IntType(32), 0)))
        else:
            b.fence("seq_cst")
            b.ret_void()
    return load_object(compile_ir(module), ["copy", "read"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mebibytes", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    found = bandwidth(options.mebibytes << 20, options.rounds)
    print(
        f"copy {found.copy / 1e9:.1f} GB/s (one core {found.copy_one / 1e9:.1f}), "
        f"read {found.read / 1e9:.1f} GB/s (one core {found.read_one / 1e9:.1f})"
    )


if __name__ == "__main__":
    main()
