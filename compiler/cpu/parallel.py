"""Kernels on several threads: a kernel's *phases*, and into how many chunks a phase's work is cut.

A phase is a function of its own that computes some of ``count`` chunks. The thread pool
(`shardc.native.threads.pool`) calls it for all of them, in any order, and the kernel goes on when all are done. What a
chunk computes depends on shapes and the target only, never on the number of threads, so results do not either.

Example, a kernel that sums rows in two phases::

    e = kernel.emitter()
    partial = allocate(e, 4 * count)

    def sums(part: Part) -> None:
        p = part.emitter()
        (place,) = part.shared              # the same memory, seen from the phase's function
        loop = Loop(p.entry, part.end, 1, part.begin)
        ...                                 # chunk ``loop.index`` writes element ``loop.index`` of ``place``
        loop.close()
        p.finish()

    phase(kernel, e, count, sums, shared=[partial])
    ...                                     # serial code, or another phase
    release(e, [partial])
    e.finish()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llvmlite import ir

from shardc.compiler.cpu.body import CpuKernel
from shardc.compiler.cpu.emitter import CpuEmitter
from shardc.compiler.tuning import DEFAULT, Tuning
from shardc.costs.ops.table import OP_COSTS, instruction_flops
from shardc.hlo.ir.ir import Computation, Instruction
from shardc.native.llvm.symbols import PARALLEL
from shardc.native.math.vector import I32, I64, PTR, constant

__all__ = ["ChunkSpan", "PhaseKernel", "chunks", "flops_of", "in_pieces", "map_chunks", "phase", "products_of"]

#: What one core does per second, roughly: bytes moved, simple operations on elements, multiply-adds of products.
_BYTES, _FLOPS, _PRODUCTS = 16e9, 8e9, 40e9
#: Work of less than this many seconds stays on one thread; a chunk has at least so many seconds of work.
_SERIAL, _CHUNK = 20e-6, 8e-6
#: Most chunks of a phase: plenty for 64 threads to end together.
_MOST = 256

_FOLDS = frozenset({"reduce", "reduce-window", "dot", "convolution", "select-and-scatter", "sort"})


def chunks(
    *, nbytes: float = 0, flops: float = 0, products: float = 0, most: int = _MOST, tuning: Tuning = DEFAULT
) -> int:
    """Into how many chunks to cut work that moves ``nbytes`` bytes, does ``flops`` simple operations on elements and
    ``products`` multiply-adds of matrix products.

    1 means: not worth a second thread. Depends on its arguments alone; ``most`` is how many pieces the work has;
    ``tuning`` may ask for more or fewer.
    """
    seconds = _seconds(nbytes, flops, products)
    if seconds < _SERIAL:
        return 1
    return max(1, min(_MOST, most, int(seconds / _CHUNK * tuning.pieces)))


def _seconds(nbytes: float, flops: float, products: float) -> float:
    """Of one core."""
    return max(nbytes / _BYTES, flops / _FLOPS + products / _PRODUCTS)


def flops_of(instruction: Instruction) -> int:
    """Simple operations of an elementwise instruction, or of all that a fused computation holds."""
    called = instruction.attrs.get("calls")
    if isinstance(called, Computation):
        return sum(map(flops_of, called))
    if OP_COSTS[instruction.opcode].free:
        return 0
    leaves = [*instruction.shape.leaves(), *(s for o in instruction.operands for s in o.shape.leaves())]
    size = max((s.size for s in leaves if s.is_array), default=0)
    return size * OP_COSTS[instruction.opcode].weight


def products_of(instruction: Instruction) -> int:
    """Multiply-adds of a product or convolution, or of all that a fused computation holds."""
    called = instruction.attrs.get("calls")
    if isinstance(called, Computation):
        return sum(map(products_of, called))
    return instruction_flops(instruction) // 2 if instruction.opcode in ("dot", "convolution") else 0


def _traffic(instruction: Instruction) -> int:
    """Bytes that an instruction reads and writes."""
    called = instruction.attrs.get("calls")
    inside = called if isinstance(called, Computation) else (instruction,)
    folds = any(i.opcode in _FOLDS for i in inside)
    results = [s for s in instruction.shape.leaves() if s.is_array]
    size = sum(s.size for s in results)
    read = (s for o in instruction.operands for s in o.shape.leaves())
    # Without a fold an element reads about one element of each operand, however large that is.
    nbytes = sum(s.nbytes if folds else min(s.nbytes, size * s.dtype.nbytes) for s in read)
    return nbytes + sum(s.nbytes for s in results)


def map_chunks(instruction: Instruction, tuning: Tuning = DEFAULT) -> int:
    """`chunks` of an instruction that computes its results element by element."""
    return chunks(nbytes=_traffic(instruction), flops=flops_of(instruction), tuning=tuning)


class PhaseKernel(CpuKernel):
    """A phase's function being filled. It is used as a kernel is, and is to compute the chunks [begin, end).

    ``begin`` < ``end`` are i64 values; ``shared`` are the pointers given to `phase`, in that order.
    """

    def __init__(self, function: ir.Function, kernel: CpuKernel, shared: int) -> None:
        super().__init__(function, kernel.instruction, kernel.target, kernel.emit_program, kernel.tuning)
        self.begin: ir.Value
        self.end: ir.Value
        *rest, self.begin, self.end, _ = function.args
        self.shared: list[ir.Value] = rest[len(rest) - shared :]


@dataclass(frozen=True)
class ChunkSpan:
    """Chunks [begin, end) of ``count`` that an iteration space is cut into; the bounds are i64 values, begin < end."""

    count: int
    begin: ir.Value
    end: ir.Value

    def steps(self, b: ir.IRBuilder, total: int) -> tuple[ir.Value, ir.Value]:
        """The chunks' share of ``total`` steps of a loop: first and past the last; it may be empty."""

        def at(chunk: ir.Value) -> ir.Value:
            return b.udiv(b.mul(chunk, constant(I64, total)), constant(I64, self.count))

        return at(self.begin), at(self.end)


