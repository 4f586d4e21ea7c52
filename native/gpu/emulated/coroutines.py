"""GPU threads on this machine's processor: each one is a coroutine that LLVM makes of the kernel's body.

A thread runs until it has to wait for others (a barrier, or an exchange within its warp) and suspends itself there;
`emulated_scheduler` resumes it when they have come. What a kernel computes may not depend on the order in which threads
run in between, so running it in several orders finds races. Kernels that never wait become plain functions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from llvmlite import ir

from shardc.native.gpu.emulated.copies import finish_copies, start_copy
from shardc.native.gpu.emulated.records import LAUNCH, STATE, THREAD, load_field, site_number, store_field
from shardc.native.gpu.emulated.threads import (
    FORWARD,
    REVERSE,
    EmulatedModule,
    GridFault,
    ThreadOrder,
    compile_emulated,
    load_emulated,
)
from shardc.native.gpu.emulated.warp import Exchange, matrices, multiply
from shardc.native.gpu.grid import GridCode, Mma, from_words, to_words
from shardc.native.llvm.flow import at_byte
from shardc.native.llvm.jit import TargetModule, new_module
from shardc.native.math.vector import I1, I8, I32, I64, PTR, constant

__all__ = [
    "FORWARD", "REVERSE", "EmulatedCode", "EmulatedModule", "GridFault", "ThreadOrder", "compile_emulated",
    "load_emulated", "new_emulated_module",
]  # fmt: skip

_VOID = ir.VoidType()
#: The alignment of coroutines' frames: that of the widest vector.
FRAME_ALIGN = 64


class _Token(ir.Type):  # type: ignore[misc]
    """LLVM's token type."""

    def _to_string(self) -> str:
        return "token"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Token)

    def __hash__(self) -> int:
        return hash(_Token)


_TOKEN = _Token()
_NO_TOKEN = ir.FormattedConstant(_TOKEN, "none")
_NULL = ir.Constant(PTR, None)


def new_emulated_module(name: str) -> TargetModule:
    """An empty module for emulated kernels on this machine."""
    module = new_module(name)
    module.has_libm = False
    return module