def phase(
    kernel: CpuKernel, e: CpuEmitter, count: int, emit: Callable[[PhaseKernel], None], shared: Sequence[ir.Value] = ()
) -> None:
    """Compute ``count`` chunks on the pool's threads, in any order, at the current end of ``e.entry``.

    ``e`` is the kernel's emitter. ``emit`` fills the phase's function: it makes an emitter of the part, computes the
    chunks from ``part.begin`` up to ``part.end``, and finishes the emitter. ``shared`` are further pointers that the
    phase needs (scratch memory). With one chunk the function is called without the pool.
    """
    module = kernel.function.module
    name = module.get_unique_name(f"{kernel.function.name}.phase")
    pointers = [*kernel.operands, *kernel.results, *shared]
    kinds = [PTR] * len(pointers) + [I64, I64, I32]
    body = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), name)
    body.linkage = "internal"
    body.attributes.add("nounwind")
    emit(PhaseKernel(body, kernel, len(shared)))
    b = e.entry.builder
    if count <= 1:
        body.attributes.add("alwaysinline")
        b.call(body, [*pointers, constant(I64, 0), constant(I64, count), kernel.device])
        return
    body.attributes.add("noinline")
    context = e.slot(ir.ArrayType(PTR, len(pointers) + 1))
    context.type = PTR  # llvmlite gives it a typed pointer, which is no ``ptr`` to it
    for n, pointer in enumerate(pointers):
        b.store(pointer, _place(b, context, n))
    b.store(kernel.device, _place(b, context, len(pointers)))
    parallel = module.globals.get(PARALLEL)
    if parallel is None:
        parallel = ir.Function(module, ir.FunctionType(ir.VoidType(), [PTR, PTR, I64, I64]), PARALLEL)
    entry = _entry(module, body, len(pointers))
    entry.type = PTR
    i = kernel.instruction
    seconds = _seconds(_traffic(i), flops_of(i), products_of(i))
    b.call(parallel, [entry, context, constant(I64, count), constant(I64, int(seconds * 1e9))])


def in_pieces(
    kernel: CpuKernel, pieces: int, flops: float, fill: Callable[[CpuKernel, ChunkSpan | None], None]
) -> None:
    """A kernel of ``pieces`` independent pieces that takes ``flops`` simple operations.

    ``fill`` makes the function that computes the pieces of a span (None: all of them): the kernel's own, or a phase's.
    """
    count = chunks(flops=flops, most=pieces, tuning=kernel.tuning)
    if count == 1:
        fill(kernel, None)
        return
    e = kernel.emitter({})
    phase(kernel, e, count, lambda part: fill(part, ChunkSpan(count, part.begin, part.end)))
    e.finish()


def _place(b: ir.IRBuilder, context: ir.Value, number: int) -> ir.Value:
    return b.gep(context, [constant(I64, number)], inbounds=True, source_etype=PTR)


def _entry(module: ir.Module, body: ir.Function, pointers: int) -> ir.Function:
    """What the pool calls: ``void (ptr context, i64 begin, i64 end)``."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [PTR, I64, I64]), f"{body.name}.entry")
    function.linkage = "internal"
    function.attributes.add("nounwind")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    context, begin, end = function.args
    values = [b.load(_place(b, context, n), typ=PTR) for n in range(pointers)]
    device = b.load(_place(b, context, pointers), typ=I32)
    b.call(body, [*values, begin, end, device])
    b.ret_void()
    return function