class EmulatedCode(GridCode):
    """See `GridCode`. Every place where threads wait has a number, its *site*, for messages."""

    def __init__(self) -> None:
        self._sites = 0
        self._gone: ir.Block | None = None
        self._left: ir.Block | None = None

    def define(
        self, module: ir.Module, name: str, pointers: int, readonly: Collection[int] = (), threads: int = 0
    ) -> ir.Function:
        function = ir.Function(module, ir.FunctionType(PTR, [PTR] * pointers + [I32, PTR]), f"{name}.thread")
        function.linkage = "internal"
        set.add(function.attributes, "presplitcoroutine")
        for number, argument in enumerate(function.args[:-2]):
            argument.attributes.align = 16
            if number in readonly:
                argument.add_attribute("noalias")
                set.add(argument.attributes, "readonly")
        function.args[-1].add_attribute("noalias")
        self._starter(module, name, function, pointers)
        return function

    def _starter(self, module: ir.Module, name: str, function: ir.Function, pointers: int) -> None:
        """What the scheduler calls to start a thread: (array of pointers, device, thread) -> the coroutine."""
        starter = ir.Function(module, ir.FunctionType(PTR, [PTR, I32, PTR]), name)
        b = ir.IRBuilder(starter.append_basic_block())
        table, device, thread = starter.args
        arrays = [b.load(at_byte(b, table, constant(I64, 8 * n)), typ=PTR) for n in range(pointers)]
        b.ret(b.call(function, [*arrays, device, thread]))

    def pointers(self, function: ir.Function) -> Sequence[ir.Value]:
        return list(function.args[:-2])

    def device(self, function: ir.Function) -> ir.Value:
        return function.args[-2]

    def enter(self, b: ir.IRBuilder) -> None:
        """The coroutine's frame: asked for unless LLVM finds that the thread never waits."""
        align = constant(I32, FRAME_ALIGN)
        token = _call(b, "llvm.coro.id", _TOKEN, align, _NULL, _NULL, _NULL)
        start, allocate = b.block, b.append_basic_block("frame")
        begin = b.append_basic_block("begin")
        b.cbranch(_call(b, "llvm.coro.alloc", I1, token), allocate, begin)
        b.position_at_end(allocate)
        launch = self._launch(b)
        function = ir.FunctionType(PTR, [PTR, I32, I64])
        size = _call(b, "llvm.coro.size.i64", I64)
        target = b.inttoptr(load_field(b, launch, LAUNCH["allocate"]), function.as_pointer())
        memory = b.call(target, [launch, self.thread(b), size])
        b.branch(begin)
        b.position_at_end(begin)
        frame = b.phi(PTR)
        frame.add_incoming(_NULL, start)
        frame.add_incoming(memory, allocate)
        handle = _call(b, "llvm.coro.begin", PTR, token, frame)
        gone, left = self._ends(b)
        inner = ir.IRBuilder(left)
        store_field(inner, self._context(inner), THREAD["state"], constant(I32, STATE["done"]))
        inner.branch(gone)
        inner.position_at_end(gone)
        _call(inner, "llvm.coro.end", _VOID, handle, constant(I1, 0), _NO_TOKEN)
        inner.ret(handle)

    def _ends(self, b: ir.IRBuilder) -> tuple[ir.Block, ir.Block]:
        """Where a thread that waits leaves its code for now, and where it does forever."""
        if self._gone is None or self._left is None:
            self._gone, self._left = b.append_basic_block("gone"), b.append_basic_block("left")
        return self._gone, self._left

    def leave(self, b: ir.IRBuilder) -> None:
        b.branch(self._ends(b)[1])

    def _context(self, b: ir.IRBuilder) -> ir.Value:
        return b.function.args[-1]

    def _launch(self, b: ir.IRBuilder) -> ir.Value:
        return load_field(b, self._context(b), THREAD["launch"])

    def thread(self, b: ir.IRBuilder) -> ir.Value:
        return load_field(b, self._context(b), THREAD["number"])

    def block(self, b: ir.IRBuilder, axis: int = 0) -> ir.Value:
        return load_field(b, self._launch(b), LAUNCH["block"], axis)

    def blocks(self, b: ir.IRBuilder, axis: int = 0) -> ir.Value:
        return load_field(b, self._launch(b), LAUNCH["grid"], axis)

    def shared(self, b: ir.IRBuilder, offset: int) -> ir.Value:
        return at_byte(b, load_field(b, self._launch(b), LAUNCH["shared"]), constant(I64, offset))

    # Waiting.

    def _suspend(self, b: ir.IRBuilder, state: str, kind: str) -> None:
        self._sites += 1
        context = self._context(b)
        store_field(b, context, THREAD["site"], constant(I32, site_number(self._sites, kind)))
        store_field(b, context, THREAD["state"], constant(I32, STATE[state]))
        gone, _ = self._ends(b)
        resumed = b.append_basic_block("resumed")
        choice = b.switch(_call(b, "llvm.coro.suspend", I8, _NO_TOKEN, constant(I1, 0)), gone)
        choice.add_case(constant(I8, 0), resumed)
        choice.add_case(constant(I8, 1), gone)
        b.position_at_end(resumed)

    def barrier(self, b: ir.IRBuilder) -> None:
        self._suspend(b, "block", "barrier")

    def _meet(self, b: ir.IRBuilder, kind: str, shown: Sequence[ir.Value] = ()) -> Exchange:
        """All lanes come here, each with the values that it shows to the others."""
        exchange = Exchange(b, self._context(b))
        exchange.show(b, shown)
        self._suspend(b, "warp", kind)
        return exchange

    def warp_barrier(self, b: ir.IRBuilder) -> None:
        self._meet(b, "warp_barrier")

    def shuffle_from(self, b: ir.IRBuilder, value: ir.Value, lane: ir.Value) -> ir.Value:
        found = self._meet(b, "shuffle", to_words(b, value))
        count = len(found.types)
        return from_words(b, [found.see(b, lane, n) for n in range(count)], value.type)

    def mma(
        self, b: ir.IRBuilder, kind: Mma, a: Sequence[ir.Value], bs: Sequence[ir.Value], c: Sequence[ir.Value]
    ) -> list[ir.Value]:
        found = self._meet(b, "mma", [*a, *bs])
        return multiply(b, kind, found, c)

    def load_matrix(self, b: ir.IRBuilder, place: ir.Value, count: int, transposed: bool = False) -> list[ir.Value]:
        return matrices(b, self._meet(b, "load_matrix", [place]), self.lane(b), count, transposed)

    # Copies: they arrive when somebody waits for them, so that who does not wait sees it.

    def copy_async(
        self, b: ir.IRBuilder, to: ir.Value, source: ir.Value, nbytes: int, taken: ir.Value | None = None
    ) -> None:
        size = constant(I32, nbytes)
        copied = size if taken is None else b.select(taken, size, constant(I32, 0))
        b.call(start_copy(b.module), [self._context(b), to, source, size, copied])

    def commit_copies(self, b: ir.IRBuilder) -> None:
        group = load_field(b, self._context(b), THREAD["group"])
        store_field(b, self._context(b), THREAD["group"], b.add(group, constant(I32, 1)))

    def await_copies(self, b: ir.IRBuilder, pending: int) -> None:
        b.call(finish_copies(b.module), [self._context(b), constant(I32, pending)])

    def fence(self, b: ir.IRBuilder) -> None:
        b.fence("seq_cst")


def _call(b: ir.IRBuilder, name: str, result: ir.Type, *arguments: ir.Value) -> ir.Value:
    function = b.module.globals.get(name)
    if function is None:
        function = ir.Function(b.module, ir.FunctionType(result, [a.type for a in arguments]), name)
    return b.call(function, arguments)
